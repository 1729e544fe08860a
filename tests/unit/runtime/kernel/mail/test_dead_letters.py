"""Dead letters: which messages become one, when they are tried again, and what people do with them."""

from __future__ import annotations

from typing import Literal

import msgspec
import pytest
from tests.unit.runtime.kernel.mail.test_supervised import declare, outcome, receive, settle, supervise
from tests.unit.runtime.stage import Puppet, Stage, delegate, fields

from bartack.messaging import Accepted, DeadLetter, LetterFilter, LetterPolicy, Rejected
from bartack.messaging.dead_letter_queue import Retried
from bartack.runtime.kernel.desk import Settings
from bartack.runtime.kernel.turn import Peer
from bartack.runtime.protocol import frames as f
from bartack.runtime.protocol import steps as s
from bartack.runtime.protocol.requests import Request
from bartack.runtime.state.worker_state import Value

EVERYTHING = LetterFilter()


def letters(stage: Stage) -> list[DeadLetter]:
    return list(stage.core.state.deliveries.letters.values())


def lone_letter(stage: Stage) -> DeadLetter:
    (letter,) = letters(stage)
    return letter


def lose(main: Puppet, n: int = 1, mailbox: str = "@nobody", **terms: object) -> None:
    """Make a dead letter of a message to nobody."""
    found = outcome(main, supervise(main, n, mailbox, retries=0, on_error="dead_letter", **terms))
    assert found["outcome"] == "dead_lettered"


def retry(stage: Stage, chosen: LetterFilter = EVERYTHING) -> list[Retried]:
    found: list[list[Retried]] = []
    stage.core.letters.retry(chosen, "command", found.append)
    while not found:
        stage.clock.advance(0.001)
        stage.hub.tick()
    stage.hub.finish_turn()
    return found[0]


def give_back(stage: Stage, times: int) -> Puppet:
    """Have a process outside take and give back a message of ``box`` so many times."""
    main = stage.begin()
    main.value(main.step(1, "send", s.SendArgs(mailbox="box"), "hot"))
    for _ in range(times):
        peer = Peer(0, name="foreign:1@1")
        heard: list[f.ToPeer] = []
        number = stage.hub.join(f.Hello(role="foreign", pid=1), heard.append, peer)
        arguments = msgspec.Raw(msgspec.json.encode(Request(mailbox="box", timeout_s=0.0)))
        stage.hub.say(number, f.Ask(i=1, do="receive", a=arguments))
        stage.hub.run_ready()
        assert isinstance(heard[-1], f.Answer), heard
        stage.hub.hang_up(number)
        stage.hub.run_ready()
    return main


def test_a_message_that_was_given_back_five_times_is_a_letter_with_its_history() -> None:
    stage = Stage()
    give_back(stage, 5)

    letter = lone_letter(stage)

    assert (letter.reason, letter.attempts, letter.next_retry_at) == ("max_deliveries", 5, 0)
    assert [note.event for note in letter.history] == ["returned"] * 5 + ["dead"]
    assert len(stage.core.state.mailbox("box")) == 0


def test_four_times_is_not_enough_and_the_count_survives_the_hub() -> None:
    stage = Stage()
    give_back(stage, 4)
    assert letters(stage) == []

    main = stage.again()
    held = fields(main.value(receive(main, 2, "box", hold=True)))

    assert held["attempt"] == 5


def test_a_letter_is_tried_again_when_it_is_due_and_reaches_the_worker_that_came_since() -> None:
    stage = Stage()
    main = stage.begin()
    lose(main, 1, "@main/2:late")
    delegate(main, 2, ["late"], kind="spawn")
    late = stage.workers["main/2:late"]
    waiting = receive(late, 1, "@main/2:late", None)

    stage.wait(60.0)

    assert late.value(waiting) == "work"
    letter = lone_letter(stage)
    assert (letter.state, letter.history[-1].detail) == ("redelivered", late.path)


