r"""The lines of a journal file: how they are written, and how an intact file is distinguished from a torn and a corrupt one.

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

from bartack.core import typed
from bartack.journal.contract import BlobRef, Entry

OPENED: Final = "journal.opened"
INTERRUPTED: Final = "journal.interrupted"
CRC_SIZE: Final = len(b',"crc":"00000000"}')
CHUNK: Final = 1 << 16
"""How much is read at once; reading can begin about this often. (Larger ones are not faster, and one entry costs more.)"""
LONGEST: Final = 1 << 25
"""No line that is written comes near this length. (A group of entries takes at most half of it.)"""

DECODE_ERRORS: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What decoding raises for a line that is not an entry although its checksum is right."""

_HEAD = re.compile(
    rb'\{"seq":([0-9]{1,18}),"c":([0-9]{1,18}),"at":-?[0-9]{1,19},'
    rb'"(?:n":([0-9]{1,9}),"entries":\[|kind":"(journal\.opened",)?)'
)
_TAIL = re.compile(rb',"crc":"([0-9a-f]{8})"\}')
_match_head = _HEAD.match
_BLANK: Final = b"\n" * 64


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
    return text + seal(crc), crc


def seal(crc: int) -> bytes:
    """How a line with this CRC ends."""
    return b',"crc":"%08x"}\n' % crc


class _Body(msgspec.Struct, gc=False):
    kind: str
    data: msgspec.Raw
    value: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    ref: BlobRef | None = None


class _Envelope(msgspec.Struct, gc=False):
    seq: int
    c: int
    at: int
    kind: str = ""
    data: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw)
    value: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    ref: BlobRef | None = None
    entries: list[_Body] | None = None


