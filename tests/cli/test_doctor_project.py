from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

Call = Callable[..., "subprocess.CompletedProcess[str]"]
AGENT = '[agents.team]\nscript = "team.json"\nroles = ["builder", "reviewer", "spec_maintainer"]\n'
SPEC = "# Spec\n## Status\n## Decisions\n## Changelog\n"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "bartack.toml").write_text(f'[tests]\ncommand = ["sh", "-c", "true"]\n{AGENT}')
    (tmp_path / "team.json").write_text('{"version": 1}')
    (tmp_path / "SPEC.md").write_text(SPEC)
    return tmp_path


def examine(call: Call, place: Path) -> dict[str, tuple[str, str]]:
    shown = json.loads(call("doctor", "--json", "--path", str(place)).stdout)
    return {found["check"]: (found["level"], found["sentence"]) for found in shown["findings"]}


def test_a_project_that_is_well_is_said_to_be(call: Call, project: Path) -> None:
    found = examine(call, project)

    levels = {check: found[check][0] for check in ("settings", "agent team", "tests", "spec", "runs")}
    assert set(levels.values()) == {"ok"}


def test_without_settings_there_is_no_project(call: Call, tmp_path: Path) -> None:
    assert "settings" not in examine(call, tmp_path)


@pytest.mark.parametrize(
    ("settings", "check", "level", "told"),
    [
        ("[pipelin]\n", "settings", "fail", "did you mean 'pipeline'?"),
        ('[agents.team]\nscript = "gone.json"\n', "agent team", "fail", "gone.json"),
        ('[tests]\nmode = "off"\n', "tests", "warn", "the work is not tested"),
        ("", "tests", "warn", "the agent's own test results are accepted unchecked"),
        ('[spec]\nsections = ["Scope"]\n', "spec", "warn", "has no section Scope"),
        ('[spec]\nfile = "gone.md"\n', "spec", "warn", "gone.md is missing"),
    ],
)
def test_what_is_not_well_is_told(
    call: Call, project: Path, settings: str, check: str, level: str, told: str
) -> None:
    (project / "bartack.toml").write_text(settings)

    found = examine(call, project)[check]

    assert found[0] == level
    assert told in found[1]


def test_a_test_command_that_is_nowhere_fails(call: Call, project: Path) -> None:
    (project / "bartack.toml").write_text('[tests]\ncommand = ["no-such-program-anywhere"]\n')

    assert examine(call, project)["tests"] == (
        "fail",
        "'no-such-program-anywhere' is not found in PATH",
    )


def test_runs_that_git_would_see_are_told(call: Call, project: Path) -> None:
    subprocess.run(["git", "init", "--quiet", str(project)], check=True)

    assert examine(call, project)["git ignore"][0] == "warn"
    (project / ".gitignore").write_text(".bartack/\n")
    assert "git ignore" not in examine(call, project)


def test_runs_that_wait_are_told(call: Call, project: Path) -> None:
    (project / ".bartack/runs/run-20260101-000000-00000000").mkdir(parents=True)
    (project / ".bartack/runs/run-20260101-000000-00000000/journal.ndjson").write_text("nonsense\n")

    assert examine(call, project)["runs"][0] == "warn"
