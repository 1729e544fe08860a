"""``Session`` on an asyncio loop: the same methods, to be awaited. Cancelling one loses no message.

The requests are built in ``client/requests.py``. Requests to the hub wait on the loop; what reads files is executed in a thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from functools import partial
from types import TracebackType
from typing import Any, Final, Self, TypeVar, Unpack, overload

from bartack.errors import (
    DeadlineExceededError,
    MailboxClosedError,
    ReceiveTimeoutError,
    SessionFailedError,
    TypeMismatchError,
)
from bartack.messaging import BroadcastResult, SendOptions, SendOutcome
from bartack.messaging.mailboxes import mailbox_of
from bartack.messaging.options import Moment
from bartack.runtime.client import requests
from bartack.runtime.client.asynchronous.connection import AsyncHubClient
from bartack.runtime.client.session import HeldMessage, JoinedRun, Mailboxes, find_session, read_timestamp
from bartack.runtime.protocol.steps import Held, MailboxStats
from bartack.runtime.protocol.values import codec
from bartack.runtime.rundir.layout import RunDir

T = TypeVar("T")

SLICE_S: Final = 0.5
"""The longest time that a thread continues to wait after its wait was cancelled."""


class AsyncDelivery(HeldMessage):
    """A message that is held for the time of a block."""

    def __init__(self, client: AsyncHubClient, mailbox: str, held: Held) -> None:
        super().__init__(held)
        self._client = client
        self._mailbox = mailbox

    async def reply(self, value: object) -> None:
        """Answer a message that was sent by ``call``; the first answer counts."""
        await self._client.do(requests.reply(self._mailbox, self.id, value))


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
        return await self._client.do(requests.send(self.name, value, key, metadata, not_before))

    @overload
    async def call(self, value: object, timeout_s: float | None = None) -> object: ...
    @overload
    async def call(self, value: object, timeout_s: float | None = None, *, type: type[T]) -> T: ...
    async def call(self, value: object, timeout_s: float | None = None, *, type: object = Any) -> object:  # noqa: A002 - as everywhere
        """Send a message and wait for the reply of its receiver.

        Raises:
            DeadlineExceededError: No reply came within ``timeout_s``, 30 s by default.
        """
        return await self._client.do(requests.call(self.name, value, timeout_s, type))

    async def send_supervised(self, value: object, **options: Unpack[SendOptions]) -> SendOutcome:
        """Send a message with retries and a deadline; the attempts continue if this process dies, or waits no longer.

        Raises:
            DeliveryError: It was not delivered as required, and ``on_error`` is ``raise``; ``outcome`` has the reason.
            DeliveryOptionError: An option cannot be used.
        """
        return await self._client.do(requests.send_supervised(self.name, value, options))

    async def subscribe(self, pattern: str) -> None:
        """Receive messages that are published from now on to the topics of a pattern.

        Raises:
            TopicNameError: It is not a pattern.
        """
        await self._client.do(requests.subscribe(self.name, pattern))

    async def unsubscribe(self, pattern: str) -> None:
        """Receive no more messages of the topics of a pattern."""
        await self._client.do(requests.subscribe(self.name, pattern, off=True))

    async def drain(self, max: int | None = None) -> Sequence[object]:  # noqa: A002 - the plain word
        """Take all messages that are there now, or at most ``max``, and acknowledge them; never waits.

        Raises:
            ValueError: ``max`` is negative.
        """
        values: list[object] = []
        with contextlib.suppress(ReceiveTimeoutError, MailboxClosedError):
            while len(values) < requests.check_most(max):
                values.append(await self.receive(0))
        return values

    async def withdraw(self, message_id: str) -> bool:
        """Take back a message that this process has sent; ``False`` if it is gone already."""
        return await self._client.do(requests.withdraw(self.name, message_id))

    async def close(self) -> None:
        """Take no more messages; those that are there can still be received."""
        await self._client.do(requests.close(self.name))

    async def stats(self) -> MailboxStats:
        """Counts of the mailbox."""
        return await self._client.do(requests.stats(self.name))

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


class AsyncMailroom(Mailboxes[AsyncMailbox]):
    """The mailboxes of a session; see ``Mailboxes``."""

    def __init__(self, client: AsyncHubClient) -> None:
        super().__init__(partial(AsyncMailbox, client))
        self._client = client

    async def names(self) -> list[str]:
        """The names of all mailboxes."""
        return await self._client.do(requests.mailboxes())


class AsyncSession(JoinedRun[AsyncHubClient]):
    """What a process outside sees of a run that it has joined, on an asyncio loop. See ``Session`` for each method."""

    def __init__(self, run: RunDir, client: AsyncHubClient, timestamp: datetime) -> None:
        super().__init__(run, client)
        self.timestamp = timestamp
        """When the run first started."""
        self.mailbox = AsyncMailroom(client)

    @classmethod
    async def join(
        cls,
        run: str | os.PathLike[str] | None = None,
        workspace: str | os.PathLike[str] = ".",
        on: str | None = None,
    ) -> AsyncSession:
        """Join a run by its id or directory; a process that the run started may leave it out. See ``Session.join``."""
        found = await asyncio.to_thread(find_session, run, workspace, on)
        client = await AsyncHubClient.open(found)
        return cls(found, client, await asyncio.to_thread(read_timestamp, found))

    async def send_supervised(
        self, recipient: str, value: object, **options: Unpack[SendOptions]
    ) -> SendOutcome:
        """Send a message to a mailbox or a worker, with retries and a deadline."""
        return await self.mailbox.get(mailbox_of(recipient)).send_supervised(value, **options)

    async def broadcast(
        self,
        recipients: Iterable[str],
        value: object,
        strategy: str = "all_or_nothing",
        **options: Unpack[SendOptions],
    ) -> BroadcastResult:
        """Send a message to many mailboxes or workers."""
        return await self._client.do(requests.broadcast(recipients, value, strategy, options))

    async def publish(
        self, topic: str, value: object, strategy: str = "best_effort", **options: Unpack[SendOptions]
    ) -> BroadcastResult:
        """Send a message to every mailbox that is subscribed to a topic."""
        return await self._client.do(requests.publish(topic, value, strategy, options))

    async def wait_failed(self, timeout_s: float | None = None) -> SessionFailedError:
        """Wait until the session fails; returns why."""
        return await in_slices("wait_failed", timeout_s, self._wait_failed)

    async def mark_failed(self, error: BaseException | str) -> None:
        """Fail the session for all processes in it; the first failure is the cause."""
        await self._client.do(requests.fail(error))

    async def close(self) -> None:
        """Leave the run; held messages go back."""
        self._client.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


async def in_slices(what: str, timeout_s: float | None, wait: Callable[[float], T]) -> T:
    """Wait in threads, a short time each: the thread of a cancelled wait ends soon after it."""
    limit = None if timeout_s is None else time.monotonic() + timeout_s
    while True:
        left = SLICE_S if limit is None else min(max(limit - time.monotonic(), 0.0), SLICE_S)
        try:
            return await asyncio.to_thread(wait, left)
        except DeadlineExceededError:
            if limit is not None and time.monotonic() >= limit:
                raise DeadlineExceededError(what, timeout_s or 0.0, "explicit") from None
