"""What a worker can await, as the scheduler sees it.

An operation is made by a call and does nothing until it is awaited: then it hands itself to the scheduler, which gives it its
place in the worker's history and, sooner or later, its outcome. Here is only what operations and branches *are*;
``scheduler.py`` decides what becomes of them.
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
    ForgottenAwaitError,
    NestedStepError,
    NotInWorkerError,
    StepCancelledError,
)
from bartack.runtime.protocol.source_places import OWN_CODE, shown_place
from bartack.runtime.protocol.values import Buffer

T_co = TypeVar("T_co", covariant=True)

_TWICE: Final = "cannot await the same call twice"

Reply = tuple[object, BaseException | None]
"""What a branch goes on with: a value, or an exception to raise."""

Made = tuple[CodeType, int]
"""Where something was made: the code, and the instruction in it."""


class FatalError(BaseException):
    """Carries an error through code that catches ``Exception``: the program must not handle it."""

    def __init__(self, error: BartackError) -> None:
        super().__init__(str(error))
        self.error = error


def place_of(made: Made) -> str:
    """File and line of a call."""
    code, instruction = made
    line = next((line for start, end, line in code.co_lines() if start <= instruction < end), None)
    return shown_place(code.co_filename, line or code.co_firstlineno)


# Branches.


class Scope:
    """A block of a branch that can be interrupted as a whole: a deadline, or a group of which a branch failed."""

    def __init__(self) -> None:
        self.delivered = False
        """Whether its interruption was raised in its branch."""


class Group(Protocol):
    """Whoever wants to know when its branches end."""

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
        self.pending: list[tuple[Scope | None, str]] = []
        """Interruptions that were not raised yet, each with its reason: of a scope, or (None) of the whole branch."""
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


AnyBranch = Branch[object]


# Operations.


class Op(Generic[T_co]):
    """Something to await, once.

    What most operations have in common to begin with is said once, by their class: they are made by the thousand.
    """

    branch: AnyBranch
    """Whose it is, since it was awaited."""
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
    """Something that happens inside the worker alone. No step: it has no number and is not recorded."""

    @abstractmethod
    def enter(self, branch: AnyBranch) -> Reply | None:
        """The branch awaits this: what it continues with, or ``None`` if it has to wait."""

    @abstractmethod
    def interrupt(self, branch: AnyBranch, reason: str) -> Reply | None:
        """The branch that waits for this is cancelled: what it continues with, or ``None`` if it has to wait longer."""


class BranchWait(LocalOp[object]):
    """Waits for the end of another branch."""

    def __init__(self, target: Branch[object]) -> None:
        self._target = target

    def enter(self, branch: AnyBranch) -> Reply | None:
        """See ``LocalOp.enter``."""
        if self._target.done:
            return self._target.result, self._target.error
        self._target.waiters.append(branch)
        return None

    def interrupt(self, branch: AnyBranch, reason: str) -> Reply | None:
        """See ``LocalOp.interrupt``."""
        self._target.waiters.remove(branch)
        return None, StepCancelledError(reason)


class Counted(Op[T_co]):
    """A step: it has a number, a fingerprint and a recorded outcome.

    A program that uses it, or throws it away, without having awaited it has forgotten to do so.
    """

    made: Made | None = None
    """The call that made it."""

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
            scheduler = here.scheduler
            if scheduler is not None:
                scheduler.drop(self, _frame(1))

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
        if not self._awaited and here.scheduler is not None:
            here.scheduler.refuse_use(self)


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
    """new, asked (the hub was told that it begins), running, retrying, reported; given up."""
    abandoned = False
    """The session failed while it ran: nothing waits for it, but its outcome counts."""


# Who runs here.


class Watcher(Protocol):
    """Learns what becomes of operations that are not awaited."""

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
        """Something else was thrown away; returns whether there is no more to say about it.

        Args:
            what: A few words for it.
            where: File and line at which it was made; empty if that is where it died.
            maker: The code that made it.
            frame: Where it died.
        """
        ...


_frame: Final = sys._getframe  # noqa: SLF001 - the only way to say where something was made


class _Here(threading.local):
    scheduler: Watcher | None = None
    body: str = ""


here = _Here()
"""The scheduler whose worker runs in this thread right now, and the name of the body, if one does."""


def outside_worker(name: str) -> BartackError:
    """What a call that is for a worker between two steps raises, where ``here.scheduler`` is none."""
    return NestedStepError(name) if here.body else NotInWorkerError(name)
