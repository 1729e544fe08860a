"""Lines: bytes into messages and messages into bytes. Writing is strict, reading tolerant, and memory bounded in both.

Whatever an agent writes becomes either a message or a ``BadLine`` that says what is wrong with the line. Which message belongs to
which command is not decided here but in ``ndjson/_dialect.py``.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple, NoReturn, cast

import msgspec

from bartack.agents.protocol._flaws import find_flaws
from bartack.agents.protocol.messages import FROM_AGENT, TO_AGENT, Event, FromAgent, ToAgent
from bartack.core import typed
from bartack.errors import LineTooLongError

MAX_LINE: Final = 262_144
"""Bytes of the longest line, its newline included, in both directions."""
KEPT: Final = 4096
"""Bytes that are kept of a line that is too long."""
OVERLAP: Final = 4096
"""This many more are searched for secrets first: one may begin within what is kept and end after it."""
EXCERPT: Final = 256
CALM: Final = re.compile(rb'"kind"\s*:\s*"(?:log|heartbeat)"')
"""A damaged line with this in it was not an answer."""

UNCOUNTED: Final = frozenset({"unknown_kind", "unknown_event", "duplicate", "late"})
"""Faults that may be a newer or a slower agent rather than a broken one."""


class BadLine(NamedTuple):
    """A line that cannot be used, and why.

    Attributes:
        case: The name of the fault.
        excerpt: The beginning of the line.
        size: Its bytes, the newline included.
        suspect: It may have been the answer.
        detail: What is wrong, in words.
        is_text: It is not an attempt at a message but printed text.
        event: The event, if only the files that it names are wrong.
    """

    case: str
    excerpt: bytes
    size: int
    suspect: bool = False
    detail: str = ""
    is_text: bool = False
    event: Event | None = None

    @property
    def counted(self) -> bool:
        """Whether too many of it end an attempt."""
        return self.case not in UNCOUNTED


class Line(NamedTuple):
    """A line with its message."""

    message: FromAgent
    raw: bytes


Read = Line | BadLine


class Splitter:
    """Cuts a stream into lines; one that is too long is thrown away but for its beginning."""

    def __init__(self, limit: int = MAX_LINE) -> None:
        self._limit = limit
        self._buffer = bytearray()
        self._skipped = 0

    def feed(self, data: bytes) -> Iterator[bytes | BadLine]:
        """The lines that are complete with these bytes, without their newlines; blank ones are left out."""
        begin = 0
        while (end := data.find(b"\n", begin)) >= 0:
            self._add(data, begin, end)
            begin = end + 1
            line = self._take()
            if line:
                yield line
        self._add(data, begin, len(data))

    @property
    def skipped(self) -> int:
        """Bytes of a line that is too long already, although it has not ended; 0 if it is not."""
        return self._skipped

    def close(self) -> bytes | BadLine | None:
        """The stream has ended: what is left of a line that has none."""
        if not self._buffer and not self._skipped:
            return None
        return self._take(newline=0) or None

    def _add(self, data: bytes, begin: int, end: int) -> None:
        if self._skipped:
            self._skipped += end - begin
            return
        # One byte of the limit is the newline.
        room = self._limit - 1 - len(self._buffer)
        if end - begin <= room:
            self._buffer += data[begin:end]
            return
        self._skipped = len(self._buffer) + end - begin
        self._buffer += data[begin : begin + KEPT + OVERLAP]
        del self._buffer[KEPT + OVERLAP :]

    def _take(self, newline: int = 1) -> bytes | BadLine:
        kept, skipped = bytes(self._buffer), self._skipped
        self._buffer.clear()
        self._skipped = 0
        if skipped:
            detail = f"the line has {skipped + newline} bytes, more than {self._limit}"
            return BadLine("line_too_long", kept, skipped + newline, not CALM.search(kept), detail)
        return kept.strip(b" \t\r")


class LineReader:
    """Reads what an agent writes.

    Args:
        redact: Takes secrets out of a line before it is shown or stored.
    """

    def __init__(self, redact: Callable[[bytes], bytes] | None = None) -> None:
        self._splitter = Splitter()
        self._redact = redact or _as_it_is

    def feed(self, data: bytes) -> Iterator[Read]:
        """What the lines say that are complete with these bytes."""
        for line in self._splitter.feed(data):
            yield self._hide(line) if isinstance(line, BadLine) else read_line(self._redact(_plain(line)))

    def close(self) -> BadLine | None:
        """The stream has ended; a last line without newline was torn by that."""
        rest = self._splitter.close()
        if isinstance(rest, bytes):
            return _malformed(self._redact(rest), "torn by the end of the stream")
        return None if rest is None else self._hide(rest)

    def _hide(self, fault: BadLine) -> BadLine:
        return fault._replace(excerpt=self._redact(fault.excerpt)[:KEPT])


def _plain(line: bytes) -> bytes:
    """A line without escapes that it does not need: a secret must not hide in them."""
    if b"\\u" not in line and b"\\/" not in line:
        return line
    try:
        return msgspec.json.encode(load_json(line))
    except ValueError:
        return line


def _as_it_is(line: bytes) -> bytes:
    return line


def read_line(line: bytes) -> Read:
    """What one line of an agent says."""
    try:
        value = load_json(line)
    except ValueError as error:
        return _malformed(line, str(error))
    if not isinstance(value, dict):
        return _fault("not_an_object", line, f"{type(value).__name__} instead of an object")
    kind = cast("dict[str, object]", value).get("kind")
    if not isinstance(kind, str):
        return _fault("schema", line, "the member kind is missing or not a string")
    wanted = FROM_AGENT.get(kind)
    if wanted is None:
        return _fault("unknown_kind", line, f"kind {kind[:64]!r}")
    try:
        return Line(typed.convert(cast("object", value), type=wanted), line)
    except msgspec.ValidationError as error:
        return _bad_message(line, cast("dict[str, object]", value), str(error))


def _bad_message(line: bytes, members: dict[str, object], problem: str) -> BadLine:
    """A message that does not have its form; an event whose files alone are wrong is kept with the fault."""
    if members["kind"] != "event":
        return _fault("schema", line, problem)
    flaws = find_flaws(members.get("artifacts"))
    try:
        event = typed.convert({**members, "artifacts": None}, type=Event) if flaws else None
    except msgspec.ValidationError:
        event = None
    if event is None:
        return _fault("schema", line, problem, suspect=True)
    return _fault("schema", line, flaws, suspect=True)._replace(event=event)


def read_command(line: bytes) -> ToAgent | None:
    """What one line to an agent says, as an agent reads it; ``None`` for a kind that it does not know.

    Raises:
        ValueError: It is not a message.
    """
    value = load_json(line)
    try:
        kind = typed.convert(value, type=dict[str, object]).get("kind")
        wanted = TO_AGENT.get(kind) if isinstance(kind, str) else None
        return None if wanted is None else typed.convert(value, type=wanted)
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from None


def load_json(line: bytes) -> object:
    """A JSON value as strictly as the protocol wants it.

    Raises:
        ValueError: It is not JSON, names a member twice, or has text that is not Unicode.
    """
    try:
        value: object = json.loads(
            line.decode("utf-8"),
            object_pairs_hook=_members,
            parse_constant=_refuse_constant,
            parse_float=_finite,
        )
        if b"\\u" in line:
            msgspec.json.decode(line)  # half characters are let through above
    except (RecursionError, msgspec.DecodeError) as error:
        raise ValueError(str(error)) from None
    return value


def _members(pairs: list[tuple[str, object]]) -> dict[str, object]:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise ValueError("duplicate member")
    return members


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"{text[:40]} is too large a number")
    return value


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _malformed(line: bytes, detail: str) -> BadLine:
    looks_like_message = line.lstrip().startswith(b"{")
    suspect = looks_like_message and not CALM.search(line[:KEPT])
    return _fault("malformed", line, detail, suspect=suspect, is_text=not looks_like_message)


def _fault(case: str, line: bytes, detail: str, *, suspect: bool = False, is_text: bool = False) -> BadLine:
    return BadLine(case, line[:KEPT], len(line) + 1, suspect, detail[:512], is_text)


_encode: Final = msgspec.json.Encoder().encode


def write_line(message: ToAgent | FromAgent, agent: str = "") -> bytes:
    """A message as a line.

    Raises:
        LineTooLongError: It takes more than a line may have.
    """
    line = _encode(message) + b"\n"
    if len(line) > MAX_LINE:
        raise LineTooLongError(agent, len(line), MAX_LINE)
    return line
