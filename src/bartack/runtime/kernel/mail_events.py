"""Emits telemetry of messages: it notes every entry, and emits the events of it when the entry is durable.

An entry without a handler costs one lookup in a dictionary; without telemetry nothing at all. Events carry no payloads. Read
``run_events.py`` for events of workers and steps, ``monitor_events.py`` for those of monitors and links.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec
from msgspec import structs

from bartack.core import typed
from bartack.core.clock import Clock
from bartack.messaging import Mailbox, SendOutcome
from bartack.messaging.outcome import is_success
from bartack.messaging.post import Post
from bartack.runtime.kernel.monitor_events import MonitorEventEmitter
from bartack.runtime.kernel.run_events import RunEventEmitter
from bartack.runtime.state import entries as e
from bartack.runtime.state.run_state import State
from bartack.runtime.state.worker_state import Value
from bartack.telemetry import Event, Telemetry
from bartack.telemetry.catalogue import (
    BroadcastStop,
    DeadLetterAdded,
    DeadLetterExpired,
    DeadLetterPurged,
    DeadLetterRedelivered,
    DeadLetterRetried,
    MailboxDelivered,
    MailboxDropped,
    MailboxLevel,
    MailboxSent,
    SendException,
    SendRetry,
    SendStart,
    SendStop,
    TopicUnrouted,
)

LEVELS: Final = (50, 90)
"""Percents of a mailbox's capacity at which an event is emitted."""

TRACEPARENT: Final = "traceparent"
"""The key in a message's metadata that holds the trace that it belongs to."""
TRACEPARENT_CHARS: Final = 55
"""Its length. Senders may put anything there, and events carry no payloads."""

MAX_TYPE: Final = 64
_JSON_TYPES: Final = {
    b"{": "object",
    b"[": "array",
    b'"': "string",
    b"t": "boolean",
    b"f": "boolean",
    b"n": "null",
}
_LETTERS: Final[Mapping[str, type[DeadLetterExpired | DeadLetterPurged]]] = {
    "expired": DeadLetterExpired,
    "purged": DeadLetterPurged,
}


PendingEvent = Event | Callable[[], Event]
"""An event of an entry that is not durable yet, or what makes it when the entry is."""


