"""The crew of a run: which workers there are, how they start and end, and how the failure of one reaches all.

A worker that *throws* fails the session: that is the program's meaning. A worker whose process *crashes* is started again and
replays to where it was. The order at a failure: the entry is durable, then everybody blocked is told, then work outside is ended,
then what does not end by itself is killed. A worker that delegated to the failed one learns of it last, when nothing of its other
children is left.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import msgspec

from bartack.errors import (
    BartackError,
    DeadlineExceededError,
    OutcomeUnknownError,
    RestartRefusedError,
    SessionFailedError,
    StepCancelledError,
    StepCrashedError,
    WorkerError,
    WorkerLimitError,
    WorkerStartError,
)
from bartack.runtime.kernel.actions import (
    CloseConnection,
    EndHub,
    SendHistory,
    Show,
    StartWorker,
    StopWorker,
    Transition,
)
from bartack.runtime.kernel.desk import Desk, Shared
from bartack.runtime.kernel.outcome import KnownStep, describe, step_failed, step_finished
from bartack.runtime.kernel.turn import NULL, Peer
from bartack.runtime.protocol import frames as f
from bartack.runtime.protocol import steps as s
from bartack.runtime.protocol.steps import BODIES
from bartack.runtime.state import entries as e
from bartack.runtime.state.run_state import below
from bartack.runtime.state.status import moving
from bartack.runtime.state.worker_state import NO_VALUE, OpenStep, Value, Worker
from bartack.supervision import CHILD_BACKOFF, RestartPolicy

WORKER_RESTARTS: Final = RestartPolicy(limit=3, backoff=CHILD_BACKOFF, free=1)
"""For crashes in a row that got a worker nowhere. The first restart comes at once: most crashes are the only one."""

STARTING_AT_ONCE: Final = 16
"""How many processes may be on their way to their hello. More at a time are not faster, and each waits for all others."""

START_FAILED: Final = "start failed: "
"""How the reason begins for which a worker's process is gone that never was."""

LAST_WORDS_S: Final = 1.0
_ABORTS: Final = frozenset({"SessionFailedError", "StepCancelledError", "LinkedExitError", "WorkerError"})
Step = tuple[str, int]
"""Path and number."""

_decode_calls = msgspec.json.Decoder(list[msgspec.Raw]).decode


