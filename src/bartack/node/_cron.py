"""When a schedule is due: five fields in a time zone. The only module that knows the library for it.

What happens when the clocks change is what Debian's cron does:

- a fixed time that does not exist (02:30 on the day when clocks go from 02:00 to 03:00) comes when the gap is over, at 03:00;
- a fixed time that exists twice comes the first time only;
- a schedule whose minute or hour begins with ``*`` follows the clock: ``*/30 * * * *`` comes every half hour of real time.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta, tzinfo
from pathlib import Path
from typing import Final

from bartack.errors import ScheduleError

FIELDS: Final = 5
MOST_LETTERS: Final = 200
"""Of an expression. A number of thousands of digits is not worth reading."""
MICROSECOND: Final = timedelta(microseconds=1)
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

_LOCALTIME: Final = Path("/etc/localtime")
_TIMEZONE: Final = Path("/etc/timezone")


def next_time(name: str, cron: str, zone: str, after_us: int) -> int:
    """The first time after ``after_us`` that an expression names, in microseconds since 1970.

    Args:
        name: The schedule, for the error.
        cron: Minute, hour, day of the month, month, day of the week.
        zone: The name of the time zone.
        after_us: A time.

    Raises:
        ScheduleError: The expression or the zone is unknown, or the expression names no time of the next 50 years.
    """
    from cronsim import CronSim, CronSimError  # noqa: PLC0415 - most commands start faster without it

    place = load_zone(name, zone)
    if len(cron) > MOST_LETTERS or len(cron.split()) != FIELDS:
        raise ScheduleError(name, f"{cron[:MOST_LETTERS]!r} does not have five fields")
    after = EPOCH + after_us * MICROSECOND
    try:
        # The library leaves out a repeated hour. Between its two passes it therefore returns times that have passed.
        for found in CronSim(cron, after.astimezone(place)):
            if found.astimezone(UTC) > after:
                return (found.astimezone(UTC) - EPOCH) // MICROSECOND
    except CronSimError as error:
        if not _is_missing_day(cron):
            raise ScheduleError(name, f"{cron!r} is not a time: {str(error).lower()}") from None
    raise ScheduleError(name, f"{cron!r} never comes")


def _is_missing_day(cron: str) -> bool:
    """Whether an expression that is refused is right but for its months, which do not have its day: 30 February."""
    from cronsim import CronSim, CronSimError  # noqa: PLC0415 - only a mistake needs it

    minute, hour, day, month, weekday = cron.split()
    try:
        CronSim(f"{minute} {hour} {day} * {weekday}", EPOCH)
        CronSim(f"{minute} {hour} 1 {month} {weekday}", EPOCH)
    except CronSimError:
        return False
    return True


def load_zone(name: str, zone: str) -> tzinfo:
    """A time zone by its name.

    Raises:
        ScheduleError: There is none of this name.
    """
    if zone == "UTC":
        return UTC  # also where the database of time zones is missing
    found = _find_zone(zone)
    if found is None:
        raise ScheduleError(name, f"there is no time zone {zone!r}{_advice(zone)}")
    return found


def _find_zone(zone: str) -> tzinfo | None:
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError  # noqa: PLC0415 - most commands start faster without it

    try:
        return ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return None


def _advice(zone: str) -> str:
    from difflib import get_close_matches  # noqa: PLC0415 - only a mistake needs it
    from zoneinfo import available_timezones  # noqa: PLC0415 - likewise

    known = available_timezones()
    if not known:
        return ": this machine has no database of time zones; install tzdata, or use UTC"
    near = get_close_matches(zone, sorted(known), n=1)
    return f"; did you mean {near[0]}?" if near else ""


def local_zone(environ: Mapping[str, str], localtime: Path = _LOCALTIME, timezone: Path = _TIMEZONE) -> str:
    """The name of the time zone of this machine; ``UTC`` if it has none that is known.

    Args:
        environ: Its ``TZ`` comes first.
        localtime: A link into the database of time zones.
        timezone: A file with the name.
    """
    if "TZ" in environ:
        return _known(_below_database(environ["TZ"].removeprefix(":")))
    linked = _below_database(os.path.realpath(localtime)) if localtime.is_symlink() else ""
    return _known(linked) if linked else _known(_read(timezone))


def _below_database(path: str) -> str:
    """The name of a zone from the path of its file; a name remains what it is."""
    inside = path.rpartition("/zoneinfo/")[2]
    return "" if inside.startswith("/") else inside.removeprefix("posix/").removeprefix("right/")


def _known(zone: str) -> str:
    return zone if zone and _find_zone(zone) is not None else "UTC"


def _read(path: Path) -> str:
    try:
        return path.read_text("ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""
