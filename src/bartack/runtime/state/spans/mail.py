"""Messages as spans: the columns that ``spans.py`` keeps of them. A message has one *stay* for each place it was at.

It is scheduled, queued, held by a receiver, perhaps queued again: that is one stay after the other. A message itself lasts from the
first to the end of the last.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from typing import Final

from bartack.messaging import Message
from bartack.runtime.state import entries as e
from bartack.runtime.state.spans.columns import OPEN, Intervals, Texts
from bartack.runtime.state.spans.observed import Current
from bartack.runtime.state.spans.rows import MailboxCounts, MessageSpan, StayStatus

STAYS: Final[tuple[StayStatus, ...]] = (
    "scheduled",
    "queued",
    "held",
    "received",
    "dead",
    "dropped",
    "withdrawn",
)
SCHEDULED, QUEUED, HELD, RECEIVED, DEAD, DROPPED, WITHDRAWN = range(len(STAYS))

_NONE: Final = 0xFFFF_FFFF
_RECEIVED: Final = (e.MessageTaken, e.MessagesDrained)


class MessageColumns:
    """All messages of a run, and where each was when."""

    def __init__(self, current: Current, times: array[int], texts: Texts) -> None:
        self.stays = Intervals()
        self._current = current
        self._times = times
        self._texts = texts
        # Of each stay.
        self._message = array("I")
        self._where = array("B")
        self._before = array("I")
        """The stay before it of the same message."""
        self._party = array("I")
        """The receiver that holds or received it."""
        self._end = array("B")
        """How it ended, if that was the end of the message; else 0."""
        # Of each message.
        self._id = array("I")
        self._mailbox = array("I")
        self._sender = array("I")
        self._topic = array("I")
        self._size = array("Q")
        self._sent = array("I")
        self._last = array("I")
        """Its last stay."""
        self._live: dict[tuple[str, str], int] = {}
        """The messages that are in a mailbox or may come back to it."""
        self._reasons: dict[int, int] = {}
        """Of few stays: the text that says why it ended."""

    def __len__(self) -> int:
        return len(self._id)

    # What is observed.

    def queued(self, mailbox: str, message: Message) -> None:
        """A message is in a mailbox, or scheduled for it."""
        row = self._live.get((mailbox, message.id))
        if row is None:
            row = self._add(mailbox, message.id, message.sender, message.topic, message.size)
        self._move(row, SCHEDULED if message.not_before else QUEUED)

    def held(self, mailbox: str, message: Message) -> None:
        """A message is with a receiver that has to acknowledge it."""
        row = self._live.get((mailbox, message.id))
        if row is not None:
            self._move(row, HELD, self._receiver())

    def taken(self, mailbox: str, message: Message) -> None:
        """A message was received."""
        row = self._live.pop((mailbox, message.id), None)
        if row is not None:
            self._leave(row, RECEIVED, self._receiver())

    def removed(self, mailbox: str, message: Message) -> None:
        """A message is gone, and was not received."""
        data = self._current.data
        to = data.to if isinstance(data, e.MessageMoved) else ""
        end = DEAD if to == "dead" else WITHDRAWN if to == "withdrawn" else DROPPED
        key = (mailbox, message.id)
        # A dead letter may be tried again.
        row = self._live.get(key) if end == DEAD else self._live.pop(key, None)
        if row is not None:
            self._leave(row, end, 0)

    def letter_added(self, data: e.LetterAdded) -> None:
        """A message that was in no mailbox became a dead letter."""
        row = self._live.get((data.mailbox, data.message))
        if row is None:
            row = self._add(data.mailbox, data.message, data.sender, data.topic, data.size)
        stay = self.stays.add(self._current.seq)
        self._add_stay(row, QUEUED, 0)
        self._end[stay] = DEAD
        self._reasons[stay] = self._texts.add(data.reason)

    # What is asked.

    def message(self, row: int, seq: int) -> MessageSpan:
        """One message, as of an entry."""
        stay = self._last[row]
        while self.stays.opened[stay] > seq and self._before[stay] != _NONE:
            stay = self._before[stay]
        closed = self.stays.closed[stay]
        is_over = closed <= seq and bool(self._end[stay])
        status = self._end[stay] if is_over else self._where[stay]
        return MessageSpan(
            row=row,
            id=self._texts[self._id[row]],
            mailbox=self._texts[self._mailbox[row]],
            status=STAYS[status],
            sender=self._texts[self._sender[row]],
            receiver=self._texts[self._party[stay]] if is_over or status == HELD else "",
            topic=self._texts[self._topic[row]],
            size=self._size[row],
            from_seq=self._sent[row],
            sent_us=self._times[self._sent[row]],
            to_seq=closed if self._is_last(row, stay) and closed != OPEN else 0,
            ended_us=self._times[closed] if self._is_last(row, stay) and closed != OPEN else 0,
            attempts=self._attempts(stay),
            reason=self._texts[self._reasons.get(stay if is_over else self._before[stay], 0)],
        )

    def counts_at(self, seq: int) -> dict[str, MailboxCounts]:
        """How many messages were in each mailbox after an entry; mailboxes without any are left out."""
        counts: dict[int, MailboxCounts] = {}
        first: dict[int, int] = {}
        """Of each mailbox: the place in it of its first message that is queued."""
        for stay in self.stays.at(seq):
            row, where = self._message[stay], self._where[stay]
            box = self._mailbox[row]
            found = counts.setdefault(box, MailboxCounts())
            if where == SCHEDULED:
                found.scheduled += 1
            elif where == HELD:
                found.held += 1
            else:
                found.queued += 1
                found.size_bytes += self._size[row]
                order = self._order(stay)
                if order < first.get(box, _NONE):
                    first[box], found.oldest_us = order, self._times[self._sent[row]]
        by_name: dict[str, MailboxCounts] = {}
        for box, found in counts.items():
            by_name[self._texts[box]] = found
        return by_name

    def sent_us(self, mailbox: str, message_id: str) -> int:
        """When a message was sent that is in a mailbox; 0 if it is not there."""
        row = self._live.get((mailbox, message_id))
        return 0 if row is None else self._times[self._sent[row]]

    def rows_of(self, mailbox: str) -> list[int]:
        """The messages that were ever sent to a mailbox, in order."""
        wanted = {number for number in set(self._mailbox) if self._texts[number] == mailbox}
        return [row for row, number in enumerate(self._mailbox) if number in wanted]

    def at(self, seq: int) -> list[int]:
        """The messages that were in a mailbox or held by a receiver after an entry, in the order in which they were sent."""
        return sorted({self._message[stay] for stay in self.stays.at(seq)})

    def sent_by(self, seq: int) -> int:
        """How many messages were sent up to an entry: the rows below this number."""
        return bisect_right(self._sent, seq)

    # Inside.

    def _add(self, mailbox: str, message_id: str, sender: str, topic: str, size: int) -> int:
        row = self._live[mailbox, message_id] = len(self._id)
        texts = self._texts
        self._id.append(texts.add_new(message_id))
        self._mailbox.append(texts.add(mailbox))
        self._sender.append(texts.add(sender))
        self._topic.append(texts.add(topic))
        self._size.append(size)
        self._sent.append(self._current.seq)
        self._last.append(_NONE)
        return row

    def _move(self, row: int, where: int, party: int = 0) -> None:
        before = self._last[row]
        if before != _NONE and self.stays.closed[before] == OPEN:
            self.stays.close(before, self._current.seq)
            reason = getattr(self._current.data, "reason", "")
            if reason:
                self._reasons[before] = self._texts.add(reason)
        self.stays.open(self._current.seq)
        self._add_stay(row, where, party)

    def _add_stay(self, row: int, where: int, party: int) -> None:
        stay = len(self._message)
        self._message.append(row)
        self._where.append(where)
        self._before.append(self._last[row])
        self._party.append(party)
        self._end.append(0)
        self._last[row] = stay

    def _leave(self, row: int, end: int, party: int) -> None:
        stay = self._last[row]
        self.stays.close(stay, self._current.seq)
        self._end[stay] = end
        if party:
            self._party[stay] = party
        data = self._current.data
        if isinstance(data, e.MessageMoved) and data.reason:
            self._reasons[stay] = self._texts.add(data.reason)

    def _receiver(self) -> int:
        data = self._current.data
        if isinstance(data, e.MessageHeld):
            return self._texts.add(data.by)
        return self._texts.add(data.p) if isinstance(data, _RECEIVED) else 0

    def _order(self, stay: int) -> int:
        """The place of a queued message in its mailbox: one that was given back keeps the place that it had."""
        before = self._before[stay]
        while before != _NONE and self._where[before] == HELD and not self._end[before]:
            stay = self._before[before]
            before = self._before[stay]
        return self.stays.opened[stay]

    def _is_last(self, row: int, stay: int) -> bool:
        return self._last[row] == stay and bool(self._end[stay])

    def _attempts(self, stay: int) -> int:
        count = 0
        while stay != _NONE:
            count += self._where[stay] == HELD
            stay = self._before[stay]
        return count
