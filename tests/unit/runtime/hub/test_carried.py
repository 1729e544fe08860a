"""The workspace that travels with a run: copied when the run is submitted, and brought to another machine."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from bartack.config.load import load_config
from bartack.config.sections import WorkspaceConfig
from bartack.depot.port import open_blob_port
from bartack.errors import WorkspaceCarryError
from bartack.journal import BlobRef
from bartack.runtime.copies.copies import PART_BYTES, open_copies
from bartack.runtime.copies.lanes import find_lanes
from bartack.runtime.copies.values import Sources
from bartack.runtime.hub.carried import bring_workspace, carry_workspace, top_of
from bartack.runtime.hub.create import RunRequest, create_run
from bartack.runtime.rundir.layout import RunDir
from bartack.runtime.state.copies import KeptCopies
from bartack.runtime.state.entries import WorkspaceKept

PROGRAM = (
    "from bartack import Context, worker\n\n@worker\nasync def main(ctx: Context) -> int:\n    return 1\n"
)


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A workspace in a directory of a repository, with a file that is ignored."""
    repository = tmp_path / "repository"
    place = repository / "part"
    place.mkdir(parents=True)
    (repository / ".gitignore").write_text(".env\n", "utf-8")
    (place / ".env").write_text("KEY=1\n", "utf-8")
    (place / "a.txt").write_text("a\n", "utf-8")
    subprocess.run(["git", "init", "--quiet", str(repository)], check=True, timeout=30)
    return place


class Journey:
    """A run that is submitted from a workspace, and brought to another machine."""

    def __init__(
        self, folder: Path, workspace: Path, config: WorkspaceConfig, part_bytes: int = PART_BYTES
    ) -> None:
        self.submitted = self._run(folder / "submitted")
        self.kept = KeptCopies()
        self._keep(*carry_workspace(self.submitted, workspace, config, part_bytes))
        self.elsewhere = self._run(folder / "elsewhere")
        self.top = folder / "work"

    def _run(self, path: Path) -> RunDir:
        run = RunDir(path / "run-20260101-000000-00000000")
        run.make()
        return run

    def _keep(self, kept: WorkspaceKept, pack: Sequence[BlobRef]) -> None:
        """Apply the entries of a copy."""
        for part in pack[:-1]:
            self.kept.add_part(part)
        self.kept.add(kept, pack[-1])

    def bring(self) -> Path:
        load = open_blob_port(self.submitted.blob_port()).get
        return Path(bring_workspace(self.elsewhere, self.kept, self.top, load))


def test_a_workspace_comes_to_another_machine_with_its_repository(tmp_path: Path, workspace: Path) -> None:
    journey = Journey(tmp_path, workspace, WorkspaceConfig())

    place = journey.bring()

    assert place == journey.top / "part"
    assert (place / "a.txt").read_text("utf-8") == "a\n"
    assert (journey.top / ".git").is_dir()
    assert top_of(journey.kept, str(place)) == journey.top


@pytest.mark.requirement("fleet-copy-parts")
def test_a_workspace_whose_pack_has_several_parts_comes_whole(tmp_path: Path, workspace: Path) -> None:
    (workspace / "noise.bin").write_bytes(os.urandom(10_000))
    journey = Journey(tmp_path, workspace, WorkspaceConfig(), part_bytes=1000)

    place = journey.bring()

    (pack,) = journey.kept.packs
    assert len(pack.parts) > 10
    assert {part.size for part in pack.parts[:-1]} == {1000}
    assert (place / "noise.bin").read_bytes() == (workspace / "noise.bin").read_bytes()


def test_ignored_files_travel_only_if_the_settings_name_them(tmp_path: Path, workspace: Path) -> None:
    without = Journey(tmp_path / "1", workspace, WorkspaceConfig()).bring()
    included = Journey(tmp_path / "2", workspace, WorkspaceConfig(include=[".env"])).bring()

    assert not (without / ".env").exists()
    assert (included / ".env").read_text("utf-8") == "KEY=1\n"


