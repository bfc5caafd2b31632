"""Facts of Megatron that are kept as a file for each version, so that checks need not import it."""

from functools import cache
from importlib.resources import files
from typing import Any


@cache
def recorded_versions(package: str) -> tuple[str, ...]:
    """Versions that ``package`` has a file of in its folder recorded/, oldest first."""
    names = (file.name.removesuffix(".json") for file in _folder(package).iterdir() if file.name.endswith(".json"))
    return tuple(sorted(names, key=lambda name: [int(part) for part in name.split(".")]))


def recorded_text(package: str, version: str) -> str:
    """The file of ``version``, one of :func:`recorded_versions`."""
    text: str = (_folder(package) / f"{version}.json").read_text(encoding="utf-8")
    return text


def nearest_recorded(package: str, version: str) -> str:
    """The recorded version of the same series, or else the newest."""
    series, versions = version.split(".")[:2], recorded_versions(package)
    return next((name for name in versions if name.split(".")[:2] == series), versions[-1])


def _folder(package: str) -> Any:
    return files(package) / "recorded"
