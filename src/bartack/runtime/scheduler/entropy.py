"""What a worker perceives by itself: the time, and chance. A parameter, so that tests can decide both."""

from __future__ import annotations

import os
import time
from typing import Protocol


class Entropy(Protocol):
    """The time and chance."""

    def now_us(self) -> int:
        """Microseconds since 1970, UTC."""
        ...

    def random_bytes(self, size: int) -> bytes:
        """So many random bytes."""
        ...


class RealSenses:
    """Those of this machine."""

    def now_us(self) -> int:
        """See ``Entropy.now_us``."""
        return time.time_ns() // 1000

    def random_bytes(self, size: int) -> bytes:
        """See ``Entropy.random_bytes``. Not the random module: a forked process would repeat what its siblings draw."""
        return os.urandom(size)
