"""Runs the branches of one worker, in turns, and takes the same turns again on replay.

A worker has no event loop. It is one or more *branches*, each a coroutine. A branch runs until it awaits something that is not
there yet. When no branch can run, the next event is taken: an outcome from the history, or a frame from the hub. It makes one
or more branches ready, and they run (``Scheduler._run_all``).

Why a replay takes the same turns:

- *Deterministic* is everything between two awaits: one thread, one branch at a time, and a first-in-first-out queue of those
  that are ready. Paths and numbers of steps follow from it (``next_number``, ``branches.Bundle``), so a step of the replay has
  the place in the history that it had on the first run. Groups and cancellations are not recorded, because they follow from the
  outcomes of steps.
- *Taken from history* is everything that comes from outside: results of commands, prompts and bodies, messages, the time,
  randomness, files that are read, and whether a deadline passed. A program that reaches outside by itself is kept from it where
  that is possible: asyncio is guarded (``asyncio_guard.py``), and a forgotten await is an error (``forgotten.py``).
- *The order of wake-ups* is the order of the journal, both times. On the first run the hub answers in the order in which it has
  written outcomes to the journal; on replay ``Replay.advance`` takes them in that order, and only when no branch is ready. Both
  put the branch of the outcome at the end of the same queue (``RunQueue.wake``). So branches may share variables without locks.
  Two kinds of steps never wait for their turn, on the first run or on replay: harmless ones, whose outcome is made here
  (``NoteOp``), and output.
- *At the end of history* every step that no outcome has confirmed is pending: the program asked for it, and the journal does
  not know how it ended. These steps are sent in the order in which they were done (``Requests.submit_rest``), and from then on
  what the program submits is sent at once. Nothing is sent before. The hub knows each step by its path and number, so a step
  that was under way when the last process died is continued or executed again, and not counted twice. Outcomes that were
  recorded while the worker was replaying come as one more part of the history (``_take_history``).
- *If the program does something else*, the outcome that is next does not have its step. That is a mismatch: the worker fails
  before it has sent anything. ``replay.py`` describes what is compared and when.

Read next: ``replay.py``, ``cancellation.py`` (how waits end), ``requests.py`` (what is sent), ``run_queue.py``. Reading and
writing the socket is done by the driver (``worker_process/child.py``): frames come in through ``take`` and leave through
``send``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Final, cast

import msgspec

from bartack.errors import (
    BartackError,
    ForeignAwaitError,
    LimitExceededError,
    MessageTooLargeError,
    NestedStepError,
    RestartRefusedError,
)
from bartack.runtime.protocol import frames as f
from bartack.runtime.protocol.exceptions import revive_error, revive_failure
from bartack.runtime.protocol.steps import CLEANUP
from bartack.runtime.protocol.values import encode
from bartack.runtime.scheduler.asyncio_guard import Guard, place_of_await
from bartack.runtime.scheduler.cancellation import Cancellation
from bartack.runtime.scheduler.entropy import Entropy, SystemEntropy
from bartack.runtime.scheduler.fingerprint import Fingerprints
from bartack.runtime.scheduler.forgotten import ForgottenAwaits
from bartack.runtime.scheduler.operations import (
    AnyBranch,
    AnyOp,
    Counted,
    Deadline,
    FatalError,
    LocalOp,
    NoteOp,
    StepOp,
    WakeUp,
    WorkOp,
    here,
)
from bartack.runtime.scheduler.replay import Replay
from bartack.runtime.scheduler.replay_log import ReplayLog
from bartack.runtime.scheduler.requests import Blobs, Requests
from bartack.runtime.scheduler.run_queue import RunQueue
from bartack.runtime.scheduler.tool_calls import ToolCalls
from bartack.runtime.scheduler.versions import VersionOp, Versions

MANY_STEPS: Final = 100_000
MAX_STEPS: Final = 1_000_000
MAX_ARGUMENTS: Final = 512 * 1024
"""The most a step is asked in a frame; payloads go beside it."""
MAX_PROMPT: Final = 2 * 1024 * 1024
"""The same of a prompt, which is all in the frame."""


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker knows of itself and its session."""

    run: str
    run_dir: str
    workspace: str
    path: str
    name: str
    """The worker's name, which is the site of its steps."""
    timestamp: int = 0
    rewinds: int = 0
    first: int = 0
    """The number of the last step before the history; 0 unless the worker restarted itself."""
    agent: str = ""
    argv: tuple[str, ...] = ()
    """The arguments that the program was given, as they were written."""
    versions: dict[str, int] = {}
    """The versions that its history has recorded, by name."""


