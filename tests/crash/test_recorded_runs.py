"""Runs that an earlier version recorded: their journals verify, their steps replay, and the runs resume.

Each directory of ``journals`` that is named here holds a run directory and the files that were in the workspace when the run
completed, failed or was killed with ``kill -9``. The programs append a line to ``effects.txt`` for each effect, so that an effect
that is executed twice is seen.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

import pytest
from tests import warm

from bartack.core.trust import add_trusted
from bartack.journal import open_reader
from bartack.runtime.client.run import Run
from bartack.runtime.rundir.layout import RunDir
from bartack.testing import assert_replays

JOURNALS = Path(__file__).with_name("journals")
KINDS = ["plain", "killed", "failed", "patchwork", "pipeline"]
STEPS = {"plain": 30, "killed": 26, "failed": 26, "patchwork": 9}
"""How many recorded outcomes the workers have; of a failed one, those before its failure."""

RESULT = {
    "home": "home",
    "painted": ["painted red", "painted blue"],
    "seen": ["painted blue", "painted red"],
    "counted": 2,
    "down": "normal",
    "reply": "green",
    "letter": "Accepted",
    "failed": [True],
    "die": True,
    "clock": True,
}
EFFECTS = ["paint blue", "paint red", "pay 7", "pay 9"]


def restore(kind: str, workspace: Path) -> RunDir:
    """Put a recorded run and its workspace back; returns the run."""
    (kept,) = (JOURNALS / kind).glob("run-*")
    place = workspace / ".bartack" / "runs" / kept.name
    shutil.copytree(JOURNALS / kind / "workspace", workspace, dirs_exist_ok=True)
    shutil.copytree(kept, place)
    (place / "program").mkdir(exist_ok=True)  # git keeps no empty directory
    add_trusted(place)
    run = RunDir(place)
    with open_reader(place) as reader:
        last = list(reader.read())[-1]
    (run.path / "lock").touch(0o600)
    os.utime(
        run.path / "lock", ns=(last.at * 1000, last.at * 1000)
    )  # the time in which no hub ran it does not count
    return run


def bartack(workspace: Path, *args: str, code: int = 0) -> str:
    done = warm.run(
        [sys.executable, "-m", "bartack", *args],
        cwd=workspace,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


def effects(workspace: Path) -> list[str]:
    return sorted((workspace / "effects.txt").read_text().splitlines())


@pytest.mark.requirement("recorded-runs")
@pytest.mark.parametrize("kind", KINDS)
def test_the_journal_of_an_earlier_version_verifies_and_can_be_read(tmp_path: Path, kind: str) -> None:
    run = restore(kind, tmp_path)
    before = (run.path / "journal.ndjson").read_bytes()

    verified = bartack(tmp_path, "journal", "verify", run.path.name)
    shown = json.loads(bartack(tmp_path, "show", run.path.name, "--json"))

    assert "state    intact" in verified
    assert shown["steps"]
    assert (run.path / "journal.ndjson").read_bytes() == before


@pytest.mark.requirement("recorded-runs")
@pytest.mark.parametrize("kind", sorted(STEPS))
def test_every_step_of_an_earlier_version_replays(tmp_path: Path, kind: str) -> None:
    run = restore(kind, tmp_path)
    (program,) = tmp_path.glob("shop.*")

    report = assert_replays(run.path, program)

    assert report.steps == STEPS[kind]


@pytest.mark.requirement("recorded-runs")
@pytest.mark.parametrize("kind", ["killed", "failed"])
def test_a_run_of_an_earlier_version_resumes_at_its_step(tmp_path: Path, kind: str) -> None:
    run = restore(kind, tmp_path)

    bartack(tmp_path, "resume", run.path.name)

    assert Run(run).result() == RESULT
    assert effects(tmp_path) == EFFECTS


@pytest.mark.requirement("recorded-runs")
def test_a_completed_run_of_an_earlier_version_keeps_its_result(tmp_path: Path) -> None:
    run = restore("plain", tmp_path)

    assert Run(run).result() == RESULT
    assert effects(tmp_path) == EFFECTS


@pytest.mark.requirement("recorded-runs")
def test_a_patchwork_run_of_an_earlier_version_resumes_at_its_step(tmp_path: Path) -> None:
    run = restore("patchwork", tmp_path)

    bartack(tmp_path, "resume", run.path.name)

    assert effects(tmp_path) == ["after", "paint blue", "paint red"]


@pytest.mark.requirement("recorded-runs")
def test_a_pipeline_run_of_an_earlier_version_resumes_without_a_second_call(tmp_path: Path) -> None:
    run = restore("pipeline", tmp_path)
    agent = next((run.path / "agents" / "example").glob("*/stream.ndjson"))
    before = agent.read_text().count('"implement"')

    bartack(tmp_path, "resume", run.path.name)

    assert agent.read_text().count('"implement"') == before
    assert (tmp_path / "weeks.txt").read_text().strip() == "52 or 53"