class ProcessEnd(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a worker's process that is gone, besides why."""

    pid: int = 0
    uptime_s: float = 0.0
    peak_memory_bytes: int = 0
    stderr_tail: str = ""


NOTHING_KNOWN: Final = ProcessEnd()


class Workers(Desk):
    """Starts, ends and restarts workers, and spreads failure."""

    def __init__(self, shared: Shared) -> None:
        super().__init__(shared)
        self.alive: dict[str, int] = {}
        """Workers that have, or are about to have, a process; with its number."""
        self.aborting: Callable[[], None] = lambda: None
        self.forgotten: Callable[[str], None] = lambda path: None
        self.died: Callable[[Worker], None] = lambda worker: None
        """Told of a worker whose process is gone."""
        self.gave_up: Callable[[Worker], None] = lambda worker: None
        """Told of a worker that has ended for good: what it held goes back, what was done for it ends."""
        self.abort: Callable[[Worker], None] = lambda worker: None
        """Interrupts a worker where the state says that it is to be."""
        self.last_look: Callable[[], list[str | BartackError]] = list
        """Asked when the first worker has come to its end: what people should know, and what speaks against it."""
        self.absent: dict[str, Worker] = {}
        """Those of them that have not come to where they were: not started, on their way, or replaying."""
        self._queue: dict[str, int] = {}
        """Those of them whose processes are started when others have said hello, in order."""
        self._starting: set[str] = set()
        self._held_back: dict[Step, deque[Worker]] = {}
        """Workers that a limited delegate starts when others have ended."""
        self._made_by: dict[str, Step] = {}
        self._running: Counter[Step] = Counter()
        """How many of the workers that a step made have a process."""
        self._ended_before: dict[Step, int] = {}
        """Of the workers that a delegate made, so many of the first are known to have ended."""
        self._numbers: dict[str, int] = {}
        self._finishing: dict[str, Value] = {}
        self._joins: dict[str, list[tuple[Worker, str, int]]] = {}
        self._cancelling: dict[tuple[str, int], tuple[Worker, OpenStep, BartackError]] = {}
        """Delegates that were given up and wait for the processes of their workers to be gone."""
        self._expected: set[str] = set()
        self._late: set[tuple[str, int]] = set()
        """Processes that were ended because they did not say hello in time."""
        self._told: set[str] = set()
        self.cancelled = ""
        """Why the run is being cancelled, if it is."""
        self._aborted = False
        """A person wants its end, and said so to its program."""
        self._told_all: tuple[e.FailureRecorded | None, bytes] | None = None
        self._described: tuple[e.FailureRecorded, f.ErrorData] | None = None
        """The failure of the session as everybody is told of it; put into words only once."""

    # Starting.

    def start_all(self) -> None:
        """Start every worker that has something left to do."""
        self._launch_all(list(self.state.workers.values()))

    def hello(self, number: int, hello: f.Hello) -> Peer | None:
        """A worker's process is there. One that is not the current process of its worker is sent away."""
        worker = self.state.workers.get(hello.path)
        if worker is None or worker.ended or self.alive.get(hello.path) != hello.incarnation:
            return None
        self._starting.discard(hello.path)
        self._start_more()
        peer = Peer(number, worker=worker, incarnation=hello.incarnation, name=hello.path)
        self.turn.peers[number] = peer
        self.turn.by_worker[hello.path] = peer
        worker.status = "running"
        if self.run_events is not None:
            self.run_events.process_ready(hello.path, hello.incarnation)
        self.turn.after_commit(SendHistory(number, hello.path, len(worker.history)))
        if self.state.failure is not None:
            self._tell(peer)
        return peer

    # Steps.

    def delegate(self, peer: Peer, worker: Worker, step: f.Step) -> None:
        """Run workers side by side and wait for all."""
        args = self.decode(step.a, s.DelegateArgs)
        limit, _ = self._limit(args.timeout_s)
        if not args.workers:
            self.finish_step(worker, step, [])
            return
        self._check_bounds(worker, min(len(args.workers), args.limit or len(args.workers)))
        self._spawn(step, args, limit)
        self.resume_delegate(worker, worker.open[step.p, step.n])
        self._launch_children(step.p, step.n)

    def spawn(self, peer: Peer, worker: Worker, step: f.Step) -> None:
        """Start a worker and go on."""
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
        )
        done = step_finished(step, about=step.about)
        value = self.turn.pack(path)
        self.turn.record((child, self.turn.pack_raw(bytes(call))), (done, value))
        self.turn.answer(worker, step.p, step.n, value)
        self._launch(self.state.workers[path])

    def join(self, peer: Peer, worker: Worker, step: f.Step) -> None:
        """Wait for a spawned worker."""
        args = self.decode(step.a, s.JoinArgs)
        child = self.state.workers.get(args.path)
        if child is None:
            self.fail_step(worker, step, WorkerError(args.path, "unknown", "there is no such worker"))
        elif child.ended:
            self._finish_join(worker, step, child)
        else:
            if (step.p, step.n) not in worker.open:
                self.open_step(step)
            self._joins.setdefault(args.path, []).append((worker, step.p, step.n))

    def stop(self, peer: Peer, worker: Worker, step: f.Step) -> None:
        """Cancel a spawned worker: at its open steps, or at its next one."""
        args = self.decode(step.a, s.StopArgs)
        child = self.state.workers.get(args.path)
        if child is not None and not child.ended:
            reason = args.reason or "cancelled"
            self.turn.record((e.WorkerCancelled(path=child.path, reason=reason), NO_VALUE))
            self.abort(child)
        self.finish_step_raw(worker, step, Value(NULL))

    def begin_anew(self, peer: Peer, worker: Worker, step: f.Step) -> None:
        """End the history of a worker and begin a new one, as one entry. Its process goes, as nothing in it is part of that."""
        self._check_settled(worker)
        restarted = e.WorkerRestarted(path=worker.path, n=step.n, fp=step.fp)
        value = self.turn.pack_raw(self.turn.load(step.v, step.ref))
        self.turn.record((restarted, value))
        self._numbers = {path: number for path, number in self._numbers.items() if self._is_known(path)}
        self._ended_before.clear()
        self.restart(worker)

    def _is_known(self, path: str) -> bool:
        return path in self.state.workers or path in self.alive

    def _check_settled(self, worker: Worker) -> None:
        """Raise if a worker has anything under way that its new history would not know of."""
        state, path = self.state, worker.path
        left = self._below(worker)
        if left:
            raise RestartRefusedError(path, f"its worker {left[0].path} has not ended")
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

    def resume_delegate(self, worker: Worker, opened: OpenStep) -> None:
        """A worker that was restarted waits for its children again; they may be through."""
        children = self._children(opened.p, opened.n)
        if any(child.ended and child.error_is_final and not child.collect for child in children):
            # It was given up when the hub died. A failure that is not final is one of the session, just now.
            self.give_up(worker, opened, StepCancelledError("the delegate was cancelled"))
        elif all(child.ended for child in children):
            self.turn.end_open(worker, opened, self._results(children))
        else:
            self.watch_delegate(worker, opened)

    def watch_delegate(self, worker: Worker, opened: OpenStep) -> None:
        """Waiting for children has a deadline, too."""
        left = self.left_s(opened)

        def late() -> None:
            error = DeadlineExceededError("delegate", opened.timeout_s or 0.0, "explicit")
            self.give_up(worker, opened, error)

        if left is not None:
            self.timers.after(left, late, lambda: self.is_open(worker, opened))

    def give_up(self, worker: Worker, opened: OpenStep, error: BartackError) -> None:
        """A delegate is cancelled or late: nothing of its workers stays, then its worker learns it.

        If failures are collected, that it is late is the failure of those that have not ended.
        """
        children = [child for child in self._children(opened.p, opened.n) if not child.ended]
        late = isinstance(error, DeadlineExceededError)
        self._end_all(children, error if late else StepCancelledError("the delegate was cancelled"))
        self._cancelling[opened.p, opened.n] = (worker, opened, error)
        self._settle_cancelled()

    # Ends.

    def result(self, peer: Peer, worker: Worker, frame: f.Result) -> None:
        """A worker came to its end; it is over when everything it spawned is."""
        value = Value(frame.v if frame.v is not None or frame.ref is not None else NULL, frame.ref)
        if self.state.failure is not None or worker.ended:
            self._see_failure(worker.path)
            self._dismiss(peer, worker)
        elif self._spawned_left(worker):
            self._finishing[worker.path] = value
        else:
            self._end(worker, e.WorkerEnded(path=worker.path), value)

    def failed(self, peer: Peer, worker: Worker, frame: f.Failed) -> None:
        """A worker ended with an exception."""
        name = frame.e.type.rpartition(":")[2]
        if self.state.failure is not None or worker.ended:
            if name not in _ABORTS and not worker.ended:
                self._suppress(worker, frame)
            self._see_failure(worker.path)
            self._dismiss(peer, worker)
        elif not frame.fatal and (worker.collect or (worker.cancelled and name == "StepCancelledError")):
            self._abort_below(worker)
            self._end(
                worker,
                e.WorkerEnded(path=worker.path, error=frame.e, origin=frame.origin, final=True),
                NO_VALUE,
            )
        else:
            self.fail_session(worker, frame.e, frame.origin)

    def fail_session(self, worker: Worker | None, error: f.ErrorData, origin: tuple[str, int] | None) -> None:
        """The session fails: one line in the journal, then everybody learns it."""
        state = self.state
        p, n = origin or ("", 0)
        failure = e.FailureRecorded(worker=worker.path if worker else "", error=error, p=p, n=n)
        if state.failure is not None:
            self.turn.record((failure, NO_VALUE), sync=False)
            return
        items: list[tuple[e.EntryData, Value]] = [(failure, NO_VALUE)]
        if worker is not None and not worker.ended:
            items.insert(0, (e.WorkerEnded(path=worker.path, error=error, origin=origin), NO_VALUE))
        self.turn.record(*items)
        self._spread(worker)

    def cancel_run(self, reason: str, *, aborted: bool = False) -> None:
        """End the run in order; it will not be resumed. It is aborted if its program ends it because a person said so."""
        self.cancelled = reason or "cancelled"
        self._aborted = aborted
        error = describe(StepCancelledError(self.cancelled))
        self.fail_session(None, error, None)

    def slow(self, peer: Peer, worker: Worker, frame: f.Slow) -> None:
        """A worker computes for long without coming to a step: people may want to know where."""
        entry = e.WaitSlow(path=worker.path, seconds=frame.seconds, stack=frame.stack)
        self.turn.record((entry, NO_VALUE), sync=False)
        place = f" at {frame.stack[-1].file}:{frame.stack[-1].line}" if frame.stack else ""
        text = f"computes for {frame.seconds:g} s without coming to a step{place}"
        self.turn.with_next_commit(Show("note", worker.path, text))

    # Processes.

    def process_gone(
        self,
        path: str,
        incarnation: int,
        reason: str,
        *,
        counted: bool = True,
        end: ProcessEnd = NOTHING_KNOWN,
    ) -> None:
        """The process of a worker is gone, with its whole tree."""
        if self.alive.get(path) != incarnation:
            return
        if (path, incarnation) in self._late:
            self._late.discard((path, incarnation))
            reason = "hello_timeout"
        self._has_ended(path)
        if self.run_events is not None:
            self.run_events.process_gone(path, incarnation, reason)
        self._see_failure(path)
        self.forgotten(path)
        arrived = self._detach(path)
        expected = path in self._expected
        self._expected.discard(path)
        self._finishing.pop(path, None)
        worker = self.state.workers.get(path)
        if worker is not None:
            self.died(worker)
        if self.state.failure is not None:
            self.settle_failure()
        elif worker is None:
            return  # it had ended, and the worker that made it has begun a new history
        elif not worker.ended:
            delay_s = WORKER_RESTARTS.wait_s(worker.crashes_in_a_row)
            if counted and not expected:
                delay_s = self._crashed(worker, incarnation, reason, end, arrived=arrived)
            self._launch_again(worker, delay_s)
        else:
            self._settle_cancelled()
            self._launch_next(worker.parent)

    def is_crash(self, path: str, incarnation: int) -> bool:
        """Whether nobody here has ended the process of a worker that is gone. Else a body in it may have its outcome already."""
        return self.alive.get(path) == incarnation and path not in self._expected

    def expect_end(self, worker: Worker, incarnation: int, seconds: float = LAST_WORDS_S) -> None:
        """A worker cannot be talked to any more: its process should end by itself, and is ended if it does not."""

        def too_long() -> None:
            if self.alive.get(worker.path) == incarnation:
                self.turn.after_commit(StopWorker(worker.path))

        self.timers.after(seconds, too_long)

    def restart(self, worker: Worker) -> None:
        """End the process of a worker; it starts again and replays. Not counted as a crash."""
        self._expected.add(worker.path)
        self._detach(worker.path)
        self.turn.after_commit(StopWorker(worker.path))

    def ancestors(self, worker: Worker) -> list[tuple[Worker, tuple[str, int]]]:
        """The workers above one, each with the step that it made the next one with."""
        found: list[tuple[Worker, tuple[str, int]]] = []
        step = worker.parent
        while step[0]:
            above = self.state.worker_of(step[0])
            if above is None:
                break
            found.append((above, step))
            step = above.parent
        return found

    # Inside.

    def _check_bounds(self, worker: Worker, more: int) -> None:
        """Raise unless a worker may start so many others.

        Raises:
            WorkerLimitError: There would be too many at a time, or too many below each other.
        """
        bounds = self.settings.workers
        if len(self.ancestors(worker)) + 2 > bounds.max_depth:
            raise WorkerLimitError("levels of workers below each other (workers.max_depth)", bounds.max_depth)
        if len(self.alive) + more > bounds.max:
            raise WorkerLimitError("workers at a time (workers.max)", bounds.max)
        room = self.settings.workers_room
        if len(self.alive) + more > room:
            raise WorkerLimitError("workers at a time (each needs files, see ulimit -n)", room)

    def _spawn(self, step: f.Step, args: s.DelegateArgs, limit: float) -> None:
        calls = _decode_calls(self.turn.load(step.v, step.ref))
        started = e.StepStarted(
            p=step.p,
            n=step.n,
            step="delegate",
            fp=step.fp,
            about=step.about,
            timeout_s=limit,
            limit=args.limit or 0,
        )
        items: list[tuple[e.EntryData, Value]] = [(started, NO_VALUE)]
        self._ended_before.pop((step.p, step.n), None)
        known = self._children(step.p, step.n)
        if known:
            # Its worker was set back to before it: if it asks for the same again, its workers go on where they were.
            made = [(child.worker, self.turn.load(child.given.raw, child.given.ref)) for child in known]
            if made == [(worker, bytes(call)) for worker, call in zip(args.workers, calls, strict=True)]:
                self.turn.record(*items)
                return
            items.append((e.WorkersDropped(p=step.p, n=step.n), NO_VALUE))
            self._dismiss_all([child.path for child in known])
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

    def _launch_children(self, p: str, n: int) -> None:
        self._launch_all(self._children(p, n))

    def _launch_all(self, workers: list[Worker]) -> None:
        """Start those that are not through and have no process, as far as their delegates let them."""
        for step in {worker.parent for worker in workers}:
            self._held_back.pop(step, None)
        for worker in workers:
            if worker.ended or worker.path in self.alive:
                continue
            if self._running[worker.parent] < self._limit_of(worker.parent):
                self._launch(worker)
            else:
                self._held_back.setdefault(worker.parent, deque()).append(worker)

    def _launch_next(self, step: Step) -> None:
        """A worker has ended: if its delegate holds others back, start the next."""
        waiting = self._held_back.get(step)
        while waiting and self._running[step] < self._limit_of(step):
            worker = waiting.popleft()
            known = self.state.workers.get(worker.path) is worker
            if known and not worker.ended and worker.path not in self.alive:
                self._launch(worker)
        if waiting is not None and not waiting:
            del self._held_back[step]

    def _limit_of(self, step: Step) -> float:
        """How many workers a step may have running: a delegate may limit them."""
        above = self.state.worker_of(step[0]) if step[0] else None
        opened = above.open.get(step) if above is not None else None
        limited = opened is not None and opened.step == "delegate" and opened.limit
        return limited or math.inf

    def _launch(self, worker: Worker) -> None:
        """Have a process for a worker, as soon as it is its turn."""
        number = self._numbers.get(worker.path, 0) + 1
        self._numbers[worker.path] = number
        self.alive[worker.path] = number
        self.absent[worker.path] = worker
        self._made_by[worker.path] = worker.parent
        self._running[worker.parent] += 1
        self._queue[worker.path] = number
        self._start_more()

    def _start_more(self) -> None:
        """Start processes that wait for their turn, as many as may be on their way."""
        while self._queue and len(self._starting) < STARTING_AT_ONCE:
            path = next(iter(self._queue))
            self._start(self.state.workers[path], self._queue.pop(path))

    def _start(self, worker: Worker, number: int) -> None:
        self._starting.add(worker.path)
        if self.run_events is not None:
            self.run_events.process_started(worker.path, number)
        self.turn.after_commit(StartWorker(worker.path, number))

        def is_missing() -> bool:
            return self.alive.get(worker.path) == number and worker.path not in self.turn.by_worker

        def late() -> None:
            self._late.add((worker.path, number))
            self.turn.after_commit(StopWorker(worker.path))

        self.timers.after(self.timeouts.limit("child_start"), late, is_missing)

    def _has_ended(self, path: str) -> None:
        """A worker has no process any more."""
        self._starting.discard(path)
        if self._forget(path):
            self._start_more()

    def _forget(self, path: str) -> bool:
        """A worker has no process any more, or needs none; whether it had, or was about to have one."""
        if self.alive.pop(path, None) is None:
            return False
        step = self._made_by.pop(path)
        self._running[step] -= 1
        if not self._running[step]:
            del self._running[step]
        self.absent.pop(path, None)
        self._queue.pop(path, None)
        return True

    def _end_process(self, path: str) -> None:
        """End the process of a worker, if it was started."""
        if path in self._queue:
            self._forget(path)
        else:
            self.turn.after_commit(StopWorker(path))

    def _launch_again(self, worker: Worker, delay_s: float) -> None:
        if worker.ended or self.state.failure is not None:
            return
        if delay_s == 0.0:
            self._launch(worker)
            return

        def launch() -> None:
            if not worker.ended and worker.path not in self.alive and self.state.failure is None:
                self._launch(worker)

        self.timers.after(delay_s, launch)

    def _crashed(
        self, worker: Worker, incarnation: int, reason: str, end: ProcessEnd, *, arrived: bool
    ) -> float:
        """Write down what is known of a crash and what follows from it; returns when it starts again, in seconds."""
        bodies = [step for step in worker.open.values() if step.step in BODIES and not step.between]
        body = bodies[0] if bodies else None
        p, n = (body.p, body.n) if body is not None else ("", 0)
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
        then = "it goes on where it was"
        what = f"crashed ({reason})"
        if reason.startswith(START_FAILED):
            what, then = reason, "it is tried again"
        then = "it is given up" if given_up else then
        self.turn.with_next_commit(Show("note", worker.path, f"{what}; {then}"))
        if body is not None:
            count = worker.crashes.get((p, n), 0)
            if body.once:
                self.turn.fail_open(worker, body, OutcomeUnknownError(f"{p}:{n}", body.about))
            elif count >= (body.max_crashes or WORKER_RESTARTS.limit):
                self.turn.fail_open(worker, body, StepCrashedError(f"{p}:{n}", count, reason))
        elif given_up:
            self._give_up(worker, describe(_crash_error(worker, reason), worker.path))
        return delay_s

    def _give_up(self, worker: Worker, error: f.ErrorData) -> None:
        """A worker cannot be kept alive: whoever collects failures gets this one, else the session fails."""
        if worker.collect:
            self._abort_below(worker)
            self._end(worker, e.WorkerEnded(path=worker.path, error=error, final=True), NO_VALUE)
        else:
            self.fail_session(worker, error, None)

    def _children(self, p: str, n: int) -> list[Worker]:
        return [self.state.workers[path] for path in self.state.children.get((p, n), ())]

    def _made(self, worker: Worker) -> Iterator[Worker]:
        """The workers that one has made, in order."""
        return (self.state.workers[path] for path in worker.made)

    def _spawned_left(self, worker: Worker) -> bool:
        return any(child.spawned and not child.ended for child in self._made(worker))

    def _abort_below(self, worker: Worker) -> None:
        """A worker failed and that is history: whatever it started ends with it."""
        self._end_all(self._below(worker), StepCancelledError(f"{worker.path} failed"))

    def _below(self, worker: Worker) -> list[Worker]:
        """The workers that one has started and that have not ended."""
        return [child for child in self._made(worker) if not child.ended]

    def _end_all(self, workers: list[Worker], error: BartackError) -> None:
        """End workers for good, with everything below them. Nobody hears of the end of another before all have ended."""
        doomed = self._with_below(workers)
        for worker in doomed:
            described = describe(error, worker.path)
            ended = e.WorkerEnded(path=worker.path, error=described, final=True, cut=True)
            self.turn.record((ended, NO_VALUE))
        for worker in doomed:
            self.forgotten(worker.path)
            self.gave_up(worker)
            if worker.path in self.alive:
                self._detach(worker.path)
                self._end_process(worker.path)

    def _with_below(self, workers: list[Worker]) -> list[Worker]:
        """Workers and all that they have started, those before them."""
        return [one for worker in workers for one in (*self._with_below(self._below(worker)), worker)]

    def _dismiss_all(self, paths: list[str]) -> None:
        """End the processes of workers that are no part of the run any more, and of all below them."""
        for path in [path for path in self.alive if path in paths or path.startswith(below(paths))]:
            started = path not in self._queue
            self._has_ended(path)
            self.forgotten(path)
            self.gave_up(self.state.workers[path])
            self._detach(path)
            if started:
                self.turn.after_commit(StopWorker(path))

    def _detach(self, path: str) -> bool:
        """Nothing that a worker's process still says counts. Returns whether it had come to the end of its history."""
        peer = self.turn.by_worker.pop(path, None)
        if peer is None:
            return False
        self.turn.peers.pop(peer.number, None)
        self.turn.with_next_commit(CloseConnection(peer.number))
        if path in self.alive and peer.worker is not None:
            self.absent[path] = peer.worker
        return not peer.replaying

    def _settle_cancelled(self) -> None:
        """Tell those whose delegates were given up, once nothing of their workers is left."""
        for step, (worker, opened, error) in list(self._cancelling.items()):
            paths = [child.path for child in self._children(*step)]
            if any(path in paths or path.startswith(below(paths)) for path in self.alive):
                continue
            del self._cancelling[step]
            if not self.is_open(worker, opened):
                continue
            children = self._children(*step)
            if isinstance(error, DeadlineExceededError) and all(child.collect for child in children):
                self.turn.end_open(worker, opened, self._results(children))
            else:
                self.turn.fail_open(worker, opened, error)

    def _is_spoilt(self, worker: Worker) -> bool:
        """Whether something speaks against the end of the first worker, which fails the session."""
        found = self.last_look()
        for remark in found:
            if isinstance(remark, str):
                self.turn.with_next_commit(Show("note", worker.path, remark))
        problem = next((remark for remark in found if isinstance(remark, BartackError)), None)
        if problem is not None:
            self.fail_session(worker, describe(problem, worker.path), None)
        return problem is not None

    def _end(self, worker: Worker, ended: e.WorkerEnded, value: Value) -> None:
        """One line: the worker's end, and everything that was waiting just for that."""
        if ended.error is None and not worker.parent[0] and self._is_spoilt(worker):
            return
        consequences = self._consequences(worker, ended, value)
        self.turn.record((ended, value), *consequences)
        self.gave_up(worker)
        peer = self.turn.by_worker.get(worker.path)
        if peer is not None:
            self._dismiss(peer, worker)
        above = self.state.worker_of(worker.parent[0]) if worker.parent[0] else None
        if above is None:
            self.turn.after_commit(Transition())
            self.turn.after_commit(EndHub("completed" if ended.error is None else "failed"))
            return
        for data, results in consequences:
            if isinstance(data, e.StepFinished):
                self.turn.report(above, data, results)
        self._tell_joined(worker)
        self._launch_next(worker.parent)
        waiting = self._finishing.get(above.path)
        if waiting is not None and not self._spawned_left(above):
            del self._finishing[above.path]
            self._end(above, e.WorkerEnded(path=above.path), waiting)

    def _consequences(
        self, worker: Worker, ended: e.WorkerEnded, value: Value
    ) -> list[tuple[e.EntryData, Value]]:
        """The entries that belong into the same line as a worker's end."""
        if not worker.parent[0]:
            status = "completed" if ended.error is None else "failed"
            run_ended = moving(self.state, e.RunEnded(status=status), leaver=worker.path)
            return [(run_ended, value)]
        above = self.state.worker_of(worker.parent[0])
        opened = above.open.get(worker.parent) if above is not None else None
        if worker.spawned or opened is None or opened.step != "delegate":
            return []
        if not self._is_last(worker):
            return []
        done = step_finished(opened)
        return [(done, self._results(self._children(*worker.parent), worker, ended, value))]

    def _is_last(self, worker: Worker) -> bool:
        """Whether all other workers of a delegate have ended, now that this one does."""
        workers, paths = self.state.workers, self.state.children[worker.parent]
        place = self._ended_before.get(worker.parent, 0)
        while place < len(paths) and (paths[place] == worker.path or workers[paths[place]].ended):
            place += 1
        if place < len(paths):
            self._ended_before[worker.parent] = place
            return False
        self._ended_before.pop(worker.parent, None)
        return True

    def _results(
        self,
        children: list[Worker],
        last: Worker | None = None,
        ended: e.WorkerEnded | None = None,
        value: Value = NO_VALUE,
    ) -> Value:
        """What a delegate gives back: the results in order, or how each worker ended."""
        parts: list[bytes] = []
        for child in children:
            result = value if child is last else child.result
            error = ended.error if ended is not None and child is last else child.error
            raw = self.turn.load(result.raw, result.ref)
            parts.append(_collected(raw, error) if child.collect else raw)
        return self.turn.pack_raw(b"[" + b",".join(parts) + b"]")

    def _tell_joined(self, worker: Worker) -> None:
        for above, p, n in self._joins.pop(worker.path, ()):
            opened = above.open.get((p, n))
            if opened is not None:
                self._finish_join(above, opened, worker)

    def _finish_join(self, worker: Worker, join: KnownStep, child: Worker) -> None:
        if child.error is None:
            self.turn.finish(worker, step_finished(join), child.result)
        elif child.collect:
            self.turn.finish(
                worker, step_finished(join), self.turn.pack_raw(_collected(b"null", child.error))
            )
        else:
            self.turn.fail(worker, step_failed(join, _worker_error(child.path, child.error)))

    def _limit(self, explicit: float | None) -> tuple[float, str]:
        return self.timeouts.explain("delegate") if explicit is None else (explicit, "explicit")

    # Failure.

    def _spread(self, failed: Worker | None) -> None:
        self._told.clear()
        deferred = {above.path for above, _ in self.ancestors(failed)} if failed is not None else set[str]()
        for path in list(self.alive):
            peer = self.turn.by_worker.get(path)
            if peer is None:
                self._end_process(path)
            elif failed is not None and path == failed.path:
                self._told.add(path)
                peer.knows_failure = True
            elif path not in deferred:
                self._tell(peer)
        for peer in self.turn.peers.values():
            if peer.worker is None:
                self.turn.send_encoded(peer, self._news(), urgent=True)
        self.aborting()
        self.turn.after_commit(Transition())
        if failed is not None and failed.path in self._told:
            # Last: the end of a process takes time that those who are told should have.
            self._dismiss(self.turn.by_worker[failed.path], failed)
        self.settle_failure()

    def _tell(self, peer: Peer, refused: Sequence[f.Refusal] = ()) -> None:
        """A worker learns of the failure, and has some seconds to tidy up.

        It learns it before the outcome of what it delegated: otherwise that would set it going, and the failure would end the first
        thing it does to tidy up.
        """
        worker, failure = peer.worker, self.state.failure
        if worker is None or failure is None or worker.path in self._told:
            return
        self._told.add(worker.path)
        peer.knows_failure = True
        peer.awaited = {
            step: number for step, number in peer.awaited.items() if self._is_cleanup(worker, step)
        }
        if refused:
            news = f.SessionFailed(e=self.failure_for(""), but=[refusal.i for refusal in refused])
            self.turn.send(peer, news, urgent=True)
            for refusal in refused:
                self.turn.send(peer, refusal)
        else:
            self.turn.send_encoded(peer, self._news(), urgent=True)
        self.expect_end(worker, peer.incarnation, self.timeouts.limit("child_stop"))

    def _dismiss(self, peer: Peer, worker: Worker) -> None:
        """A worker is at its end: its process is to go."""
        self.turn.send(peer, f.Leave())
        self.expect_end(worker, peer.incarnation, self.timeouts.limit("child_stop"))

    def _see_failure(self, path: str) -> None:
        """A worker has reacted to the failure of the session, if there is one."""
        if self.run_events is not None:
            self.run_events.failure_seen(path, self.now_us())

    def _suppress(self, worker: Worker, frame: f.Failed) -> None:
        """A worker failed behind the failure of the session. If a step of it failed, it is set back like the first one."""
        items: list[tuple[e.EntryData, Value]] = [
            (e.FailureRecorded(worker=worker.path, error=frame.e, suppressed=True), NO_VALUE)
        ]
        if frame.origin in worker.blame.steps:
            ended = e.WorkerEnded(path=worker.path, error=frame.e, origin=frame.origin)
            items.append((ended, NO_VALUE))
        self.turn.record(*items, sync=False)

    def _news(self) -> bytes:
        """The failure of the session for somebody who is told nothing else: the same for all, and made once."""
        failure = self.state.failure
        if self._told_all is None or self._told_all[0] is not failure:
            self._told_all = (failure, f.encode(f.SessionFailed(e=self.failure_for(""))))
        return self._told_all[1]

    def failure_for(self, path: str) -> f.ErrorData:
        """The failure of the session as somebody else sees it."""
        failure = self.state.failure
        assert failure is not None
        if self._described is None or self._described[0] is not failure:
            cause = failure.error
            error = SessionFailedError(failure.worker, cause.type.rpartition(":")[2], cause.message)
            self._described = (failure, msgspec.structs.replace(describe(error), cause=cause))
        return msgspec.structs.replace(self._described[1], worker=path)

    def _is_cleanup(self, worker: Worker, step: tuple[str, int]) -> bool:
        opened = worker.open.get(step)
        return opened is not None and opened.cleanup

    def settle_failure(self) -> None:
        """Tell those who delegated to the failed, once their other workers are gone; end when nobody is left."""
        failure = self.state.failure
        assert failure is not None
        for path in list(self.alive):
            peer = self.turn.by_worker.get(path)
            if peer is None or peer.worker is None or path in self._told:
                continue
            waiting = [
                step for step in peer.worker.open if any(c.path in self.alive for c in self._children(*step))
            ]
            if waiting:
                continue
            self._tell(peer, self._refused_delegates(peer, peer.worker, failure))
        if not self.alive:
            status = "failed" if not self.cancelled else "aborted" if self._aborted else "cancelled"
            if self.state.ended is None:
                ended = moving(self.state, e.RunEnded(status=status, reason=self.cancelled))
                self.turn.record((ended, NO_VALUE))
            self.turn.after_commit(Transition())
            self.turn.after_commit(EndHub(status))

    def _refused_delegates(self, peer: Peer, worker: Worker, failure: e.FailureRecorded) -> list[f.Refusal]:
        """The outcome of the delegate, as far as this attempt goes; it is not history, so that resume can go on."""
        opened = [step for step in worker.open.values() if step.step == "delegate"]
        numbers = [peer.awaited.pop((step.p, step.n), None) for step in opened]
        error = _worker_error(failure.worker, failure.error)
        return [f.Refusal(i=number, e=error) for number in numbers if number is not None]


