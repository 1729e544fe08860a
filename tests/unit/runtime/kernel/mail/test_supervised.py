"""Supervised sends, broadcasts, topics and names: what the hub decides, and what it writes in one line."""

from __future__ import annotations

import msgspec
import pytest
from tests.unit.runtime.stage import Puppet, Stage, delegate, fields, plain, raw

from bartack.config.sections import Bounds
from bartack.errors import DeliveryOptionError
from bartack.messaging import LetterPolicy
from bartack.messaging.options import Terms
from bartack.messaging.outcome import Copy
from bartack.runtime.kernel.desk import Settings
from bartack.runtime.kernel.turn import Peer
from bartack.runtime.memory.hub import MortalJournal
from bartack.runtime.protocol import frames as f
from bartack.runtime.protocol import steps as s
from bartack.runtime.protocol.requests import Request

SECOND_US = 1_000_000
NO_PAUSE: dict[str, object] = {"base_s": 0.0}


def supervise(worker: Puppet, n: int, mailbox: str, value: object = "work", **terms: object) -> int:
    made = msgspec.convert(terms, type=Terms)
    return worker.step(n, "send_supervised", s.SuperviseArgs(mailbox=mailbox, terms=made), value)


def broadcast(
    worker: Puppet, n: int, names: list[str], strategy: str = "all_or_nothing", **terms: object
) -> int:
    copies = [Copy(name, name) for name in names]
    args = s.CastArgs(copies=copies, strategy=strategy, terms=msgspec.convert(terms, type=Terms))
    return worker.step(n, "broadcast", args, "news")


def publish(worker: Puppet, n: int, topic: str, strategy: str = "best_effort", **terms: object) -> int:
    args = s.PublishArgs(topic=topic, strategy=strategy, terms=msgspec.convert(terms, type=Terms))
    return worker.step(n, "publish", args, "news")


def receive(
    worker: Puppet, n: int, mailbox: str, timeout_s: float | None = 0.0, *, hold: bool = False
) -> int:
    return worker.step(n, "receive", s.ReceiveArgs(mailbox=mailbox, timeout_s=timeout_s, hold=hold))


def settle(worker: Puppet, n: int, mailbox: str, message_id: str, kind: str = "ack") -> int:
    args = s.AckArgs(mailbox=mailbox, id=message_id, ok=kind == "ack", requeue=kind != "final")
    return worker.step(n, "ack" if kind == "ack" else "nack", args)


def declare(worker: Puppet, n: int, mailbox: str, **bounds: object) -> None:
    worker.value(
        worker.step(n, "declare", msgspec.convert({"mailbox": mailbox, **bounds}, type=s.DeclareArgs))
    )


def pair(stage: Stage) -> tuple[Puppet, Puppet]:
    """A run in which one worker sends and another one receives."""
    main = stage.begin()
    delegate(main, 1, ["sender", "receiver"])
    return stage.workers["main/1.1:sender"], stage.workers["main/1.2:receiver"]


def outcome(worker: Puppet, i: int) -> dict[str, object]:
    return fields(worker.value(i))


def refused(worker: Puppet, i: int) -> dict[str, object]:
    """The outcome that a refusal carries."""
    found = worker.answer(i)
    assert isinstance(found, f.Refusal), found
    return fields(found.e.facts["outcome"])


def outcomes(worker: Puppet, i: int) -> list[str]:
    """What became of the copies of a broadcast."""
    results = msgspec.convert(outcome(worker, i)["results"], type=list[Copy])
    return [type(copy.outcome).__name__ for copy in results]


def line_of(stage: Stage, kind: str) -> list[str]:
    """The kinds of all entries that are in one line with the last entry of a kind."""
    entries = stage.entries()
    assert isinstance(stage.hub.journal, MortalJournal)
    last = max(entry.seq for entry in entries if entry.kind == kind)
    ends = [0, *stage.hub.journal.lines]
    end = min(place for place in ends if place >= last)
    start = max(place for place in ends if place < end)
    return [entry.kind for entry in entries if start < entry.seq <= end]


# Levels.


def test_an_accepted_message_is_one_entry_that_is_the_outcome_too() -> None:
    stage = Stage()
    main = stage.begin()

    found = outcome(main, supervise(main, 1, "box"))

    assert found == {"outcome": "accepted", "id": f"m-{found['seq']}", "seq": found["seq"]}
    assert line_of(stage, "message.sent") == ["message.sent"]
    assert stage.again().past[0].v == msgspec.Raw(msgspec.json.encode(found))


def test_a_delivery_is_told_when_a_receiver_has_the_message() -> None:
    stage = Stage()
    sender, receiver = pair(stage)
    i = supervise(sender, 1, "box", ack="delivered", timeout_s=5.0)

    assert sender.answer(i) is None
    assert receiver.value(receive(receiver, 1, "box")) == "work"
    found = outcome(sender, i)
    assert (found["outcome"], found["receiver"]) == ("delivered", receiver.path)


