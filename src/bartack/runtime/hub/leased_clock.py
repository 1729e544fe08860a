"""The clock of a hub whose run is kept in a database: that of the database, so that a run has one time on whichever machine it is.

The process that renews the lease compares the two clocks with each answer, and shows on the lease page how far the one of the
database is ahead of the clock of such pages, which is never set. So nothing happens to the run when the clock on the wall of this
machine is set, and clocks of two machines are never compared. Until there is an answer this is the clock on the wall.

**It never goes back**, neither to before the last entry of the journal nor to before what it has shown. If the clock of the
database does (it was set back, or another server has taken over), this one continues, a little slower until the other one is level
with it. A run that was dated by such a clock continues as long after its last entry as no hub of it was alive.
"""

from __future__ import annotations

import threading
import time
from typing import Final

from bartack.core.clock import Clock
from bartack.runtime.hub.clock import HubClock
from bartack.supervision.process.lease import LeasePage

SLOWER: Final = 100
"""By this part of the time that passes it lets the clock of the database come nearer: too little for any limit to notice."""


class LeasedClock(HubClock):
    """See the module.

    Args:
        page: The lease page.
        seen_us: When a hub of the run was last seen alive, by the clock of the database; ``None`` if none ever was.
    """

    is_shared = True

    def __init__(self, page: LeasePage, seen_us: int | None = None) -> None:
        super().__init__()
        self._wall = _Wall(self)
        self._page = page
        self._seen_us = seen_us
        self._floor_us = 0
        self._shown_ns = 0
        self._read_ns = page.now_ns()
        self._mutex = threading.Lock()

    @property
    def wall(self) -> Clock:
        """See ``HubClock.wall``."""
        return self._wall

    def not_before(self, at_us: int) -> None:
        """See ``HubClock.not_before``: this clock begins after it."""
        self._floor_us = max(self._floor_us, at_us)

    def now_us(self) -> int:
        """See ``Clock.now_us``."""
        with self._mutex:
            now_ns = self._page.now_ns()
            there_ns = self._there_ns(now_ns)
            if self._floor_us:
                self._continue(there_ns)
            passed_ns = now_ns - self._read_ns
            self._read_ns = now_ns
            self._shown_ns = max(there_ns, self._shown_ns + passed_ns - passed_ns // SLOWER)
            return self._shown_ns // 1000

    def dead_us(self, last_us: int) -> int:
        """See ``HubClock.dead_us``: as the database has it, unless the last entry is younger."""
        there_us = self._there_ns(self._page.now_ns()) // 1000
        if self._seen_us is None or self._seen_us < last_us <= there_us:
            return max(there_us - last_us, 0)
        return max(there_us - self._seen_us, 0)

    def from_wall_us(self, at_us: int) -> int:
        """See ``HubClock.from_wall_us``."""
        return at_us + self.now_us() - self._wall.now_us()

    def ahead_us(self) -> int:
        """See ``HubClock.ahead_us``."""
        return self.now_us() - self._page.now_ns() // 1000

    def _there_ns(self, now_ns: int) -> int:
        there_ns = self._page.owner_ns(now_ns)
        return time.time_ns() if there_ns is None else there_ns

    def _continue(self, there_ns: int) -> None:
        """Begin after the last entry, where the clock of the database is before that."""
        last_us, self._floor_us = self._floor_us, 0
        if last_us * 1000 > max(there_ns, self._shown_ns):
            self._shown_ns = (last_us + self.dead_us(last_us)) * 1000


class _Wall:
    """See ``HubClock.wall``."""

    def __init__(self, clock: HubClock) -> None:
        self._clock = clock

    def now_us(self) -> int:
        """See ``Clock.now_us``."""
        return time.time_ns() // 1000

    def monotonic_ns(self) -> int:
        """See ``Clock.monotonic_ns``."""
        return self._clock.monotonic_ns()
