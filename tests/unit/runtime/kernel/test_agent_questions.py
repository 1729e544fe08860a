"""Questions of agents to people: durable, answered once, and the same ones after a crash."""

from __future__ import annotations

import msgspec
import pytest
from tests.unit.runtime.stage import Puppet, Stage, answer, ask, fields, pair, plain, raw

from bartack.agents import AgentAnswer
from bartack.config.sections import QuestionsConfig
from bartack.errors import (
    AgentCancelledError,
    AgentError,
    QuestionAnsweredError,
    SessionFailedError,
    TypeMismatchError,
)
from bartack.runtime.kernel.agent_questions import ENDED, NO_INPUT
from bartack.runtime.kernel.desk import Settings
from bartack.runtime.kernel.idle import is_blocked_on_people
from bartack.runtime.kernel.tools import TalkBegins
from bartack.runtime.protocol import frames as f
from bartack.runtime.protocol import steps as s
from bartack.telemetry import Telemetry

PERMISSION: dict[str, object] = {"kind": "permission", "tool": "Bash", "input": {"command": "rm x"}}


def think(worker: Puppet, n: int = 1, timeout_s: float | None = None) -> int:
    return worker.step(n, "think", s.ThinkArgs(prompt="do it", name="it", agent="one", timeout_s=timeout_s))


def reply() -> s.ThinkOutcome:
    return s.ThinkOutcome(key="k", agent="one", text="done")


def prompted(settings: Settings | None = None, timeout_s: float | None = None) -> Stage:
    """A run whose agent was asked something."""
    stage = Stage(settings=settings)
    think(stage.begin(), timeout_s=timeout_s)
    return stage


def resumed(stage: Stage) -> Stage:
    """The same run after its hub was killed: its agent is asked again."""
    think(stage.again())
    return stage


@pytest.mark.requirement("agents-ask-people")
def test_a_question_of_an_agent_is_durable_before_anybody_is_told_and_so_is_its_answer() -> None:
    stage = prompted()

    stage.ask_person({"options": ["red", "green"]})
    asked = stage.store.entries[-1]
    answer(stage, "q1", "green")
    settled = stage.store.entries[-1]

    assert (asked.kind, asked.data["id"], asked.data["agent"]) == ("question.asked", "q1", "one")
    assert plain(raw(msgspec.json.decode(asked.value or b""))) == {
        "text": "Which one?",
        "options": ["red", "green"],
    }
    assert (settled.kind, settled.data["answer"], settled.data["by"]) == (
        "question.settled",
        "green",
        "a person",
    )
    assert stage.replies == [("a1", AgentAnswer(text="green", number="q1", by="a person"))]
    assert ("note", "question q1: agent one asks: Which one? (red | green)") in stage.shown
    assert stage.core.state.status == "running"


def test_programs_and_agents_have_one_numbering_and_the_first_answer_counts() -> None:
    stage = prompted()
    main = stage.workers["main"]
    ask(main, 2)
    stage.ask_person(PERMISSION)
    ask(main, 3)
    assert list(stage.core.state.questions) == ["q1", "q2", "q3"]

    answer(stage, "q2", "deny")

    assert stage.replies[0][1].text == "deny"
    with pytest.raises(QuestionAnsweredError):
        answer(stage, "q2", "allow")
    assert list(stage.core.state.questions) == ["q1", "q3"]


def test_a_permission_is_allow_or_deny_whatever_the_agent_offers() -> None:
    stage = prompted()
    stage.ask_person({"options": ["always"], "default": "always", **PERMISSION})

    with pytest.raises(TypeMismatchError, match="allow or deny"):
        answer(stage, "q1", "always")

    assert stage.replies == []
    assert list(stage.core.state.questions) == ["q1"]
    note = stage.shown[-1][1]
    assert note.endswith('Which one? [Bash {"command":"rm x"}] (allow | deny)')


def test_a_question_that_the_agent_withdraws_is_over_and_the_others_stay_open() -> None:
    stage = prompted()
    stage.ask_person("first?", own_id="a")
    stage.ask_person("second?", own_id="b")

    stage.withdraw_question("a")
    stage.withdraw_question("a")
    stage.withdraw_question("unknown")

    assert list(stage.core.state.questions) == ["q2"]
    assert [entry.data["how"] for entry in stage.entries("question.settled")] == ["superseded"]
    assert stage.replies == []
    with pytest.raises(QuestionAnsweredError):
        answer(stage, "q1", "late")


