"""What a hub without a terminal writes for people, on its way to hub.log: whole lines, without secrets."""

from __future__ import annotations

import codecs
import io
from typing import BinaryIO, Final, TextIO, cast

from bartack.journal.veil import Veil

LONGEST: Final = 64 * 1024
"""Characters of a line that are held until its end arrives: a secret may come in pieces."""


class HubLog(io.TextIOBase):
    """Takes text and bytes; passes on lines.

    Args:
        stream: Where they go.
        veil: Hides the secrets.
    """

    def __init__(self, stream: TextIO, veil: Veil) -> None:
        self._stream = stream
        self._veil = veil
        self._line = ""

    @property
    def buffer(self) -> BinaryIO:
        """Takes UTF-8."""
        return cast("BinaryIO", _Utf8(self))

    def writable(self) -> bool:
        """It is."""
        return True

    def write(self, text: str) -> int:
        """Write text."""
        whole, newline, self._line = (self._line + text).rpartition("\n")
        if newline:
            self._put(whole + newline)
        if len(self._line) > LONGEST:
            self.finish()
        return len(text)

    def flush(self) -> None:
        """Bring the whole lines to the reader."""
        if not self._stream.closed:
            self._stream.flush()

    def finish(self) -> None:
        """Nothing follows: pass on the line that has no end."""
        text, self._line = self._line, ""
        self._put(text)
        self.flush()

    def _put(self, text: str) -> None:
        self._stream.write(self._veil.hide_text(text))


class _Utf8(io.RawIOBase):
    """Bytes that processes of the run have written."""

    def __init__(self, log: HubLog) -> None:
        self._log = log

    def writable(self) -> bool:
        """It is."""
        return True

    def write(self, data: bytes) -> int:  # type: ignore[override]  # - every buffer is fine
        """Write bytes."""
        self._log.write(codecs.decode(bytes(data), "utf-8", "backslashreplace"))
        return len(data)
