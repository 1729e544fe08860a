"""The lines of an owned journal as bytes in a file: appending, syncing, reading back, and setting damaged parts aside.

Knows how far the file is written, and nothing of locks, blobs or poison: what a failed write means is decided by ``_file.py``,
which is the next file to read. Errors of the disk leave here as ``OSError``.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import groupby
from typing import Final, NamedTuple

from bartack.core.disk import Disk, write_all
from bartack.errors import JournalClosedError, JournalCorruptError
from bartack.journal._access import FULL, access
from bartack.journal._format import CHUNK, Scanner, encode_line, place_of
from bartack.journal._stage import Group
from bartack.journal._survey import Survey, decode_at, find_end, iter_entries, read_chunks
from bartack.journal.contract import Bookmark, Entry, check_place
from bartack.journal.veil import Veil

JOURNAL_FILE: Final = "journal.ndjson"
FILLING: Final = 128 * 1024
"""Where every commit is synced, the file grows to multiples of this size."""


class Lines(NamedTuple):
    """One commit, encoded: its bytes, the checksum of its last line, and the marks it adds."""

    text: bytes
    crc: int
    marks: list[Bookmark]


class SavedCopy(NamedTuple):
    """A copy of a part of the file."""

    path: str
    size_bytes: int


class LineFile:
    """The file of a journal, open for its owner.

    Attributes:
        fd: Its descriptor; -1 while it is not open.
        size_bytes: Length of the acknowledged part; blank lines may follow.
    """

    def __init__(self, path: str, disk: Disk, veil: Veil | None, *, sync: bool) -> None:
        self.path = path
        self.fd = -1
        self.size_bytes = 0
        self._disk = disk
        self._veil = veil
        self._sync = sync
        self._filled = 0
        """Up to here the file is known to be written: blank lines where it is not history."""
        self._crc = 0
        self._marks: list[Bookmark] = []

    def open(self) -> None:
        """Open the file."""
        self.fd = self._disk.open(self.path, write=True)

    def adopt(self, found: Survey) -> None:
        """Continue after the last intact line that a survey has found."""
        self.size_bytes = found.scanner.offset
        self._crc = found.scanner.crc
        self._marks = found.marks

    def close(self) -> None:
        """Close the file."""
        self._disk.close(self.fd)
        self.fd = -1

    def check_open(self) -> None:
        """Raise if the file is closed.

        Raises:
            JournalClosedError: It is.
        """
        if self.fd < 0:
            raise JournalClosedError(self.path)

    # Appending.

    def encode(self, groups: Sequence[Group], first_seq: int) -> Lines | None:
        """Encode a commit whose first place must be ``first_seq``; ``None`` if its places have a gap or overlap."""
        lines: list[bytes] = []
        marks: list[Bookmark] = []
        crc, offset = self._crc, self.size_bytes
        next_mark = self._marks[-1].offset + CHUNK
        place = first_seq
        for group in groups:
            if group.seq != place:
                return None
            if offset >= next_mark:
                marks.append(Bookmark(place, offset, crc))
                next_mark = offset + CHUNK
            bodies = group.bodies
            line, crc = encode_line(bodies, place, first_seq, group.at, crc)
            lines.append(line)
            offset += len(line)
            place += len(bodies)
        return Lines(b"".join(lines), crc, marks)

    def append(self, lines: Lines) -> None:
        """Write a commit after the last one, and sync it unless only processes may die. ``accept`` makes it history."""
        if self._sync and self.size_bytes + len(lines.text) > self._filled:
            self._grow(lines.text)
        else:
            write_all(self._disk, self.fd, lines.text, self.size_bytes)
        if self._sync:
            self._disk.sync(self.fd)

    def accept(self, lines: Lines) -> None:
        """Count a commit as acknowledged: the next one is written after it."""
        self._marks += lines.marks
        self._crc = lines.crc
        self.size_bytes += len(lines.text)

    def _grow(self, text: bytes) -> None:
        """Write lines that the file has to grow for, and after them blank lines that later commits overwrite."""
        filled = -(-(self.size_bytes + len(text)) // FILLING) * FILLING
        try:
            write_all(self._disk, self.fd, text.ljust(filled - self.size_bytes, b"\n"), self.size_bytes)
            self._filled = filled
        except OSError as error:
            if error.errno not in FULL:
                raise
            # There may still be room for the lines alone. Nothing is synced yet, so they can be written again.
            write_all(self._disk, self.fd, text, self.size_bytes)

    @property
    def has_filling(self) -> bool:
        """Whether this process has written blank lines after the last entry."""
        return self._filled > self.size_bytes

    def cut_filling(self) -> None:
        """Cut the blank lines off."""
        self._disk.truncate(self.fd, self.size_bytes)

    def end_with(self, group: Group) -> None:
        """Replace whatever follows the last acknowledged line by one last line, and sync it."""
        line, _ = encode_line(group.bodies, group.seq, group.seq, group.at, self._crc)
        self._disk.truncate(self.fd, self.size_bytes)
        write_all(self._disk, self.fd, line, self.size_bytes)
        self._disk.sync(self.fd)

    # Recovery.

    def rewrite_from(self, start: int) -> None:
        """Write the last commit, which begins at ``start``, once more and sync it, with nothing after it.

        An earlier owner whose sync failed has left it in the page cache, where it looks written and is not.
        """
        last = b"".join(read_chunks(self._disk, self.fd, start, self.size_bytes))
        write_all(self._disk, self.fd, last, start)
        self._disk.truncate(self.fd, self.size_bytes)
        self._disk.sync(self.fd)

    def copy_aside(self, name: str, offset: int) -> SavedCopy:
        """Copy the file from ``offset`` on, without the blank lines at its end, to a new file beside it."""
        end = find_end(self._disk, self.fd)
        directory = os.path.dirname(self.path)
        path, fd = self._open_new(os.path.join(directory, name))
        size = offset
        try:
            for chunk in read_chunks(self._disk, self.fd, offset, end):
                write_all(self._disk, fd, chunk, size - offset)
                size += len(chunk)
            self._disk.sync(fd)
        finally:
            self._disk.close(fd)
        self._disk.sync_dir(directory)
        return SavedCopy(path, size - offset)

    def _open_new(self, stem: str) -> tuple[str, int]:
        """A new file with a number in its name if it needs one: the same place may be torn more than once."""
        tries = 1
        while True:
            path = stem if tries == 1 else f"{stem}.{tries}"
            try:
                return path, self._disk.open(path, write=True, exclusive=True)
            except FileExistsError:
                tries += 1

    # Reading.

    def read(self, from_seq: int) -> Iterator[Entry]:
        """The acknowledged entries from ``from_seq`` on, in order."""
        for texts, end in self._read_lines(self._section(from_seq), self.size_bytes):
            yield from iter_entries(self.path, texts, end, from_seq, self._veil)

    def fetch(self, places: Iterable[int], last: int) -> Iterator[Entry]:
        """The entries at these places, which must rise up to ``last``; reads only the parts of the file they are in."""
        size = self.size_bytes
        for section, group in groupby(places, self._section):
            end = self._marks[section + 1].offset if section + 1 < len(self._marks) else size
            texts = [text for lines, _ in self._read_lines(section, end) for text in lines]
            entries: list[Entry] = []
            for place in group:
                check_place(place, last)
                if not entries or not entries[0].seq <= place <= entries[-1].seq:
                    index = bisect_right(texts, place, key=place_of) - 1
                    entries = decode_at(self.path, texts, index, end, self._veil)
                yield entries[place - entries[0].seq]

    def _section(self, place: int) -> int:
        """The mark from which on an acknowledged place is found."""
        return max(bisect_right(self._marks, (place, 1 << 62, 0)) - 1, 0)

    def _read_lines(self, section: int, end: int) -> Iterator[tuple[list[bytes], int]]:
        """The lines between a mark and ``end``, some at a time, and where these end."""
        mark = self._marks[section]
        scanner = Scanner(mark.offset, mark.seq, mark.crc)
        with access(self.path):
            for chunk in read_chunks(self._disk, self.fd, mark.offset, end):
                yield scanner.feed(chunk), scanner.offset
                # Closed meanwhile, its descriptor may be another file by now.
                self.check_open()
                if scanner.problem:
                    raise JournalCorruptError(self.path, scanner.offset, scanner.problem)
        if scanner.offset < end:
            raise JournalCorruptError(self.path, scanner.offset, "the file ends before what was acknowledged")


def create_file(disk: Disk, root: str, first: Sequence[Group]) -> None:
    """Make the journal with its first commit in place, so that a file without one is never a journal."""
    temporary = os.path.join(root, f".{JOURNAL_FILE}.tmp")
    lines: list[bytes] = []
    crc = 0
    for group in first:
        line, crc = encode_line(group.bodies, group.seq, first[0].seq, group.at, crc)
        lines.append(line)
    fd = disk.open(temporary, write=True, create=True)
    try:
        disk.truncate(fd, 0)
        write_all(disk, fd, b"".join(lines), 0)
        disk.sync(fd)
    finally:
        disk.close(fd)
    disk.rename(temporary, os.path.join(root, JOURNAL_FILE))
    sync_names(disk, root)


def sync_names(disk: Disk, root: str) -> None:
    """Make the names in a directory durable, and its own: the process that made it may have been killed before."""
    disk.sync_dir(root)
    with suppress(PermissionError):  # not readable, so it cannot be synced; most likely it is not ours either
        disk.sync_dir(os.path.dirname(os.path.abspath(root)))
