"""What is shown of a run is made from its journal alone: its progress and its ledger."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
from tests.pipeline.team import APPROVED, Team, facts_of, order, settings, wants

from bartack.agents import command_key
from bartack.agents.protocol.messages import Command, Event
from bartack.config.sections import PipelineConfig
from bartack.journal import open_journal
from bartack.pipeline.records.facts import Fact
from bartack.pipeline.records.ledger import check_ledger, iter_ledger
from bartack.pipeline.records.records import Activated, Summary, TaskRecord
from bartack.pipeline.records.task_state import Progress, ProgressReader, make_progress, read_progress
from bartack.runtime.state.entries import RunEnded
from bartack.testing import TestRun

SPEC = {"SPEC.md": "# Spec\n\n## Status\n"}


def stages(run: TestRun[Summary]) -> list[str]:
    """The stages of a run, one after the other."""
    found: list[str] = []
    for count in range(1, len(run.journal) + 1):
        stage = make_progress(facts_of(run, count)).stage
        if not found or found[-1] != stage:
            found.append(stage)
    return found


def ledger(run: TestRun[Summary]) -> list[Command | Event]:
    return list(iter_ledger(facts_of(run)))


@pytest.mark.requirement("status-of-a-pipeline")
def test_the_stages_follow_what_is_done(tmp_path: Path) -> None:
    run = Team(tmp_path, {"review": [wants("more"), APPROVED]}, files=SPEC).run(order("T-1"))

    assert stages(run) == [
        "activate",
        "implement",
        "tests",
        "review",
        "implement",
        "tests",
        "review",
        "spec",
        "complete",
    ]


def test_tasks_are_waiting_running_done_or_failed(tmp_path: Path) -> None:
    failing = {"when": {"task": "two"}, "error": "invalid_inputs"}
    team = Team(tmp_path, {"implement": [failing, {"times": 0, "events": [{"type": "builder.completed"}]}]})

    run = team.run(order("one", "two", "three"))

    progress = make_progress(facts_of(run))
    assert [(task.id, task.status) for task in progress.tasks] == [
        ("one", "done"),
        ("two", "failed"),
        ("three", "waiting"),
    ]
    assert (progress.stage, progress.task_id) == ("implement", "two")


def test_what_an_agent_said_last_is_known(tmp_path: Path) -> None:
    progress = make_progress(facts_of(Team(tmp_path).run(order("T-1"))))

    assert progress.agents["reviewer"].event == "review.completed"
    assert progress.agents["reviewer"].status == "approved"
    assert progress.agents["reviewer"].receipt == 2
    assert progress.snapshot_id.startswith("snap-")


def test_looking_again_at_a_run_reads_what_is_new_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    entries = Team(tmp_path / "work").run(order("T-1")).journal
    reader = ProgressReader(tmp_path)

    with open_journal(tmp_path) as journal:
        for entry in entries:
            if entry.kind.startswith("journal."):
                continue
            journal.append(entry.kind, entry.data, None if entry.value is None else bytes(entry.value))
            if entry.seq % 10 == 0:
                assert reader.read() == read_progress(tmp_path)
                assert reader._reader is not None
                assert list(reader._reader.read_on()) == []
        whole = reader.read()
    reader.close()

    assert whole.stage == "complete"
    assert whole == read_progress(tmp_path)


def test_a_run_that_has_not_begun_has_nothing_to_show() -> None:
    assert make_progress([]) == Progress()


@pytest.mark.requirement("ledger")
def test_the_ledger_has_every_command_with_its_answer_and_what_was_decided(tmp_path: Path) -> None:
    run = Team(tmp_path, {"review": [wants("more"), APPROVED]}).run(order("T-1"))

    lines = ledger(run)

    names = [line.action if isinstance(line, Command) else line.event for line in lines]
    assert [name for name in names if name != "system.snapshot"] == [
        "system.run_started",
        "implement",
        "builder.completed",
        "system.tests",
        "review",
        "review.completed",
        "implement_changes",
        "builder.completed",
        "system.tests",
        "review",
        "review.completed",
        "system.run_ended",
    ]
    for line in lines:
        if isinstance(line, Command):
            key = command_key(line.action, line.task_id, line.version.snapshot_id, line.inputs)
            assert line.idempotency_key == key


@pytest.mark.requirement("ledger")
def test_the_ledger_tells_of_every_snapshot_before_a_command_is_for_it_and_no_id_twice(
    tmp_path: Path,
) -> None:
    lines = ledger(Team(tmp_path, {"review": [wants("more"), APPROVED]}).run(order("T-1")))

    told: set[object] = set()
    for line in lines:
        if isinstance(line, Command):
            assert line.version.snapshot_id in told
        elif line.event == "system.snapshot":
            told.add((line.payload or {}).get("snapshot_id"))
    ids = [line.message_id for line in lines]
    assert len(set(ids)) == len(ids)
    assert all("after" not in (line.payload or {}) for line in lines if not isinstance(line, Command))


def test_two_exports_are_the_same_bytes(tmp_path: Path) -> None:
    run = Team(tmp_path).run(order("T-1"))

    assert [msgspec.json.encode(line) for line in ledger(run)] == [
        msgspec.json.encode(line) for line in ledger(run)
    ]


def test_a_limit_and_its_grant_are_in_the_ledger(tmp_path: Path) -> None:
    using = settings(pipeline=PipelineConfig(on_limit="fail", max_review_rounds=1))
    team = Team(tmp_path, {"review": [wants("more"), APPROVED]})
    with team.running(order("T-1", using=using)) as run:
        run.resume()
        run.finish()

        limits = [line for line in ledger(run) if isinstance(line, Event) and line.event == "system.limit"]

    assert [line.status for line in limits] == ["reached", "granted"]
    assert limits[0].payload is not None
    assert limits[0].payload["class"] == "ReviewLimitError"


def write(path: Path, lines: Sequence[Command | Event]) -> bytes:
    content = b"".join(msgspec.json.encode(line) + b"\n" for line in lines)
    path.write_bytes(content)
    return content


def test_a_ledger_is_checked_line_by_line(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    run = Team(tmp_path / "work").run(order("T-1"))
    path = tmp_path / "ledger.ndjson"
    content = write(path, ledger(run))
    assert check_ledger(path) == []

    changed = content.replace(b'"goal":"do T-1"', b'"goal":"do it"')
    path.write_bytes(b"null\n" + changed + b'{"kind":"gossip"}\n{"kind":"ev')

    problems = check_ledger(path)

    told = " | ".join(f"{found.line}: {found.problem}" for found in problems)
    assert problems[0].line == 1
    assert told.count("its key is") == 2
    assert "unknown kind 'gossip'" in told
    assert "truncated" in told


def test_a_command_without_an_answer_is_found(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    run = Team(tmp_path / "work").run(order("T-1"))
    lines = [line for line in ledger(run) if isinstance(line, Command)]
    path = tmp_path / "ledger.ndjson"
    write(path, lines[:1])

    [problem] = check_ledger(path)

    assert "has no answer" in problem.problem


@pytest.mark.parametrize("status", ["aborted", "cancelled"])
def test_no_task_of_a_run_that_is_over_is_running(status: str) -> None:
    records = [TaskRecord(id=name, goal="g") for name in ("one", "two", "three")]
    facts = [
        Fact(seq=1, at=1, kind="activated", value=Activated(tasks=records)),
        Fact(seq=2, at=2, kind="task", value=("main/3:task", records[0])),
        Fact(seq=3, at=3, kind="task_ended", value="main/3:task"),
        Fact(seq=4, at=4, kind="task", value=("main/4:task", records[1])),
        Fact(seq=5, at=5, kind="ended", value=RunEnded(status=status)),
    ]

    assert [task.status for task in make_progress(facts).tasks] == ["done", "aborted", "skipped"]
