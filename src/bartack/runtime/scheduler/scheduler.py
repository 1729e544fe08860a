"""Steps the branches of one worker: on replay by what the journal holds, behind it by what the hub answers.

There is no event loop. A branch runs until it awaits something that is not there yet; then the next event is taken: an outcome from
the history, or an answer. Both come in the order of the journal, so a replay takes the same turns as the first run, and branches
may share variables without locks.

Two kinds of steps never wait for their turn, on the first run or on replay: harmless ones, whose outcome is made here (``NoteOp``),
and output. On replay their recorded outcome is looked up ahead of the history's order; one that is not recorded is made anew, for
whatever the worker did behind it is not recorded either.

Nothing is sent before the history is used up. Reading and writing the socket is the driver's business
(``worker_process/child.py``): frames come in through ``take`` and go out through ``send``.
"""

from __future__ import annotations

import sys
import warnings
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from types import CodeType, FrameType
from typing import Final, NoReturn, Protocol, cast

import msgspec

from bartack.core import is_disk_trouble
from bartack.errors import (
    BartackError,
    ForeignAwaitError,
    ForgottenAwaitError,
    LimitExceededError,
    MessageTooLargeError,
    NestedStepError,
    ReplayMismatchError,
    RestartRefusedError,
    RunDiskError,
    StepCancelledError,
)
from bartack.journal import INLINE_LIMIT, BlobRef
from bartack.runtime.protocol import frames as f
from bartack.runtime.protocol.exceptions import describe_error, mark_origin, revive_error, revive_failure
from bartack.runtime.protocol.source_places import is_own, source_at
from bartack.runtime.protocol.steps import CLEANUP
from bartack.runtime.protocol.values import Buffer, encode
from bartack.runtime.scheduler.asyncio_guard import Guard, place_of_await, place_of_frame
from bartack.runtime.scheduler.entropy import Entropy, RealSenses
from bartack.runtime.scheduler.fingerprint import Fingerprints
from bartack.runtime.scheduler.forgotten import is_forgotten, watch_coroutines
from bartack.runtime.scheduler.operations import (
    AnyBranch,
    AnyOp,
    Branch,
    Counted,
    FatalError,
    Group,
    LocalOp,
    NoteOp,
    Reply,
    Scope,
    StepOp,
    WorkOp,
    here,
    place_of,
)
from bartack.runtime.scheduler.replay_log import (
    Deadline,
    Key,
    Pending,
    ReplayLog,
    describe_deed,
    describe_past,
    fits,
    place_of_deed,
)
from bartack.runtime.scheduler.tool_calls import PromptOp, ToolBranch, hold, prompt_of
from bartack.runtime.state.links import DEADLINE

MANY_STEPS: Final = 100_000
MAX_STEPS: Final = 1_000_000
MAX_ARGUMENTS: Final = 512 * 1024
"""The most a step is asked in a frame; payloads go beside it."""

_NULL: Final = msgspec.Raw(b"null")
_FIRED: Final = msgspec.Raw(b'"fired"')
_CANCELLED: Final = "cancelled"
"""The reason the hub gives for a step that came cancelled already; the branch knows a better one."""


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


class Blobs(Protocol):
    """Where values go that are too long for a frame."""

    def put(self, content: bytes) -> BlobRef:
        """Keep a value."""
        ...

    def get(self, ref: BlobRef) -> bytes:
        """A value that was kept."""
        ...


