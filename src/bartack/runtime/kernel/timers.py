"""When waits end: timers by the clock on the wall, deadlines by the time in which a hub was alive and no worker replayed.

A deadline that was open when a hub died continues with what was left of it. The clock of deadlines stands still while a worker
replays, but never for longer than a minute at a time.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import count
from typing import Final

from bartack.core.clock import Clock
from bartack.runtime.protocol.durations import LONGEST_S

PAUSE_LIMIT_NS: Final = 60 * 1_000_000_000
PURGE_SIZE: Final = 1024
"""How many timers there are before those that were cancelled are removed."""

_LATER_NS: Final = 1_000_000

Callback = Callable[[], None]


class Timer:
    """A call that is due at some time, unless it is cancelled."""

    __slots__ = ("_callback", "_wanted", "due")

    def __init__(self, due: int, callback: Callback, wanted: Callable[[], bool] | None = None) -> None:
        self.due = due
        self._callback: Callback | None = callback
        self._wanted = wanted

    def cancel(self) -> None:
        """It will not be called."""
        self._callback = None

    @property
    def pending(self) -> bool:
        """Whether it is still to be called."""
        return self._callback is not None and (self._wanted is None or self._wanted())

    def fire(self) -> None:
        """Call it, once."""
        callback, self._callback = self._callback, None
        if callback is not None:
            callback()


class Timers:
    """The timers of a hub. ``tick`` fires those that are due."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._wall: list[tuple[int, int, Timer]] = []
        self._alive: list[tuple[int, int, Timer]] = []
        self._numbers = count()
        self._paused_ns = 0
        self._pause_began: int | None = None
        self._purge_size = PURGE_SIZE

    def alive_ns(self) -> int:
        """Nanoseconds that counted so far."""
        now = self._clock.monotonic_ns()
        if self._pause_began is not None:
            now -= self._pausing(now)
        return now - self._paused_ns

    def at(self, due_us: int, callback: Callback) -> Timer:
        """Fire at a moment on the wall: microseconds since 1970."""
        return self._add(self._wall, Timer(due_us, callback), due_us)

    def at_or_after(self, due_us: int, seconds: float, callback: Callback) -> Timer:
        """Fire at a moment on the wall, or when this many seconds have counted if the clock on the wall was set back."""
        timer = self.at(due_us, callback)
        # A moment later than the other, which is the exact one as long as the clock was not set.
        return self._add(self._alive, timer, self._alive_due(seconds) + _LATER_NS)

    def after(self, seconds: float, callback: Callback, wanted: Callable[[], bool] | None = None) -> Timer:
        """Fire when this many seconds have counted, if it is still ``wanted`` then: it need not be cancelled."""
        due = self._alive_due(seconds)
        return self._add(self._alive, Timer(due, callback, wanted), due)

    def _alive_due(self, seconds: float) -> int:
        return self.alive_ns() + int(min(max(seconds, 0.0), LONGEST_S) * 1e9)

    def pause(self) -> None:
        """Deadlines stand still from now on."""
        if self._pause_began is None:
            self._pause_began = self._clock.monotonic_ns()

    def resume(self) -> None:
        """Deadlines continue."""
        if self._pause_began is not None:
            self._paused_ns += self._pausing(self._clock.monotonic_ns())
            self._pause_began = None

    def tick(self) -> None:
        """Fire what is due."""
        if self._wall:
            self._fire(self._wall, self._clock.now_us())
        if self._alive:
            self._fire(self._alive, self.alive_ns())

    def next_in_s(self) -> float | None:
        """Seconds until something may be due; ``None`` if nothing is."""
        if not self._wall and not self._alive:
            return None
        wall, alive = _first(self._wall), _first(self._alive)
        wait: float | None = None
        if wall is not None:
            wait = max((wall - self._clock.now_us()) / 1e6, 0.0)
        if alive is not None:
            left = max((alive - self.alive_ns()) / 1e9, 0.0)
            wait = left if wait is None else min(wait, left)
        return wait

    def _pausing(self, now: int) -> int:
        return 0 if self._pause_began is None else min(now - self._pause_began, PAUSE_LIMIT_NS)

    def _add(self, heap: list[tuple[int, int, Timer]], timer: Timer, due: int) -> Timer:
        if len(heap) > self._purge_size:
            # Most waits end long before their deadline: their timers are cancelled and would pile up.
            heap[:] = [item for item in heap if item[2].pending]
            heapq.heapify(heap)
            self._purge_size = max(PURGE_SIZE, 2 * len(heap))
        heapq.heappush(heap, (due, next(self._numbers), timer))
        return timer

    def _fire(self, heap: list[tuple[int, int, Timer]], now: int) -> None:
        while heap and heap[0][0] <= now:
            timer = heapq.heappop(heap)[2]
            if timer.pending:
                timer.fire()


def _first(heap: list[tuple[int, int, Timer]]) -> int | None:
    """When the first timer is due; those before it that are no longer wanted are discarded."""
    while heap:
        due, _, timer = heap[0]
        if timer.pending:
            return due
        heapq.heappop(heap)
    return None
