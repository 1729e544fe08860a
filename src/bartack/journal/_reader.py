"""Reading a journal that another process may own: no lock, no change.

A reader sees lines as soon as they are written, which may be before they are synced. Views that must not show what a power cut
can take back go through the owner instead.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Generator, Iterator, Sequence
from time import monotonic
from typing import Final

from bartack.core.closing import Closing
from bartack.core.disk import Disk, RealDisk
from bartack.core.watch import Watch, open_watch
from bartack.errors import (
    JournalClosedError,
    JournalCorruptError,
    JournalNotFoundError,
    JournalOwnershipLostError,
)
from bartack.journal._access import access
from bartack.journal._blobs import FileBlobs
from bartack.journal._format import (
    CHUNK,
    CRC_SIZE,
    Damage,
    Scanner,
    begins_with,
    is_sealed,
    judge,
    place_of,
    seal,
    stored_crc,
)
from bartack.journal._line_file import JOURNAL_FILE
from bartack.journal._shared import BLOBS
from bartack.journal._survey import check_first, decode_at, find_end, iter_entries, read_chunks
from bartack.journal.contract import Bookmark, Entry, load_value
from bartack.journal.veil import Veil

SEARCHED: Final = 1 << 20
"""How much is searched at once."""
BEGINNING: Final = 4096
"""The first line of a journal, which names its format, is shorter than this."""


def find_journal(path: str | os.PathLike[str], disk: Disk) -> str:
    """The journal file that ``path`` means: itself, or the one in it."""
    given = os.fspath(path)
    inside = os.path.join(given, JOURNAL_FILE)
    # A journal that is named as such may be named by a link; one inside a directory is never reached through one.
    found = inside if disk.exists(inside) else os.path.realpath(given) if os.path.islink(given) else given
    if not disk.exists(found):
        with access(given):
            _check_reachable(inside)
        raise JournalNotFoundError(given)
    return found


def _check_reachable(path: str) -> None:
    """Raise if the operating system does not report whether a file is there."""
    try:
        os.lstat(path)
    except OSError as error:
        # None of these leaves a doubt: no file can be there.
        if error.errno not in {errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG}:
            raise


def open_file(path: str, disk: Disk) -> int:
    """Open a journal file for reading; the operating system's refusal becomes an error with a code."""
    with access(path):
        try:
            fd = disk.open(path)
        except FileNotFoundError:
            raise JournalNotFoundError(path) from None
        if not disk.facts(fd).regular:
            disk.close(fd)
            raise JournalNotFoundError(path)
    return fd


def check_beginning(path: str | os.PathLike[str], *, disk: Disk | None = None) -> None:
    """Raise unless the journal in a directory, or a journal file, begins as one that this version reads. The rest is not read.

    Raises:
        JournalNotFoundError: There is none.
        JournalFormatError: A newer version wrote it.
        JournalCorruptError: It does not begin as a journal does.
        FileAccessError: The operating system refused.
    """
    disk = disk or RealDisk()
    file = find_journal(path, disk)
    fd = open_file(file, disk)
    try:
        with access(file):
            head = disk.read(fd, BEGINNING, 0)
    finally:
        disk.close(fd)
    check_first(file, head.split(b"\n", 1)[0])


def open_reader(
    path: str | os.PathLike[str],
    *,
    disk: Disk | None = None,
    watch: Callable[[str], Watch] = open_watch,
    veil: Veil | None = None,
) -> FileReader:
    """Read the journal in a directory, or a journal file, without owning it.

    Args:
        path: The directory or the file.
        disk: Where it is kept; the operating system's files by default.
        watch: Opens the watch on its directory that ``follow`` waits with.
        veil: Puts the secrets back into what is read; without it their markers are seen.

    Raises:
        JournalNotFoundError: There is none.
        FileAccessError: The operating system refused.
    """
    disk = disk or RealDisk()
    file = find_journal(path, disk)
    return FileReader(file, disk, watch, open_file(file, disk), veil)