_decode_envelope = typed.decoder(_Envelope).decode
_decode_opened = typed.decoder(Opened).decode


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
        openings: The intact lines that owners began with, each with its place in the file.
        problem: Why what stands at ``offset`` does not continue this history; empty as long as nothing failed.
    """

    def __init__(self, offset: int = 0, next_seq: int = 1, crc: int = 0) -> None:
        self.offset = offset
        self.next_seq = next_seq
        self.crc = crc
        self.last_commit = offset
        self.openings: list[tuple[int, bytes]] = []
        self.problem = ""
        self._commit = 0
        self._parts: list[bytes] = []

    @property
    def rest(self) -> bytes:
        """What was fed and is not part of an intact line."""
        return b"".join(self._parts)

    def look_again(self) -> None:
        """Forget what follows the last intact line: the caller will feed it again from ``offset`` on."""
        self.problem = ""
        self._parts = []

    def feed(self, chunk: bytes) -> list[bytes]:
        """The intact lines that ``chunk`` completes, up to the first one that fails: that sets ``problem``."""
        self._parts.append(chunk)
        if b"\n" not in chunk:
            if sum(map(len, self._parts)) > LONGEST:
                self.problem = "the line is longer than any valid line"
            return []
        fed = self.rest
        texts = _without_blank_end(fed).split(b"\n")
        texts.pop()
        intact, size = self._follow(texts)
        del texts[intact:]
        self._parts = [fed[size:]]
        return texts

    def crc_at(self, chunk: bytes, seq: int) -> int | None:
        """The CRC of the line that ends with entry ``seq``, if ``chunk`` completes it."""
        for text in self.feed(chunk):
            head = _match_head(text)
            assert head is not None
            if int(head[1]) + int(head[3] or 1) - 1 == seq:
                return int(text[-10:-2], 16)
        return None

    def _follow(self, texts: list[bytes]) -> tuple[int, int]:
        """How many of these lines are intact, and how many bytes they take."""
        # One loop over local names, and nothing is made of a line: reading a long journal is this loop.
        begin = offset = self.offset
        next_seq, crc, commit = self.next_seq, self.crc, self._commit
        intact = 0
        for text in texts:
            sealed = crc32(text[:-CRC_SIZE], crc)
            head = _match_head(text)
            if head is None or text[-CRC_SIZE:] != b',"crc":"%08x"}' % sealed:
                self.problem = _explain(text, sealed)
                break
            place, began, count, opened = head.groups()
            seq = int(place)
            if seq != next_seq:
                self.problem = f"entry {seq}, expected {next_seq}"
                break
            start = seq if began == place else int(began)
            if start != commit:
                if not commit < start <= seq:
                    self.problem = f"commit {start}, expected {commit} to {seq}"
                    break
                commit, self.last_commit = start, offset
            if opened:
                self.openings.append((offset, text))
            offset += len(text) + 1
            next_seq = seq + int(count) if count else seq + 1
            crc = sealed
            intact += 1
        self.offset, self.next_seq, self.crc, self._commit = offset, next_seq, crc, commit
        return intact, offset - begin


def _explain(text: bytes, sealed: int) -> str:
    """What is wrong with a line whose head or checksum is."""
    if not text:
        return "empty line"
    if text[-CRC_SIZE:] == b',"crc":"%08x"}' % sealed:
        return "line does not begin with its place"
    tail = _TAIL.fullmatch(text, max(len(text) - CRC_SIZE, 0))
    return "checksum does not match" if tail else "line does not end with its checksum"


def _without_blank_end(text: bytes) -> bytes:
    """``text`` with one blank line for the many it may end with, which would take long to split and mean nothing."""
    if not text.endswith(_BLANK):
        return text
    start = text.index(_BLANK)
    if text[start:] != b"\n" * (len(text) - start):
        start = len(text.rstrip(b"\n"))
    return text[: start + 2]


def judge(scanner: Scanner, chunks: Iterable[bytes], problem: str) -> Damage | None:
    """What follows the last intact line: nothing (or blank lines), a torn tail, or corruption.

    Args:
        scanner: As it stood when a line failed, or when the file ended.
        chunks: The bytes of the file after what the scanner was fed.
        problem: Why the line failed.
    """
    found = False
    seeds = {scanner.crc}
    for text in _physical_lines(scanner.rest, chunks):
        if not text:
            continue
        if _is_later(text, seeds, scanner.next_seq):
            return Damage(scanner.offset, scanner.next_seq, problem, torn=False)
        seeds = _seeds_after(text, None if found else scanner.crc)
        found = True
    return Damage(scanner.offset, scanner.next_seq, problem, torn=True) if found else None


def _physical_lines(rest: bytes, chunks: Iterable[bytes]) -> Iterator[bytes]:
    parts = [rest]
    for chunk in chunks:
        parts.append(chunk)
        if b"\n" in chunk:
            texts = _without_blank_end(b"".join(parts)).split(b"\n")
            parts = [texts.pop()]
            yield from texts
    yield from _without_blank_end(b"".join(parts)).split(b"\n")


def _is_later(text: bytes, seeds: set[int], seq: int) -> bool:
    """Whether ``text`` is, or ends with, a valid line of a commit that began after ``seq``.

    A damaged newline leaves two lines in one text, so a line is also looked for inside it: after one that is intact but
    for its newline, and, where more is damaged, at the first few places that look like a beginning. (Data may quote
    any number of lines, and to try them all would take for ever.)
    """
    if any(_is_later_after_intact(text, seed, seq) for seed in seeds):
        return True
    for head in islice(_HEAD.finditer(text), 4):
        if int(head[2]) <= seq:
            continue
        before = _TAIL.search(text, max(head.start() - CRC_SIZE - 1, 0), head.start())
        tried = seeds | {int(before[1], 16)} if before else seeds
        if any(_fits(text[head.start() :], seed) for seed in tried):
            return True
    return False


def _is_later_after_intact(text: bytes, seed: int, seq: int) -> bool:
    view, crc, done = memoryview(text), seed, 0
    for tail in _TAIL.finditer(text):
        crc = crc32(view[done : tail.start()], crc)
        done = tail.start()
        if crc == int(tail[1], 16):
            rest = text[tail.end() + 1 :]
            head = _HEAD.match(rest)
            if head is None:
                return False
            return (int(head[2]) > seq and _fits(rest, crc)) or _is_later_after_intact(rest, crc, seq)
    return False


def _fits(text: bytes, seed: int) -> bool:
    sealed = crc32(text[:-CRC_SIZE], seed)
    return text[-CRC_SIZE:] == b',"crc":"%08x"}' % sealed and _match_head(text) is not None


def _seeds_after(text: bytes, seed: int | None) -> set[int]:
    """The CRCs a line after ``text`` may be seeded with: the stored one and, if the damage hit just that, the true one."""
    tail = _TAIL.fullmatch(text, max(len(text) - CRC_SIZE, 0))
    seeds = {int(tail[1], 16)} if tail else set[int]()
    if seed is not None:
        seeds.add(crc32(memoryview(text)[:-CRC_SIZE], seed))
    return seeds


def stored_crc(data: bytes, end: int) -> int:
    """The CRC that is written in the line that ends, with its newline, at ``end``; 0 if none does."""
    tail = _TAIL.fullmatch(data, max(end - 1 - CRC_SIZE, 0), max(end - 1, 0))
    return int(tail[1], 16) if tail else 0


def is_sealed(text: bytes, seed: int) -> bool:
    """Whether a line is intact, given the CRC that is written in the line before it."""
    return _fits(text, seed)


def format_of(first_line: bytes) -> int | None:
    """The format a journal says it has in its first line; ``None`` if this is not a journal."""
    try:
        line = _decode_envelope(first_line)
        return _decode_opened(line.data).format if line.kind == OPENED and line.seq == 1 else None
    except DECODE_ERRORS:
        return None


def fence_of(opening: bytes) -> int:
    """The fence in an intact line that an owner began with."""
    return _decode_opened(_decode_envelope(opening).data).fence


def begins_with(text: bytes) -> int | None:
    """The place of the first entry of a line, by its beginning; ``None`` if a line does not begin like this."""
    head = _match_head(text)
    return None if head is None else int(head[1])


def place_of(text: bytes) -> int:
    """The place of the first entry of an intact line."""
    return int(text[len(b'{"seq":') : text.index(b",")])
