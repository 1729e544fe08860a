"""Messages and dead letters."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from bartack.messaging import Reason
from bartack.messaging.letter import LetterState
from bartack.runtime.state.spans.rows import StayStatus
from bartack.web.models._model import At, Model, Row, Seq, Shown


class MessageRow(Model, frozen=True, kw_only=True):
    """A message."""

    row: Row
    id: str
    mailbox: str
    status: StayStatus
    size: int = 0
    sender: str = ""
    receiver: str = ""
    sent_at: At
    sent_seq: Annotated[Seq, Meta(description="Its value is the message.")]
    taken_at: At = 0
    taken_seq: Seq = 0
    topic: str = ""
    attempts: Annotated[
        int, Meta(description="How often it was handed to a receiver that has to acknowledge it.")
    ] = 0
    reason: str = ""
    letter: Annotated[str, Meta(description="The dead letter that it is or was.")] = ""


class Messages(Model, frozen=True, kw_only=True):
    """A window of the messages that fit, in the order in which they were sent."""

    messages: list[MessageRow]
    next: Annotated[
        int, Meta(description="Give it as `before` to get the messages before these; 0: there are none.")
    ] = 0
    parties: Annotated[
        list[str], Meta(description="The senders and receivers of these messages, in order.")
    ] = []
    mailboxes: list[str] = []
    seq: Seq


class LetterNote(Model, frozen=True, kw_only=True):
    """Something that happened to a letter."""

    at: At
    event: str
    detail: str = ""


class LetterRow(Model, frozen=True, kw_only=True):
    """A dead letter: a message that could not be delivered or processed."""

    id: str
    message_id: str
    mailbox: str
    reason: Reason
    state: LetterState = "waiting"
    attempts: int = 0
    sender: str = ""
    key: str = ""
    size: int = 0
    error: str = ""
    topic: str = ""
    metadata: dict[str, object] = {}
    first_failed_at: At = 0
    last_attempt_at: At = 0
    next_retry_at: At = 0
    history: list[LetterNote] = []


class Letter(LetterRow, frozen=True, kw_only=True):
    """A dead letter with its message."""

    value: Shown | None = None
