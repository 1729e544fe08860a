"""Which process is at the other end of a connection, and whether it may act: not if it belongs to a run.

An agent can steal a cookie from a browser's files, or from a server of its own that a browser has visited. It cannot change where
its connection comes from, so every request that acts is placed: the kernel says which processes hold its socket, and their parents
say whether they belong to a run. ``runtime/rundir/inside.py`` explains what that finds and what it does not.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Final

from bartack.runtime.rundir.inside import find_enclosing, reason_of
from bartack.supervision.process.holders import find_holders

End = tuple[str, int]
"""An address and a port."""

JudgePeer = Callable[[End, End], str]
"""Why a process must not act, by both ends of its connection, its own first; empty if it may."""

_ROOT: Final = 0


def judge_peer(client: End, server: End) -> str:
    """See ``JudgePeer``. Only Linux can say it; elsewhere nothing is refused."""
    if sys.platform != "linux":
        return ""
    try:
        holders = find_holders(client, server)
    except (OSError, ValueError) as error:
        return f"the process that asks cannot be found: {error}"
    if holders is None:
        return "the requesting process exited before it could be identified"
    if holders.uid not in {os.getuid(), _ROOT}:  # of root are relays, such as that of a virtual machine
        return "the process that asks belongs to another user"
    # A process that hides what it has open may be the one, so it counts if no other is known.
    suspects = holders.pids or holders.hidden
    inside = next((found for pid in suspects if (found := find_enclosing(pid)) is not None), None)
    if inside is not None:
        return reason_of(inside)
    return "" if suspects else "the requesting process exited before it could be identified"