def test_a_letter_reaches_the_next_worker_of_a_name() -> None:
    stage = Stage()
    main = stage.begin()
    delegate(main, 1, ["first"], kind="spawn")
    first = stage.workers["main/1:first"]
    first.value(first.step(1, "register", s.MailboxArgs(mailbox="clerk")))
    first.result(None)
    lose(main, 2, "clerk")

    delegate(main, 3, ["second"], kind="spawn")
    second = stage.workers["main/3:second"]
    assert second.value(second.step(1, "register", s.MailboxArgs(mailbox="clerk"))) == 2
    stage.wait(60.0)

    assert second.value(receive(second, 2, "clerk")) == "work"


def test_attempts_end_and_the_letter_stays() -> None:
    stage = Stage(settings=Settings(letters=LetterPolicy(base=1.0, max_attempts=3)))
    main = stage.begin()
    lose(main)

    stage.wait(100.0)

    letter = lone_letter(stage)
    assert (letter.state, letter.attempts, letter.next_retry_at) == ("waiting", 3, 0)


@pytest.mark.parametrize(
    ("reason", "policy", "again"),
    [
        ("no_receiver", LetterPolicy(), True),
        ("no_receiver", LetterPolicy(retry=False), False),
        ("closed", LetterPolicy(), False),
        ("manual", LetterPolicy(), False),
    ],
)
def test_which_letters_are_tried_again_by_themselves(
    reason: Literal["no_receiver", "closed", "manual"], policy: LetterPolicy, again: bool
) -> None:
    stage = Stage(settings=Settings(letters=policy))
    main = stage.begin()
    if reason == "closed":
        main.step(1, "close", s.MailboxArgs(mailbox="box"))
    if reason == "manual":
        stage.core.letters.add("box", "me", Value(msgspec.Raw(b"1")), "because", {})
    else:
        lose(main, 2, "box" if reason == "closed" else "@nobody")

    letter = lone_letter(stage)
    assert (letter.reason, bool(letter.next_retry_at)) == (reason, again)


def test_the_time_of_the_next_attempt_survives_the_hub() -> None:
    stage = Stage()
    lose(stage.begin(), 1, "@main/2:late")
    due = lone_letter(stage).next_retry_at
    stage.hub.flush()

    main = stage.again()
    delegate(main, 2, ["late"], kind="spawn")
    assert lone_letter(stage).next_retry_at == due
    stage.wait(60.0)

    assert lone_letter(stage).state == "retrying"


def test_an_old_letter_expires_and_is_never_tried_again() -> None:
    stage = Stage(settings=Settings(letters=LetterPolicy(base=1000.0, expire_after=10.0, retry=False)))
    main = stage.begin()
    lose(main)

    stage.wait(11.0)

    assert lone_letter(stage).state == "expired"
    assert retry(stage) == []


def test_a_retry_is_one_line_and_keeps_id_and_key() -> None:
    stage = Stage()
    main = stage.begin()
    lose(main, 1, "@main/2:late", key="k")
    letter = lone_letter(stage)
    delegate(main, 2, ["late"], kind="spawn")
    before = stage.lines()

    (result,) = retry(stage)

    assert isinstance(result.outcome, Accepted)
    assert (result.id, result.outcome.id) == (letter.id, letter.message_id)
    assert stage.lines() == before + 1
    (message,) = stage.core.state.mailbox("@main/2:late").queued()
    assert (message.id, message.key, message.attempt) == (letter.message_id, "k", 0)


def test_a_refused_message_keeps_its_key_so_that_no_second_one_comes() -> None:
    stage = Stage()
    main = stage.begin()
    lose(main, 1, "@main/4:late", key="k")
    letter = lone_letter(stage)

    lose(main, 2, "@main/4:late", key="k")
    raised = supervise(main, 3, "@main/4:late", key="k")
    assert main.error(raised) == "DeliveryError"
    delegate(main, 4, ["late"], kind="spawn")
    sent = main.step(5, "send", s.SendArgs(mailbox="@main/4:late", key="k"), "again")
    retry(stage)

    assert main.value(sent) == letter.message_id
    assert lone_letter(stage).message_id == letter.message_id
    assert len(stage.core.state.mailbox("@main/4:late")) == 1
    found = outcome(main, supervise(main, 6, "@main/4:late", key="k"))
    assert (found["outcome"], found["id"]) == ("accepted", letter.message_id)


