"""What a worker reaches the world through: every member of ``ctx`` that is awaited is a step.

Here and in the ``_members_*.py`` beside it is what steps look like to a program. ``protocol/steps.py`` has what they ask of
the hub, ``scheduler/scheduler.py`` what becomes of them.
"""

from __future__ import annotations

import datetime
import uuid
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from functools import cached_property
from pathlib import Path
from typing import Final, Literal, NoReturn, TypeVar, overload

import msgspec

from bartack.runtime.context import files
from bartack.runtime.context.agents import AgentMembers
from bartack.runtime.context.definitions import OnFailure, Shape, StepFunction, Worker, body_options
from bartack.runtime.context.delivery import MailMembers
from bartack.runtime.context.mailbox import Mailbox, Mailroom
from bartack.runtime.context.part import DefaultLimits, Seconds, limit_of, moment_of, nothing, seconds_of
from bartack.runtime.context.shell import ShellMembers
from bartack.runtime.context.watch import WatchMembers
from bartack.runtime.context.workers import WorkerMembers
from bartack.runtime.protocol.steps import Args, FailArgs, SleepArgs
from bartack.runtime.protocol.values import Codec, codec, plain_or_repr
from bartack.runtime.scheduler.body import BodyOp, FileOp, Retry
from bartack.runtime.scheduler.branches import TaskGroup, Timeout, as_coroutine, gather, gather_outcomes
from bartack.runtime.scheduler.operations import NoteOp, StepOp
from bartack.runtime.scheduler.results import Budget, Outcome
from bartack.runtime.scheduler.scheduler import Scheduler

T = TypeVar("T")

_decode_budget: Final = msgspec.json.Decoder(Budget).decode
_LEFT: Final[Codec[float | None]] = codec(float | None)


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


class Context(ShellMembers, AgentMembers, WorkerMembers, MailMembers, WatchMembers):
    """What a worker reaches the world through. It is valid in its own worker only."""

    def __init__(self, scheduler: Scheduler, worker: Worker[..., object] | None = None) -> None:
        super().__init__(scheduler)
        self._worker = worker
        self._files = files.Files(scheduler.facts.workspace, scheduler.facts.run_dir)
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

    # Time and chance.

    def sleep(self, seconds: Seconds) -> StepOp[None]:
        """Wait. A restart does not make it longer."""
        duration = seconds_of(seconds, "seconds")
        return self._step("sleep", SleepArgs(seconds=duration), nothing, f"{duration:g} s")

    def sleep_until(self, when: datetime.datetime) -> StepOp[None]:
        """Wait until a moment, which must have a time zone."""
        return self._step("sleep", SleepArgs(until=moment_of(when)), nothing, when.isoformat())

    def deadline(self) -> StepOp[float | None]:
        """Seconds left of the innermost deadline around the caller, if there is one."""
        return self._step("left", Args(), _LEFT.decode)

    def now(self) -> NoteOp[datetime.datetime]:
        """The time, in UTC."""
        self._scheduler.check_here("ctx.now")
        return files.now(self._scheduler.entropy)

    @overload
    def random(self) -> NoteOp[float]: ...
    @overload
    def random(self, first: int, last: int, /) -> NoteOp[int]: ...
    def random(self, *bounds: int) -> NoteOp[float] | NoteOp[int]:
        """A random number from 0 up to 1, or an integer with both ends included."""
        self._scheduler.check_here("ctx.random")
        if not bounds:
            return files.fraction(self._scheduler.entropy)
        first, last = bounds
        return files.integer(self._scheduler.entropy, first, last)

    def uuid(self) -> NoteOp[uuid.UUID]:
        """A random UUID."""
        self._scheduler.check_here("ctx.uuid")
        return files.new_uuid(self._scheduler.entropy)

    # Steps of one's own.

    @overload
    def step(
        self,
        function: Callable[..., Coroutine[object, object, T]],
        *args: object,
        name: str | None = None,
        once: bool = False,
        retry: Retry | None = None,
        timeout_s: Seconds | None = None,
        max_crashes: int = 3,
    ) -> BodyOp[T]: ...
    @overload
    def step(
        self,
        function: Callable[..., T],
        *args: object,
        name: str | None = None,
        once: bool = False,
        retry: Retry | None = None,
        timeout_s: Seconds | None = None,
        max_crashes: int = 3,
    ) -> BodyOp[T]: ...
    def step(
        self,
        function: Callable[..., object],
        *args: object,
        name: str | None = None,
        once: bool = False,
        retry: Retry | None = None,
        timeout_s: Seconds | None = None,
        max_crashes: int = 3,
    ) -> BodyOp[object]:
        """Call any importable function as a step. The options are those of ``@step``."""
        self._scheduler.check_here("ctx.step")
        if isinstance(function, StepFunction):
            raise TypeError(f"{function!r} is a step already: call it")
        options = body_options(
            function,
            name=name,
            once=once,
            retry=retry,
            timeout_s=limit_of(timeout_s),
            max_crashes=max_crashes,
        )
        made: StepFunction[..., object] = StepFunction(function, Shape(function), options)
        return made(*args)

    # Files.

    def read(self, path: files.Path) -> NoteOp[str]:
        """The text of a file.

        Raises:
            FileAccessError: It cannot be read, or is not UTF-8 text.
        """
        self._scheduler.check_here("ctx.read")
        return self._files.read(path)

    def read_bytes(self, path: files.Path) -> NoteOp[bytes]:
        """The content of a file.

        Raises:
            FileAccessError: It cannot be read.
        """
        self._scheduler.check_here("ctx.read_bytes")
        return self._files.read_bytes(path)

    def exists(self, path: files.Path) -> NoteOp[bool]:
        """Whether there is a file or directory."""
        self._scheduler.check_here("ctx.exists")
        return self._files.exists(path)

    def list(self, pattern: str) -> NoteOp[list[str]]:
        """The paths that match a pattern, sorted; ``**`` matches any number of directories."""
        self._scheduler.check_here("ctx.list")
        return self._files.list(pattern)

    def env(self, name: str, default: str | None = None) -> NoteOp[str | None]:
        """A variable of the environment. The value of a secret is never recorded."""
        self._scheduler.check_here("ctx.env")
        return files.env(name, default)

    def write(self, path: files.Path, value: object) -> FileOp:
        """Give a file new content: text and bytes as they are, other values as JSON. All of it is there, or nothing.

        Raises:
            FileAccessError: It cannot be written.
        """
        self._scheduler.check_here("ctx.write")
        return self._files.write(path, value)

    def append(self, path: files.Path, value: object) -> FileOp:
        """Add to the end of a file, once, whatever happens.

        Raises:
            FileAccessError: It cannot be written.
        """
        self._scheduler.check_here("ctx.append")
        return self._files.append(path, value)

    # Words, and the end.

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
