"""An owner fills its file with blank lines and writes over them: they mean nothing to whoever finds them, and hide nothing."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from bartack.errors import JournalCorruptError, JournalFullError, JournalOwnershipLostError, JournalSyncError
from bartack.journal import Durability, Entry, open_journal, open_reader, verify_journal
from bartack.testing import FaultyDisk, VirtualClock
from bartack.testing.platter import keep_everything, keep_nothing

RUN = "/run"
JOURNAL = f"{RUN}/journal.ndjson"
FILLING = 128 * 1024


def content_of(disk: FaultyDisk) -> bytes:
    return disk.tree()[JOURNAL]


def disk_with(content: bytes) -> FaultyDisk:
    disk = FaultyDisk()
    disk.put(JOURNAL, content)
    return disk


def killed_history() -> tuple[bytes, list[Entry]]:
    """The file that a killed owner leaves, and the entries in it."""
    disk = FaultyDisk()
    with open_journal(RUN, disk=disk, clock=VirtualClock()) as journal:
        for number in range(20):
            journal.append("n", {"n": number})
        return content_of(disk), list(journal.read())


FILLED, ENTRIES = killed_history()
LINES = FILLED.rstrip(b"\n") + b"\n"


# Filled.


@pytest.mark.requirement("file-is-filled")
def test_an_owner_fills_its_file_once_and_then_writes_over_the_blank_lines() -> None:
    disk = FaultyDisk()
    with open_journal(RUN, disk=disk) as journal:
        journal.append("first")
        for number in range(100):
            journal.append("n", {"n": number})
            content = content_of(disk)

            assert len(content) == FILLING
            assert content[journal.size_bytes :] == b"\n" * (FILLING - journal.size_bytes)
        journal.append("large", {"text": "x" * FILLING})
        assert len(content_of(disk)) == 2 * FILLING
        journal.append("huge", {"text": "x" * (4 * FILLING)})
        assert len(content_of(disk)) == 6 * FILLING


@pytest.mark.requirement("file-is-filled")
@pytest.mark.parametrize("durability", ["power", "process"])
def test_a_closed_journal_ends_with_its_last_entry(durability: Durability) -> None:
    disk = FaultyDisk()
    with open_journal(RUN, disk=disk, durability=durability) as journal:
        journal.append("last")
        assert (len(content_of(disk)) > journal.size_bytes) == (durability == "power")

    assert len(content_of(disk)) == journal.size_bytes
    assert content_of(disk).endswith(b"}\n")


def test_a_file_that_cannot_be_cut_is_closed_all_the_same() -> None:
    disk = FaultyDisk()
    with open_journal(RUN, disk=disk) as journal:
        journal.append("kept")
        disk.fail("truncate", errno.EIO)
    assert len(content_of(disk)) == FILLING

    with open_journal(RUN, disk=disk) as journal:
        assert journal.recovery is None
        assert [entry.kind for entry in journal.read(2)] == ["kept", "journal.opened"]


def test_nothing_is_cut_from_a_journal_whose_commit_failed() -> None:
    disk = FaultyDisk()
    with open_journal(RUN, disk=disk) as journal:
        journal.append("kept")
        disk.fail_sync(path=JOURNAL)
        with pytest.raises(JournalSyncError):
            journal.append("doubtful")
        before = content_of(disk)

    assert content_of(disk) == before
    with open_journal(RUN, disk=disk) as journal:
        assert [entry.kind for entry in journal.read(2)] == ["kept", "doubtful", "journal.opened"]


def test_an_owner_whose_lock_was_deleted_cuts_nothing_from_the_next_ones_entries(tmp_path: Path) -> None:
    first = open_journal(tmp_path)
    first.append("of.the.first")
    (tmp_path / "lock").unlink()
    with open_journal(tmp_path) as second:
        second.append("of.the.second")
        first.close()

        assert [entry.kind for entry in second.read(2)] == [
            "of.the.first",
            "journal.opened",
            "of.the.second",
        ]


def test_a_forked_child_cuts_nothing_from_its_parents_journal(tmp_path: Path) -> None:
    with open_journal(tmp_path) as journal:
        journal.append("before")
        child = os.fork()
        if child == 0:
            with suppress(BaseException):
                journal.close()
            os._exit(0)
        os.waitpid(child, 0)

        assert (tmp_path / "journal.ndjson").stat().st_size == FILLING


# Found.


@pytest.mark.requirement("blank-end-is-legal")
def test_what_a_killed_owner_filled_is_cut_by_the_next_one_and_is_no_damage() -> None:
    disk = disk_with(FILLED)
    report = verify_journal(RUN, disk=disk)
    with open_journal(RUN, disk=disk) as journal:
        assert journal.recovery is None
        assert list(journal.read())[:-1] == ENTRIES

    assert (report.ok, report.damage, report.entries) == (True, None, len(ENTRIES))
    assert report.size_bytes == len(LINES)
    assert sorted(disk.names(RUN)) == ["journal.ndjson", "lock", "reserve"]


def test_a_file_cut_anywhere_in_its_filling_is_whole() -> None:
    for size in (*range(len(LINES), len(LINES) + 70), len(LINES) + 5000, FILLING - 1):
        disk = disk_with(FILLED[:size])
        with open_reader(RUN, disk=disk) as reader:
            assert list(reader.read()) == ENTRIES
        with open_journal(RUN, disk=disk) as journal:
            assert journal.recovery is None
            assert journal.synced_seq == len(ENTRIES) + 1


@pytest.mark.requirement("torn-line-is-kept-aside")
@pytest.mark.parametrize("place", [0, 1, 63, 64, 70_000, FILLING - len(LINES) - 512])
def test_zeros_in_the_filling_are_cut_and_kept(place: int) -> None:
    start = len(LINES) + place
    damaged = FILLED[:start] + bytes(512) + FILLED[start + 512 :]
    disk = disk_with(damaged)
    report = verify_journal(RUN, disk=disk)
    with open_journal(RUN, disk=disk) as journal:
        assert journal.recovery is not None
        assert list(journal.read())[:-1] == ENTRIES
        kept = disk.tree()[journal.recovery.kept_as]

    end = min(start + 513, FILLING)
    assert kept == damaged[len(LINES) : end]
    assert journal.recovery.size_bytes == len(kept)
    assert report.ok
    assert report.damage is not None
    assert report.damage.offset == len(LINES)
    assert report.size_bytes == end


def test_a_torn_line_is_kept_without_the_blank_lines_behind_it() -> None:
    torn = b'{"seq":22,"c":22,"at":1'
    disk = disk_with(LINES + torn + FILLED[len(LINES) + len(torn) :])
    with open_journal(RUN, disk=disk) as journal:
        assert journal.recovery is not None
        assert disk.tree()[journal.recovery.kept_as] == torn + b"\n"
        assert list(journal.read())[:-1] == ENTRIES


@pytest.mark.requirement("changed-byte-is-found")
@pytest.mark.parametrize("blank", [1, 2, 63, 64, 65, 1 << 16, 200_000])
def test_blank_lines_before_an_entry_of_a_later_commit_are_damage(blank: int) -> None:
    lines = LINES.splitlines(keepends=True)
    later = b"".join(lines[-2:])
    for end in (b"", b"\n" * 70, b"\n" * (1 << 17)):
        for kept in (lines[:-2], lines[:-3]):
            before = b"".join(kept)
            content = before + b"\n" * blank + later + end
            disk = disk_with(content)
            with open_reader(RUN, disk=disk) as reader, pytest.raises(JournalCorruptError) as read:
                list(reader.read())
            with pytest.raises(JournalCorruptError) as opened:
                open_journal(RUN, disk=disk)

            assert read.value.offset == opened.value.offset == len(before)
            assert content_of(disk) == content
            report = verify_journal(RUN, disk=disk)
            assert report.damage is not None
            assert (report.damage.torn, report.damage.offset) == (False, len(before))


@pytest.mark.requirement("torn-line-is-kept-aside")
@pytest.mark.parametrize("blank", [1, 63, 64, 65, 1 << 16, 200_000])
def test_blank_lines_before_what_was_never_acknowledged_are_torn_with_it(blank: int) -> None:
    for junk in (b"x", b"x\n", b"x" + b"\n" * 100, b"{}\n" + b"\n" * (1 << 17)):
        disk = disk_with(LINES + b"\n" * blank + junk)
        with open_reader(RUN, disk=disk) as reader:
            assert list(reader.read()) == ENTRIES
        with open_journal(RUN, disk=disk) as journal:
            assert journal.recovery is not None
            assert (
                disk.tree()[journal.recovery.kept_as] == (b"\n" * blank + junk).rstrip(b"\n") + junk[1:][-1:]
            )
            assert list(journal.read())[:-1] == ENTRIES


# Full.


@pytest.mark.requirement("full-disk-stops")
@pytest.mark.parametrize("room", [600, 1000, FILLING - 1])
def test_a_disk_with_room_for_the_entry_alone_takes_it(room: int) -> None:
    disk = disk_with(LINES)
    disk.put(f"{RUN}/reserve", bytes(64 * 1024))
    disk.fail_write(errno.ENOSPC, after_bytes=room)
    with open_journal(RUN, disk=disk) as journal:
        journal.append("small")
        with pytest.raises(JournalFullError):
            journal.append("large", {"text": "x" * FILLING})

    found = disk.after_power_cut(keep_nothing)
    with open_reader(RUN, disk=found) as reader:
        kinds = [entry.kind for entry in reader.read(len(ENTRIES) + 1)]
    assert kinds == ["journal.opened", "small", "journal.interrupted"]


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EDQUOT])
def test_a_filling_that_is_refused_as_a_whole_does_not_stop_the_journal(error: int) -> None:
    disk = disk_with(LINES)
    with open_journal(RUN, disk=disk) as journal:
        journal.append("large", {"text": "x" * (FILLING - journal.size_bytes - 120)})
        disk.fail("write", error, path=JOURNAL)
        seq = journal.append("small")
        assert len(content_of(disk)) == journal.size_bytes
        journal.append("smaller")
        assert len(content_of(disk)) == 2 * FILLING
        found = disk.after_power_cut(keep_nothing)

    with open_reader(RUN, disk=found) as reader:
        assert [entry.kind for entry in reader.read(seq)] == ["small", "smaller"]


def test_any_other_error_while_filling_is_poison() -> None:
    disk = disk_with(LINES)
    with open_journal(RUN, disk=disk) as journal:
        journal.append("large", {"text": "x" * (FILLING - journal.size_bytes - 120)})
        disk.fail("write", errno.EIO, path=JOURNAL)
        with pytest.raises(JournalSyncError):
            journal.append("small")


# Read while it is written.


class InterruptedDisk(FaultyDisk):
    """Lets something happen between two reads of the journal."""

    def __init__(self) -> None:
        super().__init__()
        self.between: Callable[[], object] | None = None

    def read(self, fd: int, size: int, offset: int) -> bytes:
        found = super().read(fd, size, offset)
        if found.endswith(b"\n\n") and self.between is not None:
            between, self.between = self.between, None
            between()
        return found


@pytest.mark.parametrize("look", ["read", "verify"])
def test_entries_written_between_two_reads_are_not_taken_for_damage(look: str) -> None:
    disk = InterruptedDisk()
    with open_journal(RUN, disk=disk) as journal:
        # The chunk that is read first ends with blank lines; then entries are written over its end and far behind it.
        journal.append("long", {"text": "x" * 65_000})

        def go_on() -> None:
            for number in range(20):
                journal.append("n", {"n": number, "text": "x" * 100})

        disk.between = go_on
        if look == "read":
            with open_reader(RUN, disk=disk) as reader:
                assert list(reader.read()) == list(journal.read())
        else:
            report = verify_journal(RUN, disk=disk)
            assert (report.damage, report.entries) == (None, journal.synced_seq)
        assert disk.between is None


def test_a_follower_sees_entries_appear_in_the_filling() -> None:
    disk = FaultyDisk()
    with (
        open_journal(RUN, disk=disk) as journal,
        open_reader(RUN, disk=disk, watch=disk.open_watch) as reader,
    ):
        following = reader.follow(2, timeout_s=5)
        for number in range(300):
            journal.append("n", {"n": number, "text": "x" * 1000})
            assert next(following).data["n"] == number
        journal.close()
        with open_journal(RUN, disk=disk) as later:
            assert next(following).kind == "journal.opened"
            later.append("more")
            assert next(following).kind == "more"


def test_a_follower_that_saw_what_blank_lines_replaced_is_told() -> None:
    disk = disk_with(FILLED)
    with open_reader(RUN, disk=disk, watch=disk.open_watch) as reader:
        following = reader.follow(timeout_s=5)
        for _ in ENTRIES:
            next(following)
        last = LINES.splitlines(keepends=True)[-1]
        fd = disk.open(JOURNAL, write=True)
        disk.write(fd, b"\n" * len(last), len(LINES) - len(last))

        with pytest.raises(JournalOwnershipLostError):
            next(following)


def test_a_cut_that_a_power_cut_undoes_leaves_a_whole_journal() -> None:
    disk = FaultyDisk()
    with open_journal(RUN, disk=disk) as journal:
        journal.append("kept")
    for choose in (keep_nothing, keep_everything):
        found = disk.after_power_cut(choose)
        with open_journal(RUN, disk=found) as journal:
            assert journal.recovery is None
            assert [entry.kind for entry in journal.read(2)] == ["kept", "journal.opened"]


@pytest.mark.requirement("full-disk-stops")
@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_stops_the_opening_of_a_torn_journal_and_opening_it_again_goes_on(error: int) -> None:
    torn = LINES + b'{"seq":99'
    disk = disk_with(torn)
    disk.fail_write(error)
    with pytest.raises(JournalFullError):
        open_journal(RUN, disk=disk)

    assert disk.tree()[JOURNAL] == torn
    disk.mend()
    with open_journal(RUN, disk=disk) as journal:
        assert journal.recovery is not None
        assert list(journal.read())[:-1] == ENTRIES
