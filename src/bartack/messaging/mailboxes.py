"""The state of mailboxes: what is queued, scheduled, held and taken. Pure: it neither waits nor writes.

The journal decides; these methods are called in journal order, on the first run and on replay alike.
Waiting receivers and blocked senders are not state: they ask again after a restart.
"""

from __future__ import annotations

import re
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterator
from typing import Final, Literal, get_args

import msgspec

from bartack.errors import MailboxConfigError, MailboxNameError
from bartack.journal import BlobRef
from bartack.messaging.options import is_whole
from bartack.messaging.post import Note

CAPACITY: Final = 10_000
MAX_BYTES: Final = 64 * 1024 * 1024
MAX_DELIVERIES: Final = 5
MAX_MESSAGE: Final = 16 * 1024 * 1024

Overflow = Literal["block", "reject", "drop_oldest", "drop_newest"]

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
_PROCESS = re.compile(r"#[0-9]+$")


def check_name(name: str) -> None:
    """Raise unless a program may use a mailbox of this name.

    Raises:
        MailboxNameError: The name is malformed, or belongs to the system.
    """
    if _NAME.fullmatch(name):
        return
    if name.startswith("$"):
        raise MailboxNameError(name, "names that begin with '$' belong to the system")
    if name.startswith("@"):
        if len(name) < 2:
            raise MailboxNameError(name, "an inbox needs the path of its worker")
        if not is_whole(name):
            raise MailboxNameError(name, "it has half a surrogate pair in it")
        return
    raise MailboxNameError(name, "not a name of letters, digits, '_' and '-' that is at most 64 long")


def mailbox_of(recipient: str) -> str:
    """The mailbox that an address means: its own name, or the inbox of a worker's path (``main/7.2:analyst``).

    A process of a worker (``main/7.2:analyst#2``) is reached through its worker: whichever process that has now.

    Raises:
        MailboxNameError: It is not an address.
    """
    name = recipient
    if not name.startswith("@") and ("/" in name or ":" in name):
        name = f"@{name}"
    if name.startswith("@"):
        name = _PROCESS.sub("", name)
    check_name(name)
    return name


def check_bounds(name: str, capacity: object, max_bytes: object, overflow: object) -> None:
    """Raise unless a mailbox can have these bounds.

    Raises:
        MailboxConfigError: It cannot.
    """
    if not all(type(bound) is int and 0 < bound < 1 << 63 for bound in (capacity, max_bytes)):
        raise MailboxConfigError(name, "capacity and max_bytes must be whole numbers from 1 on")
    if overflow not in get_args(Overflow):
        allowed = ", ".join(get_args(Overflow))
        raise MailboxConfigError(name, f"overflow must be one of {allowed}, not {overflow!r}")


class Message(msgspec.Struct):
    """One message. ``order`` is its place in its mailbox, and stays when it is given back."""

    id: str
    order: int
    sender: str
    size: int
    at: int
    value: msgspec.Raw | None = None
    ref: BlobRef | None = None
    key: str = ""
    metadata: dict[str, object] = {}
    topic: str = ""
    reply_to: str = ""
    not_before: int = 0
    attempt: int = 0
    track: str = ""
    """The supervised send or the dead letter that it belongs to, if it does."""
    notes: list[Note] = []
    """What happened to it, if it was given back."""


class _Schedule:
    """Messages that wait for their time, the next one first."""

    def __init__(self) -> None:
        self._waiting: list[tuple[int, int, Message]] = []

    def __len__(self) -> int:
        return len(self._waiting)

    def __iter__(self) -> Iterator[Message]:
        return (message for _, _, message in self._waiting)

    def add(self, message: Message) -> None:
        """Let a message wait until its ``not_before``."""
        insort(self._waiting, (message.not_before, message.order, message))

    def next_due(self) -> int | None:
        """When the next message is due."""
        return self._waiting[0][0] if self._waiting else None

    def remove(self, message_id: str) -> Message | None:
        """Take a message out."""
        for index, message in enumerate(self):
            if message.id == message_id:
                del self._waiting[index]
                return message
        return None