def _crash_error(worker: Worker, reason: str) -> BartackError:
    """Why a worker is given up that crashed between steps, or could not be started at all."""
    if reason.startswith(START_FAILED):
        return WorkerStartError(worker.path, worker.crashes_in_a_row, reason.removeprefix(START_FAILED))
    return StepCrashedError(f"{worker.path} (between steps)", worker.crashes_in_a_row, reason)


def _name(worker: str) -> str:
    return worker.rpartition(":")[2]


def _last_step(worker: Worker) -> str:
    """The step that a worker is in, or else the last one that has an outcome."""
    opened = [step for step in worker.open.values() if step.step != "timeout"]
    if opened:
        newest = max(opened, key=lambda step: step.at)
        return f"{newest.p}:{newest.n} {newest.step}"
    p, n, kind = worker.last_step
    return f"{p}:{n} {kind}" if n else ""


def _collected(raw: bytes, error: f.ErrorData | None) -> bytes:
    if error is None:
        return b'{"ok":true,"value":%b}' % raw
    return b'{"ok":false,"error":%b}' % msgspec.json.encode(error)


def _worker_error(path: str, cause: f.ErrorData) -> f.ErrorData:
    error = describe(WorkerError(path, cause.type.rpartition(":")[2], cause.message), path)
    error.cause = cause
    return error
