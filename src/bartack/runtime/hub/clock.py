"""The clock of a hub: what counts is the time in which the hub could act."""

from __future__ import annotations

import time
from typing import Final

from bartack.core.clock import Clock, SystemClock

STOPPED_S: Final = 2.0
"""Longer than a turn of the hub waits: a hub that was silent for less was not stopped, or not for long enough to count."""


class HubClock(SystemClock):
    """The clock of this machine, except that deadlines stand still while the hub is stopped (Ctrl-Z, SIGSTOP) or stands still."""

    is_shared = False
    """Whether it is that of the database of the run, and not of this machine."""

    def __init__(self) -> None:
        self._stopped_ns = 0
        self.alive_at = time.monotonic()
        """When the hub last ended a turn."""

    def monotonic_ns(self) -> int:
        """See ``Clock.monotonic_ns``."""
        return time.monotonic_ns() - self._stopped_ns

    def seconds(self) -> float:
        """The same in seconds."""
        return self.monotonic_ns() / 1e9

    @property
    def wall(self) -> Clock:
        """The clock on the wall of this machine, which stands still with this one: for what is not of this run alone."""
        return self

    def from_wall_us(self, at_us: int) -> int:
        """What this clock shows when the clock on the wall of this machine shows ``at_us``."""
        return at_us

    def ahead_us(self) -> int | None:
        """How far it is ahead of the clock of lease pages; ``None`` if it is the one on the wall."""
        return None

    def not_before(self, at_us: int) -> None:
        """An entry of the journal is dated so. The clock on the wall may be set back, and then entries are, too."""

    def dead_us(self, last_us: int) -> int | None:
        """How long no hub of the run was alive that has written its last entry at this time; ``None`` if it cannot know."""
        return None

    def continued(self) -> None:
        """The process continues (SIGCONT). The time since its last turn does not count, if it was stopped meanwhile."""
        now = time.monotonic()
        if now - self.alive_at > STOPPED_S:
            self.stood_still(now - self.alive_at)
        self.alive_at = now

    def stood_still(self, seconds: float) -> None:
        """The hub could not act for this long, until now: it does not count."""
        self._stopped_ns += int(seconds * 1e9)
        self.alive_at = time.monotonic()
