"""Time as a parameter: what the clock on the wall says, and how long something took.

Code that needs the time takes a ``Clock``; ``SystemClock`` is the default at the edge. Tests give
``bartack.testing.VirtualClock`` instead.
"""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Two readings of time. The first may jump, the second only goes forward."""

    def now_us(self) -> int:
        """Microseconds since 1970, UTC. This clock may be set, also backwards."""
        ...

    def monotonic_ns(self) -> int:
        """Nanoseconds since some moment in the past; never goes back."""
        ...


class SystemClock:
    """The clock of this machine."""

    def now_us(self) -> int:
        """See ``Clock.now_us``."""
        return time.time_ns() // 1000

    def monotonic_ns(self) -> int:
        """See ``Clock.monotonic_ns``."""
        return time.monotonic_ns()
