"""The members of ``ctx`` that deliver: supervised sends, broadcasts, topics and names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Unpack, cast

from bartack.core import typed
from bartack.errors import DeliveryOptionError
from bartack.messaging import BroadcastResult, SendOptions, SendOutcome
from bartack.messaging.mailboxes import check_name, mailbox_of
from bartack.messaging.options import check_metadata, check_options
from bartack.messaging.outcome import Copy
from bartack.messaging.strategy import check_distinct, needed
from bartack.messaging.topic import check_topic
from bartack.runtime.context.mailbox import Mailbox, send_supervised
from bartack.runtime.context.part import Members, encode_args
from bartack.runtime.context.workers import Handle
from bartack.runtime.protocol.steps import CastArgs, MailboxArgs, PublishArgs
from bartack.runtime.protocol.values import Codec, codec, encode
from bartack.runtime.scheduler.operations import StepOp

Recipient = str | Mailbox | Handle[object]
"""A mailbox or its name, or a worker: its path or its handle, which mean its inbox."""

_decode_result: Final = typed.decoder(BroadcastResult).decode
_NUMBER: Final[Codec[int]] = codec(int)


class MailMembers(Members):
    """Messages that are seen to."""

    def send_supervised(
        self, recipient: Recipient, value: object, **options: Unpack[SendOptions]
    ) -> StepOp[SendOutcome]:
        """Send a message and see to it that it arrives.

        Args:
            recipient: A mailbox or its name, or a worker: its path or its handle.
            value: The message.
            options: See ``SendOptions``.

        Returns:
            What became of it: ``Accepted``, ``Delivered``, ``DeadLettered``, ``Rejected`` or ``TimedOut``.

        Raises:
            DeliveryError: It was not delivered as asked, and ``on_error`` is ``raise``; ``outcome`` has the reason.
            DeliveryOptionError: An option cannot be used.
        """
        return send_supervised(self._scheduler, address_of(recipient), value, options)

    def broadcast(
        self,
        recipients: Iterable[Recipient | tuple[str, Recipient, Mapping[str, object]]],
        value: object,
        strategy: str = "all_or_nothing",
        **options: Unpack[SendOptions],
    ) -> StepOp[BroadcastResult]:
        """Send a message to many.

        Args:
            recipients: Mailboxes or workers; or for each its id in the result, itself, and what goes back with its outcome.
            value: The message.
            strategy: ``all_or_nothing`` (every mailbox takes its copy in the same moment, or none does), ``best_effort``,
                ``at_least_one`` or ``quorum(k)``.
            options: See ``SendOptions``; they count for every copy.

        Returns:
            What became of each copy, in the order of the recipients.

        Raises:
            BroadcastError: It reached too few, and ``on_error`` is ``raise``; ``result`` has those it reached.
            DeliveryOptionError: An option cannot be used, or a recipient is given twice.
        """
        checked = check_options(options, self._scheduler.entropy.now_us())
        copies = copies_of(recipients)
        needed(strategy, len(copies))
        args = CastArgs(copies=copies, strategy=strategy, terms=checked.terms)
        written = [[[copy.id, copy.recipient] for copy in copies], strategy, checked.written]
        about = ", ".join(copy.recipient for copy in copies[:5])
        return self._cast("broadcast", args, value, written, about)

    def publish(
        self, topic: str, value: object, strategy: str = "best_effort", **options: Unpack[SendOptions]
    ) -> StepOp[BroadcastResult]:
        """Send a message to every mailbox that is subscribed to a topic, each once.

        Args:
            topic: Words joined by dots: ``build.linux.failed``.
            value: The message.
            strategy: See ``broadcast``.
            options: See ``SendOptions``; they count for every copy.

        Raises:
            BroadcastError: It reached too few, and ``on_error`` is ``raise``; ``result`` has those it reached.
            TopicNameError: The topic is invalid.
        """
        checked = check_options(options, self._scheduler.entropy.now_us())
        needed(strategy, 0)
        args = PublishArgs(topic=check_topic(topic), strategy=strategy, terms=checked.terms)
        return self._cast("publish", args, value, [topic, strategy, checked.written], topic)

    def register(self, name: str) -> StepOp[int]:
        """Make a mailbox the name of this worker: no other worker receives from it until this worker has ended.

        Returns:
            The incarnation of the name: how many workers have had it, this one included.

        Raises:
            NameTakenError: A worker that has not ended has this name.
            MailboxNameError: No mailbox can have this name.
        """
        check_name(name)
        return self._step("register", MailboxArgs(mailbox=name), _NUMBER.decode, name)

    def _cast(
        self, step: str, args: CastArgs | PublishArgs, value: object, written: object, about: str
    ) -> StepOp[BroadcastResult]:
        data = encode(value, f"a message to {about}")
        return self._step(step, args, _decode_result, about, value=data, written=encode_args(written))


def address_of(recipient: Recipient) -> str:
    """The name of the mailbox that a recipient means."""
    if isinstance(recipient, Mailbox):
        return recipient.name
    return mailbox_of(f"@{recipient.path}" if isinstance(recipient, Handle) else recipient)


def copies_of(
    recipients: Iterable[Recipient | tuple[str, Recipient, Mapping[str, object]]],
) -> list[Copy]:
    """The recipients of a broadcast.

    Raises:
        DeliveryOptionError: One is given twice, or in an unknown way.
    """
    if isinstance(recipients, str):
        raise DeliveryOptionError("recipients", f"they are a list, not one text: {recipients!r}")
    copies: list[Copy] = []
    for given in recipients:
        if isinstance(given, tuple):
            parts = cast("tuple[object, ...]", given)
            if len(parts) != 3 or not isinstance(parts[0], str):
                raise DeliveryOptionError("recipients", f"one is its id, itself and its meta, not {given!r}")
            name, recipient, meta = given
            copies.append(Copy(name, address_of(recipient), None, check_metadata(meta)))
        else:
            address = address_of(given)
            copies.append(Copy(address, address))
    check_distinct(copy.recipient for copy in copies)
    return copies
