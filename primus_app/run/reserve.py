"""A little room held back on the disk, so that the end of a run can be written down when the disk is full."""

import os
from contextlib import suppress
from pathlib import Path

from primus_app.run.files import TEMPORARY_PREFIX, free_space

RESERVE_BYTES = 1 << 16
FULL_BYTES = 1 << 18
"""Less free space than this is called a full disk."""


class Reserve:
    """A file of RESERVE_BYTES in ``folder`` until it is given up; where there is no room for it, there is none."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / f"{TEMPORARY_PREFIX}reserve"
        with suppress(OSError):
            self._file.write_bytes(b"\0" * RESERVE_BYTES)

    def give_up(self) -> None:
        """Free the room."""
        with suppress(OSError):
            self._file.unlink()


def full_disk_note(folder: Path) -> str:
    """A half-sentence for the cause of a failure when the disk that holds ``folder`` is full; empty otherwise."""
    with suppress(OSError):
        system = os.statvfs(folder)
        if system.f_bavail * system.f_frsize < FULL_BYTES or (system.f_files and not system.f_favail):
            return f"; the disk of the run directory is full ({free_space(folder)}): free some space there and give the same command again"
    return ""
