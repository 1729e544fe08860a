"""What a notifier reads from its hub, and how it leaves notices to the daemon."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from bartack.config.notices import NoticesConfig
from bartack.core.user_home import user_home
from bartack.resilience.link import DaemonLink
from bartack.runtime.hub import notifier
from bartack.runtime.hub.notices import NoticeFeed, NotifierStart
from bartack.runtime.hub.notifier import HubLines
from bartack.runtime.rundir.layout import RunDir
from bartack.runtime.rundir.notices import Watched

START = NotifierStart(Watched(run_dir="/runs/run-1", project="shop", config=NoticesConfig()), 3)


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    yield ends
    for end in ends:
        try:
            os.close(end)
        except OSError:
            continue


def test_the_first_line_says_what_to_do_and_the_others_how_far_the_journal_is_durable(
    pipe: tuple[int, int],
) -> None:
    lines = HubLines(pipe[0])
    os.write(pipe[1], msgspec.json.encode(START) + b"\n17\n2")

    assert lines.first() == START
    os.write(pipe[1], b"3\nnonsense\n\n")
    lines.wait(5)

    assert (lines.durable, lines.is_over) == (23, False)


def test_the_end_of_the_pipe_is_the_end_of_the_hub(pipe: tuple[int, int]) -> None:
    lines = HubLines(pipe[0])
    os.write(pipe[1], msgspec.json.encode(START) + b"\n7\n")
    os.close(pipe[1])

    assert lines.first() == START
    lines.wait(5)
    assert (lines.durable, lines.is_over) == (7, True)
    lines.wait(0)


@pytest.mark.parametrize("data", [b"", b"{", b'{"watched": {}}\n', b"[1]\n"])
def test_a_first_line_that_is_not_whole_ends_the_notifier(pipe: tuple[int, int], data: bytes) -> None:
    os.write(pipe[1], data)
    os.close(pipe[1])

    assert HubLines(pipe[0]).first() is None


class Started:
    """Stands for ``subprocess.Popen``, and remembers the commands."""

    commands: list[list[str]]

    def __init__(self, command: list[str], **_: object) -> None:
        type(self).commands.append(command)
        self.returncode: int | None = None


@pytest.fixture
def started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    user_home().mkdir(parents=True)
    Started.commands = []
    monkeypatch.setattr("subprocess.Popen", Started)
    return Started.commands


def test_the_daemon_is_started_for_notices_that_have_to_wait(started: list[list[str]]) -> None:
    notifier.leave_to_daemon()

    assert [command[-2:] for command in started] == [["daemon", "run"]]


def test_a_daemon_that_runs_is_only_notified(
    started: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def notify(link: DaemonLink, directory: str) -> bool:
        asked.append(os.fspath(directory))
        return True

    monkeypatch.setattr(DaemonLink, "notify", notify)

    notifier.leave_to_daemon()

    assert (started, asked) == ([], [str(user_home())])


@pytest.mark.parametrize("how", ["setting", "file"])
def test_a_person_who_wants_no_daemon_gets_none(started: list[list[str]], how: str) -> None:
    if how == "setting":
        (user_home() / "bartack.toml").write_text("[daemon]\nautostart = false\n")
    else:
        (user_home() / "autostart-off").touch()

    notifier.leave_to_daemon()

    assert started == []


def test_a_notifier_that_cannot_be_started_does_not_stop_the_hub(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise BlockingIOError(11, "too many processes")

    monkeypatch.setattr("subprocess.Popen", refuse)
    notes: list[str] = []
    feed = NoticeFeed(RunDir(tmp_path), START)

    feed.start(set(), notes.append)
    feed.durable(7)
    feed.close()

    assert notes == ["notices are not sent: the notifier cannot be started (too many processes)"]
