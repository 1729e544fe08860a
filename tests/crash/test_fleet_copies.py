"""Workspaces of runs on nodes that are killed: the files of every finished step are there on the next node."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import cast

import pytest
from tests.crash.test_fleet import LIMIT_S, STEPS, Fleet
from tests.waiting import until

PROGRAMS = Path(__file__).with_name("programs")
EDITS = PROGRAMS / "edits.py"
LONG = PROGRAMS / "long_edit.py"
NUMBERS = [str(number) for number in range(STEPS)]


class Travelling(Fleet):
    """A fleet whose runs have workspaces of their own, made of a git repository."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.repository = folder / "workspace"
        self.git("init", "--quiet", "--initial-branch=main")
        for name in ("user.name", "user.email"):
            self.git("config", name, "me")
        for program in (EDITS, LONG):
            (self.repository / program.name).write_bytes(program.read_bytes())
        (self.repository / "bartack.toml").write_text("[workspace]\nduring_s = 1.0\n", "utf-8")
        (self.repository / ".gitignore").write_text("__pycache__\n", "utf-8")
        self.git("add", ".")
        self.git("commit", "--quiet", "-m", "begin")
        (self.repository / "uncommitted.txt").write_text("mine\n", "utf-8")

    def set_up(self, script: str) -> None:
        """Let nodes prepare workspaces with this script of the shell."""
        words = json.dumps(["sh", "-c", script])
        (self.repository / "bartack.toml").write_text(f"[workspace]\nsetup = {words}\n", "utf-8")

    def git(self, *words: str) -> str:
        done = subprocess.run(
            ["git", *words], cwd=self.repository, capture_output=True, text=True, check=False, timeout=LIMIT_S
        )
        assert not done.returncode, done.stdout + done.stderr
        return done.stdout

    def edits(self) -> subprocess.Popen[bytes]:
        return self.start("run", "--on", self.url, EDITS.name, str(self.effects), str(STEPS))

    def named(self, name: str) -> subprocess.Popen[bytes]:
        return self._nodes[name]

    def call(self, *words: str) -> str:
        """Run a command to its end; what it has written."""
        before = len(self.output())
        assert self.start(*words).wait(LIMIT_S) == 0, self.output()
        return self.output()[before:]

    def call_python(self, code: str) -> str:
        """Execute a program; what it has written."""
        done = subprocess.run(
            [sys.executable, "-c", code],
            cwd=self.repository,
            env=self._env,
            capture_output=True,
            text=True,
            check=False,
            timeout=LIMIT_S,
        )
        assert not done.returncode, done.stdout + done.stderr
        return done.stdout

    def run_ids(self) -> list[str]:
        return [str(row[0]) for row in self.rows("SELECT id FROM bartack.run ORDER BY no")]

    def lines(self) -> list[str]:
        """The lines of the run, as the database has them."""
        rows = self.rows("SELECT lines FROM bartack.journal ORDER BY seq")
        return [line for (lines,) in rows for line in bytes(cast("bytes", lines)).decode().splitlines()]

    def workspaces(self) -> set[str]:
        """Where the run has worked."""
        moves = [line for line in self.lines() if '"run.moved"' in line]
        return {str(json.loads(line)["data"]["workspace"]) for line in moves}


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Travelling]:
    made = Travelling(tmp_path)
    yield made
    made.close()


@pytest.mark.requirement("fleet-copies")
@pytest.mark.requirement("fleet-settings")
@pytest.mark.requirement("pull-files")
def test_the_next_node_has_the_files_of_every_finished_step_and_pull_brings_them(
    fleet: Travelling, tmp_path: Path
) -> None:
    fleet.node("one")
    fleet.node("two")
    fleet.git("init", "--quiet", "nested")
    follower = fleet.edits()
    owning = fleet.owning()
    owning.kill()
    owning.wait(LIMIT_S)

    fleet.check(follower, repeated=1)
    # A step whose effects were repeated began with the files that the last finished step had left.
    pulled = fleet.call("pull", "latest", "--on", fleet.url, "--dir", str(tmp_path / "files"))
    assert f"the copy leaves something out: bartack show {fleet.run_ids()[0]} names it" in pulled
    shown = fleet.call("show", "latest", "--on", fleet.url)
    assert "nested is a repository without a commit and is not copied" in shown
    assert (tmp_path / "files/log.txt").read_text("utf-8").split() == NUMBERS
    assert (tmp_path / "files/notes.txt").read_text("utf-8").split() == NUMBERS
    assert (tmp_path / "files/uncommitted.txt").read_text("utf-8") == "mine\n"
    assert "bartack.toml" in fleet.git("ls-files")
    assert not (fleet.repository / "log.txt").exists(), "the workspace of the submitter is left alone"
    assert len({Path(place).parents[1] for place in fleet.workspaces()}) == 2, "each node has its own"

    (fleet.repository / "uncommitted.txt").unlink()
    merge = fleet.call("pull", "latest", "--on", fleet.url).splitlines()[-1]
    assert merge.startswith("git merge bartack/run-")
    fleet.git(*merge.split()[1:])
    assert (fleet.repository / "log.txt").read_text("utf-8").split() == NUMBERS


