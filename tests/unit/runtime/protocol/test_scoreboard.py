"""The slate: what a worker is busy with, readable by others when it is dead."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import msgspec
import pytest

from bartack.runtime.hub.hub import _read_slate
from bartack.runtime.protocol import frames as f
from bartack.runtime.protocol.scoreboard import LINES, ROOM, WIDTH, Slate


@pytest.fixture
def slate() -> Iterator[Slate]:
    made = Slate.create()
    yield made
    made.close()


def test_a_new_slate_is_empty(slate: Slate) -> None:
    assert slate.read() == []


def test_what_is_written_stays_until_its_line_is_wiped(slate: Slate) -> None:
    first, second = slate.write(b"a long thing to do"), slate.write(b"short")

    assert slate.read() == [b"a long thing to do", b"short"]
    slate.wipe(first)
    assert slate.read() == [b"short"]
    slate.wipe(second)
    assert slate.read() == []


def test_a_line_that_was_wiped_is_used_again(slate: Slate) -> None:
    line = slate.write(b"a long thing to do")
    slate.wipe(line)

    assert slate.write(b"short") == line
    assert slate.read() == [b"short"]


def test_what_does_not_fit_is_refused_and_nothing_changes(slate: Slate) -> None:
    assert slate.write(b"x" * ROOM) >= 0
    assert slate.write(b"y" * (ROOM + 1)) < 0

    assert slate.read() == [b"x" * ROOM]


def test_a_full_slate_takes_nothing_more(slate: Slate) -> None:
    texts = [b"%d" % number for number in range(LINES)]

    assert all(slate.write(text) >= 0 for text in texts)
    assert slate.write(b"one too many") < 0
    assert slate.read() == texts


def test_a_line_that_is_being_written_reads_as_empty(slate: Slate) -> None:
    slate.write(b"whole")
    line = slate.write(b"torn")
    os.pwrite(slate.fileno(), b"\x03\x00\x00\x00", line * WIDTH)

    assert slate.read() == [b"whole"]


def test_what_a_process_wrote_is_there_when_it_is_dead(slate: Slate) -> None:
    pid = os.fork()
    if pid == 0:
        own = Slate(slate.fileno())
        own.write(b"its last words")
        own.write(b"all of them")
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(pid, 0)

    assert slate.read() == [b"its last words", b"all of them"]


def test_what_cannot_be_read_is_left_out(slate: Slate) -> None:
    begin = f.Begin(p="main", n=1, step="body", fp="b")
    for line in (b'{"k":"begin","p":"ma', b"\xff\xfe", msgspec.json.encode(begin)):
        slate.write(line)

    assert _read_slate(slate) == [begin]