def test_a_receiver_that_waits_already_is_a_delivery_at_once() -> None:
    stage = Stage()
    sender, receiver = pair(stage)
    waiting = receive(receiver, 1, "box", None)

    assert outcome(sender, supervise(sender, 1, "box", ack="delivered"))["outcome"] == "delivered"
    assert receiver.value(waiting) == "work"


def test_processed_is_told_when_the_receiver_acknowledges() -> None:
    stage = Stage()
    sender, receiver = pair(stage)
    i = supervise(sender, 1, "box", ack="processed", timeout_s=5.0)
    held = fields(receiver.value(receive(receiver, 1, "box", hold=True)))

    assert sender.answer(i) is None
    settle(receiver, 2, "box", str(held["id"]))
    assert outcome(sender, i)["processed"] is True


def test_a_plain_receiver_never_says_processed_and_the_message_is_no_dead_letter() -> None:
    stage = Stage()
    sender, receiver = pair(stage)
    i = supervise(sender, 1, "box", ack="processed", on_error="dead_letter")

    receiver.value(receive(receiver, 1, "box"))

    assert outcome(sender, i)["stage"] == "delivered"
    assert stage.core.state.deliveries.letters == {}


def test_a_held_message_that_is_processed_too_late_stays_with_its_receiver() -> None:
    stage = Stage()
    sender, receiver = pair(stage)
    i = supervise(sender, 1, "box", ack="processed", timeout_s=1.0, retries=0, on_error="dead_letter")
    held = fields(receiver.value(receive(receiver, 1, "box", hold=True)))

    stage.wait(1.1)

    assert outcome(sender, i)["stage"] == "delivered"
    assert stage.core.state.deliveries.letters == {}
    assert receiver.value(settle(receiver, 2, "box", str(held["id"]))) is None


def test_a_message_that_is_given_back_for_good_is_a_dead_letter_and_known_as_one() -> None:
    stage = Stage()
    sender, receiver = pair(stage)
    i = supervise(sender, 1, "box", ack="processed", timeout_s=5.0, on_error="ignore")
    held = fields(receiver.value(receive(receiver, 1, "box", hold=True)))

    settle(receiver, 2, "box", str(held["id"]), "final")

    assert (outcome(sender, i)["outcome"], outcome(sender, i)["reason"]) == ("dead_lettered", "nack")


def test_a_message_that_came_back_is_queued_again_and_can_be_taken_back() -> None:
    stage = Stage()
    sender, receiver = pair(stage)
    i = supervise(sender, 1, "box", ack="processed", timeout_s=5.0, retries=0)
    held = fields(receiver.value(receive(receiver, 1, "box", hold=True)))
    settle(receiver, 2, "box", str(held["id"]), "nack")
    receiver.step(3, "stats", s.MailboxArgs(mailbox="other"))  # it went on: the failure was caught
    assert len(stage.core.state.mailbox("box")) == 1

    stage.wait(5.1)

    assert refused(sender, i)["stage"] == "accepted"
    assert len(stage.core.state.mailbox("box")) == 0


# Attempts.


@pytest.mark.requirement("given-up-is-withdrawn")
def test_giving_up_withdraws_the_message_in_the_line_that_says_so() -> None:
    stage = Stage()
    main = stage.begin()
    i = supervise(main, 1, "box", ack="delivered", timeout_s=1.0, retries=0)

    stage.wait(1.1)

    assert refused(main, i) == {"outcome": "timed_out", "stage": "accepted", "attempts": 1, "id": "m-7"}
    assert line_of(stage, "send.settled") == ["message.moved", "send.settled", "step.failed"]
    assert main.error(receive(main, 2, "box")) == "ReceiveTimeoutError"


@pytest.mark.requirement("one-copy")
def test_a_retry_enqueues_no_second_copy() -> None:
    stage = Stage()
    main = stage.begin()
    supervise(main, 1, "box", ack="delivered", timeout_s=1.0, retries=3, **NO_PAUSE)

    stage.wait(2.5)

    assert len(stage.core.state.mailbox("box")) == 1
    assert [fields(entry.data)["attempt"] for entry in stage.entries("send.tried")] == [1, 2]
    assert len(stage.entries("message.sent")) == 1


@pytest.mark.parametrize("retries", [0, 1, 4])
def test_there_are_as_many_attempts_as_were_asked_for(retries: int) -> None:
    stage = Stage()
    main = stage.begin()
    i = supervise(main, 1, "box", ack="delivered", timeout_s=1.0, retries=retries, **NO_PAUSE)

    stage.wait(1.0 + retries + 0.5)

    assert refused(main, i)["attempts"] == retries + 1


