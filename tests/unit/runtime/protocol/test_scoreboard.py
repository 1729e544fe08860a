"""The slate: what a worker is busy with, readable by others when it is dead."""

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


def test_a_new_slate_is_empty(scoreboard: Scoreboard) -> None:
    assert scoreboard.read() == []


def test_what_is_written_stays_until_its_line_is_wiped(scoreboard: Scoreboard) -> None:
    first, second = scoreboard.write(b"a long thing to do"), scoreboard.write(b"short")

    assert scoreboard.read() == [b"a long thing to do", b"short"]
    scoreboard.wipe(first)
    assert scoreboard.read() == [b"short"]
    scoreboard.wipe(second)
    assert scoreboard.read() == []


def test_a_line_that_was_wiped_is_used_again(scoreboard: Scoreboard) -> None:
    line = scoreboard.write(b"a long thing to do")
    scoreboard.wipe(line)

    assert scoreboard.write(b"short") == line
    assert scoreboard.read() == [b"short"]


def test_what_does_not_fit_is_refused_and_nothing_changes(scoreboard: Scoreboard) -> None:
    assert scoreboard.write(b"x" * ROOM) >= 0
    assert scoreboard.write(b"y" * (ROOM + 1)) < 0

    assert scoreboard.read() == [b"x" * ROOM]


def test_a_full_slate_takes_nothing_more(scoreboard: Scoreboard) -> None:
    texts = [b"%d" % number for number in range(LINES)]

    assert all(scoreboard.write(text) >= 0 for text in texts)
    assert scoreboard.write(b"one too many") < 0
    assert scoreboard.read() == texts


def test_a_line_that_is_being_written_reads_as_empty(scoreboard: Scoreboard) -> None:
    scoreboard.write(b"whole")
    line = scoreboard.write(b"torn")
    os.pwrite(scoreboard.fileno(), b"\x03\x00\x00\x00", line * WIDTH)

    assert scoreboard.read() == [b"whole"]


def test_what_a_process_wrote_is_there_when_it_is_dead(scoreboard: Scoreboard) -> None:
    pid = os.fork()
    if pid == 0:
        own = Scoreboard(scoreboard.fileno())
        own.write(b"its last words")
        own.write(b"all of them")
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(pid, 0)

    assert scoreboard.read() == [b"its last words", b"all of them"]


def test_what_cannot_be_read_is_left_out(scoreboard: Scoreboard) -> None:
    begin = f.Begin(p="main", n=1, step="body", fp="b")
    for line in (b'{"k":"begin","p":"ma', b"\xff\xfe", msgspec.json.encode(begin)):
        scoreboard.write(line)

    assert bodies_on(scoreboard) == [begin]