def test_a_question_that_was_withdrawn_and_is_asked_again_is_another_one() -> None:
    stage = prompted()
    stage.ask_person("first?", own_id="a")
    stage.withdraw_question("a")

    stage.ask_person("first?", own_id="b")
    answer(stage, "q2", "1")

    assert stage.replies == [("b", AgentAnswer(text="1", number="q2", by="a person"))]


def test_several_questions_of_one_agent_are_open_at_the_same_time() -> None:
    stage = prompted()
    stage.ask_person("first?", own_id="a")
    stage.ask_person("second?", own_id="b")
    stage.ask_person("second?", own_id="b")  # it repeats itself

    answer(stage, "q2", "2")
    answer(stage, "q1", "1")

    assert [(own_id, told.text) for own_id, told in stage.replies] == [("b", "2"), ("a", "1")]
    assert len(stage.entries("question.asked")) == 2


@pytest.mark.requirement("agents-questions-survive-crashes")
@pytest.mark.parametrize("when", ["before", "down", "after"])
def test_a_resumed_agent_gets_the_answer_once_when_it_asks_the_same_again(when: str) -> None:
    stage = prompted()
    stage.ask_person(PERMISSION, "first")
    if when == "before":
        answer(stage, "q1", "allow")
        stage.replies.clear()  # the hub is killed before it tells the agent

    stage = resumed(stage)
    if when == "down":
        answer(stage, "q1", "allow")
        assert stage.replies == []  # the agent has not asked yet
    stage.ask_person(PERMISSION, "second")
    if when == "after":
        answer(stage, "q1", "allow")

    assert [(own_id, told.text, told.number) for own_id, told in stage.replies] == [("second", "allow", "q1")]
    stage.ask_person(PERMISSION, "third")
    assert len(stage.replies) == 1
    assert list(stage.core.state.questions) == ["q2"]


@pytest.mark.requirement("agents-questions-survive-crashes")
@pytest.mark.parametrize(
    "other",
    [
        {"text": "What else?"},
        {**PERMISSION, "input": {"command": "rm -rf /"}},
        {**PERMISSION, "tool": "Write"},
        {**PERMISSION, "kind": "ask"},
    ],
)
@pytest.mark.parametrize("answered", [True, False])
def test_a_resumed_agent_that_asks_something_else_does_not_get_the_answer(
    other: dict[str, object], *, answered: bool
) -> None:
    stage = prompted()
    stage.ask_person(PERMISSION)
    if answered:
        answer(stage, "q1", "allow")

    stage = resumed(stage)
    stage.replies.clear()
    stage.ask_person(other, "other")
    stage.ask_person(PERMISSION, "same")

    assert stage.replies == []
    assert list(stage.core.state.questions) == ["q2", "q3"]
    settled = [(entry.data["id"], entry.data.get("how")) for entry in stage.entries("question.settled")]
    assert settled == ([("q1", None)] if answered else [("q1", "superseded")])
    third = resumed(stage)
    third.ask_person(PERMISSION, "again")
    assert list(third.core.state.questions) == ["q2", "q3"]


def test_an_agent_that_begins_anew_gets_all_its_answers_again_in_any_order() -> None:
    stage = prompted()
    stage.ask_person("first?", own_id="a")
    stage.ask_person("second?", own_id="b")
    answer(stage, "q1", "1")

    stage = resumed(stage)
    stage.replies.clear()
    stage.ask_person("second?", own_id="c")
    stage.ask_person("first?", own_id="d")
    answer(stage, "q2", "2")

    assert [(own_id, told.text) for own_id, told in stage.replies] == [("d", "1"), ("c", "2")]


def test_an_agent_whose_process_died_asks_the_same_question_again() -> None:
    stage = prompted()
    stage.ask_person(own_id="a")
    stage.core.prompts.begins_again(1, TalkBegins())
    answer(stage, "q1", "yes")
    assert stage.replies == []

    stage.ask_person(own_id="b")

    assert [(own_id, told.text) for own_id, told in stage.replies] == [("b", "yes")]


