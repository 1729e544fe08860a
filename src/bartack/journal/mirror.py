"""A copy of a journal that is kept elsewhere: the same lines, byte for byte, in the ``journal.ndjson`` of a directory here.

Where the journal is kept is the truth, and it has acknowledged every line before the line comes here. So the copy is never
synced: what a power cut takes from it is fetched again. Everything that reads the directory of a run reads the copy, and the
checks of its lines are those of every journal (``_format.py``).

A copy that is not the beginning of the history that is kept belongs to another history: it is put aside and made anew. If it
has all of that history and more, what is kept has lost acknowledged entries; an owner is refused then.

One process at a time brings a copy up to date. The owner of the run holds that right as long as it owns the run; readers of the
same directory then read what it writes. They take the right for a moment where no owner is.
"""

from __future__ import annotations

import os
import select
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Final, NamedTuple, Protocol

from bartack.core.closing import Closing
from bartack.core.disk import Disk, RealDisk, write_all
from bartack.core.files import replace_file
from bartack.core.watch import Watch
from bartack.errors import (
    BlobMissingError,
    JournalCorruptError,
    JournalLostError,
    JournalOwnershipLostError,
)
from bartack.journal._access import access
from bartack.journal._blobs import FileBlobs
from bartack.journal._format import Scanner
from bartack.journal._line_file import JOURNAL_FILE
from bartack.journal._reader import FileReader, open_file
from bartack.journal._shared import BLOBS
from bartack.journal._survey import read_chunks
from bartack.journal.contract import BlobRef, Bookmark, Entry
from bartack.journal.veil import Veil
from bartack.telemetry import NO_TELEMETRY, Telemetry

ASIDE: Final = "journal.aside"
"""How the name of a copy begins that belongs to another history."""
MIRROR_LOCK: Final = "lock.mirror"
LOOK_S: Final = 0.01
UNCHECKED: Final = 16 << 20
"""Every place where journals are kept takes a value that is not larger than this."""


class End(NamedTuple):
    """Where a history ends: with this entry, whose line has this CRC. Without entries both are 0."""

    last: int = 0
    crc: int = 0


def lines_after(lines: bytes, end: End) -> bytes | None:
    """The lines of a history after the entry with which its beginning ends; ``None`` if that is the end of another history."""
    scanner = Scanner()
    for line in lines.splitlines(keepends=True):
        if scanner.next_seq > end.last:
            break
        scanner.feed(line)
    is_same = (scanner.next_seq - 1, scanner.crc) == end and not scanner.problem
    return lines[scanner.offset :] if is_same else None


class Source(Protocol):
    """Where a journal is kept, for those that copy it."""

    @property
    def name(self) -> str:
        """What errors call it."""
        ...

    def end(self) -> End:
        """Where it ends now."""
        ...

    def has(self, end: End) -> bool:
        """Whether a commit of it ends with this entry, with this CRC."""
        ...

    def rows(self, after: int) -> Iterator[bytes]:
        """Its commits after an entry that ends one, in order: the lines of each."""
        ...

    def check_size(self, size: int) -> None:
        """Raise unless a large value of this size can be kept there.

        Raises:
            BlobTooLargeError: It cannot.
        """
        ...

    def fetch_blob(self, ref: BlobRef) -> bytes | None:
        """A large value as it is stored; ``None`` if it is not there."""
        ...


