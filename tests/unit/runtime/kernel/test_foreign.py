"""Processes outside the run, as far as the hub has to beware of them."""

from __future__ import annotations

from tests.unit.runtime.kernel.mail.test_mailroom import Outsider, declare, held_id, receive
from tests.unit.runtime.stage import Stage, fields, raw

from bartack.journal import BlobRef
from bartack.runtime.protocol import frames as f
from bartack.runtime.protocol import steps as s


def hold(outside: Outsider) -> dict[str, object]:
    return fields(outside.value(outside.ask("receive", mailbox="box", timeout_s=0)))


def test_a_process_that_holds_a_message_and_says_nothing_loses_it() -> None:
    stage = Stage()
    stage.begin()
    hanging, other = Outsider(stage), Outsider(stage, "foreign:8@1")
    hanging.ask("send", "work", mailbox="box")
    assert hold(hanging).get("attempt", 1) == 1

    stage.wait(31)

    again = hold(other)
    assert (again["value"], again["attempt"]) == ("work", 2)
    hanging.ask("ack", id=again["id"])
    assert stage.core.state.mailbox("box").held == 1


def test_a_process_that_renews_keeps_what_it_holds() -> None:
    stage = Stage()
    stage.begin()
    busy = Outsider(stage)
    busy.ask("send", "work", mailbox="box")
    held = hold(busy)
    for _ in range(5):
        stage.wait(25)
        busy.ask("renew")

    busy.ask("ack", id=held["id"])

    assert stage.core.state.mailbox("box").held == 0
    assert [entry.data["to"] for entry in stage.entries("message.moved")] == ["processed"]


def test_a_message_whose_content_is_missing_is_refused() -> None:
    stage = Stage()
    stage.begin()
    outside = Outsider(stage)
    ref = BlobRef("sha256:" + "0" * 64, 100_000)

    stage.hub.say(outside.number, f.Ask(i=77, do="send", a=raw({"mailbox": "box"}), ref=ref))
    stage.hub.run_ready()

    assert outside.error(77) == "BlobMissingError"
    assert not stage.entries("message.sent")


# Requests and replies.


def test_a_process_outside_calls_a_worker_and_gets_its_reply() -> None:
    stage = Stage()
    main = stage.begin()
    outside = Outsider(stage)
    called = outside.ask("call", "ping", mailbox="box")
    i = receive(main, 1, "box", hold=True)

    for n, value in ((2, "pong"), (3, "again")):
        main.step(n, "reply", s.ReplyArgs(mailbox="box", id=held_id(main, i)), value)

    assert outside.value(called) == "pong"
    assert [frame.i for frame in outside.heard if isinstance(frame, f.Answer)] == [called]


def test_a_worker_calls_a_process_outside_and_gets_its_reply() -> None:
    stage = Stage()
    main = stage.begin()
    outside, other = Outsider(stage), Outsider(stage, "foreign:8@1")
    called = main.step(1, "call", s.CallMailboxArgs(mailbox="box"), "ping")
    held = hold(outside)

    other.value(other.ask("reply", "not mine", mailbox="box", id=held["id"]))
    assert main.answer(called) is None
    outside.value(outside.ask("reply", "pong", mailbox="box", id=held["id"]))

    assert main.value(called) == "pong"


def test_a_call_from_outside_has_a_deadline_and_takes_its_message_back_behind_it() -> None:
    stage = Stage()
    main = stage.begin()
    outside = Outsider(stage)
    short, usual = outside.ask("call", 1, mailbox="box", timeout_s=3.0), outside.ask("call", 2, mailbox="box")

    stage.wait(3.0)
    assert (outside.error(short), outside.answer(usual)) == ("DeadlineExceededError", None)
    stage.wait(27.0)
    assert outside.error(usual) == "DeadlineExceededError"

    assert main.error(receive(main, 1, "box", 0)) == "ReceiveTimeoutError"  # nobody is to work for nobody
    assert len(outside.heard) == 2


def test_a_call_from_outside_whose_message_was_received_is_late_and_its_reply_reaches_nobody() -> None:
    stage = Stage()
    main = stage.begin()
    outside = Outsider(stage)
    called = outside.ask("call", 1, mailbox="box", timeout_s=3.0)
    i = receive(main, 1, "box", hold=True)
    stage.wait(3.0)

    assert outside.error(called) == "DeadlineExceededError"
    assert main.value(main.step(2, "reply", s.ReplyArgs(mailbox="box", id=held_id(main, i)), "late")) is None
    assert len(outside.heard) == 1