class Mailbox:
    """A named FIFO and its bounds."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.capacity = CAPACITY
        self.max_bytes: int = MAX_BYTES
        self.overflow: Overflow = "block"
        self.declared = False
        self.closed = False
        self.size_bytes = 0
        self.sent = 0
        self.delivered = 0
        self.dropped = 0
        self.patterns: list[str] = []
        """The topics that it is subscribed to."""
        self.owner = ""
        """The worker that registered it as its name: no other worker receives from it while that lives."""
        self.incarnation = 0
        """How many workers have registered it so far."""
        self._queue: deque[Message] = deque()
        self._scheduled = _Schedule()
        self._held: dict[str, Message] = {}
        self._keys: dict[str, str] = {}

    def __len__(self) -> int:
        return len(self._queue)

    @property
    def scheduled(self) -> int:
        """How many messages wait for their time."""
        return len(self._scheduled)

    @property
    def held(self) -> int:
        """How many messages are with a receiver that has not acknowledged them."""
        return len(self._held)

    def oldest(self) -> Message | None:
        """The message that is received next."""
        return self._queue[0] if self._queue else None

    def queued(self) -> list[Message]:
        """The queued messages, in order."""
        return list(self._queue)

    def id_for(self, key: str) -> str | None:
        """The id of the message that was sent with this key, if one was."""
        return self._keys.get(key) if key else None

    def has_room(self, size: int) -> bool:
        """Whether one more message of this size fits within the bounds."""
        if not self._queue:
            return True
        return len(self._queue) < self.capacity and self.size_bytes + size <= self.max_bytes

    def declare(self, capacity: int, max_bytes: int, overflow: Overflow) -> None:
        """Set the bounds; the first declaration stands.

        Raises:
            MailboxConfigError: See ``check_declaration``.
        """
        self.check_declaration(capacity, max_bytes, overflow)
        self.capacity, self.max_bytes, self.overflow = capacity, max_bytes, overflow
        self.declared = True

    def check_declaration(self, capacity: int, max_bytes: int, overflow: Overflow) -> None:
        """Raise unless a mailbox can be declared with these bounds.

        Raises:
            MailboxConfigError: They are invalid, or it was declared differently before.
        """
        check_bounds(self.name, capacity, max_bytes, overflow)
        if self.declared and (capacity, max_bytes, overflow) != (
            self.capacity,
            self.max_bytes,
            self.overflow,
        ):
            now = f"capacity={self.capacity}, max_bytes={self.max_bytes}, overflow={self.overflow!r}"
            raise MailboxConfigError(self.name, f"it was declared before with {now}")

    def put(self, message: Message) -> None:
        """A message was sent."""
        self.sent += 1
        if message.key:
            self._keys[message.key] = message.id
        if message.not_before:
            self._scheduled.add(message)
        else:
            self._enqueue(message)

    def reserve(self, key: str, message_id: str) -> None:
        """A message with this key is a dead letter that was never here: it may come yet, and no other one has its key."""
        if key:
            self._keys.setdefault(key, message_id)

    def take(self, message_id: str) -> Message | None:
        """A message was handed over for good: received, drained or acknowledged."""
        message = self._held.pop(message_id, None) or self._remove(message_id)
        if message is not None:
            self.delivered += 1
        return message

    def hold(self, message_id: str, attempt: int) -> Message | None:
        """A message was handed over and is to be acknowledged."""
        message = self._remove(message_id)
        if message is not None:
            message.attempt = attempt
            self._held[message_id] = message
        return message

    def holding(self, message_id: str) -> Message | None:
        """A held message."""
        return self._held.get(message_id)

    def give_back(self, message_id: str) -> Message | None:
        """A held message returns to its old place."""
        message = self._held.pop(message_id, None)
        if message is not None:
            self._enqueue(message)
        return message

    def drop(self, message_id: str) -> Message | None:
        """A message is gone without having been received: withdrawn, expired or pushed out."""
        message = (
            self._held.pop(message_id, None) or self._remove(message_id) or self._scheduled.remove(message_id)
        )
        if message is not None:
            self.dropped += 1
        return message

    def withdraw(self, message_id: str) -> Message | None:
        """A message was taken back by its sender: its key is free again."""
        message = self.drop(message_id)
        if message is not None and self._keys.get(message.key) == message_id:
            del self._keys[message.key]
        return message

    def pushed_out(self, size: int) -> list[Message]:
        """The oldest messages that must go to make room for one of this size."""
        gone: list[Message] = []
        count, held = len(self._queue), self.size_bytes
        for message in self._queue:
            if not count or (count < self.capacity and held + size <= self.max_bytes):
                break
            gone.append(message)
            count, held = count - 1, held - message.size
        return gone

    def is_scheduled(self, message_id: str) -> bool:
        """Whether a message waits for its time."""
        return any(message.id == message_id for message in self._scheduled)

    def find(self, message_id: str) -> Message | None:
        """A message that is queued or scheduled."""
        return next((m for m in (*self._queue, *self._scheduled) if m.id == message_id), None)

    def due(self, now: int) -> Message | None:
        """The next scheduled message whose time has come and for which there is room."""
        message = next(iter(self._scheduled), None)
        if message is None or message.not_before > now:
            return None
        return message if self.has_room(message.size) or self.overflow != "block" else None

    def next_due(self) -> int | None:
        """When the next scheduled message is due."""
        return self._scheduled.next_due()

    def release(self, message_id: str, order: int) -> Message | None:
        """A scheduled message came due: it goes to the end of the queue."""
        message = self._scheduled.remove(message_id)
        if message is not None:
            message.order = order
            message.not_before = 0
            self._enqueue(message)
        return message

    def close(self) -> None:
        """No more messages are taken; those that are there can still be received."""
        self.closed = True
        self.patterns = []

    def subscribe(self, pattern: str) -> None:
        """It gets what is published to the topics of a pattern."""
        if pattern not in self.patterns:
            self.patterns.append(pattern)

    def unsubscribe(self, pattern: str) -> None:
        """It gets no more of what is published to the topics of a pattern."""
        if pattern in self.patterns:
            self.patterns.remove(pattern)

    def register(self, owner: str) -> None:
        """A worker made it its name."""
        self.owner = owner
        self.incarnation += 1

    def _enqueue(self, message: Message) -> None:
        self.size_bytes += message.size
        queue = self._queue
        if not queue or queue[-1].order < message.order:
            queue.append(message)
            return
        queue.insert(bisect_left(queue, message.order, key=lambda queued: queued.order), message)

    def _remove(self, message_id: str) -> Message | None:
        queue = self._queue
        if queue and queue[0].id == message_id:
            message = queue.popleft()
        else:
            found = next((m for m in queue if m.id == message_id), None)
            if found is None:
                return None
            queue.remove(found)
            message = found
        self.size_bytes -= message.size
        return message
