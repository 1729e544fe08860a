from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from bartack.supervision.parent._relay import MAX_LINE, Relays


class Copied:
    """One child whose output is relayed, played by a test."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.relays = Relays()
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self.theirs = self.relays.open(1, file)
        os.close(file)

    def write(self, data: bytes) -> None:
        """The child writes, and all of it is read."""
        while data:
            data = data[os.write(self.theirs, data[:65536]) :]
            self.relays.copy(set(self.relays.descriptors()))

    @property
    def text(self) -> bytes:
        return self.path.read_bytes()


@pytest.fixture
def copied(tmp_path: Path) -> Iterator[Copied]:
    child = Copied(tmp_path / "lines")
    yield child
    os.close(child.theirs)
    child.relays.finish_all()


def test_a_line_is_copied_when_it_is_whole(copied: Copied) -> None:
    copied.write(b"one\ntw")
    before = copied.text
    copied.write(b"o\nthree")

    assert (before, copied.text) == (b"one\n", b"one\ntwo\n")


def test_a_line_that_is_too_long_is_copied_in_pieces(copied: Copied) -> None:
    copied.write(b"x" * (MAX_LINE + 65536))

    assert len(copied.text) > MAX_LINE


def test_what_is_left_of_a_child_that_is_gone_is_copied(copied: Copied) -> None:
    os.write(copied.theirs, b"one\ntwo")
    copied.relays.finish(1)
    copied.relays.finish(1)

    assert copied.text == b"one\ntwo"
    assert list(copied.relays.descriptors()) == []


def test_the_end_of_the_output_ends_the_copy(tmp_path: Path) -> None:
    copied = Copied(tmp_path / "lines")
    os.write(copied.theirs, b"one")
    os.close(copied.theirs)
    for _ in range(2):
        copied.relays.copy(set(copied.relays.descriptors()))

    assert copied.text == b"one"
    assert list(copied.relays.descriptors()) == []


def test_a_child_of_a_stranger_that_writes_for_ever_is_left(tmp_path: Path) -> None:
    copied = Copied(tmp_path / "lines")
    theirs = os.dup(copied.theirs)
    os.write(theirs, b"never\nended")
    copied.relays.finish(1)

    with pytest.raises(BrokenPipeError):
        os.write(theirs, b"more")
    os.close(theirs)
    os.close(copied.theirs)
