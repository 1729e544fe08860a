"""The simulated disk: what a power cut may leave of it, and how it fails."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator

import pytest

from bartack.testing import FaultyDisk, PowerCut
from bartack.testing.disk import Operation
from bartack.testing.platter import SECTOR, Choose, Doubt, keep_everything, keep_nothing, keep_only


@pytest.fixture
def disk() -> FaultyDisk:
    disk = FaultyDisk()
    disk.put("/run/a", b"")
    return disk


def opened(disk: FaultyDisk, path: str = "/run/a") -> int:
    return disk.open(path, write=True, create=True)


def contents(states: Iterator[FaultyDisk], path: str = "/run/a") -> set[bytes | None]:
    return {state.tree().get(path) for state in states}


# What a power cut leaves.


def test_unsynced_bytes_may_be_gone_or_there(disk: FaultyDisk) -> None:
    disk.write(opened(disk), b"data", 0)

    assert disk.after_power_cut(keep_nothing).tree()["/run/a"] == b""
    assert disk.after_power_cut(keep_everything).tree()["/run/a"] == b"data"


def test_synced_bytes_are_there_in_every_state(disk: FaultyDisk) -> None:
    fd = opened(disk)
    disk.write(fd, b"x" * 3000, 0)
    disk.sync(fd)

    assert contents(disk.survivors(samples=50)) == {b"x" * 3000}


def test_a_write_may_be_torn_between_any_two_sectors(disk: FaultyDisk) -> None:
    fd = opened(disk)
    disk.write(fd, b"o" * 3 * SECTOR, 0)
    disk.sync(fd)
    disk.write(fd, b"n" * 3 * SECTOR, 0)

    old, new = b"o" * SECTOR, b"n" * SECTOR
    every = {a + b + c for a in (old, new) for b in (old, new) for c in (old, new)}
    assert contents(disk.survivors(samples=200)) == every


def test_a_sector_is_written_whole(disk: FaultyDisk) -> None:
    fd = opened(disk)
    disk.write(fd, b"old-old-", 0)
    disk.sync(fd)
    disk.write(fd, b"new", 0)
    disk.write(fd, b"new", 4)

    assert contents(disk.survivors(samples=50)) == {b"old-old-", b"new-old-", b"new-new-"}


def test_a_later_write_may_survive_an_earlier_one(disk: FaultyDisk) -> None:
    fd = opened(disk)
    disk.write(fd, b"1" * SECTOR, 0)
    disk.write(fd, b"2" * SECTOR, SECTOR)

    assert b"\0" * SECTOR + b"2" * SECTOR in contents(disk.survivors(samples=50))


def test_a_file_may_have_grown_without_its_data(disk: FaultyDisk) -> None:
    disk.write(opened(disk), b"data", 0)

    assert disk.after_power_cut(keep_only("size")).tree()["/run/a"] == b"\0\0\0\0"


def test_old_bytes_may_come_back_after_a_lost_truncate(disk: FaultyDisk) -> None:
    fd = opened(disk)
    disk.write(fd, b"a" * SECTOR + b"stale" * 100, 0)
    disk.sync(fd)
    disk.truncate(fd, 0)
    disk.write(fd, b"new" + b"." * (SECTOR - 3), 0)

    assert b"new" + b"." * (SECTOR - 3) + b"stale" * 100 in contents(disk.survivors(samples=100))
    assert disk.tree()["/run/a"] == b"new" + b"." * (SECTOR - 3)


def test_a_synced_truncate_brings_nothing_back(disk: FaultyDisk) -> None:
    fd = opened(disk)
    disk.write(fd, b"secret" * 200, 0)
    disk.sync(fd)
    disk.truncate(fd, 2)
    disk.sync(fd)
    disk.truncate(fd, 1000)

    assert all(state in {b"se", b"se".ljust(1000, b"\0")} for state in contents(disk.survivors(samples=50)))


def test_a_new_file_needs_its_directory_synced(disk: FaultyDisk) -> None:
    fd = opened(disk, "/run/new")
    disk.write(fd, b"data", 0)
    disk.sync(fd)
    assert contents(disk.survivors(), "/run/new") == {None, b"data"}

    disk.sync_dir("/run")
    assert contents(disk.survivors(), "/run/new") == {b"data"}


def test_a_synced_name_says_nothing_of_the_data(disk: FaultyDisk) -> None:
    disk.write(opened(disk, "/run/new"), b"data", 0)
    disk.sync_dir("/run")

    assert disk.after_power_cut(keep_nothing).tree()["/run/new"] == b""


def test_a_rename_leaves_the_old_name_or_the_new_one_never_both(disk: FaultyDisk) -> None:
    disk.put("/run/old", b"1")
    disk.put("/run/new", b"2")
    disk.rename("/run/new", "/run/old")

    found = [(s.tree().get("/run/old"), s.tree().get("/run/new")) for s in disk.survivors(samples=50)]
    assert set(found) == {(b"1", b"2"), (b"2", None)}


def test_the_halves_of_a_rename_across_directories_are_separate(disk: FaultyDisk) -> None:
    disk.put("/run/d/x", b"")
    disk.rename("/run/a", "/run/d/a")

    found = {("/run/a" in s.tree(), "/run/d/a" in s.tree()) for s in disk.survivors(samples=50)}
    assert found == {(True, False), (False, True), (True, True), (False, False)}


def test_name_changes_survive_independently(disk: FaultyDisk) -> None:
    disk.unlink("/run/a")
    disk.close(opened(disk, "/run/b"))
    disk.mkdir("/run/d")

    found = {tuple(s.names("/run")) for s in disk.survivors(samples=100)}
    assert len(found) == 8


def test_a_file_in_a_directory_that_was_lost_is_lost(disk: FaultyDisk) -> None:
    disk.mkdir("/run/d")
    fd = opened(disk, "/run/d/x")
    disk.write(fd, b"data", 0)
    disk.sync(fd)
    disk.sync_dir("/run/d")

    assert disk.after_power_cut(keep_nothing).names("/run") == ["a"]
    disk.sync_dir("/run")
    assert disk.after_power_cut(keep_nothing).tree()["/run/d/x"] == b"data"


def test_any_choice_of_versions_can_be_built(disk: FaultyDisk) -> None:
    fd = opened(disk)
    for text in (b"one", b"two", b"six"):
        disk.write(fd, text, 0)
    asked: list[Doubt] = []

    def second(doubt: Doubt) -> int:
        asked.append(doubt)
        return doubt.versions - 1 if doubt.kind == "size" else 2

    assert disk.after_power_cut(second).tree()["/run/a"] == b"two"
    assert asked == [Doubt("size", "/run/a", 0, 2), Doubt("sector", "/run/a", 0, 4)]


def test_survivors_are_the_same_for_the_same_seed_and_none_comes_twice(disk: FaultyDisk) -> None:
    disk.write(opened(disk), bytes(range(256)) * 20, 0)

    first = [s.tree()["/run/a"] for s in disk.survivors(samples=40, seed=7)]
    again = [s.tree()["/run/a"] for s in disk.survivors(samples=40, seed=7)]
    other = [s.tree()["/run/a"] for s in disk.survivors(samples=40, seed=8)]

    assert first == again != other


def test_a_disk_without_unsynced_changes_has_one_survivor(disk: FaultyDisk) -> None:
    assert len(list(disk.survivors(samples=50))) == 1


def test_a_survivor_is_a_disk_of_its_own(disk: FaultyDisk) -> None:
    fd = opened(disk)
    disk.lock(fd)
    found = disk.after_power_cut(keep_nothing)
    other = opened(found)

    assert found.lock(other)
    found.write(other, b"new", 0)
    assert disk.tree()["/run/a"] == b""
    assert found.facts(other).links == 1


# Cutting the power.


def test_the_chosen_operation_is_the_last_that_happens(disk: FaultyDisk) -> None:
    fd = opened(disk)
    disk.crash_after(2)
    disk.write(fd, b"1", 0)
    with pytest.raises(PowerCut):
        disk.write(fd, b"2", 1)

    with pytest.raises(PowerCut):
        disk.write(fd, b"3", 2)
    with pytest.raises(PowerCut):
        disk.read(fd, 1, 0)
    with pytest.raises(PowerCut):
        disk.close(fd)
    with pytest.raises(PowerCut):
        disk.exists("/run")
    assert disk.after_power_cut(keep_everything).tree()["/run/a"] == b"12"


def test_a_power_cut_after_nothing_lets_nothing_happen(disk: FaultyDisk) -> None:
    fd = opened(disk)
    disk.crash_after(0)
    assert disk.read(fd, 10, 0) == b""
    with pytest.raises(PowerCut):
        disk.write(fd, b"1", 0)

    assert disk.after_power_cut(keep_everything).tree()["/run/a"] == b""


def test_every_kind_of_change_counts_and_reading_does_not(disk: FaultyDisk) -> None:
    before = disk.mutations
    fd = disk.open("/run/b", write=True, create=True)
    disk.write(fd, b"1", 0)
    disk.truncate(fd, 0)
    disk.sync(fd)
    disk.mkdir("/run/d")
    disk.rename("/run/b", "/run/c")
    disk.sync_dir("/run")
    disk.unlink("/run/c")
    assert disk.mutations - before == 8

    disk.mkdir("/run/d")
    disk.close(disk.open("/run/a", write=True, create=True))
    disk.names("/run")
    disk.facts(fd)
    assert disk.mutations - before == 8


def test_a_power_cut_is_not_an_ordinary_error() -> None:
    assert not issubclass(PowerCut, Exception)


def test_the_log_names_every_operation(disk: FaultyDisk) -> None:
    fd = opened(disk)
    disk.write(fd, b"abc", 4)
    disk.fail_sync()
    with pytest.raises(OSError, match="error"):
        disk.sync(fd)

    assert disk.log == [
        Operation("open", "/run/a"),
        Operation("write", "/run/a", 4, 3),
        Operation("sync", "/run/a"),
    ]


# Faults.


def test_a_failed_sync_drops_what_it_did_not_write(disk: FaultyDisk) -> None:
    fd = opened(disk)
    disk.write(fd, b"gone", 0)
    disk.fail_sync(errno.EIO)
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        disk.sync(fd)

    disk.sync(fd)
    assert disk.read(fd, 10, 0) == b"gone"
    assert disk.after_power_cut(keep_nothing).tree()["/run/a"] == b"\0\0\0\0"
    assert disk.after_power_cut(keep_everything).tree()["/run/a"] == b"gone"


def test_what_a_failed_sync_dropped_is_durable_once_it_is_written_again(disk: FaultyDisk) -> None:
    fd = opened(disk)
    disk.write(fd, b"gone", 0)
    disk.fail_sync()
    with pytest.raises(OSError, match="error"):
        disk.sync(fd)

    disk.write(fd, b"gone", 0)
    disk.sync(fd)
    assert contents(disk.survivors(samples=20)) == {b"gone"}


def test_a_failed_sync_takes_nothing_that_was_synced_before(disk: FaultyDisk) -> None:
    fd = opened(disk)
    disk.write(fd, b"safe", 0)
    disk.sync(fd)
    disk.write(fd, b"-lost", 4)
    disk.fail_sync()
    with pytest.raises(OSError, match="error"):
        disk.sync(fd)

    assert disk.after_power_cut(keep_nothing).tree()["/run/a"] == b"safe"


def test_a_sync_can_fail_later_and_only_on_one_path(disk: FaultyDisk) -> None:
    fd, other = opened(disk), opened(disk, "/run/b")
    disk.fail_sync(path="/run/a", after=1)
    disk.sync(fd)
    disk.sync(other)

    with pytest.raises(OSError, match="error"):
        disk.sync(fd)
    disk.sync(fd)


def test_a_full_disk_takes_what_fits_and_nothing_more_until_room_is_made(disk: FaultyDisk) -> None:
    disk.put("/run/reserve", bytes(100))
    fd = opened(disk)
    disk.write(fd, b"12345", 0)
    disk.fail_write(errno.ENOSPC, after_bytes=3)

    assert disk.write(fd, b"67890", 5) == 3
    for _ in range(2):
        with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
            disk.write(fd, b"90", 8)
    assert disk.write(fd, b"over", 0) == 4
    disk.unlink("/run/reserve")
    assert disk.write(fd, b"90", 8) == 2
    assert disk.tree()["/run/a"] == b"over567890"


def test_a_removed_file_takes_room_until_it_is_closed() -> None:
    disk = FaultyDisk(capacity=10)
    disk.put("/full", b"0123456789")
    held = disk.open("/full")
    fd = opened(disk, "/new")
    disk.unlink("/full")
    with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
        disk.write(fd, b"x", 0)

    disk.close(held)
    assert disk.write(fd, b"x" * 20, 0) == 10


def test_a_hole_takes_room_when_it_is_written() -> None:
    disk = FaultyDisk(capacity=10)
    fd = opened(disk, "/sparse")
    disk.truncate(fd, 1000)
    assert disk.used == 0

    assert disk.write(fd, b"x" * 20, 500) == 10
    assert disk.used == 10
    disk.truncate(fd, 505)
    assert disk.used == 5
    assert disk.write(fd, b"y" * 8, 500) == 8


def test_writes_can_be_short(disk: FaultyDisk) -> None:
    disk.shorten_writes(3)

    assert disk.write(opened(disk), b"12345", 0) == 3
    assert disk.tree()["/run/a"] == b"123"


def test_a_write_can_fail_after_some_bytes(disk: FaultyDisk) -> None:
    fd = opened(disk)
    disk.fail_write(errno.EIO, after_bytes=4)

    assert disk.write(fd, b"12", 0) == 2
    assert disk.write(fd, b"34567", 2) == 2
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        disk.write(fd, b"5", 4)
    disk.mend()
    assert disk.write(fd, b"5", 4) == 1


def test_any_operation_can_be_made_to_fail(disk: FaultyDisk) -> None:
    disk.fail("open", errno.EACCES, path="/run/a", times=None)
    for _ in range(2):
        with pytest.raises(PermissionError):
            disk.open("/run/a")
    disk.close(opened(disk, "/run/b"))

    disk.fail("rename", errno.EIO, path="/run/c")
    with pytest.raises(OSError, match="error"):
        disk.rename("/run/b", "/run/c")
    disk.rename("/run/b", "/run/c")


def test_a_read_only_disk_can_be_read_and_not_changed(disk: FaultyDisk) -> None:
    fd = opened(disk)
    disk.write(fd, b"kept", 0)
    disk.read_only = True
    before = disk.tree()

    assert disk.read(disk.open("/run/a"), 10, 0) == b"kept"
    attempts: list[Callable[[], object]] = [
        lambda: disk.open("/run/a", write=True),
        lambda: disk.open("/run/b", create=True),
        lambda: disk.write(fd, b"x", 0),
        lambda: disk.truncate(fd, 0),
        lambda: disk.unlink("/run/a"),
        lambda: disk.rename("/run/a", "/run/b"),
        lambda: disk.mkdir("/run/d"),
    ]
    for attempt in attempts:
        with pytest.raises(OSError, match=os.strerror(errno.EROFS)):
            attempt()
    assert disk.tree() == before


def test_a_test_can_remove_a_file_under_its_owner(disk: FaultyDisk) -> None:
    fd = opened(disk)
    disk.unlink("/run/a")

    assert disk.facts(fd).links == 0
    assert disk.write(fd, b"to nowhere", 0) == 10
    assert "/run/a" not in disk.after_power_cut(keep_everything).tree()


def test_putting_a_file_takes_it_from_who_holds_the_old_one(disk: FaultyDisk) -> None:
    fd = opened(disk)
    disk.put("/run/a", b"other")

    assert disk.facts(fd).links == 0
    assert disk.after_power_cut(keep_nothing).tree() == {"/run/a": b"other"}


def test_a_watch_wakes_at_a_change_and_only_then(disk: FaultyDisk) -> None:
    fd = opened(disk)
    with disk.open_watch("/run") as watch:
        assert not watch.wait(0)
        disk.write(fd, b"x", 0)

        assert watch.wait(60)
        assert not watch.wait(0)
        assert watch.fileno() is None


def test_a_chooser_sees_only_what_is_in_doubt(disk: FaultyDisk) -> None:
    def refuse(doubt: Doubt) -> int:
        raise AssertionError(doubt)

    choose: Choose = refuse
    fd = opened(disk)
    disk.write(fd, b"x", 0)
    disk.sync(fd)

    assert disk.after_power_cut(choose).tree()["/run/a"] == b"x"


def test_every_remainder_is_found_if_they_are_few() -> None:
    disk = FaultyDisk()
    fd = disk.open("/a", write=True, create=True)
    disk.write(fd, b"x" * 600, 0)
    disk.mkdir("/b")

    # The name of the directory, that of the file, its size and its two sectors, which say nothing without name and size.
    found = [
        (frozenset(left.tree().items()), frozenset(left.folders())) for left in disk.remainders(limit=32)
    ]
    assert len(set(found)) == 2 * (1 + 1 + 4)
    assert len(found) == len(set(found))


def test_each_change_is_omitted_alone_and_kept_alone_if_remainders_are_many() -> None:
    disk = FaultyDisk()
    for number in range(12):
        disk.mkdir(f"/{number}")

    found = [len(left.folders()) for left in disk.remainders(limit=100, samples=0)]
    assert sorted(found) == [0, *[1] * 12, *[11] * 12, 12]


def test_an_exclusive_directory_is_refused_if_it_exists() -> None:
    disk = FaultyDisk()
    disk.mkdir("/a", exclusive=True)

    with pytest.raises(FileExistsError):
        disk.mkdir("/a", exclusive=True)


def test_a_tree_that_was_removed_may_be_found_again_after_a_power_cut() -> None:
    disk = FaultyDisk()
    disk.put("/a/file", b"content")
    disk.remove_tree("/a")
    disk.remove_tree("/a")

    assert disk.tree() == {}
    assert disk.after_power_cut().tree() == {"/a/file": b"content"}
