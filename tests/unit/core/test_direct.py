"""Writing over a file past the page cache."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bartack.core import RealDisk, _direct
from bartack.core._direct import BLOCK, ROOM, DirectFile, open_direct

SIZE = 4 * ROOM


@pytest.fixture
def file(tmp_path: Path) -> Iterator[int]:
    """A file that is filled with line breaks."""
    fd = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT, 0o600)
    os.pwrite(fd, b"\n" * SIZE, 0)
    os.fsync(fd)
    yield fd
    os.close(fd)


def writer(file: int) -> DirectFile:
    """Past the page cache where this is to be had, else through it: what is written where is the same."""
    direct = open_direct(file)
    return direct or DirectFile(file, os.open(f"/proc/self/fd/{file}", os.O_WRONLY | os.O_DSYNC))


def test_what_is_written_is_read_and_nothing_else_is_changed(file: int) -> None:
    @given(st.lists(st.tuples(st.binary(min_size=1, max_size=3 * BLOCK), st.booleans()), max_size=20))
    def holds(writes: list[tuple[bytes, bool]]) -> None:
        os.pwrite(file, b"\n" * SIZE, 0)
        expected, end = bytearray(b"\n" * SIZE), 0
        with closing(writer(file)) as direct:
            for data, ordinary in writes:
                if ordinary:
                    os.pwrite(file, data, end)
                else:
                    assert direct.write(data, end)
                expected[end : end + len(data)] = data
                end += len(data)
                assert os.pread(file, SIZE + 1, 0) == expected

    holds()


def test_one_who_reads_all_the_time_never_sees_what_was_there_before(file: int, tmp_path: Path) -> None:
    with closing(writer(file)) as direct, (tmp_path / "file").open("rb", buffering=0) as reader:
        for number in range(200):
            line = b"%07d\n" % number
            assert direct.write(line, number * 8)
            assert os.pread(reader.fileno(), 8, number * 8) == line


def test_too_much_at_once_is_left_to_the_ordinary_way(file: int) -> None:
    with closing(writer(file)) as direct:
        assert direct.write(b"x" * (ROOM - 1), 1)
        assert not direct.write(b"x" * ROOM, 1)
        os.pwrite(file, b"y" * 10, ROOM)

        assert direct.write(b"z", ROOM + 10)

        assert os.pread(file, 12, ROOM) == b"y" * 10 + b"z\n"


def test_a_file_system_that_refuses_it_is_not_asked_again(file: int, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def refuse(fd: int, data: bytes, offset: int) -> int:
        asked.append(offset)
        raise OSError(errno.EINVAL, "no")

    with closing(writer(file)) as direct:
        monkeypatch.setattr(os, "pwrite", refuse)

        assert not direct.write(b"a", 0)
        assert not direct.write(b"a", 0)

    assert asked == [0]


def test_a_disk_that_fails_says_so(file: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(fd: int, data: bytes, offset: int) -> int:
        raise OSError(errno.EIO, "broken")

    def take_less(fd: int, data: bytes, offset: int) -> int:
        return len(data) - 1

    with closing(writer(file)) as direct:
        monkeypatch.setattr(os, "pwrite", fail)
        with pytest.raises(OSError, match="broken"):
            direct.write(b"a", 0)
        monkeypatch.setattr(os, "pwrite", take_less)
        with pytest.raises(OSError, match="a part only"):
            direct.write(b"a", 0)


def test_a_file_that_was_cut_is_not_made_up(file: int) -> None:
    with closing(writer(file)) as direct:
        os.ftruncate(file, 5)

        with pytest.raises(OSError, match="shorter"):
            direct.write(b"a", 10)


def test_there_is_no_way_past_a_file_system_that_nobody_knows(
    file: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_direct, "_KNOWN", frozenset[str]())

    assert RealDisk().open_direct(file) is None


def test_there_is_no_way_where_the_system_has_none(file: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "O_DIRECT")

    assert open_direct(file) is None
