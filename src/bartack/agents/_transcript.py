"""The transcript of one agent of a run, over all its calls: ``agents/<name>/transcript.ndjson``, for people.

It is a copy for reading: the journal is the truth, and nothing is read back from here.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from bartack.agents.contract import AgentEvent, CallNotice, CallText, CallUsage
from bartack.core.files import open_private
from bartack.core.trust import make_private

TRANSCRIPT_BYTES: Final = 16 * 1024 * 1024
"""After this much a transcript gets no more log lines, progress and usage."""


class AgentTranscript:
    """Appends events; the file is made with the first one.

    Args:
        folder: The directory of the agent.
        redact: Takes secrets out of a line.
    """

    def __init__(self, folder: Path, redact: Callable[[bytes], bytes]) -> None:
        self._folder = folder
        self._redact = redact
        self._file: int | None = None
        self._size = 0
        self._left_out = 0

    def add(self, event: AgentEvent) -> None:
        """Add an event. A transcript that is very long already gets only what matters most."""
        if self._file is None:
            make_private(self._folder)
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
            self._file = open_private(self._folder / "transcript.ndjson", flags)
            self._size = os.fstat(self._file).st_size
        if self._size > TRANSCRIPT_BYTES and isinstance(event, CallText | CallNotice | CallUsage):
            self._left_out += 1
            return
        data = self._redact(msgspec.json.encode(event)) + b"\n"
        self._size += len(data)
        with suppress(OSError):  # a full disk ends the run elsewhere; a transcript is not worth that
            os.write(self._file, data)

    def take_left_out(self) -> int:
        """How many events were left out since the last call."""
        left_out, self._left_out = self._left_out, 0
        return left_out

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None
