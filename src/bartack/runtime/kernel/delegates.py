"""Workers that start others: delegate, spawn, join, stop, restart; and the end of a worker, for which another one may wait.

A *delegate* starts workers and waits for all of them. A *spawn* starts one without waiting; a *join* waits for it. The end of a
worker is one line of the journal, together with what was waiting for just that: the outcome of its delegate if it was the last
worker of it, the end of the run if it was the first worker of all. So no hub ever finds one without the other.

**What a resumed delegate does.** The delegate and all its workers are one line of the journal, too (``_make``), so a hub that
resumes finds it not begun, or with every worker. ``ProcessDesk.resumed`` starts a process for each worker that has not ended, as
far as the limit of its delegate allows; the worker that waits is one of them. It replays, comes to the open delegate, and
``resume`` looks at the workers of that:

- One has ended with a final error, and failures are not collected: the delegate was being cancelled when the hub died. The
  cancellation continues: the rest is ended, and the step fails when their processes are gone.
- All have ended: the step gets its outcome from their recorded results. The end of the last worker is one line with the outcome, so
  this is only found where a worker was set back to before its delegate (``rewind``) and has asked for the same workers again.
- Otherwise it waits on. It starts nothing, and its deadline has the time that is left: time without a hub does not count. The
  outcome comes with the end of the last worker, whether or not the waiting worker is connected by then.

A worker that crashed alone is the same case, except that the other workers have kept their processes.

``processes.py`` starts and stops the processes, ``workers.py`` decides what a crash means, ``failure.py`` what an exception
means.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from bartack.core import typed
from bartack.errors import (
    BartackError,
    DeadlineExceededError,
    RestartRefusedError,
    StepCancelledError,
    WorkerError,
    WorkerLimitError,
)
from bartack.runtime.kernel.actions import EndHub, Show, StopWorker, Transition
from bartack.runtime.kernel.desk import Desk, Desks, Shared
from bartack.runtime.kernel.failure import SessionFailure
from bartack.runtime.kernel.handler import StepHandler
from bartack.runtime.kernel.outcome import KnownStep, describe, step_failed, step_finished, worker_error
from bartack.runtime.kernel.processes import ProcessDesk
from bartack.runtime.kernel.turn import NULL, Peer
from bartack.runtime.protocol import frames as f
from bartack.runtime.protocol import steps as s
from bartack.runtime.state import entries as e
from bartack.runtime.state.run_state import below
from bartack.runtime.state.status import moving
from bartack.runtime.state.worker_state import NO_VALUE, OpenStep, StepKey, Value, WorkerState

FinalCheck = Callable[[], list[str | BartackError]]
"""Asked when the first worker returns: notes for people, and errors that fail the session in place of its result."""

_decode_calls = typed.decoder(list[msgspec.Raw]).decode


class JoinDesk(Desk, StepHandler):
    """Waits for workers that were spawned."""

    def __init__(self, shared: Shared) -> None:
        super().__init__(shared)
        self._waiting: dict[str, list[tuple[WorkerState, StepKey]]] = {}
        """By the worker that is waited for: whose step waits."""

    def start(self, peer: Peer, worker: WorkerState, step: f.Step) -> None:
        """Wait for a spawned worker."""
        args = self.decode(step.a, s.JoinArgs)
        child = self.state.workers.get(args.path)
        if child is None:
            self.fail_step(worker, step, WorkerError(args.path, "unknown", "there is no such worker"))
        elif child.ended:
            self._finish(worker, step, child)
        else:
            if (step.p, step.n) not in worker.open:
                self.open_step(step)
            self._waiting.setdefault(args.path, []).append((worker, (step.p, step.n)))

    def child_ended(self, child: WorkerState) -> None:
        """A worker has ended: whatever joins it has its outcome."""
        for worker, step in self._waiting.pop(child.path, ()):
            opened = worker.open.get(step)
            if opened is not None:
                self._finish(worker, opened, child)

    def _finish(self, worker: WorkerState, join: KnownStep, child: WorkerState) -> None:
        if child.error is None:
            self.turn.finish(worker, step_finished(join), child.result)
        elif child.collect:
            value = self.turn.pack_raw(_collected(b"null", child.error))
            self.turn.finish(worker, step_finished(join), value)
        else:
            self.turn.fail(worker, step_failed(join, worker_error(child.path, child.error)))


class WorkerEnds(Desk):
    """Ends workers for good, and gives the steps that wait for that their outcome.

    Args:
        shared: What desks share.
        processes: The processes of workers.
        failure: Fails the session.
        joins: The steps that wait for spawned workers.
        desks: All desks, as one: reports to each of them.
        final_check: See ``FinalCheck``.
    """

    def __init__(
        self,
        shared: Shared,
        processes: ProcessDesk,
        failure: SessionFailure,
        joins: JoinDesk,
        desks: Desks,
        final_check: FinalCheck,
    ) -> None:
        super().__init__(shared)
        self._processes = processes
        self._failure = failure
        self._joins = joins
        self._desks = desks
        self._final_check = final_check
        self._returned: dict[str, Value] = {}
        """Results of workers that have returned, and end when the workers that they spawned have ended."""
        self._ended_first: dict[StepKey, int] = {}
        """Of the workers that a delegate made, how many of the first are known to have ended."""

    # By themselves.

    def result(self, peer: Peer, worker: WorkerState, frame: f.Result) -> None:
        """A worker returned; it ends when everything it spawned has ended."""
        value = Value(frame.v if frame.v is not None or frame.ref is not None else NULL, frame.ref)
        if self.state.failure is not None or worker.ended:
            self._failure.worker_reacted(peer, worker, frame)
        elif self._has_spawned(worker):
            self._returned[worker.path] = value
        else:
            self._end(worker, e.WorkerEnded(path=worker.path), value)

    def failed(self, peer: Peer, worker: WorkerState, frame: f.Failed) -> None:
        """A worker raised."""
        is_cancelled = worker.cancelled and frame.e.type.endswith(":StepCancelledError")
        if self.state.failure is not None or worker.ended:
            self._failure.worker_reacted(peer, worker, frame)
        elif not frame.fatal and (worker.collect or is_cancelled):
            self._end_failed(worker, frame.e, frame.origin)
        else:
            self._failure.fail_session(worker, frame.e, frame.origin)

    def give_up(self, worker: WorkerState, error: f.ErrorData) -> None:
        """A worker cannot be kept alive: its delegate gets the error if it collects failures, else the session fails."""
        if worker.collect:
            self._end_failed(worker, error, None)
        else:
            self._failure.fail_session(worker, error)

    def process_has_ended(self, path: str) -> None:
        """The process of a worker has ended: if the worker had returned and not ended, the next process returns again."""
        self._returned.pop(path, None)

    def _end_failed(self, worker: WorkerState, error: f.ErrorData, origin: StepKey | None) -> None:
        """The failure of a worker is an outcome: whatever it has started ends with it."""
        self.end_all(self.state.made_by(worker), StepCancelledError(f"{worker.path} failed"))
        self._end(worker, e.WorkerEnded(path=worker.path, error=error, origin=origin, final=True), NO_VALUE)

    def _has_spawned(self, worker: WorkerState) -> bool:
        return any(child.spawned for child in self.state.made_by(worker))

    def _end(self, worker: WorkerState, ended: e.WorkerEnded, value: Value) -> None:
        """One line: the worker's end, and everything that was waiting just for that."""
        if ended.error is None and not worker.parent[0] and self._is_refused(worker):
            return
        consequences = self._consequences(worker, ended, value)
        self.turn.record((ended, value), *consequences)
        self._desks.worker_ended(worker)
        peer = self.turn.peer_of(worker.path)
        if peer is not None:
            self._processes.dismiss(peer, worker)
        above = self.state.worker_of(worker.parent[0]) if worker.parent[0] else None
        if above is None:
            self.turn.after_commit(Transition())
            self.turn.after_commit(EndHub("completed" if ended.error is None else "failed"))
            return
        for data, results in consequences:
            if isinstance(data, e.StepFinished):
                self.turn.report(above, data, results)
        self._joins.child_ended(worker)
        self._processes.launch_next(worker.parent)
        returned = self._returned.get(above.path)
        if returned is not None and not self._has_spawned(above):
            del self._returned[above.path]
            self._end(above, e.WorkerEnded(path=above.path), returned)

    def _is_refused(self, worker: WorkerState) -> bool:
        """Whether the last look found an error, so that the session fails although its first worker returned."""
        found = self._final_check()
        for remark in found:
            if isinstance(remark, str):
                self.turn.with_next_commit(Show("note", worker.path, remark))
        problem = next((remark for remark in found if isinstance(remark, BartackError)), None)
        if problem is not None:
            self._failure.fail_session(worker, describe(problem, worker.path))
        return problem is not None

    def _consequences(
        self, worker: WorkerState, ended: e.WorkerEnded, value: Value
    ) -> list[tuple[e.EntryData, Value]]:
        """The entries that belong into the same line as a worker's end."""
        if not worker.parent[0]:
            status = "completed" if ended.error is None else "failed"
            run_ended = moving(self.state, e.RunEnded(status=status), leaver=worker.path)
            return [(run_ended, value)]
        above = self.state.worker_of(worker.parent[0])
        opened = above.open.get(worker.parent) if above is not None else None
        if worker.spawned or opened is None or not opened.is_delegate or not self._is_last(worker):
            return []
        results = self.results(self.state.children_of(worker.parent), worker, ended, value)
        return [(step_finished(opened), results)]

    def _is_last(self, worker: WorkerState) -> bool:
        """Whether all other workers of a delegate have ended, now that this one does."""
        workers, paths = self.state.workers, self.state.children[worker.parent]
        place = self._ended_first.get(worker.parent, 0)
        while place < len(paths) and (paths[place] == worker.path or workers[paths[place]].ended):
            place += 1
        if place < len(paths):
            self._ended_first[worker.parent] = place
            return False
        self._ended_first.pop(worker.parent, None)
        return True

    def results(
        self,
        children: list[WorkerState],
        last: WorkerState | None = None,
        ended: e.WorkerEnded | None = None,
        value: Value = NO_VALUE,
    ) -> Value:
        """The outcome of a delegate: the results of its workers in order, or how each of them ended.

        Args:
            children: The workers.
            last: The one of them that is about to end, if one is; ``ended`` and ``value`` are its end and its result.
            ended: See ``last``.
            value: See ``last``.
        """
        parts: list[bytes] = []
        for child in children:
            result = value if child is last else child.result
            error = ended.error if ended is not None and child is last else child.error
            raw = self.turn.load(result.raw, result.ref)
            parts.append(_collected(raw, error) if child.collect else raw)
        return self.turn.pack_raw(b"[" + b",".join(parts) + b"]")

    # By others.

    def end_all(self, workers: list[WorkerState], error: BartackError) -> None:
        """End workers for good, with all that they have started. All of them have ended before one learns of another's end."""
        ending = self._with_descendants(workers)
        for worker in ending:
            described = describe(error, worker.path)
            ended = e.WorkerEnded(path=worker.path, error=described, final=True, cut=True)
            self.turn.record((ended, NO_VALUE))
        for worker in ending:
            self._desks.process_ended(worker)
            self._desks.worker_ended(worker)
            if worker.path in self._processes.alive:
                self._processes.detach(worker.path)
                self._processes.stop(worker.path)

    def drop_all(self, paths: list[str]) -> None:
        """Workers are about to be removed from the run: stop their processes, and those of all that they have started."""
        marks = below(paths)
        for path in [path for path in self._processes.alive if path in paths or path.startswith(marks)]:
            worker = self.state.workers[path]
            was_started = self._processes.remove(path)
            self._desks.process_ended(worker)
            self._desks.worker_ended(worker)
            self._processes.detach(path)
            if was_started:
                self.turn.after_commit(StopWorker(path))

    def expect_anew(self, step: StepKey | None = None) -> None:
        """Forget which workers of a delegate, or of all, are known to have ended: they may have been set back."""
        if step is None:
            self._ended_first.clear()
        else:
            self._ended_first.pop(step, None)

    def _with_descendants(self, workers: list[WorkerState]) -> list[WorkerState]:
        """Workers and all that they have started, each after those that it has started."""
        made_by, descend = self.state.made_by, self._with_descendants
        return [one for worker in workers for one in (*descend(made_by(worker)), worker)]


