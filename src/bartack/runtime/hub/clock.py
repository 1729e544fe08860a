"""The clock of a hub: what counts is the time in which the hub could act."""

from __future__ import annotations

import time
from typing import Final

from bartack.core.clock import SystemClock

STOPPED_S: Final = 2.0
"""Longer than a turn of the hub waits: a hub that was silent for less was not stopped, or not for long enough to count."""


class HubClock(SystemClock):
    """The clock of this machine, except that deadlines stand still while the hub is stopped (Ctrl-Z, SIGSTOP) or stands still."""

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
