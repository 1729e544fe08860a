"""The requests of a session: each is built, checked and encoded here, once for both transports.

A ``HubCall`` is one request that can be sent. ``connection.py`` sends it and blocks; ``asynchronous/connection.py`` sends
it and awaits the answer. Neither knows what it asks for. The argument types that the hub reads are in ``protocol/requests.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Generic, NamedTuple, TypeVar

from bartack.core import typed
from bartack.core.clock import SystemClock
from bartack.errors import DeliveryOptionError
from bartack.messaging import BroadcastResult, SendOptions, SendOutcome
from bartack.messaging.mailboxes import mailbox_of
from bartack.messaging.options import Moment, Terms, check_metadata, check_options, moment_us
from bartack.messaging.outcome import Copy
from bartack.messaging.strategy import check_distinct, needed
from bartack.messaging.topic import check_pattern, check_topic
from bartack.runtime.protocol.durations import check_seconds
from bartack.runtime.protocol.requests import Request
from bartack.runtime.protocol.steps import Held, MailboxStats
from bartack.runtime.protocol.values import Codec, codec, encode

T = TypeVar("T")


class HubCall(NamedTuple, Generic[T]):
    """A request to a hub, ready to be sent."""

    do: str
    """What to ask for."""
    request: Request
    decode: Callable[[bytes], T]
    """Reads the answer."""
    value: bytes | None = None
    """The encoded value that the request carries, if it carries one."""


_OUTCOME: Final[Codec[SendOutcome]] = codec(SendOutcome)


def _to(kind: type[T]) -> Callable[[bytes], T]:
    return typed.decoder(kind).decode


def _names(data: bytes) -> list[str]:
    return sorted(_to(dict[str, object])(data))


def _ignore(_: bytes) -> None:
    """The answer only confirms that the request was executed."""


# Messages.


def send(
    mailbox: str,
    value: object,
    key: str | None = None,
    metadata: Mapping[str, object] | None = None,
    not_before: Moment | None = None,
) -> HubCall[str]:
    """Put a message into a mailbox; the answer is its id."""
    request = Request(
        mailbox=mailbox,
        not_before=moment_us("not_before", not_before, SystemClock().now_us()),
        key=key or "",
        metadata=check_metadata(metadata),
    )
    return HubCall("send", request, _to(str), encode(value))


def call(mailbox: str, value: object, timeout_s: float | None, kind: object = Any) -> HubCall[object]:
    """Send a message and wait for the reply, which is of this kind."""
    request = Request(mailbox=mailbox, timeout_s=check_limit(timeout_s))
    result: Codec[object] = codec(kind)
    return HubCall("call", request, result.decode, encode(value))


def reply(mailbox: str, message_id: str, value: object) -> HubCall[None]:
    """Reply to a message that was sent by ``call``."""
    return HubCall("reply", Request(mailbox=mailbox, id=message_id), _ignore, encode(value))


def send_supervised(mailbox: str, value: object, options: SendOptions) -> HubCall[SendOutcome]:
    """Send a message with retries and a deadline; the answer is what became of it."""
    request = Request(mailbox=mailbox, terms=_terms(options))
    return HubCall("send_supervised", request, _OUTCOME.decode, encode(value))


def broadcast(
    recipients: Iterable[str], value: object, strategy: str, options: SendOptions
) -> HubCall[BroadcastResult]:
    """Send a message to several mailboxes or workers."""
    if isinstance(recipients, str):
        raise DeliveryOptionError("recipients", f"must be a list, not one string: {recipients!r}")
    names = [mailbox_of(recipient) for recipient in recipients]
    check_distinct(names)
    needed(strategy, len(names))
    copies = [Copy(name, name) for name in names]
    request = Request(copies=copies, strategy=strategy, terms=_terms(options))
    return HubCall("broadcast", request, _to(BroadcastResult), encode(value))


def publish(topic: str, value: object, strategy: str, options: SendOptions) -> HubCall[BroadcastResult]:
    """Send a message to the subscribers of a topic."""
    needed(strategy, 0)
    terms = _terms(options)
    request = Request(topic=check_topic(topic), strategy=strategy, terms=terms)
    return HubCall("publish", request, _to(BroadcastResult), encode(value))


def _terms(options: SendOptions) -> Terms:
    return check_options(options, SystemClock().now_us()).terms


def receive(mailbox: str, timeout_s: float | None) -> HubCall[Held]:
    """Take the oldest message of a mailbox. It is held until it is acknowledged."""
    return HubCall("receive", Request(mailbox=mailbox, timeout_s=check_limit(timeout_s)), _to(Held))


def acknowledge(message_id: str, *, ok: bool = True) -> HubCall[None]:
    """Acknowledge a held message, or give it back."""
    return HubCall("ack", Request(id=message_id, ok=ok), _ignore)


def withdraw(mailbox: str, message_id: str) -> HubCall[bool]:
    """Take back a message that this process has sent."""
    return HubCall("withdraw", Request(mailbox=mailbox, id=message_id), _to(bool))


# Mailboxes.


def subscribe(mailbox: str, pattern: str, *, off: bool = False) -> HubCall[None]:
    """Subscribe a mailbox to the topics of a pattern, or end that subscription."""
    return HubCall("subscribe", Request(mailbox=mailbox, pattern=check_pattern(pattern), off=off), _ignore)


def close(mailbox: str) -> HubCall[None]:
    """Close a mailbox."""
    return HubCall("close", Request(mailbox=mailbox), _ignore)


def stats(mailbox: str) -> HubCall[MailboxStats]:
    """Count what is in a mailbox."""
    return HubCall("stats", Request(mailbox=mailbox), _to(MailboxStats))


def mailboxes() -> HubCall[list[str]]:
    """The names of all mailboxes, in order."""
    return HubCall("mailboxes", Request(), _names)


def fail(error: BaseException | str) -> HubCall[None]:
    """Fail the session."""
    text = error if isinstance(error, str) else f"{type(error).__name__}: {error}"
    return HubCall("fail", Request(message=text), _ignore)


# Checks that a caller makes itself.


def check_most(most: int | None) -> int:
    """The largest number of messages to drain.

    Raises:
        ValueError: It is negative.
    """
    if most is not None and most < 0:
        raise ValueError(f"max must not be negative: {most}")
    return 1 << 62 if most is None else most


def check_limit(timeout_s: float | None) -> float | None:
    """A time limit, or ``None`` for no limit.

    Raises:
        ValueError: It is negative, or longer than the longest duration.
    """
    return None if timeout_s is None else check_seconds(timeout_s)
