"""Settings of Primus itself, the same for both of its frameworks."""

from typing import Any

from primus_app.backends.imported.row import Fate, Row
from primus_app.backends.imported.setting import setting
from primus_app.config.kinds import choices, schema_fields

NEAREST = {"trace": "debug", "success": "info", "critical": "error"}
"""Levels of Primus' log that there are not here."""


def level_row(key: str, value: Any) -> Row:
    """Primus' level of the log on the terminal, in capitals; what is no level is told and left out."""
    level = str(value).lower()
    found = NEAREST.get(level, level)
    if found not in choices(schema_fields()["logging.level"]):
        return Row(key, value, fate=Fate.DIFFERS, note="no such level: info is the default")
    note = "" if found == level else f"{found} is the nearest"
    return Row(key, value, setting("logging.level", found), Fate.DIFFERS if note else Fate.SAME, note)


def mock_row(key: str, mock: bool) -> Row:
    """Data that need no file."""
    return Row(key, mock, ("data=mock",) if mock else (), note="a made-up language of any vocabulary" if mock else "")
