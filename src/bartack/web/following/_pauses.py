"""Pauses in long work on the loop, so that other requests are answered meanwhile."""

from __future__ import annotations

import asyncio
import time
from typing import Final

SLICE_S: Final = 0.005
"""How long work continues before it takes a pause."""
LOOKED: Final = 64
"""After this many steps of the work the clock is looked at."""


class Pauses:
    """Counts the steps of some work, and takes a pause when it has held up the loop for long enough."""

    def __init__(self) -> None:
        self._count = 0
        self._until = time.monotonic() + SLICE_S

    async def take(self, steps: int = 1) -> None:
        """Some steps of the work are done: let others do theirs, if it is time."""
        self._count += steps
        if self._count < LOOKED:
            return
        self._count = 0
        if time.monotonic() >= self._until:
            await asyncio.sleep(0)
            self._until = time.monotonic() + SLICE_S
