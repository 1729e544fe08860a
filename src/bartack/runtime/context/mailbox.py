"""Mailboxes as a worker uses them: every operation is a step.

The queues themselves are the hub's (``bartack.messaging``, ``kernel/mail/enqueue.py``).
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Final, TypeVar, Unpack, overload

import msgspec

from bartack.core import typed
from bartack.errors import MailboxNameError
from bartack.messaging import Overflow, SendOptions, SendOutcome
from bartack.messaging.mailboxes import CAPACITY, MAX_BYTES, check_bounds, check_name
from bartack.messaging.options import check_options
from bartack.messaging.topic import check_pattern
from bartack.runtime.context.part import Seconds, encode_args, limit_here, moment_of, nothing, seconds_of
from bartack.runtime.protocol import steps as s
from bartack.runtime.protocol.values import PLAIN, Buffer, Codec, codec, encode
from bartack.runtime.scheduler.operations import StepOp
from bartack.runtime.scheduler.scheduler import Scheduler

T = TypeVar("T")

_decode_held: Final = typed.decoder(s.Held).decode
_decode_outcome: Final[Callable[[Buffer], SendOutcome]] = typed.decoder(SendOutcome).decode
_decode_stats: Final = typed.decoder(s.MailboxStats).decode
_TEXT: Final[Codec[str]] = codec(str)
_FLAG: Final[Codec[bool]] = codec(bool)
_LIST: Final[Codec[list[object]]] = codec(list[object])


class Mailbox:
    """A named queue of messages, shared by all workers of the run."""

    def __init__(self, scheduler: Scheduler, name: str) -> None:
        check_name(name)
        self.name = name
        self._scheduler = scheduler
        self._message = f"a message to {name}"
        # Nearly all messages are sent without options: what is asked is the same each time.
        self._plain = encode_args(s.SendArgs(mailbox=name)), encode([name, None, None, None])

    def send(
        self,
        value: object,
        *,
        key: str | None = None,
        metadata: Mapping[str, object] | None = None,
        not_before: datetime.datetime | Seconds | None = None,
    ) -> StepOp[str]:
        """Put a message in; durable when it returns. Waits while the mailbox is full.

        Args:
            value: The message.
            key: The same key in one mailbox is one message: the first.
            metadata: Goes with the message.
            not_before: When it can be received at the earliest: a moment, or seconds from when it is sent.

        Returns:
            The id of the message.
        """
        args, written = self._plain
        if key is not None or metadata is not None or not_before is not None:
            args, written = self._with_options(key, metadata, not_before)
        data = encode(value, self._message)
        self._scheduler.check_here("mailbox.send")
        return StepOp("send", args, _TEXT.decode, about=self.name, value=data, written=written)

    def _with_options(
        self,
        key: str | None,
        metadata: Mapping[str, object] | None,
        not_before: datetime.datetime | Seconds | None,
    ) -> tuple[bytes, bytes]:
        """What a send is asked with options, and what was written for that."""
        args = s.SendArgs(mailbox=self.name, key=key or "", metadata=dict(metadata or {}))
        if isinstance(not_before, datetime.datetime):
            args = msgspec.structs.replace(args, not_before=moment_of(not_before))
        elif not_before is not None:
            due = self._scheduler.entropy.now_us() + int(seconds_of(not_before, "not_before") * 1e6)
            args = msgspec.structs.replace(args, not_before=due)
        return encode_args(args), encode([self.name, key, metadata, not_before])

    def send_supervised(self, value: object, **options: Unpack[SendOptions]) -> StepOp[SendOutcome]:
        """Send a message and see to it that it arrives; see ``ctx.send_supervised``.

        Raises:
            DeliveryError: It was not delivered as asked, and ``on_error`` is ``raise``; ``outcome`` has the reason.
            DeliveryOptionError: An option cannot be used.
        """
        return send_supervised(self._scheduler, self.name, value, options)

    @overload
    def receive(self, timeout_s: Seconds | None = None) -> StepOp[object]: ...
    @overload
    def receive(self, timeout_s: Seconds | None = None, *, type: type[T]) -> StepOp[T]: ...
    def receive(self, timeout_s: Seconds | None = None, *, type: object = None) -> StepOp[object]:  # noqa: A002 - the name that annotations have everywhere
        """Take the oldest message.

        Args:
            timeout_s: How long to wait; 0: not at all; ``None``: the default, which stands still while others work.
            type: What the message must be.

        Raises:
            ReceiveTimeoutError: None came in time.
            TypeMismatchError: The message is something else. It is taken.
        """
        kind = PLAIN if type is None else codec(type)
        return self._step("receive", self._receive_args(timeout_s), kind.decode)

    def delivery(self, timeout_s: Seconds | None = None) -> Delivery:
        """Take the oldest message for the time of an ``async with`` block: left by an exception, it goes back."""
        return Delivery(self, timeout_s)

    def call(self, value: object, timeout_s: Seconds | None = None) -> StepOp[object]:
        """Send a message and wait for the reply to it."""
        limit = limit_here(self._scheduler, "call", timeout_s)
        args = s.CallMailboxArgs(mailbox=self.name, timeout_s=limit)
        return self._step("call", args, PLAIN.decode, encode(value, self._message))

    def withdraw(self, message_id: str) -> StepOp[bool]:
        """Take back a message of one's own; ``False`` if it is gone already."""
        return self._step("withdraw", s.WithdrawArgs(mailbox=self.name, id=message_id), _FLAG.decode)

    def drain(self, max: int | None = None) -> StepOp[list[object]]:  # noqa: A002 - the plain word
        """Take everything that is there now, or at most ``max`` messages; never waits.

        Raises:
            ValueError: ``max`` is negative.
        """
        if max is not None and max < 0:
            raise ValueError(f"max must not be negative: {max}")
        return self._step("drain", s.DrainArgs(mailbox=self.name, max=max), _LIST.decode)

    def close(self) -> StepOp[None]:
        """Take no more messages; those that are there can still be received."""
        return self._step("close", s.MailboxArgs(mailbox=self.name), nothing)

    def subscribe(self, pattern: str) -> StepOp[None]:
        """Get what is published from now on to the topics of a pattern: in it ``*`` is one word, a last ``**`` any number.

        Raises:
            TopicNameError: The pattern is invalid.
            MailboxClosedError: The mailbox is closed.
        """
        args = s.TopicArgs(mailbox=self.name, pattern=check_pattern(pattern))
        return self._step("subscribe", args, nothing)

    def unsubscribe(self, pattern: str) -> StepOp[None]:
        """Get no more of what is published to the topics of a pattern."""
        args = s.TopicArgs(mailbox=self.name, pattern=check_pattern(pattern))
        return self._step("unsubscribe", args, nothing)

    def stats(self) -> StepOp[s.MailboxStats]:
        """Counts of the mailbox."""
        return self._step("stats", s.MailboxArgs(mailbox=self.name), _decode_stats)

    def hold(self, timeout_s: Seconds | None) -> StepOp[s.Held]:
        """Take the oldest message, to be acknowledged."""
        return self._step("receive", self._receive_args(timeout_s, hold=True), _decode_held)

    def settle(self, message_id: str, *, ok: bool, reason: str = "") -> StepOp[None]:
        """Acknowledge a held message, or give it back."""
        args = s.AckArgs(mailbox=self.name, id=message_id, ok=ok, reason=reason)
        return self._step("ack" if ok else "nack", args, nothing)

    def answer(self, message_id: str, value: object) -> StepOp[None]:
        """Reply to a held message."""
        data = encode(value, f"a reply from {self.name}")
        return self._step("reply", s.ReplyArgs(mailbox=self.name, id=message_id), nothing, data)

    def _receive_args(self, timeout_s: Seconds | None, *, hold: bool = False) -> s.ReceiveArgs:
        limit = limit_here(self._scheduler, "receive", timeout_s)
        return s.ReceiveArgs(mailbox=self.name, timeout_s=limit, hold=hold)

    def _step(
        self,
        step: str,
        args: s.MailboxArgs,
        decode: Callable[[Buffer], T],
        value: bytes | None = None,
    ) -> StepOp[T]:
        self._scheduler.check_here(f"mailbox.{step}")
        return StepOp(step, encode_args(args), decode, about=self.name, value=value)

    def __repr__(self) -> str:
        return f"<mailbox {self.name}>"


