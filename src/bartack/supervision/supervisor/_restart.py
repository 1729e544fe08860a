"""Whether, and when, something that ended is started again. The one place where that is counted.

A supervisor asks its ``Intensity``, over all of its children; a run, which counts failures in a row of its workers across hubs,
asks a ``RestartPolicy``. Both wait by the same backoff.
"""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

from bartack.core.backoff import Backoff

_SECOND: Final = 1_000_000_000


class Intensity:
    """Counts restarts in a window of time that moves along."""

    def __init__(self, max_restarts: int, max_seconds: float) -> None:
        self.max_restarts = max_restarts
        self._window_ns = round(max_seconds * _SECOND)
        self._stamps: deque[int] = deque()

    def admit(self, now_ns: int) -> bool:
        """Count one more restart; return whether it is within the limit."""
        self._stamps.append(now_ns)
        return self.count(now_ns) <= self.max_restarts

    def count(self, now_ns: int) -> int:
        """How many restarts are in the window now. One that is exactly as old as the window still is."""
        while self._stamps and now_ns - self._stamps[0] > self._window_ns:
            self._stamps.popleft()
        return len(self._stamps)


class RestartPolicy(NamedTuple):
    """What follows from a number of failures in a row.

    Args:
        limit: This number of failures is too many.
        backoff: How long to wait before each restart.
        free: This number of restarts happens at once, before the backoff begins.
    """

    limit: int
    backoff: Backoff
    free: int = 0

    def is_over(self, failures: int) -> bool:
        """Whether it is not started again."""
        return failures >= self.limit

    def wait_s(self, failures: int) -> float:
        """How long to wait before it is."""
        return self.backoff.wait_s(failures - self.free)
