"""Operations and branches: what a worker can await, and what awaits it.

A call makes an operation, which does nothing until it is awaited. Then it hands itself to the scheduler, which gives it its place
in the worker's history and later its outcome. Here is only what operations and branches *are*. Read ``scheduler.py`` for the turns
they take, ``cancellation.py`` for how a wait is interrupted.
"""

from __future__ import annotations

import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Generator, Mapping
from types import CodeType, FrameType
from typing import Any, Final, Generic, NoReturn, Protocol, TypeVar, cast

from bartack.errors import (
    BartackError,
    DeadlineExceededError,
    ForgottenAwaitError,
    NestedStepError,
    NotInWorkerError,
    StepCancelledError,
)
from bartack.runtime.protocol.exceptions import mark_origin
from bartack.runtime.protocol.frames import Site
from bartack.runtime.protocol.source_places import OWN_CODE, program_file, shown_place
from bartack.runtime.protocol.steps import ToolSpec
from bartack.runtime.protocol.values import Buffer

T_co = TypeVar("T_co", covariant=True)

_TWICE: Final = "cannot await the same call twice"

WakeUp = tuple[object, BaseException | None]
"""What a branch continues with: a value, or an exception to raise."""

Made = tuple[CodeType, int]
"""Where something was made: the code, and the instruction in it."""


class FatalError(BaseException):
    """Carries an error through code that catches ``Exception``: the program must not handle it."""

    def __init__(self, error: BartackError) -> None:
        super().__init__(str(error))
        self.error = error


def place_of(made: Made) -> str:
    """File and line of a call."""
    return shown_place(made[0].co_filename, _line_of(made))


def site_of(made: Made | None) -> Site | None:
    """Where in the program a call is; ``None`` if it is not in the program."""
    file = "" if made is None else program_file(made[0])
    return Site(file, _line_of(made)) if made is not None and file else None


def _line_of(made: Made) -> int:
    code, instruction = made
    line = next((line for start, end, line in code.co_lines() if start <= instruction < end), None)
    return line or code.co_firstlineno


# Branches.


class Scope:
    """A block of a branch that can be interrupted as a whole: a deadline, or a group of which a branch failed."""

    def __init__(self) -> None:
        self.delivered = False
        """Whether its interruption was raised in its branch."""


class Group(Protocol):
    """Is notified when one of its branches ends."""

    def branch_ended(self, branch: AnyBranch) -> None:
        """One of its branches has ended."""
        ...


class Branch(Generic[T_co]):
    """One line of execution in a worker: the worker itself, or a branch of a group. Await it for its result."""

    def __init__(
        self, path: str, coroutine: Coroutine[object, object, T_co], group: Group | None = None
    ) -> None:
        self.path = path
        self.coroutine: Coroutine[Any, object, object] = coroutine
        self.group = group
        self.counter = 0
        self.op: Op[object] | None = None
        """What it waits for; ``None`` while it runs or is about to."""
        self.scopes: list[Scope] = []
        self.interruptions: list[tuple[Scope | None, str]] = []
        """Those that were not raised yet, each with its reason: of a scope, or (None) of the whole branch."""
        self.done = False
        self.result: object = None
        self.error: BaseException | None = None
        self.waiters: list[AnyBranch] = []
        self.limits: Mapping[str, float] = {}
        """Limits of waits, by kind, that hold where it is now instead of the defaults."""

    def __await__(self) -> Generator[AnyOp, object, T_co]:
        """Wait for its end; its error is raised here."""
        return cast("T_co", (yield from BranchWait(self).__await__()))

    def __repr__(self) -> str:
        return f"<branch {self.path}>"

    def settle(self, error: BaseException | None) -> None:
        """Count a cancellation that is raised in this branch for the outermost scope that asked for one.

        The cancellation leaves every scope inside of that one, too. A cancellation from outside the worker, for which no
        interruption here gives the reason, is for the whole branch.
        """
        if not isinstance(error, StepCancelledError) or not self.interruptions:
            return
        interruptions, self.interruptions = self.interruptions, []
        scopes = [scope for scope, _ in interruptions if scope is not None]
        if len(scopes) == len(interruptions) and any(reason == error.reason for _, reason in interruptions):
            min(scopes, key=self.scopes.index).delivered = True

    def leave(self, scope: Scope) -> None:
        """Leave a scope, which interrupts nothing any more."""
        self.scopes.remove(scope)
        if self.interruptions:
            self.interruptions = [one for one in self.interruptions if one[0] is not scope]


AnyBranch = Branch[object]