def test_a_run_whose_workspace_is_not_carried_begins_with_an_empty_one(
    tmp_path: Path, workspace: Path
) -> None:
    place = Journey(tmp_path, workspace, WorkspaceConfig(carry="none")).bring()

    assert list(place.iterdir()) == []


def test_what_is_there_already_stays_and_what_differs_is_replaced(tmp_path: Path, workspace: Path) -> None:
    journey = Journey(tmp_path, workspace, WorkspaceConfig())
    place = journey.bring()
    before = (place / "a.txt").stat()
    journey.bring()
    assert (place / "a.txt").stat() == before
    (place / "a.txt").write_text("changed\n", "utf-8")
    (place / "b.txt").write_text("a step was interrupted\n", "utf-8")

    journey.bring()

    assert (place / "a.txt").read_text("utf-8") == "a\n"
    assert not (place / "b.txt").exists()


def git(place: Path, *words: str) -> str:
    author = ("-c", "user.name=me", "-c", "user.email=me")
    done = subprocess.run(
        ["git", *author, *words], cwd=place, check=True, timeout=30, capture_output=True, text=True
    )
    return done.stdout


class Lanes(Journey):
    """A run with tasks side by side, whose latest copy has worktrees."""

    def __init__(self, folder: Path, workspace: Path) -> None:
        git(workspace, "add", "--all")
        git(workspace, "commit", "--quiet", "--message=begin")
        super().__init__(folder, workspace, WorkspaceConfig())
        self.at_work = self.bring().parent

    def open(self, name: str) -> Path:
        """Make a worktree as a task does, on the machine where the run is active."""
        lane = self.elsewhere.worktrees / name
        git(
            self.at_work, "worktree", "add", "--quiet", "-b", f"bartack/{self.elsewhere.id}/{name}", str(lane)
        )
        (lane / "draft.txt").write_text(name, "utf-8")
        return lane

    def keep(self) -> None:
        """Keep a copy as the hub does."""
        copies = open_copies(self.elsewhere.copies)
        assert self.kept.latest is not None
        sources = Sources(self.at_work, self.elsewhere.path, find_lanes(self.elsewhere.worktrees))
        copy = copies.take(sources, self.kept.latest.copy)
        blobs = open_blob_port(self.submitted.blob_port())
        pack = [blobs.put(part) for part in copies.pack(copy.commit, copy.parent)]
        self._keep(WorkspaceKept(copy=copy.commit, head=copy.head, refs=dict(copy.refs)), pack)

    def take_over(self) -> Path:
        """Bring the run to a third machine; its worktrees there."""
        self.elsewhere = self._run(self.top.parent / "third/runs")
        self.top = self.top.parent / "third/work"
        self.at_work = self.bring().parent
        return self.elsewhere.worktrees


def test_worktrees_come_to_another_machine_but_none_that_is_still_being_made(
    tmp_path: Path, workspace: Path
) -> None:
    journey = Lanes(tmp_path, workspace)
    journey.open("whole")
    journey.open("half")
    (journey.at_work / ".git/worktrees/half/locked").write_text("initializing", "utf-8")
    (journey.elsewhere.worktrees / "moved").mkdir()
    (journey.elsewhere.worktrees / "moved/.git").write_bytes(
        (journey.elsewhere.worktrees / "whole/.git").read_bytes()
    )
    journey.keep()

    there = journey.take_over()

    assert [path.name for path in there.iterdir()] == ["whole"]
    assert (there / "whole/draft.txt").read_text("utf-8") == "whole"
    assert git(there / "whole", "symbolic-ref", "HEAD").strip().endswith("/whole")
    assert git(there / "whole", "status", "--porcelain") == "?? draft.txt\n"


