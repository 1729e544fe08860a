"""Runs whose directory, environment or program changes under them."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.crash.runs import PATIENCE_S, Begin, RealRun

from bartack.core.trust import add_trusted
from bartack.errors import ForeignRunError, ProgramImportError, ResumeRefusedError
from bartack.runtime.rundir.layout import RunDir

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the bounds are those of Linux")

LOST = 6
"""The exit code of a hub that its journal was taken from: the run, if it is still somewhere, can be resumed."""


def clean_with_git(run: RealRun) -> None:
    for words in (["init", "-q"], ["clean", "-fdxq"]):
        subprocess.run(["git", *words], cwd=run.workspace, check=True)


def remove(run: RealRun) -> None:
    shutil.rmtree(run.run.path)


@pytest.mark.parametrize("destroy", [clean_with_git, remove])
@pytest.mark.parametrize("worker", ["ticking", "waiting"])
def test_a_run_whose_directory_is_deleted_ends_and_says_so(
    begin: Begin, tmp_path_factory: pytest.TempPathFactory, worker: str, destroy: object
) -> None:
    log = tmp_path_factory.mktemp("log") / "hub.log"
    run = begin(worker)
    run.start(log=log)
    run.wait_open("sleep" if worker == "ticking" else "receive")

    assert callable(destroy)
    destroy(run)

    assert run.wait_hub() == LOST
    run.wait_nothing_left()
    assert "journal" in log.read_text()
    assert "Traceback" not in log.read_text()
    assert not run.run.path.exists()


def test_a_run_goes_on_with_another_secret_and_other_limits(begin: Begin) -> None:
    run = begin("telling")
    run.start(env={"SERVICE_TOKEN": "the-first-secret"})
    run.wait_open("receive")
    run.kill_hub()
    (run.workspace / "bartack.toml").write_text("[timeouts]\nshell = 7\nreceive = 77\n")

    run.start(env={"SERVICE_TOKEN": "another-secret"})
    run.api.send("go", "on")

    assert run.wait_hub() == 0, run.story()
    assert run.effects() == [f"the-first-secret {run.workspace}", "again"]


def test_a_run_goes_on_where_its_workspace_was_moved_to(begin: Begin, tmp_path: Path) -> None:
    run = begin_telling(begin)
    moved = tmp_path.with_name(f"{tmp_path.name}-moved")
    run.workspace.rename(moved)
    there = RealRun(RunDir(moved / run.run.path.relative_to(run.workspace)), moved)

    with there:
        there.start()
        there.api.send("go", "there")

        assert there.wait_hub() == 0, there.story()
        assert there.effects() == [f"none {tmp_path}", "again"]


def begin_telling(begin: Begin) -> RealRun:
    """A run that was killed when it had done half of its work."""
    run = begin("telling")
    run.start()
    run.wait_open("receive")
    run.kill_hub()
    run.wait_nothing_left()
    return run


def test_a_run_that_was_packed_and_unpacked_elsewhere_goes_on_in_the_workspace_it_is_given(
    begin: Begin, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    run = begin_telling(begin)
    archive = tmp_path / "run.tar"
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    subprocess.run(["tar", "-C", run.run.path.parent, "-cf", archive, run.run.id], check=True)
    subprocess.run(["tar", "-C", elsewhere, "-xf", archive], check=True)
    shutil.rmtree(run.workspace)
    workspace = tmp_path_factory.mktemp("workspace")

    with RealRun(RunDir(elsewhere / run.run.id), workspace) as there:
        with pytest.raises(ForeignRunError):
            there.api.resume(workspace=workspace)
        add_trusted(elsewhere)
        there.start()
        there.api.send("go", "elsewhere")

        assert there.wait_hub() == 0, there.story()
        assert there.api.result() == "elsewhere"
        assert there.effects() == []


def test_of_two_resumes_at_once_one_wins_and_the_other_says_why_not(begin: Begin) -> None:
    run = begin("waiting")
    run.start()
    run.wait_open("receive")
    run.kill_hub()
    hubs = [run.start(), run.start()]
    run.wait_entry(lambda entry: entry.kind == "hub.started" and entry.data["hub"] == 2)
    run.api.send("go", "on")

    codes = sorted(hub.wait(PATIENCE_S) for hub in hubs)

    assert codes == [0, 5], run.story()
    assert "BT" in run.run.log.read_text()
    assert run.count("hub.started") == 2
    run.wait_nothing_left()


def test_a_run_that_is_completed_is_not_resumed(begin: Begin) -> None:
    run = begin("huge", 10)
    assert run.finish() == 0

    with pytest.raises(ResumeRefusedError, match="completed"):
        run.api.resume()


def test_a_program_that_cannot_be_imported_makes_no_run(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("import nowhere_to_be_found\n")

    with pytest.raises(ProgramImportError, match="nowhere_to_be_found"):
        RealRun.create_from(tmp_path, "broken.py", "main")

    assert list(tmp_path.glob(".bartack/runs/*")) == []


@pytest.mark.parametrize("change", ["edited", "deleted"])
def test_a_program_that_is_changed_after_the_start_changes_nothing(begin: Begin, change: str) -> None:
    run = begin("waiting")
    file = run.workspace / "cases.py"
    if change == "deleted":
        file.unlink()
    else:
        file.write_text("raise SystemExit(3)\n")
    run.start()
    run.wait_open("receive")
    run.kill_hub()

    run.start()
    run.api.send("go", "on")

    assert run.wait_hub() == 0, run.story()
    assert run.api.result() == "on"