@pytest.mark.requirement("agents-questions-end-with-their-prompt")
@pytest.mark.parametrize("end", ["reply", "error", "cancel"])
def test_the_questions_of_a_prompt_end_with_it(end: str) -> None:
    stage = prompted()
    main = stage.workers["main"]
    stage.ask_person()

    if end == "cancel":
        main.cancel(1)
    outcomes: dict[str, s.ThinkOutcome | AgentError] = {
        "reply": reply(),
        "error": AgentError("one", "no"),
        "cancel": AgentCancelledError("one", "the call was cancelled", "user"),
    }
    stage.end_prompt(outcomes[end])

    assert stage.core.state.questions == {}
    assert stage.core.state.answers == {}
    assert [entry.data.get("how") for entry in stage.entries("question.settled")] == ["superseded"]
    with pytest.raises(QuestionAnsweredError):
        answer(stage, "q1", "late")
    assert stage.core.state.status == "running"


def test_answers_are_kept_only_as_long_as_their_prompt_is_open() -> None:
    stage = prompted()
    stage.ask_person()
    answer(stage, "q1", "yes")
    assert list(stage.core.state.answers) == ["q1"]

    stage.end_prompt(reply())

    assert stage.core.state.answers == {}
    assert stage.core.state.questions == {}


def test_a_worker_that_is_cut_off_leaves_no_question_of_its_agent() -> None:
    stage = Stage()
    _, _, first, second = pair(stage, on_failure="collect")
    think(first)
    stage.ask_person()
    assert list(stage.core.state.questions) == ["q1"]

    first.fail()
    second.result()

    assert stage.core.state.questions == {}
    assert stage.core.state.status == "running"


def test_a_question_of_a_session_that_failed_is_still_open_when_it_is_resumed() -> None:
    stage = prompted()
    stage.ask_person()
    error = f.ErrorData(type=f"bartack.errors:{SessionFailedError.__name__}", message="no")
    stage.hub.post(lambda core: core.failure.fail_session(None, error))
    stage.hub.run_ready()
    stage.end_prompt(AgentCancelledError("one", "stopped", "session_failed"))
    assert list(stage.core.state.questions) == ["q1"]
    stage.workers["main"].fail()

    stage = resumed(stage)
    stage.ask_person(own_id="b")
    answer(stage, "q1", "yes")

    assert stage.replies == [("b", AgentAnswer(text="yes", number="q1", by="a person"))]


def test_an_agent_that_is_being_stopped_gets_no_answer() -> None:
    stage = prompted()
    stage.workers["main"].cancel(1)

    stage.ask_person()

    assert stage.replies == [("a1", AgentAnswer(refused=ENDED))]
    assert stage.entries("question.asked") == []


@pytest.mark.requirement("prompts-stand-still-for-people")
def test_the_deadline_of_a_prompt_stands_still_while_a_question_is_open() -> None:
    stage = prompted(timeout_s=60.0)
    stage.wait(20.0)
    stage.ask_person()
    stage.wait(3600.0)
    assert stage.stopped_prompts == []
    answer(stage, "q1", "yes")

    stage.wait(39.0)
    assert stage.stopped_prompts == []
    stage.wait(2.0)

    assert stage.stopped_prompts == [1]


def test_the_time_of_people_is_not_time_of_the_agent() -> None:
    stage = prompted()
    step = stage.worker("main").open["main", 1]
    stage.wait(2.0)
    stage.ask_person("first?", own_id="a")
    stage.wait(10.0)
    stage.ask_person("second?", own_id="b")
    stage.wait(10.0)
    answer(stage, "q1", "1")
    stage.wait(10.0)
    assert stage.core.waited_s(step) == pytest.approx(2.0)
    answer(stage, "q2", "2")
    stage.wait(3.0)

    assert stage.core.waited_s(step) == pytest.approx(5.0)


@pytest.mark.parametrize(
    ("question", "policy", "told"),
    [
        (PERMISSION, "fail", AgentAnswer(text="deny", number="q1", by="timeout")),
        ({"default": "b"}, "fail", AgentAnswer(text="b", number="q1", by="timeout")),
        ({"options": ["a", "b"]}, "default", AgentAnswer(text="a", number="q1", by="timeout")),
        ({"options": ["a", "b"]}, "fail", AgentAnswer(number="q1", refused="no person answered within 60 s")),
        ({}, "default", AgentAnswer(number="q1", refused="no person answered within 60 s")),
    ],
)
def test_a_question_that_is_not_answered_in_time_follows_the_policy(
    question: dict[str, object], policy: str, told: AgentAnswer
) -> None:
    questions = msgspec.convert({"timeout_s": 60.0, "on_timeout": policy}, type=QuestionsConfig)
    stage = prompted(Settings(questions=questions))
    stage.ask_person(question)
    stage.wait(20.0)
    stage = resumed(stage)
    stage.ask_person(question, "b")

    stage.wait(39.0)
    assert stage.replies == []
    stage.wait(2.0)

    assert stage.replies == [("b", told)]


