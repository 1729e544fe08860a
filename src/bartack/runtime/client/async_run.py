"""``Run`` and ``Session`` on an asyncio loop: the same methods, to be awaited. Cancelling one loses nothing.

What only looks at files runs in a thread; what waits for the hub waits on the loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Literal, Self, TypeVar, Unpack, overload

import msgspec

from bartack.core import open_watch
from bartack.errors import (
    DeadlineExceededError,
    MailboxClosedError,
    ReceiveTimeoutError,
    SessionFailedError,
    TypeMismatchError,
)
from bartack.journal import Entry, open_reader
from bartack.messaging import (
    BroadcastResult,
    DeadLetterQueue,
    Moment,
    SendOptions,
    SendOutcome,
    mailbox_of,
)
from bartack.runtime.client.async_connection import AsyncHubClient
from bartack.runtime.client.dead_letters import open_letters
from bartack.runtime.client.requests import (
    ask_broadcast,
    ask_publish,
    ask_send,
    ask_subscription,
    ask_supervised,
    check_limit,
    check_most,
)
from bartack.runtime.client.run import Question, Run, RunState
from bartack.runtime.client.session import HeldMessage, check_session, find_session, read_timestamp
from bartack.runtime.context.decorators import Worker, WorkerCall
from bartack.runtime.protocol.requests import Request
from bartack.runtime.protocol.steps import Held, MailboxStats
from bartack.runtime.protocol.values import Codec, codec, encode
from bartack.runtime.rundir.layout import RunDir
from bartack.runtime.state.timeline import MessageRecord, StepRecord, StepStatus

if TYPE_CHECKING:
    from bartack.runtime.rundir.receipts import Receipt
    from bartack.runtime.rundir.snapshots import Snapshot

T = TypeVar("T")

_OUTCOME: Final[Codec[SendOutcome]] = codec(SendOutcome)

SLICE_S: Final = 0.5
"""How long a thread may go on waiting behind a cancelled wait."""


class AsyncRun:
    """One run of a workspace, on an asyncio loop. Closing it never stops the run. See ``Run`` for each method."""

    def __init__(self, run: Run) -> None:
        self._run = run

    @classmethod
    async def start(
        cls,
        program: str | os.PathLike[str] | Worker[..., object] | WorkerCall[object],
        *args: object,
        worker: str | None = None,
        workspace: str | os.PathLike[str] = ".",
        no_input: bool = False,
        **kwargs: object,
    ) -> AsyncRun:
        """Start a run in a process of its own, which outlives the caller."""

        def begin() -> Run:
            return Run.start(program, *args, worker=worker, workspace=workspace, no_input=no_input, **kwargs)

        return cls(await asyncio.to_thread(begin))

    @classmethod
    async def open(cls, run: str | os.PathLike[str], workspace: str | os.PathLike[str] = ".") -> AsyncRun:
        """A run by its id, a unique beginning of it, ``latest``, or its directory."""
        return cls(await asyncio.to_thread(Run.open, run, workspace))

    @classmethod
    async def list(cls, workspace: str | os.PathLike[str] = ".") -> Sequence[AsyncRun]:
        """The runs of a workspace, the newest first."""
        return [cls(run) for run in await asyncio.to_thread(Run.list, workspace)]

    @property
    def id(self) -> str:
        """The run's id."""
        return self._run.id

    @property
    def dir(self) -> Path:
        """The run's directory."""
        return self._run.dir

    @property
    def program(self) -> str:
        """The file that the run was started from."""
        return self._run.program

    async def state(self) -> RunState:
        """What the run is doing now."""
        return await asyncio.to_thread(self._run.state)

    async def wait(
        self, timeout_s: float | None = None, until: Literal["ended", "waiting"] = "ended"
    ) -> RunState:
        """Wait until the run has ended (or was interrupted), or until it waits for an answer."""
        return await _in_slices("wait", timeout_s, lambda left: self._run.wait(left, until))

    @overload
    async def result(self) -> object: ...
    @overload
    async def result(self, type: type[T]) -> T: ...
    async def result(self, type: object = None) -> object:  # noqa: A002 - as everywhere
        """The result of the run."""
        data = await asyncio.to_thread(self._run.result_bytes)
        return codec(Any if type is None else type).decode(data)

    async def resume(
        self,
        *,
        update: bool = False,
        program: str | os.PathLike[str] | None = None,
        unknown: str | None = None,
        value: object = None,
        again: str | None = None,
        workspace: str | os.PathLike[str] | None = None,
        sets: Sequence[str] = (),
    ) -> None:
        """Resume an interrupted or failed run."""

        def resume() -> None:
            self._run.resume(
                update=update,
                program=program,
                unknown=unknown,
                value=value,
                again=again,
                workspace=workspace,
                sets=sets,
            )

        await asyncio.to_thread(resume)

    async def fork(self, at: str, *, update: bool = False) -> AsyncRun:
        """A run of its own that begins with what this one did; it stands until it is resumed."""
        return AsyncRun(await asyncio.to_thread(lambda: self._run.fork(at, update=update)))

    async def cancel(self, reason: str = "") -> None:
        """End the run in order; it cannot be resumed."""
        await asyncio.to_thread(self._run.cancel, reason)

    async def fail(self, message: str) -> None:
        """Fail the session for everybody in it."""
        await asyncio.to_thread(self._run.fail, message)

    async def interrupt(self) -> None:
        """Stop the run in order; it can be resumed."""
        await asyncio.to_thread(self._run.interrupt)

    async def questions(self) -> Sequence[Question]:
        """The questions that nobody has answered yet."""
        return await asyncio.to_thread(self._run.questions)

    async def answer(self, question: str, value: object) -> None:
        """Answer a question. The first answer counts."""
        await asyncio.to_thread(self._run.answer, question, value)

    async def send(self, mailbox: str, value: object, key: str | None = None) -> str:
        """Put a message into a mailbox; without a process that runs the run it is left for the next one."""
        return await asyncio.to_thread(self._run.send, mailbox, value, key)

    async def receive(self, mailbox: str, timeout_s: float | None = None) -> object:
        """Take the oldest message of a mailbox: at least once, it is acknowledged after it was read."""
        session = await self.join()  # bartack: allow[wait_without_deadline] it has a limit of its own
        async with session:
            return await session.mailbox.get(mailbox).receive(timeout_s)

    async def steps(
        self, worker: str | None = None, status: StepStatus | None = None
    ) -> AsyncGenerator[StepRecord]:
        """The steps so far, in the order in which they began."""
        for step in await asyncio.to_thread(lambda: list(self._run.steps(worker, status))):
            yield step

    async def messages(self, mailbox: str | None = None) -> AsyncGenerator[MessageRecord]:
        """The messages so far, in the order in which they were sent; or those of one mailbox."""
        for message in await asyncio.to_thread(lambda: list(self._run.messages(mailbox))):
            yield message

    async def receipts(self) -> AsyncGenerator[Receipt]:
        """What agents did in a run of the pipeline, each with its proof, in the order of the journal."""
        for receipt in await asyncio.to_thread(lambda: list(self._run.receipts())):
            yield receipt

    async def snapshots(self) -> AsyncGenerator[Snapshot]:
        """The snapshots that were taken of the workspace, in the order in which they were taken first."""
        for snapshot in await asyncio.to_thread(lambda: list(self._run.snapshots())):
            yield snapshot

    async def events(self, *, follow: bool = False) -> AsyncGenerator[dict[str, object]]:
        """The entries of the journal: those that are there, or also those to come."""
        seen = 0
        while True:
            for entry in await asyncio.to_thread(self._entries, seen + 1, follow=follow):
                seen = entry.seq
                yield {"seq": entry.seq, "at": entry.at, "kind": entry.kind, **entry.data}
                if follow and entry.kind in {"run.ended", "hub.stopped"}:
                    return
            if not follow:
                return

    async def join(self) -> AsyncSession:
        """Take part in the session."""
        return await AsyncSession.join(self._run.dir)

    async def close(self) -> None:
        """Let go; the run goes on."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def _entries(self, first: int, *, follow: bool) -> Sequence[Entry]:
        """The entries from a place on; if there is none yet, those that come soon."""
        with open_reader(self._run.dir) as reader:
            there = [entry for entry in reader.read() if entry.seq >= first]
            return there or (list(reader.follow(first, timeout_s=SLICE_S)) if follow else [])


class AsyncDelivery(HeldMessage):
    """A message that is held for the time of a block."""

    def __init__(self, client: AsyncHubClient, mailbox: str, held: Held) -> None:
        super().__init__(held)
        self._client = client
        self._mailbox = mailbox

    async def reply(self, value: object) -> None:
        """Answer a message that was sent by ``call``; the first answer counts."""
        await self._client.ask("reply", Request(mailbox=self._mailbox, id=self.id), encode(value))


class AsyncMailbox:
    """A mailbox, as a process outside uses it on an asyncio loop."""

    def __init__(self, client: AsyncHubClient, name: str) -> None:
        self._client = client
        self.name = name

    async def send(
        self,
        value: object,
        *,
        key: str | None = None,
        metadata: Mapping[str, object] | None = None,
        not_before: Moment | None = None,
    ) -> str:
        """Put a message into it; durable when it returns. Returns the message's id."""
        request = ask_send(self.name, key, metadata, not_before)
        return msgspec.json.decode(await self._client.ask("send", request, encode(value)), type=str)

    @overload
    async def call(self, value: object, timeout_s: float | None = None) -> object: ...
    @overload
    async def call(self, value: object, timeout_s: float | None = None, *, type: type[T]) -> T: ...
    async def call(self, value: object, timeout_s: float | None = None, *, type: object = Any) -> object:  # noqa: A002 - as everywhere
        """Send a message and wait for the reply of whoever takes it.

        Raises:
            DeadlineExceededError: No reply came within ``timeout_s``, 30 s by default.
        """
        request = Request(mailbox=self.name, timeout_s=check_limit(timeout_s))
        return codec(type).decode(await self._client.ask("call", request, encode(value)))

    async def send_supervised(self, value: object, **options: Unpack[SendOptions]) -> SendOutcome:
        """Send a message and see to it that it arrives; the attempts go on if this process dies, or waits no longer.

        Raises:
            DeliveryError: It did not come as far as it was to, and ``on_error`` is ``raise``; ``outcome`` says why.
            DeliveryOptionError: An option cannot be used.
        """
        request = ask_supervised(self.name, options)
        return _OUTCOME.decode(await self._client.ask("send_supervised", request, encode(value)))

    async def subscribe(self, pattern: str) -> None:
        """Get what is published from now on to the topics of a pattern.

        Raises:
            TopicNameError: There is no such pattern.
        """
        await self._client.ask("subscribe", ask_subscription(self.name, pattern))

    async def unsubscribe(self, pattern: str) -> None:
        """Get no more of what is published to the topics of a pattern."""
        await self._client.ask("subscribe", ask_subscription(self.name, pattern, off=True))

    async def drain(self, max: int | None = None) -> Sequence[object]:  # noqa: A002 - the plain word
        """Take everything that is there now, or at most so many, and acknowledge it; never waits.

        Raises:
            ValueError: There is no such number of messages.
        """
        values: list[object] = []
        with contextlib.suppress(ReceiveTimeoutError, MailboxClosedError):
            while len(values) < check_most(max):
                values.append(await self.receive(0))
        return values

    async def withdraw(self, message_id: str) -> bool:
        """Take back a message that this process has sent; ``False`` if it is gone already."""
        request = Request(mailbox=self.name, id=message_id)
        return msgspec.json.decode(await self._client.ask("withdraw", request), type=bool)

    async def close(self) -> None:
        """Take no more messages; those that are there can still be received."""
        await self._client.ask("close", Request(mailbox=self.name))

    async def stats(self) -> MailboxStats:
        """Counts of the mailbox."""
        data = await self._client.ask("stats", Request(mailbox=self.name))
        return msgspec.json.decode(data, type=MailboxStats)

    @overload
    async def receive(self, timeout_s: float | None = None) -> object: ...
    @overload
    async def receive(self, timeout_s: float | None = None, *, type: type[T]) -> T: ...
    async def receive(self, timeout_s: float | None = None, *, type: object = Any) -> object:  # noqa: A002 - as everywhere
        """Take the oldest message and acknowledge it: at least once. Cancelled, it takes none; one of another type goes back.

        Raises:
            ReceiveTimeoutError: None came in time.
        """
        held = await self._client.receive(self.name, timeout_s)
        try:
            value = codec(type).decode(bytes(held.value))
        except TypeMismatchError:
            self._client.settle(held.id, ok=False)
            raise
        self._client.settle(held.id, ok=True)
        return value

    @asynccontextmanager
    async def delivery(self, timeout_s: float | None = None) -> AsyncGenerator[AsyncDelivery]:
        """Take the oldest message; leaving the block acknowledges it, an exception gives it back."""
        held = await self._client.receive(self.name, timeout_s)
        try:
            yield AsyncDelivery(self._client, self.name, held)
        except BaseException:
            self._client.settle(held.id, ok=False)
            raise
        self._client.settle(held.id, ok=True)


