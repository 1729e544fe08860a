"""kill -9 of a real process that appends, again and again on the same journal."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from time import perf_counter
from typing import BinaryIO

import pytest

from bartack.journal import open_journal, open_reader

KILLS = 200
PATIENCE_S = 60.0

Record = Callable[[str, object], None]


class Appenders:
    """Starts appending processes one after the other, from one that has loaded all they need."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair()
        self._socket.settimeout(PATIENCE_S)
        script = Path(__file__).with_name("appender.py")
        command = [sys.executable, str(script), str(theirs.fileno())]
        self._process = subprocess.Popen(command, pass_fds=[theirs.fileno()])
        theirs.close()
        self._answers = self._socket.makefile("rb")
        self._running: int | None = None

    def start(self, directory: Path, turn: int, seed: int) -> tuple[int, BinaryIO]:
        """The id of a new appender, and the pipe on which it says what was acknowledged."""
        read, write = os.pipe()
        request = json.dumps({"directory": str(directory), "turn": turn, "seed": seed}).encode()
        socket.send_fds(self._socket, [request], [write])
        os.close(write)
        self._running = int(self._answers.readline())
        return self._running, os.fdopen(read, "rb", buffering=0)

    def wait_gone(self) -> int:
        """The signal that ended the last one."""
        status = int(self._answers.readline())
        self._running = None
        return os.WTERMSIG(status)

    def close(self) -> None:
        if self._running is not None:
            os.kill(self._running, signal.SIGKILL)
            self.wait_gone()
        self._answers.close()
        self._socket.close()
        assert self._process.wait(PATIENCE_S) == 0


@pytest.fixture
def appenders() -> Iterator[Appenders]:
    appenders = Appenders()
    yield appenders
    appenders.close()


def spin(microseconds: int) -> None:
    """Let an exact, short time pass without giving up the processor."""
    end = perf_counter() + microseconds / 1e6
    while perf_counter() < end:
        pass


def kill_somewhere(pid: int, pipe: BinaryIO, random: Random) -> bytes:
    """Kill while it opens the journal, or a random time after it acknowledged some entries; all that it said."""
    said = b""
    lines = 1 + random.choice((0, 0, 1, 2, 5, 10, 20))
    while said.count(b"\n") < lines:
        part = pipe.read(4096)
        assert part, "the appender ended by itself"
        said += part
    spin(random.randrange(3000 if lines == 1 else 600))
    os.kill(pid, signal.SIGKILL)
    return said


def acknowledged_in(said: bytes) -> int:
    """How many entries were acknowledged. A line that was not written to its end says nothing."""
    lines = said.split(b"\n")[:-1]
    return int(lines[-1]) if len(lines) > 1 else 0


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.soak)])
@pytest.mark.requirement("kill-loses-nothing")
def test_a_killed_process_loses_nothing_it_was_told_is_safe(
    seed: int, tmp_path: Path, appenders: Appenders, record_property: Record
) -> None:
    random = Random(seed)
    directory = tmp_path / "run"
    acknowledged: dict[int, int] = {}
    for turn in range(KILLS):
        pid, pipe = appenders.start(directory, turn, random.randrange(1 << 30))
        with pipe:
            said = kill_somewhere(pid, pipe, random)
            assert appenders.wait_gone() == signal.SIGKILL
            while part := pipe.read(65536):
                said += part
        acknowledged[turn] = acknowledged_in(said)

    with open_journal(directory) as journal:
        entries = [entry for entry in journal.read() if entry.kind == "item"]
        values = [journal.load_value(entry) for entry in entries]
        assert journal.fence >= KILLS // 2
    assert None not in values
    found: dict[int, list[object]] = {turn: [] for turn in range(KILLS)}
    for entry in entries:
        found[int(str(entry.data["turn"]))].append(entry.data["number"])
    for turn, numbers in found.items():
        assert numbers == list(range(len(numbers)))
        assert len(numbers) >= acknowledged[turn]
    assert [entry.data["turn"] for entry in entries] == sorted(
        int(str(entry.data["turn"])) for entry in entries
    )
    assert sum(acknowledged.values()) > KILLS
    record_property("kills", KILLS)


@pytest.mark.requirement("killed-owner-frees-lock")
def test_the_lock_of_a_killed_owner_is_free_at_once(tmp_path: Path, appenders: Appenders) -> None:
    pid, pipe = appenders.start(tmp_path / "run", 0, 0)
    with pipe:
        while b"\n" not in pipe.read(4096).removeprefix(b"ready\n"):
            pass
        with open_reader(tmp_path / "run") as reader:
            assert next(reader.read()).data["pid"] == pid
        os.kill(pid, signal.SIGKILL)
        appenders.wait_gone()

        with open_journal(tmp_path / "run") as journal:
            assert journal.fence == 2
