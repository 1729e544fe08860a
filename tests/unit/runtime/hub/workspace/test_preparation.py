"""``workspace.setup``: what prepares a workspace that was made from a copy, once on each machine."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from tests.unit.runtime.hub.test_carried import Journey, Lanes, git
from tests.waiting import until

from bartack.config.sections import WorkspaceConfig
from bartack.errors import TreeLockedError, WorkspaceSetupError
from bartack.runtime.hub.workspace.preparation import LOG, Terms, prepare_workspace
from bartack.runtime.hub.workspace.prepared import Prepared
from bartack.runtime.state import entries as e
from bartack.runtime.state.run_state import State
from bartack.supervision.process.lease import LeasePage
from bartack.supervision.process.lock import take_tree_lock


class Host:
    """A machine that continues a run whose workspace is a file and a pattern of ignored ones."""

    def __init__(self, journey: Journey) -> None:
        self.journey = journey
        self.run = self.journey.elsewhere
        self.terms = Terms(os.environ)
        self.state = State()
        self.state.run = e.RunCreated(
            run=self.run.id, worker="m:main", name="main", program="", workspace="", root="", seed=0
        )
        self.state.copies = self.journey.kept

    def prepare(self, script: str, timeout_s: float = 60.0, run_as: str = "") -> Prepared | None:
        place = str(self.journey.bring())
        config = WorkspaceConfig(setup=["sh", "-c", script], setup_timeout_s=timeout_s)
        assert self.state.run is not None
        self.state.run = msgspec.structs.replace(self.state.run, run_as=run_as)
        return prepare_workspace(self.run, self.state, self.journey.top, place, config, self.terms)

    def lines(self, name: str) -> list[str]:
        path = self.journey.top / name
        return path.read_text("utf-8").split() if path.exists() else []


def make_files(folder: Path) -> Path:
    workspace = folder / "mine"
    workspace.mkdir()
    (workspace / "a.txt").write_text("a\n", "utf-8")
    (workspace / ".gitignore").write_text("made*\n", "utf-8")
    return workspace


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    made = Host(Journey(tmp_path, make_files(tmp_path), WorkspaceConfig()))
    yield made
    os.close(take_tree_lock(str(made.run.tree_lock), 30.0))  # nothing of a command is left


@pytest.mark.requirement("fleet-setup")
def test_the_command_is_executed_once_on_a_machine(host: Host) -> None:
    done = host.prepare("echo $BARTACK_RUN >> made; echo hello; echo trouble >&2")
    again = host.prepare("echo $BARTACK_RUN >> made; echo hello; echo trouble >&2")

    assert done is not None
    assert done.output == "hello\ntrouble\n"
    assert (host.run.path / LOG).read_text("utf-8") == "hello\ntrouble\n"
    assert again is None
    assert host.lines("made") == [host.run.id]


def test_another_command_is_executed_and_so_is_one_in_a_workspace_that_was_made_anew(host: Host) -> None:
    host.prepare("echo 1 >> made")
    host.prepare("echo 2 >> made")
    host.journey.top.rename(host.journey.top.with_name("away"))
    host.prepare("echo 2 >> made")

    assert host.lines("made") == ["2"]
    assert (host.journey.top.with_name("away") / "made").read_text("utf-8") == "1\n2\n"


def test_files_that_are_ignored_stay_when_the_workspace_is_restored_to_another_copy(host: Host) -> None:
    host.prepare("echo 1 >> made")
    (host.journey.top / "a.txt").write_text("changed since\n", "utf-8")

    assert host.prepare("echo 1 >> made") is None
    assert host.lines("made") == ["1"]
    assert host.lines("a.txt") == ["a"]


@pytest.mark.requirement("fleet-setup")
def test_worktrees_of_tasks_are_not_changes_of_the_command(tmp_path: Path) -> None:
    repository = tmp_path / "repository"
    repository.mkdir()
    git(repository, "init", "--quiet")
    journey = Lanes(tmp_path, make_files(repository))
    journey.open("one")
    journey.keep()
    host = Host(journey)
    host.prepare("echo 1 >> made")
    (host.journey.top / "mine/a.txt").write_text("changed since\n", "utf-8")

    assert host.prepare("echo 1 >> made") is None
    assert host.lines("mine/made") == ["1"]


@pytest.mark.requirement("fleet-setup-files")
def test_a_command_that_changes_copied_files_is_executed_again_when_no_copy_has_them(host: Host) -> None:
    host.prepare("echo 1 >> a.txt; echo 1 >> made")
    assert host.lines("a.txt") == ["a", "1"], "they are in the next copy"
    host.prepare("echo 1 >> a.txt; echo 1 >> made")

    assert host.lines("a.txt") == ["a", "1"], "restored, and changed again"
    assert host.lines("made") == ["1", "1"]


@pytest.mark.requirement("fleet-setup-fails")
def test_a_failure_shows_the_end_of_the_output_and_is_tried_again(host: Host) -> None:
    with pytest.raises(WorkspaceSetupError, match=r"sh -c .* it ended with 3: no such package") as caught:
        host.prepare("echo no such package; exit 3")

    assert "run.needs" in caught.value.remedy
    with pytest.raises(WorkspaceSetupError, match="signal 15 ended it"):
        host.prepare("kill $$")
    with pytest.raises(WorkspaceSetupError, match="not over after"):
        host.prepare("sleep 600", timeout_s=0.01)
    with pytest.raises(WorkspaceSetupError, match="more than 16 MiB"):
        host.prepare("cat /dev/zero")
    assert host.prepare("true") is not None


def test_a_program_that_is_not_there_is_named(host: Host) -> None:
    place = str(host.journey.bring())
    config = WorkspaceConfig(setup=["no-such-program; touch made"])

    with pytest.raises(WorkspaceSetupError, match="'no-such-program; touch made': "):
        prepare_workspace(host.run, host.state, host.journey.top, place, config, host.terms)
    assert not host.lines("made")


def test_a_run_of_another_user_is_not_prepared_as_this_one(host: Host) -> None:
    with pytest.raises(WorkspaceSetupError, match="not executed as nobody"):
        host.prepare("true", run_as="nobody")


def test_secrets_are_neither_in_the_output_nor_in_the_message(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REGISTRY_TOKEN", "correct-horse-battery")

    done = host.prepare("echo $REGISTRY_TOKEN")
    with pytest.raises(WorkspaceSetupError) as caught:
        host.prepare("echo $REGISTRY_TOKEN; exit 1")

    shown = (
        str(caught.value) + (host.run.path / LOG).read_text("utf-8") + ("" if done is None else done.output)
    )
    assert "correct-horse" not in shown
    assert "$env:REGISTRY_TOKEN" in shown


@pytest.mark.requirement("fleet-setup-strikes")
def test_that_the_command_begins_is_reported_before_and_only_if_it_does(host: Host) -> None:
    seen: list[list[str]] = []
    host.terms = Terms(os.environ, begins=lambda: seen.append(host.lines("made")))

    for _ in range(2):
        host.prepare("echo made >> made")

    assert seen == [[]]
    assert host.lines("made") == ["made"]


@pytest.mark.requirement("fleet-setup-stops")
def test_nothing_of_the_command_is_left_when_its_node_stops(host: Host) -> None:
    stopping = threading.Event()
    host.terms = Terms(os.environ, is_stopped=stopping.is_set)
    work = threading.Thread(target=host.prepare, args=("echo $$ >> made; sleep 600 & wait",))
    work.start()
    until(lambda: host.lines("made"), "the command to begin")
    with pytest.raises(TreeLockedError):
        take_tree_lock(str(host.run.tree_lock), 0)

    stopping.set()
    work.join(30)

    assert not work.is_alive()
    (pid,) = host.lines("made")
    assert not Path(f"/proc/{pid}").exists()


@pytest.mark.requirement("fleet-setup-stops")
def test_the_command_stands_still_without_a_lease(host: Host) -> None:
    page, lease = LeasePage.create()
    host.terms = Terms(os.environ, lease)
    work = threading.Thread(target=host.prepare, args=("echo 1 >> made",))
    work.start()
    try:
        work.join(0.3)
        assert work.is_alive()
        assert not host.lines("made")

        page.renew(page.now_ns() + 60_000_000_000)
        work.join(30)
        assert host.lines("made") == ["1"]
    finally:
        page.renew(page.now_ns() + 60_000_000_000)
        work.join(30)
        os.close(lease)
        page.close()
