r"""The edge to the terminal: all output to stdout and stderr passes here, and no text in it can control a terminal.

Text of programs, agents, commands and files can contain anything. On a terminal each control character in it is written as its
escape (``\x1b``, ``\u202e``), except line breaks, tabs and colour, which lasts to the end of its line at most. Our own control
sequences, for colour and for redrawn lines, are made
with ``own``, which marks them with a random number of this process that no text from outside can contain.

On a pipe or file, text passes unchanged: the next program reads exactly what the first one wrote.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from functools import cache
from typing import TYPE_CHECKING, BinaryIO, Final, TextIO, cast

if TYPE_CHECKING:
    import re

_SECRET: Final = os.urandom(8).hex()
_BEGIN: Final = f"\x1b\x02{_SECRET}"
_END: Final = f"\x1b\x03{_SECRET}"


def own(sequence: str) -> str:
    """Mark a control sequence of our own, for use in a text for ``Edge``: the terminal obeys it."""
    return f"{_BEGIN}{sequence}{_END}"


def without_own(text: str) -> str:
    """Return ``text`` without our own control sequences."""
    if _BEGIN not in text:
        return text
    return "".join(part.partition(_END)[2] if i else part for i, part in enumerate(text.split(_BEGIN)))


def visible(text: str, *, colour: bool = False) -> str:
    """Return ``text`` with every control character written as its escape; our own sequences stay as they are.

    Args:
        text: The text.
        colour: Keep sequences that choose a colour or a weight, each to the end of its line at most.
    """
    if _BEGIN not in text:
        return _visible(text, colour=colour)
    first, *rest = text.split(_BEGIN)
    return _visible(first, colour=colour) + "".join(_piece(piece, colour=colour) for piece in rest)


def without_colour(text: str) -> str:
    """Return visible text without sequences that choose a colour or a weight."""
    return _colours().sub("", text) if "\x1b" in text else text


def obeyed(text: str) -> str:
    """Return ``text`` unchanged, without the marks of our own sequences."""
    return text.replace(_BEGIN, "").replace(_END, "") if _BEGIN in text else text


def _piece(text: str, *, colour: bool) -> str:
    sequence, end, rest = text.partition(_END)
    # A sequence that was cut off is escaped.
    return sequence + _visible(rest, colour=colour) if end else _visible(sequence, colour=colour)


def _visible(text: str, *, colour: bool) -> str:
    if text.isprintable() or text.replace("\n", "").replace("\t", "").isprintable():
        return text
    text = text.replace("\r\n", "\n")
    if not colour or "\x1b[" not in text:
        return _steering().sub(_escape, text)
    return "\n".join(map(_coloured, text.split("\n")))


def _coloured(line: str) -> str:
    """A line with its colours, which end with it."""
    shown, end = "", 0
    for found in _colours().finditer(line):
        shown += _steering().sub(_escape, line[end : found.start()]) + found[0]
        end = found.end()
    rest = _steering().sub(_escape, line[end:])
    return f"{shown}{rest}\x1b[0m" if shown else rest


@cache
def _steering() -> re.Pattern[str]:
    """C0 except line break and tab, DEL, C1; direction marks and overrides; other line breaks; lone surrogates."""
    import re  # noqa: PLC0415 - most texts are plain

    return re.compile(
        "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u206f\ufff9-\ufffb\ud800-\udfff]"
    )


@cache
def _colours() -> re.Pattern[str]:
    """Sequences that choose colour, weight or underlining. Those that hide text or let it blink are none of them."""
    import re  # noqa: PLC0415 - likewise

    number = r"(?:25[0-5]|2[0-4]\d|1?\d?\d)"
    one = (
        rf"(?:0?[0-4]|2[234]|[34][0-79]|9[0-7]|10[0-7]|[34]8;5;{number}|[34]8;2;{number};{number};{number}|)"
    )
    return re.compile(rf"\x1b\[{one}(?:;{one})*m")


def _escape(found: re.Match[str]) -> str:
    # JSON encoders escape characters below the blank and leave the rest. In this form the text is still JSON.
    number = ord(found[0])
    return f"\\x{number:02x}" if number < ord(" ") else f"\\u{number:04x}"


class Edge(io.TextIOBase):
    """A stream that may be a terminal.

    Attributes:
        inner: The stream below, which it writes to.
    """

    def __init__(self, stream: TextIO) -> None:
        self.inner = stream
        self._terminal = stream.isatty()
        self._coloured = os.environ.get("TERM") != "dumb"
        self._bytes: BinaryIO | None = None

    @property
    def encoding(self) -> str:  # type: ignore[override]  # - a property serves as well
        """The encoding of the stream."""
        return self.inner.encoding

    @property
    def errors(self) -> str | None:  # type: ignore[override]  # - a property serves as well
        """How characters that the encoding lacks are written."""
        return self.inner.errors

    @property
    def buffer(self) -> BinaryIO:
        """A binary stream that takes UTF-8; on a terminal it escapes like ``write``."""
        if not self._terminal:
            return self.inner.buffer
        self._bytes = self._bytes or cast("BinaryIO", _Utf8(self))
        return self._bytes

    def write(self, text: str) -> int:
        """Write text."""
        self.inner.write(visible(text, colour=self._coloured) if self._terminal else obeyed(text))
        return len(text)

    def flush(self) -> None:
        """Flush the stream below, unless its owner has closed it already."""
        if not self.inner.closed:
            self.inner.flush()

    def writable(self) -> bool:
        """It is."""
        return True

    def isatty(self) -> bool:
        """Whether it is a terminal."""
        return self._terminal

    def fileno(self) -> int:
        """The descriptor below it."""
        return self.inner.fileno()


class _Utf8(io.RawIOBase):
    """A binary stream for a terminal."""

    def __init__(self, edge: Edge) -> None:
        import codecs  # noqa: PLC0415 - few commands write bytes

        self._edge = edge
        self._decode = codecs.getincrementaldecoder("utf-8")("backslashreplace").decode

    def writable(self) -> bool:
        """It is."""
        return True

    def write(self, data: bytes) -> int:  # type: ignore[override]  # - every buffer is fine
        """Write bytes; a character may come in pieces."""
        self._edge.write(self._decode(bytes(data)))
        return len(data)

    def flush(self) -> None:
        """Flush the stream below."""
        if not self.closed:
            self._edge.flush()


def edge_of(stream: TextIO) -> TextIO:
    """Wrap ``stream`` in an edge, unless it is one."""
    return stream if isinstance(stream, Edge) else cast("TextIO", Edge(stream))


@contextmanager
def guarded_streams() -> Generator[None]:
    """Make stdout and stderr safe in this block; output to a closed one is discarded."""
    before = sys.stdout, sys.stderr
    with ExitStack() as made:
        sys.stdout, sys.stderr = (edge_of(_usable(stream, made)) for stream in before)
        try:
            yield
        finally:
            sys.stdout, sys.stderr = before


def _usable(stream: TextIO | None, made: ExitStack) -> TextIO:
    """Return a stream that escapes characters its encoding lacks; a stream opened here is closed with ``made``."""
    if stream is None:
        return made.enter_context(open(os.devnull, "w", encoding="utf-8"))
    reconfigure = getattr(stream, "reconfigure", None)  # a stream that the caller has replaced may lack it
    if callable(reconfigure):
        reconfigure(errors="backslashreplace")
    return stream
