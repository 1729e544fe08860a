"""Mailboxes and deliveries as a Patchwork program uses them: every operation is a step, times are milliseconds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, Protocol, TypedDict, TypeVar, cast

from bartack.errors import ReceiveTimeoutError, TypeMismatchError
from bartack.runtime.context.mailbox import Mailbox
from bartack.runtime.patchwork._values import (
    decoded,
    integer,
    is_number,
    is_object,
    mismatch,
    number,
    number_text,
    plain,
    received,
    text,
)
from bartack.runtime.protocol.durations import LONGEST_S
from bartack.runtime.protocol.steps import Held
from bartack.runtime.scheduler.operations import Op
from bartack.runtime.scheduler.results import ShellResult

if TYPE_CHECKING:
    from bartack.messaging import SendOptions

T = TypeVar("T")


class _Simple(TypedDict, total=False):
    """The options that a plain send knows."""

    key: str
    metadata: Mapping[str, object]
    not_before: float


class Performer(Protocol):
    """Performs steps for values that have some."""

    def perform(self, operation: Op[T]) -> T:
        """Perform an operation at the site of the caller."""
        ...

    def hold(self, delivery: DeliveryValue | None) -> None:
        """The worker has taken a delivery; the one before is done."""
        ...


def milliseconds(value: object, what: str) -> float:
    """A duration in milliseconds, as seconds.

    Raises:
        TypeMismatchError: It is not a number, negative, or longer than anything lasts.
    """
    if not is_number(value):
        raise mismatch(what, "milliseconds", value)
    if value < 0:
        raise TypeMismatchError(what, "milliseconds, at least 0", str(value))
    if value > LONGEST_S * 1000:
        longest = number_text(number(LONGEST_S * 1000))
        raise TypeMismatchError(what, f"at most {longest} milliseconds", number_text(value))
    return value / 1000


def options_of(value: object, what: str, known: frozenset[str]) -> Mapping[str, object]:
    """The options of a call.

    Raises:
        TypeMismatchError: It is not an object, or has an unknown option.
    """
    if value is None:
        return {}
    if not is_object(value):
        raise mismatch(f"the options of {what}", "an object", value)
    unknown = [key for key in value if key not in known]
    if unknown:
        raise TypeMismatchError(
            f"the options of {what}", f"one of {', '.join(sorted(known))}", repr(unknown[0])
        )
    return value


_TIMES: Final = {"timeout_ms": "timeout_s", "not_before_ms": "not_before", "deadline_ms": "deadline"}
_WORDS: Final = ("ack", "key", "on_error")
SEND_OPTIONS: Final = frozenset({*_TIMES, *_WORDS, "retries", "metadata"})
"""The options of a send; times are milliseconds, moments are milliseconds from now."""


def send_options(value: Mapping[str, object], what: str) -> SendOptions:
    """The options of a send, as the runtime knows them.

    Raises:
        TypeMismatchError: One has a wrong value.
    """
    made: dict[str, object] = {}
    for name, given in value.items():
        place = f"the option {name} of {what}"
        if name in _TIMES:
            made[_TIMES[name]] = milliseconds(given, place)
        elif name == "retries":
            made[name] = integer(given, place)
        elif name == "metadata":
            if not is_object(given):
                raise mismatch(place, "an object", given)
            made[name] = plain(given)
        else:
            made[name] = string_of(given, place)
    return cast("SendOptions", made)


def string_of(value: object, what: str) -> str:
    """A value that must be a string.

    Raises:
        TypeMismatchError: It is something else.
    """
    if not isinstance(value, str | ShellResult):
        raise mismatch(what, "string", value)
    return text(value)


def _maybe_ms(value: object, what: str) -> float | None:
    return None if value is None else milliseconds(value, what)


class MailboxValue:
    """A mailbox."""

    kind_name: Final = "mailbox"

    def __init__(self, performer: Performer, mailbox: Mailbox) -> None:
        self._performer = performer
        self.mailbox = mailbox

    def member(self, name: str) -> object:
        """It has no properties."""
        raise TypeMismatchError("a mailbox", f"a method call for {name!r}", "a property")

    def call_method(self, name: str, arguments: tuple[object, ...]) -> object:
        """Send, receive and the like."""
        method = _METHODS.get(name)
        if method is None:
            raise TypeMismatchError("a mailbox", f"one of {', '.join(_METHODS)}", repr(name))
        run, least, most = method
        if not least <= len(arguments) <= most:
            raise TypeMismatchError(f"{name}()", f"{least} to {most} arguments", str(len(arguments)))
        return run(self, *arguments)

    def send(self, value: object, options: object = None) -> None:
        """Put a message in; with options that ask for more, see to it that it arrives."""
        given = options_of(options, "send()", SEND_OPTIONS)
        made = send_options(given, "send()")
        message = plain(value)
        if set(given) <= _SIMPLE_OPTIONS:
            simple = cast("_Simple", made)
            self._performer.perform(self.mailbox.send(message, **simple))
        else:
            self._performer.perform(self.mailbox.send_supervised(message, **made))

    def subscribe(self, pattern: object) -> None:
        """Get what is published to the topics of a pattern."""
        self._performer.perform(self.mailbox.subscribe(string_of(pattern, "the pattern of subscribe()")))

    def unsubscribe(self, pattern: object) -> None:
        """Get no more of it."""
        self._performer.perform(self.mailbox.unsubscribe(string_of(pattern, "the pattern of unsubscribe()")))

    def receive(self, timeout_ms: object = None) -> object:
        """Take the oldest message."""
        limit = _maybe_ms(timeout_ms, "the timeout of receive()")
        return received(self._waited(self.mailbox.receive(limit)))

    def call(self, value: object, timeout_ms: object = None) -> object:
        """Send a message and wait for the reply."""
        limit = _maybe_ms(timeout_ms, "the timeout of call()")
        return received(self._waited(self.mailbox.call(plain(value), limit)))

    def delivery(self, timeout_ms: object = None) -> DeliveryValue:
        """Take the oldest message, to be acknowledged."""
        limit = _maybe_ms(timeout_ms, "the timeout of delivery()")
        self._performer.hold(None)
        held = self._waited(self.mailbox.hold(limit))
        delivery = DeliveryValue(self._performer, self.mailbox, held)
        self._performer.hold(delivery)
        return delivery

    def _waited(self, operation: Op[T]) -> T:
        """Wait for a message; the error of a timeout has the units of the language."""
        try:
            return self._performer.perform(operation)
        except ReceiveTimeoutError as error:
            waited = number_text(number(round(error.waited_s * 1000, 3)))
            error.message = f"Mailbox receive timeout after {waited}ms: {self.mailbox.name}"
            error.args = (error.message,)
            raise


_SIMPLE_OPTIONS: Final = frozenset({"key", "metadata", "not_before_ms"})
_METHODS: Final[Mapping[str, tuple[Callable[..., object], int, int]]] = {
    "send": (MailboxValue.send, 1, 2),
    "receive": (MailboxValue.receive, 0, 1),
    "call": (MailboxValue.call, 1, 2),
    "delivery": (MailboxValue.delivery, 0, 1),
    "subscribe": (MailboxValue.subscribe, 1, 1),
    "unsubscribe": (MailboxValue.unsubscribe, 1, 1),
}


class DeliveryValue:
    """A message that is held until it is acknowledged or given back."""

    kind_name: Final = "delivery"

    def __init__(self, performer: Performer, mailbox: Mailbox, held: Held) -> None:
        self._performer = performer
        self._mailbox = mailbox
        self._held = held
        self._value = decoded(held.value)
        self._settled = False

    def member(self, name: str) -> object:
        """What is known of the message."""
        match name:
            case "value":
                return self._value
            case "id":
                return self._held.id
            case "sender":
                return self._held.sender
            case "attempt":
                return self._held.attempt
            case "topic":
                return self._held.topic
            case "metadata":
                return received(self._held.metadata)
            case _:
                raise TypeMismatchError(
                    "a delivery", "value, id, sender, attempt, topic or metadata", repr(name)
                )

    def call_method(self, name: str, arguments: tuple[object, ...]) -> object:
        """Reply to it, acknowledge it, give it back."""
        if name == "reply" and len(arguments) == 1:
            self._performer.perform(self._mailbox.answer(self._held.id, plain(arguments[0])))
        elif name == "ack" and not arguments:
            self.settle(ok=True)
        elif name == "nack" and not arguments:
            self.settle(ok=False, reason="nack")
        else:
            raise TypeMismatchError(
                "a delivery", "reply(value), ack() or nack()", f"{name}() with {len(arguments)} arguments"
            )
        return None

    def settle(self, *, ok: bool, reason: str = "") -> None:
        """Acknowledge the message, or give it back, unless that was done."""
        if not self._settled:
            self._settled = True
            self._performer.perform(self._mailbox.settle(self._held.id, ok=ok, reason=reason))
