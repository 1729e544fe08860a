"""Whether a run can continue by itself, only when a person answers, or only by a message from outside."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from bartack.runtime.kernel.core import Core
from bartack.runtime.kernel.turn import Peer
from bartack.runtime.state.timeline import name_deadlock
from bartack.runtime.state.worker_state import OpenStep, WorkerState

WAITS: Final = frozenset({"ask", "receive", "call", "delegate", "join", "timeout"})
"""Steps that end only by what a person, a worker or a process outside does."""

FOR_OTHERS: Final = frozenset({"receive", "call", "delegate", "join"})
"""Steps that end only by what a worker, or a process outside, does."""
FOR_MESSAGES: Final = frozenset({"receive", "call"})
MOST_WAITS: Final = 8
"""How many waits are listed in one sentence."""


def is_blocked_on_people(core: Core) -> bool:
    """Whether a question is open, and every worker waits for its answer or for another worker.

    A worker that computes, sleeps, runs a command, calls an agent, or replays its history can continue by itself.
    """
    if not core.state.questions or core.state.failure is not None:
        return False
    peers = core.turn.by_worker
    return all(path in peers and _waits(peers[path]) for path in core.processes.alive)


def _waits(peer: Peer) -> bool:
    worker = peer.worker
    if worker is None or not peer.awaited:  # it computes, or has yet to come to where it was
        return False
    kinds = {opened.step for opened in worker.open.values() if not worker.awaits_tool(opened)}
    return kinds <= WAITS and all(step in worker.open for step in peer.awaited)


def find_deadlock(core: Core) -> list[str]:
    """What each worker waits for, if all wait for each other and nothing else continues one of them; else nothing.

    The limit that waits have by default is not counted: it ends the run, and does not continue it. A message from outside would.
    """
    state = core.state
    if state.failure is not None or state.ended is not None or state.questions or not core.processes.alive:
        return []
    waits: list[str] = []
    messages = False
    for path in core.processes.alive:
        peer = core.turn.by_worker.get(path)
        if peer is None or peer.worker is None or not _waits(peer):
            return []
        for opened in peer.worker.open.values():
            if not _waits_for_others(core, peer.worker, opened):
                return []
            messages = messages or opened.step in FOR_MESSAGES
            waits.append(f"{opened.p} waits in step {opened.n}: {opened.step} {opened.about}".rstrip())
    return waits if messages and not _is_anything_due(core) else []


def _waits_for_others(core: Core, worker: WorkerState, opened: OpenStep) -> bool:
    if opened.step not in FOR_OTHERS or opened.due or worker.awaits_tool(opened):
        return False
    if opened.is_delegate:
        return opened.timeout_s == core.timeouts.limit("delegate")
    return opened.timeout_s is None


def _is_anything_due(core: Core) -> bool:
    """Whether a message, a retry or the restart of a worker is to come."""
    return (
        any(mailbox.scheduled for mailbox in core.state.mailboxes.values())
        or core.mail.room.has_waiting
        or core.delivery.has_open
        or core.letters.has_waiting
        or any(worker.crashes_in_a_row and not worker.ended for worker in _without_process(core))
    )


def _without_process(core: Core) -> list[WorkerState]:
    return [worker for path, worker in core.state.workers.items() if path not in core.processes.alive]


def describe_deadlock(waits: Sequence[str]) -> str:
    """The same with what each of them waits for."""
    more = f"; and {len(waits) - MOST_WAITS} more" if len(waits) > MOST_WAITS else ""
    listed = "; ".join(waits[:MOST_WAITS])
    return f"{name_deadlock(waits)} ({listed}{more}). Only a message from outside, or a time limit, ends that"