@pytest.mark.requirement("fleet-copies-fork")
@pytest.mark.requirement("fleet-copies-start")
def test_a_run_that_a_program_starts_is_forked_with_the_files_and_settings_of_the_step(
    fleet: Travelling, tmp_path: Path
) -> None:
    fleet.node("one")
    words = repr(EDITS.name), repr(str(fleet.effects)), "2", f"on={fleet.url!r}"
    code = f"from bartack import Run; print(Run.start({', '.join(words)}).wait().status)"
    done = fleet.call_python(code)
    assert done.splitlines()[-1] == "completed"
    (first,) = fleet.run_ids()

    shown = fleet.call("fork", first, "--at", "4", "--on", fleet.url)
    assert "its files are those of that step" in shown
    (fork,) = [run for run in fleet.run_ids() if run != first]
    fleet.call("pull", fork, "--on", fleet.url, "--dir", str(tmp_path / "at_fork"))
    fleet.call("resume", fork, "--on", fleet.url)
    fleet.call("pull", fork, "--on", fleet.url, "--dir", str(tmp_path / "after"))

    assert (tmp_path / "at_fork/log.txt").read_text("utf-8").split() == ["0"]
    assert (tmp_path / "at_fork/notes.txt").read_text("utf-8").split() == ["0"]
    assert (tmp_path / "after/log.txt").read_text("utf-8").split() == ["0", "1"]
    assert (tmp_path / "after/notes.txt").read_text("utf-8").split() == ["0", "1"]
    assert fleet.done() == ["0", "1", "1"]
    assert "during_s = 1.0" in (fleet.seat("one") / "runs" / fork / "bartack.toml").read_text("utf-8")


@pytest.mark.requirement("fleet-copies-during")
def test_a_long_step_is_executed_again_with_the_files_of_a_copy_during_it(fleet: Travelling) -> None:
    fleet.node("one")
    follower = fleet.start("run", "--on", fleet.url, LONG.name)
    until(
        lambda: any('"workspace.kept"' in line and '"during":true' in line for line in fleet.lines()),
        "a copy during the step",
    )
    fleet.node("two")
    node = fleet.named("one")
    node.kill()
    node.wait(LIMIT_S)

    assert follower.wait(LIMIT_S) == 0, fleet.output() + fleet.hub_log()
    assert "again" in fleet.output().splitlines()


@pytest.mark.requirement("fleet-copies-here")
def test_a_run_of_a_dead_node_continues_here_with_its_files(fleet: Travelling) -> None:
    fleet.node("one")
    follower = fleet.edits()
    owning = fleet.owning()
    owning.kill()
    owning.wait(LIMIT_S)
    follower.terminate()
    follower.wait(LIMIT_S)
    fleet.rows("UPDATE bartack.node SET until = until - interval '1 minute'")

    fleet.call("resume", "latest", "--on", fleet.url, "--here")

    (workspace,) = fleet.repository.glob(".bartack/runs/*/workspace")
    assert (workspace / "log.txt").read_text("utf-8").split() == NUMBERS
    assert (workspace / "notes.txt").read_text("utf-8").split() == NUMBERS
    assert not (fleet.repository / "log.txt").exists()


@pytest.mark.requirement("fleet-setup")
@pytest.mark.requirement("fleet-setup-stops")
def test_a_workspace_is_prepared_once_on_a_machine_whose_node_is_killed_meanwhile(
    fleet: Travelling, tmp_path: Path
) -> None:
    begun, may_end = tmp_path / "begun", tmp_path / "may_end"
    fleet.set_up(f"echo $$ $PGPASSWORD $BARTACK_ON >> {begun}; test -e {may_end} || sleep 600; echo ready")
    node = fleet.node("one")
    follower = fleet.edits()
    until(begun.exists, "the command to begin")
    node.kill()
    node.wait(LIMIT_S)
    may_end.touch()

    node = fleet.node("one")
    fleet.owning().kill()
    node.wait(LIMIT_S)
    fleet.node("one")

    fleet.check(follower, repeated=1)
    lines = begun.read_text("utf-8").splitlines()
    assert len(lines) == 2, "one was killed with its node, and one was enough"
    assert all(line.isdigit() for line in lines), "nothing of the database is in their environment"
    assert not Path(f"/proc/{lines[0]}").exists()
    (run,) = fleet.run_ids()
    assert (fleet.seat("one") / "runs" / run / "setup.log").read_text("utf-8") == "ready\n"
    assert "prepared by sh -c" in fleet.call("show", run, "--on", fleet.url)


