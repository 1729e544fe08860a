"""What is known of an open file is the same, by whichever call it was asked."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from bartack.core.disk import RealDisk
from bartack.core.facts import FileFacts, all_named_with_times, ask_with_times


def open_file(path: Path) -> int:
    path.write_bytes(b"some text")
    os.link(path, path.with_suffix(".link"))
    return os.open(path, os.O_RDWR)


def open_deleted(path: Path) -> int:
    path.write_bytes(b"gone")
    fd = os.open(path, os.O_RDWR)
    path.unlink()
    return fd


def open_grown(path: Path) -> int:
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    os.pwrite(fd, b"x", (1 << 33) + 5)
    return fd


OPENERS: dict[str, Callable[[Path], int]] = {
    "a file with two names": open_file,
    "a file without a name": open_deleted,
    "a file of many gigabytes": open_grown,
    "a directory": lambda path: os.open(path.parent, os.O_RDONLY),
    "a device": lambda _: os.open(os.devnull, os.O_RDONLY),
}


@pytest.mark.parametrize("what", OPENERS)
def test_facts_are_those_of_fstat(what: str, tmp_path: Path) -> None:
    fd = OPENERS[what](tmp_path / "file")
    try:
        found = os.fstat(fd)
        facts = RealDisk().facts(fd)

        assert facts[:3] == (found.st_size, found.st_nlink, found.st_ino)
        assert facts == ask_with_times(fd)
        assert facts.regular == what.startswith("a file")
    finally:
        os.close(fd)


ASKING: dict[str, Callable[[tuple[int, ...]], bool]] = {
    "by the disk": lambda fds: RealDisk().all_named(*fds),
    "with times": all_named_with_times,
}


@pytest.mark.parametrize("way", ASKING)
def test_files_are_all_named_until_one_of_them_has_lost_its_last_name(way: str, tmp_path: Path) -> None:
    all_named = ASKING[way]
    one, other = open_file(tmp_path / "one"), open_file(tmp_path / "other")
    try:
        assert all_named((one, other))
        (tmp_path / "other").unlink()
        assert all_named((one, other))
        (tmp_path / "other.link").unlink()
        assert not all_named((one, other))
        assert not all_named((other, one))
        assert all_named((one,))
    finally:
        os.close(one)
        os.close(other)


def test_a_closed_descriptor_is_an_error(tmp_path: Path) -> None:
    fd = open_file(tmp_path / "file")
    os.close(fd)

    with pytest.raises(OSError, match="Bad file descriptor"):
        RealDisk().facts(fd)
    with pytest.raises(OSError, match="Bad file descriptor"):
        RealDisk().all_named(fd)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has another call to fall back from")
def test_where_the_kernel_refuses_statx_the_other_call_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> int:
        return -1

    monkeypatch.setattr("bartack.core._statx._statx", refuse)
    fd, gone = open_file(tmp_path / "file"), open_deleted(tmp_path / "gone")
    try:
        assert RealDisk().facts(fd) == FileFacts(9, 2, os.fstat(fd).st_ino)
        assert RealDisk().all_named(fd)
        assert not RealDisk().all_named(fd, gone)
    finally:
        os.close(fd)
        os.close(gone)
