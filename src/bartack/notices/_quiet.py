"""Quiet hours: how long notices are held back. Pure; the time and the zone are parameters."""

from __future__ import annotations

from datetime import datetime, timedelta, tzinfo


def quiet_left_s(hours: tuple[int, int] | None, now: float, zone: tzinfo | None = None) -> float:
    """How many seconds the quiet hours last from now on; 0 outside of them.

    The hours are those that a clock on the wall shows. When it is set for daylight saving time, they are an hour shorter or longer.

    Args:
        hours: Begin and end, in minutes since midnight; the end may be on the next day.
        now: Seconds since 1970.
        zone: Where the clock is; that of this machine by default.
    """
    if hours is None:
        return 0.0
    begin, end = hours
    wall = datetime.fromtimestamp(now, zone)
    minutes = wall.hour * 60 + wall.minute
    if not (begin <= minutes < end if begin < end else minutes >= begin or minutes < end):
        return 0.0
    ends = wall.replace(hour=end // 60, minute=end % 60, second=0, microsecond=0, fold=0)
    if end <= minutes:
        ends += timedelta(days=1)
    # In the hour that the clock shows twice, the end may be the second time that it shows this.
    left = ends.timestamp() - now
    return left if left > 0 else max(ends.replace(fold=1).timestamp() - now, 0.0)