def send_supervised(
    scheduler: Scheduler, name: str, value: object, options: SendOptions
) -> StepOp[SendOutcome]:
    """The step that sends a message and sees to it that it arrives."""
    scheduler.check_here("send_supervised")
    checked = check_options(options, scheduler.entropy.now_us())
    data = encode(value, f"a message to {name}")
    args = encode_args(s.SuperviseArgs(mailbox=name, terms=checked.terms))
    written = encode_args([name, checked.written])
    return StepOp("send_supervised", args, _decode_outcome, about=name, value=data, written=written)


class Delivery:
    """A message that is held while it is worked on. A clean exit acknowledges it, an exception gives it back."""

    def __init__(self, mailbox: Mailbox, timeout_s: Seconds | None) -> None:
        self._mailbox = mailbox
        self._timeout_s = timeout_s
        self._held = s.Held("", msgspec.Raw(b"null"))

    @property
    def value(self) -> object:
        """The message."""
        return PLAIN.decode(self._held.value)

    @property
    def id(self) -> str:
        """Its id."""
        return self._held.id

    @property
    def sender(self) -> str:
        """The path of the worker that sent it, or what a process outside is called."""
        return self._held.sender

    @property
    def attempt(self) -> int:
        """How often it was handed over."""
        return self._held.attempt

    @property
    def topic(self) -> str:
        """The topic it was published to, if it was."""
        return self._held.topic

    @property
    def metadata(self) -> dict[str, object]:
        """What was sent with it."""
        return self._held.metadata

    def reply(self, value: object) -> StepOp[None]:
        """Answer a message that was sent by ``call``."""
        return self._mailbox.answer(self.id, value)

    async def __aenter__(self) -> Delivery:
        """Wait for a message."""
        self._held = await self._mailbox.hold(self._timeout_s)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Acknowledge the message, or give it back."""
        if isinstance(error, GeneratorExit):
            return  # the worker is not run any more
        reason = "" if error is None else type(error).__name__
        await self._mailbox.settle(self.id, ok=error is None, reason=reason)


class Mailroom:
    """The mailboxes of a run, by name. A mailbox exists from its first use on."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._mailboxes: dict[str, Mailbox] = {}

    def get(self, name: str) -> Mailbox:
        """The mailbox of this name.

        Raises:
            MailboxNameError: No mailbox can have this name.
        """
        found = self._mailboxes.get(name)
        if found is None:
            found = self._mailboxes[name] = Mailbox(self._scheduler, name)
        return found

    def names(self) -> list[str]:
        """The mailboxes that this worker has named so far."""
        return sorted(self._mailboxes)

    def declare(
        self,
        name: str,
        *,
        capacity: int = CAPACITY,
        max_bytes: int = MAX_BYTES,
        overflow: Overflow = "block",
    ) -> StepOp[None]:
        """Set the bounds of a mailbox; the first declaration stands.

        Raises:
            MailboxConfigError: It was declared before, differently, or no mailbox can have these bounds.
        """
        self._scheduler.check_here("mailbox.declare")
        check_name(name)
        check_bounds(name, capacity, max_bytes, overflow)
        args = s.DeclareArgs(mailbox=name, capacity=capacity, max_bytes=max_bytes, overflow=overflow)
        return StepOp("declare", encode_args(args), nothing, about=name)

    def __getitem__(self, name: str) -> Mailbox:
        return self.get(name)

    def __getattr__(self, name: str) -> Mailbox:
        if name.startswith("_"):
            raise AttributeError(name)
        try:
            found = self.get(name)
        except MailboxNameError as error:
            raise AttributeError(str(error)) from None
        setattr(self, name, found)  # from now on an attribute like others, which is found without asking here
        return found
