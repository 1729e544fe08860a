"""A task that fails while others go on: resume goes on with it where it stopped, and pays for nothing again that is finished."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from tests.pipeline.team import (
    APPROVED,
    GREEN,
    RED,
    Reply,
    Team,
    begin,
    facts_of,
    gates,
    order,
    receipts,
    settings,
    statuses,
    wants,
    wrote,
)

from bartack.config.sections import BudgetConfig, PipelineConfig
from bartack.pipeline import _agent_calls
from bartack.pipeline.records._done_before import Notebook, Past, join_notes
from bartack.pipeline.records.records import Noted, Settings, Summary
from bartack.pipeline.records.task_state import make_progress
from bartack.runtime import ShellResult
from bartack.runtime.memory.hub import KilledError
from bartack.testing import TestRun

REFUSES: Reply = {"times": 1, "error": {"code": "invalid_inputs", "retryable": False}}


def going_on(**keys: object) -> Settings:
    wanted = {"on_limit": "fail", "on_task_failure": "continue", **keys}
    return settings(pipeline=msgspec.convert(wanted, type=PipelineConfig))


@pytest.mark.requirement("failed-task-goes-on")
def test_a_failed_task_goes_on_behind_what_it_has_finished(tmp_path: Path) -> None:
    results = iter([RED, GREEN, GREEN])
    builds: Reply = {"when": {"task": "two"}, "times": 0, **wrote("src/b.py", "B = 1\n")}
    replies = {
        "implement": [builds, {"times": 0, **wrote("src/a.py", "A = 1\n")}],
        "review": [REFUSES, APPROVED],
    }
    team = Team(tmp_path, replies, tests=lambda argv: next(results))
    with team.running(order("one", "two", using=going_on())) as run:
        assert run.error is not None
        assert "one failed: AgentRequestError" in run.error.message
        assert [(task.id, task.status) for task in make_progress(facts_of(run)).tasks] == [
            ("one", "failed"),
            ("two", "done"),
        ]
        before = len(team.commands)

        run.resume()
        run.finish()

        assert statuses(run) == [("one", "done"), ("two", "done")]
        assert team.actions[before:] == [("one", "review", 1, "start")]
        assert team.commands[before].version.snapshot_id != team.commands[2].version.snapshot_id
        assert len(gates(run)) == 3, "no test is run again"
        steps = [(r.task_id, r.step, r.action) for r in receipts(run)]
        assert steps == [
            ("one", 1, "implement"),
            ("one", 2, "implement_changes"),
            ("two", 1, "implement"),
            ("two", 2, "review"),
            ("one", 3, "review"),
        ]


def test_a_task_that_fails_again_and_again_never_does_anything_twice(tmp_path: Path) -> None:
    replies = [REFUSES, wants("more"), REFUSES, APPROVED]
    team = Team(tmp_path, {"review": replies, "implement_changes": [REFUSES, wrote("src/a.py", "A = 2\n")]})
    with team.running(order("one", using=going_on())) as run:
        for _ in range(3):
            assert run.error is not None
            run.resume()
            run.finish()

        assert statuses(run) == [("one", "done")]
        assert [(action, round_) for _, action, round_, _ in team.actions] == [
            ("implement", 1),
            ("review", 1),
            ("review", 1),
            ("implement_changes", 1),
            ("implement_changes", 1),
            ("review", 2),
            ("review", 2),
        ]
        assert [receipt.step for receipt in receipts(run)] == [1, 2, 3, 4]


def test_at_a_bound_resume_grants_as_many_rounds_again(tmp_path: Path) -> None:
    results = iter([RED, RED, GREEN])
    team = Team(tmp_path, tests=lambda argv: next(results))
    with team.running(order("one", using=going_on(max_fix_rounds=1))) as run:
        assert run.error is not None
        assert "one failed: TestsGateError" in run.error.message

        run.resume()
        run.finish()

        assert statuses(run) == [("one", "done")]
        assert [action for _, action, _, _ in team.actions] == ["implement", "implement_changes", "review"]
        assert len({command.idempotency_key for command in team.commands}) == 3
        assert [gate.verdict for gate in gates(run)] == ["fail", "fail", "pass"]


def test_a_review_that_changed_something_is_told_so_when_it_is_asked_again(tmp_path: Path) -> None:
    reports = [{"type": "review.completed", "status": "approved", "artifacts": [{"path": "README.md"}]}]
    bad: Reply = {"times": 1, "write": [{"path": "README.md", "content": "mine\n"}], "events": reports}
    mends: Reply = {"write": [{"path": "README.md", "content": "hello\n"}], **APPROVED}
    team = Team(tmp_path, {"review": [bad, mends]})
    with team.running(order("one", using=going_on())) as run:
        assert run.error is not None
        assert "ReadOnlyViolationError" in run.error.message

        run.resume()
        run.finish()

        assert statuses(run) == [("one", "done")]
        assert [action for _, action, _, _ in team.actions] == ["implement", "review", "review"]
        assert (team.commands[2].retry.cause, team.commands[2].retry.code) == (
            "rejected",
            "read_only_violation",
        )


def test_what_a_task_used_before_it_failed_is_counted_once(tmp_path: Path) -> None:
    uses: Reply = {"events": [{"type": "builder.completed", "usage": {"turns": 2}}]}
    approves: Reply = {"events": [{"type": "review.completed", "status": "approved", "usage": {"turns": 1}}]}
    team = Team(tmp_path, {"implement": uses, "review": [REFUSES, approves]})
    using = msgspec.structs.replace(going_on(), budget=BudgetConfig(turns=100))
    with team.running(order("one", using=using)) as run:
        run.resume()
        run.finish()

        assert run.result.tasks[0].spent.turns == 3


def test_tasks_that_are_to_stop_the_run_are_gone_on_with_as_before(tmp_path: Path) -> None:
    team = Team(tmp_path, {"review": [REFUSES, APPROVED]})
    with team.running(order("one")) as run:
        assert run.error is not None
        assert run.error.kind == "AgentRequestError"

        run.resume()
        run.finish()

        assert [action for _, action, _, _ in team.actions] == ["implement", "review", "review"]


def run_twice(run: TestRun[Summary]) -> None:
    """Run it until it fails, and then to its end."""
    begin(run)
    run.resume()
    run.finish()


@pytest.mark.requirement("failed-task-goes-on")
def test_killed_anywhere_a_task_that_failed_comes_to_the_same_end(tmp_path: Path) -> None:
    def shell(argv: list[str]) -> ShellResult:
        return GREEN if (tmp_path / "src/a.py").read_text() == "A = 2\n" else RED

    refusal: Reply = {"when": {"task": "one", "attempt": 1}, **REFUSES}
    team = Team(tmp_path, {"review": [refusal, {"times": 0, **APPROVED}]}, tests=shell)
    what = order("one", using=going_on())
    with team.running(what) as run:
        run.resume()
        run.finish()
        lines, steps = len(run.lines), [(r.step, r.action) for r in receipts(run)]

    for cut in range(lines - 1, 30, -4):
        with team.start(what, dies_after=cut) as run:
            with pytest.raises(KilledError):
                run_twice(run)
            finished = {receipt.idempotency_key for receipt in receipts(run)}
            before = len(team.commands)

            while run.status != "completed":
                run.resume()
                run.finish()

            assert [(r.step, r.action) for r in receipts(run)] == steps, f"killed behind line {cut}"
            sent = {command.idempotency_key for command in team.commands[before:]}
            assert not sent & finished, f"killed behind line {cut}"


@pytest.mark.requirement("failed-task-goes-on")
def test_a_task_whose_worker_could_not_say_how_it_ended_goes_on_behind_what_it_has_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def say(action: str, *facts: object) -> str:
        if action == "review":
            raise ZeroDivisionError
        return action

    uses: Reply = {"events": [{"type": "builder.completed", "usage": {"turns": 2}}]}
    team = Team(tmp_path, {"implement": uses})
    using = msgspec.structs.replace(going_on(), budget=BudgetConfig(turns=100))
    with monkeypatch.context() as patch, team.start(order("one", using=using)) as run:
        patch.setattr(_agent_calls, "describe_command", say)
        begin(run)
        for _ in range(2):
            assert run.error is not None
            assert "one failed: ZeroDivisionError" in run.error.message
            run.resume()
            run.finish()
        patch.undo()

        run.resume()
        run.finish()

        assert statuses(run) == [("one", "done")]
        assert [action for _, action, _, _ in team.actions] == ["implement", "review"]
        assert run.result.tasks[0].spent.turns == 2


def test_an_answer_whose_receipt_could_not_be_written_gets_no_second_receipt(tmp_path: Path) -> None:
    team = Team(tmp_path)
    with team.start(order("one", using=going_on())) as run:
        file = Path(run._scratch.name, "receipts", "one", "step-2.json")
        file.parent.mkdir(parents=True)
        file.write_text("another file\n")
        begin(run)
        assert run.error is not None
        assert "one failed: ReceiptConflictError" in run.error.message
        file.unlink()

        run.resume()
        run.finish()

        assert statuses(run) == [("one", "done")]
        assert [(r.step, r.action) for r in receipts(run)] == [(1, "implement"), (2, "review")]


# What is noted.


def test_a_past_that_was_not_used_up_is_still_there_for_the_next_one() -> None:
    notes = [Noted(kind="gate", value="a"), Noted(kind="result", about="key", value="b")]

    assert Past(notes).notes == notes


def test_a_note_that_was_cut_is_left_again_and_none_is_there_twice(tmp_path: Path) -> None:
    def take_notes() -> list[Noted]:
        past = Past([], Notebook(str(tmp_path), "main/2.1:task"))
        past.note("snapshot", "", "a")
        past.note("result", "key", "b")
        return past.notes

    take_notes()
    [file] = tmp_path.rglob("*.ndjson")
    file.write_bytes(file.read_bytes()[:-5])
    take_notes()
    notes = take_notes()

    left = Notebook(str(tmp_path), "main/2.1:task").read()
    assert [one.number for one in left] == [0, 1]
    assert join_notes([], left) == notes


def test_a_past_counts_until_the_way_is_another_one() -> None:
    notes = [Noted(kind="gate", value="a"), Noted(kind="snapshot", value="b"), Noted(kind="stop", about="x")]
    past = Past(notes)

    assert past.recall("gate", "", str) == "a"
    assert past.recall("result", "key", str) is None
    assert past.recall("stop", "x", str) is None
    past.note("result", "key", "c")

    assert past.notes == [notes[0], Noted(kind="result", about="key", value="c")]


def test_a_snapshot_on_which_nothing_was_done_is_taken_anew() -> None:
    past = Past([])
    for kind in ("snapshot", "result", "snapshot", "snapshot"):
        past.note(kind, "", kind)

    assert [known.kind for known in past.notes] == ["snapshot", "result"]


def test_a_task_that_nobody_goes_on_with_notes_nothing() -> None:
    past = Past(None)

    past.note("result", "key", "c")

    assert past.notes == []
