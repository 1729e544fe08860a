"""What ``bartack agents`` shows of programs without asking them for anything: versions, and by what they log in."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.programs.fakes import VERSIONS
from tests.cli.programs.workspace import ENVIRONMENT, Project


def listed(project: Project, path: Path) -> list[str]:
    """The words of the only line of the list."""
    env = {**project.environment, "PATH": f"{path}:{project.environment['PATH']}"}
    words = [sys.executable, "-m", "bartack", "agents"]
    done = subprocess.run(
        words, cwd=project.root, env=env, capture_output=True, text=True, check=True, timeout=60
    )
    return done.stdout.split()


def install(folder: Path, fake: Path, name: str, behaviour: str = "ok") -> Path:
    """Put a program with the name of a real one into a directory; returns that."""
    folder.mkdir()
    program = folder / name
    program.write_text(f'#!/bin/sh\nexec {fake} {name} {behaviour} "$@"\n', encoding="utf-8")
    program.chmod(0o755)
    return folder


@pytest.fixture
def work(tmp_path: Path) -> Path:
    made = tmp_path / "work"
    made.mkdir()
    return made


@pytest.mark.requirement("agents-list-shows-versions")
@pytest.mark.parametrize("kind", ["claude", "codex"])
def test_the_list_has_the_version_of_a_program_that_is_installed(
    kind: str, work: Path, tmp_path: Path
) -> None:
    project = Project(work, kind)
    project.configure("ok", [kind])
    installed = install(tmp_path / "bin", work / "fake", kind)

    assert listed(project, installed)[:4] == ["a", kind, VERSIONS[kind], "default"]
    assert project.starts == []


@pytest.mark.requirement("agents-list-shows-versions")
@pytest.mark.parametrize("way", ["arguments", "workspace", "variable", "silent"])
def test_the_list_starts_nothing_that_the_project_names(way: str, work: Path, tmp_path: Path) -> None:
    project = Project(work, "codex")
    place = work if way in {"workspace", "variable"} else tmp_path
    installed = install(place / "bin", work / "fake", "codex", "no-version" if way == "silent" else "old")
    more = f'env = {{ PATH = "{installed}" }}' if way == "variable" else ""
    project.configure("ok", ["codex", "--odd"] if way == "arguments" else ["codex"], more)
    path = tmp_path if way == "variable" else installed

    words = listed(project, path)

    assert "0.0.1" not in words
    assert words[:2] == ["a", "codex"]


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
