"""The clock and the randomness of a worker: parameters, so that tests can decide both."""

from __future__ import annotations

import os
import time
from typing import Protocol


class Entropy(Protocol):
    """A source of time and randomness."""

    def now_us(self) -> int:
        """Microseconds since 1970, UTC."""
        ...

    def random_bytes(self, size: int) -> bytes:
        """``size`` random bytes."""
        ...


class SystemEntropy:
    """The clock and the randomness of this machine."""

    def now_us(self) -> int:
        """See ``Entropy.now_us``."""
        return time.time_ns() // 1000

    def random_bytes(self, size: int) -> bytes:
        """See ``Entropy.random_bytes``. Not the random module: a forked process would repeat what its siblings draw."""
        return os.urandom(size)
