"""Moments, as the files of a run have them."""

from __future__ import annotations

from datetime import UTC, datetime


def iso_time(at: int) -> str:
    """Microseconds since 1970 as a time in UTC."""
    return datetime.fromtimestamp(at / 1e6, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
