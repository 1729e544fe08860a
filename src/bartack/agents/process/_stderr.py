"""What a program writes to stderr: ``stderr.txt`` of its call, and the last lines for messages."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from bartack.core.files import open_private

STDERR_BYTES: Final = 1024 * 1024
TAIL_BYTES: Final = 8192
TAIL_LINES: Final = 20
HELD: Final = 4096
"""This much of stderr is stored only when what follows is there: a secret may be cut in two."""


class StderrLog:
    """What a program writes to stderr: the beginning in a file, the end in memory, the rest counted."""

    def __init__(self, redact: Callable[[bytes], bytes]) -> None:
        self._redact = redact
        self._path: Path | None = None
        self._file: int | None = None
        self._stored = 0
        self._held = b""
        self._tail = b""
        self.dropped = 0

    def store_in(self, folder: Path) -> None:
        """From now on it belongs to this call. Most programs write nothing: the file is made when it is needed."""
        self.close()
        self._path = folder / "stderr.txt"

    def feed(self, data: bytes) -> None:
        """The program wrote something."""
        text = self._redact(self._held + data)
        self._held = text[-HELD:]
        text = text[:-HELD]
        self._tail = (self._tail + text)[-TAIL_BYTES:]
        self._store(text)

    def tail(self) -> tuple[str, ...]:
        """The last lines, shortened."""
        text = (self._tail + self._held).decode("utf-8", "replace")
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        return tuple(line[:200] for line in lines[-TAIL_LINES:])

    def close(self) -> None:
        """Write no more."""
        if self._path is not None:
            self._store(self._held)
            self._tail, self._held = (self._tail + self._held)[-TAIL_BYTES:], b""
            self._path = None
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _store(self, text: bytes) -> None:
        file = self._open() if text else None
        room = max(STDERR_BYTES - self._stored, 0) if file is not None else 0
        kept = text[:room]
        self.dropped += len(text) - len(kept)
        if kept and file is not None:
            self._stored += len(kept)
            with suppress(OSError):  # a full disk ends the run elsewhere; a copy is not worth that
                os.write(file, kept)

    def _open(self) -> int | None:
        if self._file is None and self._path is not None:
            with suppress(OSError):
                flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
                self._file = open_private(self._path, flags)
                self._stored = os.fstat(self._file).st_size
        return self._file
