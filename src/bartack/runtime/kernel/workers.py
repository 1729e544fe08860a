"""What the end of a worker's process means: a crash, after which the worker is restarted, or the end that was expected.

A worker whose process crashes is started again and replays its history to where it was; its program does not notice. After some
crashes in a row without progress the worker is given up. A worker that raises has not crashed: read ``failure.py``.
"""

from __future__ import annotations

from typing import Final

import msgspec

from bartack.errors import BartackError, OutcomeUnknownError, StepCrashedError, WorkerStartError
from bartack.runtime.kernel.actions import Show
from bartack.runtime.kernel.delegates import DelegateDesk, WorkerEnds
from bartack.runtime.kernel.desk import Desk, Desks, Shared
from bartack.runtime.kernel.failure import SessionFailure
from bartack.runtime.kernel.outcome import describe
from bartack.runtime.kernel.processes import ProcessDesk
from bartack.runtime.kernel.turn import Peer
from bartack.runtime.protocol import frames as f
from bartack.runtime.state import entries as e
from bartack.runtime.state.worker_state import NO_VALUE, OpenStep, WorkerState
from bartack.supervision import RestartPolicy
from bartack.supervision.supervisor.spec import CHILD_BACKOFF

WORKER_RESTARTS: Final = RestartPolicy(limit=3, backoff=CHILD_BACKOFF, free=1)
"""For crashes in a row without progress. The first restart comes at once: most crashes are the only one."""

START_FAILED: Final = "start failed: "
"""How the reason begins for which a process has ended that could not be started."""


class ProcessEnd(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a process that has ended, besides why."""

    pid: int = 0
    uptime_s: float = 0.0
    peak_memory_bytes: int = 0
    stderr_tail: str = ""


NOTHING_KNOWN: Final = ProcessEnd()


class Workers(Desk):
    """Restarts workers whose processes have crashed.

    Args:
        shared: What desks share.
        processes: The processes of workers.
        failure: The failure of the session.
        ends: Ends workers for good.
        delegates: The steps that wait for the processes of workers to end.
        desks: All desks, as one: reports to each of them.
    """

    def __init__(
        self,
        shared: Shared,
        processes: ProcessDesk,
        failure: SessionFailure,
        ends: WorkerEnds,
        delegates: DelegateDesk,
        desks: Desks,
    ) -> None:
        super().__init__(shared)
        self._processes = processes
        self._failure = failure
        self._ends = ends
        self._delegates = delegates
        self._desks = desks

    def slow(self, peer: Peer, worker: WorkerState, frame: f.Slow) -> None:
        """A worker has run for long without reaching a step: people may want to know where."""
        entry = e.WaitSlow(path=worker.path, seconds=frame.seconds, stack=frame.stack)
        self.turn.record((entry, NO_VALUE), sync=False)
        place = f" at {frame.stack[-1].file}:{frame.stack[-1].line}" if frame.stack else ""
        text = f"has run for {frame.seconds:g} s without reaching a step{place}"
        self.turn.with_next_commit(Show("note", worker.path, text))

    def process_gone(
        self,
        path: str,
        incarnation: int,
        reason: str,
        *,
        counted: bool = True,
        end: ProcessEnd = NOTHING_KNOWN,
    ) -> None:
        """The process of a worker has ended, with its whole tree."""
        processes = self._processes
        found = processes.ended(path, incarnation, reason)
        if found is None:
            return
        self._failure.process_reacted(path)
        peer = self.turn.peer_of(path)
        arrived = processes.detach(path)
        expected = processes.take_expected(path)
        self._ends.process_has_ended(path)
        worker = self.state.workers.get(path)
        gone = worker or (peer.worker if peer is not None else None)
        if gone is not None:
            self._desks.process_ended(gone)
        if self.state.failure is not None:
            self._failure.settle()
        elif worker is None:
            return  # it had ended, and the worker that made it has begun a new history
        elif not worker.ended:
            delay_s = WORKER_RESTARTS.wait_s(worker.crashes_in_a_row)
            if counted and not expected:
                delay_s = self._crashed(worker, incarnation, found, end, arrived=arrived)
            processes.launch_again(worker, delay_s)
        else:
            self._delegates.settle()
            processes.launch_next(worker.parent)

    def _crashed(
        self, worker: WorkerState, incarnation: int, reason: str, end: ProcessEnd, *, arrived: bool
    ) -> float:
        """Record what is known of a crash and what follows from it. Returns after how many seconds the worker is restarted."""
        body = next((step for step in worker.open.values() if step.is_body), None)
        p, n = body.key if body is not None else ("", 0)
        in_a_row = 1 if arrived else worker.crashes_in_a_row + 1
        given_up = body is None and WORKER_RESTARTS.is_over(in_a_row)
        delay_s = WORKER_RESTARTS.wait_s(in_a_row)
        crashed = e.WorkerCrashed(
            path=worker.path,
            incarnation=incarnation,
            reason=reason,
            p=p,
            n=n,
            arrived=arrived,
            pid=end.pid,
            last_step=_last_step(worker),
            last_message=worker.last_message,
            stderr_tail=end.stderr_tail,
            uptime_s=round(end.uptime_s, 3),
            peak_memory_bytes=end.peak_memory_bytes,
            restarts=in_a_row,
            decision="escalate" if given_up else "restart",
            next_start=0 if given_up else self.now_us() + round(delay_s * 1e6),
        )
        self.turn.record((crashed, NO_VALUE))
        note = _note_of(reason, given_up=given_up)
        self.turn.with_next_commit(Show("note", worker.path, note))
        if body is not None:
            self._charge(worker, body, reason)
        elif given_up:
            self._ends.give_up(worker, describe(_crash_error(worker, reason), worker.path))
        return delay_s

    def _charge(self, worker: WorkerState, body: OpenStep, reason: str) -> None:
        """A process crashed in a body: that is the body's outcome if it must run only once, or has crashed too often."""
        place = f"{body.p}:{body.n}"
        crashes = worker.crashes.get(body.key, 0)
        if body.once:
            self.turn.fail_open(worker, body, OutcomeUnknownError(place, body.about))
        elif crashes >= (body.max_crashes or WORKER_RESTARTS.limit):
            self.turn.fail_open(worker, body, StepCrashedError(place, crashes, reason))


def _note_of(reason: str, *, given_up: bool) -> str:
    if reason.startswith(START_FAILED):
        return f"{reason}; {'giving up' if given_up else 'retrying'}"
    return f"crashed ({reason}); {'giving up' if given_up else 'restarting from its last step'}"


def _crash_error(worker: WorkerState, reason: str) -> BartackError:
    """Why a worker is given up that crashed between steps, or could not be started at all."""
    if reason.startswith(START_FAILED):
        return WorkerStartError(worker.path, worker.crashes_in_a_row, reason.removeprefix(START_FAILED))
    return StepCrashedError(f"{worker.path} (between steps)", worker.crashes_in_a_row, reason)


def _last_step(worker: WorkerState) -> str:
    """The step that a worker is in, or else the last one that has an outcome."""
    opened = worker.waits()
    if opened:
        newest = max(opened, key=lambda step: step.at)
        return f"{newest.p}:{newest.n} {newest.step}"
    p, n, kind = worker.last_step
    return f"{p}:{n} {kind}" if n else ""
