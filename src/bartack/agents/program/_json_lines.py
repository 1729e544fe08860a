"""Lines of JSON, as the programs for coding write them: each line is an object, and a line may be long.

What an object means is decided in the dialect of its kind. A line that is not an object becomes a ``BadLine``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple, cast

import msgspec

from bartack.agents.protocol.lines import EXCERPT, BadLine, Splitter

MAX_JSON_LINE: Final = 16 * 1024 * 1024
"""Bytes of the longest line."""

Json = dict[str, object]
"""An object."""


class JsonLine(NamedTuple):
    """A line with its object."""

    value: Json
    raw: bytes


JsonRead = JsonLine | BadLine


class JsonLines:
    """Reads what a program writes; see ``Reader``. Lines that begin with ``skip`` are left out: others write to its file, too."""

    def __init__(self, limit: int = MAX_JSON_LINE, skip: tuple[bytes, ...] = ()) -> None:
        self._splitter = Splitter(limit)
        self._limit = limit
        self._skip = skip
        self._reported = False
        """The line that is being read is too long, and this was said already: it may never end."""

    def feed(self, data: bytes) -> Iterator[JsonRead]:
        """What the lines say that are complete with these bytes."""
        for line in self._splitter.feed(data):
            reported, self._reported = self._reported, False
            if isinstance(line, BadLine):
                yield from () if reported else (line,)
            elif not reported and not line.startswith(self._skip):
                yield read_json_line(line)
        if self._splitter.skipped and not self._reported:
            self._reported = True
            detail = f"the line has more than {self._limit} bytes"
            yield BadLine("line_too_long", b"", self._splitter.skipped, detail=detail)

    def close(self) -> BadLine | None:
        """The program has ended; a last line without newline is not a line."""
        rest = self._splitter.close()
        if rest is None or isinstance(rest, BadLine):
            return rest
        return BadLine("torn", rest[:EXCERPT], len(rest), detail="torn by the end of the stream")


def read_json_line(line: bytes) -> JsonRead:
    """What one line says."""
    try:
        value = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return BadLine(
            "malformed", line[:EXCERPT], len(line) + 1, detail=str(error), is_text=line[:1] != b"{"
        )
    if not isinstance(value, dict):
        return BadLine("not_an_object", line[:EXCERPT], len(line) + 1, detail=type(value).__name__)
    return JsonLine(cast("Json", value), line)


def member(value: object, *names: str) -> object:
    """What is found below these names, one in the other; ``None`` if any of it is missing or not an object."""
    for name in names:
        if not isinstance(value, dict):
            return None
        value = cast("Json", value).get(name)
    return value


def text_of(value: object, *names: str) -> str:
    """The same for a text; empty if there is none."""
    found = member(value, *names)
    return found if isinstance(found, str) else ""


def count_of(value: object, *names: str) -> int:
    """The same for a number of something; 0 if there is none."""
    found = member(value, *names)
    return found if isinstance(found, int) and not isinstance(found, bool) and found > 0 else 0


def object_of(value: object, *names: str) -> Json:
    """The same for an object; empty if there is none."""
    found = member(value, *names)
    return cast("Json", found) if isinstance(found, dict) else {}


def objects_of(value: object, *names: str) -> list[Json]:
    """The same for a list of objects; what is not an object is left out."""
    found = member(value, *names)
    items = cast("list[object]", found) if isinstance(found, list) else []
    return [cast("Json", item) for item in items if isinstance(item, dict)]
