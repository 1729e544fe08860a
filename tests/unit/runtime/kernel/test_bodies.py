"""Steps that workers execute themselves: when they are recorded, retried, timed and cancelled."""

from __future__ import annotations

import pytest
from tests.unit.runtime.stage import (
    Stage,
    error,
    fields,
    raw,
)

from bartack.runtime.protocol import frames as f
from bartack.runtime.protocol import steps as s
from bartack.runtime.state.timeline import Timeline


def test_what_a_worker_noted_and_printed_is_durable_with_the_next_commit_and_shown_then() -> None:
    stage = Stage()
    main = stage.begin()
    main.say(f.Note(p="main", n=1, step="now", fp="n", v=raw(1)))
    main.say(f.Note(p="main", n=2, step="read", fp="r", e=error("FileAccessError")))
    main.say(f.Out(p="main", n=3, channel="print", text="hello"))
    assert (stage.core.turn.must_sync, stage.shown) == (False, [])

    main.step(4, "send", s.SendArgs(mailbox="box"), 1)

    assert stage.shown == [("print", "hello")]
    again = stage.again()
    assert [past.step for past in again.past] == ["now", "read", "print", "send"]
    assert stage.shown == [("print", "hello")]


def test_a_body_that_ends_at_once_is_one_entry() -> None:
    stage = Stage()
    main = stage.begin()
    stage.hub.say(main.number, f.Begin(p="main", n=1, step="body", fp="b", about="fetch"))
    stage.hub.say(main.number, f.Done(i=1, p="main", n=1, step="body", fp="b", v=raw(7)))
    for _ in range(2):
        stage.hub._events.popleft()(stage.core)
    stage.hub.finish_turn()

    assert main.value(1) == 7
    assert stage.kinds()[-2:] == ["hub.started", "step.finished"]


@pytest.mark.requirement("times-are-measured")
def test_the_time_of_a_body_is_what_its_worker_measured_however_late_the_hub_read_its_begin() -> None:
    stage = Stage()
    main = stage.begin()
    main.begin(1)
    stage.clock.advance(0.01)
    main.say(f.Done(i=1, p="main", n=1, step="body", fp="fp-body", v=raw(7), took_us=250_000))
    main.begin(2)
    main.say(f.Done(i=2, p="main", n=2, step="body", fp="fp-body", e=error(), took_us=90))

    ended = [entry.data["took_us"] for entry in stage.entries("step.finished", "step.failed")]
    assert ended == [250_000, 90]
    assert [step.duration_s for step in Timeline.of(stage.entries()).steps] == [0.25, 0.00009]


def test_a_body_that_begins_and_is_given_up_in_one_turn_is_cancelled() -> None:
    stage = Stage()
    main = stage.begin()
    stage.hub.say(main.number, f.Begin(p="main", n=1, step="body", fp="b", about="fetch"))
    stage.hub.say(main.number, f.Cancel(p="main", n=1, reason="another branch failed"))
    for _ in range(2):
        stage.hub._events.popleft()(stage.core)
    stage.hub.finish_turn()

    assert stage.kinds()[-2:] == ["step.started", "step.failed"]


def test_a_body_in_flight_when_the_hub_died_is_executed_again() -> None:
    stage = Stage()
    stage.begin().begin(1)
    stage.hub.flush()

    main = stage.again()
    main.begin(1)
    i = main.done(1, "result")

    assert main.value(i) == "result"
    assert stage.outcomes()["main", 1] == 1


def test_an_append_goes_on_where_it_began() -> None:
    stage = Stage()
    main = stage.begin()
    assert main.value(main.begin(1, "append", asked=True, a={"path": "f", "offset": 7})) == {
        "path": "f",
        "offset": 7,
    }

    main = stage.again()

    assert (
        fields(main.value(main.begin(1, "append", asked=True, a={"path": "f", "offset": 99})))["offset"] == 7
    )


def test_a_body_that_failed_is_told_with_its_error() -> None:
    main = Stage().begin()
    main.begin(1)

    assert main.error(main.done(1, e=error("KeyError"))) == "KeyError"


def test_a_body_is_tried_again_when_it_is_time_and_the_count_survives_a_crash() -> None:
    stage = Stage()
    main = stage.begin()
    assert main.value(main.begin(1, asked=True)) == {"attempt": 1}
    waiting = main.done(1, e=error("OSError"), attempt=1, retry_in_s=10.0)
    stage.wait(6.0)
    assert main.answer(waiting) is None

    again = stage.kill("main")
    assert again is not None
    waiting = again.begin(1, asked=True)
    stage.wait(3.0)
    assert again.answer(waiting) is None
    stage.wait(1.1)

    assert again.value(waiting) == {"attempt": 2}
    assert stage.worker("main").crashes == {}


@pytest.mark.parametrize("dies", ["worker", "hub"])
def test_a_once_body_that_waits_for_its_next_attempt_has_a_known_outcome(dies: str) -> None:
    stage = Stage()
    main = stage.begin()
    main.begin(1, asked=True, once=True)
    main.done(1, e=error("OSError"), attempt=1, retry_in_s=10.0)

    again = stage.kill("main") if dies == "worker" else stage.again()
    assert again is not None
    waiting = again.begin(1, asked=True, once=True)
    stage.wait(10.0)
    assert again.value(waiting) == {"attempt": 2}

    third = stage.kill("main")
    assert third is not None
    assert [past.e.type.rpartition(":")[2] for past in third.past if past.e] == ["OutcomeUnknownError"]


def test_the_next_attempt_of_a_once_body_is_written_down_before_it_begins() -> None:
    stage = Stage()
    main = stage.begin()
    main.begin(1, asked=True, once=True)
    waiting = main.done(1, e=error("OSError"), attempt=1, retry_in_s=10.0)
    stage.wait(10.0)
    assert main.value(waiting) == {"attempt": 2}
    main.begin(1, once=True, attempt=2)
    assert stage.core.state.failure is None

    main = stage.again()

    assert main.error(main.begin(1, asked=True, once=True)) == "OutcomeUnknownError"


def test_each_attempt_has_its_own_time() -> None:
    stage = Stage()
    main = stage.begin()
    main.begin(1, asked=True, timeout_s=5.0)
    stage.wait(4.0)
    main.done(1, e=error("OSError"), attempt=1, retry_in_s=10.0)
    stage.wait(10.0)
    main.begin(1, attempt=2, timeout_s=5.0)

    stage.wait(4.0)
    assert stage.stopped == []
    stage.wait(1.1)

    assert stage.stopped == ["main"]
    assert stage.outcomes()["main", 1] == 1


def test_waiting_for_the_next_attempt_can_be_cancelled() -> None:
    stage = Stage()
    main = stage.begin()
    main.begin(1, asked=True)
    waiting = main.done(1, e=error("OSError"), attempt=1, retry_in_s=10.0)

    main.cancel(1)

    assert main.error(waiting) == "StepCancelledError"
    assert not main.gone
