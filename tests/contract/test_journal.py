"""The journal contract on every engine: files on the real disk, files on the simulated one, memory, memory that takes its time."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
import threading
from collections.abc import Iterable
from pathlib import Path

from tests.late_journal import LateJournal

from bartack.core.clock import Clock
from bartack.core.disk import RealDisk
from bartack.journal import (
    BlobRef,
    Draft,
    Entry,
    FileJournal,
    FileReader,
    Journal,
    MemoryJournal,
    open_journal,
    open_reader,
)
from bartack.journal.file import collect_blobs
from bartack.journal.memory import MemoryReader, MemoryStore
from bartack.testing import FaultyDisk, JournalContract, JournalEngine


class BreakableDisk(RealDisk):
    """The operating system's files, with a sync that can be made to fail."""

    def __init__(self) -> None:
        self.breaks = False

    def sync(self, fd: int) -> None:
        breaks, self.breaks = self.breaks, False
        if breaks:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        super().sync(fd)


class FilesOnRealDisk:
    def __init__(self) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="bartack-contract-"))
        self.run = self.directory / "run"
        self.disk = BreakableDisk()

    def open(self, *, clock: Clock | None = None) -> FileJournal:
        return open_journal(self.run, disk=self.disk, clock=clock)

    def open_reader(self) -> FileReader:
        return open_reader(self.run, disk=self.disk)

    def steal(self) -> FileJournal:
        copy = self.run / "copy"
        shutil.copy(self.run / "journal.ndjson", copy)
        copy.rename(self.run / "journal.ndjson")
        (self.run / "lock").unlink()
        return self.open()

    def break_next_commit(self, journal: Journal) -> None:
        del journal
        self.disk.breaks = True

    def collect(self, keep: Iterable[str] = ()) -> int:
        return collect_blobs(self.run, keep=keep, disk=self.disk)

    def damage_blob(self, ref: BlobRef) -> None:
        blob = self._blob(ref)
        content = bytearray(blob.read_bytes())
        content[len(content) // 2] ^= 1
        blob.write_bytes(content)

    def remove_blob(self, ref: BlobRef) -> None:
        self._blob(ref).unlink()

    def close(self) -> None:
        shutil.rmtree(self.directory)

    def _blob(self, ref: BlobRef) -> Path:
        return self.run / "blobs" / ref.sha256[:2] / ref.sha256[2:]


class FilesOnFaultyDisk:
    def __init__(self) -> None:
        self.disk = FaultyDisk()

    def open(self, *, clock: Clock | None = None) -> FileJournal:
        return open_journal("/run", disk=self.disk, clock=clock)

    def open_reader(self) -> FileReader:
        return open_reader("/run", disk=self.disk, watch=self.disk.open_watch)

    def steal(self) -> FileJournal:
        self.disk.put("/run/journal.ndjson", self.disk.tree()["/run/journal.ndjson"])
        self.disk.unlink("/run/lock")
        return self.open()

    def break_next_commit(self, journal: Journal) -> None:
        del journal
        self.disk.fail_sync()

    def collect(self, keep: Iterable[str] = ()) -> int:
        return collect_blobs("/run", keep=keep, disk=self.disk)

    def damage_blob(self, ref: BlobRef) -> None:
        content = bytearray(self.disk.tree()[self._blob(ref)])
        content[len(content) // 2] ^= 1
        self.disk.put(self._blob(ref), bytes(content))

    def remove_blob(self, ref: BlobRef) -> None:
        self.disk.unlink(self._blob(ref))

    def close(self) -> None:
        """Nothing is left of it."""

    def _blob(self, ref: BlobRef) -> str:
        return f"/run/blobs/{ref.sha256[:2]}/{ref.sha256[2:]}"


class Memory:
    def __init__(self) -> None:
        self.store = MemoryStore()

    def open(self, *, clock: Clock | None = None) -> MemoryJournal:
        return MemoryJournal(self.store, clock=clock)

    def open_reader(self) -> MemoryReader:
        return MemoryReader(self.store)

    def steal(self) -> MemoryJournal:
        return MemoryJournal(self.store, take_over=True)

    def break_next_commit(self, journal: Journal) -> None:
        assert isinstance(journal, MemoryJournal)
        journal.poison("broken by the test")

    def collect(self, keep: Iterable[str] = ()) -> int:
        return self.store.collect(keep)

    def damage_blob(self, ref: BlobRef) -> None:
        content = bytearray(self.store.blobs[ref.sha256])
        content[len(content) // 2] ^= 1
        self.store.blobs[ref.sha256] = bytes(content)

    def remove_blob(self, ref: BlobRef) -> None:
        del self.store.blobs[ref.sha256]

    def close(self) -> None:
        """Nothing is left of it."""


class LateMemory(Memory):
    """Memory whose commits are confirmed by another thread."""

    def open(self, *, clock: Clock | None = None) -> LateJournal:
        return LateJournal(self.store, clock=clock, started=confirm_soon)

    def steal(self) -> LateJournal:
        return LateJournal(self.store, take_over=True, started=confirm_soon)

    def break_next_commit(self, journal: Journal) -> None:
        assert isinstance(journal, LateJournal)
        journal.breaks = "broken by the test"


def confirm_soon(journal: LateJournal) -> None:
    threading.Thread(target=journal.confirm, daemon=True).start()


class TestFileJournal(JournalContract):
    def make_engine(self) -> JournalEngine:
        return FilesOnRealDisk()


class TestFileJournalOnFaultyDisk(JournalContract):
    def make_engine(self) -> JournalEngine:
        return FilesOnFaultyDisk()


class TestMemoryJournal(JournalContract):
    def make_engine(self) -> JournalEngine:
        return Memory()


class TestLateJournal(JournalContract):
    def make_engine(self) -> JournalEngine:
        return LateMemory()


class CountingDisk(RealDisk):
    """Counts what is read."""

    def __init__(self) -> None:
        self.read_bytes = 0

    def read(self, fd: int, size: int, offset: int) -> bytes:
        data = super().read(fd, size, offset)
        self.read_bytes += len(data)
        return data


def test_a_caller_that_needs_all_entries_gets_them_while_the_file_is_read_for_the_first_time(
    tmp_path: Path,
) -> None:
    with open_journal(tmp_path) as journal:
        for number in range(2000):
            journal.stage(Draft("step", {"n": number}), Draft("also", {"n": number}))
            if number % 100 == 99:
                journal.commit()
        size = journal.size_bytes
    (tmp_path / "journal.ndjson").write_bytes(
        (tmp_path / "journal.ndjson").read_bytes()[:size] + b'{"seq":9'  # a line that was being written
    )
    disk, seen = CountingDisk(), list[Entry]()

    with open_journal(tmp_path, disk=disk, each=seen.append) as journal:
        once = disk.read_bytes
        there = list(journal.read())

    assert seen == there[:-1]  # the last entry is that of this opening
    assert once < 1.5 * size  # the last commit is read again, to be written again
