"""What a task goes through: the order of commands, what is handed on, where it stops, and how it goes on."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from tests.pipeline.team import (
    APPROVED,
    GREEN,
    RED,
    UNCHANGED,
    Shell,
    Team,
    built,
    gates,
    iteration_of,
    order,
    receipts,
    settings,
    spec_wants,
    statuses,
    wants,
    wrote,
)

from bartack.agents import AgentRequest, AgentResult, ScriptedAgent
from bartack.agents.scripted.call import obey
from bartack.config.sections import BudgetConfig, PipelineConfig, QuestionsConfig, SnapshotConfig, TestsConfig
from bartack.pipeline.records.records import Settings
from bartack.runtime import ShellResult

SPEC = {"README.md": "hello\n", "SPEC.md": "# Spec\n\n## Status\n\nnew\n"}


def bounds(**keys: object) -> Settings:
    return settings(pipeline=msgspec.convert({"on_limit": "fail", **keys}, type=PipelineConfig))


def reds(count: int) -> Shell:
    """A test command that fails so many times."""
    left = [count]

    def run(argv: list[str]) -> ShellResult:
        left[0] -= 1
        return RED if left[0] >= 0 else GREEN

    return run


@pytest.mark.requirement("pipeline-order")
def test_a_task_is_implemented_tested_reviewed_and_the_spec_is_looked_at(tmp_path: Path) -> None:
    team = Team(tmp_path, files=SPEC)

    run = team.run(order("T-1"))

    assert statuses(run) == [("T-1", "done")]
    assert team.actions == [
        ("T-1", "implement", 1, "start"),
        ("T-1", "review", 1, "start"),
        ("T-1", "update_spec", 1, "start"),
    ]
    assert [gate.verdict for gate in gates(run)] == ["pass"]


def test_several_tasks_run_one_after_the_other(tmp_path: Path) -> None:
    team = Team(tmp_path)

    run = team.run(order("one", "two", "three"))

    assert [(task, action) for task, action, _, _ in team.actions] == [
        (task, action) for task in ("one", "two", "three") for action in ("implement", "review")
    ]
    assert statuses(run) == [("one", "done"), ("two", "done"), ("three", "done")]


@pytest.mark.requirement("pipeline-findings")
def test_what_the_reviewer_wants_reaches_the_builder_and_the_next_review_whole(tmp_path: Path) -> None:
    team = Team(tmp_path, {"review": [wants("no test for week 53", "a typo"), APPROVED]})

    run = team.run(order("T-1"))

    assert [(action, round_, cause) for _, action, round_, cause in team.actions] == [
        ("implement", 1, "start"),
        ("review", 1, "start"),
        ("implement_changes", 1, "review"),
        ("review", 2, "review"),
    ]
    said = [{"message": "no test for week 53"}, {"message": "a typo"}]
    assert [iteration_of(command).findings for command in team.commands[2:]] == [said, said]
    assert len(gates(run)) == 2


def test_findings_that_are_too_long_for_a_line_go_by_file(tmp_path: Path) -> None:
    team = Team(tmp_path, {"review": [wants("x" * 250_000, "y"), APPROVED]})

    with team.running(order("T-1")) as run:
        round_ = iteration_of(team.commands[2])
        assert round_.findings_file is not None
        file = Path(run._scratch.name, str(round_.findings_file["path"]))
        kept = msgspec.json.decode(file.read_bytes())

    assert round_.findings == []
    assert kept == [{"message": "x" * 250_000}, {"message": "y"}]
    assert round_.findings_file["size"] == len(msgspec.json.encode(kept))


def test_failed_tests_go_back_to_the_builder(tmp_path: Path) -> None:
    team = Team(tmp_path, tests=reds(1))

    run = team.run(order("T-1"))

    assert [(action, cause) for _, action, _, cause in team.actions] == [
        ("implement", "start"),
        ("implement_changes", "tests"),
        ("review", "start"),
    ]
    [finding] = iteration_of(team.commands[1]).findings
    assert finding["severity"] == "blocker"
    assert "make test: ended with 1" in str(finding["message"])
    assert "1 failed" in str(finding["message"])
    assert [gate.verdict for gate in gates(run)] == ["fail", "pass"]


def test_what_the_spec_maintainer_wants_is_built_tested_and_reviewed(tmp_path: Path) -> None:
    team = Team(tmp_path, {"update_spec": [spec_wants("the code does more"), UNCHANGED]}, files=SPEC)

    team.run(order("T-1"))

    assert [(action, cause) for _, action, _, cause in team.actions] == [
        ("implement", "start"),
        ("review", "start"),
        ("update_spec", "start"),
        ("implement_changes", "spec"),
        ("review", "spec"),
        ("update_spec", "spec"),
    ]
    assert iteration_of(team.commands[3]).findings == [{"message": "the code does more"}]


def test_the_review_can_be_left_out(tmp_path: Path) -> None:
    team = Team(tmp_path)

    team.run(order("T-1", using=bounds(review=False)))

    assert [action for _, action, _, _ in team.actions] == ["implement"]


def test_the_spec_can_be_left_out(tmp_path: Path) -> None:
    team = Team(tmp_path, files=SPEC)

    team.run(order("T-1", using=bounds(spec=False)))

    assert [action for _, action, _, _ in team.actions] == ["implement", "review"]


def test_reviewers_are_told_which_files_changed(tmp_path: Path) -> None:
    team = Team(tmp_path, files=SPEC)

    team.run(order("T-1"))

    assert team.commands[1].inputs["changed_files"] == ["src/a.py"]
    assert team.commands[2].inputs["spec_file"] == "SPEC.md"
    assert team.commands[2].inputs["editable_sections"] == ["Status", "Decisions", "Changelog"]


def test_every_command_names_the_snapshot_it_is_for(tmp_path: Path) -> None:
    team = Team(tmp_path, files=SPEC)

    run = team.run(order("T-1"))

    [first, second, third] = receipts(run)
    assert [command.version.snapshot_id for command in team.commands] == [
        first.snapshot_id,
        second.snapshot_id,
        third.snapshot_id,
    ]
    assert first.snapshot_id != first.result_snapshot_id == second.snapshot_id
    assert second.snapshot_id == second.result_snapshot_id
    assert team.commands[0].version.specs_hash is not None


def test_the_workspace_is_captured_with_the_answers_and_not_between_them(tmp_path: Path) -> None:
    team = Team(tmp_path, {"review": [wants("a"), wants("b"), APPROVED]})

    using = msgspec.structs.replace(bounds(spec=False), tests=TestsConfig(mode="report"))

    run = team.run(order("T-1", using=using))

    first, *_, last = receipts(run)
    assert [step.about for step in run.steps].count("snapshot") == 1
    assert [command.version.snapshot_id for command in team.commands[1:]] == [
        receipt.result_snapshot_id for receipt in receipts(run)[:-1]
    ]
    assert first.result_snapshot_id != last.result_snapshot_id


def test_what_the_tests_leave_behind_is_part_of_what_is_reviewed(tmp_path: Path) -> None:
    def look(argv: list[str]) -> ShellResult:
        (tmp_path / "report.txt").write_text("green\n")
        return GREEN

    team = Team(tmp_path, tests=look)

    run = team.run(order("T-1"))

    assert run.error is None
    assert team.commands[1].inputs["changed_files"] == ["report.txt", "src/a.py"]
    assert team.commands[1].version.snapshot_id != gates(run)[0].snapshot_id


@pytest.mark.parametrize("asks", [True, False])
def test_what_a_person_changes_where_a_run_has_stopped_is_seen(tmp_path: Path, *, asks: bool) -> None:
    team = Team(tmp_path, {"review": [wants("more"), APPROVED]})
    using = msgspec.structs.replace(bounds(on_limit="auto", max_review_rounds=1), asks=asks)
    with team.start(order("T-1", using=using)) as run:
        run.start()
        if asks:
            run.wait_for("step.started", question="q1")
        else:
            run.finish()
        (tmp_path / "mine.txt").write_text("mended\n")

        if asks:
            run.answer("q1", "retry")
        else:
            run.resume()
        run.finish()

        assert run.error is None
        assert team.commands[-1].action == "review"
        assert team.commands[-1].inputs["changed_files"] == ["mine.txt", "src/a.py"]


# Bounds.


@pytest.mark.requirement("pipeline-limits")
@pytest.mark.parametrize(
    ("responses", "error", "actions"),
    [
        (
            {"review": wants("more")},
            "ReviewLimitError",
            ["implement", "review", "implement_changes", "review"],
        ),
        (
            {"update_spec": spec_wants("more")},
            "SpecLimitError",
            ["implement", "review", "update_spec", "implement_changes", "review", "update_spec"],
        ),
    ],
)
def test_a_loop_that_does_not_end_stops_at_its_bound_and_a_resume_grants_it_again(
    tmp_path: Path, responses: dict[str, object], error: str, actions: list[str]
) -> None:
    team = Team(tmp_path, responses, files=SPEC)
    with team.running(order("T-1", using=bounds(max_review_rounds=2, max_spec_rounds=2))) as run:
        assert run.error is not None
        assert run.error.kind == error
        assert [action for _, action, _, _ in team.actions] == actions
        last = team.actions[-1]

        run.resume()
        run.finish()

        assert run.error is not None
        assert run.error.kind == error
        again = team.actions[len(actions) :]
        assert again[0] == (last[0], last[1], last[2] + 1, "resume")
        assert again[-1][1] == last[1]
        assert sum(action == last[1] for _, action, _, _ in again) == 2


@pytest.mark.requirement("failed-gate-stays-failed")
def test_a_failed_gate_is_run_again_by_resume_before_anything_else(tmp_path: Path) -> None:
    team = Team(tmp_path, tests=reds(3))
    with team.running(order("T-1", using=bounds(max_fix_rounds=1))) as run:
        assert run.error is not None
        assert run.error.kind == "TestsGateError"
        assert "after 1 repairs" in run.error.message
        before = len(team.commands)

        run.resume()
        run.finish()

        assert statuses(run) == [("T-1", "done")]
        assert [gate.verdict for gate in gates(run)] == ["fail", "fail", "fail", "pass"]
        assert [(action, cause) for _, action, _, cause in team.actions[before:]] == [
            ("implement_changes", "tests"),
            ("review", "start"),
        ]


def test_the_builder_is_not_commanded_for_ever(tmp_path: Path) -> None:
    team = Team(tmp_path, {"review": wants("more")})
    using = bounds(max_rounds=3, max_review_rounds=100)

    with team.running(order("T-1", using=using)) as run:
        assert run.error is not None
        assert run.error.kind == "RoundLimitError"
        assert sum(action.startswith("implement") for _, action, _, _ in team.actions) == 3

        run.resume()
        run.finish()

        assert sum(action.startswith("implement") for _, action, _, _ in team.actions) == 6


def test_settings_may_change_where_a_run_stopped(tmp_path: Path) -> None:
    team = Team(tmp_path, {"review": wants("more")})
    with team.running(order("T-1", using=bounds(max_review_rounds=1))) as run:
        (tmp_path / "bartack.toml").write_text('[pipeline]\nmax_review_rounds = 3\non_limit = "fail"\n')

        run.resume()
        run.finish()

        assert run.error is not None
        assert "3 times" in run.error.message
        assert sum(action == "review" for _, action, _, _ in team.actions) == 4


@pytest.mark.parametrize("asks", [True, False])
def test_a_person_is_asked_at_a_bound_where_there_is_one(tmp_path: Path, *, asks: bool) -> None:
    team = Team(tmp_path, {"review": wants("more")}, answers={"*wanted changes*": "accept"})
    using = msgspec.structs.replace(bounds(on_limit="auto", max_review_rounds=1), asks=asks)

    run = team.run(order("T-1", using=using))

    assert (run.error is None) == asks
    if asks:
        assert run.result.tasks[0].accepted == ["review"]


def test_a_person_may_grant_more_rounds(tmp_path: Path) -> None:
    answers = {"*wanted changes*": "retry"}
    team = Team(tmp_path, {"review": [wants("more"), APPROVED]}, answers=answers)

    run = team.run(order("T-1", using=bounds(on_limit="ask", max_review_rounds=1)))

    assert statuses(run) == [("T-1", "done")]
    assert [action for _, action, _, _ in team.actions] == ["implement", "review", "review"]


@pytest.mark.requirement("abort-is-final")
def test_a_person_may_abort_and_the_run_is_over(tmp_path: Path) -> None:
    team = Team(tmp_path, {"review": wants("more")}, answers={"*wanted changes*": "abort"})

    run = team.run(order("T-1", using=bounds(on_limit="ask", max_review_rounds=1)))

    assert run.status == "aborted"


def test_a_question_at_a_bound_may_time_out(tmp_path: Path) -> None:
    team = Team(tmp_path, {"review": [wants("more"), APPROVED]})
    using = bounds(on_limit="ask", max_review_rounds=1)
    late = QuestionsConfig(timeout_s=60)

    failed = team.run(order("T-1", using=msgspec.structs.replace(using, questions=late)))
    late = QuestionsConfig(timeout_s=60, on_timeout="default")
    went_on = team.run(order("T-1", using=msgspec.structs.replace(using, questions=late)))

    assert failed.error is not None
    assert failed.error.kind == "QuestionTimeoutError"
    assert statuses(went_on) == [("T-1", "done")]


# Tasks that fail.


BROKEN = {"implement": [{"error": "invalid_inputs"}, wrote("src/a.py", "A = 1\n")]}


def test_a_failing_task_fails_the_run_and_is_begun_again_where_it_failed(tmp_path: Path) -> None:
    team = Team(tmp_path, BROKEN)
    with team.running(order("one", "two")) as run:
        assert run.error is not None
        assert run.error.kind == "AgentRequestError"

        run.resume()
        run.finish()

        assert statuses(run) == [("one", "done"), ("two", "done")]
        keys = [command.idempotency_key for command in team.commands]
        assert keys[0] == keys[1]


def test_other_tasks_go_on_where_that_is_wanted(tmp_path: Path) -> None:
    responses = {
        "implement": [
            {"when": {"task": "one"}, "times": 1, "error": "invalid_inputs"},
            {"times": 0, **built(status="pass")},
        ]
    }
    team = Team(tmp_path, responses)
    what = order("one", "two", "three", using=bounds(on_task_failure="continue"))
    tasks = [what.tasks[0], what.tasks[1], msgspec.structs.replace(what.tasks[2], depends_on=["one"])]

    with team.running(msgspec.structs.replace(what, tasks=tasks)) as run:
        assert run.error is not None
        assert run.error.kind == "TasksFailedError"
        assert "one failed" in run.error.message
        assert "three skipped" in run.error.message
        assert [task for task, _, _, _ in team.actions] == ["one", "two", "two"]

        run.resume()
        run.finish()

        assert statuses(run) == [("one", "done"), ("two", "done"), ("three", "done")]
        assert [task for task, _, _, _ in team.actions[3:]] == ["one", "one", "three", "three"]


def test_a_receipt_names_its_command_also_if_the_agent_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def answer(agent: ScriptedAgent, request: AgentRequest) -> AgentResult:
        result = obey(agent, request)
        event = msgspec.structs.replace(result.event, in_reply_to=None)
        return msgspec.structs.replace(result, event=event, command_id=f"the {request.action}")

    monkeypatch.setattr("bartack.agents.scripted.call.obey", answer)

    run = Team(tmp_path).run(order("T-1"))

    assert [receipt.command_message_id for receipt in receipts(run)] == ["the implement", "the review"]


# Budgets.


@pytest.mark.requirement("pipeline-budget")
@pytest.mark.parametrize(
    ("usage", "budget"),
    [({"input_tokens": 60, "output_tokens": 50}, {"tokens": 100}), ({"turns": 5}, {"turns": 5})],
)
def test_a_budget_that_is_used_up_stops_the_run_until_it_is_raised(
    tmp_path: Path, usage: dict[str, int], budget: dict[str, int]
) -> None:
    used = {
        "events": [{"type": "builder.completed", "payload": {"tests": {"status": "pass"}}, "usage": usage}]
    }
    team = Team(tmp_path, {"implement": used})
    using = settings(budget=msgspec.convert(budget, type=BudgetConfig))

    with team.running(order("T-1", using=using)) as run:
        assert run.error is not None
        assert run.error.kind == "AgentBudgetError"
        assert [action for _, action, _, _ in team.actions] == ["implement"]
        (tmp_path / "bartack.toml").write_text(f"[budget]\n{next(iter(budget))} = 1000\n")

        run.resume()
        run.finish()

        assert [action for _, action, _, _ in team.actions] == ["implement", "review"]


def test_a_budget_of_time_counts_what_agents_took(tmp_path: Path) -> None:
    team = Team(tmp_path)

    run = team.run(order("T-1", using=settings(budget=BudgetConfig(wall_s=0))))

    assert run.error is not None
    assert "budget.wall_s is used up" in run.error.message
    assert team.commands == []


@pytest.mark.parametrize(("alive_s", "status"), [(50, "completed"), (70, "failed")])
def test_a_budget_of_time_counts_only_while_somebody_runs_the_run(
    tmp_path: Path, alive_s: int, status: str
) -> None:
    with Team(tmp_path).start(order("T-1", using=settings(budget=BudgetConfig(wall_s=60)))) as run:
        run.start()
        run.wait_for("step.started", step="think")
        run.clock.advance(alive_s / 2)
        run.crash()
        run.clock.advance(3000)
        run.resume()
        run.wait_for("hub.started", hub=2)
        run.clock.advance(alive_s / 2)
        run.finish()

        assert run.status == status
        assert run.error is None or "budget.wall_s is used up: 70 of 60" in run.error.message


# Settings that only reach a step.


@pytest.mark.parametrize("pinning", ["strict", "require", "warn"])
def test_agents_are_pinned_to_the_version_as_configured(tmp_path: Path, pinning: str) -> None:
    run = Team(tmp_path).run(order("T-1", using=bounds(version_pinning=pinning)))

    asked = [
        bytes(e.value or b"") for e in run.journal if e.kind == "step.started" and e.data["step"] == "think"
    ]
    said = [msgspec.json.decode(value)["command"].get("pinning", "strict") for value in asked]
    assert said == [pinning, pinning]


@pytest.mark.parametrize(
    ("config", "changed"),
    [
        ({}, ["notes/b.txt", "src/a.py"]),
        ({"exclude": ["notes/"]}, ["src/a.py"]),
        ({"roots": ["notes"]}, ["notes/b.txt"]),
        ({"exclude": ["notes/"], "include": ["build/"]}, ["build/c.o", "src/a.py"]),
    ],
)
def test_the_snapshot_holds_what_the_settings_say(
    tmp_path: Path, config: dict[str, object], changed: list[str]
) -> None:
    writes = [{"path": path, "content": "A\n"} for path in ("src/a.py", "notes/b.txt", "build/c.o")]
    responses = {"implement": {"write": writes, "events": [{"type": "builder.completed"}]}}
    team = Team(tmp_path, responses, files={"notes/a.txt": ""})
    chosen = msgspec.convert({"source": "roots", **config}, type=SnapshotConfig)

    run = team.run(order("T-1", using=settings(snapshot=chosen)))

    assert [change.path for change in receipts(run)[0].changes] == changed


def test_a_directory_of_runs_inside_the_workspace_is_no_part_of_it(tmp_path: Path) -> None:
    writes = [{"path": "state/runs/x", "content": "A\n"}]
    team = Team(tmp_path, {"implement": {"write": writes, "events": [{"type": "builder.completed"}]}})

    run = team.run(order("T-1", using=settings(state_dir="state")))

    assert receipts(run)[0].changes == []
