"""Taking part in a session from outside: any process of the user, or a command of the run itself."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeVar, Unpack, overload

import msgspec

from bartack.core import open_watch
from bartack.errors import (
    DeadlineExceededError,
    MailboxClosedError,
    NotInWorkerError,
    ReceiveTimeoutError,
    SessionFailedError,
    TypeMismatchError,
)
from bartack.messaging import (
    BroadcastResult,
    DeadLetterQueue,
    Moment,
    SendOptions,
    SendOutcome,
    mailbox_of,
)
from bartack.runtime.client.connection import HubClient
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
from bartack.runtime.protocol import steps as s
from bartack.runtime.protocol.requests import Request
from bartack.runtime.protocol.values import Codec, codec, encode
from bartack.runtime.rundir.find import find_run, read_state
from bartack.runtime.rundir.layout import RunDir
from bartack.runtime.rundir.mirror import FailedFile

T = TypeVar("T")

_OUTCOME: Final[Codec[SendOutcome]] = codec(SendOutcome)


class HeldMessage:
    """A message that a process outside holds until it acknowledges it."""

    def __init__(self, held: s.Held) -> None:
        self.id = held.id
        self.sender = held.sender
        self.attempt = held.attempt
        self.topic = held.topic
        self.metadata = held.metadata
        self.value: object = msgspec.json.decode(held.value)


class ForeignDelivery(HeldMessage):
    """A message that is held for the time of a block."""

    def __init__(self, client: HubClient, mailbox: str, held: s.Held) -> None:
        super().__init__(held)
        self._client = client
        self._mailbox = mailbox

    def reply(self, value: object) -> None:
        """Answer a message that was sent by ``call``; the first answer counts."""
        self._client.ask("reply", Request(mailbox=self._mailbox, id=self.id), encode(value))


class ForeignMailbox:
    """A mailbox, as a process outside uses it. Every call waits for its answer."""

    def __init__(self, client: HubClient, name: str) -> None:
        self._client = client
        self.name = name

    def send(
        self,
        value: object,
        *,
        key: str | None = None,
        metadata: Mapping[str, object] | None = None,
        not_before: Moment | None = None,
    ) -> str:
        """Put a message into it; durable when it returns. Returns the message's id."""
        request = ask_send(self.name, key, metadata, not_before)
        return msgspec.json.decode(self._client.ask("send", request, encode(value)), type=str)

    @overload
    def call(self, value: object, timeout_s: float | None = None) -> object: ...
    @overload
    def call(self, value: object, timeout_s: float | None = None, *, type: type[T]) -> T: ...
    def call(self, value: object, timeout_s: float | None = None, *, type: object = Any) -> object:  # noqa: A002 - as everywhere
        """Send a message and wait for the reply of whoever takes it.

        Raises:
            DeadlineExceededError: No reply came within ``timeout_s``, 30 s by default.
        """
        request = Request(mailbox=self.name, timeout_s=check_limit(timeout_s))
        return codec(type).decode(self._client.ask("call", request, encode(value)))

    def send_supervised(self, value: object, **options: Unpack[SendOptions]) -> SendOutcome:
        """Send a message and see to it that it arrives; the attempts go on if this process dies.

        Raises:
            DeliveryError: It did not come as far as it was to, and ``on_error`` is ``raise``; ``outcome`` says why.
            DeliveryOptionError: An option cannot be used.
        """
        request = ask_supervised(self.name, options)
        return _OUTCOME.decode(self._client.ask("send_supervised", request, encode(value)))

    def subscribe(self, pattern: str) -> None:
        """Get what is published from now on to the topics of a pattern.

        Raises:
            TopicNameError: There is no such pattern.
        """
        self._client.ask("subscribe", ask_subscription(self.name, pattern))

    def unsubscribe(self, pattern: str) -> None:
        """Get no more of what is published to the topics of a pattern."""
        self._client.ask("subscribe", ask_subscription(self.name, pattern, off=True))

    @overload
    def receive(self, timeout_s: float | None = None) -> object: ...
    @overload
    def receive(self, timeout_s: float | None = None, *, type: type[T]) -> T: ...
    def receive(self, timeout_s: float | None = None, *, type: object = Any) -> object:  # noqa: A002 - as everywhere
        """Take the oldest message and acknowledge it: at least once. One that is of another type goes back.

        Raises:
            ReceiveTimeoutError: None came in time.
        """
        held = self._hold(timeout_s)
        try:
            value = codec(type).decode(bytes(held.value))
        except TypeMismatchError:
            self._client.ask("ack", Request(id=held.id, ok=False))
            raise
        self._client.ask("ack", Request(id=held.id))
        return value

    @contextmanager
    def delivery(self, timeout_s: float | None = None) -> Generator[ForeignDelivery]:
        """Take the oldest message; leaving the block acknowledges it, an exception gives it back."""
        held = self._hold(timeout_s)
        try:
            with self._client.renewing():
                yield ForeignDelivery(self._client, self.name, held)
        except BaseException:
            self._client.ask("ack", Request(id=held.id, ok=False))
            raise
        self._client.ask("ack", Request(id=held.id))

    def drain(self, max: int | None = None) -> list[object]:  # noqa: A002 - the plain word
        """Take everything that is there now, or at most so many, and acknowledge it; never waits.

        Raises:
            ValueError: There is no such number of messages.
        """
        found: list[s.Held] = []
        with contextlib.suppress(ReceiveTimeoutError, MailboxClosedError):
            while len(found) < check_most(max):
                found.append(self._hold(0))
        values: list[object] = [msgspec.json.decode(held.value) for held in found]
        for held in found:
            self._client.ask("ack", Request(id=held.id))
        return values

    def withdraw(self, message_id: str) -> bool:
        """Take back a message that this process has sent; ``False`` if it is gone already."""
        request = Request(mailbox=self.name, id=message_id)
        return msgspec.json.decode(self._client.ask("withdraw", request), type=bool)

    def close(self) -> None:
        """Take no more messages; those that are there can still be received."""
        self._client.ask("close", Request(mailbox=self.name))

    def stats(self) -> s.MailboxStats:
        """Counts of the mailbox."""
        return msgspec.json.decode(self._client.ask("stats", Request(mailbox=self.name)), type=s.MailboxStats)

    def _hold(self, timeout_s: float | None) -> s.Held:
        request = Request(mailbox=self.name, timeout_s=check_limit(timeout_s))
        return msgspec.json.decode(self._client.ask("receive", request), type=s.Held)


