"""Directories that are not there, cannot be written, or are on a full disk: an error with a code, and the run can be resumed."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from tests.cli.programs.fakes import KINDS, started
from tests.cli.programs.workspace import Project
from tests.crash.node_stage import small_disk

GOES = """
import os
if os.path.exists("first"):
    os.remove("first")
    os.rename(os.getcwd(), os.getcwd() + "-gone")
return await ctx.think("say it")
"""


def keep_state_in(workspace: Path, place: str) -> None:
    """Have the runs of a workspace somewhere else."""
    settings = workspace / "bartack.toml"
    settings.write_text(f'state_dir = "{place}"\n{settings.read_text()}', encoding="utf-8")


@pytest.fixture(params=KINDS)
def project(request: pytest.FixtureRequest, tmp_path: Path) -> Project:
    return Project(tmp_path, str(request.param))


@pytest.mark.requirement("places-of-agents-are-checked")
@pytest.mark.parametrize("kind", KINDS)
def test_a_working_directory_that_is_gone_is_named_and_nothing_is_started(kind: str, tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    project = Project(work, kind)
    (work / "fake").rename(tmp_path / "fake")
    project.configure("ok", [str(tmp_path / "fake"), kind, "ok"])
    keep_state_in(work, str(tmp_path / "state"))
    project.program(GOES)
    (work / "first").touch()

    failed = project.call("run", "team.py", "--no-input")

    assert failed.returncode == 1
    told = f"AgentPlaceError [BT823]: agent 'a': its working directory '{work}' does not exist"
    assert told in failed.stderr, failed.stderr
    assert "agents.a.command" not in failed.stderr
    assert started(tmp_path) == []
    (tmp_path / "work-gone").rename(work)
    assert project.call("resume", "latest").stdout == "fine\n"


@pytest.mark.requirement("places-of-agents-are-checked")
@pytest.mark.parametrize("kind", KINDS)
def test_a_home_that_cannot_be_written_is_found_before_the_run(kind: str, tmp_path: Path) -> None:
    project = Project(tmp_path, kind)
    project.configure("ok", home="user")
    (tmp_path / "nobody").write_text("a file", encoding="utf-8")

    run, doctor = project.run(), project.call("agents", "doctor")

    told = f"cannot be written: {tmp_path / 'nobody'} is not a directory"
    assert told in doctor.stdout
    assert "or set agents.a.home to run" in doctor.stdout
    if kind == "acp":  # nobody knows where it keeps its sessions
        assert (run.returncode, doctor.returncode) == (0, 0)
        return
    assert (run.returncode, doctor.returncode) == (2, 1)
    assert "error[BT801]" in run.stderr
    assert told in run.stderr
    assert project.runs == []
    assert project.starts == []


@pytest.mark.requirement("places-of-agents-are-checked")
@pytest.mark.parametrize(
    ("place", "told"),
    [
        ("gone", "its extra directory 'gone' does not exist; correct extra_dirs"),
        ("team.py", "its extra directory 'team.py' is not a directory; correct extra_dirs"),
        (".bartack", "its extra directory '.bartack' is in .bartack, where the runs are"),
        ("", "agents.a.extra_dirs[0]: it has to be the path of a directory"),
    ],
)
def test_an_extra_directory_that_cannot_be_used_is_found_before_the_run(
    place: str, told: str, tmp_path: Path
) -> None:
    project = Project(tmp_path, "claude", more=f'extra_dirs = ["{place}"]')
    (tmp_path / ".bartack").mkdir()

    run = project.run()

    assert run.returncode == 2
    assert told in run.stderr
    assert project.runs == []
    assert project.starts == []
    doctor = project.call("agents", "doctor")
    assert told in doctor.stdout + doctor.stderr


@pytest.mark.requirement("bad-programs-are-survived")
def test_a_disk_that_is_full_during_a_call_interrupts_the_run(project: Project, tmp_path: Path) -> None:
    with small_disk(tmp_path / "state"):
        project.configure("fill")
        keep_state_in(tmp_path, "state")
        full = project.run()
        (tmp_path / "state" / "runs" / "filler").unlink()
        project.configure("ok")
        keep_state_in(tmp_path, "state")
        resumed = project.call("resume", "latest")

    assert full.returncode == 6, full.stderr
    assert os.strerror(errno.ENOSPC) in full.stderr
    assert (resumed.returncode, resumed.stdout) == (0, "fine\n"), resumed.stderr