def test_a_message_that_is_received_between_two_attempts_is_delivered() -> None:
    stage = Stage()
    sender, receiver = pair(stage)
    i = supervise(sender, 1, "box", ack="delivered", timeout_s=1.0, retries=1, base_s=100.0, cap_s=100.0)
    stage.wait(1.01)
    assert len(stage.entries("send.tried")) == 1

    receiver.value(receive(receiver, 1, "box"))

    assert outcome(sender, i)["outcome"] == "delivered"


def test_no_attempt_begins_behind_the_deadline() -> None:
    stage = Stage()
    main = stage.begin()
    deadline = stage.clock.now_us() + 3 * SECOND_US
    i = supervise(
        main,
        1,
        "box",
        ack="delivered",
        timeout_s=2.0,
        retries=9,
        deadline=deadline,
        base_s=100.0,
        cap_s=100.0,
    )

    stage.wait(2.9)
    assert main.answer(i) is None
    stage.wait(0.2)
    assert refused(main, i)["attempts"] == 1


def test_a_deadline_that_has_passed_is_no_attempt_at_all() -> None:
    main = Stage().begin()

    found = refused(main, supervise(main, 1, "box", ack="delivered", deadline=1))

    assert (found["stage"], found["attempts"], found["id"]) == ("none", 0, "")


def test_nothing_is_sent_behind_the_deadline() -> None:
    stage = Stage()
    main = stage.begin()

    assert refused(main, supervise(main, 1, "box", deadline=1))["attempts"] == 0
    assert outcomes(main, broadcast(main, 2, ["box"], "best_effort", deadline=1)) == ["TimedOut"]
    assert outcomes(main, broadcast(main, 3, ["box"], deadline=1, on_error="ignore")) == ["Rejected"]
    assert len(stage.core.state.mailbox("box")) == 0


def test_the_pause_stays_within_its_bounds() -> None:
    stage = Stage()
    main = stage.begin()
    for n in range(1, 300):
        supervise(main, n, "@nobody", retries=3, base_s=0.1, cap_s=0.3)
    stage.wait(5.0)

    bounds = {1: 0.1, 2: 0.2, 3: 0.3}
    pauses: dict[int, list[float]] = {attempt: [] for attempt in bounds}
    for entry in stage.entries("send.tried"):
        data = fields(entry.data)
        attempt = int(str(data["attempt"]))
        pauses[attempt].append((int(str(data["due"])) - entry.at) / SECOND_US)
    for attempt, bound in bounds.items():
        assert len(pauses[attempt]) == 299
        assert 0 <= min(pauses[attempt]) < bound / 10
        assert bound * 0.9 < max(pauses[attempt]) <= bound


def test_a_killed_hub_goes_on_with_the_time_and_the_count_of_the_journal() -> None:
    stage = Stage()
    main = stage.begin()
    terms: dict[str, object] = {"ack": "delivered", "timeout_s": 10.0, "retries": 1, **NO_PAUSE}
    supervise(main, 1, "box", **terms)
    stage.wait(14.0)
    stage.hub.flush()

    main = stage.again(dead_s=3600.0)
    i = supervise(main, 1, "box", **terms)

    stage.wait(5.0)
    assert main.answer(i) is None
    stage.wait(1.5)
    assert refused(main, i)["attempts"] == 2


def test_a_killed_sender_is_attached_to_its_send() -> None:
    stage = Stage()
    sender, receiver = pair(stage)
    supervise(sender, 1, "box", ack="delivered", timeout_s=50.0)

    again = stage.kill(sender.path)
    assert again is not None
    i = supervise(again, 1, "box", ack="delivered", timeout_s=50.0)
    receiver.value(receive(receiver, 1, "box"))

    assert outcome(again, i)["outcome"] == "delivered"
    assert len(stage.entries("message.sent")) == 1


def test_attempts_go_on_while_the_sender_is_dead() -> None:
    stage = Stage()
    sender, receiver = pair(stage)
    supervise(sender, 1, "box", ack="delivered", timeout_s=50.0)
    stage.shy.add(sender.path)
    stage.kill(sender.path)

    receiver.value(receive(receiver, 1, "box"))

    assert len(stage.entries("send.settled")) == 1


def test_a_cancelled_send_takes_its_message_back() -> None:
    stage = Stage()
    main = stage.begin()
    i = supervise(main, 1, "box", ack="delivered", timeout_s=50.0)

    main.cancel(1)

    assert main.error(i) == "StepCancelledError"
    assert len(stage.core.state.mailbox("box")) == 0
    assert stage.core.state.deliveries.posts == {}


def test_what_a_failed_session_was_sending_stays_where_it_is_until_it_is_resumed() -> None:
    stage = Stage()
    sender, receiver = pair(stage)
    terms: dict[str, object] = {"ack": "delivered", "timeout_s": 50.0}
    supervise(sender, 1, "box", **terms)
    receiver.fail()
    stage.wait(100.0)
    assert len(stage.core.state.mailbox("box")) == 1

    stage.again()
    sender, receiver = stage.workers[sender.path], stage.workers[receiver.path]
    i = supervise(sender, 1, "box", **terms)
    receiver.value(receive(receiver, 1, "box"))

    assert outcome(sender, i)["outcome"] == "delivered"


