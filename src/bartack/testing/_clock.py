"""A clock that stands still until it is moved."""

from __future__ import annotations

import heapq
from collections.abc import Callable

START_US = 1_767_225_600_000_000
"""What the clock shows at first: 2026-01-01 00:00:00 UTC."""


class Timer:
    """One callback that waits for its time."""

    def __init__(self, due_ns: int, order: int, callback: Callable[[], None]) -> None:
        self.due_ns = due_ns
        self._order = order
        self._callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        """Never call back. Harmless if that has happened already."""
        self._callback = None

    @property
    def waiting(self) -> bool:
        """Whether the callback is still to come."""
        return self._callback is not None

    def fire(self) -> None:
        """Call back, at most once."""
        callback, self._callback = self._callback, None
        if callback is not None:
            callback()

    def __lt__(self, other: Timer) -> bool:
        return (self.due_ns, self._order) < (other.due_ns, other._order)


class VirtualClock:
    """A ``bartack.core.clock.Clock`` whose time a test decides.

    Timers fire in the order of their time, those of the same time in the order they were made, each while the
    clock shows exactly its time. A callback may make more timers.

    Args:
        start_us: What the clock on the wall shows at first: microseconds since 1970, UTC.
    """

    def __init__(self, start_us: int = START_US) -> None:
        self._wall_us = start_us
        self._monotonic_ns = 0
        self._made = 0
        self._timers: list[Timer] = []

    def now_us(self) -> int:
        """See ``bartack.core.clock.Clock.now_us``."""
        return self._wall_us + self._monotonic_ns // 1000

    def monotonic_ns(self) -> int:
        """See ``bartack.core.clock.Clock.monotonic_ns``."""
        return self._monotonic_ns

    def advance(self, seconds: float) -> None:
        """Let time pass, and fire every timer that comes due meanwhile."""
        if seconds < 0:
            raise ValueError("time does not pass backwards; set_back moves the clock on the wall")
        end_ns = self._monotonic_ns + round(seconds * 1e9)
        while (due_ns := self.next_timer()) is not None and due_ns <= end_ns:
            self.advance_to_next()
        self._monotonic_ns = max(self._monotonic_ns, end_ns)

    def set_back(self, seconds: float) -> None:
        """Set the clock on the wall back, as an administrator might. No time passes."""
        self._wall_us -= round(seconds * 1e6)

    def call_at(self, monotonic_ns: int, callback: Callable[[], None]) -> Timer:
        """Call back when ``monotonic_ns`` is reached; what is due already comes with the next advance."""
        self._made += 1
        timer = Timer(monotonic_ns, self._made, callback)
        heapq.heappush(self._timers, timer)
        return timer

    def next_timer(self) -> int | None:
        """When the next timer is due, as ``monotonic_ns``; ``None`` if none waits."""
        while self._timers and not self._timers[0].waiting:
            heapq.heappop(self._timers)
        return self._timers[0].due_ns if self._timers else None

    def advance_to_next(self) -> bool:
        """Let time pass until the next timer is due, and fire that one; ``False`` if none waits."""
        due_ns = self.next_timer()
        if due_ns is None:
            return False
        timer = heapq.heappop(self._timers)
        self._monotonic_ns = max(self._monotonic_ns, due_ns)
        timer.fire()
        return True