@pytest.mark.parametrize(
    ("question", "told"),
    [
        (PERMISSION, AgentAnswer(refused=NO_INPUT)),
        ({**PERMISSION, "default": "allow"}, AgentAnswer(refused=NO_INPUT)),
        ({"default": "b"}, AgentAnswer(text="b", by="default")),
        ({"options": ["a", "b"]}, AgentAnswer(refused=NO_INPUT)),
    ],
)
def test_a_run_that_takes_no_input_asks_nobody(question: dict[str, object], told: AgentAnswer) -> None:
    stage = prompted(Settings(no_input=True))

    stage.ask_person(question)

    assert stage.replies == [("a1", told)]
    assert stage.core.state.questions == {}
    assert stage.shown[-1][1].startswith("agent one asked: Which one?")


@pytest.mark.parametrize("odd", [{"text": "\ud800"}, {"options": ["\ud800"]}, {"default": "\ud800"}])
def test_a_question_that_no_journal_can_hold_is_refused(odd: dict[str, object]) -> None:
    stage = prompted()

    stage.ask_person({**PERMISSION, **odd})

    [(_, told)] = stage.replies
    assert told.refused.startswith("the question is not valid JSON")
    assert stage.entries("question.asked") == []


def test_a_question_and_its_answer_may_be_long_but_not_longer_than_an_entry() -> None:
    stage = prompted()
    stage.ask_person({"text": "x" * 200_000, "tool": "y" * 2_000_000})
    with pytest.raises(TypeMismatchError, match="at most 65536"):
        answer(stage, "q1", "z" * 70_000)

    answer(stage, "q1", "z" * 65_536)

    assert stage.core.state.answers["q1"].about == "x" * 199 + "…"
    assert len(stage.replies[0][1].text) == 65_536


@pytest.mark.requirement("waiting-run-stops")
def test_a_run_whose_agent_waits_for_a_person_can_only_be_continued_by_one() -> None:
    stage = prompted()
    assert not is_blocked_on_people(stage.core)
    stage.ask_person()
    assert is_blocked_on_people(stage.core)

    stage = resumed(stage)
    assert not is_blocked_on_people(stage.core)  # the agent works, and may not ask again
    stage.ask_person(own_id="b")
    assert is_blocked_on_people(stage.core)
    answer(stage, "q1", "yes")

    assert not is_blocked_on_people(stage.core)


def test_another_prompt_under_way_can_continue_by_itself() -> None:
    stage = prompted()
    think(stage.workers["main"], 2)
    stage.ask_person()

    assert not is_blocked_on_people(stage.core)


def test_processes_and_the_first_text_show_which_answer_a_prompt_waits_for() -> None:
    stage = prompted()
    stage.ask_person()
    step = stage.worker("main").open["main", 1]

    assert stage.core.state.waits_for(step) == "waits for an answer: q1"
    assert fields(msgspec.to_builtins(stage.core.questions.asked("q1").args))["question"] == "Which one?"


def test_questions_of_agents_are_events() -> None:
    telemetry, seen = Telemetry(), list[tuple[str, dict[str, int], dict[str, object]]]()
    telemetry.attach(
        "test",
        "question.*",
        lambda name, numbers, facts, _: seen.append((name, dict(numbers), dict(facts))),
    )
    stage = Stage(telemetry=telemetry)
    think(stage.begin())

    stage.ask_person(PERMISSION)
    stage.wait(1.0)
    answer(stage, "q1", "allow")

    (asked, counts, about), (settled, durations, outcome) = seen
    assert (asked, counts, about["question"], about["kind"]) == (
        "question.asked",
        {"open": 1},
        "q1",
        "permission",
    )
    assert (about["agent"], about["tool"], about["step"]) == ("one", "Bash", "main:1")
    assert (settled, outcome["how"], outcome["worker"]) == ("question.settled", "answered", "main")
    assert durations["duration_ns"] == pytest.approx(1e9, rel=0.01)
