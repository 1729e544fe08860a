"""Mailboxes and deliveries as a Patchwork program uses them: every operation is a step, times are milliseconds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, Protocol, TypeVar

from bartack.errors import ReceiveTimeoutError, TypeMismatchError
from bartack.runtime._mailbox_client import Mailbox
from bartack.runtime._op import Op
from bartack.runtime._steps import Held
from bartack.runtime.patchwork._values import (
    decoded,
    is_number,
    is_object,
    mismatch,
    number,
    number_text,
    plain,
    received,
)

T = TypeVar("T")


class Performer(Protocol):
    """Performs steps for values that have some."""

    def perform(self, op: Op[T]) -> T:
        """Perform an operation at the site of the caller."""
        ...

    def hold(self, delivery: DeliveryValue | None) -> None:
        """The worker has taken a delivery; the one before is done."""
        ...


def milliseconds(value: object, what: str) -> float:
    """A duration in milliseconds, as seconds.

    Raises:
        TypeMismatchError: It is no number, or negative.
    """
    if not is_number(value):
        raise mismatch(what, "milliseconds", value)
    if value < 0:
        raise TypeMismatchError(what, "milliseconds, at least 0", str(value))
    return value / 1000


def options_of(value: object, what: str, known: frozenset[str]) -> Mapping[str, object]:
    """The options of a call.

    Raises:
        TypeMismatchError: It is no object, or has an option that is not known.
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
        """Put a message in."""
        given = options_of(options, "send()", _SEND_OPTIONS)
        key, metadata = given.get("key"), given.get("metadata")
        if not isinstance(key, str | None):
            raise mismatch("the option key of send()", "string", key)
        if metadata is not None and not is_object(metadata):
            raise mismatch("the option metadata of send()", "an object", metadata)
        self._performer.perform(
            self.mailbox.send(
                plain(value),
                key=key,
                metadata=metadata,
                not_before=_maybe_ms(given.get("not_before_ms"), "the option not_before_ms of send()"),
            )
        )

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
        """Wait for a message; that none came is told in the units of the language."""
        try:
            return self._performer.perform(operation)
        except ReceiveTimeoutError as error:
            waited = number_text(number(round(error.waited_s * 1000, 3)))
            error.message = f"Mailbox receive timeout after {waited}ms: {self.mailbox.name}"
            error.args = (error.message,)
            raise


_SEND_OPTIONS: Final = frozenset({"key", "metadata", "not_before_ms"})
_METHODS: Final[Mapping[str, tuple[Callable[..., object], int, int]]] = {
    "send": (MailboxValue.send, 1, 2),
    "receive": (MailboxValue.receive, 0, 1),
    "call": (MailboxValue.call, 1, 2),
    "delivery": (MailboxValue.delivery, 0, 1),
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
