"""Carries out a request to a run by its hub or, if none runs it, alone: whichever it is, once.

Between the two there are moments in which neither is possible: a hub that was killed has closed its socket, and the system has not
released its lock yet; a hub that starts has the lock, and does not listen yet. Since the request has an id, it can be tried again,
first with the hub, until one of them has carried it out.
"""

from __future__ import annotations

import select
import time
from collections.abc import Callable
from typing import TypeVar

from bartack.errors import JournalLockedError, RunNotActiveError
from bartack.runtime.rundir.presence import LOOK_S, join_limit_s

T = TypeVar("T")


def carry_out(by_hub: Callable[[], T], alone: Callable[[], T]) -> T:
    """Have a hub carry out a request, or do it alone.

    Args:
        by_hub: Sends the request; raises ``RunNotActiveError`` if no hub runs the run, or none does any longer.
        alone: Owns the journal for a moment, and does nothing if it has the request already.

    Raises:
        JournalLockedError: Another process owned the journal for longer than ``hub_join``, and took no requests.
    """
    until = time.monotonic() + join_limit_s()
    while True:
        try:
            return by_hub()
        except RunNotActiveError:
            pass
        try:
            return alone()
        except JournalLockedError:
            if time.monotonic() >= until:
                raise
        select.select([], [], [], LOOK_S)
