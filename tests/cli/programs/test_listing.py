"""What ``bartack agents`` shows of programs without asking them for anything: versions, and by what they log in."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.cli.programs.fakes import VERSIONS
from tests.cli.programs.workspace import ENVIRONMENT, Project


@pytest.mark.requirement("agents-list-shows-versions")
@pytest.mark.parametrize("kind", ["claude", "codex"])
def test_the_list_has_the_version_and_starts_nothing_else(kind: str, tmp_path: Path) -> None:
    project = Project(tmp_path, kind)

    shown, listed = project.call("agents"), project.call("agents", "list", "--json")

    assert (shown.returncode, listed.returncode) == (0, 0)
    assert shown.stdout.split()[:4] == ["a", kind, VERSIONS[kind], "default"]
    assert json.loads(listed.stdout)[0]["version"] == VERSIONS[kind]
    assert project.starts == []


@pytest.mark.requirement("agents-list-shows-versions")
def test_a_program_that_prints_no_version_is_listed_without_one(tmp_path: Path) -> None:
    project = Project(tmp_path, "codex", "no-version")

    shown = project.call("agents")

    assert (shown.returncode, shown.stdout.split()[:3]) == (0, ["a", "codex", "default"])


@pytest.mark.requirement("doctor-names-credentials")
@pytest.mark.parametrize(
    ("kind", "variable"), [("claude", "ANTHROPIC_API_KEY"), ("codex", "OPENAI_API_KEY")], ids=["c", "x"]
)
def test_the_doctor_names_the_variable_of_a_credential_and_never_shows_it(
    kind: str, variable: str, tmp_path: Path
) -> None:
    doctor = Project(tmp_path, kind).call("agents", "doctor")

    assert f"  credential: {variable}\n" in doctor.stdout
    assert ENVIRONMENT[variable] not in doctor.stdout + doctor.stderr


@pytest.mark.requirement("doctor-names-credentials")
def test_the_doctor_names_the_file_of_a_login(tmp_path: Path) -> None:
    project = Project(tmp_path, "claude", more="pass_env = []")
    project.configure("ok", more="pass_env = []", home="user")
    login = Path(project.environment["HOME"]) / ".claude" / ".credentials.json"
    login.parent.mkdir(parents=True)
    login.write_text("{}", encoding="utf-8")

    assert f"  credential: the login in {login}\n" in project.call("agents", "doctor").stdout
