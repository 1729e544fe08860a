"""Reads the ``Retry-After`` header of an HTTP response. The waits of retries without one are in ``core/backoff.py``."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

RETRY_AFTER_MOST_S: Final = 3600.0


def parse_retry_after(text: str | None, wall_s: float) -> float | None:
    """The seconds that a ``Retry-After`` header asks for, in either form, at most one hour; ``None`` if it is unusable."""
    if not text:
        return None
    try:
        wait = float(text) if text.strip().isdigit() else _until(text, wall_s)
    except (ValueError, TypeError, OverflowError):
        return None
    return min(max(wait, 0.0), RETRY_AFTER_MOST_S)


def _until(text: str, wall_s: float) -> float:
    from email.utils import parsedate_to_datetime  # noqa: PLC0415 - slow to load, and most processes never read a date

    when = parsedate_to_datetime(text)
    aware: datetime = when if when.tzinfo else when.replace(tzinfo=UTC)
    return aware.timestamp() - wall_s