def test_a_retry_that_is_refused_counts() -> None:
    stage = Stage()
    lose(stage.begin())

    (result,) = retry(stage)

    assert isinstance(result.outcome, Rejected)
    assert (result.outcome.reason, lone_letter(stage).attempts) == ("no_receiver", 2)


def test_many_retries_leave_room_for_others_between_them() -> None:
    stage = Stage()
    main = stage.begin()
    for _ in range(100):
        stage.core.letters.add("box", "me", Value(msgspec.Raw(b"1")), "manual", {})
    done: list[list[Retried]] = []
    stage.core.letters.retry(EVERYTHING, "command", done.append)
    assert not done

    main.value(main.step(1, "send", s.SendArgs(mailbox="other"), 1))
    while not done:
        stage.clock.advance(0.001)
        stage.hub.tick()

    assert len(done[0]) == 100
    kinds = [entry.kind for entry in stage.entries("dead_letter.moved", "message.sent")]
    assert 0 < kinds.index("message.sent") < 100


def test_a_letter_whose_message_dies_again_waits_again() -> None:
    stage = Stage()
    main = stage.begin()
    supervise(main, 1, "box", ack="processed", on_error="ignore", timeout_s=50.0)
    for n in (2, 4):
        held = fields(main.value(receive(main, n, "box", hold=True)))
        settle(main, n + 1, "box", str(held["id"]), "final")
        assert (lone_letter(stage).state, lone_letter(stage).reason) == ("waiting", "nack")
        retry(stage)

    assert lone_letter(stage).attempts == 2
    assert lone_letter(stage).state == "retrying"


def test_purged_letters_are_gone_in_one_line() -> None:
    stage = Stage()
    main = stage.begin()
    for n in (1, 2, 3):
        lose(main, n, f"@nobody-{n}")
    before = stage.lines()

    assert stage.core.letters.purge(LetterFilter(mailbox="@nobody-[12]")) == 2
    assert stage.lines() == before + 1
    assert stage.core.letters.purge(LetterFilter(mailbox="@nobody-1")) == 0
    assert stage.lines() == before + 1
    assert [letter.mailbox for letter in EVERYTHING.chosen(letters(stage), 0)] == ["@nobody-3"]


def test_a_letter_on_its_way_is_not_purged() -> None:
    stage = Stage()
    main = stage.begin()
    stage.core.letters.add("box", "me", Value(msgspec.Raw(b"1")), "manual", {})
    retry(stage)

    assert stage.core.letters.purge(EVERYTHING) == 0
    assert main.value(receive(main, 1, "box")) == 1


def test_letters_are_complete_behind_a_killed_hub() -> None:
    stage = Stage()
    main = stage.begin()
    declare(main, 1, "box", capacity=1, overflow="drop_oldest")
    for n in (2, 3, 4):
        supervise(main, n, "box", n, metadata={"n": n})
    lose(main, 5, key="k", metadata={"a": 1})
    before = [msgspec.json.encode(letter) for letter in letters(stage)]

    stage.again()

    assert [msgspec.json.encode(letter) for letter in letters(stage)] == before
    assert len(before) == 3


def test_without_dead_letters_what_cannot_be_delivered_is_dropped() -> None:
    stage = Stage(settings=Settings(letters=LetterPolicy(enabled=False)))
    main = give_back(stage, 5)

    assert letters(stage) == []
    assert main.error(receive(main, 2, "box")) == "ReceiveTimeoutError"


def test_nothing_is_tried_again_while_the_session_has_failed() -> None:
    stage = Stage()
    main = stage.begin()
    lose(main)
    main.fail()

    stage.wait(1000.0)

    assert lone_letter(stage).attempts == 1


def test_a_letter_that_somebody_tried_again_is_not_tried_again_when_it_was_due() -> None:
    stage = Stage()
    main = stage.begin()
    supervise(main, 1, "box", ack="delivered", timeout_s=1.0, retries=0, on_error="dead_letter")
    stage.wait(1.1)
    assert lone_letter(stage).next_retry_at
    retry(stage)

    stage.wait(100.0)

    assert len(stage.entries("dead_letter.moved")) == 1
    assert len(stage.core.state.mailbox("box")) == 1
