from __future__ import annotations

import io
import json

import pytest
from tests.cli.runs.stories import Begin, Call, Story

from bartack.cli.app._terminal import Screen
from bartack.cli.live._end import _write_questions
from bartack.runtime.rundir.find import read_state
from bartack.runtime.state import entries as e


def left(told: Story) -> object:
    return json.loads((told.run.inbox / "q-q1.json").read_bytes())["value"]


def test_open_questions_of_all_runs_are_listed_with_how_to_answer(
    call: Call, asking: Story, completed: Story
) -> None:
    shown = call("answer")

    assert shown.stdout == (
        f"{asking.id}  q1  Publish? (yes or no; asked by main)\n    bartack answer {asking.id} q1 VALUE\n"
    )
    assert call("answer", asking.id).stdout == shown.stdout


def test_a_question_of_many_lines_is_shown_on_as_many(call: Call, story: Begin) -> None:
    told = story("dddd0004")
    asked = json.dumps({"question": "This or that?\n\x1bthis: one", "type": "bool"}).encode()
    told.tell(e.StepStarted(p="main", n=1, step="ask", fp="q", question="q1"), asked).end()
    screen = io.StringIO()
    _write_questions(Screen(screen), told.run, read_state(told.run))

    assert screen.getvalue().startswith("? This or that?\n  \\x1bthis: one (yes or no)\n  bartack answer")
    assert "  This or that?\n    \\x1bthis: one (yes" in call("answer").stdout
    assert "  This or that?\n      \\x1bthis: one (bool" in call("status", told.id).stdout


def test_without_a_question_the_list_is_empty(call: Call, completed: Story) -> None:
    assert call("answer").stdout == "No question is open.\n"
    assert call("answer", "latest", "--json").stdout == "[]\n"


def test_questions_are_there_for_programs(call: Call, asking: Story) -> None:
    assert json.loads(call("answer", "--json").stdout) == [
        {
            "run": asking.id,
            "id": "q1",
            "worker": "main",
            "question": "Publish?",
            "type": "bool",
            "options": None,
            "kind": "ask",
        }
    ]


@pytest.mark.parametrize(("typed", "meant"), [("yes", True), ("N", False), ("true", True)])
def test_an_answer_to_a_run_that_nobody_runs_is_kept(
    call: Call, asking: Story, typed: str, *, meant: bool
) -> None:
    shown = call("answer", asking.id, "q1", typed)

    assert shown.returncode == 0
    assert f"bartack resume {asking.id}" in shown.stderr
    assert left(asking) is meant


@pytest.mark.parametrize(
    ("question", "typed", "meant"),
    [
        ({"type": "str"}, "12", "12"),
        ({"type": "int"}, "12", 12),
        ({"type": "float"}, "1.5", 1.5),
        ({"type": "json"}, '{"a":[1]}', {"a": [1]}),
        ({"options": ["red", "green"]}, "red", "red"),
    ],
)
def test_an_answer_is_read_as_what_was_asked_for(
    call: Call, story: Begin, question: dict[str, object], typed: str, meant: object
) -> None:
    told = story("dddd0004")
    asked = json.dumps({"question": "What?", **question}, separators=(",", ":")).encode()
    told.tell(e.StepStarted(p="main", n=1, step="ask", fp="q", question="q1"), asked).end()

    assert call("answer", told.id, "q1", typed).returncode == 0
    assert left(told) == meant


@pytest.mark.parametrize("typed", ["perhaps", "", "2"])
def test_an_answer_of_another_kind_is_refused(call: Call, asking: Story, typed: str) -> None:
    shown = call("answer", asking.id, "q1", typed)

    assert shown.returncode == 2
    assert "expected yes or no" in shown.stderr
    assert not list(asking.run.inbox.iterdir())


@pytest.mark.requirement("first-answer-counts")
def test_the_first_answer_counts(call: Call, asking: Story) -> None:
    call("answer", asking.id, "q1", "yes")

    assert call("answer", asking.id, "q1", "no").returncode == 1
    assert left(asking) is True


def test_a_question_that_is_not_there_ends_with_7(call: Call, asking: Story) -> None:
    assert call("answer", asking.id, "q9", "yes").returncode == 7


def test_an_answer_without_a_value_is_a_question_itself(call: Call, asking: Story) -> None:
    shown = call("answer", asking.id, "q1")

    assert shown.returncode == 2
    assert "the answer to q1 is missing" in shown.stderr
