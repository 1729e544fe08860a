"""Programs that misbehave: each ends with an error that has a code, leaves no process, and the run can be resumed."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cli.programs.fakes import KINDS
from tests.cli.programs.workspace import Project

pytestmark = pytest.mark.requirement("bad-programs-are-survived")


@pytest.fixture(params=KINDS)
def project(request: pytest.FixtureRequest, tmp_path: Path) -> Project:
    return Project(tmp_path, str(request.param))


@pytest.mark.parametrize(
    ("behaviour", "code", "told", "starts"),
    [
        ("mute", "BT806", "it wrote nothing within 0.5 s", 2),
        ("exit", "BT806", "its process ended with 0", 2),
        ("die", "BT806", "its process was killed by signal 9", 2),
        ("long", "BT813", "the line has more than 16777216 bytes", 1),
        ("noise", "BT813", "more than 100 of its lines are not messages; the last one: this is line 100", 1),
        ("old-inside", "BT811", "0.0.2", 1),
    ],
)
def test_a_program_that_cannot_be_used_fails_the_step_and_the_run_is_resumable(
    behaviour: str, code: str, told: str, starts: int, project: Project
) -> None:
    project.configure(behaviour, more="start_s = 0.5" if behaviour == "mute" else "")

    failed = project.run()

    assert failed.returncode == 1
    assert f"[{code}]" in failed.stderr
    assert told in failed.stderr or (project.kind == "acp" and "it speaks version 2 of ACP" in failed.stderr)
    assert f"bartack resume {project.run_id}" in failed.stderr
    assert project.starts == [behaviour] * starts

    project.configure("ok")
    resumed = project.resume()

    assert (resumed.returncode, resumed.stdout) == (0, "fine\n"), resumed.stderr


@pytest.mark.parametrize("behaviour", ["twice", "wrong", "stubborn"])
def test_a_program_that_only_behaves_oddly_is_used(behaviour: str, project: Project) -> None:
    project.configure(behaviour)

    done = project.run()

    assert (done.returncode, done.stdout) == (0, "fine\n"), done.stderr
    assert project.starts == [behaviour]


def test_a_daemon_that_outlives_its_agent_is_ended_and_reported(project: Project) -> None:
    project.configure("daemon")

    done = project.run()

    assert (done.returncode, done.stdout) == (0, "fine\n"), done.stderr
    (notice,) = [event for event in project.transcript if event.get("case") == "leftovers"]
    assert str(notice["text"]).startswith("1 process left by the agent: ")


def test_a_program_that_vanishes_during_a_run_is_named(project: Project) -> None:
    (project.root / "vanish").touch()
    vanishes = "if os.path.exists('vanish'):\n    os.remove('vanish')\n    os.rename('fake', 'gone')"
    project.program(f"import os\n{vanishes}\nreturn await ctx.think('say it')")

    failed = project.run()

    assert failed.returncode == 1
    assert "[BT811]" in failed.stderr
    assert "'./fake'" in failed.stderr
    assert project.starts == []
    (project.root / "gone").rename(project.root / "fake")
    assert project.resume().stdout == "fine\n"