def test_a_send_behind_the_failure_that_its_worker_is_set_back_to_is_taken_back() -> None:
    stage = Stage()
    main = stage.begin()
    assert main.error(receive(main, 1, "nothing")) == "ReceiveTimeoutError"
    supervise(main, 2, "box", ack="delivered", timeout_s=50.0)
    main.fail(origin=("main", 1))
    assert len(stage.core.state.mailbox("box")) == 1

    stage.again()

    assert len(stage.core.state.mailbox("box")) == 0
    assert stage.core.state.deliveries.posts == {}


def test_the_same_key_is_one_message() -> None:
    stage = Stage()
    main = stage.begin()

    first = outcome(main, supervise(main, 1, "box", key="k"))

    assert outcome(main, supervise(main, 2, "box", key="k")) == first
    assert len(stage.core.state.mailbox("box")) == 1


def test_a_key_whose_message_was_withdrawn_is_free_again() -> None:
    stage = Stage()
    main = stage.begin()
    supervise(main, 1, "box", ack="delivered", timeout_s=1.0, retries=0, key="k", on_error="ignore")
    stage.wait(1.1)

    supervise(main, 2, "box", key="k")

    assert len(stage.core.state.mailbox("box")) == 1


@pytest.mark.parametrize("on_error", ["ignore", "log", "dead_letter"])
def test_only_raise_makes_a_failed_send_an_error(on_error: str) -> None:
    stage = Stage()
    main = stage.begin()
    i = supervise(main, 1, "box", ack="delivered", timeout_s=1.0, retries=0, on_error=on_error)

    stage.wait(1.1)

    expected = "dead_lettered" if on_error == "dead_letter" else "timed_out"
    assert outcome(main, i)["outcome"] == expected
    assert bool(stage.shown) == (on_error == "log")


# Refusals.


def test_a_worker_that_has_ended_receives_nothing() -> None:
    stage = Stage()
    sender, receiver = pair(stage)
    receiver.result(None)

    i = supervise(sender, 1, f"@{receiver.path}", retries=0)

    assert refused(sender, i) == {"outcome": "rejected", "reason": "no_receiver", "attempts": 1}


def test_a_message_to_nobody_can_be_a_dead_letter() -> None:
    stage = Stage()
    main = stage.begin()

    found = outcome(main, supervise(main, 1, "@nobody", retries=0, on_error="dead_letter", metadata={"a": 1}))

    (letter,) = stage.core.state.deliveries.letters.values()
    assert (found["reason"], found["dead_letter"]) == ("no_receiver", letter.id)
    assert (letter.mailbox, letter.sender, letter.metadata, letter.attempts) == (
        "@nobody",
        "main",
        {"a": 1},
        1,
    )
    assert line_of(stage, "dead_letter.added") == ["dead_letter.added", "send.settled", "step.finished"]


def test_a_closed_mailbox_refuses_at_once_and_for_good() -> None:
    main = Stage().begin()
    main.step(1, "close", s.MailboxArgs(mailbox="box"))

    found = refused(main, supervise(main, 2, "box", retries=5))

    assert (found["reason"], found["attempts"]) == ("closed", 1)


def test_a_retry_finds_a_worker_that_was_not_there_at_first() -> None:
    stage = Stage()
    main = stage.begin()
    i = supervise(main, 1, "@main/2:late", retries=1, base_s=1.0)
    assert main.answer(i) is None

    delegate(main, 2, ["late"], kind="spawn")
    stage.wait(2.0)

    assert outcome(main, i)["outcome"] == "accepted"


def test_a_full_mailbox_that_rejects_is_tried_again() -> None:
    stage = Stage()
    sender, receiver = pair(stage)
    declare(sender, 1, "box", capacity=1, overflow="reject")
    supervise(sender, 2, "box", 1)
    i = supervise(sender, 3, "box", 2, retries=3, base_s=1.0, cap_s=1.0)
    assert sender.answer(i) is None

    receiver.value(receive(receiver, 1, "box"))
    stage.wait(1.1)

    assert outcome(sender, i)["outcome"] == "accepted"


def test_a_send_waits_for_room_in_its_turn() -> None:
    stage = Stage()
    sender, receiver = pair(stage)
    declare(sender, 1, "box", capacity=1)
    supervise(sender, 2, "box", 1)
    second = supervise(sender, 3, "box", 2, timeout_s=50.0)
    third = sender.step(4, "send", s.SendArgs(mailbox="box"), 3)

    assert [receiver.value(receive(receiver, n, "box")) for n in (1, 2, 3)] == [1, 2, 3]
    assert outcome(sender, second)["outcome"] == "accepted"
    assert isinstance(sender.value(third), str)


