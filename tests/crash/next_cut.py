"""A cut of a cable that is to happen with the next request, and whether it has: only then does it count as a fault."""

from __future__ import annotations

import time
from typing import Final, Literal

from bartack.testing import Cable

LOST_S: Final = 3.0
"""After how long without a cut the connection must have ended otherwise, before its answer came."""


class NextCut:
    """See the module.

    Args:
        cable: The cable.
        when: Before the request reaches the server, or after the server has answered it.
    """

    def __init__(self, cable: Cable, when: Literal["before", "after"]) -> None:
        self.when: Literal["before", "after"] = when
        self._cable = cable
        self._cuts = cable.cuts
        self._limit = 0.0
        cable.cut_next(when)

    @property
    def has_happened(self) -> bool:
        """Whether the connection was cut."""
        return self._cable.cuts > self._cuts

    @property
    def is_lost(self) -> bool:
        """Whether it will not happen any more: the connection of the request has ended otherwise."""
        if self._cable.is_armed or self.has_happened:
            return False
        self._limit = self._limit or time.monotonic() + LOST_S
        return time.monotonic() > self._limit
