"""The failure of a session, and how it reaches every process.

A worker that *throws* fails the session: that is the program's meaning. (A worker whose process *crashes* does not;
``workers.py`` restarts it.) From then on nothing of the run continues, except clean-up: the steps that workers execute while
the failure unwinds their programs. The run can be resumed; every worker then replays to where it was, and the failed one to
before its failing step.

**Why a failure reaches all workers, in this order.** ``fail_session`` records one line: ``FailureRecorded``, and before it
the end of the worker that failed, if it was a worker. (A run that a person or ``ctx.fail`` fails, or that loses a parent
program, has no failed worker: none has to wait, and all are notified at once.) Everything else follows from that line, so a
hub that dies at any moment after it leaves a journal from which the next hub knows that the session failed, and one that dies
before it leaves a session that has not failed. ``_spread`` then decides the rest of the turn. All its effects are actions of
``turn.py``, performed after the line is durable, in the order in which they are listed here:

1. *Workers*, one after the other. One that has a process but no connection is starting: it is stopped, as it has nothing to
   clean up. The failed one knows, and those that wait for it, directly or through others, have to wait (5). Every other one
   is notified by ``SessionFailed``, and has ``child_stop`` seconds to clean up and exit; then a timer stops it. The frame is
   urgent: it overtakes frames that wait in a full socket. From the same moment the hub takes only clean-up from workers
   (``StepTable`` refuses every other step), and the answers that they awaited are withdrawn: a step whose outcome the worker
   has not got is answered by the failure. An outcome that is recorded after that is sent as history, not as an answer, and
   the next process of the worker gets it on resume.
2. *Processes outside the run* are notified likewise.
3. *Every desk* learns it by ``session_failed``: receivers, blocked senders and timers of messages are dropped, then commands
   and prompts are stopped. Stopping comes after notifying because it takes time, which blocked workers should not spend
   waiting.
4. *The failed worker* is dismissed, after all others for the same reason.
5. *A worker that delegated* to the failed one, directly or through others, learns it last: ``settle`` notifies it when none
   of the workers that its open steps have started, and none below them, has a process any more. Were it notified with the
   others, it could clean up, or release a resource, while a worker of its tree still uses it. (A worker that did not wait for
   the failed one is notified with the others, and together with the workers that it started.) ``settle`` runs at the end of
   ``_spread`` and after every end of a process. Since every worker that was notified or dismissed exits or is stopped after
   ``child_stop`` seconds, and workers form a tree, it reaches every worker that waits, up to the root. Each gets the failure
   first, then a refusal for each delegate that it awaits. In the other order the refusal would let its program run on, and
   the failure would then interrupt the first step of its clean-up.
6. When no worker has a process any more, ``settle`` records the end of the run and ends the hub. A run that is cancelled, or that
   its program has aborted, is not resumed if the hub dies before that: the line of its failure says how it ends, and the next hub
   records that end and does nothing else.

A worker that fails by itself while it cleans up changes nothing of this: its failure is recorded as suppressed, for people.
If one of its own steps caused it, its end is recorded, too, and the worker is set back on resume like the first one.

A refusal of a delegate is not its outcome. Nothing is recorded, so a resumed worker finds its delegate open and waits for it
again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

import msgspec

from bartack.errors import SessionFailedError, StepCancelledError
from bartack.runtime.kernel.actions import EndHub, Transition
from bartack.runtime.kernel.desk import Desk, Desks, Shared
from bartack.runtime.kernel.outcome import describe, worker_error
from bartack.runtime.kernel.processes import ProcessDesk
from bartack.runtime.kernel.turn import Peer
from bartack.runtime.protocol import frames as f
from bartack.runtime.protocol import steps as s
from bartack.runtime.state import entries as e
from bartack.runtime.state.run_state import below
from bartack.runtime.state.status import moving
from bartack.runtime.state.worker_state import NO_VALUE, StepKey, Value, WorkerState

CONSEQUENCES: Final = frozenset(
    {"SessionFailedError", "StepCancelledError", "LinkedExitError", "WorkerError"}
)
"""Errors that a worker ends with because the session failed, not because it failed itself."""


class SessionFailure(Desk):
    """Fails the session and notifies every process.

    Args:
        shared: What desks share.
        processes: The processes of workers.
        desks: All desks, as one: reports to each of them.
    """

    def __init__(self, shared: Shared, processes: ProcessDesk, desks: Desks) -> None:
        super().__init__(shared)
        self._processes = processes
        self._desks = desks
        self._notified: set[str] = set()
        """Workers that know of the failure."""
        self._frame: tuple[e.FailureRecorded, bytes] | None = None
        self._described: tuple[e.FailureRecorded, f.ErrorData] | None = None
        """The failure as processes are notified of it: the same for all of them, so it is made once."""

    # Failing.

    def fail_session(
        self, worker: WorkerState | None, error: f.ErrorData, origin: StepKey | None = None, *, by: str = ""
    ) -> None:
        """The session fails: one line in the journal, from which everything else follows. ``by``: who has asked for that."""
        p, n = origin or ("", 0)
        failure = e.FailureRecorded(worker=worker.path if worker else "", error=error, p=p, n=n, by=by)
        self._fail(failure, worker, origin)

    def _fail(
        self, failure: e.FailureRecorded, worker: WorkerState | None = None, origin: StepKey | None = None
    ) -> None:
        if self.state.failure is not None:
            self.turn.record((failure, NO_VALUE), sync=False)
            return
        items: list[tuple[e.EntryData, Value]] = [(failure, NO_VALUE)]
        if worker is not None and not worker.ended:
            ended = e.WorkerEnded(path=worker.path, error=failure.error, origin=origin)
            items.insert(0, (ended, NO_VALUE))
        self.turn.record(*items)
        self._spread(worker)

    def cancel_run(self, reason: str, *, aborted: bool = False, by: str = "") -> None:
        """End the run in order; it cannot be resumed. It is aborted if its program ends it because a person wanted it."""
        reason = reason or "cancelled"
        error = describe(StepCancelledError(reason))
        ends: Literal["aborted", "cancelled"] = "aborted" if aborted else "cancelled"
        self._fail(e.FailureRecorded(worker="", error=error, ends=ends, reason=reason, by=by))

    def fail(self, peer: Peer, worker: WorkerState, step: f.Step) -> None:
        """The step ``fail``: a worker fails the session on purpose. It is not answered; the worker is notified like all others."""
        args = self.decode(step.a, s.FailArgs)
        error = f.ErrorData(
            type="bartack.errors:SessionFailedError",
            message=args.message,
            code=SessionFailedError.code,
            facts={"worker": worker.path, "error": "failed on purpose", "problem": args.message, **args.data},
            worker=worker.path,
        )
        del peer.awaited[step.p, step.n]
        if args.final:
            self.cancel_run(args.message, aborted=True)
        else:
            self.fail_session(None, error)

    def worker_reacted(self, peer: Peer, worker: WorkerState, frame: f.Result | f.Failed) -> None:
        """A worker returned or raised after the session failed, or after the worker was ended: have its process exit."""
        if isinstance(frame, f.Failed) and not worker.ended:
            self._suppress(worker, frame)
        self.process_reacted(worker.path)
        self._processes.dismiss(peer, worker)

    def process_reacted(self, path: str) -> None:
        """A worker has reacted to the failure of the session, if there is one, or its process has ended."""
        if self.run_events is not None:
            self.run_events.failure_seen(path, self.now_us())

    # Notifying.

    def _spread(self, failed: WorkerState | None) -> None:
        self._notified.clear()
        waiting = (
            {above.path for above, _ in self.state.ancestors(failed)} if failed is not None else set[str]()
        )
        for path in list(self._processes.alive):
            peer = self.turn.peer_of(path)
            if peer is None:
                self._processes.stop(path)
            elif failed is not None and path == failed.path:
                self._notified.add(path)
                peer.knows_failure = True
            elif path not in waiting:
                self.notify(peer)
        for peer in self.turn.peers_outside():
            self.turn.send_encoded(peer, self._encoded(), urgent=True)
        self._desks.session_failed(self.error())
        self.turn.after_commit(Transition())
        failed_peer = self.turn.peer_of(failed.path) if failed is not None else None
        if failed is not None and failed_peer is not None and failed.path in self._notified:
            self._processes.dismiss(failed_peer, failed)
        self.settle()

    def notify(self, peer: Peer, refused: Sequence[f.Refusal] = ()) -> None:
        """A worker learns of the failure, then that its delegates are refused, and has some seconds to clean up."""
        worker = peer.worker
        if worker is None or worker.path in self._notified:
            return
        self._notified.add(worker.path)
        peer.knows_failure = True
        peer.awaited = {step: number for step, number in peer.awaited.items() if _is_cleanup(worker, step)}
        if refused:
            frame = f.SessionFailed(e=self.describe_for(""), but=[refusal.i for refusal in refused])
            self.turn.send(peer, frame, urgent=True)
            for refusal in refused:
                self.turn.send(peer, refusal)
        else:
            self.turn.send_encoded(peer, self._encoded(), urgent=True)
        self._processes.expect_exit(worker, peer.incarnation, self.timeouts.limit("child_stop"))

    def settle(self) -> None:
        """Notify workers whose other workers have no process any more; end the run when no worker has one."""
        failure = self.state.failure
        assert failure is not None
        alive = self._processes.alive
        for path in list(alive):
            peer = self.turn.peer_of(path)
            if peer is None or peer.worker is None or path in self._notified:
                continue
            if not self._is_alone(peer.worker):
                continue
            self.notify(peer, _refuse_delegates(peer, peer.worker, failure))
        if not alive:
            self.end_run()

    def _is_alone(self, worker: WorkerState) -> bool:
        """Whether nothing of the workers that the open steps of a worker have started, and of all below them, has a process."""
        alive = self._processes.alive
        made = [child.path for step in worker.open for child in self.state.children_of(step)]
        if any(path in alive for path in made):
            return False
        prefixes = below(made)
        return not any(path.startswith(prefixes) for path in alive)

    def end_run(self) -> None:
        """Record the end of the run, when no process of it is left, and end the hub."""
        ending = self.state.ending
        status, reason, by = ("failed", "", "") if ending is None else (ending.ends, ending.reason, ending.by)
        if self.state.ended is None:
            ended = moving(self.state, e.RunEnded(status=status, reason=reason, by=by))
            self.turn.record((ended, NO_VALUE))
        self.turn.after_commit(Transition())
        self.turn.after_commit(EndHub(status))

    def _suppress(self, worker: WorkerState, frame: f.Failed) -> None:
        """A worker failed by itself after the session had. If a step of it caused that, it is set back like the first one."""
        if frame.e.type.rpartition(":")[2] in CONSEQUENCES:
            return
        items: list[tuple[e.EntryData, Value]] = [
            (e.FailureRecorded(worker=worker.path, error=frame.e, suppressed=True), NO_VALUE)
        ]
        if frame.origin in worker.blame.steps:
            ended = e.WorkerEnded(path=worker.path, error=frame.e, origin=frame.origin)
            items.append((ended, NO_VALUE))
        self.turn.record(*items, sync=False)

    # In words.

    def error(self) -> SessionFailedError:
        """The failure of the session as an error."""
        failure = self.state.failure
        assert failure is not None
        cause = failure.error
        return SessionFailedError(failure.worker, cause.type.rpartition(":")[2], cause.message)

    def describe_for(self, path: str) -> f.ErrorData:
        """The failure of the session as another worker sees it."""
        failure = self.state.failure
        assert failure is not None
        if self._described is None or self._described[0] is not failure:
            described = msgspec.structs.replace(describe(self.error()), cause=failure.error)
            self._described = (failure, described)
        return msgspec.structs.replace(self._described[1], worker=path)

    def _encoded(self) -> bytes:
        """The frame for a process that is notified of nothing else."""
        failure = self.state.failure
        assert failure is not None
        if self._frame is None or self._frame[0] is not failure:
            self._frame = (failure, f.encode(f.SessionFailed(e=self.describe_for(""))))
        return self._frame[1]


def _is_cleanup(worker: WorkerState, step: StepKey) -> bool:
    opened = worker.open.get(step)
    return opened is not None and opened.cleanup


def _refuse_delegates(peer: Peer, worker: WorkerState, failure: e.FailureRecorded) -> list[f.Refusal]:
    """What a worker learns of its open delegates. It is not their outcome: a resumed worker waits for them again."""
    opened = [step for step in worker.open.values() if step.is_delegate]
    numbers = [peer.awaited.pop(step.key, None) for step in opened]
    error = worker_error(failure.worker, failure.error)
    return [f.Refusal(i=number, e=error) for number in numbers if number is not None]