def test_a_send_that_found_no_room_in_time_is_rejected() -> None:
    stage = Stage()
    main = stage.begin()
    declare(main, 1, "box", capacity=1)
    supervise(main, 2, "box", 1)
    i = supervise(main, 3, "box", 2, timeout_s=1.0, retries=1, **NO_PAUSE)

    stage.wait(2.1)

    assert refused(main, i) == {"outcome": "rejected", "reason": "full", "attempts": 2}
    assert stage.core.mail.room.has_waiting is False


def test_whoever_waits_for_room_learns_that_the_mailbox_was_closed() -> None:
    stage = Stage()
    sender, receiver = pair(stage)
    declare(sender, 1, "box", capacity=1)
    supervise(sender, 2, "box")
    waiting = supervise(sender, 3, "box", timeout_s=50.0)
    plain = sender.step(4, "send", s.SendArgs(mailbox="box"), 3)

    receiver.value(receiver.step(1, "close", s.MailboxArgs(mailbox="box")))

    assert refused(sender, waiting)["reason"] == "closed"
    assert sender.error(plain) == "MailboxClosedError"
    receiver.value(receive(receiver, 2, "box"))
    assert len(stage.core.state.mailbox("box")) == 0


def test_nobody_waits_for_room_in_a_mailbox_that_only_he_receives_from() -> None:
    main = Stage().begin()
    declare(main, 1, "@main", capacity=1)
    supervise(main, 2, "@main", 1)

    assert refused(main, supervise(main, 3, "@main", 2, retries=0))["reason"] == "full"


def test_the_oldest_message_is_pushed_out_into_the_dead_letters() -> None:
    stage = Stage()
    main = stage.begin()
    declare(main, 1, "box", capacity=2, overflow="drop_oldest")
    ids = [outcome(main, supervise(main, n, "box", n))["id"] for n in (2, 3, 4)]

    assert [message.id for message in stage.core.state.mailbox("box").queued()] == ids[1:]
    (letter,) = stage.core.state.deliveries.letters.values()
    assert (letter.message_id, letter.reason) == (ids[0], "overflow")
    assert line_of(stage, "message.moved") == ["message.moved", "message.sent"]


def test_a_message_that_was_pushed_out_is_known_to_whoever_waits_for_its_delivery() -> None:
    main = Stage().begin()
    declare(main, 1, "box", capacity=1, overflow="drop_oldest")
    i = supervise(main, 2, "box", ack="delivered", timeout_s=50.0, on_error="ignore")

    supervise(main, 3, "box")

    assert outcome(main, i)["reason"] == "overflow"


def test_the_newest_message_becomes_a_dead_letter_where_the_mailbox_says_so() -> None:
    stage = Stage()
    main = stage.begin()
    declare(main, 1, "box", capacity=1, overflow="drop_newest")
    supervise(main, 2, "box")

    found = outcome(main, supervise(main, 3, "box", on_error="ignore"))

    assert (found["outcome"], found["reason"]) == ("dead_lettered", "overflow")
    assert len(stage.core.state.mailbox("box")) == 1


def test_dead_letters_that_are_off_cannot_be_asked_for() -> None:
    main = Stage(settings=Settings(letters=LetterPolicy(enabled=False))).begin()

    assert main.error(supervise(main, 1, "box", on_error="dead_letter")) == "ConfigError"


def test_a_mailbox_has_the_bounds_of_the_settings() -> None:
    main = Stage(settings=Settings(mailboxes={"box": Bounds(capacity=1, overflow="reject")})).begin()
    supervise(main, 1, "box")

    assert refused(main, supervise(main, 2, "box", retries=0))["reason"] == "full"


# Later.


def test_the_time_of_a_delayed_message_begins_when_it_is_due() -> None:
    stage = Stage()
    main = stage.begin()
    due = stage.clock.now_us() + 100 * SECOND_US
    i = supervise(main, 1, "box", ack="delivered", timeout_s=5.0, retries=0, not_before=due)

    stage.wait(104.0)
    assert main.answer(i) is None
    stage.wait(2.0)
    assert refused(main, i)["stage"] == "accepted"


# Broadcasts.


def test_all_copies_and_the_outcome_of_a_broadcast_are_one_line() -> None:
    stage = Stage()
    main = stage.begin()

    found = outcome(main, broadcast(main, 1, ["a", "b", "c"]))

    assert (found["ok"], found["succeeded"], found["failed"]) == (True, 3, 0)
    assert line_of(stage, "message.sent") == ["message.sent"] * 3 + ["broadcast.settled", "step.finished"]
    assert [len(stage.core.state.mailbox(name)) for name in "abc"] == [1, 1, 1]


