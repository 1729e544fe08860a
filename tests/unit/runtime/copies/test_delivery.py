"""What a run has made comes into the repository of the user as branches, or into a directory as files."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.runtime.copies.places import Host, git, listing, make_repository

from bartack.errors import WorkspaceKeepError
from bartack.runtime.copies.values import Sources


class Trip:
    """A run that was submitted here and worked there."""

    def __init__(self, here: Host, there: Host) -> None:
        self.here, self.there = here, there
        make_repository(here.workspace)
        self.base = here.copies.take(here.sources, "").commit
        self.last = self.base
        here.send(there, self.base)

    def come_home(self, sources: Sources | None = None) -> str:
        """Make a copy there and bring it here; return its commit."""
        commit = self.there.copies.take(sources or self.there.sources, self.last).commit
        if commit != self.last:
            self.here.copies.add_pack(self.there.copies.pack(commit, self.last))
        self.last = commit
        return commit


@pytest.fixture
def trip(here: Host, there: Host) -> Trip:
    return Trip(here, there)


def test_uncommitted_work_is_one_commit_that_merges_with_one_command(trip: Trip) -> None:
    (trip.there.workspace / "made.txt").write_text("by an agent\n")
    (trip.there.workspace / "kept.txt").unlink()
    commit = trip.come_home()
    before = git(trip.here.workspace, "status", "--porcelain", "--branch")

    delivered = trip.here.copies.deliver(commit, trip.here.workspace, "run-1", trip.base)

    assert delivered.command == "git merge bartack/run-1/workspace"
    assert [*delivered.branches] == ["bartack/run-1/workspace"]
    assert delivered.refs == {
        "refs/bartack/run-1/copy/workspace": delivered.branches["bartack/run-1/workspace"]
    }
    assert git(trip.here.workspace, "status", "--porcelain", "--branch") == before
    git(trip.here.workspace, *delivered.command.split()[1:])
    assert listing(trip.here.workspace) == listing(trip.there.workspace)
    assert git(trip.here.workspace, "log", "--format=%s") == "What run-1 left in its workspace\nbegin"
    assert "work/" not in git(trip.here.workspace, "ls-tree", "-r", "--name-only", "bartack/run-1/workspace")


def test_commits_and_branches_of_the_run_are_delivered_as_they_are(trip: Trip) -> None:
    place = trip.there.workspace
    git(place, "branch", "side")
    (place / "made.txt").write_text("by an agent\n")
    git(place, "add", "-A")
    git(place, "commit", "--quiet", "-m", "work")
    commit = trip.come_home()

    delivered = trip.here.copies.deliver(commit, trip.here.workspace / ".git/..", "run-1", trip.base)

    head = git(place, "rev-parse", "HEAD")
    assert delivered.branches == {
        "bartack/run-1/workspace": head,
        "bartack/run-1/heads/main": head,
        "bartack/run-1/heads/side": git(place, "rev-parse", "side"),
    }
    assert git(trip.here.workspace, "log", "--format=%s", "bartack/run-1/workspace") == "work\nbegin"


def test_lanes_are_delivered_as_branches(trip: Trip, tmp_path: Path) -> None:
    lane = tmp_path / "there/task"
    git(trip.there.workspace, "worktree", "add", "--quiet", "-b", "bartack/run-1/task", str(lane))
    (lane / "open.txt").write_text("open")
    sources = Sources(trip.there.workspace, trip.there.run, {"task": lane})
    commit = trip.come_home(sources)

    delivered = trip.here.copies.deliver(commit, trip.here.workspace, "run-1", trip.base)

    assert {*delivered.branches} == {
        "bartack/run-1/workspace",
        "bartack/run-1/heads/task",
        "bartack/run-1/lanes/task",
    }
    assert git(trip.here.workspace, "show", "bartack/run-1/lanes/task:open.txt") == "open"


def test_a_second_delivery_moves_only_branches_that_no_person_uses(trip: Trip) -> None:
    (trip.there.workspace / "made.txt").write_text("one\n")
    first = trip.here.copies.deliver(trip.come_home(), trip.here.workspace, "run-1", trip.base)
    again = trip.here.copies.deliver(trip.last, trip.here.workspace, "run-1", trip.base)
    (trip.there.workspace / "made.txt").write_text("two\n")
    second = trip.here.copies.deliver(trip.come_home(), trip.here.workspace, "run-1", trip.base)
    git(trip.here.workspace, "switch", "--quiet", "bartack/run-1/workspace")
    (trip.there.workspace / "made.txt").write_text("three\n")
    third = trip.here.copies.deliver(trip.come_home(), trip.here.workspace, "run-1", trip.base)

    assert again == first
    assert [*second.branches] == ["bartack/run-1/workspace"]
    assert git(trip.here.workspace, "rev-parse", "HEAD") == second.branches["bartack/run-1/workspace"]
    [(branch, commit)] = third.branches.items()
    assert branch == f"bartack/run-1/workspace-{commit[:12]}"
    assert third.command == f"git merge {branch}"
    assert git(trip.here.workspace, "show", f"{branch}:made.txt") == "three"


def test_files_without_a_history_are_delivered_too(here: Host, there: Host, tmp_path: Path) -> None:
    (here.workspace / "made.txt").write_text("x")
    commit = here.copies.take(here.sources, "").commit
    theirs = make_repository(tmp_path / "theirs")

    delivered = here.copies.deliver(commit, theirs, "run-1")
    git(theirs, *delivered.command.split()[1:])

    assert (theirs / "made.txt").read_text() == "x"
    assert (theirs / "kept.txt").exists()


def test_hooks_of_the_repository_do_not_run(trip: Trip, tmp_path: Path) -> None:
    hooks = trip.here.workspace / ".git/hooks"
    hooks.mkdir()
    (hooks / "reference-transaction").write_text(f"#!/bin/sh\ntouch '{tmp_path}/trap'\n")
    (hooks / "reference-transaction").chmod(0o755)
    (trip.there.workspace / "made.txt").write_text("one\n")

    trip.here.copies.deliver(trip.come_home(), trip.here.workspace, "run-1", trip.base)

    assert not (tmp_path / "trap").exists()


def test_a_directory_that_is_not_a_repository_is_refused(trip: Trip, tmp_path: Path) -> None:
    with pytest.raises(WorkspaceKeepError, match="not a git repository"):
        trip.here.copies.deliver(trip.base, tmp_path, "run-1")


def test_files_are_written_into_an_empty_directory_only(trip: Trip, tmp_path: Path) -> None:
    (trip.there.workspace / "empty").mkdir()
    (trip.there.workspace / "link").symlink_to("kept.txt")
    commit = trip.come_home()

    trip.here.copies.write_files(commit, tmp_path / "new/files")

    assert listing(tmp_path / "new/files") == listing(trip.there.workspace)
    with pytest.raises(WorkspaceKeepError, match="not an empty directory"):
        trip.here.copies.write_files(commit, tmp_path / "new/files")
