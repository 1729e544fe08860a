"""Branches that run side by side inside a worker, and blocks with a deadline.

A group ends when every one of its branches has ended. The first failure cancels the others; it is raised when the last of them
is through with its clean-up. None of this is recorded: it follows from the outcomes of steps, which are.
"""

from __future__ import annotations

from collections.abc import Awaitable, Coroutine, Iterable
from types import TracebackType
from typing import Final, Self, TypeVar, cast

from bartack.errors import StepCancelledError
from bartack.runtime.protocol.exceptions import describe_error
from bartack.runtime.scheduler.operations import AnyBranch, Branch, Deadline, LocalOp, Scope, WakeUp
from bartack.runtime.scheduler.results import Failure, Outcome
from bartack.runtime.scheduler.scheduler import Scheduler

T = TypeVar("T")

_SIBLING: Final = "another branch failed"
_LEAVING: Final = "its group was left"


async def _run_one(awaitable: Awaitable[T]) -> T:
    return await awaitable


def as_coroutine(awaitable: Awaitable[T]) -> Coroutine[object, object, T]:
    """What a branch runs.

    Raises:
        TypeError: It cannot be awaited.
    """
    if isinstance(awaitable, Coroutine):
        return cast("Coroutine[object, object, T]", awaitable)
    if not hasattr(awaitable, "__await__"):
        raise TypeError(f"a branch must be something to await, not {type(awaitable).__name__}")
    return _run_one(awaitable)


class Bundle(Scope):
    """The branches of one group."""

    def __init__(self, scheduler: Scheduler, *, collect: bool = False) -> None:
        super().__init__()
        self.parent = scheduler.queue.current
        self.branches: list[AnyBranch] = []
        self.failure: BaseException | None = None
        self._scheduler = scheduler
        self._collect = collect
        self._path = f"{self.parent.path}.{scheduler.next_number(self.parent)}"
        self._left = 0
        self._awaited = False

    @property
    def ended(self) -> bool:
        """Whether every branch is through."""
        return self._left == 0

    def start(self, coroutine: Coroutine[object, object, object]) -> AnyBranch:
        """One branch more."""
        path = f"{self._path}.{len(self.branches) + 1}"
        branch = self._scheduler.queue.add(path, coroutine, self)
        branch.limits = self._scheduler.queue.current.limits
        self.branches.append(branch)
        self._left += 1
        if self.failure is not None:
            self._scheduler.cancellation.cancel(branch, None, _SIBLING)
        return branch

    def branch_ended(self, branch: AnyBranch) -> None:
        """See ``Group.branch_ended``."""
        self._left -= 1
        if branch.error is not None and self.failure is None and not self._collect:
            self.failure = branch.error
            self.cancel_all(_SIBLING)
            if self in self.parent.scopes and not self._awaited:
                self._scheduler.cancellation.cancel(self.parent, self, _SIBLING)
        if self.ended and self._awaited:
            # If a cancellation ended the branches, it has reached the parent with them.
            self.parent.settle(self.failure)
            self._scheduler.queue.wake(self.parent, None, None)

    def cancel_all(self, reason: str) -> None:
        """Interrupt every branch that is not through."""
        for branch in self.branches:
            self._scheduler.cancellation.cancel(branch, None, reason)

    def await_end(self) -> bool:
        """The parent waits for the end, unless there is nothing to wait for."""
        self._awaited = True
        return not self.ended


class _BundleEnd(LocalOp[None]):
    """Waits until every branch of a group has ended."""

    __slots__ = ("_bundle",)

    def __init__(self, bundle: Bundle) -> None:
        super().__init__()
        self._bundle = bundle

    def enter(self, branch: AnyBranch) -> WakeUp | None:
        """See ``LocalOp.enter``."""
        if not self._bundle.await_end():
            return None, None
        if branch.interruptions:
            self._bundle.cancel_all(branch.interruptions[0][1])
        return None

    def interrupt(self, branch: AnyBranch, reason: str) -> WakeUp | None:
        """See ``LocalOp.interrupt``."""
        self._bundle.cancel_all(reason)
        return None


async def gather(scheduler: Scheduler, coroutines: Iterable[Coroutine[object, object, T]]) -> list[T]:
    """Run branches side by side; their results in order, or the first failure."""
    bundle = Bundle(scheduler)
    for coroutine in coroutines:
        bundle.start(coroutine)
    await _BundleEnd(bundle)
    if bundle.failure is not None:
        raise bundle.failure
    return [cast("T", branch.result) for branch in bundle.branches]


async def gather_outcomes(
    scheduler: Scheduler, coroutines: Iterable[Coroutine[object, object, T]]
) -> list[Outcome[T]]:
    """Run branches side by side; how each of them ended, in order."""
    bundle = Bundle(scheduler, collect=True)
    for coroutine in coroutines:
        bundle.start(coroutine)
    await _BundleEnd(bundle)
    return [_outcome(branch) for branch in bundle.branches]


def _outcome(branch: AnyBranch) -> Outcome[T]:
    if branch.error is not None:
        return Outcome(False, None, Failure.of(describe_error(branch.error, branch.path)))
    return Outcome(True, cast("T", branch.result))


class TaskGroup:
    """Branches that are started one by one. Leaving the block waits for all of them."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._bundle: Bundle | None = None

    def start(self, branch: Awaitable[T]) -> Branch[T]:
        """Start a branch; it runs as soon as the current one waits."""
        if self._bundle is None:
            raise RuntimeError("a task group must be entered before a branch is started in it")
        return cast("Branch[T]", self._bundle.start(as_coroutine(branch)))

    async def __aenter__(self) -> Self:
        """Open the group."""
        self._scheduler.check_here("ctx.task_group")
        self._bundle = Bundle(self._scheduler)
        self._bundle.parent.scopes.append(self._bundle)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Wait for every branch; raise the first failure."""
        bundle = self._bundle
        assert bundle is not None
        if isinstance(error, GeneratorExit):
            return  # the branches are not run any more
        if error is not None:
            bundle.failure = bundle.failure or error
            bundle.cancel_all(_LEAVING)
        await _BundleEnd(bundle)
        bundle.parent.leave(bundle)
        interrupted = bundle.delivered and isinstance(error, StepCancelledError)
        if bundle.failure is not None and (error is None or interrupted):
            raise bundle.failure from bundle.failure.__cause__


class Timeout:
    """A block that must be left in time."""

    def __init__(self, scheduler: Scheduler, seconds: float) -> None:
        self._scheduler = scheduler
        self._seconds = seconds
        self._deadline: Deadline | None = None

    async def __aenter__(self) -> Self:
        """The time counts from here."""
        self._scheduler.check_here("ctx.timeout")
        self._deadline = self._scheduler.enter(self._seconds)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """If the time was over, that is what leaves the block."""
        deadline = self._deadline
        assert deadline is not None
        if isinstance(error, GeneratorExit):
            return  # the worker is not run any more
        self._scheduler.cancellation.leave(deadline)
        if deadline.delivered and (error is None or isinstance(error, StepCancelledError)):
            raise deadline.error() from None