def test_one_refusal_keeps_every_copy_back() -> None:
    stage = Stage()
    main = stage.begin()
    main.step(1, "close", s.MailboxArgs(mailbox="closed"))
    declare(main, 2, "full", capacity=1, overflow="reject")
    supervise(main, 3, "full")

    i = broadcast(main, 4, ["a", "closed", "full", "@nobody"], retries=0, on_error="ignore")

    results = msgspec.convert(outcome(main, i)["results"], type=list[Copy])
    reasons = [fields(msgspec.to_builtins(copy.outcome))["reason"] for copy in results]
    assert reasons == ["aborted", "closed", "full", "no_receiver"]
    assert "a" not in stage.core.state.mailboxes or not len(stage.core.state.mailbox("a"))


def test_a_broadcast_that_may_not_fail_raises_its_result() -> None:
    main = Stage().begin()

    i = broadcast(main, 1, ["a", "@nobody"], retries=0)

    assert main.error(i) == "BroadcastError"


def test_a_broadcast_of_all_waits_until_all_have_room() -> None:
    stage = Stage()
    sender, receiver = pair(stage)
    for n, name in ((1, "a"), (2, "b")):
        declare(sender, n, name, capacity=1)
        supervise(sender, n + 2, name)
    i = broadcast(sender, 5, ["a", "b", "c"], timeout_s=50.0)

    receiver.value(receive(receiver, 1, "a"))
    assert sender.answer(i) is None
    assert len(stage.core.state.mailbox("c")) == 0
    receiver.value(receive(receiver, 2, "b"))

    assert outcome(sender, i)["succeeded"] == 3
    assert line_of(stage, "message.sent") == ["message.sent"] * 3


def test_a_broadcast_of_all_that_finds_no_room_in_time_leaves_nothing() -> None:
    stage = Stage()
    main = stage.begin()
    declare(main, 1, "a", capacity=1)
    supervise(main, 2, "a")
    i = broadcast(main, 3, ["a", "b"], timeout_s=1.0, retries=1, on_error="ignore", base_s=0.0)

    stage.wait(2.1)

    assert outcomes(main, i) == ["Rejected", "Rejected"]
    assert len(stage.core.state.mailbox("b")) == 0
    assert line_of(stage, "broadcast.settled") == ["send.settled"] * 2 + [
        "broadcast.settled",
        "step.finished",
    ]


def test_copies_of_all_that_nobody_took_in_time_are_taken_back() -> None:
    stage = Stage()
    sender, receiver = pair(stage)
    i = broadcast(sender, 1, ["a", "b"], ack="delivered", timeout_s=1.0, retries=0, on_error="ignore")
    receiver.value(receive(receiver, 1, "a"))

    stage.wait(1.1)

    assert (outcomes(sender, i), outcome(sender, i)["ok"]) == (["Delivered", "TimedOut"], False)
    assert len(stage.core.state.mailbox("b")) == 0


def test_a_quorum_returns_when_it_is_reached_and_the_rest_goes_on() -> None:
    stage = Stage()
    sender, receiver = pair(stage)
    i = broadcast(sender, 1, ["a", "b", "c"], "quorum(2)", ack="delivered", timeout_s=50.0)

    receiver.value(receive(receiver, 1, "a"))
    assert sender.answer(i) is None
    receiver.value(receive(receiver, 2, "c"))

    assert outcomes(sender, i) == ["Delivered", "NoneType", "Delivered"]
    assert receiver.value(receive(receiver, 3, "b")) == "news"
    assert stage.core.state.deliveries.posts == {}


@pytest.mark.parametrize(
    ("strategy", "ok"), [("best_effort", True), ("at_least_one", True), ("quorum(2)", False)]
)
def test_how_many_must_be_reached(strategy: str, ok: bool) -> None:
    main = Stage().begin()

    i = broadcast(main, 1, ["a", "@nobody", "@nobody-else"], strategy, retries=0, on_error="ignore")

    assert outcome(main, i)["ok"] is ok
    assert outcomes(main, i) == ["Accepted", "Rejected", "Rejected"]


def test_a_broadcast_takes_the_time_of_its_slowest_copy() -> None:
    stage = Stage()
    main = stage.begin()
    names = [f"box-{number}" for number in range(20)]
    i = broadcast(main, 1, names, "best_effort", ack="delivered", timeout_s=1.0, retries=0)

    stage.wait(1.01)

    assert outcomes(main, i) == ["TimedOut"] * 20


@pytest.mark.parametrize(
    ("names", "strategy"),
    [(["a", "a"], "best_effort"), (["a"], "quorum(2)"), (["a"], "quorum(0)"), (["a"], "most")],
)
def test_a_broadcast_that_cannot_be_is_refused(names: list[str], strategy: str) -> None:
    main = Stage().begin()

    assert main.error(broadcast(main, 1, names, strategy)) == DeliveryOptionError.__name__


@pytest.mark.parametrize("strategy", ["all_or_nothing", "best_effort"])
def test_a_broadcast_to_nobody_is_fine(strategy: str) -> None:
    main = Stage().begin()

    assert outcome(main, broadcast(main, 1, [], strategy))["ok"] is True


