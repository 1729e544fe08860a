"""The state of a mailbox, against a model that is a plain list."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from bartack.errors import MailboxConfigError, MailboxNameError
from bartack.messaging import Mailbox, Message
from bartack.messaging.mailboxes import check_name


def message(order: int, *, size: int = 1, not_before: int = 0, key: str = "") -> Message:
    return Message(
        id=f"m-{order}", order=order, sender="main", size=size, at=order, not_before=not_before, key=key
    )


class MailboxMachine(RuleBasedStateMachine):
    """Whatever happens to messages: each is in one place, and the queue is in the order of the journal."""

    def __init__(self) -> None:
        super().__init__()
        self.mailbox = Mailbox("box")
        self.seq = 0
        self.now = 0
        self.queued: list[tuple[int, str, int]] = []
        self.scheduled: list[tuple[int, int, str, int]] = []
        self.held: dict[str, tuple[int, str, int]] = {}
        self.sent = 0
        self.delivered = 0
        self.dropped = 0

    @rule(size=st.integers(1, 100))
    def send(self, size: int) -> None:
        self.seq += 1
        self.sent += 1
        self.mailbox.put(message(self.seq, size=size))
        self.queued.append((self.seq, f"m-{self.seq}", size))

    @rule(size=st.integers(1, 100), delay=st.integers(1, 20))
    def schedule(self, size: int, delay: int) -> None:
        self.seq += 1
        self.sent += 1
        self.mailbox.put(message(self.seq, size=size, not_before=self.now + delay))
        self.scheduled.append((self.now + delay, self.seq, f"m-{self.seq}", size))

    @precondition(lambda self: self.queued)
    @rule()
    def receive(self) -> None:
        oldest = self.mailbox.oldest()
        assert oldest is not None
        assert self.mailbox.take(oldest.id) is oldest
        assert oldest.id == min(self.queued)[1]
        self.queued.remove(min(self.queued))
        self.delivered += 1

    @precondition(lambda self: self.queued)
    @rule(attempt=st.integers(1, 5))
    def hold(self, attempt: int) -> None:
        first = min(self.queued)
        taken = self.mailbox.hold(first[1], attempt)
        assert taken is not None
        assert taken.attempt == attempt
        self.queued.remove(first)
        self.held[first[1]] = first

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def acknowledge(self, data: st.DataObject) -> None:
        chosen = data.draw(st.sampled_from(sorted(self.held)))
        assert self.mailbox.take(chosen) is not None
        del self.held[chosen]
        self.delivered += 1

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def give_back(self, data: st.DataObject) -> None:
        chosen = data.draw(st.sampled_from(sorted(self.held)))
        self.mailbox.give_back(chosen)
        self.queued.append(self.held.pop(chosen))

    @precondition(lambda self: self.queued or self.scheduled or self.held)
    @rule(data=st.data())
    def drop(self, data: st.DataObject) -> None:
        places = [*(item[1] for item in self.queued), *(item[2] for item in self.scheduled), *self.held]
        chosen = data.draw(st.sampled_from(sorted(places)))
        assert self.mailbox.drop(chosen) is not None
        self.queued = [item for item in self.queued if item[1] != chosen]
        self.scheduled = [item for item in self.scheduled if item[2] != chosen]
        self.held.pop(chosen, None)
        self.dropped += 1

    @rule(passed=st.integers(1, 30))
    def let_time_pass(self, passed: int) -> None:
        self.now += passed
        while (due := self.mailbox.due(self.now)) is not None:
            first = min(self.scheduled)
            assert due.id == first[2]
            self.seq += 1
            self.mailbox.release(due.id, self.seq)
            self.scheduled.remove(first)
            self.queued.append((self.seq, first[2], first[3]))

    @rule(unknown=st.sampled_from(["m-0", "", "x"]))
    def touch_what_is_not_there(self, unknown: str) -> None:
        assert self.mailbox.take(unknown) is None
        assert self.mailbox.drop(unknown) is None
        assert self.mailbox.give_back(unknown) is None

    @invariant()
    def queue_is_in_the_order_of_the_journal(self) -> None:
        assert [item.id for item in self.mailbox.queued()] == [item[1] for item in sorted(self.queued)]
        assert len(self.mailbox) == len(self.queued)

    @invariant()
    def counts_add_up(self) -> None:
        mailbox = self.mailbox
        assert (mailbox.scheduled, mailbox.held) == (len(self.scheduled), len(self.held))
        assert (mailbox.sent, mailbox.delivered, mailbox.dropped) == (self.sent, self.delivered, self.dropped)
        assert (
            mailbox.sent
            == mailbox.delivered + mailbox.dropped + len(mailbox) + mailbox.held + mailbox.scheduled
        )
        assert mailbox.size_bytes == sum(item[2] for item in self.queued)

    @invariant()
    def the_next_due_is_the_first(self) -> None:
        assert self.mailbox.next_due() == min((item[0] for item in self.scheduled), default=None)


TestMailbox = MailboxMachine.TestCase
TestMailbox.settings = settings(max_examples=100, stateful_step_count=40)


@pytest.mark.parametrize("name", ["a", "_x", "review-queue", "A9_-" * 16, "@main/7.2:analyst"])
def test_names_of_mailboxes(name: str) -> None:
    check_name(name)


@pytest.mark.parametrize("name", ["", "9a", "-a", "a b", "a.b", "ä", "a" * 65, "@", "$system", "a\n"])
def test_what_is_not_a_mailbox_name(name: str) -> None:
    with pytest.raises(MailboxNameError):
        check_name(name)


def test_the_bounds_count_messages_and_bytes() -> None:
    mailbox = Mailbox("box")
    mailbox.declare(2, 10, "reject")
    mailbox.put(message(1, size=4))

    assert mailbox.has_room(6)
    assert not mailbox.has_room(7)
    mailbox.put(message(2, size=1))
    assert not mailbox.has_room(1)


def test_an_empty_mailbox_takes_a_message_of_any_size() -> None:
    mailbox = Mailbox("box")
    mailbox.declare(1, 10, "block")

    assert mailbox.has_room(1000)


def test_a_held_message_does_not_count_for_the_bounds() -> None:
    mailbox = Mailbox("box")
    mailbox.declare(1, 10, "block")
    mailbox.put(message(1, size=10))
    mailbox.hold("m-1", 1)

    assert mailbox.has_room(10)


@pytest.mark.parametrize(("capacity", "max_bytes"), [(0, 1), (1, 0), (-1, 1)])
def test_bounds_that_nothing_fits_are_refused(capacity: int, max_bytes: int) -> None:
    with pytest.raises(MailboxConfigError):
        Mailbox("box").declare(capacity, max_bytes, "block")


def test_a_key_keeps_the_id_of_its_first_message_also_when_it_is_gone() -> None:
    mailbox = Mailbox("box")
    mailbox.put(message(1, key="k"))
    mailbox.take("m-1")

    assert mailbox.id_for("k") == "m-1"
    assert mailbox.id_for("") is None


def test_a_scheduled_message_stays_while_a_blocking_mailbox_is_full() -> None:
    mailbox = Mailbox("box")
    mailbox.declare(1, 100, "block")
    mailbox.put(message(1))
    mailbox.put(message(2, not_before=5))

    assert mailbox.due(5) is None
    mailbox.take("m-1")
    due = mailbox.due(5)
    assert due is not None
    assert due.id == "m-2"
