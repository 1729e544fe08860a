"""Mailboxes over time: since when each is there, how many messages were sent to it, how it was declared. A part of ``spans.py``.

Which messages were in it is in ``mail.py``.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right

from bartack.messaging import Mailbox
from bartack.runtime.state import entries as e
from bartack.runtime.state.spans.observed import Current
from bartack.runtime.state.spans.rows import MailboxFacts


class _Box:
    def __init__(self, mailbox: Mailbox, seq: int) -> None:
        self.mailbox = mailbox
        self.made = seq
        self.sent = array("I")
        self.facts: list[tuple[int, MailboxFacts]] = [(seq, MailboxFacts())]


class MailboxColumns:
    """All mailboxes of a run, by name, in the order in which they came up."""

    def __init__(self, current: Current) -> None:
        self._current = current
        self._boxes: dict[str, _Box] = {}

    # What is observed.

    def made(self, mailbox: Mailbox) -> None:
        """A mailbox was used for the first time."""
        self._boxes[mailbox.name] = _Box(mailbox, self._current.seq)

    def sent(self, mailbox: str) -> None:
        """A message was put into it."""
        self._boxes[mailbox].sent.append(self._current.seq)

    def changed(self, data: e.MailboxChanged) -> None:
        """It was declared, closed, subscribed to a topic, or registered."""
        box = self._boxes[data.mailbox]
        now = box.mailbox
        facts = MailboxFacts(
            now.closed, now.capacity, now.max_bytes, now.overflow, now.owner, tuple(now.patterns)
        )
        box.facts.append((self._current.seq, facts))

    # What is asked.

    def names_at(self, seq: int) -> list[str]:
        """The mailboxes that were there after an entry."""
        return [name for name, box in self._boxes.items() if box.made <= seq]

    def sent_to(self, mailbox: str, seq: int) -> int:
        """How many messages had been put into a mailbox up to an entry."""
        return bisect_right(self._boxes[mailbox].sent, seq)

    def facts_at(self, mailbox: str, seq: int) -> MailboxFacts:
        """How a mailbox was declared, after an entry."""
        facts = self._boxes[mailbox].facts
        return facts[max(bisect_right(facts, seq, key=lambda known: known[0]) - 1, 0)][1]
