"""The clock and the randomness of a worker whose run several machines share; its hub has ``runtime/hub/leased_clock.py``."""

from __future__ import annotations

from bartack.runtime.scheduler.entropy import SystemEntropy
from bartack.supervision.process.lease import LeasePage


class SharedEntropy(SystemEntropy):
    """The randomness of this machine, and the clock of the run.

    Args:
        ahead_us: How far that is ahead of the clock of lease pages.
    """

    def __init__(self, ahead_us: int) -> None:
        self._ahead_us = ahead_us

    def now_us(self) -> int:
        """See ``Entropy.now_us``."""
        return LeasePage.now_ns() // 1000 + self._ahead_us
