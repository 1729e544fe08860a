"""``ctx``, through which a worker reaches the world: every member of it that is awaited is a step.

Here are branches, steps of one's own, output and the end of a worker. The other members are in the modules beside it, by
what they are about: ``shell.py``, ``agents.py``, ``workers.py``, ``delivery.py``, ``watch.py``, ``files.py``, ``clock.py`` and
``versions.py``.
``protocol/steps.py`` has what steps ask of the hub, ``scheduler/scheduler.py`` what becomes of them.
"""

from __future__ import annotations

import datetime
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from functools import cached_property
from pathlib import Path
from typing import Final, Literal, NoReturn, TypeVar, Unpack, overload

from bartack.core import typed
from bartack.runtime.context.agents import AgentMembers
from bartack.runtime.context.clock import ClockMembers
from bartack.runtime.context.definitions import (
    OnFailure,
    Shape,
    StepFunction,
    StepOptions,
    Worker,
    body_options,
)
from bartack.runtime.context.delivery import MailMembers
from bartack.runtime.context.files import FileMembers
from bartack.runtime.context.mailbox import Mailbox, Mailroom
from bartack.runtime.context.part import DefaultLimits, Seconds, nothing, seconds_of
from bartack.runtime.context.shell import ShellMembers
from bartack.runtime.context.versions import VersionMembers
from bartack.runtime.context.watch import WatchMembers
from bartack.runtime.context.workers import WorkerMembers
from bartack.runtime.protocol.steps import Args, FailArgs
from bartack.runtime.protocol.values import plain_or_repr
from bartack.runtime.scheduler.body import BodyOp
from bartack.runtime.scheduler.branches import TaskGroup, Timeout, as_coroutine, gather, gather_outcomes
from bartack.runtime.scheduler.operations import StepOp
from bartack.runtime.scheduler.results import Budget, Outcome
from bartack.runtime.scheduler.scheduler import Scheduler

T = TypeVar("T")

_decode_budget: Final = typed.decoder(Budget).decode


class SessionView:
    """What a worker sees of the session it is part of."""

    def __init__(self, scheduler: Scheduler, mailbox: Mailroom) -> None:
        self._facts = scheduler.facts
        self.id = self._facts.run
        self.mailbox = mailbox

    @cached_property
    def dir(self) -> Path:
        """A directory for the files of its workers; it is kept with the run."""
        return Path(self._facts.run_dir, "work")

    @cached_property
    def timestamp(self) -> datetime.datetime:
        """When the run was made."""
        return datetime.datetime.fromtimestamp(self._facts.timestamp / 1e6, datetime.UTC)


