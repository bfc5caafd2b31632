"""The one way this program writes down a moment: UTC, ISO 8601, milliseconds."""

from datetime import UTC, datetime


def utc_now() -> str:
    """For example 2026-11-30T20:55:01.123+00:00; sorts as text, and pandas and date -d read it."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")
