"""A stream that nobody has to read: what it cannot take is lost, and whoever writes goes on."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import BinaryIO, TextIO, cast

from bartack.cli.app._edge import Edge, edge_of


class LossyStream(io.TextIOBase):
    """Passes everything on, until that fails."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    @property
    def encoding(self) -> str:  # type: ignore[override]  # - a property serves as well
        """The encoding of the stream."""
        return self._stream.encoding

    def write(self, text: str) -> int:
        """Write, if anybody reads."""
        try:
            return self._stream.write(text)
        except OSError:
            self._lose()
            return len(text)

    def flush(self) -> None:
        """Bring what was written to the reader, if there is one."""
        try:
            if not self._stream.closed:
                self._stream.flush()
        except OSError:
            self._lose()

    def isatty(self) -> bool:
        """Whether it is a terminal."""
        return self._stream.isatty()

    @property
    def errors(self) -> str | None:  # type: ignore[override]  # - a property serves as well
        """What becomes of characters that the encoding lacks."""
        return self._stream.errors

    @property
    def buffer(self) -> BinaryIO:
        """The bytes below it."""
        return self._stream.buffer

    def fileno(self) -> int:
        """The descriptor behind it."""
        return self._stream.fileno()

    def _lose(self) -> None:
        """From here on everything goes nowhere, also what is left in buffers when the process ends."""
        with suppress(OSError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self._stream.fileno())
            os.close(nowhere)


@contextmanager
def lossy_stderr() -> Generator[None]:
    """In this block it does not matter whether anybody reads stderr."""
    before = sys.stderr
    inner = before.inner if isinstance(before, Edge) else before
    sys.stderr = edge_of(cast("TextIO", LossyStream(inner)))
    try:
        yield
    finally:
        sys.stderr.flush()
        sys.stderr = before
