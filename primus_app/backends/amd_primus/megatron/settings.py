"""What an experiment for Megatron sets, whoever says it: the file, its presets, or Primus."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from primus_app.backends.amd_primus.megatron.fields import FIELDS


@dataclass(frozen=True)
class Settings:
    """Settings by Megatron's names.

    Attributes:
        given: those of the file.
        preset: those of its presets.
    """

    given: Mapping[str, Any]
    preset: Mapping[str, Any]

    def __getitem__(self, key: str) -> Any:
        """The file's value, a preset's, or Primus' default."""
        return self.given.get(key, self.preset.get(key, FIELDS[key].default))

    def without_file(self) -> "Settings":
        return Settings({}, self.preset)
