"""How long to wait before the next attempt, and what ``Retry-After`` says about it."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final, NamedTuple

RETRY_AFTER_MOST_S: Final = 3600.0


class Backoff(NamedTuple):
    """Full jitter: before attempt n + 1 a time between 0 and ``base_s`` · ``factor``^(n - 1), never over ``cap_s``.

    Args:
        base_s: The upper bound after the first failure.
        cap_s: The highest upper bound.
        uniform: Where the randomness comes from.
        factor: How much the upper bound grows with each failure.
    """

    base_s: float = 1.0
    cap_s: float = 300.0
    uniform: Callable[[float, float], float] = random.uniform
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


def parse_retry_after(text: str | None, wall_s: float) -> float | None:
    """The seconds that a ``Retry-After`` header asks for, in either form, at most one hour; ``None`` if it says nothing usable."""
    if not text:
        return None
    try:
        wait = float(text) if text.strip().isdigit() else _until(text, wall_s)
    except (ValueError, TypeError, OverflowError):
        return None
    return min(max(wait, 0.0), RETRY_AFTER_MOST_S)


def _until(text: str, wall_s: float) -> float:
    from email.utils import parsedate_to_datetime  # noqa: PLC0415 - most who wait never read a date, and it is slow to load

    when = parsedate_to_datetime(text)
    aware: datetime = when if when.tzinfo else when.replace(tzinfo=UTC)
    return aware.timestamp() - wall_s
