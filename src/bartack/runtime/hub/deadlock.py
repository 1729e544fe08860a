"""Watches for workers that all wait for each other. What each of them waits for is found in ``kernel/idle.py``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from bartack.runtime.kernel.actions import Show
from bartack.runtime.kernel.core import Core
from bartack.runtime.kernel.idle import describe_deadlock, find_deadlock

NOTE_AFTER_S: Final = 10.0
"""How long all workers wait for each other before the log has it, too."""


class DeadlockWatch:
    """Reports a deadlock when two looks have found the same one, and notes it in the log if it lasts.

    Args:
        core: The core of the run.
        are_asleep: Whether no process of a worker computes.
    """

    def __init__(self, core: Core, are_asleep: Callable[[], bool]) -> None:
        self._core = core
        self._are_asleep = are_asleep
        self._waits: Sequence[str] = ()
        """What each worker waited for at the last look, if all waited for each other."""
        self._since = 0.0
        """When the deadlock was first reported; 0 if the log has it."""
        self.found: list[str] = []
        """What each worker waits for, if there is a deadlock."""

    def look(self, now: float) -> bool:
        """Look once; returns whether ``found`` has changed."""
        waits = find_deadlock(self._core)
        settled, self._waits = waits == self._waits, waits
        if not settled or (waits and not self._are_asleep()):
            waits = []
        if waits != self.found:
            self.found = waits
            self._since = now
            return True
        if waits and self._since and now - self._since >= NOTE_AFTER_S:
            self._since = 0.0
            self._core.turn.after_commit(Show("note", "", describe_deadlock(waits)))
        return False
