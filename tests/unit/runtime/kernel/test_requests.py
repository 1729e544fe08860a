"""Requests of processes outside are carried out once: whatever is cut, killed and sent again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

import msgspec
import pytest
from tests.unit.runtime.kernel.mail.test_mailroom import Outsider, ack, declare, held_id, receive
from tests.unit.runtime.stage import Puppet, Stage, fields

from bartack.journal import Entry
from bartack.runtime.kernel.foreign import READ_ONLY
from bartack.runtime.memory.hub import KilledError, MortalJournal
from bartack.runtime.protocol import frames as f
from bartack.runtime.protocol import steps as s
from bartack.runtime.protocol.requests import BY_ID
from bartack.runtime.state import entries as e
from bartack.runtime.state import requests as taken
from bartack.runtime.state.apply import apply_all
from bartack.runtime.state.run_state import State

ID = "4f1d-request.1"


def add_letters(stage: Stage, main: Puppet) -> None:
    outside = Outsider(stage)
    for word in ("a", "b"):
        outside.ask("dead.add", word, f"letter-{word}", mailbox="box", message="manual")


def ask_question(stage: Stage, main: Puppet) -> None:
    main.step(1, "ask", s.AskArgs(question="Ship?", type="bool"))


def subscribe_two(stage: Stage, main: Puppet) -> None:
    outside = Outsider(stage)
    for name in ("box", "other"):
        outside.ask("subscribe", None, f"subscription-{name}", mailbox=name, pattern="build.*")


def send_first(stage: Stage, main: Puppet) -> None:
    Outsider(stage).ask("send", "first", "first", mailbox="box")


def nothing(stage: Stage, main: Puppet) -> None:
    """Nothing has to be there."""


def wait_in_full_box(stage: Stage, main: Puppet) -> None:
    """A mailbox that has no room yet."""
    declare(main, 1, "box", capacity=1, overflow="block")
    Outsider(stage).ask("send", "first", "first", mailbox="box")


class Case(NamedTuple):
    """A request, and how often each kind of entry has to be in the journal when it was carried out."""

    prepare: Callable[[Stage, Puppet], None]
    request: dict[str, object]
    effects: dict[str, int]
    value: object = None
    answer: object = None


SENT = {"message.sent": 1}
CASES = {
    "send": Case(nothing, {"mailbox": "box"}, SENT, "hello"),
    "send_supervised": Case(nothing, {"mailbox": "box", "terms": {}}, SENT, "hello"),
    "broadcast": Case(
        nothing,
        {
            "copies": [{"id": name, "recipient": name} for name in ("box", "other")],
            "strategy": "all_or_nothing",
        },
        {"message.sent": 2, "broadcast.settled": 1},
        "hello",
    ),
    "publish": Case(
        subscribe_two,
        {"topic": "build.done", "strategy": "best_effort"},
        {"message.sent": 2, "broadcast.settled": 1},
        "hello",
    ),
    "subscribe": Case(nothing, {"mailbox": "box", "pattern": "build.*"}, {"mailbox.changed": 1}),
    "close": Case(nothing, {"mailbox": "box"}, {"mailbox.changed": 1}),
    "dead.add": Case(nothing, {"mailbox": "box", "message": "manual"}, {"dead_letter.added": 1}, "hello"),
    "dead.retry": Case(add_letters, {"letters": {}}, {"dead_letter.moved": 2}),
    "dead.purge": Case(add_letters, {"letters": {}}, {"dead_letter.moved": 2}, answer=2),
    "answer": Case(ask_question, {"question": "q1"}, {"step.finished": 1}, value=True),
    "fail": Case(nothing, {"message": "enough"}, {"session.failed": 1}),
    "cancel": Case(nothing, {"message": "enough"}, {"session.failed": 1}),
    "interrupt": Case(nothing, {}, {}),
    "withdraw": Case(send_first, {"mailbox": "box", "id": "m-6"}, {"message.moved": 1}, answer=True),
}
"""The requests that are answered in the turn in which they come; calls, replies and waits have tests of their own."""


def ask(stage: Stage, do: str, case: Case, by_id: str = ID) -> tuple[Outsider, int]:
    outside = Outsider(stage)
    return outside, outside.ask(do, case.value, by_id, **case.request)


def outcome(outside: Outsider, number: int) -> object:
    """The answer to a request, or the error."""
    found = outside.answer(number)
    assert found is not None, "the request has no answer"
    return msgspec.to_builtins(found.e) if isinstance(found, f.Refusal) else outside.value(number)


def counted(stage: Stage, before: int) -> Counter[str]:
    """The kinds of entries since a place, without those that every start of a hub and every connection adds."""
    found = Counter(entry.kind for entry in stage.entries() if entry.seq > before)
    for kind in ("peer.joined", "hub.started", "journal.opened", "run.ended", "worker.ended"):
        found.pop(kind, None)
    return found


def prepared(case: Case) -> tuple[Stage, int]:
    stage = Stage()
    main = stage.begin()
    case.prepare(stage, main)
    stage.hub.flush()
    return stage, stage.hub.journal.last_seq


def doom(stage: Stage, lines: int, *, late: bool) -> None:
    """Have the hub die when this many lines more are durable; ``late``: it learns that they are."""
    assert isinstance(stage.hub.journal, MortalJournal)
    stage.hub.journal._dies_after = stage.lines() + lines
    stage.hub.journal._late = late


def resume(stage: Stage) -> None:
    """Kill everything, and start the next hub."""
    stage.workers.clear()
    stage.hub = stage._hub(None)
    stage.hub.begin()
    stage.hub.run_ready()


def test_every_request_has_an_id_but_those_that_look_and_those_about_what_a_connection_holds() -> None:
    of_connections = {"receive", "ack", "renew", "forget"}

    assert set(Stage().hub.core.foreign._handlers) == BY_ID | READ_ONLY | of_connections
    assert not BY_ID & (READ_ONLY | of_connections)


def test_there_is_a_case_for_every_request_that_changes_the_run() -> None:
    assert set(CASES) | {"call", "reply"} == BY_ID


@pytest.mark.requirement("requests-once")
@pytest.mark.parametrize("do", CASES)
def test_a_request_that_is_sent_again_over_another_connection_has_the_first_outcome(do: str) -> None:
    case = CASES[do]
    stage, before = prepared(case)
    first, number = ask(stage, do, case)
    answered = outcome(first, number)
    first.leave()
    changed = counted(stage, before)

    again, repeated = ask(stage, do, case)

    if stage.hub.status:
        stage.again()
        again, repeated = ask(stage, do, case)
    assert outcome(again, repeated) == answered
    assert counted(stage, before) == changed == Counter({**case.effects, "request.taken": 1})
    if case.answer is not None:
        assert answered == case.answer


@pytest.mark.requirement("requests-once")
@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("do", CASES)
def test_a_request_whose_hub_dies_in_any_line_of_it_is_carried_out_once(do: str, late: bool) -> None:
    case = CASES[do]
    stage, _ = prepared(case)
    first = stage.lines()
    ask(stage, do, case)

    for lines in range(stage.lines() - first + 1):
        doomed, before = prepared(case)
        doom(doomed, lines, late=late)
        answered: list[object] = []
        with suppress(KilledError):
            answered.append(outcome(*ask(doomed, do, case)))
            doomed.hub.flush()
        resume(doomed)
        if not doomed.hub.status:  # otherwise it was cancelled, and has ended
            answered.append(outcome(*ask(doomed, do, case)))

        found = counted(doomed, before)
        assert found == Counter({**case.effects, "request.taken": 1}), (lines, found)
        assert all(one == answered[0] for one in answered)


def test_everything_that_a_request_changes_is_in_one_line_with_its_outcome() -> None:
    stage, before = prepared(CASES["publish"])
    waiting = stage.workers["main"]
    receive(waiting, 5, "box")
    stage.hub.flush()
    lines = stage.lines()

    ask(stage, "publish", CASES["publish"])

    assert stage.lines() - lines == 2  # the other one: that a process joined
    kinds = [entry.kind for entry in stage.entries() if entry.seq > before]
    assert {"message.sent", "message.taken", "broadcast.settled", "request.taken"} <= set(kinds)


def test_two_requests_with_different_ids_are_two_requests() -> None:
    stage, before = prepared(CASES["send"])

    answers = [outcome(*ask(stage, "send", CASES["send"], by_id)) for by_id in ("one", "two", "one")]

    assert answers[0] == answers[2] != answers[1]
    assert counted(stage, before) == Counter({"message.sent": 2, "request.taken": 2})


def test_a_request_without_an_id_of_an_earlier_client_is_a_new_one_each_time() -> None:
    stage, before = prepared(CASES["send"])
    outside = Outsider(stage)

    answers = {outside.value(outside.ask("send", "hello", mailbox="box")) for _ in range(3)}
    stage.again()
    answers.add(outcome(*ask(stage, "send", CASES["send"], "")))

    assert len(answers) == 4
    assert counted(stage, before)["message.sent"] == 4


@pytest.mark.parametrize("by_id", ["with blank", "x" * 65, "a:b", "\u00e9", "/"])
def test_an_id_that_is_not_one_is_refused(by_id: str) -> None:
    stage, before = prepared(CASES["send"])
    outside, number = ask(stage, "send", CASES["send"], by_id)

    assert outside.error(number) == "FrameError"
    assert counted(stage, before) == Counter()


def test_what_a_request_of_a_process_that_may_not_ask_was_is_not_told() -> None:
    stage, _ = prepared(CASES["cancel"])
    ask(stage, "send", CASES["send"])
    inside = Outsider(stage, "foreign:8@1", rights=frozenset({"state"}))

    assert inside.error(inside.ask("send", "hello", ID, mailbox="box")) == "PeerRefusedError"


# Refusals.


def test_a_refusal_that_changed_nothing_is_not_recorded_and_is_decided_anew() -> None:
    stage, before = prepared(CASES["answer"])
    outside = Outsider(stage)
    case = CASES["answer"]

    assert outside.error(outside.ask("answer", "perhaps", ID, question="q1")) == "TypeMismatchError"
    assert counted(stage, before) == Counter()
    assert outcome(*ask(stage, "answer", case)) is None

    assert counted(stage, before) == Counter({"step.finished": 1, "request.taken": 1})


def test_an_answer_that_came_second_is_refused_and_the_first_is_not_when_it_is_repeated() -> None:
    stage, _ = prepared(CASES["answer"])
    outside = Outsider(stage)

    assert outcome(outside, outside.ask("answer", True, "mine", question="q1")) is None
    assert outside.error(outside.ask("answer", False, "yours", question="q1")) == "QuestionAnsweredError"
    assert outcome(outside, outside.ask("answer", True, "mine", question="q1")) is None


def test_a_request_that_was_carried_out_has_its_outcome_after_the_session_failed() -> None:
    stage, _ = prepared(CASES["send"])
    stage.slow_to_die.add("main")
    outside = Outsider(stage)
    sent = outside.value(outside.ask("send", "hello", ID, mailbox="box"))
    outside.ask("fail", None, "fail", message="enough")

    assert outside.value(outside.ask("send", "hello", ID, mailbox="box")) == sent
    assert outside.error(outside.ask("send", "hello", "other", mailbox="box")) == "SessionFailedError"


# Waiting for room.


def test_a_send_that_waits_for_room_goes_to_the_connection_that_asked_last() -> None:
    stage, before = prepared(Case(wait_in_full_box, {}, {}))
    first, second = Outsider(stage), Outsider(stage)
    for outside in (first, second):
        assert outside.answer(outside.ask("send", "second", ID, mailbox="box")) is None
    first.leave()

    main = stage.workers["main"]
    assert main.value(receive(main, 2, "box")) == "first"

    sent = second.value(1)
    assert main.value(receive(main, 3, "box")) == "second"
    assert outcome(*ask(stage, "send", Case(nothing, {"mailbox": "box"}, {}, "second"))) == sent
    assert counted(stage, before)["message.sent"] == 1


def test_a_send_that_waited_for_room_and_whose_process_left_never_happened() -> None:
    stage, before = prepared(Case(wait_in_full_box, {}, {}))
    waiting = Outsider(stage)
    waiting.ask("send", "second", ID, mailbox="box")
    waiting.leave()
    main = stage.workers["main"]
    main.value(receive(main, 2, "box"))
    assert counted(stage, before)["message.sent"] == 0

    again = Outsider(stage)
    again.value(again.ask("send", "second", ID, mailbox="box"))

    assert counted(stage, before)["message.sent"] == 1


def test_the_message_of_a_send_that_waited_and_its_outcome_are_one_line() -> None:
    stage, _ = prepared(Case(wait_in_full_box, {}, {}))
    outside = Outsider(stage)
    outside.ask("send", "second", ID, mailbox="box")
    stage.hub.flush()
    lines = stage.lines()

    main = stage.workers["main"]
    receive(main, 2, "box")

    assert stage.lines() - lines == 2  # the one that is received, and the one that enters
    assert [entry.kind for entry in stage.entries()][-2:] == ["message.sent", "request.taken"]


# Supervised sends.


def test_a_supervised_send_that_is_under_way_is_attached_to_by_its_repetition() -> None:
    stage, before = prepared(Case(nothing, {}, {}))
    request: dict[str, object] = {"mailbox": "box", "terms": {"ack": "delivered", "timeout_s": 60.0}}
    first = Outsider(stage)
    first.ask("send_supervised", "paper", ID, **request)
    first.leave()
    again = Outsider(stage)
    number = again.ask("send_supervised", "paper", ID, **request)
    assert again.answer(number) is None

    main = stage.workers["main"]
    receive(main, 2, "box")

    delivered = fields(again.value(number))
    assert delivered["outcome"] == "delivered"
    assert counted(stage, before)["message.sent"] == 1
    late = Outsider(stage)
    assert late.value(late.ask("send_supervised", "paper", ID, **request)) == delivered


@pytest.mark.requirement("requests-once")
@pytest.mark.parametrize("before_resume", [True, False])
def test_a_supervised_send_outlives_its_hub_and_has_one_outcome(before_resume: bool) -> None:
    stage, before = prepared(Case(nothing, {}, {}))
    request: dict[str, object] = {"mailbox": "box", "terms": {"ack": "delivered", "timeout_s": 60.0}}
    Outsider(stage).ask("send_supervised", "paper", ID, **request)
    stage.hub.flush()
    main = stage.again()
    if before_resume:
        receive(main, 2, "box")
    again = Outsider(stage)
    number = again.ask("send_supervised", "paper", ID, **request)
    if not before_resume:
        receive(main, 2, "box")

    assert fields(again.value(number))["outcome"] == "delivered"
    assert counted(stage, before)["message.sent"] == counted(stage, before)["request.taken"] == 1


def test_a_supervised_send_that_fails_has_its_error_as_the_outcome() -> None:
    stage, before = prepared(CASES["close"])
    Outsider(stage).ask("close", None, "close", mailbox="box")
    request: dict[str, object] = {"mailbox": "box", "terms": {"on_error": "raise"}}

    errors = [
        outside.error(outside.ask("send_supervised", 1, ID, **request))
        for outside in (Outsider(stage), Outsider(stage))
    ]

    assert errors == ["DeliveryError"] * 2
    assert counted(stage, before)["send.settled"] == 1


def test_a_broadcast_that_nobody_waits_for_any_longer_still_records_its_outcome() -> None:
    stage, before = prepared(Case(nothing, {}, {}))
    request: dict[str, object] = {
        "copies": [{"id": "box", "recipient": "box"}],
        "strategy": "best_effort",
        "terms": {"ack": "delivered", "timeout_s": 60.0},
    }
    outside = Outsider(stage)
    outside.ask("broadcast", "all", ID, **request)
    outside.leave()
    main = stage.workers["main"]
    receive(main, 2, "box")

    again = Outsider(stage)

    assert fields(again.value(again.ask("broadcast", "all", ID, **request)))["succeeded"] == 1
    assert counted(stage, before)["request.taken"] == 1


def test_a_process_that_waits_when_the_session_fails_learns_it_and_can_ask_the_resumed_run() -> None:
    stage, _ = prepared(Case(nothing, {}, {}))
    request: dict[str, object] = {"mailbox": "box", "terms": {"ack": "delivered", "timeout_s": 60.0}}
    outside = Outsider(stage)
    number = outside.ask("send_supervised", "paper", ID, **request)
    Outsider(stage).ask("fail", None, "fail", message="enough")
    assert outside.error(number) == "SessionFailedError"

    main = stage.again()
    again = Outsider(stage)
    number = again.ask("send_supervised", "paper", ID, **request)
    receive(main, 2, "box")

    assert fields(again.value(number))["outcome"] == "delivered"


# Calls and replies.


def call(outside: Outsider) -> int:
    return outside.ask("call", "ping", ID, mailbox="box", timeout_s=20.0)


def reply(main: Puppet, n: int, received: int) -> None:
    main.step(n, "reply", s.ReplyArgs(mailbox="box", id=held_id(main, received)), "pong")


def test_a_call_whose_process_was_cut_off_after_it_was_received_has_one_message_and_one_reply() -> None:
    stage, before = prepared(Case(nothing, {}, {}))
    main = stage.workers["main"]
    first = Outsider(stage)
    call(first)
    received = receive(main, 1, "box", hold=True)
    first.leave()
    again = Outsider(stage)
    number = call(again)
    reply(main, 2, received)

    assert again.value(number) == "pong"
    late = Outsider(stage)
    assert late.value(call(late)) == "pong"
    assert counted(stage, before)["message.sent"] == 1


def test_a_reply_that_no_process_waits_for_waits_for_the_repeated_call() -> None:
    stage, _ = prepared(Case(nothing, {}, {}))
    main = stage.workers["main"]
    first = Outsider(stage)
    call(first)
    received = receive(main, 1, "box", hold=True)
    first.leave()
    reply(main, 2, received)
    ack(main, 3, "box", held_id(main, received))

    again = Outsider(stage)

    assert again.value(call(again)) == "pong"


@pytest.mark.requirement("requests-once")
def test_a_call_outlives_its_hub() -> None:
    stage, before = prepared(Case(nothing, {}, {}))
    call(Outsider(stage))
    stage.hub.flush()
    main = stage.again()
    again = Outsider(stage)
    number = call(again)
    received = receive(main, 1, "box", hold=True)
    reply(main, 2, received)

    assert again.value(number) == "pong"
    assert counted(stage, before)["message.sent"] == 1
    stage.again()
    late = Outsider(stage)
    assert late.value(call(late)) == "pong"


def test_the_reply_to_a_call_and_the_step_that_gives_it_are_one_line() -> None:
    stage, _ = prepared(Case(nothing, {}, {}))
    main = stage.workers["main"]
    call(Outsider(stage))
    received = receive(main, 1, "box", hold=True)
    stage.hub.flush()
    lines = stage.lines()

    reply(main, 2, received)

    assert stage.lines() - lines == 1
    assert [entry.kind for entry in stage.entries()][-2:] == ["step.finished", "request.taken"]


def test_a_call_that_is_late_is_late_when_it_is_repeated_and_its_message_is_gone() -> None:
    stage, before = prepared(Case(nothing, {}, {}))
    outside = Outsider(stage)
    number = call(outside)
    stage.hub.flush()
    lines = stage.lines()
    stage.wait(20.0)

    assert outside.error(number) == "DeadlineExceededError"
    assert stage.lines() - lines == 1
    again = Outsider(stage)
    assert again.error(call(again)) == "DeadlineExceededError"
    assert counted(stage, before) == Counter({"message.sent": 1, "message.moved": 1, "request.taken": 1})


def test_a_call_that_was_taken_back_before_it_was_received_is_sent_anew() -> None:
    stage, before = prepared(Case(nothing, {}, {}))
    first = Outsider(stage)
    call(first)
    first.leave()
    again = Outsider(stage)
    number = call(again)
    main = stage.workers["main"]
    received = receive(main, 1, "box", hold=True)
    reply(main, 2, received)

    assert again.value(number) == "pong"
    assert main.error(receive(main, 3, "box", 0)) == "ReceiveTimeoutError"
    assert counted(stage, before)["message.moved"] == 1


def test_a_reply_from_outside_is_given_once() -> None:
    stage, before = prepared(Case(nothing, {}, {}))
    main = stage.workers["main"]
    called = main.step(1, "call", s.CallMailboxArgs(mailbox="box"), "ping")
    outside = Outsider(stage)
    held = fields(outside.value(outside.ask("receive", mailbox="box", timeout_s=0)))
    for _ in range(2):
        assert outside.value(outside.ask("reply", "pong", ID, mailbox="box", id=held["id"])) is None
    outside.leave()
    again = Outsider(stage)

    assert again.value(again.ask("reply", "pong", ID, mailbox="box", id=held["id"])) is None
    assert main.value(called) == "pong"
    assert counted(stage, before)["request.taken"] == 1


# Dead letters.


def test_letters_that_are_tried_again_in_several_turns_are_tried_once_by_a_repeated_request() -> None:
    stage, _ = prepared(Case(nothing, {}, {}))
    outside = Outsider(stage)
    for n in range(40):
        outside.ask("dead.add", n, f"letter-{n}", mailbox="box", message="manual")
    before = stage.hub.journal.last_seq
    number = outside.ask("dead.retry", None, ID, letters={})
    assert outside.answer(number) is None
    outside.leave()
    again = Outsider(stage)
    repeated = again.ask("dead.retry", None, ID, letters={})
    other = Outsider(stage)
    overlapping = other.ask("dead.retry", None, "another", letters={})
    stage.wait(1.0)

    results = msgspec.convert(again.value(repeated), type=list[object])
    rest = msgspec.convert(other.value(overlapping), type=list[object])
    assert len(results) + len(rest) == 40
    assert counted(stage, before)["dead_letter.moved"] == 40


# Cancelling.


@pytest.mark.requirement("cancelled-stays-cancelled")
def test_a_run_whose_hub_dies_while_it_is_cancelled_is_cancelled_by_the_next() -> None:
    stage, _ = prepared(CASES["cancel"])
    stage.slow_to_die.add("main")
    outside = Outsider(stage)
    assert outside.value(outside.ask("cancel", None, ID, message="enough")) is None
    assert stage.core.state.ended is None

    resume(stage)

    assert stage.hub.status == "cancelled"
    ended = stage.entries("run.ended")[-1].data
    assert (ended["status"], ended["reason"]) == ("cancelled", "enough")
    assert stage.workers == {}


# Memory.


def entries(*items: e.EntryData) -> list[Entry]:
    return [
        Entry(seq, seq, seq, data.kind, msgspec.Raw(msgspec.json.encode(data)))
        for seq, data in enumerate(items, 1)
    ]


def test_the_state_keeps_a_bounded_number_of_requests_and_forgets_the_oldest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(taken, "KEPT", 10)
    state = State()
    apply_all(state, entries(*(e.RequestTaken(id=f"r{n}", do="send") for n in range(25))))

    assert [n for n in range(25) if state.requests.place_of(f"r{n}")] == list(range(15, 25))
    assert state.requests.place_of("r24") == 25


def test_calls_that_never_get_a_reply_are_bounded_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(taken, "KEPT", 10)
    sent = [
        e.MessageSent(mailbox="box", id=f"m-{n}", size=1, reply_to=taken.reply_address(f"r{n}"))
        for n in range(25)
    ]
    state = State()
    apply_all(state, entries(*sent))

    assert [n for n in range(25) if state.requests.message_of(f"r{n}")] == list(range(15, 25))


def test_the_address_of_an_earlier_version_is_not_that_of_a_request() -> None:
    sent = e.MessageSent(mailbox="box", id="m-1", size=1, reply_to="foreign:77@1#3.12.4 0")
    state = State()
    apply_all(state, entries(sent))

    assert state.requests.message_of("") is None
