"""Requests from outside against a model: whatever is repeated, cut and killed, each id is one request with one outcome.

The machine asks for the same few things again and again, each under its own id, over connections that are cut, of hubs that are
killed in the middle of a commit; a worker receives, replies and acknowledges meanwhile, and time passes.
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from typing import Final

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.span_check import check_spans
from tests.unit.runtime.kernel.mail.test_mailroom import Outsider, ack, receive
from tests.unit.runtime.kernel.test_requests import doom
from tests.unit.runtime.stage import Stage, fields

from bartack.runtime.memory.hub import KilledError
from bartack.runtime.protocol import frames as f
from bartack.runtime.protocol import steps as s

DELIVERED: Final = {"ack": "delivered", "timeout_s": 3600.0, "on_error": "ignore"}
COPIES: Final = [{"id": name, "recipient": name} for name in ("box", "shelf")]

REQUESTS: Final[dict[str, tuple[str, dict[str, object]]]] = {
    "plain": ("send", {"mailbox": "box"}),
    "second": ("send", {"mailbox": "box"}),
    "supervised": ("send_supervised", {"mailbox": "box", "terms": DELIVERED}),
    "cast": ("broadcast", {"copies": COPIES, "strategy": "all_or_nothing"}),
    "called": ("call", {"mailbox": "box", "timeout_s": 60.0}),
    "again": ("call", {"mailbox": "box", "timeout_s": 60.0}),
    "letter": ("dead.add", {"mailbox": "box", "message": "manual"}),
    "retry": ("dead.retry", {"letters": {}}),
    "answer": ("answer", {"question": "q1"}),
    "closed": ("close", {"mailbox": "lid"}),
}
"""By the id of the request, which is also its value."""


class RequestMachine(RuleBasedStateMachine):
    """A run that is asked for the same things over and over."""

    def __init__(self) -> None:
        super().__init__()
        self.stage = Stage()
        self.main = self.stage.begin()
        self.main.step(1, "ask", s.AskArgs(question="Go on?"))
        self.n = 1
        self.outsiders = [Outsider(self.stage), Outsider(self.stage)]
        self.asked: list[tuple[Outsider, int, str]] = []
        self.answers: dict[str, object] = {}
        self.received: dict[str, set[str]] = {}

    def step(self) -> int:
        self.n += 1
        return self.n

    def ask_for(self, request: str, place: int) -> None:
        do, arguments = REQUESTS[request]
        outside = self.outsiders[place]
        number = outside.ask(do, request, request, **arguments)
        self.asked.append((outside, number, request))

    def resume(self) -> None:
        self.main = self.stage.again()
        self.outsiders = [Outsider(self.stage), Outsider(self.stage)]
        self.asked.clear()

    @rule(request=st.sampled_from(sorted(REQUESTS)), place=st.integers(0, 1))
    def ask(self, request: str, place: int) -> None:
        self.ask_for(request, place)

    @rule(place=st.integers(0, 1))
    def cut(self, place: int) -> None:
        gone = self.outsiders[place]
        gone.leave()
        self.outsiders[place] = Outsider(self.stage)
        self.asked = [one for one in self.asked if one[0] is not gone]

    @rule(
        request=st.sampled_from(sorted(REQUESTS)),
        place=st.integers(0, 1),
        lines=st.integers(0, 3),
        late=st.booleans(),
    )
    def kill_while_asking(self, request: str, place: int, lines: int, late: bool) -> None:
        self.stage.hub.flush()
        doom(self.stage, lines, late=late)
        with suppress(KilledError):
            self.ask_for(request, place)
            self.hear()
            self.stage.hub.flush()
        self.resume()

    @precondition(lambda self: len(self.stage.core.state.mailbox("box")) > 0)
    @rule(replies=st.booleans())
    def work(self, replies: bool) -> None:
        held = fields(self.main.value(receive(self.main, self.step(), "box", hold=True)))
        self.received.setdefault(str(held["value"]), set()).add(str(held["id"]))
        if replies:
            reply = s.ReplyArgs(mailbox="box", id=str(held["id"]))
            self.main.step(self.step(), "reply", reply, f"reply to {held['value']}")
        ack(self.main, self.step(), "box", str(held["id"]))

    @rule()
    def kill(self) -> None:
        self.stage.hub.flush()
        self.resume()

    @rule(seconds=st.integers(1, 40))
    def let_time_pass(self, seconds: int) -> None:
        self.stage.wait(float(seconds))

    @invariant()
    def hear(self) -> None:
        """Every answer to a request is the first one."""
        for outside, number, request in self.asked:
            found = outside.answer(number)
            if isinstance(found, f.Answer):
                value = None if found.v is None else msgspec.json.decode(found.v)
                assert self.answers.setdefault(request, value) == value

    @invariant()
    def each_request_has_at_most_one_outcome(self) -> None:
        taken = Counter(str(entry.data["id"]) for entry in self.stage.entries("request.taken"))
        assert set(taken.values()) <= {1}

    @invariant()
    def what_was_asked_for_once_is_received_once(self) -> None:
        # A letter is a message of its own; what it holds is its value.
        assert all(len(ids) == 1 for ids in self.received.values()), self.received

    @invariant()
    def what_was_asked_for_once_is_sent_once_unless_it_was_taken_back(self) -> None:
        sent = {
            str(entry.data["id"]): (str(entry.data["mailbox"]), msgspec.json.decode(entry.value))
            for entry in self.stage.entries("message.sent")
            if entry.value is not None
        }
        for entry in self.stage.entries("message.moved"):
            if entry.data["to"] == "withdrawn":
                del sent[str(entry.data["id"])]
        assert set(Counter(sent.values()).values()) <= {1}, sent
        assert len(self.stage.entries("dead_letter.added")) <= 1

    @invariant()
    def the_question_has_one_answer(self) -> None:
        answered = [entry for entry in self.stage.entries("step.finished") if entry.data["n"] == 1]
        assert len(answered) <= 1

    def teardown(self) -> None:
        check_spans(self.stage.store.entries)


TestRequests = RequestMachine.TestCase
TestRequests.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
