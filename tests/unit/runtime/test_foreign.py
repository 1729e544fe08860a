"""Processes outside the run, as far as the hub has to beware of them."""

from __future__ import annotations

from tests.unit.runtime.stage import Stage, fields, raw
from tests.unit.runtime.test_mail import Outsider

from bartack.journal import BlobRef
from bartack.runtime import _frames as f


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