class EventEmitter:
    """Makes events of entries."""

    def __init__(self, telemetry: Telemetry, state: State, clock: Clock) -> None:
        self._telemetry = telemetry
        self._state = state
        self._waiting: list[PendingEvent] = []
        self._last_sent: e.MessageSent | None = None
        """It may be handed over in the line that sends it, when the state does not have it yet."""
        self.run = RunEventEmitter(telemetry, state, clock, self._add)
        """Emits events of the run itself: workers, steps, processes and waits."""
        own: Mapping[type[e.EntryData], Callable[..., None]] = {
            e.MessageSent: self._sent,
            e.MessageTaken: self._taken,
            e.MessagesDrained: self._drained,
            e.MessageHeld: self._held,
            e.MessageMoved: self._moved,
            e.SendOpened: self._opened,
            e.SendTried: self._tried,
            e.SendSettled: self._settled,
            e.CastSettled: self._cast,
            e.LetterAdded: self._letter_added,
            e.LetterMoved: self._letter_moved,
        }
        tables = (own, MonitorEventEmitter(state, self._add).makers, self.run.makers)
        self._makers: Mapping[type[e.EntryData], tuple[Callable[..., None], ...]] = {
            kind: tuple(table[kind] for table in tables if kind in table)
            for kind in {kind for table in tables for kind in table}
        }

    def note(self, data: e.EntryData, at: int, value: Value) -> None:
        """An entry is about to be applied to the state."""
        for make in self._makers.get(type(data), ()):
            make(data, at, value)

    def take(self) -> list[PendingEvent]:
        """Take the events of all entries so far, to be emitted when these are durable."""
        waiting, self._waiting = self._waiting, []
        return waiting

    def emit(self, events: Sequence[PendingEvent]) -> None:
        """The entries of these events are durable."""
        for event in events:
            self._telemetry.emit(event if isinstance(event, Event) else event())

    # Traces.

    @property
    def traces(self) -> bool:
        """Whether spans are made of the events."""
        return self._telemetry.traces

    def stamp(self, items: Sequence[tuple[e.EntryData, Value]]) -> list[tuple[e.EntryData, Value]]:
        """Have messages carry the trace that they belong to, unless they carry one already."""
        return [(self._stamped(data, value), value) for data, value in items]

    def _stamped(self, data: e.EntryData, value: Value) -> e.EntryData:
        if isinstance(data, e.SendOpened) and TRACEPARENT not in data.terms.metadata:
            metadata = {**data.terms.metadata, **self._trace(self._start_of(data, data.terms.ack, value))}
            return structs.replace(data, terms=structs.replace(data.terms, metadata=metadata))
        return self.stamp_message(data, value) if isinstance(data, e.MessageSent) else data

    def stamp_message(self, data: e.MessageSent, value: Value) -> e.MessageSent:
        """As ``stamp``, for one message, before it is recorded."""
        if TRACEPARENT in data.metadata:
            return data
        supervised = data.step == "send_supervised" and bool(data.n)
        begin = self._start_of(data, "accepted", value) if supervised else self._sent_of(data, 0)
        return structs.replace(data, metadata={**data.metadata, **self._trace(begin)})

    def _trace(self, begin: Event) -> dict[str, str]:
        traceparent = self._telemetry.traceparent(begin)
        return {TRACEPARENT: traceparent} if traceparent else {}

    # Messages.

    def _sent(self, data: e.MessageSent, at: int, value: Value) -> None:
        self._last_sent = data
        mailbox = self._state.mailbox(data.mailbox)
        at_once = data.step == "send_supervised" and bool(data.n)
        if at_once:
            self._start(data, "accepted", value)
        if self._telemetry.wanted(MailboxSent):
            self._add(self._sent_of(data, len(mailbox) + (not data.not_before)))
        if self._telemetry.wanted(MailboxLevel) and not data.not_before:
            self._level(mailbox)
        if at_once:
            self._stop(SendStop, data.id, data.mailbox, 0, 1, "accepted", "accepted")

    def _level(self, mailbox: Mailbox) -> None:
        for percent in LEVELS:
            mark = mailbox.capacity * percent / 100
            if len(mailbox) < mark <= len(mailbox) + 1:
                self._add(
                    MailboxLevel(
                        queued=len(mailbox) + 1,
                        capacity=mailbox.capacity,
                        run=self._state.run_id,
                        mailbox=mailbox.name,
                        percent=percent,
                    )
                )

    def _taken(self, data: e.MessageTaken, at: int, value: Value) -> None:
        self._delivered(data.mailbox, data.id, data.p, at)

    def _drained(self, data: e.MessagesDrained, at: int, value: Value) -> None:
        for message_id in data.ids:
            self._delivered(data.mailbox, message_id, data.p, at)

    def _held(self, data: e.MessageHeld, at: int, value: Value) -> None:
        self._delivered(data.mailbox, data.id, data.by, at)

    def _delivered(self, name: str, message_id: str, receiver: str, at: int) -> None:
        oldest = self._state.mailbox(name).oldest()
        is_oldest = oldest is not None and oldest.id == message_id
        message = oldest if is_oldest else self._state.mailbox(name).find(message_id)
        if message is not None:
            sent_at, metadata = message.at, message.metadata
        elif self._last_sent is not None and self._last_sent.id == message_id:
            sent_at, metadata = at, self._last_sent.metadata
        else:
            return
        if self._telemetry.wanted(MailboxDelivered):
            self._add(
                MailboxDelivered(
                    wait_ns=max(at - sent_at, 0) * 1000,
                    run=self._state.run_id,
                    mailbox=name,
                    receiver=receiver,
                    message=message_id,
                    traceparent=str(metadata.get(TRACEPARENT, ""))[:TRACEPARENT_CHARS],
                )
            )
        letter = self._state.deliveries.letters.get(message_id)
        if letter is not None and letter.state == "retrying":
            self._letter(DeadLetterRedelivered, message_id, at)

    def _moved(self, data: e.MessageMoved, at: int, value: Value) -> None:
        if data.to not in {"dead", "dropped"}:
            return
        if data.reason == "overflow":
            policy = self._state.mailbox(data.mailbox).overflow
            self._add(MailboxDropped(count=1, run=self._state.run_id, mailbox=data.mailbox, policy=policy))
        if data.to == "dead":
            known = self._state.deliveries.letters.get(data.id)
            attempts = (known.attempts if known is not None else 0) + max(data.attempts, 1)
            self._added(data.mailbox, data.reason, attempts)

    # Supervised sends.

    def _opened(self, data: e.SendOpened, at: int, value: Value) -> None:
        self._start(data, data.terms.ack, value)

    def _tried(self, data: e.SendTried, at: int, value: Value) -> None:
        trial = self._state.deliveries.find(data.id)
        recipient = trial.mailbox if isinstance(trial, Post) else data.id
        self._add(
            SendRetry(
                attempt=data.attempt,
                delay_ns=max(data.due - at, 0) * 1000,
                run=self._state.run_id,
                send=data.id,
                recipient=recipient,
                reason=data.reason,
            )
        )

    def _settled(self, data: e.SendSettled, at: int, value: Value) -> None:
        post = self._state.deliveries.posts.get(data.id)
        if post is not None:
            event = SendStop if is_success(data.outcome) else SendException
            took_ns = max(at - post.opened_at, 0) * 1000
            ack, outcome = post.terms.ack, _name(data.outcome)
            self._stop(event, data.id, post.mailbox, took_ns, post.attempt, ack, outcome)

    def _start(self, data: e.MessageSent | e.SendOpened, ack: str, value: Value) -> None:
        if self._telemetry.wanted(SendStart):
            self._add(self._start_of(data, ack, value))

    def _start_of(self, data: e.MessageSent | e.SendOpened, ack: str, value: Value) -> SendStart:
        return SendStart(
            size_bytes=data.size,
            run=self._state.run_id,
            send=data.id,
            sender=data.sender,
            recipient=data.mailbox,
            message_type=message_type(value.raw),
            ack=ack,
        )

    def _sent_of(self, data: e.MessageSent, queued: int) -> MailboxSent:
        return MailboxSent(
            size_bytes=data.size,
            queued=queued,
            run=self._state.run_id,
            mailbox=data.mailbox,
            sender=data.sender,
            message=data.id,
            send=data.id if data.step == "send_supervised" and data.n else data.track,
        )

    def _stop(
        self,
        event: type[SendStop | SendException],
        send: str,
        recipient: str,
        took_ns: int,
        attempts: int,
        ack: str,
        outcome: str,
    ) -> None:
        if self._telemetry.wanted(event):
            self._add(
                event(
                    duration_ns=took_ns,
                    attempts=attempts,
                    run=self._state.run_id,
                    send=send,
                    recipient=recipient,
                    ack=ack,
                    outcome=outcome,
                )
            )

    def _cast(self, data: e.CastSettled, at: int, value: Value) -> None:
        cast = self._state.deliveries.casts.get(data.id)
        self._add(
            BroadcastStop(
                duration_ns=max(at - cast.opened_at, 0) * 1000 if cast is not None else 0,
                recipients=data.recipients,
                succeeded=data.succeeded,
                failed=data.failed,
                run=self._state.run_id,
                strategy=data.strategy,
                ok=data.ok,
                topic=data.topic,
            )
        )
        if data.topic and not data.recipients:
            self._add(TopicUnrouted(count=1, run=self._state.run_id, topic=data.topic))

    # Dead letters.

    def _letter_added(self, data: e.LetterAdded, at: int, value: Value) -> None:
        self._added(data.mailbox, data.reason, data.attempts)

    def _letter_moved(self, data: e.LetterMoved, at: int, value: Value) -> None:
        letter = self._state.deliveries.letters.get(data.message)
        if letter is None:
            return
        if data.to == "waiting":
            self._added(letter.mailbox, data.reason, letter.attempts + 1)
        elif data.to == "retrying":
            self._add(
                DeadLetterRetried(
                    attempts=letter.attempts,
                    age_ns=max(at - letter.first_failed_at, 0) * 1000,
                    run=self._state.run_id,
                    mailbox=letter.mailbox,
                    reason=letter.reason,
                    by=data.by,
                )
            )
        elif data.to in _LETTERS:
            self._letter(_LETTERS[data.to], data.message, at)

    def _added(self, mailbox: str, reason: str, attempts: int) -> None:
        self._add(DeadLetterAdded(attempts=attempts, run=self._state.run_id, mailbox=mailbox, reason=reason))

    def _letter(
        self,
        event: type[DeadLetterRedelivered | DeadLetterExpired | DeadLetterPurged],
        message_id: str,
        at: int,
    ) -> None:
        letter = self._state.deliveries.letters[message_id]
        self._add(
            event(
                attempts=letter.attempts,
                age_ns=max(at - letter.first_failed_at, 0) * 1000,
                run=self._state.run_id,
                mailbox=letter.mailbox,
                reason=letter.reason,
            )
        )

    def _add(self, event: Event | Callable[[], Event]) -> None:
        self._waiting.append(event)


class _Typed(msgspec.Struct):
    type: str = ""


def message_type(raw: msgspec.Raw | None) -> str:
    """What kind of message it is: its ``type``, if it has a short one; else its type in JSON. A blob is not read."""
    text = bytes(raw) if raw is not None else b""
    if not text:
        return "blob"
    if text.startswith(b"{"):
        with contextlib.suppress(msgspec.ValidationError):
            name = typed.decode(text, type=_Typed).type
            if 0 < len(name) <= MAX_TYPE:
                return name
    return _JSON_TYPES.get(text[:1], "number")


def _name(outcome: SendOutcome) -> str:
    return str(outcome.__struct_config__.tag)
