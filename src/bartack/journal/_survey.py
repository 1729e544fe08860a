"""Reading a whole journal file and judging it: which lines are intact, where the history ends, what is missing. Changes nothing.

The lines themselves are in ``_format.py``; what an owner does with the verdict in ``_file.py``.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from typing import NamedTuple

from bartack.core.disk import Disk
from bartack.errors import JournalCorruptError, JournalFormatError
from bartack.journal._format import (
    CHUNK,
    DECODE_ERRORS,
    Damage,
    Scanner,
    decode_line,
    fence_of,
    format_of,
    judge,
    place_of,
)
from bartack.journal._high_water import HighWater
from bartack.journal.contract import FORMAT, Bookmark, Entry
from bartack.journal.veil import Veil


class Survey(NamedTuple):
    """What reading a whole journal file found."""

    scanner: Scanner
    damage: Damage | None
    fence: int
    marks: list[Bookmark]


def read_chunks(
    disk: Disk, fd: int, offset: int, end: int | None = None, *, size: int = CHUNK
) -> Iterator[bytes]:
    """The bytes of an open file from ``offset`` on, up to ``end`` or as many as there are, ``size`` at a time."""
    while end is None or offset < end:
        chunk = disk.read(fd, size if end is None else min(size, end - offset), offset)
        if not chunk:
            return
        offset += len(chunk)
        yield chunk


def find_end(disk: Disk, fd: int) -> int:
    """Where the last line of an open file ends, the blank lines after it not counted."""
    size = start = disk.facts(fd).size
    while start:
        end, start = start, max(start - CHUNK, 0)
        text = disk.read(fd, end - start, start).rstrip(b"\n")
        if text:
            return min(start + len(text) + 1, size)
    return 0


def survey(
    disk: Disk,
    fd: int,
    path: str,
    each: Callable[[Entry], None] | None = None,
    veil: Veil | None = None,
) -> Survey:
    """Read and judge a whole journal file; changes nothing.

    Args:
        disk: Where it is.
        fd: The open file.
        path: Its name, for errors.
        each: Gets every intact entry on the way, before it is known how the journal ends.
        veil: Puts secrets back into what ``each`` gets.

    Raises:
        JournalFormatError: A newer Bartack wrote it.
        JournalCorruptError: It is not a journal. (A journal is created with its first line in place.)
    """
    scanner = Scanner()
    chunks = read_chunks(disk, fd, 0)
    marks: list[Bookmark] = []
    for chunk in chunks:
        mark = Bookmark(scanner.next_seq, scanner.offset, scanner.crc)
        texts = scanner.feed(chunk)
        if texts:
            if not marks:
                check_first(path, texts[0])
            marks.append(mark)
        if each is not None:
            for entry in iter_entries(path, texts, scanner.offset, mark.seq, veil):
                each(entry)
        if scanner.problem:
            break
    if not marks:
        check_first(path, scanner.rest.split(b"\n", 1)[0])
        raise JournalCorruptError(path, 0, "this is not a journal")
    fence = 0
    for offset, text in scanner.openings:
        fence = fence_in(path, offset, text)
    problem = scanner.problem or "the line is not complete"
    return Survey(scanner, judge(scanner, chunks, problem), fence, marks)


def find_loss(disk: Disk, fd: int, found: Survey, mark: HighWater | None, at_least: int = 0) -> int:
    """The last entry that was acknowledged and that the journal does not hold as it was; 0 if it holds everything."""
    known = max(at_least, mark.seq if mark else 0)
    if found.scanner.next_seq - 1 < known:
        return known
    return mark.seq if mark and _crc_at(disk, fd, found, mark.seq) != mark.crc else 0


def _crc_at(disk: Disk, fd: int, found: Survey, seq: int) -> int | None:
    """The CRC of the line that ends with this entry; ``None`` if none ends there."""
    if seq == found.scanner.next_seq - 1:
        return found.scanner.crc
    begin = next(start for start in reversed(found.marks) if start.seq <= seq)
    scanner = Scanner(begin.offset, begin.seq, begin.crc)
    for chunk in read_chunks(disk, fd, begin.offset, found.scanner.offset):
        crc = scanner.crc_at(chunk, seq)
        if crc is not None:
            return crc
    return None


def fence_in(path: str, offset: int, text: bytes) -> int:
    """The fence in the line that an owner began with.

    Raises:
        JournalCorruptError: It is not such a line.
    """
    try:
        return fence_of(text)
    except DECODE_ERRORS as error:
        raise _no_entry(path, offset, text, error) from error


def iter_entries(
    path: str, texts: list[bytes], end: int, from_seq: int, veil: Veil | None = None
) -> Iterator[Entry]:
    """The entries of intact lines that end at ``end``, from the place ``from_seq`` on."""
    first = max(bisect_right(texts, from_seq, key=place_of) - 1, 0)
    for index in range(first, len(texts)):
        entries = decode_at(path, texts, index, end, veil)
        yield from entries if index > first else (entry for entry in entries if entry.seq >= from_seq)


def decode_at(path: str, texts: list[bytes], index: int, end: int, veil: Veil | None = None) -> list[Entry]:
    """The entries of one of several intact lines that end at ``end``.

    Raises:
        JournalCorruptError: It is not JSON, or not an entry: only a forged line passes the checksum and is neither.
    """
    try:
        return decode_line(texts[index] if veil is None else veil.restore(texts[index]))
    except DECODE_ERRORS as error:
        offset = end - sum(len(text) + 1 for text in texts[index:])
        raise _no_entry(path, offset, texts[index], error) from error


def _no_entry(path: str, offset: int, text: bytes, error: Exception) -> JournalCorruptError:
    return JournalCorruptError(path, offset, f"entry {place_of(text)} cannot be read: {error}")


def check_first(path: str, text: bytes) -> None:
    """Raise unless this is the first line of a journal that can be read."""
    found = format_of(text)
    if found is None:
        raise JournalCorruptError(path, 0, "this is not a journal")
    if found > FORMAT:
        raise JournalFormatError(path, found, FORMAT)
