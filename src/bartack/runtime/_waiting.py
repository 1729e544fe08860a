"""Whether a run can go on by itself, or only when a person answers."""

from __future__ import annotations

from typing import Final

from bartack.runtime._core import Core
from bartack.runtime._ledger import Peer

WAITS: Final = frozenset({"ask", "receive", "call", "delegate", "join", "timeout"})
"""Steps that end only by what somebody else does."""


def only_people_can_help(core: Core) -> bool:
    """Whether a question is open, and every worker waits for its answer or for another worker.

    A worker that computes, sleeps, runs a command, calls an agent, or replays its history can go on by itself.
    """
    if not core.state.questions or core.state.failure is not None:
        return False
    peers = core.ledger.by_worker
    return all(path in peers and _waits(peers[path]) for path in core.crew.alive)


def _waits(peer: Peer) -> bool:
    worker = peer.worker
    if worker is None or not peer.awaited:  # it computes, or has yet to come to where it was
        return False
    kinds = {opened.step for opened in worker.open.values() if not worker.awaits_tool(opened)}
    return kinds <= WAITS and all(step in worker.open for step in peer.awaited)