class FileReader(Closing):
    """A journal file open for reading; made by ``open_reader``. See ``JournalReader`` for what it promises."""

    def __init__(
        self, path: str, disk: Disk, watch: Callable[[str], Watch], fd: int, veil: Veil | None = None
    ) -> None:
        self.path = path
        self._directory = os.path.dirname(os.path.abspath(path))
        self._disk = disk
        self._watch = watch
        self._fd = fd
        self._place = Scanner()
        """How far ``read_on`` has come."""
        self._veil = veil
        self._blobs = FileBlobs(os.path.join(os.path.dirname(path), BLOBS), disk, veil=veil)

    def read(self, from_seq: int = 1) -> Iterator[Entry]:
        """The entries that are there now; ends before a line that is not complete. See ``JournalReader.read``."""
        return self._advance(Scanner(), from_seq)

    def read_on(self) -> Iterator[Entry]:
        """The entries that came since the last call of this method; the first time, all of them."""
        return self._advance(self._place, 1)

    def bookmark(self) -> Bookmark:
        """How far ``read_on`` has read. See ``JournalReader.bookmark``."""
        return Bookmark(self._place.next_seq, self._place.offset, self._place.crc)

    def read_from(self, bookmark: Bookmark, from_seq: int = 1) -> Iterator[Entry]:
        """The entries after a bookmark that are there now. See ``JournalReader.read_from``."""
        scanner = Scanner(bookmark.offset, bookmark.seq, bookmark.crc)
        self._check_open()
        self._check_kept(scanner)
        return self._advance(scanner, from_seq)

    def check_read(self) -> None:
        """Raise unless the last entry that ``read_on`` has returned is still there. See ``JournalReader.check_read``."""
        self._check_open()
        self._check_kept(self._place)

    def follow(self, from_seq: int = 1, *, timeout_s: float | None = None) -> Iterator[Entry]:
        """Like ``read``, then wait for more. See ``JournalReader.follow``."""
        scanner = Scanner()
        with self._watch(self._directory) as watch:
            end = _end_of(timeout_s)
            while True:
                left = None if end is None else end - monotonic()
                before = scanner.offset
                yield from self._advance(scanner, from_seq)
                self._check_kept(scanner)
                if scanner.offset != before:
                    end = _end_of(timeout_s)
                # Other files of the directory change as well: that is a reason to look, not to wait longer.
                elif (left is not None and left <= 0) or not watch.wait(left):
                    return

    @property
    def name(self) -> str:
        """Its path."""
        return self.path

    @property
    def size_bytes(self) -> int:
        """Length of the file, with what may follow its last entry."""
        self._check_open()
        with access(self.path):
            return self._disk.facts(self._fd).size

    @property
    def read_bytes(self) -> int:
        """How far ``read_on`` has read the file."""
        return self._place.offset

    def read_last(self, most: int) -> list[Entry]:
        """The last entries of the file, at most this many, in order; what is before them is not read.

        A line is shown to be part of the history by its checksum and that of the line before it. It ends before a line that is
        damaged or not complete: ``read`` judges what that means.
        """
        self._check_open()
        size = CHUNK
        with access(self.path):
            start = end = find_end(self._disk, self._fd)
            text = b""
            while True:
                before, start = start, max(end - size, 0)
                text = b"".join([*read_chunks(self._disk, self._fd, start, before), text])
                found = self._entries_of(text, start, end, most)
                if len(found) == most or not start:
                    return found
                size *= 4

    def _entries_of(self, text: bytes, start: int, end: int, most: int) -> list[Entry]:
        """The last entries of a part of the file."""
        # The checksum of a line is seeded with that of the line before it, which has to be in this part, too.
        first = text.find(b"\n", CRC_SIZE) + 1 if start else 0
        seq = begins_with(text[first : first + BEGINNING])
        if seq is None or (start and not first):
            return []
        texts = Scanner(start + first, seq, stored_crc(text, first)).feed(text[first:])
        count = len(texts)
        wanted = max(count - most, 0)
        found: list[Entry] = []
        for index in range(wanted, count):
            found += decode_at(self.path, texts, index, end, self._veil)
        return found[-most:]

    def search(self, texts: Sequence[bytes], found: list[Bookmark] | None = None) -> Iterator[Entry]:
        """The entries of the lines that hold one of these texts, byte for byte as they are stored, in order.

        Other lines are neither decoded nor checked. A line is shown to be part of the history by its checksum and that of the line
        before it.

        Args:
            texts: The texts.
            found: Gets a bookmark before each line that is found.

        Raises:
            JournalCorruptError: A line that holds one of the texts is damaged.
        """
        rest, start, seed = b"", 0, 0
        with access(self.path):
            for chunk in read_chunks(self._disk, self._fd, 0, size=SEARCHED):
                self._check_open()
                rest += chunk
                end = rest.rfind(b"\n") + 1
                if not end:
                    continue
                for place in _lines_with(rest, end, texts):
                    text = rest[place : rest.index(b"\n", place)]
                    before = stored_crc(rest, place) if place else seed
                    if not is_sealed(text, before):
                        raise JournalCorruptError(self.path, start + place, "checksum does not match")
                    if found is not None:
                        found.append(Bookmark(place_of(text), start + place, before))
                    yield from decode_at(self.path, [text], 0, start + place + len(text) + 1, self._veil)
                seed, start, rest = stored_crc(rest, end), start + end, rest[end:]

    def load_value(self, entry: Entry) -> bytes | None:
        """The payload of an entry as encoded JSON, wherever it is kept; ``None`` if it has none."""
        return load_value(self._blobs, entry)

    def close(self) -> None:
        """Close the file."""
        if self._fd >= 0:
            self._disk.close(self._fd)
            self._fd = -1

    def _advance(self, scanner: Scanner, from_seq: int) -> Iterator[Entry]:
        """Feed the scanner what was written since; yield the entries wanted."""
        suspect: int | None = None
        while True:
            self._check_open()
            damage = yield from self._look(scanner, from_seq)
            if damage is None or damage.torn:
                break
            self._check_kept(scanner)
            if damage.offset == suspect:
                raise JournalCorruptError(self.path, damage.offset, damage.problem)
            # The owner writes over blank lines, and may have done so between two of our reads: then the second one saw
            # lines for which the first was too early. Whatever stands before them is written now: look again.
            suspect = damage.offset
        if scanner.next_seq == 1:
            check_first(self.path, scanner.rest.split(b"\n", 1)[0])
            raise JournalCorruptError(self.path, 0, "this is not a journal")

    def _look(self, scanner: Scanner, from_seq: int) -> Generator[Entry, None, Damage | None]:
        """One pass over what was written since; returns the damage it ends at, if any."""
        scanner.look_again()
        chunks = read_chunks(self._disk, self._fd, scanner.offset)
        with access(self.path):
            for chunk in chunks:
                first = scanner.next_seq == 1
                texts = scanner.feed(chunk)
                if first and texts:
                    check_first(self.path, texts[0])
                yield from iter_entries(self.path, texts, scanner.offset, from_seq, self._veil)
                self._check_open()
                if scanner.problem:
                    return judge(scanner, chunks, scanner.problem)
        return None

    def _check_open(self) -> None:
        if self._fd < 0:
            raise JournalClosedError(self.path)

    def _check_kept(self, scanner: Scanner) -> None:
        """Raise unless the last line that was seen is still there."""
        tail = seal(scanner.crc)
        with access(self.path):
            named = self._disk.facts(self._fd).links > 0
            kept = not scanner.offset or tail == self._disk.read(
                self._fd, len(tail), scanner.offset - len(tail)
            )
        if not named:
            raise JournalOwnershipLostError(
                self.path, "the file was deleted or replaced while it was followed"
            )
        if not kept:
            raise JournalOwnershipLostError(self.path, "entries that were seen have been taken back")


def _lines_with(data: bytes, end: int, texts: Sequence[bytes]) -> list[int]:
    """Where the lines begin that hold one of these texts; only whole lines, up to ``end``."""
    starts: set[int] = set()
    for text in texts:
        place = data.find(text, 0, end)
        while place >= 0:
            starts.add(data.rfind(b"\n", 0, place) + 1)
            end_of_line = data.find(b"\n", place)
            place = data.find(text, end_of_line, end)
    return sorted(starts)


def _end_of(timeout_s: float | None) -> float | None:
    return None if timeout_s is None else monotonic() + timeout_s
