"""What a journal looks like from outside: counted, checked, and nothing changed. Also removes blobs that no entry refers to."""

from __future__ import annotations

import os
from collections.abc import Iterable

import msgspec

from bartack.core.disk import Disk, RealDisk
from bartack.errors import BlobCorruptError, BlobMissingError, JournalLostError, JournalNotFoundError
from bartack.journal._access import access
from bartack.journal._blobs import FileBlobs
from bartack.journal._high_water import HighWater
from bartack.journal._line_file import JOURNAL_FILE
from bartack.journal._lock import read_mark, take_lock
from bartack.journal._reader import find_journal, open_file, open_reader
from bartack.journal._shared import BLOBS
from bartack.journal._survey import Survey, find_end, find_loss, survey
from bartack.journal.contract import FORMAT, BlobRef, Entry


class JournalDamage(msgspec.Struct, frozen=True):
    """Where a journal file stops being a history. ``torn`` damage was never acknowledged; opening cuts it."""

    offset: int
    seq: int
    problem: str
    torn: bool


class JournalReport(msgspec.Struct, frozen=True):
    """The state of a journal file."""

    path: str
    format: int
    entries: int
    commits: int
    size_bytes: int
    """Without the blank lines that the file may end with."""
    owners: int
    """How many times it was opened by an owner."""
    first_at: int | None
    last_at: int | None
    blobs: int
    blob_problems: tuple[str, ...]
    damage: JournalDamage | None

    @property
    def ok(self) -> bool:
        """Whether nothing that was acknowledged is damaged or missing."""
        return not self.blob_problems and (self.damage is None or self.damage.torn)


def verify_journal(path: str | os.PathLike[str], *, disk: Disk | None = None) -> JournalReport:
    """Read and check a whole journal and every blob it refers to; changes nothing.

    Raises:
        JournalNotFoundError: There is none.
        JournalCorruptError: It is not a journal at all.
        JournalFormatError: A newer Bartack wrote it.
    """
    disk = disk or RealDisk()
    file = find_journal(path, disk)
    fd = open_file(file, disk)
    tally = Tally()
    try:
        with access(file):
            # First the mark: whatever its owner writes meanwhile only adds to what the mark knows.
            mark = read_mark(disk, os.path.dirname(file)) if os.path.basename(file) == JOURNAL_FILE else None
            found = _survey_settled(disk, fd, file, tally)
            damage = _damage_of(disk, fd, file, found, mark)
            size = find_end(disk, fd)
    finally:
        disk.close(fd)
    return JournalReport(
        path=file,
        format=FORMAT,
        entries=found.scanner.next_seq - 1,
        commits=len(tally.commits),
        size_bytes=size,
        owners=found.fence,
        first_at=tally.first_at,
        last_at=tally.last_at,
        blobs=len(tally.refs),
        blob_problems=_check_blobs(FileBlobs(os.path.join(os.path.dirname(file), BLOBS), disk), tally.refs),
        damage=damage,
    )


def check_kept(directory: str | os.PathLike[str], *, at_least: int = 0, disk: Disk | None = None) -> None:
    """Raise unless the journal in ``directory`` still holds every entry that is known to have been acknowledged.

    Takes no lock and changes nothing. Damage of another kind is left to opening the journal.

    Raises:
        JournalLostError: Entries are missing.
        JournalCorruptError: It is not a journal at all.
    """
    disk = disk or RealDisk()
    root = os.fspath(directory)
    file = os.path.join(root, JOURNAL_FILE)
    mark = read_mark(disk, root)
    fd = open_file(file, disk)
    try:
        with access(file):
            found = _survey_settled(disk, fd, file)
            known = find_loss(disk, fd, found, mark, at_least)
    finally:
        disk.close(fd)
    if known and (found.damage is None or found.damage.torn):
        raise JournalLostError(file, found.scanner.offset, found.scanner.next_seq - 1, known)


def _damage_of(disk: Disk, fd: int, file: str, found: Survey, mark: HighWater | None) -> JournalDamage | None:
    if found.damage is None or found.damage.torn:
        known, held = find_loss(disk, fd, found, mark), found.scanner.next_seq - 1
        if known:
            lost = JournalLostError(file, found.scanner.offset, held, known)
            return JournalDamage(lost.offset, held + 1, lost.problem, torn=False)
    return None if found.damage is None else JournalDamage(*found.damage)


class Tally:
    """Counts what is in a journal, entry by entry."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Forget all: the first entry comes next."""
        self.commits: set[int] = set()
        self.first_at: int | None = None
        self.last_at: int | None = None
        self.refs: set[BlobRef] = set()

    def add(self, entry: Entry) -> None:
        """Count the next entry."""
        self.commits.add(entry.commit)
        self.first_at = entry.at if self.first_at is None else self.first_at
        self.last_at = entry.at
        if entry.ref is not None:
            self.refs.add(entry.ref)


def _survey_settled(disk: Disk, fd: int, file: str, tally: Tally | None = None) -> Survey:
    """What reading the file found, and found again if it is damaged: its owner may write between two reads of it."""
    suspect: int | None = None
    while True:
        if tally is not None:
            tally.clear()
        found = survey(disk, fd, file, None if tally is None else tally.add)
        if found.damage is None or found.damage.torn or found.damage.offset == suspect:
            return found
        suspect = found.damage.offset


def _check_blobs(blobs: FileBlobs, refs: Iterable[BlobRef]) -> tuple[str, ...]:
    problems: list[str] = []
    for ref in sorted(refs, key=lambda ref: ref.sha256):
        try:
            blobs.get(ref)
        except (BlobMissingError, BlobCorruptError) as error:
            problems.append(error.message)
    return tuple(problems)


def collect_blobs(
    directory: str | os.PathLike[str], *, keep: Iterable[str] = (), disk: Disk | None = None
) -> int:
    """Remove the blobs that no entry refers to; return how many. Takes the lock, so no other process owns the journal meanwhile.

    Args:
        directory: Where the journal is.
        keep: Checksums of blobs to keep although no entry refers to them yet.
        disk: Where it is kept; the operating system's files by default.

    Raises:
        JournalLockedError: Another process owns the journal.
        JournalCorruptError: The journal is damaged, so what it refers to is not known; nothing was removed.
    """
    disk = disk or RealDisk()
    root = os.fspath(directory)
    if not disk.exists(os.path.join(root, JOURNAL_FILE)):
        raise JournalNotFoundError(root)
    with access(root):
        lock = take_lock(disk, root)
    try:
        with open_reader(root, disk=disk) as reader:
            referred = {entry.ref.sha256 for entry in reader.read() if entry.ref is not None}
        return FileBlobs(os.path.join(root, BLOBS), disk).collect({*referred, *keep})
    finally:
        lock.close()
