"""docs/configuration.md is what the schema and conf/ make it, and complete."""

import subprocess
import sys
from pathlib import Path

import primus_app
from primus_app.config.compose import groups
from primus_app.config.kinds import schema_leaves
from primus_app.config.location import conf_dir
from primus_app.config.reference import configuration_page, table

ROOT = Path(primus_app.__file__).parents[1]


def test_the_page_is_in_step() -> None:
    assert (ROOT / "docs/configuration.md").read_text(encoding="utf-8") == configuration_page(), "run ./scripts/docs"


def test_every_key_and_every_option_is_on_it() -> None:
    page = configuration_page()
    for key in schema_leaves():
        assert f"| `{key}` |" in page or f"### {key}\n" in page, key
    for group, options in groups().items():
        assert f"\n## {group}\n" in page
        for option in options:
            assert f"| `{option}` |" in page


def test_every_option_says_what_it_is() -> None:
    assert "|  |\n" not in configuration_page().replace("|  |  |", ""), "a file of conf/ begins with a comment of one line"
    for group, options in groups().items():
        for option in options:
            lines = (conf_dir() / group / f"{option}.yaml").read_text().splitlines()
            assert any(line.startswith("# ") and "@package" not in line for line in lines[:2]), f"{group}/{option}"


def test_every_key_has_a_meaning_in_words_that_are_typed() -> None:
    rows = [line for line in configuration_page().splitlines() if line.startswith("| `") and line.count(" | ") == 5]
    assert len(rows) > 100
    for row in rows:
        assert row.split(" | ")[-1].strip(" |").endswith("."), row
        assert "None" not in row


def test_a_table() -> None:
    assert table(("a", "b"), [("1|2", "3")]) == "| a | b |\n| --- | --- |\n| 1\\|2 | 3 |\n"


def test_the_script_checks_and_knows_no_other_flag() -> None:
    assert subprocess.run([sys.executable, ROOT / "scripts/docs", "--check"], check=False).returncode == 0
    assert subprocess.run([sys.executable, ROOT / "scripts/docs", "--chek"], capture_output=True, check=False).returncode == 2
