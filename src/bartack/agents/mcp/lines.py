"""Lines of an MCP stream: bytes into lines with a bound on memory, lines into messages, and messages into lines.

What a message means is decided in ``server.py``. The standard library's JSON is used on purpose: an MCP server that a person waits
for answers its first message before anything else is imported.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Final, NoReturn

MAX_MESSAGE: Final = 16 * 1024 * 1024
"""Bytes of the longest message; a longer one is skipped up to its newline and answered with an error."""


class TooLong:
    """Stands for a line that was skipped."""


class MessageLines:
    """Cuts a stream into lines; never holds more than one of the longest."""

    def __init__(self, limit: int = MAX_MESSAGE) -> None:
        self._limit = limit
        self._parts: list[bytes] = []
        self._size = 0
        self._skips = False

    def feed(self, data: bytes) -> Iterator[bytes | TooLong]:
        """The lines that are complete with these bytes, without their newlines; blank ones are left out."""
        *whole, rest = data.split(b"\n")
        for part in whole:
            self._take(part)
            line = b"".join(self._parts)
            skipped, self._skips = self._skips, False
            self._parts, self._size = [], 0
            if skipped:
                yield TooLong()
            elif line.strip():
                yield line
        self._take(rest)

    def _take(self, part: bytes) -> None:
        self._size += len(part)
        if self._size > self._limit:
            self._skips = True
            self._parts = []
        elif part:
            self._parts.append(part)


def message_line(message: dict[str, object]) -> bytes:
    """A message as one line."""
    try:
        text = json.dumps(message, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
    except UnicodeEncodeError:  # half of a surrogate pair, which came in as an escape and goes out as one
        text = json.dumps(message, separators=(",", ":"), allow_nan=False).encode()
    return text + b"\n"


def parse_message(line: bytes) -> object:
    """The value of one line.

    Raises:
        ValueError: It is not JSON, or has a number in it that no value can hold.
        RecursionError: It is nested too deep.
    """
    return json.loads(line.decode(), parse_constant=_refuse, parse_float=_finite)


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"{text[:40]} is too large")
    return number
