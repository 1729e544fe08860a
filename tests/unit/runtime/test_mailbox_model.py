"""Mailboxes of a hub against a model that is a plain list: bounds, delay, acknowledgement, withdrawal, dead letters, crashes.

The machine plays two workers and a process outside, lets time pass and kills the hub. Whatever it does: a message is in one place,
receivers get the oldest, bounds hold, and what the hub says is what its journal says.
"""

from __future__ import annotations

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.span_check import check_spans
from tests.unit.runtime.stage import Puppet, Stage, fields

from bartack.messaging import LetterFilter, LetterPolicy, Overflow
from bartack.messaging.options import Terms
from bartack.runtime.kernel.desk import Settings
from bartack.runtime.protocol import frames as f
from bartack.runtime.protocol import steps as s

SECOND_US = 1_000_000
POLICY = LetterPolicy(retry=False, expire_after=100.0)


class MailMachine(RuleBasedStateMachine):
    """One mailbox, and what should be in it."""

    def __init__(self) -> None:
        super().__init__()
        self.stage = Stage(settings=Settings(letters=POLICY))
        self.main: Puppet = self.stage.begin()
        self.n = 0
        self.capacity = 0
        self.overflow: Overflow = "reject"
        self.queue: list[str] = []
        self.scheduled: list[tuple[int, int, str]] = []
        self.held: dict[str, int] = {}
        self.places: dict[str, int] = {}
        self.attempts: dict[str, int] = {}
        self.dead: dict[str, str] = {}

    @initialize(
        capacity=st.integers(1, 4), overflow=st.sampled_from(["reject", "drop_oldest", "drop_newest"])
    )
    def declare(self, capacity: int, overflow: Overflow) -> None:
        self.capacity, self.overflow = capacity, overflow
        self.ask("declare", s.DeclareArgs(mailbox="box", capacity=capacity, overflow=overflow))

    def ask(self, kind: str, args: s.Args, value: object = None) -> object:
        """Ask for a step: its value, or the name of its error."""
        self.n += 1
        found = self.main.answer(self.main.step(self.n, kind, args, value))
        if isinstance(found, f.Refusal):
            return found.e.type.rpartition(":")[2]
        assert found is not None
        return None if found.v is None else msgspec.json.decode(found.v)

    def now(self) -> int:
        return self.stage.clock.now_us()

    def enter(self, message_id: str, place: int) -> None:
        """A message comes into the queue, which may be full."""
        while len(self.queue) >= self.capacity and self.overflow == "drop_oldest":
            self.bury(self.queue.pop(0), "overflow")
        self.places[message_id] = place
        self.queue.append(message_id)

    def bury(self, message_id: str, reason: str) -> None:
        self.dead[message_id] = reason

    @rule(supervised=st.booleans())
    def send(self, supervised: bool) -> None:
        full = len(self.queue) >= self.capacity
        if supervised:
            args = s.SuperviseArgs(mailbox="box", terms=Terms(retries=0, on_error="ignore"))
            found = self.ask("send_supervised", args, "value")
            answer = fields(found)
            message_id = str(answer.get("id", ""))
        else:
            answer = {}
            message_id = str(self.ask("send", s.SendArgs(mailbox="box"), "value"))
        if full and self.overflow == "reject":
            assert message_id in {"", "MailboxFullError"}
            return
        if full and self.overflow == "drop_newest":
            assert not supervised or answer["outcome"] == "dead_lettered"
            self.bury(message_id, "overflow")
            return
        self.enter(message_id, int(message_id[2:]))

    @rule(delay=st.integers(1, 20))
    def schedule(self, delay: int) -> None:
        due = self.now() + delay * SECOND_US
        message_id = str(self.ask("send", s.SendArgs(mailbox="box", not_before=due), "later"))
        self.scheduled.append((due, int(message_id[2:]), message_id))

    @rule(hold=st.booleans())
    def receive(self, hold: bool) -> None:
        found = self.ask("receive", s.ReceiveArgs(mailbox="box", timeout_s=0.0, hold=hold))
        if not self.queue:
            assert found == "ReceiveTimeoutError"
            return
        first = self.queue.pop(0)
        if hold:
            held = fields(found)
            self.attempts[first] = self.attempts.get(first, 0) + 1
            assert (held["id"], held.get("attempt", 1)) == (first, self.attempts[first])
            self.held[first] = self.places[first]

    @precondition(lambda self: self.held)
    @rule(data=st.data(), for_good=st.booleans())
    def acknowledge(self, data: st.DataObject, for_good: bool) -> None:
        chosen = data.draw(st.sampled_from(sorted(self.held)))
        del self.held[chosen]
        if for_good:
            self.ask("ack", s.AckArgs(mailbox="box", id=chosen))
        else:
            self.ask("nack", s.AckArgs(mailbox="box", id=chosen, ok=False, requeue=False))
            self.bury(chosen, "nack")

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def give_back(self, data: st.DataObject) -> None:
        chosen = data.draw(st.sampled_from(sorted(self.held)))
        place = self.held.pop(chosen)
        self.ask("nack", s.AckArgs(mailbox="box", id=chosen, ok=False))
        self.ask("left", s.Args())
        self.stage.core.mail.held.return_caught(self.stage.worker("main"), "main")
        self.stage.hub.finish_turn()
        if self.attempts[chosen] >= 5:
            self.bury(chosen, "max_deliveries")
            return
        behind = [place_of for place_of, other in enumerate(self.queue) if self.places[other] > place]
        self.queue.insert(behind[0] if behind else len(self.queue), chosen)

    @precondition(lambda self: self.queue or self.scheduled)
    @rule(data=st.data())
    def withdraw(self, data: st.DataObject) -> None:
        chosen = data.draw(st.sampled_from(sorted([*self.queue, *(item[2] for item in self.scheduled)])))
        assert self.ask("withdraw", s.WithdrawArgs(mailbox="box", id=chosen)) is True
        self.queue = [item for item in self.queue if item != chosen]
        self.scheduled = [item for item in self.scheduled if item[2] != chosen]

    @precondition(lambda self: self.dead)
    @rule()
    def retry(self) -> None:
        waiting = [
            letter
            for letter in self.stage.core.state.deliveries.letters.values()
            if letter.state == "waiting"
        ]
        if not waiting:
            return
        letter = waiting[0]
        full = len(self.queue) >= self.capacity and self.overflow != "drop_oldest"
        self.stage.core.letters.retry(LetterFilter(ids=[letter.id]), "command", lambda results: None)
        self.stage.hub.finish_turn()
        if not full:
            del self.dead[letter.message_id]
            self.attempts[letter.message_id] = 0
            self.enter(letter.message_id, self.stage.hub.journal.last_seq)

    @rule(seconds=st.integers(1, 40))
    def let_time_pass(self, seconds: int) -> None:
        end = self.now() + seconds * SECOND_US
        self.stage.wait(float(seconds))
        for due, order, message_id in sorted(self.scheduled):
            if due <= end:
                self.scheduled.remove((due, order, message_id))
                if len(self.queue) >= self.capacity and self.overflow == "drop_newest":
                    self.bury(message_id, "overflow")
                elif len(self.queue) < self.capacity or self.overflow == "drop_oldest":
                    self.enter(message_id, self.order_of(message_id))
                else:
                    self.bury(message_id, "overflow")

    def order_of(self, message_id: str) -> int:
        """The place that a message got when it came due."""
        moved = [
            entry.seq
            for entry in self.stage.entries("message.moved")
            if entry.data["id"] == message_id and entry.data["to"] == "due"
        ]
        return moved[-1] if moved else 0

    @rule()
    def kill_the_hub(self) -> None:
        self.stage.hub.flush()
        self.main = self.stage.again()

    @invariant()
    def the_queue_is_that_of_the_model(self) -> None:
        mailbox = self.stage.core.state.mailbox("box")
        assert [message.id for message in mailbox.queued()] == self.queue
        assert (mailbox.held, mailbox.scheduled) == (len(self.held), len(self.scheduled))

    @invariant()
    def nothing_that_was_sent_goes_over_the_bounds(self) -> None:
        returned = sum(self.attempts.get(message, 0) > 0 for message in self.queue)
        assert len(self.queue) <= self.capacity + returned

    @invariant()
    def dead_letters_are_those_of_the_model(self) -> None:
        letters = self.stage.core.state.deliveries.letters.values()
        found = {
            letter.message_id: letter.reason for letter in letters if letter.state in {"waiting", "expired"}
        }
        assert found == self.dead

    def teardown(self) -> None:
        check_spans(self.stage.store.entries)

    @invariant()
    def what_is_old_is_expired(self) -> None:
        self.stage.hub.tick()
        self.stage.hub.run_ready()
        for letter in self.stage.core.state.deliveries.letters.values():
            if letter.state in {"waiting", "expired"}:
                old = self.now() - letter.first_failed_at >= 100 * SECOND_US
                assert letter.state == ("expired" if old else "waiting")


TestMail = MailMachine.TestCase
TestMail.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