class Scheduler:
    """Runs one worker."""

    def __init__(
        self,
        facts: Facts,
        environ: Mapping[str, str],
        send: Callable[[f.Frame], None],
        blobs: Blobs,
        entropy: Entropy | None = None,
    ) -> None:
        self.facts = facts
        self.entropy = entropy or SystemEntropy()
        log = self._log = ReplayLog()
        queue = self.queue = RunQueue()
        requests = self.requests = Requests(log, send, blobs, facts.path)
        self.cancellation = Cancellation(queue, requests)
        self._tool_calls = ToolCalls(queue, requests, self.cancellation)
        versions = Versions(facts.path, facts.versions, log, requests.submit)
        self._replay = Replay(facts.path, log, queue, requests, self.cancellation, self._tool_calls, versions)
        self._prints = Fingerprints(facts.run_dir, facts.workspace, environ)
        self.guard = Guard(queue.die)
        """What keeps asyncio out of the worker's thread."""
        self._watcher = ForgottenAwaits(queue, self.cancellation, requests, Scheduler._run.__code__)
        self._main: AnyBranch | None = None
        self._steps = 0
        self._take: Mapping[type, Callable[..., None]] = {
            f.Answer: self._take_answer,
            f.Refusal: self._take_refusal,
            f.Fired: self._take_fired,
            f.Called: self._take_called,
            f.History: self._take_history,
            f.SessionFailed: self._take_failure,
        }

    # For the driver.

    def start(self, coroutine: Coroutine[object, object, object]) -> None:
        """Begin with the worker's function, as far as it gets without an answer.

        Best after the first frame: a worker without a history does not replay.
        """
        self._main = self.queue.add(self.facts.path, coroutine)
        self._main.counter = self.facts.first
        self.take(None)

    def take(self, frame: f.ToPeer | None) -> None:
        """Take a turn with a frame from the hub, or without one: there may be something to do nevertheless."""
        before, here.watcher = here.watcher, self._watcher
        self.guard.put_in()
        try:
            if frame is not None:
                if self._log.replaying:
                    self._replay.take(frame)
                else:
                    self._take[type(frame)](frame)
            self._run_all()
        finally:
            self.guard.take_out()
            here.watcher = before

    def resume(self, reports: Iterable[Callable[[], None]]) -> None:
        """Take a turn with steps that ended outside the scheduler: each call reports one."""
        for report in reports:
            report()
        self.take(None)

    @property
    def ended(self) -> bool:
        """Whether the worker is at its end."""
        done = self._main is not None and self._main.done
        return self.queue.fatal is not None or (done and not self._log.replaying)

    @property
    def replaying(self) -> bool:
        """Whether the worker does what an earlier process of it has done already."""
        return self._log.replaying

    @property
    def aborted(self) -> bool:
        """Whether the session has failed around the worker."""
        return self.cancellation.failure is not None

    @property
    def fatal(self) -> BartackError | None:
        """Why the worker cannot continue, if it is an error that the program must not handle."""
        return self.queue.fatal

    @property
    def outcome(self) -> WakeUp:
        """The worker's result, or its error."""
        assert self._main is not None
        return self._main.result, self._main.error

    def rehearse(
        self,
        coroutine: Coroutine[object, object, object],
        history: Iterable[f.Past],
        steps: list[f.Past],
        *,
        ended: bool = False,
    ) -> None:
        """Replay a whole history, and nothing after it; a difference is in ``fatal``.

        Args:
            coroutine: The worker's function.
            history: The outcomes of its steps.
            steps: Its steps that have begun and have no outcome.
            ended: Whether the worker returned after them.
        """
        self._replay.expect(history, steps, ended=ended)
        self.start(coroutine)
        if self.queue.fatal is None and self._replay.check_open(steps) and ended:
            self._replay.check_end()

    def discard(self) -> None:
        """End the coroutines of a worker that is not run any more. Whatever they do on their way out is dropped."""
        self.requests.close()
        for branch in reversed(list(self.queue.branches.values())):
            _close_coroutine(branch.coroutine)

    # For operations.

    @property
    def alone(self) -> bool:
        """Whether the only branch waits, and nothing can interrupt it."""
        return len(self.queue.branches) == 1 and not self.cancellation.deadlines

    def check_here(self, name: str) -> None:
        """Raise unless it is the worker itself that calls: not the body of a step, not another thread."""
        if here.watcher is not self._watcher:
            raise NestedStepError(name)

    def check_restart(self) -> None:
        """Raise unless only the worker's own function runs, outside every block that lasts.

        Raises:
            RestartRefusedError: Something of it is under way that a new history would not know of.
        """
        path, current = self.facts.path, self.queue.current
        others = [branch for branch in self.queue.branches if branch != path]
        if current is not self._main:
            raise RestartRefusedError(path, f"it is called in the branch {current.path}")
        if others:
            raise RestartRefusedError(path, f"the branch {others[0]} has not ended")
        if self.cancellation.deadlines:
            seconds = next(iter(self.cancellation.deadlines.values())).seconds
            raise RestartRefusedError(path, f"it is inside a block with a deadline of {seconds:g} s")

    def redact(self, text: str) -> str:
        """A text for people, without the secrets of the worker's environment."""
        return self._prints.redact(text)

    def next_number(self, branch: AnyBranch) -> int:
        """The number of the next step of a branch.

        Raises:
            LimitExceededError: The worker has done as many steps as one history can hold.
        """
        steps = self._steps = self._steps + 1
        if steps >= MANY_STEPS:
            self._check_limit()
        n = branch.counter = branch.counter + 1
        return n

    def out(self, channel: str, text: str, site: str = "") -> None:
        """Print or log something.

        Args:
            channel: ``print`` or ``log``.
            text: The line.
            site: Where the call is, if not in the worker's own function.

        Raises:
            MessageTooLargeError: It is too long for a line of output.
        """
        size = len(text.encode("utf-8", "replace"))
        if size > MAX_ARGUMENTS:
            raise MessageTooLargeError("a line of output", size, MAX_ARGUMENTS)
        branch = self.queue.current
        n = self.next_number(branch)
        fp = self._prints.of(channel, site or self.facts.name, encode(text))
        out = f.Out(p=branch.path, n=n, channel=channel, text=text, fp=fp, cleanup=self.aborted)
        self.requests.submit((branch.path, n), out)

    def enter(self, seconds: float) -> Deadline:
        """The current branch enters a block with a deadline."""
        branch = self.queue.current
        n = self.next_number(branch)
        fp = self._prints.of("timeout", self.facts.name, encode(seconds))
        deadline = Deadline(branch, n, fp, seconds, cleanup=self.aborted)
        self.cancellation.enter(deadline)
        return deadline

    # Turns.

    def _run_all(self) -> None:
        """Run every branch that can run; on replay, take one outcome after the other."""
        queue, replay = self.queue, self._replay
        ready = queue.ready
        while queue.fatal is None:
            while ready and replay.stalled is None:
                self._run(*ready.popleft())
            if not self._log.replaying or replay.stalled is not None or queue.fatal is not None:
                return
            if not replay.advance(started=self._main is not None):
                return

    def _run(self, branch: AnyBranch, value: object, error: BaseException | None) -> None:
        """Run a branch until it has to wait."""
        queue = self.queue
        queue.current = branch
        coroutine = branch.coroutine
        while True:
            try:
                # Not always: what is not ours is refused where it is issued.
                op: AnyOp = coroutine.send(value) if error is None else coroutine.throw(error)
            except StopIteration as stop:
                self._end(branch, stop.value, None)
                return
            except FatalError as fatal:
                queue.fatal = queue.fatal or fatal.error
                return
            except BaseException as failure:  # noqa: BLE001 - the boundary of the program: whatever it raises is its outcome
                self._end(branch, None, failure)
                return
            if queue.fatal is not None:
                return
            wake_up = (
                self._issue_step(branch, op) if isinstance(op, Counted) else self._issue_other(branch, op)
            )
            if wake_up is None:
                return
            value, error = wake_up

    def _end(self, branch: AnyBranch, result: object, error: BaseException | None) -> None:
        branch.done = True
        branch.result, branch.error = result, error
        del self.queue.branches[branch.path]
        for waiter in branch.waiters:
            self.queue.wake(waiter, result, error)
        if branch.group is not None:
            branch.group.branch_ended(branch)

    def _issue_other(self, branch: AnyBranch, op: object) -> WakeUp | None:
        """A branch awaits something that is not a step."""
        if isinstance(op, LocalOp):
            local = branch.op = cast("LocalOp[object]", op)
            wake_up = local.enter(branch)
            if wake_up is not None:
                branch.op = None
            return wake_up
        what = "a bare yield" if op is None else f"{type(op).__module__}.{type(op).__qualname__}"
        self.queue.fatal = ForeignAwaitError(what, place_of_await(branch.coroutine))
        return None

    def _issue_step(self, branch: AnyBranch, op: Counted[object]) -> WakeUp | None:
        """A branch awaits a step: what it continues with, or ``None`` if it has to wait."""
        op.branch = branch
        op.p = branch.path
        if isinstance(op, VersionOp):
            return self._replay.find_version(op)
        try:
            op.n = self.next_number(branch)
        except LimitExceededError as error:
            return None, error
        failure = self.cancellation.failure
        if failure is not None:
            if op.step not in CLEANUP:
                return None, revive_failure(failure)
            op.cleanup = True
        size = len(op.written)
        if isinstance(op, StepOp) and op.args is not op.written:
            size = max(size, len(op.args))
        if size > MAX_ARGUMENTS and size > (most := MAX_PROMPT if op.step == "think" else MAX_ARGUMENTS):
            return None, MessageTooLargeError(f"what {op.step} is asked", size, most)
        op.fp = self._prints.of(op.step, op.site or self.facts.name, op.written, op.value)
        if branch.interruptions and failure is None:
            op.cancelled = True
        if isinstance(op, NoteOp):
            return self._replay.find_note(op) if self._log.replaying else self.requests.make_note(op)
        branch.op = op
        self.requests.submit((branch.path, op.n), op)
        return None

    def _check_limit(self) -> None:
        if self._steps > MAX_STEPS:
            raise LimitExceededError("steps in one worker", MAX_STEPS)
        if self._steps == MANY_STEPS and not self._log.replaying:
            sys.stderr.write(
                f"{self.facts.path}: {MANY_STEPS} steps so far; ctx.restart(value) begins a new history, "
                "which is faster to resume\n"
            )

    # What comes from the hub, once the history is used up.

    def _take_answer(self, answer: f.Answer) -> None:
        op = self.requests.answered(answer.i)
        if op is None:
            return
        data = self.requests.load(answer.v, answer.ref)
        if isinstance(op, WorkOp) and op.phase != "reported":
            self.requests.executor.answered(op, data)
        else:
            self.cancellation.deliver(op, data, None)

    def _take_refusal(self, refusal: f.Refusal) -> None:
        op = self.requests.answered(refusal.i)
        if op is not None:
            self.cancellation.deliver(op, b"", revive_error(refusal.e, (op.p, op.n)))

    def _take_fired(self, fired: f.Fired) -> None:
        self.cancellation.fire(self.cancellation.deadlines.get((fired.p, fired.n)))

    def _take_called(self, called: f.Called) -> None:
        self._tool_calls.start(called.p, called.tool, self.requests.load(called.v, called.ref))

    def _take_failure(self, failed: f.SessionFailed) -> None:
        if self.cancellation.failure is None:
            self.cancellation.fail_all(failed.e, failed.but)

    def _take_history(self, history: f.History) -> None:
        """Take outcomes that were recorded while the worker replayed: they are answers to what it has just asked for."""
        for past in history.past:
            op = self.queue.open_step(past.p, past.n)
            if isinstance(op, WorkOp) and op.phase in {"running", "given up"}:
                continue  # the hub has decided instead of the body, and ends this process
            if op is not None:
                self.requests.settle(op)
                self._replay.take_outcome(op, past)


def _close_coroutine(coroutine: Coroutine[object, object, object]) -> None:
    """End a coroutine, however often it awaits something on its way out."""
    for _ in range(100):
        try:
            coroutine.close()
        except Exception:  # noqa: BLE001, S112 - the worker is over: an error of its clean-up has no outcome to become
            continue
        return