class Works(Protocol):
    """Executes the steps that are done in the worker."""

    def begin(self, op: WorkOp[object]) -> None:
        """Tell the hub, and execute it."""
        ...

    def answered(self, op: WorkOp[object], data: Buffer) -> None:
        """The hub answered something else than the outcome."""
        ...

    def cancel(self, op: WorkOp[object]) -> None:
        """Give it up."""
        ...

    def abandon(self) -> None:
        """Nothing waits for the outcomes any more. They are reported all the same."""
        ...


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
        self.entropy = entropy or RealSenses()
        self.replaying = True
        self.fatal: BartackError | None = None
        """Why the worker cannot go on, if the program is not to handle it."""
        self.note_open = False
        """Whether the program has seen something that may not be durable."""
        self.works: Works
        self.say = send
        """Sends a frame to the hub."""
        self._blobs = blobs
        self._prints = Fingerprints(facts.run_dir, facts.workspace, environ)
        self.guard = Guard(self._die)
        """What keeps asyncio out of the worker's thread."""
        watch_coroutines()
        self._main: AnyBranch | None = None
        self._current: AnyBranch
        self._branches: dict[str, AnyBranch] = {}
        self._ready: deque[tuple[AnyBranch, object, BaseException | None]] = deque()
        self._waiting: dict[int, Counted[object]] = {}
        self._deadlines: dict[Key, Deadline] = {}
        self._number = 0
        self._note_mark = 0
        self._steps = 0
        self._failure: f.ErrorData | None = None
        self._memory = ReplayLog()
        self._stalled: NoteOp[object] | None = None
        self._early: f.ErrorData | None = None
        """The failure of the session, if it came during the replay."""
        self._take: Mapping[type, Callable[..., None]] = {
            f.Answer: self._take_answer,
            f.Refusal: self._take_refusal,
            f.Fired: self._take_fired,
            f.Called: self._take_called,
            f.History: self._take_history,
            f.Live: self._take_live,
            f.SessionFailed: self._take_failure,
        }

    # For the driver.

    def start(self, coroutine: Coroutine[object, object, object]) -> None:
        """Begin with the worker's function, as far as it goes without an answer.

        Best after the first frame: a worker without a history does not replay.
        """
        self._main = self.add_branch(self.facts.path, coroutine)
        self._main.counter = self.facts.first
        self.take(None)

    def take(self, frame: f.ToPeer | None) -> None:
        """Take a turn: something came from the hub, or nothing did and there may be something to do nevertheless."""
        before, here.scheduler = here.scheduler, self
        self.guard.put_in()
        try:
            if frame is not None:
                self._take[type(frame)](frame)
            self._run_all()
        finally:
            self.guard.take_out()
            here.scheduler = before

    def resume(self, news: Iterable[Callable[[], None]]) -> None:
        """Something came to its end outside the scheduler: let each report it, and go on."""
        for report in news:
            report()
        self.take(None)

    @property
    def ended(self) -> bool:
        """Whether the worker is at its end."""
        done = self._main is not None and self._main.done
        return self.fatal is not None or (done and not self.replaying)

    @property
    def aborted(self) -> bool:
        """Whether the session has failed around the worker."""
        return self._failure is not None

    @property
    def outcome(self) -> Reply:
        """The worker's result, or its error."""
        assert self._main is not None
        return self._main.result, self._main.error

    def close(self) -> None:
        """Say nothing more: what the collector does to abandoned coroutines is no part of the program."""
        self.say = _say_nothing

    def bury(self) -> None:
        """Nobody runs the worker any more: end its coroutines. They may not say or do anything about it."""
        self.close()
        for branch in reversed(list(self._branches.values())):
            _end_quietly(branch.coroutine)

    # For operations.

    @property
    def current(self) -> AnyBranch:
        """The branch that runs now."""
        return self._current

    @property
    def alone(self) -> bool:
        """Whether the only branch waits, and nothing can interrupt it."""
        return len(self._branches) == 1 and not self._deadlines

    def check_here(self, name: str) -> None:
        """Raise unless it is the worker itself that calls: not the body of a step, not another thread."""
        if here.scheduler is not self:
            raise NestedStepError(name)

    def check_restart(self) -> None:
        """Raise unless only the worker's own function runs, outside every block that lasts.

        Raises:
            RestartRefusedError: Something of it is under way that a new history would not know of.
        """
        path = self.facts.path
        others = [branch for branch in self._branches if branch != path]
        if self._current is not self._main:
            raise RestartRefusedError(path, f"it is called in the branch {self._current.path}")
        if others:
            raise RestartRefusedError(path, f"the branch {others[0]} has not ended")
        if self._deadlines:
            seconds = next(iter(self._deadlines.values())).seconds
            raise RestartRefusedError(path, f"it is inside a block with a deadline of {seconds:g} s")

    def redact(self, text: str) -> str:
        """A text for people, without the secrets of the worker's environment."""
        return self._prints.redact(text)

    def add_branch(
        self, path: str, coroutine: Coroutine[object, object, object], group: Group | None = None
    ) -> AnyBranch:
        """A branch that runs as soon as the current one waits."""
        branch = self._branches[path] = Branch(path, coroutine, group)
        self._ready.append((branch, None, None))
        return branch

    def next_number(self, branch: AnyBranch) -> int:
        """The number of the next step of a branch."""
        steps = self._steps = self._steps + 1
        if steps >= MANY_STEPS:
            self._check_limit()
        n = branch.counter = branch.counter + 1
        return n

    def wake(self, branch: AnyBranch, value: object, error: BaseException | None) -> None:
        """A branch goes on with the outcome of what it waited for."""
        branch.op = None
        if error is not None:
            self.settle(branch, error)
        self._ready.append((branch, value, error))

    def settle(self, branch: AnyBranch, error: BaseException | None) -> None:
        """If a cancellation is raised in a branch, it counts for the outermost thing that asked for one.

        Everything inside of that will be left, too. A cancellation that came from outside the worker (nothing here gave its
        reason) is for the whole branch.
        """
        if not isinstance(error, StepCancelledError) or not branch.pending:
            return
        pending, branch.pending = branch.pending, []
        scopes = [scope for scope, _ in pending if scope is not None]
        if len(scopes) == len(pending) and any(reason == error.reason for _, reason in pending):
            min(scopes, key=branch.scopes.index).delivered = True

    def cancel(self, branch: AnyBranch, scope: Scope | None, reason: str) -> None:
        """Interrupt what a branch waits for, or the next thing it will wait for."""
        if branch.done or self._failure is not None:
            return
        branch.pending.append((scope, reason))
        op = branch.op
        if isinstance(op, LocalOp):
            reply = op.interrupt(branch, reason)
            if reply is not None:
                self.wake(branch, *reply)
        elif isinstance(op, Counted) and not op.cancel_reason:
            op.cancel_reason = reason
            if isinstance(op, PromptOp) and op.held is not None and op.running is not None:
                self.cancel(op.running, None, reason)  # its agent is through, only the tool runs on
            elif not self.replaying:
                self._give_up(op)

    def out(self, channel: str, text: str, site: str = "") -> None:
        """Something is printed or logged.

        Args:
            channel: ``print`` or ``log``.
            text: What.
            site: Where it stands, if not in the worker's own function.

        Raises:
            MessageTooLargeError: It is no line, but a file.
        """
        size = len(text.encode("utf-8", "replace"))
        if size > MAX_ARGUMENTS:
            raise MessageTooLargeError("a line of output", size, MAX_ARGUMENTS)
        branch = self._current
        n = self.next_number(branch)
        fp = self._prints.of(channel, site or self.facts.name, encode(text))
        self.emit(f.Out(p=branch.path, n=n, channel=channel, text=text, fp=fp, cleanup=self.aborted))

    def enter(self, seconds: float) -> Deadline:
        """The current branch enters a block with a deadline."""
        branch = self._current
        n = self.next_number(branch)
        fp = self._prints.of("timeout", self.facts.name, encode(seconds))
        deadline = Deadline(branch, n, fp, seconds)
        self._deadlines[deadline.step] = deadline
        branch.scopes.append(deadline)
        if self.replaying:
            self._memory.add(deadline.step, deadline)
        else:
            self._begin_deadline(deadline)
        return deadline

    def leave(self, deadline: Deadline) -> None:
        """The block is left."""
        deadline.left = True
        withdraw(deadline.branch, deadline)
        self._deadlines.pop(deadline.step, None)
        if not deadline.fired and self.fatal is None:
            path, n = deadline.step
            note = f.Note(p=path, n=n, step="timeout", fp=deadline.fp, v=_NULL, cleanup=self.aborted)
            if self.replaying:
                self._memory.add_leaving(deadline, note)
            else:
                self.say(note)

    # Forgotten awaits; see ``Watcher``.

    def drop(self, op: Counted[object], frame: FrameType) -> None:
        """See ``Watcher.drop``."""
        made = op.made
        if made is None or self.forget(op.words, place_of(made), made[0], frame):
            return
        if not is_own(frame.f_code.co_filename):
            file, _, line = place_of(made).rpartition(":")
            warnings.warn_explicit(f"{op.words} was never awaited", RuntimeWarning, file, int(line))

    def refuse_use(self, op: Counted[object]) -> NoReturn:
        """See ``Watcher.refuse_use``."""
        self._die(ForgottenAwaitError(op.words, place_of_frame(sys._getframe(1))))  # noqa: SLF001 - the only way to see who uses it

    def forget(self, what: str, where: str, maker: CodeType | None, frame: FrameType) -> bool:
        """See ``Watcher.forget``."""
        if self.fatal is not None or self._failure is not None or self.say is _say_nothing:
            return True  # whatever is left undone now, that is not why
        if not is_forgotten(frame, maker, _RUN):
            return False
        self.fatal = ForgottenAwaitError(what, where or place_of_frame(frame))
        return True

    # For those who execute steps here.

    def ask(self, op: Counted[object]) -> int:
        """The number of a request whose answer is for this step."""
        number = op.number = self._number = self._number + 1
        self._waiting[number] = op
        return number

    def pack(self, data: bytes) -> tuple[msgspec.Raw | None, BlobRef | None]:
        """An encoded value for a frame: as it is or, if it is long, as a reference."""
        if len(data) > INLINE_LIMIT:
            try:
                return None, self._blobs.put(data)
            except OSError as error:
                if is_disk_trouble(error):
                    raise RunDiskError("blobs", error.strerror or str(error)) from error
                raise
        return msgspec.Raw(data), None

    # Turns.

    def _run_all(self) -> None:
        """Run every branch that can run; on replay, take one outcome after the other."""
        ready = self._ready
        while self.fatal is None:
            while ready and self._stalled is None:
                self._run(*ready.popleft())
            if not self.replaying or self._stalled is not None or self.fatal is not None:
                return
            if self._memory:
                if self._main is None:
                    return  # nothing has asked for an outcome yet
                self._take_past(self._memory.next())
            elif self._memory.complete:
                self._go_live()
            else:
                return

    def _run(self, branch: AnyBranch, value: object, error: BaseException | None) -> None:
        """Run a branch until it has to wait."""
        self._current = branch
        coroutine = branch.coroutine
        while True:
            try:
                # Not always: what is not ours is refused where it is issued.
                op: AnyOp = coroutine.send(value) if error is None else coroutine.throw(error)
            except StopIteration as stop:
                self._end(branch, stop.value, None)
                return
            except FatalError as fatal:
                self.fatal = self.fatal or fatal.error
                return
            except BaseException as failure:  # noqa: BLE001 - the boundary of the program: whatever it raises is its outcome
                self._end(branch, None, failure)
                return
            if self.fatal is not None:
                return
            reply = self._issue_step(branch, op) if isinstance(op, Counted) else self._issue_other(branch, op)
            if reply is None:
                return
            value, error = reply

    def _end(self, branch: AnyBranch, result: object, error: BaseException | None) -> None:
        branch.done = True
        branch.result, branch.error = result, error
        del self._branches[branch.path]
        for waiter in branch.waiters:
            self.wake(waiter, result, error)
        if branch.group is not None:
            branch.group.branch_ended(branch)

    def _issue_other(self, branch: AnyBranch, op: object) -> Reply | None:
        """A branch awaits something that is no step."""
        if isinstance(op, LocalOp):
            local = branch.op = cast("LocalOp[object]", op)
            reply = local.enter(branch)
            if reply is not None:
                branch.op = None
            return reply
        what = "a bare yield" if op is None else f"{type(op).__module__}.{type(op).__qualname__}"
        self.fatal = ForeignAwaitError(what, place_of_await(branch.coroutine))
        return None

    def _issue_step(self, branch: AnyBranch, op: Counted[object]) -> Reply | None:
        """A branch awaits a step: what it goes on with, or ``None`` if it has to wait."""
        op.branch = branch
        op.p = branch.path
        try:
            op.n = self.next_number(branch)
        except LimitExceededError as error:
            return None, error
        if self._failure is not None:
            if op.step not in CLEANUP:
                return None, revive_failure(self._failure)
            op.cleanup = True
        size = len(op.written)
        if isinstance(op, StepOp) and op.args is not op.written:
            size = max(size, len(op.args))
        if size > MAX_ARGUMENTS:
            return None, MessageTooLargeError(f"what {op.step} is asked", size, MAX_ARGUMENTS)
        op.fp = self._prints.of(op.step, op.site or self.facts.name, op.written, op.value)
        if branch.pending and self._failure is None:
            op.cancelled = True
        if isinstance(op, NoteOp):
            return self._replay_note(op) if self.replaying else self._make_note(op)
        branch.op = op
        if self.replaying:
            self._memory.add((branch.path, op.n), op)
        else:
            self._launch(op)
        return None

    def _launch(self, op: Counted[object]) -> None:
        """Ask the hub for a step, or begin one that is done here."""
        if isinstance(op, WorkOp):
            self.works.begin(op)
        elif isinstance(op, StepOp):
            v, ref = (None, None) if op.value is None else self.pack(op.value)
            self.say(
                f.Step(
                    i=self.ask(op),
                    p=op.p,
                    n=op.n,
                    step=op.step,
                    fp=op.fp,
                    about=op.about,
                    a=msgspec.Raw(op.args),
                    v=v,
                    ref=ref,
                    cancelled=op.cancelled,
                    cleanup=op.cleanup,
                )
            )

    def _give_up(self, op: Counted[object]) -> None:
        """Tell whoever does a step that nobody wants it any more."""
        if isinstance(op, WorkOp):
            self.works.cancel(op)
        else:
            self.say(f.Cancel(p=op.p, n=op.n, reason=op.cancel_reason))

    def deliver(self, op: Counted[object], data: Buffer, error: BaseException | None) -> None:
        """A step has its outcome."""
        if isinstance(op, PromptOp) and hold(self, op, data, error):
            return
        if error is not None and op.cancelled:
            error = _with_own_reason(op, error)
        self.wake(op.branch, data, error)

    # What comes from the hub.

    def _take_answer(self, answer: f.Answer) -> None:
        op = self._answered(answer.i)
        if op is None:
            return
        data = self._load(answer.v, answer.ref)
        if isinstance(op, WorkOp) and op.phase != "reported":
            self.works.answered(op, data)
        else:
            self.deliver(op, data, None)

    def _take_refusal(self, refusal: f.Refusal) -> None:
        op = self._answered(refusal.i)
        if op is not None:
            self.deliver(op, b"", revive_error(refusal.e, (op.p, op.n)))

    def _answered(self, number: int) -> Counted[object] | None:
        if number > self._note_mark:
            # Whatever was noted before this request is durable: so is the answer, and it came later.
            self.note_open = False
        return self._waiting.pop(number, None)

    def _take_fired(self, fired: f.Fired) -> None:
        if self.replaying:
            self._memory.learn([f.Past(p=fired.p, n=fired.n, step="timeout", v=_FIRED)])
        else:
            self._fire(self._deadlines.get((fired.p, fired.n)))

    def _take_called(self, called: f.Called) -> None:
        if self.replaying:
            past = f.Past(p=called.p, n=0, step="tool", v=called.v, ref=called.ref, about=called.tool)
            self._memory.learn([past])
        else:
            self._start_tool(called.p, called.tool, self._load(called.v, called.ref))

    def _start_tool(self, path: str, tool: str, data: Buffer) -> bool:
        """An agent calls a tool of a prompt that a branch waits for; ``False`` if none does."""
        op = self._open_step(*prompt_of(path))
        if not isinstance(op, PromptOp):
            return False
        ToolBranch(self, op).start(path, tool, data)
        return True

    def _take_failure(self, failed: f.SessionFailed) -> None:
        if self.replaying:
            # The frontier is the place to learn it: behind it, clean-up finds what it has to clean up.
            self._early = self._early or failed.e
        elif self._failure is None:
            self._fail_all(failed.e, failed.but)

    def _take_history(self, history: f.History) -> None:
        if self.replaying:
            self._memory.learn(history.past)
            self._end_stall()
            return
        # Outcomes that came in while the worker was on its way here: they are answers to what it has just asked for.
        for past in history.past:
            op = self._open_step(past.p, past.n)
            if isinstance(op, WorkOp) and op.phase in {"running", "given up"}:
                continue  # the hub has decided instead of the body, and ends this process
            if op is not None:
                self._waiting.pop(op.number, None)
                self._take_outcome(op, past)

    def _open_step(self, p: str, n: int) -> Counted[object] | None:
        branch = self._branches.get(p)
        op = None if branch is None else branch.op
        return op if isinstance(op, Counted) and op.n == n else None

    def _take_live(self, live: f.Live) -> None:
        self._memory.complete = True
        self._end_stall()

    def _fire(self, deadline: Deadline | None) -> None:
        """The time of a block is over, unless it was left before."""
        if deadline is not None and not deadline.left:
            deadline.fired = True
            self.cancel(deadline.branch, deadline, f"{DEADLINE} {deadline.seconds:g} s passed")

    def _fail_all(self, failure: f.ErrorData, but: Sequence[int] = ()) -> None:
        """The session failed: every wait ends now, except for the requests that are answered next."""
        self._failure = failure
        answered = {number: op for number, op in self._waiting.items() if number in but}
        self._waiting.clear()
        self._waiting.update(answered)
        self.works.abandon()
        spared = list(answered.values())
        for branch in list(self._branches.values()):
            branch.pending.clear()
            if branch.op in spared:
                continue
            op = branch.op
            if isinstance(op, WorkOp) and op.phase == "asked":
                self.say(f.Cancel(p=op.p, n=op.n, unbegun=True))
            if isinstance(op, Counted):
                error = revive_failure(failure)
                if not (isinstance(op, PromptOp) and hold(self, op, b"", error)):
                    self.wake(branch, None, error)

    # Replay.

    def _take_past(self, past: f.Past) -> None:
        """The next outcome in the order of the journal: something the program did must be waiting for it."""
        if past.step == "tool":
            if not self._start_tool(past.p, past.about, self._load(past.v, past.ref)):
                self._differ(past, None)
            return
        deed = self._memory.confirm(past)
        if deed is None or not fits(deed, past):
            self._differ(past, deed)
        elif isinstance(deed, Counted):
            self._take_outcome(deed, past)
        elif isinstance(deed, Deadline):
            left = self._memory.confirm_leaving(past)
            if past.e is not None or (past.v is not None and bytes(past.v) == bytes(_FIRED)):
                self._fire(deed)
            elif not left:
                self._differ(past, deed)

    def _take_outcome(self, op: Counted[object], past: f.Past) -> None:
        if past.e is not None:
            self.deliver(op, b"", revive_error(past.e, (past.p, past.n)))
        else:
            self.deliver(op, self._load(past.v, past.ref), None)

    def _replay_note(self, op: NoteOp[object]) -> Reply | None:
        """A harmless step on replay: its outcome is somewhere ahead, or nowhere."""
        past = self._memory.find(op.p, op.n)
        if past is None:
            if self._memory.complete:
                return self._make_note(op)
            self._stalled = op
            return None
        if not fits(op, past):
            self._differ(past, op)
            return None
        if past.e is not None:
            return None, self._note_failed(op, past.e)
        return self._load(past.v, past.ref), None

    def _end_stall(self) -> None:
        """More of the history is there: go on with the step that waits for it, before anything else."""
        op, self._stalled = self._stalled, None
        if op is not None:
            reply = self._replay_note(op)
            if reply is not None:
                self._ready.appendleft((op.branch, *reply))

    def _make_note(self, op: NoteOp[object]) -> Reply:
        """Do a harmless step, and tell its outcome."""
        note = f.Note(p=op.p, n=op.n, step=op.step, fp=op.fp, about=op.about, cleanup=op.cleanup)
        try:
            if op.cancelled:
                raise StepCancelledError(op.branch.pending[0][1])
            data = encode(op.run(), op.about)
            note.v, note.ref = self.pack(data)
        except BartackError as error:
            note.e = describe_error(error, self.facts.path)
            self.emit(note)
            return None, self._note_failed(op, note.e)
        self.emit(note)
        return data, None

    def _note_failed(self, op: NoteOp[object], data: f.ErrorData) -> Exception:
        error = revive_error(data, (op.p, op.n))
        self.settle(op.branch, error)
        return error

    def emit(self, frame: f.Out | f.Note | f.Returned) -> None:
        """Send what needs no answer; on replay only if it turns out that the history does not have it."""
        if self.replaying:
            self._memory.add((frame.p, frame.n), frame)
            return
        self.say(frame)
        if isinstance(frame, f.Note):
            self.note_open = True
            self._note_mark = self._number

    def _go_live(self) -> None:
        """The history is used up: everything that it did not confirm is sent, in the order in which it was done."""
        self.replaying = False
        deeds = self._memory.drain()
        if self._early is not None:
            self._fail_all(self._early)
            return
        for deed in deeds:
            self._send_late(deed)

    def _send_late(self, deed: Pending) -> None:
        if isinstance(deed, Counted):
            self._launch(deed)
            if deed.cancel_reason:
                self._give_up(deed)
        elif isinstance(deed, Deadline):
            self._begin_deadline(deed)
        elif isinstance(deed, f.Note) and deed.step == "timeout":
            self.say(deed)
        else:
            self.emit(deed)

    def _begin_deadline(self, deadline: Deadline) -> None:
        path, n = deadline.step
        self.say(
            f.Begin(
                p=path,
                n=n,
                step="timeout",
                fp=deadline.fp,
                about=f"{deadline.seconds:g} s",
                timeout_s=deadline.seconds,
                cleanup=self.aborted,
            )
        )

    def _differ(self, past: f.Past, deed: Pending | None) -> None:
        asked = self._asked_instead(past) if deed is None else describe_deed(deed)
        branch = self._branches.get(past.p)
        op = branch.op if branch is not None else None
        if deed is None and isinstance(op, Counted):
            deed = op
        where = "" if deed is None else place_of_deed(deed)
        if not where and branch is not None:
            where = place_of_await(branch.coroutine).removeprefix("?")
        step = f"{past.p}:{past.n}"
        self.fatal = ReplayMismatchError(
            self.facts.path, step, describe_past(past), asked, where, source_at(where)
        )

    def _asked_instead(self, past: f.Past) -> str:
        """What a branch asks for that has not come to a recorded step."""
        branch = self._branches.get(past.p)
        if branch is None:
            return "nothing: it is at its end" if past.p == self.facts.path else "nothing there"
        op = branch.op
        return describe_deed(op) if isinstance(op, Counted) else "nothing yet: it waits for its branches"

    # Inside.

    def _load(self, raw: msgspec.Raw | None, ref: BlobRef | None) -> Buffer:
        if raw is not None:
            return raw
        return _NULL if ref is None else self._blobs.get(ref)

    def _check_limit(self) -> None:
        if self._steps > MAX_STEPS:
            raise LimitExceededError("steps in one worker", MAX_STEPS)
        if self._steps == MANY_STEPS and not self.replaying:
            sys.stderr.write(
                f"{self.facts.path}: {MANY_STEPS} steps so far; ctx.restart(value) begins a new history, "
                "which is faster to resume\n"
            )

    def _die(self, error: BartackError) -> NoReturn:
        self.fatal = self.fatal or error
        raise FatalError(error)


_RUN: Final = Scheduler._run.__code__  # noqa: SLF001 - of a class of this module


def _say_nothing(frame: f.Frame) -> None:
    """Nobody listens."""


def _with_own_reason(op: Counted[object], error: BaseException) -> BaseException:
    """The error of a step that came cancelled to the hub, which does not know why."""
    pending = op.branch.pending
    if pending and isinstance(error, StepCancelledError) and error.reason == _CANCELLED:
        return mark_origin(StepCancelledError(pending[0][1]), (op.p, op.n))
    return error


def _end_quietly(coroutine: Coroutine[object, object, object]) -> None:
    """End a coroutine, however often it awaits something on its way out."""
    for _ in range(100):
        try:
            coroutine.close()
        except Exception:  # noqa: BLE001, S112 - nobody is left to hear of it
            continue
        return


def withdraw(branch: AnyBranch, scope: Scope) -> None:
    """A scope is left: it interrupts nothing any more."""
    branch.scopes.remove(scope)
    if branch.pending:
        branch.pending = [pending for pending in branch.pending if pending[0] is not scope]