class Context(
    ShellMembers,
    AgentMembers,
    WorkerMembers,
    MailMembers,
    WatchMembers,
    FileMembers,
    ClockMembers,
    VersionMembers,
):
    """What a worker reaches the world through. It is valid in its own worker only."""

    def __init__(self, scheduler: Scheduler, worker: Worker[..., object] | None = None) -> None:
        super().__init__(scheduler)
        self._worker = worker
        self.path = scheduler.facts.path
        self.mailbox = Mailroom(scheduler)
        self.session = SessionView(scheduler, self.mailbox)
        self.inbox = Mailbox(scheduler, f"@{self.path}")

    def __reduce__(self) -> NoReturn:
        raise TypeError("ctx cannot leave its worker")

    # Branches.

    @overload
    def gather(
        self, *branches: Awaitable[T], on_failure: Literal["fail"] = "fail"
    ) -> Coroutine[object, object, list[T]]: ...
    @overload
    def gather(
        self, *branches: Awaitable[T], on_failure: Literal["collect"]
    ) -> Coroutine[object, object, list[Outcome[T]]]: ...
    def gather(
        self, *branches: Awaitable[T], on_failure: OnFailure = "fail"
    ) -> Coroutine[object, object, list[T]] | Coroutine[object, object, list[Outcome[T]]]:
        """Run branches side by side inside this worker, and wait for all of them.

        Args:
            branches: Things of Bartack to await, or coroutines of one's own that await such.
            on_failure: ``fail``: the first failure cancels the others and is raised. ``collect``: failures are values.

        Returns:
            Their results in order.
        """
        self._scheduler.check_here("ctx.gather")
        coroutines = [as_coroutine(branch) for branch in branches]
        if on_failure == "collect":
            return gather_outcomes(self._scheduler, coroutines)
        return gather(self._scheduler, coroutines)

    def task_group(self) -> TaskGroup:
        """Branches that are started one by one, for an ``async with`` block."""
        return TaskGroup(self._scheduler)

    def timeout(self, seconds: Seconds) -> Timeout:
        """An ``async with`` block that must be left in time.

        Raises:
            DeadlineExceededError: Leaves the block when its time is over.
        """
        return Timeout(self._scheduler, seconds_of(seconds, "seconds"))

    def timeouts(self, **limits: Seconds) -> DefaultLimits:
        """A ``with`` block in which other limits than the defaults hold, by kind, for waits that are given none.

        Args:
            limits: Seconds by kind: ``receive``, ``call``, ``shell``, ``prompt``, ``delegate``.

        Raises:
            ValueError: The limit is unknown or negative.
        """
        return DefaultLimits(self._scheduler, limits)

    # Steps of one's own.

    @overload
    def step(
        self,
        function: Callable[..., Coroutine[object, object, T]],
        *args: object,
        **options: Unpack[StepOptions],
    ) -> BodyOp[T]: ...
    @overload
    def step(
        self, function: Callable[..., T], *args: object, **options: Unpack[StepOptions]
    ) -> BodyOp[T]: ...
    def step(
        self, function: Callable[..., object], *args: object, **options: Unpack[StepOptions]
    ) -> BodyOp[object]:
        """Call any importable function as a step. The options are those of ``@step``."""
        self._scheduler.check_here("ctx.step")
        if isinstance(function, StepFunction):
            raise TypeError(f"{function!r} is a step already: call it")
        if not callable(function):
            raise TypeError(f"ctx.step calls a function, and {function!r} is none")
        made: StepFunction[..., object] = StepFunction(
            function, Shape(function), body_options(function, options)
        )
        return made(*args)

    # Output, and the end.

    def print(self, *values: object) -> None:
        """Write a line to the output of the program: exactly once in the transcript, at most once on the terminal."""
        self._scheduler.check_here("ctx.print")
        self._scheduler.out("print", " ".join(map(str, values)))

    def log(self, *values: object) -> None:
        """Write a line to the transcript."""
        self._scheduler.check_here("ctx.log")
        self._scheduler.out("log", " ".join(map(str, values)))

    def budget(self) -> StepOp[Budget]:
        """The money of the run."""
        return self._step("budget", Args(), _decode_budget)

    async def restart(self, *args: object, **kwargs: object) -> NoReturn:
        """End the history of this worker and begin a new one: its function is called anew, in a new process.

        Its mailboxes, the messages in them, its names and its links stay. Nothing after this call is executed, also not in
        ``finally``. A worker that lives long stays quick to resume, and makes as many steps as it likes.

        Args:
            args: What the function is called with, as the worker itself would be.
            kwargs: The same by name.

        Raises:
            RestartRefusedError: A branch, a block, a child or a held message of this worker has not come to its end.
            TypeError: The worker does not take these arguments.
        """
        await self.restart_step(args, kwargs)
        raise AssertionError("the worker was restarted, and its old process continued")

    def restart_step(self, args: tuple[object, ...], kwargs: Mapping[str, object]) -> StepOp[None]:
        """The step of ``restart``, which has no outcome."""
        self._scheduler.check_restart()
        worker = self._worker
        assert worker is not None, "a context without a worker"
        worker.shape.check(args, kwargs)
        value = worker.shape.encode(args, kwargs, f"the arguments of {worker.name}")
        return self._step("restart", Args(), nothing, worker.name, value=value)

    async def abort(self, message: str) -> NoReturn:
        """End the run for good, because a person wants it: it is aborted, and cannot be resumed.

        Raises:
            SessionFailedError: Always.
        """
        await self._step("fail", FailArgs(message=message, final=True), nothing, message)
        raise AssertionError("the run was ended, and this worker got another answer")

    async def fail(self, message: str, **data: object) -> NoReturn:
        """Fail the session for all of its workers.

        Raises:
            SessionFailedError: Always.
        """
        facts = {name: plain_or_repr(value) for name, value in data.items()}
        await self._step("fail", FailArgs(message=message, data=facts), nothing, message)
        raise AssertionError("the session failed, and this worker got another answer")