def test_a_quorum_of_nobody_is_not() -> None:
    main = Stage().begin()

    assert main.error(broadcast(main, 1, [], "quorum(1)")) == "BroadcastError"


def test_a_long_message_to_many_is_kept_once() -> None:
    stage = Stage()
    main = stage.begin()
    copies = [Copy(f"box-{number}", f"box-{number}") for number in range(10)]
    args = s.CastArgs(copies=copies, strategy="all_or_nothing", terms=Terms())

    main.value(main.step(1, "broadcast", args, "x" * 60_000))

    assert {entry.ref for entry in stage.entries("message.sent")} == {stage.entries("message.sent")[0].ref}
    assert main.value(receive(main, 2, "box-3")) is None  # it travels as a blob
    assert stage.core.state.mailbox("box-3").delivered == 1


def test_a_broadcast_under_way_goes_on_behind_a_restart() -> None:
    stage = Stage()
    sender, receiver = pair(stage)
    for n, name in ((1, "a"), (2, "b")):
        declare(sender, n, name, capacity=1)
    supervise(sender, 3, "a")
    broadcast(sender, 4, ["a", "b"], timeout_s=50.0)
    stage.hub.flush()

    stage.again(dead_s=1000.0)
    sender, receiver = stage.workers[sender.path], stage.workers[receiver.path]
    i = broadcast(sender, 4, ["a", "b"], timeout_s=50.0)
    receiver.value(receive(receiver, 1, "a"))

    assert outcome(sender, i)["succeeded"] == 2


def test_a_cancelled_broadcast_takes_back_what_it_can() -> None:
    stage = Stage()
    sender, receiver = pair(stage)
    broadcast(sender, 1, ["a", "b"], ack="delivered", timeout_s=50.0)
    receiver.value(receive(receiver, 1, "a"))

    sender.cancel(1)

    assert len(stage.core.state.mailbox("b")) == 0
    assert stage.core.state.deliveries.casts == {}
    assert stage.core.state.deliveries.posts == {}


# Topics.


def subscribe(worker: Puppet, n: int, mailbox: str, pattern: str, kind: str = "subscribe") -> int:
    return worker.step(n, kind, s.TopicArgs(mailbox=mailbox, pattern=pattern))


def test_what_is_published_reaches_every_subscriber_once() -> None:
    stage = Stage()
    main = stage.begin()
    for n, (mailbox, pattern) in enumerate(
        [("a", "build.*"), ("a", "**"), ("b", "build.linux"), ("c", "test.**")], 1
    ):
        subscribe(main, n, mailbox, pattern)

    found = outcome(main, publish(main, 5, "build.linux"))

    assert found["succeeded"] == 2
    assert [len(stage.core.state.mailbox(name)) for name in "abc"] == [1, 1, 0]
    held = fields(main.value(receive(main, 6, "b", hold=True)))
    assert held["topic"] == "build.linux"


def test_a_subscription_catches_only_what_comes_behind_it() -> None:
    main = Stage().begin()
    publish(main, 1, "a")
    subscribe(main, 2, "box", "a")
    subscribe(main, 3, "box", "a", "unsubscribe")

    assert outcome(main, publish(main, 4, "a"))["results"] == []
    assert main.error(receive(main, 5, "box")) == "ReceiveTimeoutError"


def test_an_inbox_is_no_subscriber_when_its_worker_has_ended() -> None:
    stage = Stage()
    sender, receiver = pair(stage)
    subscribe(receiver, 1, f"@{receiver.path}", "**")
    receiver.result(None)

    assert outcome(sender, publish(sender, 1, "a.b"))["results"] == []


def test_too_few_subscribers_are_no_quorum() -> None:
    main = Stage().begin()
    subscribe(main, 1, "box", "a")

    assert main.error(publish(main, 2, "a", "quorum(2)")) == "BroadcastError"


@pytest.mark.parametrize("topic", ["", "a..b", "a.*", "a b", "a." * 8 + "a"])
def test_what_is_no_topic_is_refused(topic: str) -> None:
    main = Stage().begin()

    assert main.error(publish(main, 1, topic)) == "TopicNameError"


# Names.


def register(worker: Puppet, n: int, name: str) -> int:
    return worker.step(n, "register", s.MailboxArgs(mailbox=name))


def test_a_name_belongs_to_one_worker_at_a_time() -> None:
    stage = Stage()
    first, second = pair(stage)

    assert first.value(register(first, 1, "clerk")) == 1
    assert second.error(register(second, 1, "clerk")) == "NameTakenError"
    assert second.error(receive(second, 2, "clerk")) == "MailboxNameError"


def test_a_name_passes_on_with_a_higher_incarnation() -> None:
    stage = Stage()
    first, second = pair(stage)
    first.value(register(first, 1, "clerk"))
    first.result(None)
    assert refused(second, supervise(second, 1, "clerk", retries=0))["reason"] == "no_receiver"

    assert second.value(register(second, 2, "clerk")) == 2
    assert outcome(second, supervise(second, 3, "clerk"))["outcome"] == "accepted"


