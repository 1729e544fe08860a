"""How long to wait before the next attempt.

Owns the growth of the wait and its randomness; what is attempted, and how often, is decided by the caller. ``clock.py`` has the
clocks that such a wait is measured with.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple


def _uniform(low: float, high: float) -> float:
    from random import uniform  # noqa: PLC0415 - slow to load, and most processes never wait

    return uniform(low, high)


class Backoff(NamedTuple):
    """Full jitter: before attempt n + 1 a time between 0 and ``base_s`` · ``factor``^(n - 1), never over ``cap_s``.

    Args:
        base_s: The upper bound after the first failure.
        cap_s: The highest upper bound.
        uniform: Returns a random number between two bounds.
        factor: How much the upper bound grows with each failure.
    """

    base_s: float = 1.0
    cap_s: float = 300.0
    uniform: Callable[[float, float], float] = _uniform
    factor: float = 2.0

    def bound_s(self, attempts: int) -> float:
        """The longest wait after ``attempts`` failures."""
        if attempts < 1:
            return 0.0
        try:
            return min(self.cap_s, self.base_s * self.factor ** (attempts - 1))
        except OverflowError:
            return self.cap_s if self.base_s else 0.0

    def wait_s(self, attempts: int) -> float:
        """How long to wait after ``attempts`` failures."""
        return self.uniform(0.0, self.bound_s(attempts))
