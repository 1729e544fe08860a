"""The clock of a hub: what counts is the time in which the hub could act."""

from __future__ import annotations

import time
from typing import Final

from bartack.core import SystemClock

STOPPED_S: Final = 2.0
"""Longer than a turn of the hub waits: a hub that was silent for less was not stopped, or not for long enough to count."""


class HubClock(SystemClock):
    """The clock of this machine, except that deadlines stand still while the hub is stopped (Ctrl-Z, SIGSTOP)."""

    def __init__(self) -> None:
        self._stopped_ns = 0
        self.alive_at = time.monotonic()
        """When the hub last ended a turn."""

    def monotonic_ns(self) -> int:
        """See ``Clock.monotonic_ns``."""
        return time.monotonic_ns() - self._stopped_ns

    def continued(self) -> None:
        """The process continues (SIGCONT). The time since its last turn does not count, if it was stopped meanwhile."""
        now = time.monotonic()
        if now - self.alive_at > STOPPED_S:
            self._stopped_ns += int((now - self.alive_at) * 1e9)
        self.alive_at = now