class DelegateDesk(Desk, StepHandler):
    """Starts workers, and waits for them; handles the step ``delegate``, and those that start or stop one worker."""

    def __init__(self, shared: Shared, processes: ProcessDesk, ends: WorkerEnds, desks: Desks) -> None:
        super().__init__(shared)
        self._processes = processes
        self._ends = ends
        self._desks = desks
        self._cancelling: dict[StepKey, tuple[WorkerState, OpenStep, BartackError]] = {}
        """Delegates that were cancelled and wait until the processes of their workers have ended."""

    # Delegate.

    def start(self, peer: Peer, worker: WorkerState, step: f.Step) -> None:
        """Run workers side by side and wait for all."""
        args = self.decode(step.a, s.DelegateArgs)
        limit = self.timeouts.limit("delegate") if args.timeout_s is None else args.timeout_s
        if not args.workers:
            self.finish_step(worker, step, [])
            return
        self._check_bounds(worker, min(len(args.workers), args.limit or len(args.workers)))
        self._make(step, args, limit)
        self.resume(peer, worker, step, worker.open[step.p, step.n])
        self._processes.launch_all(self.state.children_of((step.p, step.n)))

    def resume(self, peer: Peer, worker: WorkerState, step: f.Step, opened: OpenStep) -> None:
        """A restarted worker waits for its workers again; they may have ended."""
        children = self.state.children_of(opened.key)
        if any(child.ended and child.error_is_final and not child.collect for child in children):
            # It was cancelled when the previous hub died. A failure that is not final is one of the session, just now.
            self.cancel(worker, opened, StepCancelledError("the delegate was cancelled"))
        elif all(child.ended for child in children):
            self.turn.end_open(worker, opened, self._ends.results(children))
        else:
            self._watch(worker, opened)

    def cancel(self, worker: WorkerState, opened: OpenStep, error: BartackError) -> None:
        """End the workers of a delegate. Its own worker learns it when their processes have ended.

        If failures are collected, that it is late is the failure of the workers that have not ended.
        """
        children = [child for child in self.state.children_of(opened.key) if not child.ended]
        late = isinstance(error, DeadlineExceededError)
        self._ends.end_all(children, error if late else StepCancelledError("the delegate was cancelled"))
        self._cancelling[opened.key] = (worker, opened, error)
        self.settle()

    def settle(self) -> None:
        """Fail the delegates that were cancelled and whose workers have no process any more."""
        for step, (worker, opened, error) in list(self._cancelling.items()):
            children = self.state.children_of(step)
            paths = [child.path for child in children]
            if any(path in paths or path.startswith(below(paths)) for path in self._processes.alive):
                continue
            del self._cancelling[step]
            if not self.is_open(worker, opened):
                continue
            if isinstance(error, DeadlineExceededError) and all(child.collect for child in children):
                self.turn.end_open(worker, opened, self._ends.results(children))
            else:
                self.turn.fail_open(worker, opened, error)

    def _watch(self, worker: WorkerState, opened: OpenStep) -> None:
        left = self.left_s(opened)

        def late() -> None:
            error = DeadlineExceededError("delegate", opened.timeout_s or 0.0, "explicit")
            self.cancel(worker, opened, error)

        if left is not None:
            self.timers.after(left, late, lambda: self.is_open(worker, opened))

    def _make(self, step: f.Step, args: s.DelegateArgs, limit: float) -> None:
        """One line: the delegate is open, and its workers exist."""
        calls = _decode_calls(self.turn.load(step.v, step.ref))
        started = e.StepStarted(
            p=step.p,
            n=step.n,
            step=step.step,
            fp=step.fp,
            about=step.about,
            timeout_s=limit,
            limit=args.limit or 0,
            site=step.site,
        )
        items: list[tuple[e.EntryData, Value]] = [(started, NO_VALUE)]
        key = (step.p, step.n)
        self._ends.expect_anew(key)
        known = self.state.children_of(key)
        if known:
            # Its worker was set back to before it: if it asks for the same again, its workers continue.
            made = [(child.worker, self.turn.load(child.given.raw, child.given.ref)) for child in known]
            if made == [(worker, bytes(call)) for worker, call in zip(args.workers, calls, strict=True)]:
                self.turn.record(*items)
                return
            items.append((e.WorkersDropped(p=step.p, n=step.n), NO_VALUE))
            self._ends.drop_all([child.path for child in known])
        for position, (worker, call) in enumerate(zip(args.workers, calls, strict=True), 1):
            child = e.WorkerSpawned(
                path=f"{step.p}/{step.n}{'' if args.single else f'.{position}'}:{_name(worker)}",
                worker=worker,
                p=step.p,
                n=step.n,
                collect=args.on_failure == "collect",
            )
            items.append((child, self.turn.pack_raw(bytes(call))))
        self.turn.record(*items)

    def _check_bounds(self, worker: WorkerState, more: int) -> None:
        """Raise unless a worker may start more workers.

        Raises:
            WorkerLimitError: There would be too many at a time, or too many below each other.
        """
        bounds, alive = self.settings.workers, len(self._processes.alive)
        if len(self.state.ancestors(worker)) + 2 > bounds.max_depth:
            raise WorkerLimitError("levels of workers below each other (workers.max_depth)", bounds.max_depth)
        if alive + more > bounds.max:
            raise WorkerLimitError("workers at a time (workers.max)", bounds.max)
        room = self.settings.workers_room
        if alive + more > room:
            raise WorkerLimitError("workers at a time (each needs files, see ulimit -n)", room)

    # One worker.

    def spawn(self, peer: Peer, worker: WorkerState, step: f.Step) -> None:
        """The step ``spawn``: start a worker without waiting for it."""
        args = self.decode(step.a, s.DelegateArgs)
        self._check_bounds(worker, 1)
        path = f"{step.p}/{step.n}:{_name(args.workers[0])}"
        call = _decode_calls(self.turn.load(step.v, step.ref))[0]
        child = e.WorkerSpawned(
            path=path,
            worker=args.workers[0],
            p=step.p,
            n=step.n,
            spawned=True,
            collect=args.on_failure == "collect",
            site=step.site,
        )
        done = step_finished(step, about=step.about)
        value = self.turn.pack(path)
        self.turn.record((child, self.turn.pack_raw(bytes(call))), (done, value))
        self.turn.answer(worker, step.p, step.n, value)
        self._processes.launch(self.state.workers[path])

    def stop(self, peer: Peer, worker: WorkerState, step: f.Step) -> None:
        """The step ``stop``: cancel a spawned worker, in its open steps or in its next one."""
        args = self.decode(step.a, s.StopArgs)
        child = self.state.workers.get(args.path)
        if child is not None and not child.ended:
            reason = args.reason or "cancelled"
            self.turn.record((e.WorkerCancelled(path=child.path, reason=reason), NO_VALUE))
            self._desks.worker_aborted(child)
        self.finish_step_raw(worker, step, Value(NULL))

    def restart(self, peer: Peer, worker: WorkerState, step: f.Step) -> None:
        """The step ``restart``: end the history of a worker and begin a new one, as one entry.

        Its process is replaced, as nothing in it is part of the new history.
        """
        self._check_settled(worker)
        restarted = e.WorkerRestarted(path=worker.path, n=step.n, fp=step.fp)
        value = self.turn.pack_raw(self.turn.load(step.v, step.ref))
        self.turn.record((restarted, value))
        self._processes.forget_incarnations()
        self._ends.expect_anew()
        self._processes.restart(worker)

    def _check_settled(self, worker: WorkerState) -> None:
        """Raise if a worker has anything under way that its new history would not know of."""
        state, path = self.state, worker.path
        made = state.made_by(worker)
        if made:
            raise RestartRefusedError(path, f"its worker {made[0].path} has not ended")
        if worker.open:
            p, n = next(iter(worker.open))
            raise RestartRefusedError(path, f"its step {p}:{n} has no outcome yet")
        held = next((box for box, holder in state.held.values() if holder == path), None)
        if held is not None:
            raise RestartRefusedError(
                path, f"it holds a message of mailbox {held} that it has not acknowledged"
            )
        if state.is_watching(path):
            raise RestartRefusedError(path, "it is inside a block of ctx.monitor")


def _name(worker: str) -> str:
    return worker.rpartition(":")[2]


def _collected(raw: bytes, error: f.ErrorData | None) -> bytes:
    if error is None:
        return b'{"ok":true,"value":%b}' % raw
    return b'{"ok":false,"error":%b}' % msgspec.json.encode(error)
