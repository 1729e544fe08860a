"""The one way into a mailbox: every message of a run is enqueued here, and only here is its ``MessageSent`` entry made.

What senders and receivers can rely on
--------------------------------------

*When a sender gets its answer, the message is durable.* ``Enqueue`` records the message and only then calls ``accepted``, which
answers the sender. The answer is a frame of the turn, and the hub sends the frames of a turn after it has committed the journal
(``kernel/turn.py``). So a message whose sender has its answer is in the journal, whichever process dies next. A sender that dies
before that does not know whether its message was sent. A worker learns it when it is restarted: the entry of the message is also
the outcome of its step (``p``, ``n``, ``fp``), so the journal has both or neither, and a step that has an outcome is not executed
again. A process outside gives its message a key, and sends it again.

*A key is one message.* If the mailbox knows the key of a message, the answer is the id of the first message with that key, and no
other message is recorded, even if the mailbox is closed or full by now. Sends that waited for room check the key again when they
enter, since another one may have entered before them.

*A message is delivered exactly once per acknowledgement.* A message leaves the queue by the entry that hands it over. If the
receiver does not hold it, this entry is the outcome of its step too: a worker that dies after that gets the message from its
history, and no other receiver gets it. If the receiver holds it, the message stays with the mailbox until the receiver acknowledges
it in another entry (``held.py``). If the receiver dies for good or gives it back before that, it returns to its place and is handed
over again, ``MAX_DELIVERIES`` times at most, after which it is a dead letter. So each acknowledgement in the journal belongs to one
hand-over, and a message that is acknowledged is not handed over again. What a receiver did with the message before it died is not
in the journal, and may happen again.

The contract
------------

``enqueue`` checks in this order, and the first check that applies decides:

1. size: over ``MAX_MESSAGE`` the message is ``Refused``;
2. key: known already, the message is ``Enqueued`` without another entry;
3. open: a closed mailbox, and the inbox of a worker that has ended or never was, refuse. A supervised message is also refused by a
   name whose worker has ended, since its sender is to learn that no worker receives it;
4. room: after the sends that wait for it already. Scheduled messages need none until they are due;
5. overflow, if there is no room: ``drop_oldest`` makes room, ``drop_newest`` makes the message itself a dead letter (which the
   sender of a plain message does not notice, while a call and a supervised send are refused), ``reject`` refuses, and ``block`` is
   ``MustWait``, except for a worker that would wait for room that only it can make.

``MustWait`` and ``Refused`` have recorded nothing about the message, so the caller may raise the error, record it as the outcome of
its step, or wait (``room.py``). When there is room, ``enter`` enqueues the message of a send that waited.

What differs between those who send is a field of ``Outgoing`` or an argument:

* a step ``send``: ``step``, because the entry is its outcome;
* a call: ``reply_to``, and ``before`` holds the entry that opens its step, so that a line has both or neither;
* a process outside: neither; its answer is sent when ``enqueue`` returns;
* a supervised send and a broadcast: ``supervised``, and ``track``, by which later moves of the message find the send. Messages that
  are pushed out for them go in the same line, since ``enqueue_all`` writes all copies of a broadcast in one line or none;
* monitors and links: ``system``, with an id of their own. None of the checks applies to them, since a full mailbox must not make a
  watcher miss the end of a worker. Monitors send nothing to a closed mailbox; a link sends to the inbox of a live worker;
* a dead letter: ``redeliver``, whose entry is a ``LetterMoved``, since the message is in the journal already.

If a receiver waits for the message of a step ``send``, the same line hands it over, and the message is never queued. Other messages
are queued, and the next line hands them over. Both lines are of the same turn, and share its commit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, Literal, NamedTuple, assert_never

import msgspec

from bartack.errors import (
    BartackError,
    MailboxClosedError,
    MailboxFullError,
    MailboxNameError,
    MessageTooLargeError,
)
from bartack.messaging import DeadLetter, Mailbox, Message, Overflow, Refusal
from bartack.messaging.mailboxes import MAX_MESSAGE
from bartack.runtime.kernel.desk import Desk, Shared
from bartack.runtime.kernel.mail.dead_letter_entry import DeadLetterEntries
from bartack.runtime.kernel.mail.observer import MailObservers
from bartack.runtime.kernel.mail.receive import Receive
from bartack.runtime.kernel.mail.room import Room
from bartack.runtime.kernel.mail.schedule import Schedule
from bartack.runtime.kernel.mail.waiters import Waiter
from bartack.runtime.protocol import frames as f
from bartack.runtime.state import entries as e
from bartack.runtime.state.worker_state import NO_VALUE, Value

Items = Sequence[tuple[e.EntryData, Value]]
"""Entries of one line, each with its value."""

Verdict = Literal[
    "fits", "push_out", "drop", "wait", "too_large", "closed", "no_receiver", "no_worker", "full"
]
"""What a mailbox does with a message."""

RefusalReason = Literal["drop", "too_large", "closed", "no_receiver", "no_worker", "full"]
"""Why a mailbox does not take a message."""


_ON_OVERFLOW: Final[Mapping[Overflow, Verdict]] = {
    "drop_oldest": "push_out",
    "drop_newest": "drop",
    "reject": "full",
    "block": "wait",
}


class Outgoing(msgspec.Struct, frozen=True, gc=False):
    """A message that is to be enqueued."""

    mailbox: str
    sender: str
    value: Value
    size: int
    key: str = ""
    metadata: dict[str, object] = {}
    not_before: int = 0
    topic: str = ""
    reply_to: str = ""
    """Where the reply to a call goes."""
    step: f.Step | None = None
    """The step whose outcome the entry is; of a call, the step that waits for the reply."""
    track: str = ""
    """The supervised send that the message belongs to."""
    supervised: bool = False
    system: bool = False
    id: str = ""
    """Its id, if that is not made of its place in the journal."""

    @property
    def is_plain(self) -> bool:
        """Whether it is the message of a step ``send``, to be received at once."""
        return self.step is not None and not (self.supervised or self.reply_to or self.not_before)


class Enqueued(msgspec.Struct, frozen=True, gc=False):
    """The message is in the journal: queued, handed over, or a dead letter because the mailbox drops new messages."""

    id: str
    seq: int = 0
    """The place of its entry in the journal."""
    known: bool = False
    """Whether it was there before, by its key: then nothing was recorded."""


class MustWait(msgspec.Struct, frozen=True, gc=False):
    """The mailbox is full and blocks: the sender may wait for room."""

    mailbox: str
    queued: int

    @property
    def error(self) -> MailboxFullError:
        """The error of a sender that does not wait, or waited in vain."""
        return MailboxFullError(self.mailbox, self.queued)


class Refused(msgspec.Struct, frozen=True, gc=False):
    """The mailbox does not take the message."""

    reason: RefusalReason
    error: BartackError

    @property
    def refusal(self) -> Refusal:
        """The reason as senders of supervised messages see it."""
        match self.reason:
            case "drop":
                return "full"
            case "no_worker":
                return "no_receiver"
            case _:
                return self.reason


Enqueuing = Enqueued | MustWait | Refused


class Batch(NamedTuple):
    """Messages that are enqueued together."""

    ids: list[str]
    """Their ids, in order. A message whose key is known has the id of the first one, and is not enqueued again."""
    items: Items
    mailboxes: list[Mailbox]
    gone: list[Message]
    """Messages that are pushed out for them."""


def _ignore(message_id: str) -> None:
    """The sender is answered when ``enqueue`` has returned."""


def _nothing() -> None:
    """The sender is answered when ``enqueue_all`` has returned."""


class Enqueue(Desk):
    """Puts messages into mailboxes."""

    def __init__(
        self,
        shared: Shared,
        room: Room,
        receive: Receive,
        schedule: Schedule,
        dead_letters: DeadLetterEntries,
        observers: MailObservers,
    ) -> None:
        super().__init__(shared)
        self._room = room
        self._receive = receive
        self._schedule = schedule
        self._dead_letters = dead_letters
        self._observers = observers

    def enqueue(
        self,
        message: Outgoing,
        accepted: Callable[[str], None] = _ignore,
        *,
        before: Items = (),
        after: Items = (),
    ) -> Enqueuing:
        """Put a message into its mailbox if that takes it.

        Args:
            message: The message.
            accepted: Called with the id of the message when it is recorded, before receivers are woken.
            before: Entries of the same line, before the message.
            after: Entries of the same line, after the message.
        """
        mailbox = self.state.mailbox(message.mailbox)
        if message.key and message.size <= MAX_MESSAGE:
            known = mailbox.id_for(message.key)
            if known is not None:
                return Enqueued(known, known=True)
        verdict = self._check(mailbox, message)
        match verdict:
            case "fits":
                return self._put(mailbox, message, accepted, before, after)
            case "push_out":
                if not message.supervised:
                    self._room.push_out(mailbox, message.size)
                return self._put(mailbox, message, accepted, before, after)
            case "drop" if not (message.supervised or message.reply_to):
                return self._drop(mailbox, message, accepted)
            case "wait":
                return MustWait(mailbox.name, len(mailbox))
            case "drop" | "too_large" | "closed" | "no_receiver" | "no_worker" | "full":
                return self._refused(message, verdict)
            case _:
                assert_never(verdict)

    def enter(self, message: Outgoing, accepted: Callable[[str], None] = _ignore) -> Enqueued:
        """Enqueue the message of a send that waited: there is room for it now."""
        mailbox = self.state.mailbox(message.mailbox)
        known = mailbox.id_for(message.key)
        if known is not None:
            return Enqueued(known, known=True)
        return self._put(mailbox, message, accepted)

    def prepare(self, messages: Sequence[Outgoing]) -> Batch:
        """Make the entries of messages to different mailboxes, each of which would take its message (``check``)."""
        first = self.turn.next_message()
        mailboxes = [self.state.mailbox(message.mailbox) for message in messages]
        gone: list[Message] = []
        items: list[tuple[e.EntryData, Value]] = []
        for mailbox, message in zip(mailboxes, messages, strict=True):
            gone += self._pushed_out(mailbox, message, items)
        ids: list[str] = []
        for mailbox, message in zip(mailboxes, messages, strict=True):
            known = mailbox.id_for(message.key)
            if known is None:
                sent = self._entry(message, first + len(items))
                items.append((sent, message.value))
                known = sent.id
            ids.append(known)
        return Batch(ids, items, mailboxes, gone)

    def enqueue_all(self, batch: Batch, after: Items = (), accepted: Callable[[], None] = _nothing) -> None:
        """Put all messages of a batch into their mailboxes, in one line.

        Args:
            batch: What ``prepare`` has made in the same turn, with nothing recorded since.
            after: The rest of the line.
            accepted: Called when the line is recorded, before receivers are woken.
        """
        if batch.items or after:  # otherwise all of them were sent before, by their keys
            self.turn.record(*batch.items, *after)
        accepted()
        self._report(batch.gone)
        for mailbox in batch.mailboxes:
            self._wake(mailbox)

    def redeliver(self, letter: DeadLetter, moved: e.LetterMoved) -> Enqueued | Refused:
        """Put a dead letter back into its mailbox; ``moved`` is the entry that does it."""
        mailbox = self.state.mailbox(letter.mailbox)
        message = Outgoing(letter.mailbox, letter.sender, NO_VALUE, letter.size, supervised=True)
        closed = self._check_open(mailbox, message)
        if closed is not None:
            return self._refused(message, closed)
        if not self._room.push_out(mailbox, letter.size):
            return self._refused(message, "full")
        seq = self.turn.record((moved, NO_VALUE))
        self._wake(mailbox)
        return Enqueued(letter.message_id, seq)

    def check(self, message: Outgoing) -> Verdict:
        """What the mailbox would do with a message now."""
        return self._check(self.state.mailbox(message.mailbox), message)

    # Taking back.

    def withdrawal(self, name: str, message_id: str, sender: str) -> e.MessageMoved | None:
        """The entry by which a sender takes back a message of its own, if no receiver has it."""
        message = self.state.mailbox(name).find(message_id)
        if message is None or message.sender != sender:
            return None
        return e.MessageMoved(mailbox=name, id=message_id, to="withdrawn")

    def withdraw(self, name: str, message_id: str, sender: str) -> bool:
        """Take back a message of the sender's own; returns whether no receiver had it."""
        moved = self.withdrawal(name, message_id, sender)
        if moved is None:
            return False
        self.turn.record((moved, NO_VALUE))
        self.left(name)
        return True

    def left(self, name: str) -> None:
        """A message that was taken back, or taken by its id, has left a mailbox."""
        self._observers.room_made(self.state.mailbox(name))

    # Inside.

    def _check(self, mailbox: Mailbox, message: Outgoing) -> Verdict:
        if message.system:
            return "fits"
        if message.size > MAX_MESSAGE:
            return "too_large"
        closed = self._check_open(mailbox, message)
        if closed is not None:
            return closed
        if message.not_before or self._room.has_room(mailbox, message.size, message.sender):
            return "fits"
        if mailbox.overflow == "block" and self._room.is_own(mailbox, message.sender):
            return "full"
        return _ON_OVERFLOW[mailbox.overflow]

    def _check_open(
        self, mailbox: Mailbox, message: Outgoing
    ) -> Literal["closed", "no_receiver", "no_worker"] | None:
        name, state = mailbox.name, self.state
        if message.supervised:
            if mailbox.closed:
                return "closed"
            return "no_receiver" if state.has_no_receiver(name) else None
        if not name.startswith("@"):
            return "closed" if mailbox.closed else None
        if state.is_closed(name):
            return "closed"
        return None if name[1:] in state.workers else "no_worker"

    def _refused(self, message: Outgoing, reason: RefusalReason) -> Refused:
        name = message.mailbox
        match reason:
            case "too_large":
                return Refused(reason, MessageTooLargeError("the message", message.size, MAX_MESSAGE))
            case "closed" | "no_receiver":
                return Refused(reason, MailboxClosedError(name))
            case "no_worker":
                return Refused(reason, MailboxNameError(name, "there is no worker of this path"))
            case "full" | "drop":
                return Refused(reason, MailboxFullError(name, len(self.state.mailbox(name))))
            case _:
                assert_never(reason)

    def _put(
        self,
        mailbox: Mailbox,
        message: Outgoing,
        accepted: Callable[[str], None],
        before: Items = (),
        after: Items = (),
    ) -> Enqueued:
        waiter = self._receive.first(mailbox)
        if waiter is not None and message.is_plain and not len(mailbox):
            return self._hand_over(mailbox, waiter, message, accepted)
        drops: list[tuple[e.EntryData, Value]] = []
        gone = self._pushed_out(mailbox, message, drops) if message.supervised else None
        sent = self._entry(message, self.turn.next_message() + len(drops))
        seq = self.turn.record(*before, *drops, (sent, message.value), *after) + len(before) + len(drops)
        accepted(sent.id)
        if gone:
            self._report(gone)
        if waiter is not None or message.not_before:
            self._wake(mailbox)
        return Enqueued(sent.id, seq)

    def _hand_over(
        self, mailbox: Mailbox, waiter: Waiter, message: Outgoing, accepted: Callable[[str], None]
    ) -> Enqueued:
        """Give a message to the receiver that waits for it, in the line that sends it; the mailbox stays empty."""
        turn, value = self.turn, message.value
        sent = self._entry(message, turn.next_message())
        if turn.emitter is not None and turn.emitter.traces:
            # Before the hand-over is made, since a receiver that holds the message is shown its metadata.
            sent = turn.emitter.stamp_message(sent, value)
        handed = Message(sent.id, 0, sent.sender, sent.size, 0, value.raw, value.ref, metadata=sent.metadata)
        handing = waiter.entry(handed)
        seq = turn.record((sent, value), handing)
        # The sender first: if it waits for a reply next, it asks for that before the reply comes, and both share a commit.
        accepted(sent.id)
        self._receive.handed_over(mailbox)
        waiter.given(handed, handing[1])
        return Enqueued(sent.id, seq)

    def _drop(self, mailbox: Mailbox, message: Outgoing, accepted: Callable[[str], None]) -> Enqueued:
        """A full mailbox drops its newest message: this one is a dead letter at once."""
        sent = self._entry(message, self.turn.next_message())
        dropped = self._dead_letters.of_id(mailbox.name, sent.id, "overflow")
        seq = self.turn.record((sent, message.value), (dropped, NO_VALUE))
        self._observers.message_moved(sent.id, "")
        accepted(sent.id)
        return Enqueued(sent.id, seq)

    def _pushed_out(
        self, mailbox: Mailbox, message: Outgoing, items: list[tuple[e.EntryData, Value]]
    ) -> list[Message]:
        """Add the entries that make room for a supervised message; returns the messages that go."""
        if message.not_before or mailbox.overflow != "drop_oldest":
            return []
        gone = mailbox.pushed_out(message.size)
        items += [
            (self._dead_letters.of_id(mailbox.name, dropped.id, "overflow"), NO_VALUE) for dropped in gone
        ]
        return gone

    def _report(self, gone: list[Message]) -> None:
        for message in gone:
            self._observers.message_moved(message.id, message.track)

    def _wake(self, mailbox: Mailbox) -> None:
        """A message is in a mailbox: receivers that wait for one are served, and one that is scheduled gets its timer."""
        if mailbox.scheduled:
            self._schedule.arm(mailbox)
        self._receive.serve(mailbox)

    def _entry(self, message: Outgoing, number: int) -> e.MessageSent:
        """The entry of a message; ``number``: no other message has it, since it is a place in the journal."""
        step = message.step
        p, n, fp = (step.p, step.n, step.fp) if step is not None else ("", 0, "")
        return e.MessageSent(
            mailbox=message.mailbox,
            id=message.id or f"m-{number}",
            size=message.size,
            sender=message.sender,
            key=message.key,
            metadata=message.metadata,
            not_before=message.not_before,
            reply_to=message.reply_to,
            p=p,
            n=n,
            fp=fp,
            # A default is left out of the journal only if it is this very literal.
            step=step.step if step is not None and message.supervised else "send",
            topic=message.topic,
            track=message.track,
        )


def size_of(value: Value) -> int:
    """How many bytes a message takes."""
    raw, ref = value.raw, value.ref
    return ref.size if ref is not None else len(bytes(raw)) if raw is not None else len(b"null")
