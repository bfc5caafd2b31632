"""docs/native-options.md is what the engines' tables make it."""

from pathlib import Path

import primus_app
from primus_app.backends.reference import native_page

ROOT = Path(primus_app.__file__).parents[1]


def test_the_page_is_in_step() -> None:
    assert (ROOT / "docs/native-options.md").read_text(encoding="utf-8") == native_page(), "run ./scripts/docs"
