"""What README.md says of the checkout is so: links, folders, no gaps left to fill."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_somewhere(page: Path) -> None:
    text = page.read_text()
    assert "@@" not in text
    for target in re.findall(r"\]\(([^)#]+)\)", text):
        assert "://" in target or (page.parent / target).exists(), target


def test_every_folder_of_the_tree_is_there() -> None:
    tree = (ROOT / "README.md").read_text().split("## Where things are")[1].split("```")[1]
    folders = re.findall(r"^( *)(\w+)/ ", tree, re.MULTILINE)
    assert len(folders) > 8
    for indent, name in folders:
        assert (ROOT / ("primus_app" if indent else "") / name).is_dir(), name
    inside = {path.name for path in (ROOT / "primus_app").iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert inside == {name for indent, name in folders if indent}
