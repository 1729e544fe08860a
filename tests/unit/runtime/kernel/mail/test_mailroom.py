"""The mailroom: who gets which message, when, and how often."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest
from tests.unit.runtime.stage import Puppet, Stage, delegate, fields, plain, raw

from bartack.journal import BlobRef
from bartack.runtime.kernel.turn import Peer
from bartack.runtime.protocol import frames as f
from bartack.runtime.protocol import steps as s

SECOND_US = 1_000_000


def send(worker: Puppet, n: int, mailbox: str, value: object, **options: object) -> int:
    args = msgspec.convert({"mailbox": mailbox, **options}, type=s.SendArgs)
    return worker.step(n, "send", args, value)


def receive(
    worker: Puppet, n: int, mailbox: str, timeout_s: float | None = None, *, hold: bool = False
) -> int:
    return worker.step(n, "receive", s.ReceiveArgs(mailbox=mailbox, timeout_s=timeout_s, hold=hold))


def ack(
    worker: Puppet, n: int, mailbox: str, message_id: str, *, ok: bool = True, requeue: bool = True
) -> int:
    kind = "ack" if ok else "nack"
    return worker.step(n, kind, s.AckArgs(mailbox=mailbox, id=message_id, ok=ok, requeue=requeue))


def declare(worker: Puppet, n: int, mailbox: str, **bounds: object) -> int:
    return worker.step(n, "declare", msgspec.convert({"mailbox": mailbox, **bounds}, type=s.DeclareArgs))


def team(stage: Stage, *names: str) -> list[Puppet]:
    """A run whose first worker delegates to others; returns these."""
    main = stage.begin()
    delegate(main, 1, list(names))
    return [stage.workers[f"main/1.{place}:{name}"] for place, name in enumerate(names, 1)]


def held_id(worker: Puppet, i: int) -> str:
    return str(fields(worker.value(i))["id"])


# Sending and receiving.


def test_messages_are_received_in_the_order_in_which_they_were_sent() -> None:
    main = Stage().begin()
    for n in range(1, 4):
        send(main, n, "box", n)

    assert [main.value(receive(main, n, "box")) for n in range(4, 7)] == [1, 2, 3]


def test_a_receive_that_came_first_gets_the_first_message() -> None:
    first, second = team(Stage(), "a", "b")
    waiting = receive(first, 1, "box")

    send(second, 1, "box", "hello")

    assert first.value(waiting) == "hello"


def test_the_hand_over_is_durable_before_the_value_leaves_the_hub() -> None:
    stage = Stage()
    first, second = team(stage, "a", "b")
    waiting = receive(first, 1, "box")
    stage.hub.say(
        second.number,
        f.Step(i=9, p=second.path, n=1, step="send", fp="x", a=raw({"mailbox": "box"}), v=raw(1)),
    )
    stage.hub._events.popleft()(stage.core)

    assert first.answer(waiting) is None
    assert stage.core.turn.must_sync
    stage.hub.finish_turn()
    assert first.value(waiting) == 1


def test_the_same_key_is_one_message_with_the_first_id() -> None:
    stage = Stage()
    main = stage.begin()

    first, second = send(main, 1, "box", "a", key="k"), send(main, 2, "box", "b", key="k")

    assert main.value(first) == main.value(second)
    assert len(stage.core.state.mailbox("box")) == 1


def test_a_receive_that_does_not_wait_says_at_once_that_nothing_is_there() -> None:
    main = Stage().begin()

    assert main.error(receive(main, 1, "box", 0)) == "ReceiveTimeoutError"


def test_a_message_over_the_limit_is_refused() -> None:
    main = Stage().begin()
    too_long = f.Step(
        i=1,
        p="main",
        n=1,
        step="send",
        fp="x",
        a=raw({"mailbox": "box"}),
        ref=BlobRef("0" * 64, 16 * 1024 * 1024 + 1),
    )
    main.say(too_long)

    assert main.error(1) == "MessageTooLargeError"


@pytest.mark.parametrize("name", ["$hub", "@", "with blank", "", "9lives"])
def test_a_name_that_no_mailbox_can_have_is_refused(name: str) -> None:
    main = Stage().begin()

    assert main.error(send(main, 1, name, 1)) == "MailboxNameError"
    assert main.error(receive(main, 2, name)) == "MailboxNameError"


# Who is served.


def test_waiters_are_served_in_the_order_in_which_they_came() -> None:
    stage = Stage()
    first, second, third = team(stage, "a", "b", "c")
    waits = [receive(worker, 1, "box") for worker in (second, first)]

    send(third, 1, "box", 1)
    send(third, 2, "box", 2)

    assert (second.value(waits[0]), first.value(waits[1])) == (1, 2)


def test_a_message_that_somebody_waits_for_is_sent_and_handed_over_in_one_line() -> None:
    stage = Stage()
    receiver, sender = team(stage, "a", "b")
    waiting = receive(receiver, 1, "box")
    stage.hub.flush()
    before = stage.lines()

    send(sender, 1, "box", "hello")

    assert receiver.value(waiting) == "hello"
    assert stage.lines() - before == 1
    assert stage.kinds()[-2:] == ["message.sent", "message.taken"]


def test_a_worker_that_waits_for_its_own_message_is_told_in_the_order_of_the_journal() -> None:
    main = Stage().begin()
    waiting = main.step(1, "receive", s.ReceiveArgs(mailbox="box"), p="main.1.1")

    sent = send(main, 1, "box", "to myself")

    answers = [frame.i for frame in main.heard if isinstance(frame, f.Answer)]
    assert answers == [sent, waiting]


def test_a_message_goes_neither_to_a_waiter_that_timed_out_nor_to_a_dead_one() -> None:
    stage = Stage()
    first, second, third, sender = team(stage, "a", "b", "c", "d")
    late = receive(first, 1, "box", 1.0)
    dead = receive(second, 1, "box")
    waiting = receive(third, 1, "box")
    stage.wait(1.0)
    stage.shy.add(second.path)
    stage.kill(second.path)

    send(sender, 1, "box", "for the third")

    assert first.error(late) == "ReceiveTimeoutError"
    assert second.answer(dead) is None
    assert third.value(waiting) == "for the third"


def test_a_cancelled_receive_leaves_the_message() -> None:
    stage = Stage()
    first, second = team(stage, "a", "b")
    given_up = receive(first, 1, "box")
    first.cancel(1)

    send(second, 1, "box", 1)

    assert first.error(given_up) == "StepCancelledError"
    assert len(stage.core.state.mailbox("box")) == 1


def test_a_message_that_arrives_at_the_deadline_is_returned_or_left_but_not_both() -> None:
    stage = Stage()
    first, second = team(stage, "a", "b")
    waiting = receive(first, 1, "box", 5.0)
    stage.clock.advance(5.0)

    send(second, 1, "box", "just in time")
    stage.hub.tick()

    assert first.value(waiting) == "just in time"
    assert len(stage.core.state.mailbox("box")) == 0


def test_a_message_is_handed_over_to_one_receiver_only_after_a_restart() -> None:
    stage = Stage()
    first, second = team(stage, "a", "b")
    receive(first, 1, "box")
    send(second, 1, "box", 7)

    stage.again()

    again = stage.workers[first.path]
    assert [plain(past.v) for past in again.past] == [7]
    assert len(stage.core.state.mailbox("box")) == 0


# Timeouts.


def test_a_receive_waits_no_longer_than_it_said() -> None:
    stage = Stage()
    main = stage.begin()
    waiting = receive(main, 1, "box", 5.0)

    stage.wait(4.9)
    assert main.answer(waiting) is None
    stage.wait(0.2)
    assert main.error(waiting) == "ReceiveTimeoutError"


def test_a_wait_goes_on_with_what_was_left_of_it_when_the_hub_died() -> None:
    stage = Stage()
    main = stage.begin()
    receive(main, 1, "box", 1800.0)
    stage.hub.flush()
    stage.wait(1200.0)

    main = stage.again(dead_s=3 * 3600.0)
    waiting = receive(main, 1, "box", 1800.0)

    stage.wait(599.0)
    assert main.answer(waiting) is None
    stage.wait(2.0)
    assert main.error(waiting) == "ReceiveTimeoutError"


def test_a_worker_that_was_restarted_goes_on_waiting_with_what_was_left() -> None:
    stage = Stage()
    stage.begin()
    main = stage.workers["main"]
    receive(main, 1, "box", 100.0)
    stage.wait(60.0)

    again = stage.kill("main")
    assert again is not None
    waiting = receive(again, 1, "box", 100.0)
    stage.wait(41.0)

    assert again.error(waiting) == "ReceiveTimeoutError"


@pytest.mark.parametrize("kind", ["think", "ask"])
def test_the_default_limit_of_a_receive_stands_still_while_somebody_else_is_busy(kind: str) -> None:
    stage = Stage()
    receiver, busy = team(stage, "a", "b")
    waiting = receive(receiver, 1, "box")
    work: dict[str, s.Args] = {
        "think": s.ThinkArgs(prompt="p", name="n", timeout_s=1e6),
        "ask": s.AskArgs(question="q"),
    }
    busy.step(1, kind, work[kind])

    stage.wait(7200.0)
    assert receiver.answer(waiting) is None
    busy.cancel(1)
    for token in list(stage.prompts):
        stage.end_prompt(s.ThinkOutcome(key="k", agent="a"), token)
    stage.wait(1802.0)
    assert receiver.error(waiting) == "ReceiveTimeoutError"


def test_an_explicit_limit_of_a_receive_does_not_stand_still() -> None:
    stage = Stage()
    receiver, busy = team(stage, "a", "b")
    waiting = receive(receiver, 1, "box", 60.0)
    busy.step(1, "ask", s.AskArgs(question="q"))

    stage.wait(61.0)

    assert receiver.error(waiting) == "ReceiveTimeoutError"


def test_the_delegate_a_receiver_lives_under_does_not_stop_its_clock() -> None:
    stage = Stage()
    (receiver,) = team(stage, "a")
    waiting = receive(receiver, 1, "box")

    stage.wait(1801.0)

    assert receiver.error(waiting) == "ReceiveTimeoutError"


# Deliveries.


def test_a_held_message_that_is_acknowledged_is_gone() -> None:
    stage = Stage()
    main = stage.begin()
    send(main, 1, "box", "work", metadata={"try": 1})
    i = receive(main, 2, "box", hold=True)

    held = main.value(i)
    assert held == {"id": held_id(main, i), "value": "work", "sender": "main", "metadata": {"try": 1}}
    main.value(ack(main, 3, "box", held_id(main, i)))
    assert stage.core.state.mailbox("box").held == 0
    assert main.error(receive(main, 4, "box", 0)) == "ReceiveTimeoutError"


def test_a_message_that_is_given_back_returns_to_its_old_place() -> None:
    main = Stage().begin()
    for n in range(1, 4):
        send(main, n, "box", n)
    first = receive(main, 4, "box", hold=True)

    ack(main, 5, "box", held_id(main, first), ok=False)

    assert [main.value(receive(main, n, "box")) for n in range(6, 9)] == [1, 2, 3]


def test_a_message_that_is_given_back_goes_to_a_waiter_when_its_worker_goes_on() -> None:
    stage = Stage()
    first, second = team(stage, "a", "b")
    send(first, 1, "box", "hot")
    i = receive(first, 2, "box", hold=True)
    waiting = receive(second, 1, "box")

    ack(first, 3, "box", held_id(first, i), ok=False)
    assert second.answer(waiting) is None
    first.step(4, "sleep", s.SleepArgs(seconds=1.0))

    assert second.value(waiting) == "hot"


def test_a_message_given_back_five_times_is_dead_and_the_count_survives_a_restart() -> None:
    stage = Stage()
    main = stage.begin()
    send(main, 1, "box", "hot")
    attempts: list[object] = []
    for turn in range(5):
        i = receive(main, 2 + 2 * turn, "box", 0, hold=True)
        attempts.append(fields(main.value(i)).get("attempt", 1))
        ack(main, 3 + 2 * turn, "box", held_id(main, i), ok=False)
        if turn == 2:
            main = stage.again()

    assert attempts == [1, 2, 3, 4, 5]
    assert main.error(receive(main, 12, "box", 0)) == "ReceiveTimeoutError"
    moves = [entry.data["to"] for entry in stage.entries("message.moved")]
    assert moves == ["returning", "returned"] * 4 + ["returning", "dead"]


def test_a_message_given_back_for_good_is_dead_at_once() -> None:
    stage = Stage()
    main = stage.begin()
    send(main, 1, "box", "hot")
    i = receive(main, 2, "box", hold=True)

    ack(main, 3, "box", held_id(main, i), ok=False, requeue=False)

    assert [entry.data["to"] for entry in stage.entries("message.moved")] == ["dead"]


def test_a_worker_that_crashes_still_holds_its_message() -> None:
    stage = Stage()
    first, second = team(stage, "a", "b")
    send(first, 1, "box", "mine")
    receive(first, 2, "box", hold=True)
    waiting = receive(second, 1, "box")

    again = stage.kill(first.path)

    assert again is not None
    assert [past.step for past in again.past] == ["send", "receive"]
    assert second.answer(waiting) is None


def test_an_acknowledgement_of_a_message_that_is_not_held_takes_nothing() -> None:
    stage = Stage()
    main = stage.begin()
    send(main, 1, "box", "still there")
    i = receive(main, 2, "box", hold=True)
    message_id = held_id(main, i)
    ack(main, 3, "box", message_id, ok=False)

    ack(main, 4, "box", message_id)

    assert main.value(receive(main, 5, "box", 0)) == "still there"


def test_what_a_worker_held_that_was_cancelled_goes_back() -> None:
    stage = Stage()
    main = stage.begin()
    delegate(main, 1, ["a"], on_failure="collect")
    worker = stage.workers["main/1.1:a"]
    send(worker, 1, "box", "hot")
    receive(worker, 2, "box", hold=True)

    worker.fail()

    assert main.value(receive(main, 2, "box", 0)) == "hot"


# Requests and replies.


def test_a_call_gets_the_reply_to_its_message() -> None:
    stage = Stage()
    caller, server = team(stage, "a", "b")
    called = caller.step(1, "call", s.CallMailboxArgs(mailbox="box"), "ping")
    i = receive(server, 1, "box", hold=True)

    replied = server.step(2, "reply", s.ReplyArgs(mailbox="box", id=held_id(server, i)), "pong")

    assert caller.value(called) == "pong"
    assert server.value(replied) is None


def test_a_call_without_a_reply_ends_at_its_deadline() -> None:
    stage = Stage()
    main = stage.begin()
    called = main.step(1, "call", s.CallMailboxArgs(mailbox="box", timeout_s=3.0), "ping")

    stage.wait(3.0)

    assert main.error(called) == "DeadlineExceededError"


def test_a_call_that_is_given_up_takes_its_message_back_unless_somebody_has_received_it() -> None:
    stage = Stage()
    caller, server = team(stage, "a", "b")
    received = caller.step(1, "call", s.CallMailboxArgs(mailbox="box", timeout_s=3.0), "first")
    i = receive(server, 1, "box", hold=True)
    late = caller.step(2, "call", s.CallMailboxArgs(mailbox="box", timeout_s=3.0), "second")
    cancelled = caller.step(3, "call", s.CallMailboxArgs(mailbox="box", timeout_s=30.0), "third")

    stage.wait(3.0)
    caller.say(f.Cancel(p=caller.path, n=3, reason="enough"))

    assert [caller.error(call) for call in (received, late)] == ["DeadlineExceededError"] * 2
    assert caller.error(cancelled) == "StepCancelledError"
    assert len(stage.core.state.mailbox("box")) == 0
    lines = [entry.kind for entry in stage.store.entries if entry.kind in {"step.failed", "message.moved"}]
    assert lines == ["step.failed", *["step.failed", "message.moved"] * 2]
    message = held_id(server, i)
    server.step(2, "reply", s.ReplyArgs(mailbox="box", id=message), "too late")
    stage.hub.flush()
    assert ("note", f"its reply to {message} of box is no longer awaited") in stage.shown


def test_a_call_is_sent_once_also_if_its_worker_or_the_hub_dies() -> None:
    stage = Stage()
    caller, _ = team(stage, "a", "b")
    args = s.CallMailboxArgs(mailbox="box", timeout_s=100.0)
    caller.step(1, "call", args, "ping")
    again = stage.kill(caller.path)
    assert again is not None
    again.step(1, "call", args, "ping")
    stage.again()
    caller, server = stage.workers[caller.path], stage.workers["main/1.2:b"]
    called = caller.step(1, "call", args, "ping")
    i = receive(server, 1, "box", hold=True)
    server.step(2, "reply", s.ReplyArgs(mailbox="box", id=held_id(server, i)), "pong")

    assert caller.value(called) == "pong"
    assert server.error(receive(server, 3, "box", 0)) == "ReceiveTimeoutError"


def full_box(stage: Stage, **bounds: object) -> tuple[Puppet, Puppet]:
    """Two workers, and a mailbox with room for one message, which is in it."""
    caller, server = team(stage, "a", "b")
    declare(server, 1, "box", capacity=1, **bounds)
    send(server, 2, "box", "first")
    return caller, server


def test_a_call_waits_for_room_in_a_full_mailbox_and_then_for_its_reply() -> None:
    stage = Stage()
    caller, server = full_box(stage)
    args = s.CallMailboxArgs(mailbox="box", timeout_s=100.0)
    called = caller.step(1, "call", args, "ping")
    blocked = send(server, 3, "box", "behind it")

    assert server.value(receive(server, 4, "box")) == "first"
    i = receive(server, 5, "box", hold=True)
    server.step(6, "reply", s.ReplyArgs(mailbox="box", id=held_id(server, i)), "pong")

    assert caller.value(called) == "pong"
    assert server.value(blocked)


@pytest.mark.parametrize("who", ["worker", "hub"])
def test_a_call_that_waits_for_room_is_sent_once_whoever_dies(who: str) -> None:
    stage = Stage()
    caller, server = full_box(stage)
    args = s.CallMailboxArgs(mailbox="box", timeout_s=100.0)
    caller.step(1, "call", args, "ping")
    stage.hub.flush()
    if who == "hub":
        stage.again()
    else:
        stage.kill(caller.path)
    caller, server = stage.workers[caller.path], stage.workers[server.path]
    called = caller.step(1, "call", args, "ping")

    assert server.value(receive(server, 3, "box")) == "first"
    i = receive(server, 4, "box", hold=True)
    server.step(5, "reply", s.ReplyArgs(mailbox="box", id=held_id(server, i)), "pong")

    assert caller.value(called) == "pong"
    assert server.error(receive(server, 6, "box", 0)) == "ReceiveTimeoutError"


def test_a_call_that_finds_no_room_in_time_is_late_and_never_sent() -> None:
    stage = Stage()
    caller, server = full_box(stage)
    called = caller.step(1, "call", s.CallMailboxArgs(mailbox="box", timeout_s=3.0), "ping")

    stage.wait(3.0)

    assert caller.error(called) == "DeadlineExceededError"
    assert server.value(receive(server, 3, "box")) == "first"
    assert server.error(receive(server, 4, "box", 0)) == "ReceiveTimeoutError"


def test_a_call_that_waits_for_room_learns_that_the_mailbox_was_closed() -> None:
    stage = Stage()
    caller, server = full_box(stage)
    called = caller.step(1, "call", s.CallMailboxArgs(mailbox="box"), "ping")

    server.step(3, "close", s.MailboxArgs(mailbox="box"))

    assert caller.error(called) == "MailboxClosedError"


@pytest.mark.parametrize("overflow", ["reject", "drop_newest"])
def test_a_call_does_not_wait_where_no_send_does(overflow: str) -> None:
    caller, _ = full_box(Stage(), overflow=overflow)

    assert caller.error(caller.step(1, "call", s.CallMailboxArgs(mailbox="box"), "x")) == "MailboxFullError"


def test_a_call_pushes_the_oldest_message_out_of_a_mailbox_that_drops_it() -> None:
    caller, server = full_box(Stage(), overflow="drop_oldest")
    caller.step(1, "call", s.CallMailboxArgs(mailbox="box"), "ping")

    assert server.value(receive(server, 3, "box")) == "ping"


def test_a_call_to_the_full_inbox_of_its_own_worker_is_refused() -> None:
    main = Stage().begin()
    declare(main, 1, "@main", capacity=1)
    send(main, 2, "@main", 1)

    assert main.error(main.step(3, "call", s.CallMailboxArgs(mailbox="@main"), "x")) == "MailboxFullError"


def test_a_second_reply_changes_nothing() -> None:
    stage = Stage()
    caller, server = team(stage, "a", "b")
    called = caller.step(1, "call", s.CallMailboxArgs(mailbox="box"), "ping")
    i = receive(server, 1, "box", hold=True)
    for n, value in ((2, "first"), (3, "second")):
        server.step(n, "reply", s.ReplyArgs(mailbox="box", id=held_id(server, i)), value)

    assert caller.value(called) == "first"


# Bounds.


def test_a_full_mailbox_that_rejects_says_so_at_once() -> None:
    main = Stage().begin()
    declare(main, 1, "box", capacity=1, overflow="reject")
    send(main, 2, "box", 1)

    assert main.error(send(main, 3, "box", 2)) == "MailboxFullError"


def test_the_oldest_message_makes_room() -> None:
    stage = Stage()
    main = stage.begin()
    declare(main, 1, "box", capacity=2, overflow="drop_oldest")
    for n in range(2, 5):
        main.value(send(main, n, "box", n))

    assert main.value(main.step(5, "drain", s.DrainArgs(mailbox="box"))) == [3, 4]
    assert [entry.data["reason"] for entry in stage.entries("message.moved")] == ["overflow"]


def test_the_newest_message_is_dropped() -> None:
    main = Stage().begin()
    declare(main, 1, "box", capacity=2, overflow="drop_newest")
    for n in range(2, 5):
        main.value(send(main, n, "box", n))

    assert main.value(main.step(5, "drain", s.DrainArgs(mailbox="box"))) == [2, 3]


def test_senders_wait_for_room_and_are_served_in_order() -> None:
    stage = Stage()
    first, second, third = team(stage, "a", "b", "c")
    declare(first, 1, "box", capacity=1)
    send(first, 2, "box", 0)
    waits = [(worker, send(worker, 3, "box", n)) for n, worker in enumerate((second, first), 1)]
    assert [worker.answer(i) for worker, i in waits] == [None, None]

    received = [third.value(receive(third, n, "box")) for n in range(1, 4)]

    assert received == [0, 1, 2]
    assert all(worker.answer(i) for worker, i in waits)


def test_a_short_message_does_not_overtake_a_long_one_that_waits_for_room() -> None:
    stage = Stage()
    first, second, third = team(stage, "a", "b", "c")
    declare(first, 1, "box", max_bytes=100)
    send(first, 2, "box", "a" * 60)
    send(first, 3, "box", "b" * 60)
    short = send(second, 1, "box", "c")

    assert second.answer(short) is None
    assert [third.value(receive(third, n, "box", 0)) for n in (1, 2, 3)] == ["a" * 60, "b" * 60, "c"]


def test_who_waits_for_room_behind_one_that_gives_up_has_what_that_one_left() -> None:
    stage = Stage()
    first, second = team(stage, "a", "b")
    declare(first, 1, "box", max_bytes=100)
    send(first, 2, "box", "a" * 60)
    long = send(first, 3, "box", "b" * 60)
    short = send(second, 1, "box", "c")

    first.cancel(3)
    stage.wait(0.001)

    assert first.error(long) == "StepCancelledError"
    assert second.answer(short)
    assert len(stage.core.state.mailbox("box")) == 2


def test_who_waits_for_room_in_a_mailbox_learns_that_it_was_closed() -> None:
    stage = Stage()
    first, second = team(stage, "a", "b")
    declare(first, 1, "box", capacity=1)
    send(first, 2, "box", 0)
    waiting = send(second, 1, "box", 1)

    first.value(first.step(3, "close", s.MailboxArgs(mailbox="box")))

    assert second.error(waiting) == "MailboxClosedError"
    assert first.value(receive(first, 4, "box")) == 0
    assert len(stage.core.state.mailbox("box")) == 0


def test_who_waits_for_room_in_an_inbox_learns_that_its_worker_has_ended() -> None:
    stage = Stage()
    first, second = team(stage, "a", "b")
    inbox = f"@{second.path}"
    declare(first, 1, inbox, capacity=1)
    send(first, 2, inbox, 0)
    waiting = send(first, 3, inbox, 1)

    second.result()

    assert first.error(waiting) == "MailboxClosedError"


def test_a_sender_that_waits_for_room_gives_up_in_time() -> None:
    stage = Stage()
    main = stage.begin()
    declare(main, 1, "box", capacity=1)
    send(main, 2, "box", 0)
    waiting = send(main, 3, "box", 1)

    stage.wait(5.0)

    assert main.error(waiting) == "MailboxFullError"
    assert len(stage.core.state.mailbox("box")) == 1


def test_a_sender_that_waits_for_room_can_be_cancelled() -> None:
    stage = Stage()
    main = stage.begin()
    declare(main, 1, "box", capacity=1)
    send(main, 2, "box", 0)
    waiting = send(main, 3, "box", 1)

    main.cancel(3)
    receive(main, 4, "box")

    assert main.error(waiting) == "StepCancelledError"
    assert len(stage.core.state.mailbox("box")) == 0


def test_a_sender_that_died_waiting_for_room_sends_once_when_it_is_back() -> None:
    stage = Stage()
    first, second = team(stage, "a", "b")
    declare(first, 1, "box", capacity=1)
    send(first, 2, "box", 0)
    send(first, 3, "box", 1)
    again = stage.kill(first.path)
    assert again is not None
    waiting = send(again, 3, "box", 1)

    received = [second.value(receive(second, n, "box")) for n in range(1, 3)]

    assert received == [0, 1]
    assert again.answer(waiting)
    assert second.error(receive(second, 3, "box", 0)) == "ReceiveTimeoutError"


def test_a_worker_does_not_wait_for_room_in_its_own_inbox() -> None:
    main = Stage().begin()
    declare(main, 1, "@main", capacity=1)
    send(main, 2, "@main", 0)

    assert main.error(send(main, 3, "@main", 1)) == "MailboxFullError"


def test_the_first_declaration_stands() -> None:
    main = Stage().begin()
    main.value(declare(main, 1, "box", capacity=1))

    main.value(declare(main, 2, "box", capacity=1))
    assert main.error(declare(main, 3, "box", capacity=2)) == "MailboxConfigError"


# Closing, draining, withdrawing, counting.


def test_a_closed_mailbox_takes_nothing_more_and_gives_what_it_has() -> None:
    stage = Stage()
    first, second = team(stage, "a", "b")
    send(first, 1, "box", "last")
    first.step(2, "close", s.MailboxArgs(mailbox="box"))

    assert first.error(send(first, 3, "box", 1)) == "MailboxClosedError"
    assert second.value(receive(second, 1, "box")) == "last"
    assert second.error(receive(second, 2, "box")) == "MailboxClosedError"


@pytest.mark.parametrize("dies", [False, True])
def test_who_waits_at_a_mailbox_learns_that_it_was_closed(dies: bool) -> None:
    stage = Stage()
    first, second = team(stage, "a", "b")
    waiting = receive(second, 1, "box")
    if dies:
        stage.shy.add(second.path)
        stage.kill(second.path)
        stage.shy.clear()

    first.step(1, "close", s.MailboxArgs(mailbox="box"))
    if dies:
        stage.again()
        second = stage.workers[second.path]
        waiting = receive(second, 1, "box")

    assert second.error(waiting) == "MailboxClosedError"


def test_draining_takes_what_is_there_in_one_entry() -> None:
    stage = Stage()
    main = stage.begin()
    for n in range(1, 4):
        send(main, n, "box", n)

    assert main.value(main.step(4, "drain", s.DrainArgs(mailbox="box", max=2))) == [1, 2]
    assert main.value(main.step(5, "drain", s.DrainArgs(mailbox="box"))) == [3]
    assert main.value(main.step(6, "drain", s.DrainArgs(mailbox="box"))) == []
    assert len(stage.entries("messages.drained")) == 3


@pytest.mark.parametrize("not_before", [None, 2_000_000_000_000_000])
def test_a_sender_takes_its_message_back(not_before: int | None) -> None:
    stage = Stage()
    first, second = team(stage, "a", "b")
    message = first.value(send(first, 1, "box", 1, not_before=not_before))
    args = s.WithdrawArgs(mailbox="box", id=str(message))

    assert second.value(second.step(1, "withdraw", args)) is False
    assert first.value(first.step(2, "withdraw", args)) is True
    assert first.value(first.step(3, "withdraw", args)) is False
    assert second.error(receive(second, 2, "box", 0)) == "ReceiveTimeoutError"


def test_the_counts_of_a_mailbox_add_up() -> None:
    stage = Stage()
    first, second = team(stage, "a", "b")
    receive(second, 1, "quiet")
    for n in range(1, 4):
        send(first, n, "box", n)
    send(first, 4, "box", 4, not_before=stage.clock.now_us() + SECOND_US)
    receive(first, 5, "box")
    stage.wait(0.5)

    counts = first.value(first.step(6, "stats", s.MailboxArgs(mailbox="box")))
    quiet = first.value(first.step(7, "stats", s.MailboxArgs(mailbox="quiet")))

    assert counts == {
        "queued": 2,
        "scheduled": 1,
        "waiting": 0,
        "sent": 4,
        "delivered": 1,
        "dropped": 0,
        "size_bytes": 2,
        "oldest_age_s": 0.5,
    }
    assert fields(quiet)["waiting"] == 1


# Inboxes.


@pytest.mark.parametrize("kind", ["send", "call"])
def test_the_inbox_of_a_worker_that_never_was_takes_nothing(kind: str) -> None:
    stage = Stage()
    main = stage.begin()

    assert main.error(main.step(1, kind, s.MailboxArgs(mailbox="@main/9:nobody"), "x")) == "MailboxNameError"
    assert len(stage.core.state.mailbox("@main/9:nobody")) == 0


def test_an_inbox_is_read_by_its_worker_only() -> None:
    stage = Stage()
    first, second = team(stage, "a", "b")
    inbox = f"@{first.path}"
    send(second, 1, inbox, "for you")

    assert second.error(receive(second, 2, inbox, 0)) == "MailboxNameError"
    assert second.error(second.step(3, "drain", s.DrainArgs(mailbox=inbox))) == "MailboxNameError"
    assert first.value(receive(first, 1, inbox, 0)) == "for you"


def test_the_inbox_of_a_worker_that_ended_is_closed() -> None:
    stage = Stage()
    first, second = team(stage, "a", "b")
    first.result()

    assert second.error(send(second, 1, f"@{first.path}", "too late")) == "MailboxClosedError"


def test_the_inbox_of_a_worker_that_failed_is_open_again_when_the_run_is_resumed() -> None:
    stage = Stage()
    main = stage.begin()
    send(main, 1, "@main", "kept")
    main.fail()

    main = stage.again()

    assert main.value(receive(main, 2, "@main", 0)) == "kept"
    main.value(send(main, 3, "@main", "more"))


# Scheduled messages.


def test_a_scheduled_message_is_received_when_it_is_due_in_the_order_of_its_time() -> None:
    stage = Stage()
    main = stage.begin()
    now = stage.clock.now_us()
    send(main, 1, "box", "later", not_before=now + 20 * SECOND_US)
    send(main, 2, "box", "sooner", not_before=now + 10 * SECOND_US)
    send(main, 3, "box", "now")
    assert main.value(receive(main, 4, "box")) == "now"
    waiting = receive(main, 5, "box", 100.0)

    stage.wait(10.0)
    assert main.value(waiting) == "sooner"
    stage.wait(10.0)
    assert main.value(receive(main, 6, "box")) == "later"


def test_overdue_messages_are_there_before_any_worker_goes_on() -> None:
    stage = Stage()
    main = stage.begin()
    send(main, 1, "box", "overdue", not_before=stage.clock.now_us() + 10 * SECOND_US)

    main = stage.again(dead_s=60.0)

    assert main.value(receive(main, 2, "box", 0)) == "overdue"


@pytest.mark.parametrize("early_s", [0, 3600])
def test_a_message_for_a_moment_that_has_passed_is_there_at_once(early_s: int) -> None:
    stage = Stage()
    main = stage.begin()
    send(main, 1, "box", "now", not_before=stage.clock.now_us() - early_s * SECOND_US)
    stage.wait(0.001)

    assert main.value(receive(main, 2, "box", 0)) == "now"


def test_a_closed_mailbox_gives_what_was_scheduled_before_and_then_says_that_it_is_closed() -> None:
    stage = Stage()
    first, second = team(stage, "a", "b")
    due = stage.clock.now_us() + 10 * SECOND_US
    send(first, 1, "box", "later", not_before=due)
    first.step(2, "close", s.MailboxArgs(mailbox="box"))

    assert first.error(receive(first, 3, "box", 0)) == "ReceiveTimeoutError"
    waiting, behind = receive(first, 4, "box"), receive(second, 1, "box")
    stage.wait(10.0)

    assert first.value(waiting) == "later"
    assert second.error(behind) == "MailboxClosedError"
    assert first.error(receive(first, 5, "box")) == "MailboxClosedError"


def test_who_waits_for_a_scheduled_message_of_a_closed_mailbox_learns_that_it_was_withdrawn() -> None:
    stage = Stage()
    first, second = team(stage, "a", "b")
    sent = send(first, 1, "box", "later", not_before=stage.clock.now_us() + 10 * SECOND_US)
    first.step(2, "close", s.MailboxArgs(mailbox="box"))
    waiting = receive(second, 1, "box")

    first.step(3, "withdraw", s.WithdrawArgs(mailbox="box", id=str(first.value(sent))))

    assert second.error(waiting) == "MailboxClosedError"


def test_a_message_that_comes_due_at_a_full_mailbox_waits_for_room() -> None:
    stage = Stage()
    main = stage.begin()
    declare(main, 1, "box", capacity=1)
    send(main, 2, "box", "first")
    send(main, 3, "box", "scheduled", not_before=stage.clock.now_us() + SECOND_US)
    stage.wait(5.0)

    assert len(stage.core.state.mailbox("box")) == 1
    assert main.value(receive(main, 4, "box", 0)) == "first"
    assert main.value(receive(main, 5, "box", 0)) == "scheduled"


@pytest.mark.parametrize(
    ("overflow", "left"), [("drop_oldest", ["scheduled"]), ("drop_newest", ["first"]), ("reject", ["first"])]
)
def test_bounds_apply_to_a_message_that_comes_due(overflow: str, left: list[str]) -> None:
    stage = Stage()
    main = stage.begin()
    declare(main, 1, "box", capacity=1, overflow=overflow)
    send(main, 2, "box", "first")
    send(main, 3, "box", "scheduled", not_before=stage.clock.now_us() + SECOND_US)

    stage.wait(2.0)

    assert main.value(main.step(4, "drain", s.DrainArgs(mailbox="box"))) == left


def test_a_clock_that_is_set_back_makes_a_message_late_not_lost() -> None:
    stage = Stage()
    main = stage.begin()
    send(main, 1, "box", "scheduled", not_before=stage.clock.now_us() + 10 * SECOND_US)
    waiting = receive(main, 2, "box", 1000.0)
    stage.clock.set_back(60.0)

    stage.wait(69.0)
    assert main.answer(waiting) is None
    stage.wait(2.0)
    assert main.value(waiting) == "scheduled"


# Processes outside.


class Outsider:
    """A process outside the run."""

    def __init__(self, stage: Stage, name: str = "foreign:7@1", rights: frozenset[str] | None = None) -> None:
        self.stage = stage
        self.heard: list[f.ToPeer] = []
        peer = Peer(0, name=name)
        peer.rights = rights
        self.number = stage.hub.join(f.Hello(role="foreign", pid=7), self.heard.append, peer)
        stage.hub.run_ready()
        self._asked = 0

    def ask(self, do: str, value: object = None, by_id: str = "", **request: object) -> int:
        self._asked += 1
        encoded = None if value is None else raw(value)
        frame = f.Ask(i=self._asked, do=do, a=raw(request), v=encoded, id=by_id)
        self.stage.hub.say(self.number, frame)
        self.stage.hub.run_ready()
        return self._asked

    def answer(self, i: int) -> f.Answer | f.Refusal | None:
        return next((a for a in self.heard if isinstance(a, f.Answer | f.Refusal) and a.i == i), None)

    def value(self, i: int) -> object:
        found = self.answer(i)
        assert isinstance(found, f.Answer), found
        return plain(found.v)

    def error(self, i: int) -> str:
        found = self.answer(i)
        assert isinstance(found, f.Refusal), found
        return found.e.type.rpartition(":")[2]

    def leave(self) -> None:
        self.stage.hub.hang_up(self.number)
        self.stage.hub.run_ready()


def test_a_wait_that_was_over_before_it_began_ends_at_once() -> None:
    stage = Stage()
    main = stage.begin()
    outside = Outsider(stage)
    waiting = receive(main, 1, "box", -1e300)
    called = outside.ask("call", 5, mailbox="void", timeout_s=-1e300)
    stage.wait(0.1)

    assert main.error(waiting) == "ReceiveTimeoutError"
    assert outside.error(called) == "DeadlineExceededError"


def test_a_process_outside_sends_and_receives() -> None:
    stage = Stage()
    main = stage.begin()
    outside = Outsider(stage)

    outside.value(outside.ask("send", 5, mailbox="box"))
    assert main.value(receive(main, 1, "box")) == 5
    send(main, 2, "box", 6)
    held = fields(outside.value(outside.ask("receive", mailbox="box", timeout_s=0)))
    assert (held["value"], held["sender"]) == (6, "main")
    outside.value(outside.ask("ack", id=held["id"]))
    assert stage.core.state.mailbox("box").held == 0


def give_up_politely(outside: Outsider, held: str) -> None:
    outside.ask("ack", id=held, ok=False)


def just_leave(outside: Outsider, held: str) -> None:
    outside.leave()


def die_with_the_hub(outside: Outsider, held: str) -> None:
    outside.stage.again()


@pytest.mark.parametrize("end", [give_up_politely, just_leave, die_with_the_hub])
def test_what_a_process_outside_held_goes_back(end: Callable[[Outsider, str], None]) -> None:
    stage = Stage()
    main = stage.begin()
    send(main, 1, "box", "precious")
    outside = Outsider(stage)
    held = fields(outside.value(outside.ask("receive", mailbox="box")))

    end(outside, str(held["id"]))

    main = stage.workers["main"]
    i = receive(main, 2, "box", 0, hold=True)
    again = fields(main.value(i))
    assert (again["value"], again["attempt"]) == ("precious", 2)


def test_a_process_outside_that_waits_is_served_or_told_that_nothing_came() -> None:
    stage = Stage()
    main = stage.begin()
    outside, patient = Outsider(stage), Outsider(stage, "foreign:8@1")
    waiting = outside.ask("receive", mailbox="box", timeout_s=1.0)
    longer = patient.ask("receive", mailbox="box", timeout_s=100.0)
    stage.wait(1.0)

    send(main, 1, "box", "for the patient")

    assert outside.error(waiting) == "ReceiveTimeoutError"
    held = fields(patient.value(longer))
    assert held["value"] == "for the patient"


def test_a_process_outside_does_not_receive_what_belongs_to_a_worker() -> None:
    stage = Stage()
    first, second = team(stage, "a", "b")
    second.value(second.step(1, "register", s.MailboxArgs(mailbox="clerk")))
    outside = Outsider(stage)
    for n, name in enumerate((f"@{second.path}", "clerk"), 1):
        send(first, n, name, name)

        assert outside.error(outside.ask("receive", mailbox=name, timeout_s=0)) == "MailboxNameError"
        assert second.value(receive(second, n + 1, name, 0)) == name


def test_who_waits_at_a_mailbox_is_sent_away_when_it_becomes_the_name_of_a_worker() -> None:
    stage = Stage()
    first, second = team(stage, "a", "b")
    outside = Outsider(stage)
    asked = outside.ask("receive", mailbox="clerk", timeout_s=60)
    waiting = receive(first, 1, "clerk")

    second.value(second.step(1, "register", s.MailboxArgs(mailbox="clerk")))

    assert outside.error(asked) == "MailboxNameError"
    assert first.error(waiting) == "MailboxNameError"


def test_a_process_outside_learns_that_a_mailbox_is_closed() -> None:
    stage = Stage()
    main = stage.begin()
    outside = Outsider(stage)
    main.step(1, "close", s.MailboxArgs(mailbox="box"))

    assert outside.error(outside.ask("send", 1, mailbox="box")) == "MailboxClosedError"
    assert outside.error(outside.ask("receive", mailbox="box", timeout_s=10.0)) == "MailboxClosedError"


def test_a_process_outside_takes_back_its_own_messages_only() -> None:
    stage = Stage()
    main = stage.begin()
    outside = Outsider(stage)
    mine = outside.value(outside.ask("send", "mine", mailbox="box"))
    other = main.value(send(main, 1, "box", "other"))

    taken = [outside.value(outside.ask("withdraw", mailbox="box", id=name)) for name in (mine, mine, other)]

    assert taken == [True, False, False]
    assert main.value(receive(main, 2, "box", 0)) == "other"


def test_a_process_outside_closes_a_mailbox_and_counts_its_messages() -> None:
    stage = Stage()
    main = stage.begin()
    outside = Outsider(stage)
    waiting = receive(main, 1, "box")
    assert fields(outside.value(outside.ask("stats", mailbox="box")))["waiting"] == 1

    outside.value(outside.ask("close", mailbox="box"))

    assert main.error(waiting) == "MailboxClosedError"
    assert main.error(send(main, 2, "box", 1)) == "MailboxClosedError"


@pytest.mark.parametrize(("overflow", "left"), [("drop_oldest", [2]), ("drop_newest", [1])])
def test_bounds_apply_to_messages_from_outside(overflow: str, left: list[int]) -> None:
    stage = Stage()
    main = stage.begin()
    declare(main, 1, "box", capacity=1, overflow=overflow)
    outside = Outsider(stage)

    for value in (1, 2):
        outside.value(outside.ask("send", value, mailbox="box"))

    assert main.value(main.step(2, "drain", s.DrainArgs(mailbox="box"))) == left


@pytest.mark.parametrize("overflow", ["block", "reject"])
def test_a_full_mailbox_refuses_a_message_from_outside_that_has_no_room_in_time(overflow: str) -> None:
    stage = Stage()
    main = stage.begin()
    declare(main, 1, "box", capacity=1, overflow=overflow)
    outside = Outsider(stage)
    outside.ask("send", 1, mailbox="box")

    refused = outside.ask("send", 2, mailbox="box")
    stage.wait(5.0 if overflow == "block" else 0.0)

    assert outside.error(refused) == "MailboxFullError"
    assert len(stage.core.state.mailbox("box")) == 1


def test_two_sends_that_wait_for_room_with_one_key_are_one_message() -> None:
    stage = Stage()
    main = stage.begin()
    declare(main, 1, "box", capacity=1)
    send(main, 2, "box", "first")
    outside = Outsider(stage)
    asked = [outside.ask("send", "mine", mailbox="box", key="k") for _ in range(2)]
    waiting = send(main, 3, "box", "mine", key="k")

    assert [main.value(receive(main, n, "box", 0)) for n in (4, 5)] == ["first", "mine"]

    assert len({str(outside.value(i)) for i in asked} | {str(main.value(waiting))}) == 1
    assert main.error(receive(main, 6, "box", 0)) == "ReceiveTimeoutError"


def test_a_message_from_outside_waits_for_room_in_its_turn() -> None:
    stage = Stage()
    main = stage.begin()
    declare(main, 1, "box", capacity=1)
    outside, gone = Outsider(stage), Outsider(stage, "foreign:8@1")
    outside.ask("send", 1, mailbox="box")
    left = gone.ask("send", "never", mailbox="box")
    waiting, behind = outside.ask("send", 2, mailbox="box"), outside.ask("send", 3, mailbox="box")
    gone.leave()

    assert [main.value(receive(main, n, "box")) for n in (2, 3)] == [1, 2]

    assert outside.value(waiting)
    assert outside.value(behind)
    assert gone.answer(left) is None
    assert main.value(receive(main, 4, "box")) == 3


def test_a_message_from_outside_learns_that_the_mailbox_was_closed_or_the_session_failed() -> None:
    stage = Stage()
    main = stage.begin()
    outside = Outsider(stage)
    for n, name in enumerate(("closing", "failing"), 1):
        declare(main, n, name, capacity=1)
        outside.ask("send", 1, mailbox=name)
    closed, failed = (outside.ask("send", 2, mailbox=name) for name in ("closing", "failing"))

    main.step(3, "close", s.MailboxArgs(mailbox="closing"))
    main.step(4, "fail", s.FailArgs(message="on purpose"))
    stage.hub.run_ready()

    assert outside.error(closed) == "MailboxClosedError"
    assert outside.error(failed) == "SessionFailedError"


def test_a_failed_session_takes_and_gives_nothing_outside() -> None:
    stage = Stage()
    main = stage.begin()
    stage.slow_to_die.add("main")
    send(main, 1, "box", "kept")
    outside = Outsider(stage)
    waiting = outside.ask("receive", mailbox="other", timeout_s=100.0)
    outside.ask("fail", message="enough")

    assert outside.error(waiting) == "SessionFailedError"
    assert outside.error(outside.ask("send", 1, mailbox="box")) == "SessionFailedError"
    assert outside.error(outside.ask("receive", mailbox="box", timeout_s=0)) == "SessionFailedError"


def test_a_process_inside_the_run_may_do_only_what_it_was_granted() -> None:
    stage = Stage()
    main = stage.begin()
    main.step(1, "ask", s.AskArgs(question="May I?"))
    inside = Outsider(stage, "inside", frozenset({"send"}))

    inside.value(inside.ask("send", 1, mailbox="box"))
    for do in ("answer", "fail", "cancel", "receive", "interrupt"):
        assert inside.error(inside.ask(do, True, question="q1")) == "PeerRefusedError"
    assert stage.core.state.failure is None


def test_a_request_that_nobody_knows_is_refused() -> None:
    stage = Stage()
    stage.begin()
    outside = Outsider(stage)

    assert outside.error(outside.ask("dance")) == "UnknownRequestError"


def test_a_process_outside_sees_the_mailboxes_and_what_is_in_them() -> None:
    stage = Stage()
    main = stage.begin()
    send(main, 1, "box", {"a": 1})
    outside = Outsider(stage)

    peeked = msgspec.convert(outside.value(outside.ask("peek", mailbox="box")), type=list[dict[str, object]])
    listed = fields(outside.value(outside.ask("mailboxes")))
    facts = fields(outside.value(outside.ask("state")))

    assert [message["value"] for message in peeked] == [{"a": 1}]
    assert fields(listed["box"])["queued"] == 1
    assert (facts["status"], facts["workers"], facts["alive"]) == ("running", 1, 1)