class Deadline(Scope):
    """A block with a deadline. It has a number like a step."""

    def __init__(self, branch: AnyBranch, n: int, fp: str, seconds: float, *, cleanup: bool) -> None:
        super().__init__()
        self.branch = branch
        self.n = n
        self.fp = fp
        self.seconds = seconds
        self.cleanup = cleanup
        """The program entered the block after it had learned that the session failed."""
        self.left = False
        self.fired = False

    @property
    def step(self) -> tuple[str, int]:
        """Path and number."""
        return self.branch.path, self.n

    def error(self) -> DeadlineExceededError:
        """The error that leaves the block when its time is over."""
        return mark_origin(DeadlineExceededError("timeout", self.seconds, "ctx.timeout"), self.step)


# Operations.


class Op(Generic[T_co]):
    """Something to await, once.

    Initial values that most operations share are attributes of the class: operations are made by the thousand.
    """

    branch: AnyBranch
    """The branch that awaits it."""
    _awaited = False

    def __await__(self) -> Generator[AnyOp, Any, T_co]:
        """Hand it to the scheduler and wait for the outcome."""
        if self._awaited:
            raise RuntimeError(_TWICE)
        self._awaited = True
        outcome: T_co = yield self
        return outcome


AnyOp = Op[object]


class LocalOp(Op[T_co], ABC):
    """Something that happens inside the worker alone. It is not a step: it has no number and is not recorded."""

    @abstractmethod
    def enter(self, branch: AnyBranch) -> WakeUp | None:
        """The branch awaits this: what it continues with, or ``None`` if it has to wait."""

    @abstractmethod
    def interrupt(self, branch: AnyBranch, reason: str) -> WakeUp | None:
        """The branch that waits for this is cancelled: what it continues with, or ``None`` if it keeps waiting."""


class BranchWait(LocalOp[object]):
    """Waits for the end of another branch."""

    def __init__(self, target: Branch[object]) -> None:
        self._target = target

    def enter(self, branch: AnyBranch) -> WakeUp | None:
        """See ``LocalOp.enter``."""
        if self._target.done:
            return self._target.result, self._target.error
        self._target.waiters.append(branch)
        return None

    def interrupt(self, branch: AnyBranch, reason: str) -> WakeUp | None:
        """See ``LocalOp.interrupt``."""
        self._target.waiters.remove(branch)
        return None, StepCancelledError(reason)


class Counted(Op[T_co]):
    """A step: it has a number, a fingerprint and a recorded outcome.

    A program that uses it, or throws it away, without having awaited it has forgotten to do so.
    """

    made: Made | None = None
    """The call that made it."""
    made_for: Watcher | None = None
    """The watcher of the worker that made it. What the collector finds later, in another worker, is not the mistake of that one."""

    p = ""
    """The path of its branch, since it was awaited; so are its number and its fingerprint."""
    n = 0
    fp = ""
    number = 0
    """The request that is open for it."""
    cancelled = False
    """Its branch was cancelled before it came here."""
    cancel_reason = ""
    """Why it was given up while it was under way."""
    cleanup = False
    """The program awaited it after it had learned that the session failed."""

    def __init__(
        self,
        step: str,
        written: bytes,
        decode: Callable[[Buffer], T_co],
        about: str = "",
        site: str = "",
        value: bytes | None = None,
    ) -> None:
        self.step = step
        self.written = written
        """The arguments as written, encoded: what the fingerprint is made of."""
        self.decode = decode
        self.about = about
        self.site = site
        self.value = value
        """A payload, encoded by itself because it may be long."""
        self.made_for = here.watcher
        # The frame itself is not kept: it would keep its variables alive, and this is one of them.
        frame: FrameType | None = _frame(2)
        while frame is not None and frame.f_code.co_filename.startswith(OWN_CODE):
            frame = frame.f_back
        if frame is not None:
            self.made = frame.f_code, frame.f_lasti

    def __await__(self) -> Generator[AnyOp, Any, T_co]:
        """Hand it to the scheduler, wait for the outcome, and decode that."""
        if self._awaited:
            raise RuntimeError(_TWICE)
        self._awaited = True
        return self.decode((yield self))

    # Not awaited.

    @property
    def words(self) -> str:
        """What it is, in a few words."""
        return f"{self.step} {self.about}".rstrip()

    def not_awaited(self) -> ForgottenAwaitError:
        """See ``Unawaited.not_awaited``."""
        return ForgottenAwaitError(self.words, "?" if self.made is None else place_of(self.made))

    def replace(self) -> None:
        """Another operation takes its place: that one is to be awaited."""
        self._awaited = True

    def __del__(self) -> None:
        if not self._awaited:
            watcher = here.watcher
            if watcher is not None and watcher is self.made_for:
                watcher.drop(self, _frame(1))

    def __bool__(self) -> bool:
        self._refuse_use()
        return True

    def __str__(self) -> str:
        self._refuse_use()
        return repr(self)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Op):
            self._refuse_use()
        return self is other

    __hash__ = object.__hash__

    def __iter__(self) -> NoReturn:
        self._refuse_use()
        raise TypeError(f"{type(self).__name__!r} object is not iterable")

    def __getattr__(self, name: str) -> NoReturn:
        advice = "" if self._awaited or name.startswith("__") else "; it is not awaited"
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}{advice}")

    def _refuse_use(self) -> None:
        if not self._awaited and here.watcher is not None:
            here.watcher.refuse_use(self)


