"""What telemetry is told of messages: every event by a real action, after it is durable, without a payload."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import pytest
from tests.unit.runtime.kernel.mail.test_dead_letters import EVERYTHING, lose, retry
from tests.unit.runtime.kernel.mail.test_mailroom import Outsider
from tests.unit.runtime.kernel.mail.test_supervised import (
    broadcast,
    declare,
    pair,
    publish,
    receive,
    subscribe,
    supervise,
)
from tests.unit.runtime.stage import Stage, fields

from bartack.messaging import LetterPolicy
from bartack.runtime.kernel.desk import Settings
from bartack.runtime.kernel.mail_events import message_type
from bartack.runtime.protocol import frames as f
from bartack.runtime.protocol import steps as s
from bartack.telemetry import Telemetry

EAGER = LetterPolicy()
Told = list[tuple[str, dict[str, object]]]


def listening(pattern: str = "*", letters: LetterPolicy = EAGER) -> tuple[Stage, Told]:
    """A stage whose telemetry writes down what it is told."""
    told: Told = []

    def hear(
        name: str, measurements: Mapping[str, int], metadata: Mapping[str, object], config: object
    ) -> None:
        told.append((name, {**measurements, **metadata}))

    telemetry = Telemetry()
    telemetry.attach("test", pattern, hear)
    return Stage(telemetry=telemetry, settings=Settings(letters=letters)), told


def names(told: Told) -> list[str]:
    return [name for name, _ in told]


def last(told: Told, name: str) -> dict[str, object]:
    return [facts for heard, facts in told if heard == name][-1]


def test_a_message_is_told_when_it_is_sent_and_when_it_is_delivered() -> None:
    stage, told = listening()
    main = stage.begin()

    main.value(main.step(1, "send", s.SendArgs(mailbox="box"), "secret"))
    stage.wait(2.0)
    main.value(receive(main, 2, "box"))

    run = stage.core.state.run_id
    assert last(told, "mailbox.sent") == {
        "size_bytes": 8,
        "queued": 1,
        "run": run,
        "mailbox": "box",
        "sender": "main",
        "message": last(told, "mailbox.delivered")["message"],
        "send": "",
    }
    assert last(told, "mailbox.delivered") == {
        "wait_ns": 2_000_000_000,
        "run": run,
        "mailbox": "box",
        "receiver": "main",
        "message": last(told, "mailbox.sent")["message"],
        "traceparent": "",
    }
    assert "secret" not in repr(told)


@pytest.mark.parametrize("hold", [False, True])
def test_a_message_that_somebody_waits_for_is_told_to_be_delivered(*, hold: bool) -> None:
    stage, told = listening()
    sender, receiver = pair(stage)
    waiting = receive(receiver, 1, "box", 60.0, hold=hold)
    stage.wait(2.0)

    sender.value(sender.step(1, "send", s.SendArgs(mailbox="box"), "secret"))

    receiver.value(waiting)
    assert last(told, "mailbox.sent")["queued"] == 1
    assert [facts for name, facts in told if name == "mailbox.delivered"] == [
        {
            "wait_ns": 0,
            "run": stage.core.state.run_id,
            "mailbox": "box",
            "receiver": receiver.path,
            "message": last(told, "mailbox.sent")["message"],
            "traceparent": "",
        }
    ]


def test_a_message_that_a_process_outside_waits_for_is_told_to_be_delivered() -> None:
    stage, told = listening("mailbox.delivered")
    main = stage.begin()
    outside = Outsider(stage)
    waiting = outside.ask("receive", mailbox="box", timeout_s=60)

    main.value(main.step(1, "send", s.SendArgs(mailbox="box"), "secret"))

    outside.value(waiting)
    assert [(facts["receiver"], facts["wait_ns"]) for _, facts in told] == [("foreign:7@1", 0)]


def test_nothing_is_told_before_it_is_durable() -> None:
    stage, told = listening()
    main = stage.begin()
    arguments = msgspec.Raw(msgspec.json.encode(s.SendArgs(mailbox="box")))
    stage.hub.say(
        main.number, f.Step(i=1, p="main", n=1, step="send", fp="x", a=arguments, v=msgspec.Raw(b"1"))
    )

    stage.hub._events.popleft()(stage.core)
    assert "mailbox.sent" not in names(told)
    stage.hub.finish_turn()

    assert "mailbox.sent" in names(told)


def test_a_mailbox_tells_once_that_it_is_half_and_nearly_full() -> None:
    stage, told = listening("mailbox.level")
    main = stage.begin()
    declare(main, 1, "box", capacity=10)
    for n in range(2, 12):
        supervise(main, n, "box")

    assert [(facts["percent"], facts["queued"]) for _, facts in told] == [(50, 5), (90, 9)]


def test_a_supervised_send_is_a_span() -> None:
    stage, told = listening("send.*")
    sender, receiver = pair(stage)
    supervise(sender, 1, "box", {"type": "order"})
    supervise(sender, 2, "void", ack="delivered", timeout_s=1.0, retries=1, on_error="ignore", base_s=0.0)
    stage.wait(2.5)

    assert names(told) == ["send.start", "send.stop", "send.start", "send.retry", "send.exception"]
    assert (told[0][1]["message_type"], told[1][1]["outcome"]) == ("order", "accepted")
    assert (told[3][1]["attempt"], told[3][1]["reason"]) == (1, "timeout")
    assert (told[4][1]["attempts"], told[4][1]["outcome"]) == (2, "timed_out")
    assert told[4][1]["duration_ns"] == pytest.approx(2e9, rel=0.01)
    assert receiver.path


def test_broadcasts_and_topics_that_nobody_wants_are_told() -> None:
    stage, told = listening()
    main = stage.begin()
    subscribe(main, 1, "box", "a")
    broadcast(main, 2, ["x", "y"])
    publish(main, 3, "a")
    publish(main, 4, "nobody.here")

    stops = [facts for name, facts in told if name == "broadcast.stop"]
    assert [(facts["recipients"], facts["succeeded"], facts["topic"]) for facts in stops] == [
        (2, 2, ""),
        (1, 1, "a"),
        (0, 0, "nobody.here"),
    ]
    assert last(told, "topic.unrouted")["topic"] == "nobody.here"


def test_the_life_of_a_dead_letter_is_told() -> None:
    stage, told = listening("dead_letter.*", letters=LetterPolicy(retry=False, expire_after=50.0))
    main = stage.begin()
    lose(main, 1)
    retry(stage)
    stage.wait(51.0)
    stage.core.letters.purge(EVERYTHING)
    stage.hub.finish_turn()

    assert names(told) == [
        "dead_letter.added",
        "dead_letter.added",
        "dead_letter.expired",
        "dead_letter.purged",
    ]
    assert [facts["attempts"] for _, facts in told] == [1, 2, 2, 2]


def test_a_letter_that_is_received_after_all_is_told() -> None:
    stage, told = listening("dead_letter.*")
    main = stage.begin()
    supervise(main, 1, "box", ack="delivered", timeout_s=1.0, retries=0, on_error="dead_letter")
    stage.wait(1.5)
    retry(stage)
    main.value(receive(main, 2, "box"))

    assert names(told) == ["dead_letter.added", "dead_letter.retried", "dead_letter.redelivered"]
    assert fields(told[1][1])["by"] == "command"


def test_what_is_pushed_out_of_a_full_mailbox_is_told() -> None:
    stage, told = listening("mailbox.dropped")
    main = stage.begin()
    declare(main, 1, "box", capacity=1, overflow="drop_oldest")
    for n in (2, 3):
        supervise(main, n, "box")

    assert [facts["policy"] for _, facts in told] == ["drop_oldest"]


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ({"type": "order"}, "order"),
        ({"type": "x" * 65}, "object"),
        ({"type": 3}, "object"),
        ([], "array"),
        ("t", "string"),
        (True, "boolean"),
        (None, "null"),
        (-1.5, "number"),
    ],
)
def test_the_type_of_a_message(value: object, kind: str) -> None:
    assert message_type(msgspec.Raw(msgspec.json.encode(value))) == kind


def test_a_blob_is_not_looked_into() -> None:
    assert message_type(None) == "blob"
