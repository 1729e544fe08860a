"""Taking part in a session from outside the run: any process of the user, or a command of the run itself.

The requests are built in ``requests.py``. The same session on an asyncio loop is in ``asynchronous/session.py``; both share the
classes ``HeldMessage``, ``Mailboxes`` and ``JoinedRun`` below.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar, Unpack, overload

import msgspec

from bartack.core import typed
from bartack.core.closing import Closing
from bartack.errors import (
    DeadlineExceededError,
    MailboxClosedError,
    NotInWorkerError,
    ReceiveTimeoutError,
    SessionFailedError,
    TypeMismatchError,
)
from bartack.messaging import BroadcastResult, DeadLetterQueue, SendOptions, SendOutcome
from bartack.messaging.mailboxes import mailbox_of
from bartack.messaging.options import Moment
from bartack.runtime.client import requests
from bartack.runtime.client.connection import HubClient
from bartack.runtime.client.databases import find_run_on
from bartack.runtime.client.dead_letters import open_letters
from bartack.runtime.client.peer import HubPeer
from bartack.runtime.protocol import steps as s
from bartack.runtime.protocol.values import codec
from bartack.runtime.rundir.find import find_run, read_state
from bartack.runtime.rundir.layout import RunDir
from bartack.runtime.rundir.mirror import FailedFile

T = TypeVar("T")
C = TypeVar("C", bound=HubPeer)
M = TypeVar("M")


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
        self._client.do(requests.reply(self._mailbox, self.id, value))


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
        return self._client.do(requests.send(self.name, value, key, metadata, not_before))

    @overload
    def call(self, value: object, timeout_s: float | None = None) -> object: ...
    @overload
    def call(self, value: object, timeout_s: float | None = None, *, type: type[T]) -> T: ...
    def call(self, value: object, timeout_s: float | None = None, *, type: object = Any) -> object:  # noqa: A002 - as everywhere
        """Send a message and wait for the reply of its receiver.

        Raises:
            DeadlineExceededError: No reply came within ``timeout_s``, 30 s by default.
        """
        return self._client.do(requests.call(self.name, value, timeout_s, type))

    def send_supervised(self, value: object, **options: Unpack[SendOptions]) -> SendOutcome:
        """Send a message with retries and a deadline; the attempts continue if this process dies.

        Raises:
            DeliveryError: It was not delivered as required, and ``on_error`` is ``raise``; ``outcome`` has the reason.
            DeliveryOptionError: An option cannot be used.
        """
        return self._client.do(requests.send_supervised(self.name, value, options))

    def subscribe(self, pattern: str) -> None:
        """Receive messages that are published from now on to the topics of a pattern.

        Raises:
            TopicNameError: It is not a pattern.
        """
        self._client.do(requests.subscribe(self.name, pattern))

    def unsubscribe(self, pattern: str) -> None:
        """Receive no more messages of the topics of a pattern."""
        self._client.do(requests.subscribe(self.name, pattern, off=True))

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
            self._client.do(requests.acknowledge(held.id, ok=False))
            raise
        self._client.do(requests.acknowledge(held.id))
        return value

    @contextmanager
    def delivery(self, timeout_s: float | None = None) -> Generator[ForeignDelivery]:
        """Take the oldest message; leaving the block acknowledges it, an exception gives it back."""
        held = self._hold(timeout_s)
        try:
            with self._client.renewing():
                yield ForeignDelivery(self._client, self.name, held)
        except BaseException:
            self._client.do(requests.acknowledge(held.id, ok=False))
            raise
        self._client.do(requests.acknowledge(held.id))

    def drain(self, max: int | None = None) -> list[object]:  # noqa: A002 - the plain word
        """Take all messages that are there now, or at most ``max``, and acknowledge them; never waits.

        Raises:
            ValueError: ``max`` is negative.
        """
        found: list[s.Held] = []
        with contextlib.suppress(ReceiveTimeoutError, MailboxClosedError):
            while len(found) < requests.check_most(max):
                found.append(self._hold(0))
        values: list[object] = [msgspec.json.decode(held.value) for held in found]
        for held in found:
            self._client.do(requests.acknowledge(held.id))
        return values

    def withdraw(self, message_id: str) -> bool:
        """Take back a message that this process has sent; ``False`` if it is gone already."""
        return self._client.do(requests.withdraw(self.name, message_id))

    def close(self) -> None:
        """Take no more messages; those that are there can still be received."""
        self._client.do(requests.close(self.name))

    def stats(self) -> s.MailboxStats:
        """Counts of the mailbox."""
        return self._client.do(requests.stats(self.name))

    def _hold(self, timeout_s: float | None) -> s.Held:
        return self._client.do(requests.receive(self.name, timeout_s))


class Mailboxes(Generic[M]):
    """The mailboxes of a session: ``session.mailbox.results`` or ``session.mailbox["review-queue"]``."""

    def __init__(self, open_mailbox: Callable[[str], M]) -> None:
        self._open = open_mailbox

    def get(self, name: str) -> M:
        """The mailbox of this name."""
        return self._open(name)

    def __getattr__(self, name: str) -> M:
        if name.startswith("_"):
            raise AttributeError(name)
        return self.get(name)

    def __getitem__(self, name: str) -> M:
        return self.get(name)


class ForeignMailroom(Mailboxes[ForeignMailbox]):
    """The mailboxes of a session; see ``Mailboxes``."""

    def __init__(self, client: HubClient) -> None:
        super().__init__(partial(ForeignMailbox, client))
        self._client = client

    def names(self) -> list[str]:
        """The names of all mailboxes."""
        return self._client.do(requests.mailboxes())


class JoinedRun(Generic[C]):
    """The part of a session that needs no request to the hub."""

    def __init__(self, run: RunDir, client: C) -> None:
        self._run = run
        self._client = client

    @property
    def dead_letters(self) -> DeadLetterQueue:
        """The messages that could not be delivered. Its methods block: on an asyncio loop, call them in a thread."""
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

    def _wait_failed(self, timeout_s: float | None) -> SessionFailedError:
        limit = None if timeout_s is None else time.monotonic() + timeout_s
        # The watch is set before the first look: a failure between the two cannot be missed.
        with self._run.watch() as watch:
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


class Session(JoinedRun[HubClient], Closing):
    """What a process outside sees of a run that it has joined."""

    def __init__(self, run: RunDir, client: HubClient) -> None:
        super().__init__(run, client)
        self.mailbox = ForeignMailroom(client)

    @classmethod
    def join(
        cls,
        run: str | os.PathLike[str] | None = None,
        workspace: str | os.PathLike[str] = ".",
        on: str | None = None,
    ) -> Session:
        """Join a run by its id or directory; a process that the run started may leave it out.

        Args:
            run: The run.
            workspace: Its workspace.
            on: The database that keeps it, on whichever machine it is active. If it rests at nodes, the first request continues it.

        Raises:
            RunNotFoundError: The run does not exist.
            RunNotActiveError: No process runs it.
            SessionFailedError: It has failed.
            DepotError: The database cannot be used.
        """
        found = find_session(run, workspace, on)
        return cls(found, HubClient(found, wakes=True))

    def send_supervised(self, recipient: str, value: object, **options: Unpack[SendOptions]) -> SendOutcome:
        """Send a message with retries and a deadline; the attempts continue if this process dies.

        Args:
            recipient: The name of a mailbox, or the path of a worker.
            value: The message.
            options: See ``bartack.messaging.SendOptions``.

        Raises:
            DeliveryError: It was not delivered as required, and ``on_error`` is ``raise``; ``outcome`` has the reason.
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
            BroadcastError: It reached too few, and ``on_error`` is ``raise``; ``result`` names them.
            DeliveryOptionError: An option cannot be used, or a recipient is given twice.
        """
        return self._client.do(requests.broadcast(recipients, value, strategy, options))

    def publish(
        self, topic: str, value: object, strategy: str = "best_effort", **options: Unpack[SendOptions]
    ) -> BroadcastResult:
        """Send a message to every mailbox that is subscribed to a topic.

        Raises:
            BroadcastError: It reached too few, and ``on_error`` is ``raise``; ``result`` names them.
            TopicNameError: It is not a topic.
        """
        return self._client.do(requests.publish(topic, value, strategy, options))

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
        super().check_failed()

    def wait_failed(self, timeout_s: float | None = None) -> SessionFailedError:
        """Wait until the session fails; returns why.

        Raises:
            DeadlineExceededError: It did not within ``timeout_s``.
        """
        return self._wait_failed(timeout_s)

    def mark_failed(self, error: BaseException | str) -> None:
        """Fail the session for all processes in it; the first failure is the cause."""
        self._client.do(requests.fail(error))

    def close(self) -> None:
        """Leave the run; held messages go back."""
        self._client.close()


def find_session(
    run: str | os.PathLike[str] | None, workspace: str | os.PathLike[str], on: str | None = None
) -> RunDir:
    """The run to join; without a name the one that this process belongs to, or the newest one of a database.

    Raises:
        RunNotFoundError: The run does not exist.
        SessionFailedError: It has failed.
    """
    if on is not None:
        found = find_run_on(on, run or "latest")
        check_session(found)
        return found
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


def _check_elsewhere(run: RunDir) -> None:
    """Raise if the session of a run has failed whose hub is on another machine."""
    if b'"failed"' not in (run.summary() or b""):
        return  # the journal need not be read
    failure = read_state(run).failure
    if failure is not None:
        error = failure.error
        raise SessionFailedError(failure.worker, error.type.rpartition(":")[2], error.message)


def read_timestamp(run: RunDir) -> datetime:
    """When a run first started."""
    return datetime.fromtimestamp(read_state(run).created_at / 1e6, UTC)


def check_session(run: RunDir) -> None:
    """Raise if the session of a run has failed, or its directory is gone. An unreadable file counts as a failure."""
    if run.questioner() is not None:
        _check_elsewhere(run)
        return
    try:
        text = run.failed.read_bytes()
    except FileNotFoundError:
        if run.path.is_dir():
            return
        raise SessionFailedError("", "lost", "the directory of the run is gone") from None
    except OSError as error:
        raise SessionFailedError("", "unknown", f"{run.failed} cannot be read: {error.strerror}") from None
    try:
        found = typed.decode(text, type=FailedFile)
    except msgspec.DecodeError:
        raise SessionFailedError("", "unknown", f"{run.failed} is damaged") from None
    raise SessionFailedError(found.worker, found.error, found.message)
