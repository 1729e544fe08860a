"""Killed behind every line of its journal, a run of the pipeline comes to the same end, and nothing is done or paid for twice."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.pipeline.team import (
    APPROVED,
    GREEN,
    RED,
    UNCHANGED,
    Team,
    begin,
    edits,
    gates,
    order,
    receipts,
    spec_wants,
    wants,
)

from bartack.pipeline.records.records import PipelineOrder, Summary
from bartack.runtime import ShellResult
from bartack.runtime.memory.hub import KilledError
from bartack.testing import TestRun

SPEC = {"SPEC.md": "# Spec\n\n## Status\n\nold\n"}
UPDATED = edits("# Spec\n\n## Status\n\nnew\n")


class Facts:
    """What has to be the same, however often a run was killed."""

    def __init__(self, run: TestRun[Summary], team: Team) -> None:
        self.result = run.result
        self.verdicts = [gate.verdict for gate in gates(run)]
        self.steps = [(r.task_id, r.action, r.round, r.step, r.cause) for r in receipts(run)]
        self.files = {
            str(path.relative_to(team.workspace)): path.read_text()
            for path in sorted(team.workspace.rglob("*"))
            if path.is_file()
        }

    def same_as(self, other: Facts) -> bool:
        mine = [(task.id, task.status, task.receipts) for task in self.result.tasks]
        theirs = [(task.id, task.status, task.receipts) for task in other.result.tasks]
        facts = (mine, self.verdicts, self.steps, self.files)
        return facts == (theirs, other.verdicts, other.steps, other.files)


def loops() -> dict[str, tuple[dict[str, object], PipelineOrder, dict[str, str]]]:
    return {
        "one task": ({}, order("T-1"), {"README.md": "x"}),
        "three tasks": ({}, order("one", "two", "three"), {"README.md": "x"}),
        "review loop": ({"review": [wants("a"), wants("b"), APPROVED]}, order("T-1"), {"README.md": "x"}),
        "spec loop": ({"update_spec": [spec_wants("a"), UPDATED]}, order("T-1"), SPEC),
        "failed gate": ({"update_spec": UNCHANGED}, order("T-1"), SPEC),
    }


def make(name: str, workspace: Path) -> tuple[Team, PipelineOrder]:
    responses, what, files = loops()[name]
    team = Team(workspace, responses, files=files)
    if name == "failed gate":

        def look(argv: list[str]) -> ShellResult:
            return GREEN if (workspace / "src/a.py").read_text() == "A = 2\n" else RED

        team.shell = look
    return team, what


def lines_to_die_behind(lines: int) -> list[int]:
    """Every third line, the first and the last; ``make soak`` tries all."""
    places = range(2, lines)
    return list(places) if "SOAK" in os.environ else sorted({*places[::3], places[-1]})


@pytest.mark.requirement("pipeline-survives-kill")
@pytest.mark.parametrize("name", list(loops()))
def test_a_run_that_is_killed_behind_any_line_comes_to_the_same_end(tmp_path: Path, name: str) -> None:
    team, what = make(name, tmp_path)
    with team.running(what) as run:
        whole = Facts(run, team)
        lines = len(run.lines)

    for cut in lines_to_die_behind(lines):
        with team.start(what, dies_after=cut) as run:
            with pytest.raises(KilledError):
                begin(run)
            paid = {command.idempotency_key for command in team.commands}
            finished = {receipt.idempotency_key for receipt in receipts(run)}
            before = len(team.commands)

            run.resume()
            run.finish()

            assert Facts(run, team).same_as(whole), f"{name}, killed behind line {cut}"
            again = [command for command in team.commands[before:] if command.idempotency_key in finished]
            assert again == [], f"{name}, killed behind line {cut}"
            resent = [command for command in team.commands[before:] if command.idempotency_key in paid]
            assert all(command.retry.cause == "resend" for command in resent)


def test_receipts_keep_their_numbers_and_bytes_over_a_crash(tmp_path: Path) -> None:
    team, what = make("review loop", tmp_path)
    with team.start(what, dies_after=30) as run:
        with pytest.raises(KilledError):
            begin(run)
        folder = Path(run._scratch.name, "receipts")
        before = {path: path.read_bytes() for path in folder.rglob("*.json")}

        run.resume()
        run.finish()

        assert before
        assert all(path.read_bytes() == content for path, content in before.items())
        assert len(list(folder.rglob("*.json"))) == len(receipts(run))


def test_an_agent_that_remembers_keys_and_one_that_does_not_come_to_the_same_receipts(
    tmp_path: Path,
) -> None:
    facts: list[Facts] = []
    for dedupe in (True, False):
        team, what = make("review loop", tmp_path)
        team.dedupe = dedupe
        with team.start(what, dies_after=25) as run:
            with pytest.raises(KilledError):
                begin(run)
            run.resume()
            run.finish()
            facts.append(Facts(run, team))

    assert facts[0].same_as(facts[1])
