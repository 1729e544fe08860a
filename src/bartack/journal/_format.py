r"""The lines of a journal file: how they are written, and how a file is told intact, torn or corrupt.

One line is the atomic unit::

    {"seq":7,"c":6,"at":1763197200000000,"kind":"step.finished","data":{…},"crc":"1c291ca3"}\n
    {"seq":8,"c":8,"at":1763197200000913,"n":2,"entries":[{"kind":…,"data":{…}},{…}],"crc":"5f0d2b11"}\n

``seq`` is the place of the line's first entry and ``n`` how many it holds (1 if absent). ``c`` is the commit: the place of the
first entry that was written and synced together with this line. ``crc`` covers the bytes before it, and is seeded with the
stored CRC of the line before, so that no stale or doubled line can continue a history.

Commits are written one after the other, each only when the one before is synced. So where the expected place is S, damage
is a *torn tail* exactly if no valid line with ``c`` > S follows: such a line proves that everything before it was synced,
and the damage is corruption. This file decides that; it knows nothing of files and locks (``_file.py``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final, NamedTuple
from zlib import crc32

import msgspec

from bartack.journal._contract import BlobRef, Entry

OPENED: Final = "journal.opened"
INTERRUPTED: Final = "journal.interrupted"
CRC_SIZE: Final = len(b',"crc":"00000000"}')
CHUNK: Final = 1 << 20

_HEAD = re.compile(
    rb'\{"seq":([0-9]{1,18}),"c":([0-9]{1,18}),"at":-?[0-9]{1,19},"(?:n":([0-9]{1,9}),"entries":\[|kind":")'
)
_OPENED_HEAD = re.compile(rb'\{"seq":[0-9]+,"c":[0-9]+,"at":-?[0-9]+,"kind":"journal\.opened",')
_TAIL = re.compile(rb',"crc":"([0-9a-f]{8})"\}')


class Line(NamedTuple):
    """Where a line is and what it says of itself. ``size`` includes the newline."""

    offset: int
    size: int
    seq: int
    entries: int
    commit: int
    crc: int


class Damage(NamedTuple):
    """The first place where a file stops being a history."""

    offset: int
    seq: int
    problem: str
    torn: bool


class Opened(msgspec.Struct, frozen=True):
    """Data of the entry that each owner writes first."""

    format: int
    fence: int
    pid: int
    by: str


def encode_line(bodies: list[bytes], seq: int, commit: int, at: int, previous_crc: int) -> tuple[bytes, int]:
    """One line, with its CRC. A body is ``"kind":…,"data":…`` without the braces."""
    if len(bodies) == 1:
        text = b'{"seq":%d,"c":%d,"at":%d,%b' % (seq, commit, at, bodies[0])
    else:
        joined = b"},{".join(bodies)
        text = b'{"seq":%d,"c":%d,"at":%d,"n":%d,"entries":[{%b}]' % (seq, commit, at, len(bodies), joined)
    crc = crc32(text, previous_crc)
    return b'%b,"crc":"%08x"}\n' % (text, crc), crc


class _Body(msgspec.Struct):
    kind: str
    data: msgspec.Raw
    value: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    ref: BlobRef | None = None


class _Envelope(msgspec.Struct):
    seq: int
    c: int
    at: int
    kind: str = ""
    data: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw)
    value: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    ref: BlobRef | None = None
    entries: list[_Body] | None = None


_decode_envelope = msgspec.json.Decoder(_Envelope).decode
_decode_opened = msgspec.json.Decoder(Opened).decode


def decode_line(text: bytes) -> list[Entry]:
    """The entries of one intact line."""
    line = _decode_envelope(text)
    if line.entries is None:
        return [_entry(line.seq, line, line)]
    return [_entry(place, line, body) for place, body in enumerate(line.entries, line.seq)]


def _entry(seq: int, line: _Envelope, body: _Envelope | _Body) -> Entry:
    value = None if body.value is msgspec.UNSET else body.value
    return Entry(seq, line.c, line.at, body.kind, body.data, value, body.ref)


class Scanner:
    """Follows a history through its bytes, chunk by chunk, and stops at the first damage.

    Attributes:
        offset: End of the last intact line.
        next_seq: The place the next line must have.
        crc: The CRC the next line is seeded with.
        last_commit: Where the commit of the last intact line begins: its place in the file.
    """

    def __init__(self, offset: int = 0, next_seq: int = 1, crc: int = 0) -> None:
        self.offset = offset
        self.next_seq = next_seq
        self.crc = crc
        self.last_commit = offset
        self._commit: int = 0
        self._rest = b""

    @property
    def rest(self) -> bytes:
        """The bytes behind the last newline that was fed."""
        return self._rest

    def forget_rest(self) -> None:
        """Drop what stands behind the last newline: the caller will feed it again from ``offset`` on."""
        self._rest = b""

    def feed(self, chunk: bytes) -> Iterator[tuple[Line, bytes]]:
        """The intact lines that ``chunk`` completes, each with its text.

        Raises:
            LineError: A whole line is not the continuation of this history; ``offset`` and ``next_seq`` name the place.
        """
        texts = (self._rest + chunk).split(b"\n")
        self._rest = texts.pop()
        index = 0
        try:
            for index, text in enumerate(texts):  # noqa: B007 - names the line that failed
                yield self._next(text), text
        except LineError:
            self._rest = b"\n".join([*texts[index:], self._rest])
            raise

    def _next(self, text: bytes) -> Line:
        seq, commit, count, crc = _parse(text, self.crc)
        if seq != self.next_seq:
            raise LineError(f"entry {seq} where {self.next_seq} belongs")
        if commit != self._commit:
            if not self._commit < commit <= seq:
                raise LineError(f"commit {commit} where {self._commit} to {seq} belongs")
            self._commit = commit
            self.last_commit = self.offset
        offset = self.offset
        size = len(text) + 1
        self.offset = offset + size
        self.next_seq = seq + count
        self.crc = crc
        return Line(offset, size, seq, count, commit, crc)


class LineError(Exception):
    """A line that does not continue the history it stands in."""


def _parse(text: bytes, previous_crc: int) -> tuple[int, int, int, int]:
    crc = crc32(text[:-CRC_SIZE], previous_crc)
    if text[-CRC_SIZE:] != b',"crc":"%08x"}' % crc:
        raise LineError(_explain_tail(text))
    head = _HEAD.match(text)
    if head is None:
        raise LineError("line does not begin with its place")
    seq, commit, count = head.groups()
    return int(seq), int(commit), int(count or 1), crc


def _explain_tail(text: bytes) -> str:
    if not text:
        return "empty line"
    tail = _TAIL.fullmatch(text, max(len(text) - CRC_SIZE, 0))
    return "checksum does not match" if tail else "line does not end with its checksum"


def judge(scanner: Scanner, chunks: Iterable[bytes], problem: str) -> Damage | None:
    """What stands behind the last intact line: nothing (or blank lines), a torn tail, or corruption.

    Args:
        scanner: As it stood when a line failed, or when the file ended.
        chunks: The bytes of the file behind what the scanner was fed.
        problem: Why the line failed.
    """
    found = False
    seeds = {scanner.crc}
    for text in _physical_lines(scanner.rest, chunks):
        if not text:
            continue
        if _is_later(text, seeds, scanner.next_seq):
            return Damage(scanner.offset, scanner.next_seq, problem, torn=False)
        seeds = _seeds_behind(text, None if found else scanner.crc)
        found = True
    return Damage(scanner.offset, scanner.next_seq, problem, torn=True) if found else None


def _physical_lines(rest: bytes, chunks: Iterable[bytes]) -> Iterator[bytes]:
    for chunk in chunks:
        texts = (rest + chunk).split(b"\n")
        rest = texts.pop()
        yield from texts
    yield from rest.split(b"\n")


def _is_later(text: bytes, seeds: set[int], seq: int) -> bool:
    """Whether ``text`` is, or ends with, a valid line of a commit that began behind ``seq``.

    A damaged newline leaves two lines in one text, so a line is also looked for inside it.
    """
    for head in islice(_HEAD.finditer(text), 4):
        if int(head[2]) <= seq:
            continue
        before = _TAIL.search(text, max(head.start() - CRC_SIZE - 1, 0), head.start())
        tried = seeds | {int(before[1], 16)} if before else seeds
        if any(_fits(text[head.start() :], seed) for seed in tried):
            return True
    return False


def _fits(text: bytes, seed: int) -> bool:
    try:
        _parse(text, seed)
    except LineError:
        return False
    return True


def _seeds_behind(text: bytes, seed: int | None) -> set[int]:
    """The CRCs a line behind ``text`` may be seeded with: the stored one and, if the damage hit just that, the true one."""
    tail = _TAIL.fullmatch(text, max(len(text) - CRC_SIZE, 0))
    seeds = {int(tail[1], 16)} if tail else set[int]()
    if seed is not None:
        seeds.add(crc32(memoryview(text)[:-CRC_SIZE], seed))
    return seeds


def format_of(first_line: bytes) -> int | None:
    """The format a journal says it has in its first line; ``None`` if this is no journal."""
    try:
        line = _decode_envelope(first_line)
        return _decode_opened(line.data).format if line.kind == OPENED and line.seq == 1 else None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def fence_of(text: bytes) -> int:
    """The fence an owner wrote when it opened the journal; 0 if ``text`` is another entry."""
    # The first look is the fast one; data of another entry may hold the same words, so it does not decide.
    if text.find(b"journal.opened", 0, 96) < 0 or not _OPENED_HEAD.match(text):
        return 0
    return _decode_opened(_decode_envelope(text).data).fence
