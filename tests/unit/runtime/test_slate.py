"""The slate: what a worker is busy with, readable by others when it is dead."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from bartack.runtime._slate import SIZE, Slate


@pytest.fixture
def slate() -> Iterator[Slate]:
    made = Slate.create()
    yield made
    made.close()


def test_a_new_slate_is_empty(slate: Slate) -> None:
    assert slate.read() == b""


def test_what_is_written_replaces_what_was_there_and_can_be_wiped(slate: Slate) -> None:
    assert slate.write(b"a long thing to do")
    assert slate.write(b"short")

    assert slate.read() == b"short"
    slate.wipe()
    assert slate.read() == b""


def test_what_does_not_fit_is_refused_and_nothing_changes(slate: Slate) -> None:
    assert slate.write(b"x" * (SIZE - 8))
    assert not slate.write(b"y" * (SIZE - 7))

    assert slate.read() == b"x" * (SIZE - 8)


def test_a_slate_that_is_being_written_reads_as_empty(slate: Slate) -> None:
    slate.write(b"whole")
    os.pwrite(slate.fileno(), b"\x03\x00\x00\x00", 0)

    assert slate.read() == b""


def test_what_a_process_wrote_is_there_when_it_is_dead(slate: Slate) -> None:
    pid = os.fork()
    if pid == 0:
        Slate(slate.fileno()).write(b"its last words")
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(pid, 0)

    assert slate.read() == b"its last words"
