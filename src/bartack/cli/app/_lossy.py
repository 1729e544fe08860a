"""A stream without an obligatory reader: output that cannot be written is lost, and the writer continues."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import BinaryIO, TextIO, cast

from bartack.cli.app._edge import Edge, edge_of


class LossyStream(io.TextIOBase):
    """Passes all output on until a write fails, then discards it."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    @property
    def encoding(self) -> str:  # type: ignore[override]  # - a property serves as well
        """The encoding of the stream."""
        return self._stream.encoding

    def write(self, text: str) -> int:
        """Write text, or discard it if the reader is gone."""
        try:
            return self._stream.write(text)
        except OSError:
            self._discard()
            return len(text)

    def flush(self) -> None:
        """Flush the stream below, unless the reader is gone."""
        try:
            if not self._stream.closed:
                self._stream.flush()
        except OSError:
            self._discard()

    def isatty(self) -> bool:
        """Whether it is a terminal."""
        return self._stream.isatty()

    @property
    def errors(self) -> str | None:  # type: ignore[override]  # - a property serves as well
        """How characters that the encoding lacks are written."""
        return self._stream.errors

    @property
    def buffer(self) -> BinaryIO:
        """The binary stream below it."""
        return self._stream.buffer

    def fileno(self) -> int:
        """The descriptor below it."""
        return self._stream.fileno()

    def _discard(self) -> None:
        """Send all further output to the null device, also what buffers still hold when the process ends."""
        with suppress(OSError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self._stream.fileno())
            os.close(nowhere)


@contextmanager
def lossy_stderr() -> Generator[None]:
    """In this block a closed stderr is not an error."""
    before = sys.stderr
    inner = before.inner if isinstance(before, Edge) else before
    sys.stderr = edge_of(cast("TextIO", LossyStream(inner)))
    try:
        yield
    finally:
        sys.stderr.flush()
        sys.stderr = before
