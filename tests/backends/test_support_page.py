"""docs/support.md is what the engines' checks make it, and complete."""

from pathlib import Path

import primus_app
from primus_app.backends.support_page import support_page
from primus_app.config.compose import groups

ROOT = Path(primus_app.__file__).parents[1]


def test_the_page_is_in_step_and_has_every_model_and_precision() -> None:
    page = support_page()
    assert (ROOT / "docs/support.md").read_text(encoding="utf-8") == page, "run ./scripts/docs"
    for model in groups()["model"]:
        assert f"`{model}`" in page or model == "hf"
    for precision in groups()["precision"]:
        assert f"| `precision={precision}` |" in page


def test_a_line_says_what_each_engine_says() -> None:
    """TorchTitan has no Mixtral and Megatron has; Megatron has no GPipe and TorchTitan has (each one's own documentation)."""
    page = (ROOT / "docs/support.md").read_text(encoding="utf-8")
    lines = {line.split(" | ")[0]: line for line in page.splitlines()}
    assert lines["| mixtral"].endswith("no model that computes what mixtral does | yes |")
    assert lines["| `parallel.pp=2 parallel.schedule=gpipe`"].endswith("| yes | `parallel.schedule`: megatron-core has no gpipe schedule |")
