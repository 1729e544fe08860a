r"""The edge to the terminal: what is written to stdout and stderr passes here, and nothing in it can steer a terminal.

Text of programs, agents, commands and files may hold anything. On a terminal each control character in it is written as its
escape (``\x1b``, ``\u202e``), except line breaks and tabs. Sequences of our own, for colour and for lines that are drawn anew,
are made with ``own``: it marks them with a number drawn at random for this process, which no text from outside can contain.

On a pipe or file, text passes as it is: it belongs to the program that wrote it, and the next program reads exactly that.
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
    """A sequence of ours that a terminal is meant to obey, to be put into a text for ``Edge``."""
    return f"{_BEGIN}{sequence}{_END}"


def without_own(text: str) -> str:
    """``text`` without our sequences."""
    if _BEGIN not in text:
        return text
    return "".join(part.partition(_END)[2] if i else part for i, part in enumerate(text.split(_BEGIN)))


def visible(text: str) -> str:
    """``text`` with every character that a terminal would obey written as its escape; our own sequences stand for themselves."""
    if _BEGIN not in text:
        return _visible(text)
    first, *rest = text.split(_BEGIN)
    return _visible(first) + "".join(map(_piece, rest))


def obeyed(text: str) -> str:
    """``text`` as it is; our own sequences stand for themselves."""
    return text.replace(_BEGIN, "").replace(_END, "") if _BEGIN in text else text


def _piece(text: str) -> str:
    sequence, end, rest = text.partition(_END)
    # One that was cut off is not obeyed.
    return sequence + _visible(rest) if end else _visible(sequence)


def _visible(text: str) -> str:
    if text.isprintable() or text.replace("\n", "").replace("\t", "").isprintable():
        return text
    return _steering().sub(_escape, text.replace("\r\n", "\n"))


@cache
def _steering() -> re.Pattern[str]:
    """C0 but line break and tab, DEL, C1; marks and overrides of direction; breaks that are not ours; half characters."""
    import re  # noqa: PLC0415 - most texts are plain

    return re.compile(
        "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u206f\ufff9-\ufffb\ud800-\udfff]"
    )


def _escape(found: re.Match[str]) -> str:
    # Encoders of JSON escape what is below a blank, and leave the rest. With this form it is JSON still.
    number = ord(found[0])
    return f"\\x{number:02x}" if number < ord(" ") else f"\\u{number:04x}"


class Edge(io.TextIOBase):
    """A stream that a person may look at.

    Attributes:
        inner: The stream that it writes to.
    """

    def __init__(self, stream: TextIO) -> None:
        self.inner = stream
        self._terminal = stream.isatty()
        self._bytes: BinaryIO | None = None

    @property
    def encoding(self) -> str:  # type: ignore[override]  # - a property serves as well
        """The encoding of the stream."""
        return self.inner.encoding

    @property
    def errors(self) -> str | None:  # type: ignore[override]  # - a property serves as well
        """What becomes of characters that the encoding lacks."""
        return self.inner.errors

    @property
    def buffer(self) -> BinaryIO:
        """Takes UTF-8; on a terminal as safe as ``write``."""
        if not self._terminal:
            return self.inner.buffer
        self._bytes = self._bytes or cast("BinaryIO", _Utf8(self))
        return self._bytes

    def write(self, text: str) -> int:
        """Write text."""
        self.inner.write(visible(text) if self._terminal else obeyed(text))
        return len(text)

    def flush(self) -> None:
        """Bring what was written to the reader. The stream is its owner's, who may have closed it before this one ends."""
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
    """Bytes for a terminal."""

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
        """Bring what was written to the reader."""
        if not self.closed:
            self._edge.flush()


def edge_of(stream: TextIO) -> TextIO:
    """``stream`` behind an edge, if it is not one."""
    return stream if isinstance(stream, Edge) else cast("TextIO", Edge(stream))


@contextmanager
def guarded_streams() -> Generator[None]:
    """In this block stdout and stderr are safe; a closed one swallows what is written."""
    before = sys.stdout, sys.stderr
    with ExitStack() as made:
        sys.stdout, sys.stderr = (edge_of(_usable(stream, made)) for stream in before)
        try:
            yield
        finally:
            sys.stdout, sys.stderr = before


def _usable(stream: TextIO | None, made: ExitStack) -> TextIO:
    """A stream for which a character that its encoding lacks is written as its escape; one made for it ends with ``made``."""
    if stream is None:
        return made.enter_context(open(os.devnull, "w", encoding="utf-8"))
    reconfigure = getattr(stream, "reconfigure", None)  # a stream that a caller has put in place may lack it
    if callable(reconfigure):
        reconfigure(errors="backslashreplace")
    return stream