class ForeignMailroom:
    """The mailboxes of a session: ``session.mailbox.results`` or ``session.mailbox["review-queue"]``."""

    def __init__(self, client: HubClient) -> None:
        self._client = client

    def get(self, name: str) -> ForeignMailbox:
        """The mailbox of this name."""
        return ForeignMailbox(self._client, name)

    def names(self) -> list[str]:
        """The mailboxes there are."""
        return sorted(msgspec.json.decode(self._client.ask("mailboxes"), type=dict[str, object]))

    def __getattr__(self, name: str) -> ForeignMailbox:
        if name.startswith("_"):
            raise AttributeError(name)
        return self.get(name)

    def __getitem__(self, name: str) -> ForeignMailbox:
        return self.get(name)


class Session:
    """What a process outside sees of a run that it has joined."""

    def __init__(self, run: RunDir, client: HubClient) -> None:
        self._run = run
        self._client = client
        self.mailbox = ForeignMailroom(client)

    @classmethod
    def join(
        cls, run: str | os.PathLike[str] | None = None, workspace: str | os.PathLike[str] = "."
    ) -> Session:
        """Join a run by its id or directory; a process that the run started may leave it out.

        Raises:
            RunNotFoundError: There is no such run.
            RunNotActiveError: Nobody runs it.
            SessionFailedError: It has failed.
        """
        found = find_session(run, workspace)
        return cls(found, HubClient(found))

    def send_supervised(self, recipient: str, value: object, **options: Unpack[SendOptions]) -> SendOutcome:
        """Send a message and see to it that it arrives; the attempts go on if this process dies.

        Args:
            recipient: The name of a mailbox, or the path of a worker.
            value: The message.
            options: See ``bartack.messaging.SendOptions``.

        Raises:
            DeliveryError: It did not come as far as it was to, and ``on_error`` is ``raise``; ``outcome`` says why.
            DeliveryOptionError: An option cannot be used.
        """
        return self.mailbox.get(mailbox_of(recipient)).send_supervised(value, **options)

    def broadcast(
        self,
        recipients: Iterable[str],
        value: object,
        strategy: str = "all_or_nothing",
        **options: Unpack[SendOptions],
    ) -> BroadcastResult:
        """Send a message to many mailboxes or workers.

        Raises:
            BroadcastError: It reached too few, and ``on_error`` is ``raise``; ``result`` says whom.
            DeliveryOptionError: An option cannot be used, or a recipient is given twice.
        """
        return self._cast("broadcast", ask_broadcast(recipients, strategy, options), value)

    def publish(
        self, topic: str, value: object, strategy: str = "best_effort", **options: Unpack[SendOptions]
    ) -> BroadcastResult:
        """Send a message to every mailbox that is subscribed to a topic.

        Raises:
            BroadcastError: It reached too few, and ``on_error`` is ``raise``; ``result`` says whom.
            TopicNameError: There is no such topic.
        """
        return self._cast("publish", ask_publish(topic, strategy, options), value)

    @property
    def dead_letters(self) -> DeadLetterQueue:
        """The messages that could not be delivered."""
        return open_letters(self._run)

    @property
    def id(self) -> str:
        """The run's id."""
        return self._run.id

    @property
    def dir(self) -> Path:
        """Scratch space of the session."""
        return self._run.work

    @property
    def timestamp(self) -> datetime:
        """When the run first started."""
        return read_timestamp(self._run)

    def check_failed(self) -> None:
        """Raise if the session has failed; never waits.

        Raises:
            SessionFailedError: It has, with the cause.
        """
        self._client.poll()
        if self._client.failure is not None:
            raise self._client.failure
        check_session(self._run)

    def wait_failed(self, timeout_s: float | None = None) -> SessionFailedError:
        """Wait until the session fails; returns why.

        Raises:
            DeadlineExceededError: It did not within ``timeout_s``.
        """
        limit = None if timeout_s is None else time.monotonic() + timeout_s
        # The watch is set before the first look: a failure between the two cannot be missed.
        with open_watch(str(self._run.path)) as watch:
            while True:
                try:
                    self.check_failed()
                except SessionFailedError as failure:
                    return failure
                left = 1.0 if limit is None else min(limit - time.monotonic(), 1.0)
                if left <= 0:
                    raise DeadlineExceededError("wait_failed", timeout_s or 0.0, "explicit")
                with contextlib.suppress(FileNotFoundError):
                    watch.wait(left)

    def mark_failed(self, error: BaseException | str) -> None:
        """Fail the session for everybody; the first failure is the cause."""
        text = error if isinstance(error, str) else f"{type(error).__name__}: {error}"
        self._client.ask("fail", Request(message=text))

    def _cast(self, do: str, request: Request, value: object) -> BroadcastResult:
        return msgspec.json.decode(self._client.ask(do, request, encode(value)), type=BroadcastResult)

    def close(self) -> None:
        """Leave; messages that are held go back."""
        self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def find_session(run: str | os.PathLike[str] | None, workspace: str | os.PathLike[str]) -> RunDir:
    """The run to join; without a name the one that this process belongs to.

    Raises:
        RunNotFoundError: There is no such run.
        SessionFailedError: It has failed.
    """
    if run is None:
        place = os.environ.get("BARTACK_RUN_DIR")
        if not place:
            raise NotInWorkerError(
                "Session.join", "needs a run outside a worker", "Name the run: Session.join('RUN')"
            )
        run = place
    found = find_run(run, Path(workspace))
    check_session(found)
    return found


def read_timestamp(run: RunDir) -> datetime:
    """When a run first started."""
    return datetime.fromtimestamp(read_state(run).created_at / 1e6, UTC)


def check_session(run: RunDir) -> None:
    """Raise if a run's directory says that its session failed, or is gone. What cannot be read is a failure, too."""
    try:
        text = run.failed.read_bytes()
    except FileNotFoundError:
        if run.path.is_dir():
            return
        raise SessionFailedError("", "lost", "the directory of the run is gone") from None
    except OSError as error:
        raise SessionFailedError("", "unknown", f"{run.failed} cannot be read: {error.strerror}") from None
    try:
        found = msgspec.json.decode(text, type=FailedFile)
    except msgspec.DecodeError:
        raise SessionFailedError("", "unknown", f"{run.failed} cannot be understood") from None
    raise SessionFailedError(found.worker, found.error, found.message)
