"""A disk that refuses, fills up or fails under the journal: one clear error, and nothing acknowledged is lost."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from bartack.errors import (
    BartackError,
    FileAccessError,
    JournalClosedError,
    JournalFullError,
    JournalNotFoundError,
    JournalOwnershipLostError,
    JournalPoisonedError,
    JournalSyncError,
)
from bartack.journal import Draft, Journal, open_journal, open_reader, verify_journal
from bartack.journal.contract import INLINE_LIMIT
from bartack.journal.file import collect_blobs
from bartack.testing import FaultyDisk
from bartack.testing.disk import FaultyWatch
from bartack.testing.platter import keep_nothing

RUN = "/run"
JOURNAL = f"{RUN}/journal.ndjson"
RESERVE = f"{RUN}/reserve"
FILLING = 128 * 1024
LARGE = b'"' + b"x" * INLINE_LIMIT + b'"'


def disk_with_history(*, filled: bool = False) -> FaultyDisk:
    """A disk with a journal that was closed; ``filled`` if its owner had been killed instead."""
    disk = FaultyDisk()
    with open_journal(RUN, disk=disk) as journal:
        journal.append("earlier", {"n": 1}, LARGE)
        journal.append("earlier", {"n": 2})
    found = disk.after_power_cut(keep_nothing)
    content = found.tree()[JOURNAL]
    assert len(content) == FILLING
    if not filled:
        found.put(JOURNAL, content.rstrip(b"\n") + b"\n")
    return found


def kinds(disk: FaultyDisk) -> list[str]:
    """What the next owner finds, when the disk is whole again."""
    disk.mend()
    with open_journal(RUN, disk=disk) as journal:
        for entry in journal.read():
            journal.load_value(entry)
        return [entry.kind for entry in journal.read() if entry.kind != "journal.opened"]


# Refused.

REFUSALS: dict[str, Callable[[FaultyDisk], object]] = {
    "no permission for the journal": lambda disk: disk.fail("open", errno.EACCES, path=JOURNAL, times=None),
    "no permission for the lock": lambda disk: disk.fail(
        "open", errno.EACCES, path=f"{RUN}/lock", times=None
    ),
    "a read-only file system": lambda disk: setattr(disk, "read_only", True),
    "a disk that cannot be read": lambda disk: disk.fail("read", errno.EIO, times=None),
    "a disk that cannot be written": lambda disk: disk.fail_write(errno.EIO),
    "too many open files": lambda disk: disk.fail("open", errno.EMFILE, times=None),
}


@pytest.mark.parametrize("filled", [True, False])
@pytest.mark.parametrize("reason", REFUSALS)
def test_a_disk_that_refuses_gives_one_clear_error_and_an_unchanged_journal(
    reason: str, *, filled: bool
) -> None:
    disk = disk_with_history(filled=filled)
    before = disk.tree()
    REFUSALS[reason](disk)

    refused = JournalSyncError if reason == "a read-only file system" else FileAccessError
    with pytest.raises(refused) as caught:
        open_journal(RUN, disk=disk)

    assert str(caught.value).startswith(RUN)
    assert disk.tree()[JOURNAL] == before[JOURNAL]
    assert kinds(disk) == ["earlier", "earlier"]


def test_a_directory_that_cannot_be_made_gives_one_clear_error() -> None:
    disk = FaultyDisk()
    disk.fail("mkdir", errno.EACCES)
    with pytest.raises(FileAccessError, match=os.strerror(errno.EACCES)):
        open_journal(RUN, disk=disk)
    with pytest.raises(FileAccessError, match=os.strerror(errno.ENOENT)):
        open_journal("/no/such/place", disk=disk)


@pytest.mark.parametrize("name", ["journal.ndjson", "lock"])
def test_a_directory_in_the_place_of_a_file_gives_one_clear_error(name: str, tmp_path: Path) -> None:
    (tmp_path / name).mkdir()
    (tmp_path / name / "precious").write_text("kept")

    with pytest.raises(FileAccessError, match=os.strerror(errno.EISDIR)):
        open_journal(tmp_path)

    assert (tmp_path / name / "precious").read_text() == "kept"


def test_a_file_in_the_place_of_the_directory_gives_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("kept")

    with pytest.raises(FileAccessError):
        open_journal(tmp_path / "run")

    assert (tmp_path / "run").read_text() == "kept"


def test_a_device_is_no_journal() -> None:
    with pytest.raises(JournalNotFoundError):
        verify_journal("/dev/zero")


def test_a_pipe_is_no_journal_and_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")

    with pytest.raises(JournalNotFoundError):
        verify_journal(tmp_path / "pipe")


def test_a_journal_that_is_not_there_is_not_made_by_looking(tmp_path: Path) -> None:
    looks: list[Callable[[Path], object]] = [open_reader, verify_journal, collect_blobs]
    for look in looks:
        for place in (tmp_path, tmp_path / "none", tmp_path / "none" / "journal.ndjson"):
            with pytest.raises(JournalNotFoundError):
                look(place)

    assert list(tmp_path.iterdir()) == []


# Every operation fails once.

FAILING = {"open", "read", "write", "truncate", "sync", "rename", "unlink", "mkdir", "sync_dir", "names"}
"""What an operating system can refuse on a path or a descriptor that is in order."""


def use(disk: FaultyDisk, acknowledged: list[str]) -> None:
    """All that is done with a journal, and what of it was acknowledged."""
    with open_journal(RUN, disk=disk) as journal:
        for kind, value in (("one", None), ("two", LARGE), ("three", LARGE[:-2] + b'y"'), ("four", b"1")):
            journal.append(kind, {}, value)
            acknowledged.append(kind)
        for entry in journal.read():
            journal.load_value(entry)
        journal.stage(Draft("five"), Draft("six", ref=journal.put_blob(LARGE)))
        journal.commit()
        acknowledged += ["five", "six"]
    with open_reader(RUN, disk=disk, watch=disk.open_watch) as reader:
        for entry in reader.follow(timeout_s=0):
            reader.load_value(entry)
    verify_journal(RUN, disk=disk)
    collect_blobs(RUN, disk=disk)


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC, errno.EACCES])
@pytest.mark.parametrize("torn", [b"", b'{"seq":', b"\n" * 1000, b'{"seq":' + b"\n" * 1000])
def test_any_operation_that_fails_gives_an_error_of_ours_and_loses_nothing(error: int, torn: bytes) -> None:
    start = disk_with_history()
    start.put(JOURNAL, start.tree()[JOURNAL] + torn)
    calm = start.after_power_cut()
    use(calm, [])
    operations = [entry.name for entry in calm.log if entry.name in FAILING]
    failed = 0
    for name in sorted(set(operations)):
        for after in range(operations.count(name)):
            disk = start.after_power_cut()
            disk.fail(name, error, after=after)
            failed += fails_well(disk)
    assert failed > len(operations) // 2


def fails_well(disk: FaultyDisk) -> bool:
    acknowledged: list[str] = ["earlier", "earlier"]
    failed = False
    try:
        use(disk, acknowledged)
    except BartackError:
        failed = True
    found = [kind for kind in kinds(disk.after_power_cut()) if kind != "journal.interrupted"]
    assert found[: len(acknowledged)] == acknowledged
    return failed


# Full.


@pytest.mark.requirement("full-disk-stops", "last-words-fit")
def test_a_full_disk_stops_the_journal_with_a_last_entry_that_says_so() -> None:
    disk = disk_with_history()
    with open_journal(RUN, disk=disk) as journal:
        journal.append("fits")
        disk.fail_write(errno.ENOSPC, after_bytes=50)
        with pytest.raises(JournalFullError):
            journal.append("does.not.fit", {"text": "x" * FILLING})
        with pytest.raises(JournalFullError):
            journal.append("small")
        assert RESERVE not in disk.tree()

    found = disk.after_power_cut(keep_nothing)
    with open_reader(RUN, disk=found) as reader:
        last = list(reader.read())[-1]
    assert (last.kind, last.data) == ("journal.interrupted", {"reason": os.strerror(errno.ENOSPC)})
    assert kinds(found) == ["earlier", "earlier", "fits", "journal.interrupted"]
    assert len(found.tree()[RESERVE]) >= 4096


def append_until_full(journal: Journal) -> int:
    """How many entries were acknowledged."""
    fitting = 0
    try:
        while True:
            journal.append("fitting", {"n": fitting}, b'"some text"')
            fitting += 1
    except JournalFullError:
        return fitting


def test_a_disk_that_is_full_after_any_byte_loses_nothing() -> None:
    for room in range(0, 1200, 7):
        disk = disk_with_history()
        with open_journal(RUN, disk=disk) as journal:
            journal.append("filler", {"text": "x" * (FILLING - journal.size_bytes - 600)})
            disk.fail_write(errno.ENOSPC, after_bytes=room)
            fitting = append_until_full(journal)

        assert kinds(disk.after_power_cut(keep_nothing)) == [
            "earlier",
            "earlier",
            "filler",
            *["fitting"] * fitting,
            "journal.interrupted",
        ]


@pytest.mark.parametrize("reserve", [True, False])
@pytest.mark.parametrize("filled", [True, False])
def test_a_journal_is_opened_on_a_full_disk_or_refused_and_loses_nothing(
    *, filled: bool, reserve: bool
) -> None:
    opened = 0
    for room in range(0, 400, 3):
        disk = disk_with_history(filled=filled)
        if not reserve:
            disk.unlink(RESERVE)
        disk.fail_write(errno.ENOSPC, after_bytes=room)
        try:
            open_journal(RUN, disk=disk).close()
            opened += 1
        except (JournalFullError, FileAccessError):
            pass

        found = kinds(disk.after_power_cut(keep_nothing))
        assert found[:2] == ["earlier", "earlier"]
        assert set(found[2:]) <= {"journal.interrupted"}
    assert opened == 134 if filled else 0 < opened < 134


def test_no_room_for_a_new_journal_leaves_none_and_the_next_try_makes_one() -> None:
    disk = FaultyDisk(capacity=40)
    with pytest.raises(JournalFullError, match=os.strerror(errno.ENOSPC)):
        open_journal(RUN, disk=disk)

    assert JOURNAL not in disk.tree()
    assert kinds(disk) == []


def test_no_room_for_a_large_value_stops_the_journal() -> None:
    disk = disk_with_history()
    with open_journal(RUN, disk=disk) as journal:
        journal.append("fits")
        disk.fail_write(errno.ENOSPC, after_bytes=1000)
        with pytest.raises(JournalFullError):
            journal.append("large", {}, LARGE[:-2] + b'y"')
        with pytest.raises(JournalFullError):
            journal.append("small")

    assert kinds(disk)[:3] == ["earlier", "earlier", "fits"]


class InterruptingDisk(FaultyDisk):
    """Does something in the middle of the next sync."""

    def __init__(self) -> None:
        super().__init__()
        self.interruption: Callable[[], object] | None = None

    def sync(self, fd: int) -> None:
        interruption, self.interruption = self.interruption, None
        if interruption is not None:
            interruption()
        super().sync(fd)


def test_a_large_value_that_finds_no_room_does_not_disturb_a_commit_under_way() -> None:
    disk = InterruptingDisk()
    with open_journal(RUN, disk=disk) as journal:

        def stage_in_another_thread() -> None:
            disk.fail_write(errno.ENOSPC)
            with ThreadPoolExecutor() as pool, pytest.raises(JournalFullError):
                pool.submit(journal.append, "large", {}, LARGE).result()

        disk.interruption = stage_in_another_thread
        journal.append("acknowledged", {}, b'"' + b"x" * 3000 + b'"')
        with pytest.raises(JournalFullError):
            journal.append("more")

    assert kinds(disk.after_power_cut(keep_nothing)) == ["acknowledged"]


# Failing.


@pytest.mark.requirement("last-commit-is-written-again")
def test_what_a_failed_sync_left_in_the_cache_is_durable_before_it_is_served() -> None:
    disk = disk_with_history()
    with open_journal(RUN, disk=disk) as journal:
        disk.fail_sync(path=JOURNAL)
        with pytest.raises(JournalSyncError, match=os.strerror(errno.EIO)):
            journal.append("doubtful", {}, b'"' + b"x" * 3000 + b'"')
        with pytest.raises(JournalPoisonedError):
            journal.append("more")
    assert "doubtful" not in kinds(disk.after_power_cut(keep_nothing))

    with open_journal(RUN, disk=disk) as journal:
        served = [entry.kind for entry in journal.read()]
        found = disk.after_power_cut(keep_nothing)
    assert "doubtful" in served
    assert kinds(found) == ["earlier", "earlier", "doubtful"]


def test_a_failed_sync_is_never_tried_again() -> None:
    disk = disk_with_history()
    with open_journal(RUN, disk=disk) as journal:
        disk.fail_sync(path=JOURNAL)
        with pytest.raises(JournalSyncError):
            journal.append("doubtful")
        log = len(disk.log)
        for _ in range(3):
            with pytest.raises(JournalSyncError):
                journal.commit()

        assert disk.log[log:] == []


@pytest.mark.requirement("process-durability-does-not-sync")
def test_with_process_durability_a_commit_does_not_wait_for_the_disk() -> None:
    disk = disk_with_history()
    with open_journal(RUN, disk=disk, durability="process") as journal:
        log = len(disk.log)
        journal.append("fast")
        assert [operation.name for operation in disk.log[log:] if operation.name == "sync"] == []

    assert kinds(disk) == ["earlier", "earlier", "fast"]
    assert disk.after_power_cut(keep_nothing).exists(JOURNAL)


def test_short_writes_are_finished() -> None:
    disk = FaultyDisk()
    disk.shorten_writes(7)
    with open_journal(RUN, disk=disk) as journal:
        journal.append("one", {"n": 1}, b'"a value of some length"')
        journal.append("large", {}, LARGE)

    assert kinds(disk.after_power_cut(keep_nothing)) == ["one", "large"]


# Interrupted.


class InterruptedDisk(FaultyDisk):
    """A disk during whose next use Ctrl-C is pressed."""

    interrupted: str = ""

    def write(self, fd: int, data: bytes, offset: int) -> int:
        self._interrupt("before the write")
        taken = super().write(fd, data, offset)
        self._interrupt("after the write")
        return taken

    def sync(self, fd: int) -> None:
        super().sync(fd)
        self._interrupt("after the sync")

    def _interrupt(self, moment: str) -> None:
        if self.interrupted == moment:
            self.interrupted = ""
            raise KeyboardInterrupt


@pytest.mark.parametrize("moment", ["before the write", "after the write", "after the sync"])
def test_a_commit_that_is_interrupted_is_poison(moment: str) -> None:
    disk = InterruptedDisk()
    with open_journal(RUN, disk=disk) as journal:
        journal.append("safe")
        disk.interrupted = moment
        with pytest.raises(KeyboardInterrupt):
            journal.append("doubtful")
        with pytest.raises(JournalPoisonedError, match="interrupted"):
            journal.append("on.the.way.out")

    assert kinds(disk) in (["safe"], ["safe", "doubtful"])


def test_a_place_that_was_taken_twice_is_never_acknowledged() -> None:
    disk = FaultyDisk()
    with open_journal(RUN, disk=disk) as journal:
        journal.stage(Draft("one"))
        journal._stage.last_seq -= 1  # as an interruption in the middle of staging leaves it
        journal.stage(Draft("two"))
        with pytest.raises(JournalPoisonedError, match="interrupted"):
            journal.commit()

    assert kinds(disk) == []


def test_a_forked_child_does_not_append_to_its_parents_journal(tmp_path: Path) -> None:
    with open_journal(tmp_path) as journal:
        child = os.fork()
        if child == 0:
            try:
                journal.append("by.the.child")
            except JournalOwnershipLostError:
                os._exit(7)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        journal.append("by.the.parent")

    assert os.waitstatus_to_exitcode(status) == 7
    with open_reader(tmp_path) as reader:
        assert [entry.kind for entry in reader.read()] == ["journal.opened", "by.the.parent"]


def test_reading_on_after_closing_is_refused(tmp_path: Path) -> None:
    with open_journal(tmp_path) as journal:
        for _ in range(40):
            journal.stage(Draft("long", {}, b'"' + b"x" * 60_000 + b'"'))
        journal.commit()
        own = journal.read()
        next(own)
    with open_reader(tmp_path) as reader:
        foreign = reader.read()
        next(foreign)

    for entries in (own, foreign):
        with pytest.raises(JournalClosedError):
            list(entries)


# Taken away.


@pytest.mark.requirement("deleted-file-is-noticed")
def test_an_owner_whose_file_was_deleted_acknowledges_nothing_more() -> None:
    disk = disk_with_history()
    with open_journal(RUN, disk=disk) as journal:
        disk.unlink(JOURNAL)
        with pytest.raises(JournalOwnershipLostError):
            journal.append("to.nowhere")

        assert journal.lost
        with pytest.raises(JournalOwnershipLostError):
            journal.append("to.nowhere")


def test_an_owner_whose_lock_was_deleted_acknowledges_nothing_more(tmp_path: Path) -> None:
    with open_journal(tmp_path) as first:
        first.append("kept")
        (tmp_path / "lock").unlink()

        with pytest.raises(JournalOwnershipLostError):
            first.append("after")

        assert first.lost


class RobbedDisk(FaultyDisk):
    """A disk from which a file is deleted right behind the next write, or the next sync."""

    robbed: str = ""
    behind: str = "write"

    def write(self, fd: int, data: bytes, offset: int) -> int:
        taken = super().write(fd, data, offset)
        self._rob("write")
        return taken

    def sync(self, fd: int) -> None:
        super().sync(fd)
        self._rob("sync")

    def _rob(self, moment: str) -> None:
        if self.robbed and moment == self.behind:
            robbed, self.robbed = self.robbed, ""
            self.unlink(robbed)


@pytest.mark.parametrize("behind", ["write", "sync"])
@pytest.mark.parametrize("robbed", [JOURNAL, f"{RUN}/lock"])
def test_what_is_deleted_while_a_commit_is_written_is_noticed_by_that_commit(
    robbed: str, behind: str
) -> None:
    disk = RobbedDisk()
    with open_journal(RUN, disk=disk) as journal:
        journal.append("safe")
        disk.behind, disk.robbed = behind, robbed
        with pytest.raises(JournalOwnershipLostError):
            journal.append("to.nowhere")

        assert journal.lost


def test_an_owner_whose_directory_was_deleted_acknowledges_nothing_more(tmp_path: Path) -> None:
    with open_journal(tmp_path / "run") as journal:
        journal.append("safe")
        shutil.rmtree(tmp_path / "run")
        with pytest.raises(JournalOwnershipLostError):
            journal.append("to.nowhere")

        assert journal.lost


def test_a_follower_whose_file_was_deleted_is_told() -> None:
    disk = disk_with_history()
    with open_reader(RUN, disk=disk, watch=disk.open_watch) as reader:
        following = reader.follow()
        for _ in range(3):
            next(following)
        disk.unlink(JOURNAL)

        with pytest.raises(JournalOwnershipLostError):
            next(following)


def test_a_follower_that_saw_what_a_crash_took_back_is_told() -> None:
    disk = disk_with_history()
    with open_reader(RUN, disk=disk, watch=disk.open_watch) as reader:
        following = reader.follow()
        for _ in range(3):
            next(following)
        fd = disk.open(JOURNAL, write=True)
        disk.truncate(fd, 200)

        with pytest.raises(JournalOwnershipLostError):
            next(following)


def test_a_follower_ends_in_time_while_other_files_change(tmp_path: Path) -> None:
    changes = 0

    class BusyWatch(FaultyWatch):
        def wait(self, timeout_s: float | None) -> bool:
            nonlocal changes
            assert timeout_s is not None
            assert timeout_s <= 0.02
            changes += 1
            return True

    with (
        open_journal(tmp_path),
        open_reader(tmp_path, watch=lambda _: BusyWatch(lambda seen, _: seen, 0)) as reader,
    ):
        assert [entry.kind for entry in reader.follow(timeout_s=0.02)] == ["journal.opened"]

    assert changes


@pytest.mark.requirement("directory-is-complete")
def test_a_journal_works_where_its_directory_was_moved_to(tmp_path: Path) -> None:
    with open_journal(tmp_path / "here") as journal:
        journal.append("large", {}, LARGE)
    (tmp_path / "here").rename(tmp_path / "there")

    with open_journal(tmp_path / "there") as journal:
        entry = next(journal.read(2))
        assert journal.load_value(entry) == LARGE
    assert not (tmp_path / "here").exists()
