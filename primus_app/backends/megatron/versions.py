"""Which versions of megatron-core are known to train right, and what differs between them. Imports no megatron."""

import re
from importlib.metadata import PackageNotFoundError, version

TESTED = ((0, 16),)
"""Major and minor numbers of the versions that the tests have trained with."""

UPSTREAM = "megatron-core 0.16"
"""What the patches are for, in words."""


def installed_version() -> str | None:
    """megatron-core's, None where it is not installed."""
    try:
        return version("megatron-core")
    except PackageNotFoundError:
        return None


def is_tested(found: str) -> bool:
    """Whether ``found`` is of a tested series."""
    match = re.match(r"(\d+)\.(\d+)", found)
    return match is not None and (int(match[1]), int(match[2])) in TESTED


def tested_range() -> str:
    """In words."""
    return ", ".join(f"{major}.{minor}" for major, minor in TESTED)