class AsyncMailroom:
    """The mailboxes of a session: ``session.mailbox.results`` or ``session.mailbox["review-queue"]``."""

    def __init__(self, client: AsyncHubClient) -> None:
        self._client = client

    def get(self, name: str) -> AsyncMailbox:
        """The mailbox of this name."""
        return AsyncMailbox(self._client, name)

    async def names(self) -> list[str]:
        """The mailboxes there are."""
        return sorted(msgspec.json.decode(await self._client.ask("mailboxes"), type=dict[str, object]))

    def __getattr__(self, name: str) -> AsyncMailbox:
        if name.startswith("_"):
            raise AttributeError(name)
        return self.get(name)

    def __getitem__(self, name: str) -> AsyncMailbox:
        return self.get(name)


class AsyncSession:
    """What a process outside sees of a run that it has joined, on an asyncio loop. See ``Session`` for each method."""

    def __init__(self, run: RunDir, client: AsyncHubClient, timestamp: datetime) -> None:
        self._run = run
        self._client = client
        self.timestamp = timestamp
        """When the run first started."""
        self.mailbox = AsyncMailroom(client)

    @classmethod
    async def join(
        cls, run: str | os.PathLike[str] | None = None, workspace: str | os.PathLike[str] = "."
    ) -> AsyncSession:
        """Join a run by its id or directory; a process that the run started may leave it out."""
        found = await asyncio.to_thread(find_session, run, workspace)
        client = await AsyncHubClient.open(found)
        return cls(found, client, await asyncio.to_thread(read_timestamp, found))

    async def send_supervised(
        self, recipient: str, value: object, **options: Unpack[SendOptions]
    ) -> SendOutcome:
        """Send a message to a mailbox or a worker, and see to it that it arrives."""
        return await self.mailbox.get(mailbox_of(recipient)).send_supervised(value, **options)

    async def broadcast(
        self,
        recipients: Iterable[str],
        value: object,
        strategy: str = "all_or_nothing",
        **options: Unpack[SendOptions],
    ) -> BroadcastResult:
        """Send a message to many mailboxes or workers."""
        return await self._cast("broadcast", ask_broadcast(recipients, strategy, options), value)

    async def publish(
        self, topic: str, value: object, strategy: str = "best_effort", **options: Unpack[SendOptions]
    ) -> BroadcastResult:
        """Send a message to every mailbox that is subscribed to a topic."""
        return await self._cast("publish", ask_publish(topic, strategy, options), value)

    @property
    def dead_letters(self) -> DeadLetterQueue:
        """The messages that could not be delivered. Its methods wait: call them in a thread."""
        return open_letters(self._run)

    @property
    def id(self) -> str:
        """The run's id."""
        return self._run.id

    @property
    def dir(self) -> Path:
        """Scratch space of the session."""
        return self._run.work

    def check_failed(self) -> None:
        """Raise if the session has failed; never waits.

        Raises:
            SessionFailedError: It has, with the cause.
        """
        if self._client.failure is not None:
            raise self._client.failure
        check_session(self._run)

    async def wait_failed(self, timeout_s: float | None = None) -> SessionFailedError:
        """Wait until the session fails; returns why."""
        return await _in_slices("wait_failed", timeout_s, self._look)

    async def mark_failed(self, error: BaseException | str) -> None:
        """Fail the session for everybody; the first failure is the cause."""
        text = error if isinstance(error, str) else f"{type(error).__name__}: {error}"
        await self._client.ask("fail", Request(message=text))

    async def close(self) -> None:
        """Leave; messages that are held go back."""
        self._client.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _cast(self, do: str, request: Request, value: object) -> BroadcastResult:
        return msgspec.json.decode(await self._client.ask(do, request, encode(value)), type=BroadcastResult)

    def _look(self, seconds: float) -> SessionFailedError:
        """Look for a failure for so long; in a thread."""
        until = time.monotonic() + seconds
        with open_watch(str(self._run.path)) as watch:
            while True:
                try:
                    self.check_failed()
                except SessionFailedError as failure:
                    return failure
                left = until - time.monotonic()
                if left <= 0:
                    raise DeadlineExceededError("wait_failed", seconds, "explicit")
                with contextlib.suppress(FileNotFoundError):
                    watch.wait(left)


async def _in_slices(what: str, timeout_s: float | None, wait: Callable[[float], T]) -> T:
    """Wait in threads, a short time each: a cancelled wait leaves none behind for long."""
    limit = None if timeout_s is None else time.monotonic() + timeout_s
    while True:
        left = SLICE_S if limit is None else min(max(limit - time.monotonic(), 0.0), SLICE_S)
        try:
            return await asyncio.to_thread(wait, left)
        except DeadlineExceededError:
            if limit is not None and time.monotonic() >= limit:
                raise DeadlineExceededError(what, timeout_s or 0.0, "explicit") from None
