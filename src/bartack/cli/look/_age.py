"""Ages on the command line (``7d``), and runs that are older."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import Final

from bartack.errors import UsageError

_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_AGE: Final = re.compile(r"(\d{1,5})([smhdw])", re.ASCII)


def parse_age(text: str, command: str) -> timedelta:
    """Parse an age like ``7d``.

    Raises:
        UsageError: The text is not an age.
    """
    found = _AGE.fullmatch(text)
    if found is None:
        raise UsageError(command, f"{text!r} is not an age; write 30m, 12h, 7d or 4w")
    return timedelta(seconds=int(found[1]) * _UNITS[found[2]])


def changed_before(updated_at: str, moment: datetime) -> bool:
    """Whether a run last changed before a moment; not if it is unknown when it changed."""
    try:
        return datetime.fromisoformat(updated_at) < moment
    except ValueError:
        return False
