"""Branches that are pushed at the end of a run: tried several times, and then reported."""

from __future__ import annotations

import subprocess
from functools import partial
from pathlib import Path

import pytest
from tests.unit.runtime.hub.test_carried import Journey

from bartack.config.sections import WorkspaceConfig
from bartack.depot.port import open_blob_port
from bartack.errors import WorkspaceRemoteError
from bartack.runtime.hub.carried import fetch_copies
from bartack.runtime.hub.workspace.publication import WAITS_S, publish
from bartack.runtime.state.run_state import State


def run_git(place: Path, *words: str) -> None:
    subprocess.run(["git", *words], cwd=place, check=True, timeout=60)


class Ended:
    """A run that is completed, and whose branches are to be pushed to a repository that may not be there."""

    def __init__(self, folder: Path) -> None:
        workspace = folder / "mine"
        workspace.mkdir()
        self.remote = folder / "remote.git"
        run_git(workspace, "init", "--quiet")
        run_git(workspace, "remote", "add", "origin", "../remote.git")
        (workspace / "a.txt").write_text("a\n", "utf-8")
        self.journey = Journey(folder, workspace, WorkspaceConfig(push="origin"))
        self.state = State()
        self.state.copies = self.journey.kept
        self.waited: list[float] = []
        self.said: list[str] = []

    def publish(self, give_up_at: float = -1.0) -> str | None:
        def wait(seconds: float) -> bool:
            self.waited.append(seconds)
            return seconds == give_up_at

        load = open_blob_port(self.journey.submitted.blob_port()).get
        run = self.journey.elsewhere
        fetch = partial(fetch_copies, run, self.state.copies, load, with_first=True)
        return publish(run, self.state, fetch, wait, self.said.append)

    def make_remote(self) -> None:
        run_git(self.remote.parent, "init", "--quiet", "--bare", str(self.remote))


@pytest.fixture
def ended(tmp_path: Path) -> Ended:
    return Ended(tmp_path)


@pytest.mark.requirement("fleet-push")
def test_what_was_pushed_is_named(ended: Ended) -> None:
    ended.make_remote()

    note = ended.publish()

    run = ended.journey.elsewhere.id
    assert note == f"pushed to file://{ended.remote}: bartack/{run}/workspace"
    assert ended.waited == [0.0]


@pytest.mark.requirement("fleet-push-fails")
def test_branches_that_cannot_be_pushed_are_tried_again_and_then_reported(ended: Ended) -> None:
    note = ended.publish()

    assert note is not None
    assert note.startswith("its branches are not pushed, bring them with 'bartack pull': ")
    assert "remote.git" in note
    assert ended.waited == [0.0, *WAITS_S]
    assert len(ended.said) == len(ended.waited)


def test_a_node_that_stops_leaves_it_to_the_next_owner(ended: Ended) -> None:
    assert ended.publish(give_up_at=WAITS_S[0]) is None
    assert ended.waited == [0.0, WAITS_S[0]]


def test_a_remote_that_is_not_there_is_refused_when_the_run_is_made(tmp_path: Path) -> None:
    workspace = tmp_path / "mine"
    workspace.mkdir()

    with pytest.raises(WorkspaceRemoteError, match="not in a git repository"):
        Journey(tmp_path, workspace, WorkspaceConfig(push="origin"))