def test_a_call_of_a_process_that_has_left_takes_its_message_back() -> None:
    stage = Stage()
    main = stage.begin()
    outside = Outsider(stage)
    outside.ask("call", 1, mailbox="box")

    stage.hub.hang_up(outside.number)
    stage.hub.run_ready()

    assert main.error(receive(main, 1, "box", 0)) == "ReceiveTimeoutError"


def test_a_process_outside_can_forget_what_it_waits_for() -> None:
    stage = Stage()
    main = stage.begin()
    declare(main, 1, "full", capacity=1)
    outside = Outsider(stage)
    outside.ask("send", "first", mailbox="full")
    called = outside.ask("call", "ping", mailbox="box")
    sent = outside.ask("send", "second", mailbox="full")
    received = outside.ask("receive", mailbox="empty", timeout_s=600.0)

    for number in (called, sent, received):
        outside.ask("forget", number=number)

    assert main.error(receive(main, 2, "box", 0)) == "ReceiveTimeoutError"
    assert main.value(receive(main, 3, "full", 0)) == "first"
    assert main.error(receive(main, 4, "full", 0)) == "ReceiveTimeoutError"
    assert stage.core.mail.registry.describe("empty").waiting == 0


def test_a_reply_to_a_call_from_outside_whose_hub_has_died_reaches_nobody() -> None:
    stage = Stage()
    stage.begin()
    Outsider(stage).ask("call", "ping", mailbox="box")
    main = stage.again()
    newcomer = Outsider(stage)
    i = receive(main, 1, "box", hold=True)

    assert main.value(main.step(2, "reply", s.ReplyArgs(mailbox="box", id=held_id(main, i)), "pong")) is None
    assert newcomer.heard == []


def test_a_call_from_outside_waits_for_room_within_its_deadline() -> None:
    stage = Stage()
    main = stage.begin()
    declare(main, 1, "box", capacity=1)
    outside = Outsider(stage)
    outside.ask("send", "first", mailbox="box")
    late = outside.ask("call", "late", mailbox="box", timeout_s=3.0)
    called = outside.ask("call", "ping", mailbox="box", timeout_s=60.0)
    stage.wait(10.0)
    assert outside.error(late) == "DeadlineExceededError"

    assert main.value(receive(main, 2, "box")) == "first"
    i = receive(main, 3, "box", hold=True)
    main.step(4, "reply", s.ReplyArgs(mailbox="box", id=held_id(main, i)), "pong")

    assert outside.value(called) == "pong"


def test_a_call_from_outside_is_refused_where_it_cannot_be_answered() -> None:
    stage = Stage()
    main = stage.begin()
    declare(main, 1, "box", capacity=1, overflow="drop_newest")
    main.step(2, "close", s.MailboxArgs(mailbox="shut"))
    outside = Outsider(stage)
    outside.ask("send", 1, mailbox="box")
    open_call = outside.ask("call", 1, mailbox="free")

    refused = [outside.ask("call", 1, mailbox=name) for name in ("box", "shut", "@nobody", "no name")]
    main.step(3, "fail", s.FailArgs(message="on purpose"))
    stage.hub.run_ready()

    assert [outside.error(i) for i in refused] == [
        "MailboxFullError",
        "MailboxClosedError",
        "MailboxNameError",
        "MailboxNameError",
    ]
    assert outside.error(open_call) == "SessionFailedError"


def test_receivers_outside_and_a_worker_compete_and_no_message_comes_twice() -> None:
    stage = Stage()
    main = stage.begin()
    first, second = Outsider(stage), Outsider(stage, "foreign:8@1")
    waiting = [receive(main, 1, "box")]
    asked = [outside.ask("receive", mailbox="box", timeout_s=60.0) for outside in (first, second, first)]
    sender = Outsider(stage, "foreign:9@1")

    for value in range(4):
        sender.ask("send", value, mailbox="box")

    received = [main.value(waiting[0])]
    received += [
        fields(peer.value(i))["value"] for peer, i in zip((first, second, first), asked, strict=True)
    ]
    assert received == [0, 1, 2, 3]
    second.leave()
    assert main.value(receive(main, 2, "box", 0)) == 2
    assert main.error(receive(main, 3, "box", 0)) == "ReceiveTimeoutError"
