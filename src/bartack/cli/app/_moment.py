"""A moment in the future, as a person writes it on the command line."""

from __future__ import annotations

from datetime import datetime, time, timedelta

from bartack.errors import UsageError


def parse_moment(text: str, now: datetime | None = None) -> datetime:
    """The moment that is meant: a date and a time, with or without a zone, or the next time that it is so late.

    Raises:
        UsageError: It is not a time, or it has passed.
    """
    now = now or datetime.now().astimezone()
    try:
        return _next(time.fromisoformat(text), now)
    except ValueError:
        pass
    try:
        found = datetime.fromisoformat(text).astimezone(None)
    except (ValueError, OverflowError, OSError):
        raise UsageError("--at", f"{text!r} is not a time; write 2026-01-31T22:00 or 22:00") from None
    if found <= now:
        raise UsageError("--at", f"{text} has passed")
    return found


def _next(clock: time, now: datetime) -> datetime:
    here = now.astimezone(clock.tzinfo)
    for days in range(2):
        day = here.date() + timedelta(days=days)
        found = datetime.combine(day, clock).astimezone(None)
        if found > now:
            return found
    raise AssertionError("tomorrow is later than now")