def test_worktrees_that_a_later_copy_does_not_have_are_gone_and_their_branches_are_free(
    tmp_path: Path, workspace: Path
) -> None:
    journey = Lanes(tmp_path, workspace)
    journey.open("one")
    journey.keep()
    journey.open("two")

    journey.bring()

    assert [path.name for path in journey.elsewhere.worktrees.iterdir()] == ["one"]
    assert git(journey.at_work, "worktree", "list", "--porcelain").count("\nbranch ") == 2
    journey.open("two")
    journey.keep()
    git(journey.at_work, "worktree", "remove", "--force", str(journey.elsewhere.worktrees / "two"))
    journey.bring()
    assert (journey.elsewhere.worktrees / "two/draft.txt").exists()


@pytest.mark.requirement("fleet-carry")
def test_no_run_is_made_of_a_workspace_that_is_too_large(workspace: Path) -> None:
    (workspace / "main.py").write_text(PROGRAM, "utf-8")
    with (workspace / "large.bin").open("wb") as large:
        large.truncate((64 << 20) + 1)

    with pytest.raises(WorkspaceCarryError, match=r"large\.bin"):
        create_run(RunRequest(program="main.py"), workspace, load_config(workspace), is_carried=True)

    assert list((workspace / ".bartack/runs").iterdir()) == []


# What a power cut may leave: nothing of it is synced.


def tear_objects(top: Path, copies: Path) -> None:
    found = list(copies.glob("objects/??/*"))
    assert found
    for path in found:
        path.chmod(0o600)
        path.write_bytes(b"")


def tear_packs(top: Path, copies: Path) -> None:
    found = list(copies.glob("objects/pack/*.pack"))
    assert found
    for path in found:
        path.chmod(0o600)
        os.truncate(path, path.stat().st_size // 2)


def tear_index(top: Path, copies: Path) -> None:
    (copies / "watched/workspace/index").write_bytes(b"DIRC")


def tear_head(top: Path, copies: Path) -> None:
    (copies / "HEAD").write_bytes(b"")


def tear_repository(top: Path, copies: Path) -> None:
    tear_objects(top, top / ".git")
    (top / ".git/index").write_bytes(b"")


TEARS = [tear_objects, tear_packs, tear_index, tear_head, tear_repository]


def worked(folder: Path, workspace: Path) -> Lanes:
    """A run whose copies here are those that came with it, and one that was made here."""
    journey = Lanes(folder, workspace)
    (journey.at_work / "part/a.txt").write_text("by an agent\n", "utf-8")
    git(journey.at_work, "commit", "--quiet", "--all", "--message=work")
    journey.keep()
    return journey


@pytest.mark.requirement("fleet-copies-torn")
@pytest.mark.parametrize("tear", TEARS)
def test_copies_that_are_damaged_here_are_fetched_again(
    tmp_path: Path, workspace: Path, tear: Callable[[Path, Path], None]
) -> None:
    journey = worked(tmp_path, workspace)
    (journey.at_work / "part/a.txt").write_text("lost\n", "utf-8")
    tear(journey.at_work, journey.elsewhere.copies)

    place = journey.bring()

    assert (place / "a.txt").read_text("utf-8") == "by an agent\n"
    git(journey.at_work, "fsck", "--strict")


@pytest.mark.requirement("fleet-copies-torn")
@pytest.mark.parametrize("tear", TEARS)
def test_nothing_that_was_written_before_the_machine_started_is_relied_on(
    tmp_path: Path, workspace: Path, tear: Callable[[Path, Path], None]
) -> None:
    journey = worked(tmp_path, workspace)
    tear(journey.at_work, journey.elsewhere.copies)
    (journey.elsewhere.copies / "boot").write_text("another one", "utf-8")
    place = journey.bring()
    (place / "b.txt").write_text("b\n", "utf-8")
    journey.keep()

    journey.take_over()

    assert (journey.top / "part/a.txt").read_text("utf-8") == "by an agent\n"
    assert (journey.top / "part/b.txt").exists()
    git(journey.top, "fsck", "--strict")
