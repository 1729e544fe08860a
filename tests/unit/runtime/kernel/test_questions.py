"""Questions to people: asked once, answered once."""

from __future__ import annotations

import pytest
from tests.unit.runtime.stage import (
    Stage,
    answer,
    ask,
    plain,
)

from bartack.errors import BartackError, QuestionAnsweredError, QuestionNotFoundError
from bartack.runtime.kernel.desk import Settings


def test_a_question_waits_for_its_answer_and_the_first_one_counts() -> None:
    stage = Stage()
    main = stage.begin()
    i = ask(main, 1)
    assert stage.core.state.status == "waiting"

    answer(stage, "q1", "yes")

    assert main.value(i) == "yes"
    assert stage.entries("step.finished")[-1].data["by"] == "a person"
    with pytest.raises(QuestionAnsweredError):
        answer(stage, "q1", "no")
    with pytest.raises(QuestionNotFoundError):
        answer(stage, "q2", "no")


def test_a_question_is_the_same_one_after_a_restart() -> None:
    stage = Stage()
    ask(stage.begin(), 1)

    main = stage.again()
    assert list(stage.core.state.questions) == ["q1"]
    i = ask(main, 1)
    answer(stage, "q1", "yes")

    assert main.value(i) == "yes"
    assert len(stage.entries("step.started")) == 1


def test_a_question_that_was_answered_while_its_worker_replays_is_not_asked_again() -> None:
    stage = Stage()
    ask(stage.begin(), 1)
    main = stage.again()

    answer(stage, "q1", "yes")
    ask(main, 1)

    assert [plain(past.v) for past in main.past] == ["yes"]
    assert list(stage.core.state.questions) == []


@pytest.mark.parametrize(
    ("kind", "typed", "seen"),
    [
        ("bool", "y", True),
        ("bool", "No", False),
        ("int", "12", 12),
        ("float", 3, 3.0),
        ("str", "12", "12"),
        ("json", {"a": 1}, {"a": 1}),
    ],
)
def test_an_answer_is_read_as_what_was_asked_for(kind: str, typed: object, seen: object) -> None:
    stage = Stage()
    main = stage.begin()
    i = ask(main, 1, type=kind)

    answer(stage, "q1", typed)

    assert main.value(i) == seen


@pytest.mark.parametrize(
    ("options", "typed"),
    [
        ({"type": "int"}, "many"),
        ({"type": "int"}, str(2**70)),
        ({"type": "float"}, "nan"),
        ({"type": "json"}, {"count": 2**70}),
        ({"options": ["a", "b"]}, "c"),
    ],
)
def test_an_answer_that_does_not_fit_leaves_the_question_open(
    options: dict[str, object], typed: object
) -> None:
    stage = Stage()
    main = stage.begin()
    i = ask(main, 1, **options)

    with pytest.raises(BartackError, match="answer"):
        answer(stage, "q1", typed)

    assert main.answer(i) is None
    assert list(stage.core.state.questions) == ["q1"]


@pytest.mark.parametrize("number", ["", "q", "q0", "q2", "q²", "q01", "q" + "1" * 5000])
def test_a_question_that_never_was_is_not_found(number: str) -> None:
    stage = Stage()
    ask(stage.begin(), 1)

    with pytest.raises(QuestionNotFoundError):
        answer(stage, number, "yes")


@pytest.mark.parametrize("default", [None, "maybe"])
def test_a_question_may_have_a_deadline(default: str | None) -> None:
    stage = Stage()
    main = stage.begin()
    i = ask(main, 1, timeout_s=60.0, default=default)

    stage.wait(60.0)

    if default is None:
        assert main.error(i) == "QuestionTimeoutError"
    else:
        assert main.value(i) == default
    assert stage.core.state.status == "running"


@pytest.mark.parametrize("default", [None, "maybe"])
def test_a_run_without_people_asks_nobody(default: str | None) -> None:
    stage = Stage(settings=Settings(no_input=True))
    main = stage.begin()
    i = ask(main, 1, default=default)

    if default is None:
        assert main.error(i) == "NoAnswerError"
    else:
        assert main.value(i) == default


def test_a_cancelled_question_is_no_longer_open() -> None:
    stage = Stage()
    main = stage.begin()
    i = ask(main, 1)

    main.cancel(1)

    assert main.error(i) == "StepCancelledError"
    assert stage.core.state.status == "running"
