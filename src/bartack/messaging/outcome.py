"""What became of a supervised send and of a broadcast. Values: they are matched, not caught.

They travel as they are: over the socket, and in the journal as part of an entry.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from bartack.errors import DeliveryError

Stage = Literal["none", "accepted", "delivered"]
Refusal = Literal["no_receiver", "closed", "full", "too_large", "aborted"]
Reason = Literal[
    "timeout", "overflow", "no_receiver", "max_deliveries", "nack", "closed", "too_large", "manual"
]
"""Why a message is a dead letter."""


class Accepted(msgspec.Struct, frozen=True, tag="accepted", tag_field="outcome"):
    """The message is in the journal, and in its mailbox."""

    id: str
    seq: int
    """Place of its entry in the journal."""

    def unwrap(self) -> str:
        """The id of the message."""
        return self.id


class Delivered(msgspec.Struct, frozen=True, tag="delivered", tag_field="outcome"):
    """The message was handed to a receiver, and processed if that was waited for."""

    id: str
    receiver: str
    at: int
    """When: microseconds since 1970, UTC."""
    processed: bool = False

    def unwrap(self) -> str:
        """The id of the message."""
        return self.id


class DeadLettered(msgspec.Struct, frozen=True, tag="dead_lettered", tag_field="outcome"):
    """The message is a dead letter."""

    id: str
    dead_letter: str
    reason: Reason
    attempts: int

    def unwrap(self) -> str:
        """Raise what became of it.

        Raises:
            DeliveryError: Always.
        """
        raise _error(self)


class Rejected(msgspec.Struct, frozen=True, tag="rejected", tag_field="outcome", omit_defaults=True):
    """Nothing was put into a mailbox."""

    reason: Refusal
    attempts: int
    retry_after: float | None = None
    """Seconds after which another attempt may do, if one may."""

    def unwrap(self) -> str:
        """Raise what became of it.

        Raises:
            DeliveryError: Always.
        """
        raise _error(self)


class TimedOut(msgspec.Struct, frozen=True, tag="timed_out", tag_field="outcome"):
    """The message did not come as far as was waited for."""

    stage: Stage
    """How far it came. Until it was delivered, it was taken back: it will not arrive later."""
    attempts: int
    id: str

    def unwrap(self) -> str:
        """Raise what became of it.

        Raises:
            DeliveryError: Always.
        """
        raise _error(self)


SendOutcome = Accepted | Delivered | DeadLettered | Rejected | TimedOut


def is_success(outcome: SendOutcome | None) -> bool:
    """Whether a send reached the level that it waited for."""
    return isinstance(outcome, Accepted | Delivered)


def describe_outcome(outcome: SendOutcome) -> str:
    """An outcome in a few words."""
    match outcome:
        case Accepted():
            return "accepted"
        case Delivered():
            return f"delivered to {outcome.receiver}"
        case DeadLettered():
            return f"dead letter {outcome.dead_letter} ({outcome.reason})"
        case Rejected():
            return f"rejected ({outcome.reason})"
        case TimedOut():
            return f"timed out (stage reached: {outcome.stage})"


def delivery_error(recipient: str, outcome: SendOutcome) -> DeliveryError:
    """The error that says what became of a send."""
    return DeliveryError(recipient, describe_outcome(outcome), outcome)


def _error(outcome: SendOutcome) -> DeliveryError:
    return delivery_error("the recipient", outcome)


class Copy(msgspec.Struct, frozen=True, omit_defaults=True):
    """One recipient of a broadcast, and what became of its copy."""

    id: str
    recipient: str
    outcome: SendOutcome | None = None
    """``None``: its delivery continues, and was not waited for."""
    meta: dict[str, object] = {}


class BroadcastResult(msgspec.Struct, frozen=True):
    """What became of a broadcast; the copies in the order in which their recipients were given."""

    strategy: str
    ok: bool
    succeeded: int
    failed: int
    batch: str
    """Names the broadcast in the journal."""
    results: list[Copy]


def sum_up(strategy: str, need: int, batch: str, copies: list[Copy]) -> BroadcastResult:
    """The result of a broadcast of which at least this number of copies must succeed."""
    succeeded = sum(is_success(copy.outcome) for copy in copies)
    failed = sum(copy.outcome is not None and not is_success(copy.outcome) for copy in copies)
    return BroadcastResult(strategy, succeeded >= need, succeeded, failed, batch, copies)