class Mirror(Closing):
    """The copy in one directory; see the module. ``hold`` or ``try_hold`` comes before ``catch_up``.

    Args:
        directory: Where it is; made if it is not there.
        disk: The operating system's files by default.
    """

    def __init__(self, directory: str, disk: Disk | None = None) -> None:
        self.path = os.path.join(directory, JOURNAL_FILE)
        self._directory = directory
        self._disk = disk or RealDisk()
        self._fd = -1

    def hold(self) -> None:
        """Take the right to change the copy. Readers have it for a moment only."""
        while not self.try_hold():
            select.select([], [], [], LOOK_S)

    def try_hold(self) -> bool:
        """Take the right to change the copy, unless another process has it."""
        with access(self.path):
            self._disk.mkdir(self._directory)
            fd = self._disk.open(os.path.join(self._directory, MIRROR_LOCK), write=True, create=True)
            if self._disk.lock(fd):
                self._fd = fd
                return True
            self._disk.close(fd)
            return False

    def close(self) -> None:
        """Give the right back."""
        if self._fd >= 0:
            self._disk.close(self._fd)
            self._fd = -1

    def catch_up(self, source: Source, *, is_owner: bool = False) -> End:
        """Fetch what is missing; returns where the copy ends then.

        Args:
            source: Where the journal is kept.
            is_owner: The run is continued from what is kept, so that nothing acknowledged may be missing there.

        Raises:
            JournalCorruptError: What is kept there is not a history. The copy has all that comes before.
            JournalLostError: Acknowledged entries are missing there.
            DepotError: The place where it is kept cannot be read.
        """
        assert self._fd >= 0, "the right to change the copy was not taken"
        with access(self.path):
            scanner = self._scan()
            held = scanner.next_seq - 1
            if held and not source.has(End(held, scanner.crc)):
                end = source.end()
                if is_owner and end.last < held and self._crc_of(end.last) == end.crc:
                    raise JournalLostError(source.name, 0, end.last, held)
                self._put_aside()
                scanner = Scanner()
            fd = self._disk.open(self.path, write=True, create=True)
            try:
                for lines in source.rows(scanner.next_seq - 1):
                    self._add(fd, scanner, lines, source.name)
            finally:
                self._disk.close(fd)
        return End(scanner.next_seq - 1, scanner.crc)

    def _add(self, fd: int, scanner: Scanner, lines: bytes, name: str) -> None:
        begin = scanner.offset
        scanner.feed(lines)
        if scanner.problem or scanner.rest:
            raise JournalCorruptError(name, scanner.offset, scanner.problem or "a line is not complete")
        write_all(self._disk, fd, lines, begin)

    def _scan(self) -> Scanner:
        """How far the copy is intact. What follows, a power cut has left; it is cut off."""
        scanner = Scanner()
        if not self._disk.exists(self.path):
            return scanner
        fd = self._disk.open(self.path, write=True)
        try:
            for chunk in read_chunks(self._disk, fd, 0):
                scanner.feed(chunk)
                if scanner.problem:
                    break
            if self._disk.facts(fd).size > scanner.offset:
                self._disk.truncate(fd, scanner.offset)
        finally:
            self._disk.close(fd)
        scanner.look_again()
        return scanner

    def _crc_of(self, seq: int) -> int | None:
        """The CRC of the line of the copy that ends with an entry."""
        scanner, found = Scanner(), None
        fd = self._disk.open(self.path)
        try:
            for chunk in read_chunks(self._disk, fd, 0):
                found = scanner.crc_at(chunk, seq) if found is None else found
        finally:
            self._disk.close(fd)
        return found

    def _put_aside(self) -> None:
        tries = 1
        while self._disk.exists(os.path.join(self._directory, f"{ASIDE}-{tries}")):
            tries += 1
        self._disk.rename(self.path, os.path.join(self._directory, f"{ASIDE}-{tries}"))


class FetchedBlobs(FileBlobs):
    """The large values of a journal that is kept elsewhere: those that are not here are fetched.

    Args:
        directory: The directory of the run.
        source: Where they are fetched.
        disk: The operating system's files by default.
        telemetry: See ``FileBlobs``.
        veil: See ``FileBlobs``.
    """

    def __init__(
        self,
        directory: str,
        source: Source,
        disk: Disk | None = None,
        telemetry: Telemetry = NO_TELEMETRY,
        veil: Veil | None = None,
    ) -> None:
        super().__init__(os.path.join(directory, BLOBS), disk or RealDisk(), telemetry, veil)
        self._source = source
        self._here = FileBlobs(self.directory, self._disk)

    def put(self, content: bytes) -> BlobRef:
        """See ``FileBlobs.put``.

        Raises:
            BlobTooLargeError: It is too large for where it goes with the next commit.
        """
        if len(content) > UNCHECKED:
            self._source.check_size(len(content))
        return super().put(content)

    def holds(self, ref: BlobRef) -> bool:
        """See ``FileBlobs.holds``. A new value is kept here first, without a word to where it goes with the next commit."""
        return self._here.holds(ref)

    def _open(self, ref: BlobRef) -> int:
        path = self._path(ref)
        try:
            return super()._open(ref)
        except BlobMissingError:
            content = self._source.fetch_blob(ref)
            if content is None:
                raise
        for folder in (self.directory, os.path.dirname(path)):
            with suppress(FileExistsError):
                self._disk.mkdir(folder)
        replace_file(path, content, disk=self._disk, synced=False)
        return super()._open(ref)


class MirrorReader(FileReader):
    """Reads a copy that is brought up to date before each look. See ``JournalReader`` for what it promises.

    Args:
        directory: Where the copy is.
        source: Where large values are fetched.
        catch_up: Brings the copy up to date.
        watch: Opens a watch on where the journal is kept.
        veil: Puts the secrets back into what is read; without it their markers are seen.
    """

    def __init__(
        self,
        directory: str,
        source: Source,
        catch_up: Callable[[], None],
        watch: Callable[[], Watch],
        veil: Veil | None = None,
    ) -> None:
        disk, path = RealDisk(), os.path.join(directory, JOURNAL_FILE)
        super().__init__(path, disk, lambda _: watch(), open_file(path, disk), veil)
        self._catch_up = catch_up
        self._blobs = FetchedBlobs(directory, source, disk, veil=veil)

    def read_last(self, most: int) -> list[Entry]:
        """See ``JournalReader.read_last``."""
        self._refresh()
        return super().read_last(most)

    def search(self, texts: Sequence[bytes], found: list[Bookmark] | None = None) -> Iterator[Entry]:
        """See ``JournalReader.search``."""
        self._refresh()
        return super().search(texts, found)

    def _advance(self, scanner: Scanner, from_seq: int) -> Iterator[Entry]:
        self._refresh()
        yield from super()._advance(scanner, from_seq)

    def _refresh(self) -> None:
        self._check_open()
        self._catch_up()
        if not os.path.samestat(os.fstat(self._fd), os.stat(self.path)):
            problem = "what was read is not part of the history that is kept"
            raise JournalOwnershipLostError(self.path, problem)
