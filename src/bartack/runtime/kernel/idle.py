"""Whether a run can continue by itself, at which time, only when a person answers, or only by a message from outside."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from bartack.runtime.kernel.core import Core
from bartack.runtime.kernel.turn import Peer
from bartack.runtime.protocol.steps import in_words
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

    A worker that computes, sleeps, runs a command, calls an agent, or replays its history can continue by itself. One whose agent
    has asked a person cannot.
    """
    if not core.state.questions or core.state.failure is not None:
        return False
    peers = core.turn.by_worker
    return all(path in peers and _waits(core, peers[path]) for path in core.processes.alive)


def _waits(core: Core, peer: Peer) -> bool:
    worker = peer.worker
    if worker is None or not peer.awaited:  # it computes, or has yet to come to where it was
        return False
    is_asking = core.agent_questions.is_waiting
    kinds = {
        opened.step
        for opened in worker.open.values()
        if not worker.awaits_tool(opened) and not is_asking(opened.key)
    }
    return kinds <= WAITS and all(step in worker.open for step in peer.awaited)


class Rest(NamedTuple):
    """What a run waits for that needs no process of it.

    Attributes:
        due_us: The first time at which it has something to do; 0 if only a person can continue it.
        about: What it waits for.
    """

    due_us: int
    about: str


NO_REST: Final = Rest(0, "")
"""Nothing that is known of."""


def find_rest(core: Core) -> Rest | None:
    """What a run waits for, if nothing continues it but a time on the wall, a person or a message from outside.

    Time limits count only the time in which a hub was alive, so a run with one does not rest. The limit that ``delegate`` has by
    default is not counted: it protects from workers that never end. A run whose agent has asked a person does not rest either: the
    agent would have to be called again.
    """
    state = core.state
    if state.failure is not None or state.ended is not None or not core.processes.alive:
        return None
    found = [_find_timers(core, core.turn.by_worker.get(path)) for path in core.processes.alive]
    if None in found or _is_anything_due(core):
        return None
    timers = [timer for timers in found if timers is not None for timer in timers]
    if timers:
        return min(timers)
    return Rest(0, "an answer") if state.questions else None


def _find_timers(core: Core, peer: Peer | None) -> list[Rest] | None:
    """The times on the wall that a worker waits for; ``None`` if it can continue by itself."""
    if peer is None or peer.worker is None or not peer.awaited:
        return None
    worker, now_us = peer.worker, core.now_us()
    if not all(step in worker.open for step in peer.awaited):
        return None
    timers = [opened for opened in worker.open.values() if opened.due > now_us]
    others = [opened for opened in worker.open.values() if opened.due <= now_us]
    if not all(_may_wait_alone(core, worker, opened) for opened in others):
        return None
    return [Rest(opened.due, _name_timer(opened)) for opened in timers]


def _name_timer(opened: OpenStep) -> str:
    return f"limit of the agent of {opened.p}" if opened.is_prompt else f"timer of {opened.p}"


def _may_wait_alone(core: Core, worker: WorkerState, opened: OpenStep) -> bool:
    """Whether a step ends only by a person, or by what a worker or a process outside does, and by no time limit."""
    if opened.question:
        return opened.timeout_s is None
    return _waits_for_others(core, worker, opened)


def find_effects(core: Core) -> list[str]:
    """The steps with an effect outside that are under way now: commands, prompts and bodies, until their outcome is recorded.

    What only waits, for a person, a worker, a message, a time or the next attempt, is not one of them.
    """
    return [
        f"{in_words(opened.step, opened.about)} of {opened.p}"
        for worker in core.state.workers.values()
        for opened in worker.open.values()
        if _is_at_work(core, worker, opened)
    ]


def _is_at_work(core: Core, worker: WorkerState, opened: OpenStep) -> bool:
    if opened.in_worker:
        return opened.is_body and worker.path in core.turn.by_worker
    is_paused = opened.is_prompt and opened.due > core.now_us()
    return core.jobs.is_under_way(opened) and not is_paused


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
        if peer is None or peer.worker is None or not _waits(core, peer):
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
