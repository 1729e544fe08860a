"""The scoreboard: what a worker is busy with, readable by others when it is dead."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import msgspec
import pytest

from bartack.runtime.hub.worker_processes import bodies_on
from bartack.runtime.protocol import frames as f
from bartack.runtime.protocol.scoreboard import LINES, ROOM, WIDTH, Scoreboard


@pytest.fixture
def scoreboard() -> Iterator[Scoreboard]:
    made = Scoreboard.create()
    yield made
    made.close()


def test_a_new_scoreboard_is_empty(scoreboard: Scoreboard) -> None:
    assert scoreboard.read() == []


def test_what_is_written_stays_until_its_line_is_wiped(scoreboard: Scoreboard) -> None:
    first, second = scoreboard.set(b"a long thing to do"), scoreboard.set(b"short")

    assert scoreboard.read() == [b"a long thing to do", b"short"]
    scoreboard.clear(first)
    assert scoreboard.read() == [b"short"]
    scoreboard.clear(second)
    assert scoreboard.read() == []


def test_a_line_that_was_wiped_is_used_again(scoreboard: Scoreboard) -> None:
    line = scoreboard.set(b"a long thing to do")
    scoreboard.clear(line)

    assert scoreboard.set(b"short") == line
    assert scoreboard.read() == [b"short"]


def test_what_does_not_fit_is_refused_and_nothing_changes(scoreboard: Scoreboard) -> None:
    assert scoreboard.set(b"x" * ROOM) >= 0
    assert scoreboard.set(b"y" * (ROOM + 1)) < 0

    assert scoreboard.read() == [b"x" * ROOM]


def test_a_full_scoreboard_takes_nothing_more(scoreboard: Scoreboard) -> None:
    texts = [b"%d" % number for number in range(LINES)]

    assert all(scoreboard.set(text) >= 0 for text in texts)
    assert scoreboard.set(b"one too many") < 0
    assert scoreboard.read() == texts


def test_a_line_that_is_being_written_reads_as_empty(scoreboard: Scoreboard) -> None:
    scoreboard.set(b"whole")
    line = scoreboard.set(b"torn")
    os.pwrite(scoreboard.fileno(), b"\x03\x00\x00\x00", line * WIDTH)

    assert scoreboard.read() == [b"whole"]


def test_what_a_process_wrote_is_there_when_it_is_dead(scoreboard: Scoreboard) -> None:
    pid = os.fork()
    if pid == 0:
        own = Scoreboard(scoreboard.fileno())
        own.set(b"its last words")
        own.set(b"all of them")
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(pid, 0)

    assert scoreboard.read() == [b"its last words", b"all of them"]


def test_what_cannot_be_read_is_left_out(scoreboard: Scoreboard) -> None:
    begin = f.Begin(p="main", n=1, step="body", fp="b")
    for line in (b'{"k":"begin","p":"ma', b"\xff\xfe", msgspec.json.encode(begin)):
        scoreboard.set(line)

    assert bodies_on(scoreboard) == [begin]
