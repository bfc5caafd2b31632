"""A part of ours that an engine takes through an extension point: declared beside the patches, though it changes nothing upstream."""

from dataclasses import dataclass


@dataclass(frozen=True)
class StandIn:
    """One part: its name under the backend's package, the extension point it goes in through, when, and why."""

    part: str
    through: str
    condition: str
    reason: str
