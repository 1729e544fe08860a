"""A hub whose right to run its run was not renewed stands still, with everything below it, until it is.

The right is a lease page (``LeasePage``), which another process writes. The zygote and the keeper read it, too, and stop workers,
commands and agents by themselves, even if the hub is stopped. Meanwhile the hub reads nothing, decides nothing and starts nothing,
and its clock stands still, so that no deadline, watchdog or heartbeat counts the time. Without a lease none of this happens.

A hub that gets a signal to stop meanwhile, or that has stood still for too long because the writer of its lease may be
dead, ends and records nothing: another process may own the run by now. Its trees end with it, and the run can be resumed.
"""

from __future__ import annotations

import math
import select
import time
from collections.abc import Callable, Sequence
from typing import Final

from bartack.runtime.hub.clock import HubClock
from bartack.supervision.process.lease import LeasePage

LOOK_S: Final = 0.02
"""How often to look whether the right was renewed."""

HOLD_S: Final = 300.0
"""How long a hub stands still before it gives up, unless its starter says otherwise."""


class Holding:
    """Has the hub stand still while its lease is not valid.

    Args:
        lease: The descriptor of the lease page; ``None``: the hub needs none.
        clock: Stands still with the hub.
        note: Writes a note for people.
        stop_signals: The signals to stop that the hub has got so far.
        hold_s: How long it stands still at most.
    """

    def __init__(
        self,
        lease: int | None,
        clock: HubClock,
        note: Callable[[str], None],
        stop_signals: Sequence[int],
        hold_s: float = HOLD_S,
    ) -> None:
        self._lease = None if lease is None else LeasePage.open(lease)
        self._clock = clock
        self._note = note
        self._stop_signals = stop_signals
        self._hold_s = hold_s

    @property
    def left_s(self) -> float:
        """Seconds until the hub has to look at its lease."""
        return math.inf if self._lease is None else max(self._lease.left_s(), 0.0)

    def heed(self) -> bool:
        """Return when the hub can act; at once, unless its lease is not valid. ``False``: it has to end, and records nothing."""
        lease = self._lease
        if lease is None or lease.left_s() > 0:
            return True
        if not lease.is_over:
            self._stand_still(lease)
        return lease.left_s() > 0

    def _stand_still(self, lease: LeasePage) -> None:
        """Wait until the lease is valid or gone for good, or until this has to end."""
        began, before = time.monotonic(), self._clock.seconds()
        self._note("the right to run it was not renewed; everything stands still")
        while lease.left_s() <= 0 and not lease.is_over and not self._stop_signals:
            if time.monotonic() - began >= self._hold_s:
                break
            select.select([], [], [], LOOK_S)
        # By its own clock: the time in which the process was stopped meanwhile does not count already.
        self._clock.stood_still(self._clock.seconds() - before)
        self._note(f"stood still for {time.monotonic() - began:.1f} s")
