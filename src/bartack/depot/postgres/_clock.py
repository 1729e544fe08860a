"""The clock of the database, for entries that no hub writes: those of a submission, and of a command that owns a run for a moment.

So all entries of a run are dated by one clock, on whichever machine they are written. Hubs have a clock of their own, which the
beats of their node set (``runtime/hub/leased_clock.py``).
"""

from __future__ import annotations

import time
from typing import Final

from bartack.core.clock import SystemClock
from bartack.depot.postgres._database import Session
from bartack.depot.postgres._lease import measure
from bartack.journal import Entry

_NOW: Final = "SELECT (extract(epoch FROM clock_timestamp()) * 1e6)::bigint"


class DatabaseClock(SystemClock):
    """See the module. It is read once, and never shows a time before that of an entry.

    Args:
        session: Asks the database.
    """

    def __init__(self, session: Session) -> None:
        sent = self._here_us()
        ((now_us,),) = session.rows(_NOW)
        self._ahead_us = measure(None, int(now_us), sent, self._here_us())
        self._least_us = 0

    def note(self, entry: Entry) -> None:
        """The journal has this entry."""
        self._least_us = max(self._least_us, entry.at)

    def now_us(self) -> int:
        """See ``Clock.now_us``."""
        return max(self._here_us() + self._ahead_us, self._least_us)

    @staticmethod
    def _here_us() -> int:
        return time.monotonic_ns() // 1000
