"""From an instruction to tasks: what the agent asks, what a person decides, and what becomes of it."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest
from tests.pipeline.team import Reply, Team, begin, order, settings, statuses

from bartack.config.sections import IntakeConfig, QuestionsConfig
from bartack.errors import ActivationError
from bartack.pipeline._proposal import proposal_problem, sort_tasks
from bartack.pipeline.records.records import PipelineOrder, Settings, TaskRecord
from bartack.runtime.memory.hub import KilledError

FILES = {"README.md": "hello\n", "docs/plan.md": "# Plan\n", "plan-b.md": "# Other\n"}


def proposes(*ids: str, plans: tuple[str, ...] = ("docs/plan.md", "plan-b.md"), **more: object) -> Reply:
    tasks = [{"id": id_, "title": f"the {id_}", **more} for id_ in ids]
    payload = {"plan_candidates": [{"path": path} for path in plans], "derived_tasks": tasks}
    return {"events": [{"type": "orchestration.proposed_tasks", "payload": payload}]}


def asks(*questions: str) -> Reply:
    return {
        "events": [{"type": "orchestration.needs_clarification", "payload": {"questions": list(questions)}}]
    }


def conflict() -> Reply:
    conflicts = [{"paths": ["docs/plan.md", "plan-b.md"], "reason": "two dates"}]
    payload = {"conflicts": conflicts, "suggested_resolution": "the later one"}
    return {"events": [{"type": "orchestration.plan_conflict", "payload": payload}]}


def instruct(using: Settings | None = None, *, yes: bool = False) -> PipelineOrder:
    return order(using=using or settings(), instruction="ship it", yes=yes)


APPROVALS = {"Which plan*": "1", "Which tasks*": "all"}


def proposes_under(name: str, *tasks: object) -> Reply:
    payload = {"plan_candidates": [{"path": "docs/plan.md"}], name: list(tasks)}
    return {"events": [{"type": "orchestration.proposed_tasks", "payload": payload}]}


@pytest.mark.requirement("empty-proposals-are-refused")
@pytest.mark.parametrize("yes", [False, True])
@pytest.mark.parametrize("name", ["tasks", "derived_tasks"])
def test_a_proposal_without_a_task_is_refused_and_asked_again(tmp_path: Path, name: str, yes: bool) -> None:
    tasks = [{"id": "one", "title": "One"}] if name == "tasks" else []
    replies = [proposes_under(name, *tasks), proposes("one")]
    team = Team(tmp_path, {"intake": replies}, files=FILES, answers=APPROVALS)

    run = team.run(instruct(yes=yes))

    assert statuses(run) == [("one", "done")]
    refused = team.commands[1]
    assert refused.retry is not None
    assert refused.retry.message is not None
    assert (refused.action, refused.retry.code) == ("intake", "invalid_reply")
    assert "there is no task in derived_tasks" in refused.retry.message
    assert ("'tasks' is not a member of a proposal" in refused.retry.message) == (name == "tasks")


def test_an_agent_that_only_sends_empty_proposals_fails_and_nothing_is_asked(tmp_path: Path) -> None:
    team = Team(
        tmp_path, {"intake": [{"times": 0, **proposes_under("tasks")}]}, files=FILES, answers=APPROVALS
    )

    run = team.run(instruct())

    assert run.error is not None
    assert "there is no task in derived_tasks" in str(run.error)
    assert not [step for step in run.steps if step.kind == "ask"]


@pytest.mark.requirement("intake-is-decided-by-people")
def test_a_person_approves_a_plan_and_its_tasks(tmp_path: Path) -> None:
    answers = {"Which plan*": "2", "Which tasks*": "2, 1"}
    team = Team(tmp_path, {"intake": proposes("one", "two", "three")}, files=FILES, answers=answers)

    run = team.run(instruct())

    assert statuses(run) == [("two", "done"), ("one", "done")]
    first = team.commands[1]
    assert first.inputs["approved_plan"] == "plan-b.md"
    assert first.inputs["instruction"] == "ship it"
    assert first.inputs["goal"] == "the two"


def test_the_agent_is_told_which_files_may_hold_the_plan(tmp_path: Path) -> None:
    team = Team(tmp_path, {"intake": proposes("one")}, files=FILES, answers=APPROVALS)

    team.run(instruct())

    asked = team.commands[0]
    discovery = msgspec.convert(asked.inputs["discovery"], type=dict[str, object])
    found = msgspec.convert(discovery["candidates"], type=list[dict[str, object]])
    assert (asked.action, asked.task_id, discovery["strategy"]) == ("intake", "intake", "heuristic:v2")
    assert [candidate["path"] for candidate in found] == ["docs/plan.md", "plan-b.md", "README.md"]


def test_settings_of_the_intake_change_what_the_agent_is_told(tmp_path: Path) -> None:
    team = Team(tmp_path, {"intake": proposes("one")}, files=FILES, answers=APPROVALS)
    config = IntakeConfig(max_candidates=1, prefer=["README.md"])

    team.run(instruct(settings(intake=config)))

    discovery = msgspec.json.encode(team.commands[0].inputs["discovery"])
    assert b'"path":"docs/plan.md"' in discovery
    assert discovery.count(b'"path"') == 1


def test_a_plan_can_be_required(tmp_path: Path) -> None:
    team = Team(tmp_path, {"intake": proposes("one")}, files={"a.py": ""}, answers=APPROVALS)

    run = team.run(instruct(settings(intake=IntakeConfig(require_plan=True))))

    assert run.error is not None
    assert run.error.kind == "NoCandidatesError"
    assert team.commands == []


def test_what_the_agent_does_not_know_is_asked_together_and_told_in_order(tmp_path: Path) -> None:
    answers = {"When?": "soon", "Who?": "us", **APPROVALS}
    team = Team(tmp_path, {"intake": [asks("When?", "Who?"), proposes("one")]}, files=FILES, answers=answers)

    run = team.run(instruct())

    assert statuses(run) == [("one", "done")]
    said = [{"question": "When?", "answer": "soon"}, {"question": "Who?", "answer": "us"}]
    assert team.actions[1][2:] == (2, "clarification")
    assert team.commands[1].inputs["clarifications"] == said
    assert team.commands[2].inputs["clarifications"] == said


def test_contradicting_plans_are_shown_and_never_chosen_between(tmp_path: Path) -> None:
    answers = {"*contradict*two dates*later one*": "the first one", **APPROVALS}
    team = Team(tmp_path, {"intake": [conflict(), proposes("one")]}, files=FILES, answers=answers)

    team.run(instruct())

    assert team.actions[1][2:] == (2, "conflict")
    assert team.commands[1].inputs["conflict_resolutions"] == ["the first one"]


@pytest.mark.parametrize("answers", [{"*contradict*": "more"}, {"Which plan*1. plan-b*": "more"}])
def test_more_candidates_can_be_asked_for(tmp_path: Path, answers: dict[str, str]) -> None:
    first = conflict() if "*contradict*" in answers else proposes("one", plans=("plan-b.md",))
    responses = {"intake": first, "task_discovery": proposes("other")}
    team = Team(tmp_path, responses, files=FILES, answers={**answers, **APPROVALS})

    run = team.run(instruct())

    assert statuses(run) == [("other", "done")]
    assert team.actions[1][1:] == ("task_discovery", 1, "more")
    assert team.commands[1].inputs["request_more_candidates"] is True


@pytest.mark.parametrize(
    "answers",
    [{"Which plan*": "none"}, {"Which plan*": "1", "Which tasks*": "none"}, {"*contradict*": "abort"}],
)
def test_a_proposal_that_is_denied_ends_the_run(tmp_path: Path, answers: dict[str, str]) -> None:
    first = conflict() if "*contradict*" in answers else proposes("one")
    team = Team(tmp_path, {"intake": first}, files=FILES, answers=answers)

    run = team.run(instruct())

    assert run.status == "aborted"
    assert [action for _, action, _, _ in team.actions] == ["intake"]


def test_an_answer_that_names_no_task_is_asked_for_again(tmp_path: Path) -> None:
    answers = {"'7' is none of them*": "1", "Which plan*": "1", "Which tasks*": "7"}
    team = Team(tmp_path, {"intake": proposes("one", "two")}, files=FILES, answers=answers)

    run = team.run(instruct())

    assert statuses(run) == [("one", "done")]


def test_yes_approves_but_answers_nothing_else(tmp_path: Path) -> None:
    team = Team(tmp_path, {"intake": [asks("When?"), proposes("one", "two")]}, files=FILES)
    with team.start(instruct(yes=True)) as run:
        run.start()
        run.wait_for("step.started", question="q1")
        run.answer("q1", "soon")

        run.finish()

        assert statuses(run) == [("one", "done"), ("two", "done")]
        assert team.commands[2].inputs["approved_plan"] == "docs/plan.md"


def test_a_question_keeps_its_number_over_a_restart_and_is_answered_once(tmp_path: Path) -> None:
    team = Team(tmp_path, {"intake": [asks("When?"), proposes("one")]}, files=FILES)
    with team.start(instruct(yes=True)) as run:
        run.start()
        run.wait_for("step.started", question="q1")

        run.resume()
        run.answer("q1", "soon")
        run.finish()

        assert statuses(run) == [("one", "done")]
        assert [action for _, action, _, _ in team.actions].count("intake") == 2


def test_a_question_may_run_out_of_time(tmp_path: Path) -> None:
    using = settings(questions=QuestionsConfig(timeout_s=5))

    run = Team(tmp_path, {"intake": asks("When?")}, files=FILES).run(instruct(using))

    assert run.error is not None
    assert run.error.kind == "QuestionTimeoutError"


def test_the_agent_is_not_asked_for_ever(tmp_path: Path) -> None:
    team = Team(tmp_path, {"intake": asks("When?")}, files=FILES, answers={"When?": "soon"})

    run = team.run(instruct(settings(intake=IntakeConfig(max_rounds=2))))

    assert run.error is not None
    assert "asked 2 times" in run.error.message
    assert len(team.commands) == 2


def test_a_broken_proposal_is_asked_for_again_before_anybody_sees_it(tmp_path: Path) -> None:
    team = Team(tmp_path, {"intake": [proposes("a", "a"), proposes("one")]}, files=FILES, answers=APPROVALS)

    run = team.run(instruct())

    assert statuses(run) == [("one", "done")]
    assert (team.commands[1].retry.cause, team.commands[1].retry.code) == ("rejected", "invalid_reply")


@pytest.mark.parametrize("answer", ["keep", "abort"])
def test_a_plan_that_changed_is_asked_about_before_the_next_task(tmp_path: Path, answer: str) -> None:
    change = {
        "write": [{"path": "docs/plan.md", "content": "# Other plan\n"}],
        "events": [{"type": "builder.completed"}],
    }
    answers = {"*plan.md has changed*": answer, **APPROVALS}
    responses = {"intake": proposes("one", "two", "three"), "implement": change}
    team = Team(tmp_path, responses, files=FILES, answers=answers)

    run = team.run(instruct())

    assert run.status == ("completed" if answer == "keep" else "aborted")
    done = {task for task, action, _, _ in team.actions if action == "implement"}
    assert done == ({"one", "two", "three"} if answer == "keep" else {"one"})
    asked = [step.about for step in run.steps if step.kind == "ask" and "has changed" in step.about]
    assert len(asked) == 1, "a change is asked about once"
    assert (tmp_path / "docs/plan.md").read_text() == "# Other plan\n"


@pytest.mark.requirement("intake-survives-kill")
def test_an_intake_that_is_killed_behind_any_line_comes_to_the_same_tasks(tmp_path: Path) -> None:
    answers = {"When?": "soon", "*contradict*": "the first one", **APPROVALS}
    responses = {"intake": [asks("When?"), conflict(), proposes("one")]}
    team = Team(tmp_path, responses, files=FILES, answers=answers)
    with team.running(instruct()) as run:
        whole, lines = team.actions, len(run.lines)

    for cut in range(2, lines, 1 if "SOAK" in os.environ else 2):
        with team.start(instruct(), dies_after=cut) as run:
            with pytest.raises(KilledError):
                begin(run)
            run.resume()
            run.finish()

            assert statuses(run) == [("one", "done")], f"killed behind line {cut}"
            assert list(dict.fromkeys(team.actions)) == whole, f"killed behind line {cut}"


# What a proposal may be.


def _task(id_: str, **more: object) -> dict[str, object]:
    return {"id": id_, "title": "t", **more}


@pytest.mark.parametrize(
    ("tasks", "plan", "told"),
    [
        ([_task("a"), _task("a")], "plan.md", "the same id"),
        ([_task("a", title=" ")], "plan.md", "no title"),
        ([_task("-a")], "plan.md", "not an id of a task"),
        ([_task("a", depends_on=["b"]), _task("b", depends_on=["a"])], "plan.md", "depend on each other"),
        ([_task("a", depends_on=["z"])], "plan.md", "not a task of this run"),
        ([_task("a")], "../plan.md", "unsafe path"),
        ([_task("a")], "gone.md", "there is no file gone.md"),
        ([_task("a")], "plan.md", ""),
    ],
)
def test_a_proposal_is_looked_at(
    tmp_path: Path, tasks: list[dict[str, object]], plan: str, told: str
) -> None:
    (tmp_path / "plan.md").write_text("# Plan\n")
    payload: dict[str, object] = {"plan_candidates": [{"path": plan}], "derived_tasks": tasks}

    problem = proposal_problem(payload, str(tmp_path))

    assert told in problem
    assert bool(problem) == bool(told)


def test_a_confidence_is_between_0_and_1(tmp_path: Path) -> None:
    payload: dict[str, object] = {"plan_candidates": [{"path": "a.md", "confidence": 2}]}

    assert "between 0 and 1" in proposal_problem(payload, str(tmp_path))


def test_tasks_stand_behind_what_they_depend_on_and_otherwise_in_their_order() -> None:
    tasks = [
        TaskRecord(id="c", goal="c", depends_on=["a"]),
        TaskRecord(id="b", goal="b"),
        TaskRecord(id="a", goal="a"),
    ]

    assert [task.id for task in sort_tasks(tasks)] == ["b", "a", "c"]


def test_tasks_with_the_same_id_are_refused() -> None:
    with pytest.raises(ActivationError):
        sort_tasks([TaskRecord(id="a", goal="1"), TaskRecord(id="a", goal="2")])