@pytest.mark.requirement("fleet-setup-strikes")
def test_a_run_whose_preparation_takes_three_nodes_down_is_held(fleet: Travelling, tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    fleet.set_up(f"echo $$ >> {begun}; sleep 600")
    follower = fleet.edits()

    def has_begun(times: int) -> bool:
        return begun.exists() and len(begun.read_text("utf-8").split()) == times

    for death in range(3):
        node = fleet.node("one")
        until(partial(has_begun, death + 1), "the command to begin")
        node.kill()
        node.wait(LIMIT_S)

    fleet.node("one")

    ((state, reason),) = fleet.rows("SELECT state, reason FROM bartack.owner")
    assert (state, reason) == (
        "held",
        "its node died for the third time, and no step was finished in between",
    )
    assert follower.wait(LIMIT_S) != 0


@pytest.mark.requirement("fleet-setup-fails")
def test_a_node_where_the_workspace_cannot_be_prepared_leaves_the_run_to_others(fleet: Travelling) -> None:
    fleet.set_up("case $PWD in */one/*) echo no compiler here; exit 3;; esac")
    fleet.node("one")
    follower = fleet.start("run", "--on", fleet.url, EDITS.name, str(fleet.effects), "1")
    assert follower.wait(LIMIT_S) != 0, "it is held: the only node has refused it"
    assert "it ended with 3: no compiler here" in fleet.output()

    fleet.node("two")
    fleet.call("resume", "latest", "--on", fleet.url)

    assert fleet.done() == ["0"]
    (place,) = fleet.workspaces()
    assert Path(place).parents[1].name == "two"


@pytest.mark.requirement("fleet-push")
@pytest.mark.requirement("fleet-push-once")
def test_the_branches_of_a_run_are_pushed_by_the_next_owner_if_its_node_is_killed_meanwhile(
    fleet: Travelling, tmp_path: Path
) -> None:
    remote, traces = tmp_path / "remote.git", tmp_path / "traces"
    fleet.git("remote", "add", "origin", str(remote))
    (fleet.repository / "bartack.toml").write_text('[workspace]\npush = "origin"\n', "utf-8")
    node = fleet.node("one")
    words = ("run", "--on", fleet.url, EDITS.name, str(fleet.effects), "1")
    assert fleet.start(*words).wait(LIMIT_S) == 0, fleet.output()
    until(lambda: "its branches are not pushed yet" in fleet.output(), "an attempt without a remote")
    node.kill()
    node.wait(LIMIT_S)
    fleet.git("init", "--quiet", "--bare", str(remote))
    hook = remote / "hooks/post-receive"
    hook.write_text(f"#!/bin/sh\ntouch {traces}\n", "utf-8")
    hook.chmod(0o755)

    fleet.node("one")
    until(lambda: fleet.rows("SELECT 1 FROM bartack.owner WHERE state = 'over'"), "the end of the run")

    (run,) = fleet.run_ids()
    branch = f"bartack/{run}/workspace"
    fleet.git("fetch", "--quiet", "origin", branch)
    assert fleet.git("show", "FETCH_HEAD:log.txt") == "0\n"
    assert fleet.git("show", "FETCH_HEAD:uncommitted.txt") == "mine\n"
    assert fleet.git("rev-parse", "FETCH_HEAD~") == fleet.git("rev-parse", "HEAD")
    assert not traces.exists(), "no hook is executed"
    for command in ("status", "show"):
        assert f"pushed to file://{remote}: {branch}" in fleet.call(command, run, "--on", fleet.url)


@pytest.mark.requirement("carry-remote")
@pytest.mark.requirement("carry-remote-refused")
def test_nodes_fetch_the_history_from_a_remote_and_refuse_a_run_whose_base_they_cannot_fetch(
    fleet: Travelling, tmp_path: Path
) -> None:
    remote, away = tmp_path / "remote.git", tmp_path / "away.git"
    fleet.git("init", "--quiet", "--bare", str(remote))
    fleet.git("remote", "add", "origin", str(remote))
    fleet.git("push", "--quiet", "origin", "main")
    base = fleet.git("rev-parse", "HEAD").strip()
    words = (
        "run",
        "--on",
        fleet.url,
        "--detach",
        "--carry",
        "remote",
        EDITS.name,
        str(fleet.effects),
        "1",
    )
    assert fleet.start(*words).wait(LIMIT_S) == 0, fleet.output()
    remote.rename(away)
    fleet.node("one")
    until(
        lambda: fleet.rows("SELECT 1 FROM bartack.owner WHERE state = 'held'"), "the only node to refuse it"
    )
    ((reason,),) = fleet.rows("SELECT reason FROM bartack.owner")
    assert f"{base} cannot be fetched" in str(reason)

    away.rename(remote)
    fleet.call("resume", "latest", "--on", fleet.url)

    (fleet.repository / "uncommitted.txt").unlink()
    merge = fleet.call("pull", "latest", "--on", fleet.url).splitlines()[-1]
    fleet.git(*merge.split()[1:])
    assert (fleet.repository / "log.txt").read_text("utf-8") == "0\n"
    (place,) = map(Path, fleet.workspaces())
    assert (place / ".git").is_dir()
    assert not list((tmp_path / "state").glob("**/mirrors/*.git")), "the repository here has the base"
