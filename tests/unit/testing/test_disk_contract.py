"""What the journal expects of a disk, checked on the operating system's files and on the simulated ones alike."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from bartack.core.disk import Disk, RealDisk
from bartack.testing import FaultyDisk


class Place(NamedTuple):
    disk: Disk
    root: str

    def path(self, name: str) -> str:
        return f"{self.root}/{name}"

    def put(self, name: str, content: bytes = b"") -> str:
        fd = self.disk.open(self.path(name), write=True, create=True)
        self.disk.write(fd, content, 0)
        self.disk.close(fd)
        return self.path(name)

    def content(self, name: str) -> bytes:
        fd = self.disk.open(self.path(name))
        found = self.disk.read(fd, 1 << 20, 0)
        self.disk.close(fd)
        return found


@pytest.fixture(params=["real", "faulty"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "real":
        return Place(RealDisk(), str(tmp_path))
    disk = FaultyDisk()
    disk.mkdir("/run")
    return Place(disk, "/run")


def test_bytes_are_read_where_they_were_written(place: Place) -> None:
    fd = place.disk.open(place.path("a"), write=True, create=True)

    assert place.disk.write(fd, b"hello world", 0) == 11
    assert place.disk.write(fd, b"W", 6) == 1
    assert place.disk.read(fd, 5, 6) == b"World"
    assert place.disk.read(fd, 100, 8) == b"rld"
    assert place.disk.read(fd, 100, 11) == b""
    place.disk.close(fd)


def test_a_gap_that_was_never_written_reads_as_zeros(place: Place) -> None:
    fd = place.disk.open(place.path("a"), write=True, create=True)
    place.disk.write(fd, b"end", 5)

    assert place.disk.read(fd, 100, 0) == b"\0\0\0\0\0end"
    place.disk.close(fd)


def test_a_cut_file_has_no_old_bytes_when_it_grows_again(place: Place) -> None:
    fd = place.disk.open(place.path("a"), write=True, create=True)
    place.disk.write(fd, b"0123456789", 0)
    place.disk.truncate(fd, 4)
    assert place.disk.facts(fd).size == 4
    place.disk.truncate(fd, 8)

    assert place.disk.read(fd, 100, 0) == b"0123\0\0\0\0"
    place.disk.close(fd)


def test_opening_again_keeps_the_content(place: Place) -> None:
    path = place.put("a", b"kept")

    fd = place.disk.open(path, write=True, create=True)

    assert place.disk.read(fd, 100, 0) == b"kept"
    place.disk.close(fd)


def test_a_file_that_is_not_there_is_not_opened(place: Place) -> None:
    with pytest.raises(FileNotFoundError):
        place.disk.open(place.path("none"))
    with pytest.raises(FileNotFoundError):
        place.disk.open(place.path("none"), write=True)
    with pytest.raises(FileNotFoundError):
        place.disk.open(place.path("none/below"), write=True, create=True)


def test_exclusive_refuses_a_file_that_exists(place: Place) -> None:
    fd = place.disk.open(place.path("a"), write=True, exclusive=True)
    place.disk.close(fd)

    with pytest.raises(FileExistsError):
        place.disk.open(place.path("a"), write=True, exclusive=True)


def test_a_directory_is_not_a_file(place: Place) -> None:
    place.disk.mkdir(place.path("d"))

    with pytest.raises(IsADirectoryError):
        place.disk.open(place.path("d"), write=True)
    with pytest.raises(IsADirectoryError):
        place.disk.open(place.path("d"), create=True)
    fd = place.disk.open(place.path("d"))
    with pytest.raises(IsADirectoryError):
        place.disk.read(fd, 1, 0)
    place.disk.close(fd)


def test_a_file_is_not_a_directory(place: Place) -> None:
    place.put("f")
    calls: list[Callable[[], object]] = [
        lambda: place.disk.names(place.path("f")),
        lambda: place.disk.sync_dir(place.path("f")),
        lambda: place.disk.open(place.path("f/below")),
    ]

    for call in calls:
        with pytest.raises(NotADirectoryError):
            call()


def test_a_file_opened_for_reading_is_not_written(place: Place) -> None:
    fd = place.disk.open(place.put("a", b"kept"))

    with pytest.raises(OSError, match="Bad file descriptor"):
        place.disk.write(fd, b"x", 0)
    place.disk.close(fd)
    assert place.content("a") == b"kept"


def test_a_closed_descriptor_is_refused(place: Place) -> None:
    fd = place.disk.open(place.put("a"))
    place.disk.close(fd)

    with pytest.raises(OSError, match="Bad file descriptor"):
        place.disk.read(fd, 1, 0)


def test_a_rename_replaces_its_target(place: Place) -> None:
    place.put("old", b"old")
    place.put("new", b"new")
    held = place.disk.open(place.path("old"))

    place.disk.rename(place.path("new"), place.path("old"))

    assert place.content("old") == b"new"
    assert not place.disk.exists(place.path("new"))
    assert place.disk.read(held, 10, 0) == b"old"
    assert place.disk.facts(held).links == 0
    place.disk.close(held)


def test_a_rename_moves_between_directories(place: Place) -> None:
    place.disk.mkdir(place.path("d"))
    place.put("a", b"moved")

    place.disk.rename(place.path("a"), place.path("d/b"))

    assert place.content("d/b") == b"moved"
    assert place.disk.names(place.root) == ["d"]


def test_a_rename_without_a_source_or_onto_a_directory_is_refused(place: Place) -> None:
    place.disk.mkdir(place.path("d"))
    place.put("a")

    with pytest.raises(FileNotFoundError):
        place.disk.rename(place.path("none"), place.path("b"))
    with pytest.raises(IsADirectoryError):
        place.disk.rename(place.path("a"), place.path("d"))
    with pytest.raises(NotADirectoryError):
        place.disk.rename(place.path("d"), place.path("a"))


def test_a_removed_file_stays_readable_for_who_holds_it(place: Place) -> None:
    fd = place.disk.open(place.put("a", b"still"))
    assert place.disk.facts(fd).links == 1
    assert place.disk.all_named(fd)

    place.disk.unlink(place.path("a"))

    assert not place.disk.exists(place.path("a"))
    assert place.disk.facts(fd).links == 0
    assert not place.disk.all_named(fd)
    assert place.disk.read(fd, 10, 0) == b"still"
    place.disk.close(fd)


def test_only_what_is_there_can_be_removed(place: Place) -> None:
    with pytest.raises(FileNotFoundError):
        place.disk.unlink(place.path("none"))


def test_the_same_file_has_one_inode_and_another_file_another(place: Place) -> None:
    place.put("a")
    place.put("b")
    first, again = place.disk.open(place.path("a")), place.disk.open(place.path("a"))
    other = place.disk.open(place.path("b"))

    assert place.disk.facts(first).inode == place.disk.facts(again).inode
    assert place.disk.facts(first).inode != place.disk.facts(other).inode
    for fd in (first, again, other):
        place.disk.close(fd)


def test_a_lock_is_held_by_one_opener_until_it_closes(place: Place) -> None:
    path = place.put("lock")
    first, second = place.disk.open(path, write=True), place.disk.open(path, write=True)

    assert place.disk.lock(first)
    assert place.disk.lock(first)
    assert not place.disk.lock(second)
    place.disk.close(first)
    assert place.disk.lock(second)
    place.disk.close(second)


def test_a_directory_is_made_once_and_left_alone_afterwards(place: Place) -> None:
    place.disk.mkdir(place.path("d"))
    place.put("d/b")
    place.put("d/a")
    place.disk.mkdir(place.path("d"))

    assert place.disk.names(place.path("d")) == ["a", "b"]


def test_a_directory_cannot_take_the_name_of_a_file_or_float(place: Place) -> None:
    place.put("f")

    with pytest.raises(FileExistsError):
        place.disk.mkdir(place.path("f"))
    with pytest.raises(FileNotFoundError):
        place.disk.mkdir(place.path("none/d"))


def test_syncing_changes_nothing_that_is_seen(place: Place) -> None:
    fd = place.disk.open(place.path("a"), write=True, create=True)
    place.disk.write(fd, b"abc", 0)
    place.disk.sync(fd)
    place.disk.sync_dir(place.root)

    assert place.disk.read(fd, 10, 0) == b"abc"
    assert place.disk.names(place.root) == ["a"]
    place.disk.close(fd)
    with pytest.raises(FileNotFoundError):
        place.disk.sync_dir(place.path("none"))


def test_existence_is_reported_files_and_directories(place: Place) -> None:
    place.put("f")
    place.disk.mkdir(place.path("d"))

    assert place.disk.exists(place.path("f"))
    assert place.disk.exists(place.path("d"))
    assert not place.disk.exists(place.path("none"))
    assert not place.disk.exists(place.path("f/below"))