class StepOp(Counted[T_co]):
    """Done by the hub."""

    def __init__(
        self,
        step: str,
        args: bytes,
        decode: Callable[[Buffer], T_co],
        *,
        about: str = "",
        value: bytes | None = None,
        written: bytes | None = None,
    ) -> None:
        super().__init__(step, args if written is None else written, decode, about, "", value)
        self.args = args


class Tool:
    """A tool that an agent may call while it works on a prompt.

    Args:
        spec: The description of it that the agent gets.
        run: Runs a call: takes the arguments, an encoded object, and returns the encoded result. What it raises goes to the agent.
    """

    def __init__(self, spec: ToolSpec, run: Callable[[Buffer], Coroutine[object, object, bytes]]) -> None:
        self.spec = spec
        self.run = run


class PromptOp(StepOp[T_co]):
    """A prompt whose agent may call tools. Its outcome waits for the call that runs."""

    def __init__(self, op: StepOp[T_co], tools: dict[str, Tool]) -> None:
        super().__init__(op.step, op.args, op.decode, about=op.about, written=op.written)
        op.replace()
        self.tools = tools
        self.running: AnyBranch | None = None
        """The call that runs."""
        self.held: tuple[Buffer, BaseException | None] | None = None
        """The outcome of the prompt, if it came while a call was running."""


class NoteOp(Counted[T_co]):
    """Done at once in the worker, without effect: time, randomness, reading."""

    def __init__(
        self,
        step: str,
        written: bytes,
        run: Callable[[], object],
        decode: Callable[[Buffer], T_co],
        *,
        about: str = "",
    ) -> None:
        super().__init__(step, written, decode, about)
        self.run = run


class WorkOp(Counted[T_co]):
    """Done in the worker, with effects: it begins, is executed, and is done."""

    attempt = 1
    phase = "new"
    """new, asked (the hub was notified that it begins), running, retrying, reported; given up."""
    abandoned = False
    """The session failed while it ran: nothing waits for it, but its outcome counts."""
    began_ns = 0
    """When its last execution began, by the monotonic clock; 0: it never did."""
    ended_ns = 0
    """When that execution ended."""

    @property
    def took_us(self) -> int:
        """How long its last execution took, at least 1; 0 if none has ended."""
        took_ns = self.ended_ns - self.began_ns
        return max(took_ns // 1000, 1) if self.began_ns and took_ns >= 0 else 0


# The worker of this thread.


class Watcher(Protocol):
    """Is notified of operations that are not awaited; ``forgotten.py`` has it."""

    def drop(self, op: Counted[object], frame: FrameType) -> None:
        """One was thrown away; ``frame`` is where it died."""
        ...

    def refuse_use(self, op: Counted[object]) -> None:
        """One was used as if it were its outcome.

        Raises:
            FatalError: Always.
        """
        ...

    def forget(self, what: str, where: str, maker: CodeType | None, frame: FrameType) -> bool:
        """Something else was thrown away; returns whether nothing more is to be reported about it.

        Args:
            what: A few words for it.
            where: File and line at which it was made; empty if that is where it died.
            maker: The code that made it.
            frame: Where it died.
        """
        ...


_frame: Final = sys._getframe  # noqa: SLF001 - the only way to know where something was made


class _Here(threading.local):
    watcher: Watcher | None = None
    body: str = ""


here = _Here()
"""The watcher of the worker that runs in this thread right now, and the name of the body, if one does."""


def outside_worker(name: str) -> BartackError:
    """The error of a call that is for a worker between two steps, where ``here.watcher`` is none."""
    return NestedStepError(name) if here.body else NotInWorkerError(name)
