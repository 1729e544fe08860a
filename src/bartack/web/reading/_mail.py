"""Mailboxes, messages and dead letters."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

from bartack.errors import DeadLetterNotFoundError
from bartack.messaging import DeadLetter
from bartack.messaging.letter import letter_id
from bartack.runtime.protocol.paths import worker_path
from bartack.runtime.state.spans.rows import MailboxCounts, MessageSpan
from bartack.web.following._pauses import Pauses
from bartack.web.models._mail import Letter, LetterNote, LetterRow, MessageRow, Messages
from bartack.web.models._run import MailboxRow
from bartack.web.reading._view import RunView

WINDOW: Final = 200
"""Messages in one answer."""
GONE: Final = frozenset({"redelivered", "purged"})
"""States of dead letters that are not dead letters any longer."""


def read_mailboxes(view: RunView) -> list[MailboxRow]:
    """The mailboxes of a run, in the order in which they came up."""
    return [view.hider.hide(row) for row in mailbox_rows(view)]


def mailbox_rows(view: RunView) -> list[MailboxRow]:
    """The same, with secrets."""
    boxes, seq = view.spans.boxes, view.seq
    counts = _live_counts(view) if seq == view.spans.last_seq else view.spans.mail.counts_at(seq)
    none = MailboxCounts()
    rows: list[MailboxRow] = []
    for number, name in enumerate(boxes.names_at(seq), 1):
        facts, count = boxes.facts_at(name, seq), counts.get(name, none)
        rows.append(
            MailboxRow(
                row=number,
                name=name,
                queued=count.queued,
                scheduled=count.scheduled,
                held=count.held,
                sent=boxes.sent_to(name, seq),
                closed=facts.closed,
                capacity=facts.capacity,
                overflow=facts.overflow,
                owner=facts.owner if facts.owner and view.is_alive(facts.owner) else "",
                topics=list(facts.topics),
                oldest_at=count.oldest_us,
                size_bytes=count.size_bytes,
            )
        )
    return rows


def _live_counts(view: RunView) -> dict[str, MailboxCounts]:
    """How many messages are in each mailbox now. The state knows that, however many there are."""
    mail = view.spans.mail
    found: dict[str, MailboxCounts] = {}
    for name, box in view.spans.state.mailboxes.items():
        oldest = box.oldest()
        sent = 0 if oldest is None else mail.sent_us(name, oldest.id)
        found[name] = MailboxCounts(len(box), box.scheduled, box.held, box.size_bytes, sent)
    return found


# Messages.


async def read_messages(
    view: RunView,
    *,
    mailbox: str = "",
    worker: str = "",
    status: frozenset[str] = frozenset(),
    before: int = 0,
) -> Messages:
    """The newest messages that fit, at most a window of them, in the order in which they were sent.

    Args:
        view: The run.
        mailbox: Only those of this mailbox.
        worker: Only those that this worker sent or received.
        status: Only those with one of these statuses.
        before: Only those before this row.
    """
    mail = view.spans.mail
    last = mail.sent_by(view.seq)
    first_row = min(before, last) if before else last
    found: list[MessageSpan] = []
    async for span in _newest_first(view, first_row):
        if mailbox and span.mailbox != mailbox:
            continue
        if status and span.status not in status:
            continue
        if worker and worker not in {span.sender, span.receiver, _owner(span.sender), _owner(span.receiver)}:
            continue
        found.append(span)
        if len(found) > WINDOW:
            break
    more = len(found) > WINDOW
    shown = found[:WINDOW][::-1]
    letters = {letter.message_id for letter in view.spans.letters.at(view.seq)}
    rows = [_row(view, span, is_letter=span.id in letters) for span in shown]
    parties = dict.fromkeys(party for row in rows for party in (row.sender, row.receiver) if party)
    return view.hider.hide(
        Messages(
            messages=rows,
            next=shown[0].row if more else 0,
            parties=list(parties),
            mailboxes=view.spans.boxes.names_at(view.seq),
            seq=view.seq,
        )
    )


async def _newest_first(view: RunView, last: int) -> AsyncIterator[MessageSpan]:
    pauses = Pauses()
    for row in range(last - 1, -1, -1):
        yield view.spans.message(row, view.seq)
        await pauses.take()


def _owner(party: str) -> str:
    return worker_path(party) if party else ""


def _row(view: RunView, span: MessageSpan, *, is_letter: bool) -> MessageRow:
    ended = 0 < span.to_seq <= view.seq
    return MessageRow(
        row=span.row,
        id=span.id,
        mailbox=span.mailbox,
        status=span.status,
        size=span.size,
        sender=span.sender,
        receiver=span.receiver,
        sent_at=span.sent_us,
        sent_seq=span.from_seq,
        taken_at=span.ended_us if ended else 0,
        taken_seq=span.to_seq if ended else 0,
        topic=span.topic,
        attempts=span.attempts,
        reason=span.reason,
        letter=letter_id(view.spans.state.run_id, span.id) if is_letter else "",
    )


# Dead letters.


def read_letters(view: RunView, state: str = "") -> list[LetterRow]:
    """The dead letters, the oldest first: those in a state, or all but those that were delivered or removed."""
    found = [
        letter
        for letter in view.spans.letters.at(view.seq)
        if (letter.state == state if state else letter.state not in GONE)
    ]
    return [view.hider.hide(_letter_row(letter)) for letter in found]


def count_letters(view: RunView) -> int:
    """How many dead letters wait, are tried again or have expired."""
    return sum(letter.state not in GONE for letter in view.spans.letters.at(view.seq))


def read_letter(view: RunView, wanted: str) -> Letter:
    """One dead letter with its message.

    Raises:
        DeadLetterNotFoundError: There is none.
    """
    letter = next((one for one in view.spans.letters.at(view.seq) if one.id == wanted), None)
    if letter is None:
        raise DeadLetterNotFoundError(wanted)
    row = _letter_row(letter)
    value = view.show_value(letter.value, letter.ref)
    return view.hider.hide(
        Letter(value=value, **{name: getattr(row, name) for name in LetterRow.__struct_fields__})
    )


def _letter_row(letter: DeadLetter) -> LetterRow:
    return LetterRow(
        id=letter.id,
        message_id=letter.message_id,
        mailbox=letter.mailbox,
        reason=letter.reason,
        state=letter.state,
        attempts=letter.attempts,
        sender=letter.sender,
        key=letter.key,
        size=letter.size,
        error=letter.error,
        topic=letter.topic,
        metadata=letter.metadata,
        first_failed_at=letter.first_failed_at,
        last_attempt_at=letter.last_attempt_at,
        next_retry_at=letter.next_retry_at,
        history=[LetterNote(at=note.at, event=note.event, detail=note.detail) for note in letter.history],
    )
