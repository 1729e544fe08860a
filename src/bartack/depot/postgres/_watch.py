"""Waiting for a change of a run in a database: a look several times a second, at one row of each of its tables.

Notifications of the database would come sooner, and a pooler does not pass them on; a look is right everywhere, and what a person
sees is late by a tenth of a second.
"""

from __future__ import annotations

import select
import time
from collections.abc import Callable
from typing import Final

from bartack.core.closing import Closing
from bartack.core.watch import WatchKind
from bartack.errors import DepotUnavailableError

LOOK_S: Final = 0.2


class RowWatch(Closing):
    """See ``Watch``.

    Args:
        look: Returns something that is different after a change.
        close: Called when the watch ends.
    """

    kind: WatchKind = "poll"

    def __init__(self, look: Callable[[], object], close: Callable[[], object]) -> None:
        self._look = look
        self._close = close
        self._seen = look()

    def wait(self, timeout_s: float | None) -> bool:
        """See ``Watch.wait``. A database that does not answer has not changed."""
        end = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            try:
                now = self._look()
            except DepotUnavailableError:
                now = self._seen
            if now != self._seen:
                self._seen = now
                return True
            left = LOOK_S if end is None else min(LOOK_S, end - time.monotonic())
            if left <= 0:
                return False
            select.select([], [], [], left)

    def fileno(self) -> int | None:
        """There is none: it has to be looked."""
        return None

    def close(self) -> None:
        """See ``Watch.close``."""
        self._close()
