"""Workspaces whose history other machines fetch from a remote: what travels, and what is refused."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest
from tests.unit.runtime.copies.places import git, listing, make_repository
from tests.unit.runtime.hub.test_carried import Journey

from bartack.config.sections import WorkspaceConfig
from bartack.depot.port import open_blob_port
from bartack.errors import WorkspaceRemoteError
from bartack.runtime.copies import _repository
from bartack.runtime.copies.mirrors import Base, fetch_base
from bartack.runtime.copies.values import Sources
from bartack.runtime.hub.carried import bring_workspace, fetch_copies
from bartack.runtime.rundir.layout import RunDir
from bartack.runtime.state import entries as e
from bartack.runtime.state.copies import KeptCopies

LARGE = 300_000


class Project:
    """A repository whose history is in a remote, but for one commit."""

    def __init__(self, folder: Path) -> None:
        self.place = make_repository(folder / "project")
        self.remote = folder / "remote.git"
        git(folder, "init", "--quiet", "--bare", "--template=", str(self.remote))
        (self.place / "large").write_bytes(os.urandom(LARGE))
        git(self.place, "add", "-A")
        git(self.place, "commit", "--quiet", "-m", "large")
        git(self.place, "tag", "v1")
        git(self.place, "remote", "add", "origin", str(self.remote))
        git(self.place, "push", "--quiet", "origin", "main", "v1")
        self.base = git(self.place, "rev-parse", "HEAD")
        git(self.place, "commit", "--quiet", "--allow-empty", "-m", "mine")
        (self.place / "uncommitted.txt").write_text("mine\n")

    def tag_beside(self) -> None:
        """Make a tag that is not in the history."""
        git(self.place, "checkout", "--quiet", "--detach")
        git(self.place, "commit", "--quiet", "--allow-empty", "-m", "beside")
        git(self.place, "tag", "beside")
        git(self.place, "checkout", "--quiet", "main")


class Machine:
    """Another machine, with mirrors of its own."""

    def __init__(self, folder: Path, journey: Journey) -> None:
        self.run = RunDir(folder / "run-20260101-000000-00000000")
        self.run.make()
        self.top = folder / "work"
        self.mirrors = folder / "mirrors"
        self.load = open_blob_port(journey.submitted.blob_port()).get

    def bring(self, kept: KeptCopies) -> Path:
        return Path(bring_workspace(self.run, kept, self.top, self.load, self.mirrors))


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def carried(project: Project, carry: str = "remote") -> Journey:
    config = WorkspaceConfig(carry="remote" if carry == "remote" else "auto")
    return Journey(project.remote.parent, project.place, config)


def size_of(kept: KeptCopies) -> int:
    return sum(pack.size for pack in kept.packs)


@pytest.mark.requirement("carry-remote")
def test_only_what_the_remote_lacks_travels_and_the_whole_history_is_there(
    project: Project, tmp_path: Path
) -> None:
    project.tag_beside()
    journey = carried(project)

    place = Machine(tmp_path / "there", journey).bring(journey.kept)

    assert size_of(journey.kept) < LARGE / 2
    assert listing(place) == listing(project.place)
    assert git(place, "log", "--format=%s").splitlines() == ["mine", "large", "begin"]
    assert git(place, "tag").splitlines() == ["v1"]
    assert git(place, "status", "--porcelain") == "?? uncommitted.txt"
    assert journey.kept.first is not None
    assert [sentence[:6] for sentence in journey.kept.first.left_out] == ["1 tags"]
    git(place, "fsck", "--strict")


@pytest.mark.requirement("carry-remote")
def test_packs_of_later_copies_and_of_all_in_one_lack_the_history_too(
    project: Project, tmp_path: Path
) -> None:
    journey = carried(project)
    machine = Machine(tmp_path / "there", journey)
    machine.bring(journey.kept)
    (machine.top / "made.txt").write_text("by an agent\n")
    copies = fetch_copies(machine.run, journey.kept, machine.load)
    assert journey.kept.latest is not None
    parent = journey.kept.latest.copy
    made = copies.take(Sources(machine.top, machine.run.path), parent).commit
    port = open_blob_port(journey.submitted.blob_port())
    (pack,) = map(port.put, copies.pack(made))
    (thin,) = map(port.put, copies.pack(made, parent))
    journey.kept.add(e.WorkspaceKept(copy=made, parent=parent), thin)
    journey.kept.replace(made, pack)

    third = Machine(tmp_path / "third", journey)
    third.bring(journey.kept)

    assert pack.size < LARGE / 2
    assert listing(third.top) == listing(machine.top)
    assert git(third.top, "log", "--format=%s") == git(project.place, "log", "--format=%s")


def test_a_mirror_serves_all_runs_of_its_url_at_the_same_time(project: Project, tmp_path: Path) -> None:
    journey = carried(project)
    machines = [Machine(tmp_path / name, journey) for name in ("one", "two")]
    for machine in machines:
        machine.mirrors = tmp_path / "mirrors"
    threads = [threading.Thread(target=machine.bring, args=(journey.kept,)) for machine in machines]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    project.remote.rename(tmp_path / "away")
    third = Machine(tmp_path / "three", journey)
    third.mirrors = tmp_path / "mirrors"
    third.bring(journey.kept)

    assert all(listing(one.top) == listing(project.place) for one in (*machines, third))
    assert len(list((tmp_path / "mirrors").glob("*.git"))) == 1


@pytest.mark.requirement("carry-remote-refused")
def test_a_commit_that_is_gone_from_the_remote_is_named(project: Project, tmp_path: Path) -> None:
    journey = carried(project)
    git(project.remote, "update-ref", "-d", "refs/tags/v1")
    git(project.remote, "update-ref", "refs/heads/main", git(project.place, "rev-parse", "HEAD~2"))
    git(project.remote, "gc", "--quiet", "--prune=now")

    with pytest.raises(WorkspaceRemoteError, match=f"{project.base} cannot be fetched"):
        Machine(tmp_path / "there", journey).bring(journey.kept)


def test_a_commit_that_its_branch_has_lost_is_fetched_by_its_name(project: Project, tmp_path: Path) -> None:
    git(project.remote, "config", "uploadpack.allowAnySHA1InWant", "true")
    journey = carried(project)
    git(project.remote, "update-ref", "-d", "refs/tags/v1")
    git(project.remote, "update-ref", "refs/heads/main", git(project.place, "rev-parse", "HEAD~2"))

    place = Machine(tmp_path / "there", journey).bring(journey.kept)

    assert listing(place) == listing(project.place)


@pytest.mark.requirement("carry-remote")
def test_a_large_history_is_fetched_from_a_remote_if_that_has_it(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_repository, "AUTO_BYTES", -1)
    without = carried(project, "auto").kept
    assert without.first is not None
    assert without.first.base is None, "a path may not be on other machines"
    assert "only the commit that is checked out" in without.first.left_out[0]

    settings = tmp_path / "gitconfig"
    settings.write_text(f'[url "file://{project.remote}"]\n\tinsteadOf = https://host/a.git\n')
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(settings))
    git(project.place, "remote", "set-url", "origin", "https://host/a.git")
    again = tmp_path / "again"
    again.mkdir()
    journey = Journey(again, project.place, WorkspaceConfig())
    place = Machine(tmp_path / "there", journey).bring(journey.kept)

    assert journey.kept.first is not None
    assert journey.kept.first.base == e.RemoteBase("https://host/a.git", "refs/heads/main", project.base)
    assert git(place, "log", "--format=%s").splitlines() == ["mine", "large", "begin"]


def test_a_remote_that_lacks_all_of_the_history_is_refused_when_the_run_is_made(
    project: Project, tmp_path: Path
) -> None:
    git(project.place, "checkout", "--quiet", "--orphan", "other")
    git(project.place, "commit", "--quiet", "-m", "another beginning")

    with pytest.raises(WorkspaceRemoteError, match="no commit of the history"):
        carried(project)
    project.remote.rename(tmp_path / "away")
    with pytest.raises(WorkspaceRemoteError, match=r"remote\.git"):
        carried(project)


@pytest.mark.requirement("remotes-are-plain")
@pytest.mark.parametrize(
    "base",
    [
        Base("ext::touch started", "refs/heads/main", "0" * 40),
        Base("--upload-pack=touch started", "refs/heads/main", "0" * 40),
        Base("file:///nowhere", "--upload-pack=touch started", "0" * 40),
        Base("file:///nowhere", "refs/heads/main:refs/kept/main", "0" * 40),
        Base("file:///nowhere", "refs/heads/../../main", "0" * 40),
        Base("file:///nowhere", "refs/heads/main", "--upload-pack=touch started"),
    ],
)
def test_what_a_journal_names_is_no_command_of_git(
    base: Base, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    with pytest.raises(WorkspaceRemoteError):
        fetch_base(tmp_path / "mirrors", base)

    assert [path.name for path in tmp_path.rglob("*.git")] == []
