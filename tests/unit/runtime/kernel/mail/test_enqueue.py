"""The one way into a mailbox: what it answers, and that it is the only one."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from tests.unit.runtime.kernel.mail.test_mailroom import Outsider, declare, receive, send
from tests.unit.runtime.kernel.mail.test_supervised import broadcast, supervise
from tests.unit.runtime.stage import Stage, fields, raw

import bartack.runtime.kernel
from bartack.journal import BlobRef
from bartack.messaging.mailboxes import MAX_MESSAGE
from bartack.runtime.kernel.mail.enqueue import Enqueued, Enqueuing, MustWait, Outgoing, Refused, size_of
from bartack.runtime.protocol import steps as s
from bartack.runtime.state.worker_state import Value

KERNEL = Path(bartack.runtime.kernel.__file__).parent
A = Value(raw("a"))


def put(stage: Stage, mailbox: str, value: Value = A, **options: str | bool) -> Enqueuing:
    message = Outgoing(mailbox, "foreign:7@1", value, size_of(value))
    return stage.core.mail.enqueue.enqueue(msgspec.structs.replace(message, **options))


def full(overflow: str) -> Stage:
    """A run with a mailbox that holds one message, as many as it may."""
    stage = Stage()
    main = stage.begin()
    declare(main, 1, "box", capacity=1, overflow=overflow)
    send(main, 2, "box", "first")
    return stage


def values(stage: Stage) -> list[bytes]:
    return [bytes(message.value or b"") for message in stage.core.state.mailbox("box").queued()]


def test_the_entry_of_a_message_is_made_in_one_module() -> None:
    makers = [path.name for path in KERNEL.rglob("*.py") if "MessageSent(" in path.read_text()]

    assert makers == ["enqueue.py"]


def test_a_message_that_is_taken_is_in_the_journal() -> None:
    stage = Stage()
    stage.begin()

    outcome = put(stage, "box")

    assert isinstance(outcome, Enqueued)
    assert not outcome.known
    [entry] = stage.entries("message.sent")
    assert entry.seq == outcome.seq


def test_a_key_that_is_known_is_answered_with_the_first_message_and_recorded_once() -> None:
    stage = Stage()
    stage.begin()
    first = put(stage, "box", key="k")

    again = put(stage, "box", Value(raw("other")), key="k")

    assert isinstance(first, Enqueued)
    assert again == Enqueued(first.id, known=True)
    assert len(stage.entries("message.sent")) == 1


@pytest.mark.parametrize(
    ("overflow", "answer", "left"),
    [
        ("block", MustWait("box", 1), [b'"first"']),
        ("reject", "full", [b'"first"']),
        ("drop_oldest", Enqueued, [b'"a"']),
        ("drop_newest", Enqueued, [b'"first"']),
    ],
)
def test_a_full_mailbox_answers_as_it_was_declared(overflow: str, answer: object, left: list[bytes]) -> None:
    stage = full(overflow)

    outcome = put(stage, "box")

    match outcome:
        case Refused():
            assert outcome.reason == answer
        case Enqueued():
            assert answer is Enqueued
        case MustWait():
            assert outcome == answer
    assert values(stage) == left


@pytest.mark.parametrize("option", [{"reply_to": "main 1"}, {"supervised": True}])
def test_a_message_that_is_waited_for_is_refused_where_new_messages_are_dropped(
    option: dict[str, str | bool],
) -> None:
    stage = full("drop_newest")
    recorded = len(stage.entries())

    outcome = put(stage, "box", A, **option)

    assert isinstance(outcome, Refused)
    assert (outcome.reason, outcome.refusal) == ("drop", "full")
    assert len(stage.entries()) == recorded


@pytest.mark.parametrize(
    ("mailbox", "reason", "error"),
    [
        ("shut", "closed", "MailboxClosedError"),
        ("@nobody", "no_worker", "MailboxNameError"),
    ],
)
def test_a_mailbox_that_is_not_open_refuses(mailbox: str, reason: str, error: str) -> None:
    stage = Stage()
    stage.begin().step(1, "close", s.MailboxArgs(mailbox="shut"))

    outcome = put(stage, mailbox)

    assert isinstance(outcome, Refused)
    assert (outcome.reason, type(outcome.error).__name__) == (reason, error)


def test_a_message_over_the_limit_is_refused_before_its_key_is_looked_up() -> None:
    stage = Stage()
    stage.begin()
    put(stage, "box", key="k")

    outcome = put(stage, "box", Value(None, BlobRef("0" * 64, MAX_MESSAGE + 1)), key="k")

    assert isinstance(outcome, Refused)
    assert outcome.reason == "too_large"


def test_a_message_of_the_system_has_room_in_a_full_mailbox() -> None:
    stage = full("reject")

    outcome = put(stage, "box", system=True, id="down-1")

    assert isinstance(outcome, Enqueued)
    assert outcome.id == "down-1"
    assert values(stage) == [b'"first"', b'"a"']


def test_a_sender_is_answered_when_its_message_is_recorded_and_before_receivers_are_served() -> None:
    stage = Stage()
    main = stage.begin()
    receive(main, 1, "box")
    message = Outgoing("box", "foreign:7@1", Value(raw(1)), 1)
    seen: list[tuple[str, int]] = []

    def accepted(message_id: str) -> None:
        seen.append((message_id, stage.core.mail.receive.count("box")))

    outcome = stage.core.mail.enqueue.enqueue(message, accepted)

    assert isinstance(outcome, Enqueued)
    assert seen == [(outcome.id, 1)]
    assert stage.core.mail.receive.count("box") == 0


def test_a_short_message_from_outside_does_not_overtake_a_long_one_that_waits_for_room() -> None:
    stage = Stage()
    main = stage.begin()
    declare(main, 1, "box", max_bytes=10)
    send(main, 2, "box", "four")
    send(main, 3, "box", "long one")
    outside = Outsider(stage)

    asked = outside.ask("send", 1, mailbox="box")

    assert outside.answer(asked) is None
    assert [main.value(receive(main, n, "box")) for n in (4, 5, 6)] == ["four", "long one", 1]


def test_two_supervised_sends_that_wait_for_room_with_one_key_are_one_message() -> None:
    stage = full("block")
    main = stage.workers["main"]
    first, second = (supervise(main, n, "box", n, key="k") for n in (3, 4))

    assert [main.value(receive(main, n, "box")) for n in (5, 6)] == ["first", 3]

    assert main.value(first) == main.value(second)
    assert values(stage) == []


def test_two_broadcasts_that_wait_for_room_with_one_key_are_one_message() -> None:
    stage = full("block")
    main = stage.workers["main"]
    first, second = (broadcast(main, n, ["box"], key="k") for n in (3, 4))

    assert [main.value(receive(main, n, "box")) for n in (5, 6)] == ["first", "news"]

    results = [fields(main.value(i))["results"] for i in (first, second)]
    assert results[0] == results[1]
    assert values(stage) == []