def test_a_worker_that_was_restarted_has_its_name_still() -> None:
    stage = Stage()
    first, second = pair(stage)
    first.value(register(first, 1, "clerk"))

    again = stage.kill(first.path)

    assert again is not None
    assert outcome(second, supervise(second, 1, "clerk", "for you"))["outcome"] == "accepted"
    assert again.value(receive(again, 2, "clerk")) == "for you"


def test_an_inbox_is_nobodys_name() -> None:
    main = Stage().begin()

    assert main.error(register(main, 1, "@main")) == "MailboxNameError"


# Waiting for room.


def test_supervised_and_plain_sends_that_wait_for_room_together_send_once() -> None:
    stage = Stage()
    sender, receiver = pair(stage)
    declare(sender, 1, "box", capacity=2)
    for n in (2, 3):
        supervise(sender, n, "box", n)
    first = supervise(sender, 4, "box", 4)
    second = sender.step(5, "send", s.SendArgs(mailbox="box"), 5)

    assert receiver.value(receiver.step(1, "drain", s.DrainArgs(mailbox="box"))) == [2, 3]
    assert sender.answer(first)
    assert sender.answer(second)
    assert [receiver.value(receive(receiver, n, "box")) for n in (2, 3)] == [4, 5]
    assert len(stage.core.state.mailbox("box")) == 0


def test_a_send_that_waits_for_room_learns_that_the_mailbox_was_closed() -> None:
    stage = Stage()
    sender, receiver = pair(stage)
    declare(sender, 1, "box", capacity=1)
    supervise(sender, 2, "box", "there")
    waiting = supervise(sender, 3, "box")
    together = broadcast(sender, 4, ["box", "other"])

    receiver.value(receiver.step(1, "close", s.MailboxArgs(mailbox="box")))

    assert refused(sender, waiting) == {"outcome": "rejected", "reason": "closed", "attempts": 1}
    assert sender.error(together) == "BroadcastError"
    assert receiver.value(receive(receiver, 2, "box")) == "there"
    assert len(stage.core.state.mailbox("box")) == len(stage.core.state.mailbox("other")) == 0


# Processes outside.


def ask_outside(
    stage: Stage, do: str, request: Request, value: object = "work"
) -> tuple[int, list[f.ToPeer]]:
    """Have a process outside ask for something; returns its connection, and what it hears."""
    heard: list[f.ToPeer] = []
    number = stage.hub.join(f.Hello(role="foreign", pid=1), heard.append, Peer(0, name="foreign:1@1"))
    stage.hub.say(number, f.Ask(i=1, do=do, a=raw(request), v=raw(value)))
    stage.hub.run_ready()
    return number, heard


def test_a_process_outside_learns_what_became_of_its_message() -> None:
    stage = Stage()
    main = stage.begin()
    request = Request(mailbox="box", terms=Terms(ack="delivered", timeout_s=50.0))
    _, heard = ask_outside(stage, "send_supervised", request)
    assert heard == []

    main.value(receive(main, 1, "box"))

    (answer,) = heard
    assert isinstance(answer, f.Answer)
    assert fields(plain(answer.v))["receiver"] == "main"


def test_attempts_go_on_behind_the_death_of_a_process_outside() -> None:
    stage = Stage()
    main = stage.begin()
    terms = Terms(ack="delivered", timeout_s=1.0, retries=0, on_error="dead_letter")
    number, heard = ask_outside(stage, "send_supervised", Request(mailbox="box", terms=terms))
    stage.hub.hang_up(number)
    stage.hub.run_ready()

    stage.wait(1.1)

    assert heard == []
    assert [letter.reason for letter in stage.core.state.deliveries.letters.values()] == ["timeout"]
    assert main.error(receive(main, 1, "box")) == "ReceiveTimeoutError"


def test_a_process_outside_is_refused_like_a_worker() -> None:
    stage = Stage()
    stage.begin()
    copies = [Copy("a", "a"), Copy("@nobody", "@nobody")]
    request = Request(copies=copies, strategy="all_or_nothing", terms=Terms(retries=0))

    _, heard = ask_outside(stage, "broadcast", request)

    (answer,) = heard
    assert isinstance(answer, f.Refusal)
    assert answer.e.type == "bartack.errors:BroadcastError"


def test_a_process_outside_that_waits_learns_that_the_session_failed() -> None:
    stage = Stage()
    main = stage.begin()
    request = Request(mailbox="box", terms=Terms(ack="delivered", timeout_s=50.0))
    _, heard = ask_outside(stage, "send_supervised", request)

    main.fail()

    refusals = [frame for frame in heard if isinstance(frame, f.Refusal)]
    assert [frame.e.type for frame in refusals] == ["bartack.errors:SessionFailedError"]
