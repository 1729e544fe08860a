"""The stream of one conversation with a program for coding: ``stream.ndjson``, its lease, and what is read back after a crash.

The first line says that it is not of the line protocol. Between the lines of the program are marks of ours, whose ``type`` begins
with ``bartack.``; ``bartack.begun`` comes before the first attempt of a step, ``bartack.sent`` before each prompt. The file is
append-only and never shown.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, Self

import msgspec

from bartack.agents.program._json_lines import MAX_JSON_LINE, JsonLine, read_json_line
from bartack.agents.program._lease import STREAM, take_conversation
from bartack.core.closing import Closing
from bartack.core.files import write_file

OPENED: Final = "bartack.opened"
BEGUN: Final = "bartack.begun"
STARTED: Final = "bartack.started"
SENT: Final = "bartack.sent"
MARKS: Final = (b'{"type":"bartack.',)
"""How lines of ours begin."""
SESSION: Final = "session"


class Stream(Closing):
    """See the module. Made by ``open``, which takes the conversation for this process."""

    def __init__(self, folder: Path, fd: int) -> None:
        self.folder = folder
        self.path = folder / STREAM
        self._fd = fd

    @classmethod
    def open(cls, agent: str, folder: Path, kind: str) -> Self:
        """Take a conversation.

        Raises:
            AgentBusyError: Another process has it.
        """
        fd = take_conversation(agent, folder)
        stream = cls(folder, fd)
        if os.fstat(fd).st_size == 0:
            stream.mark(OPENED, kind=kind)
        return stream

    def mark(self, what: str, **facts: object) -> None:
        """Append a line of ours. It begins on a line of its own, even if the last one was torn."""
        line = msgspec.json.encode({"type": what, **facts})
        self._write(self._newline() + line + b"\n")

    def copy(self, line: bytes, direction: str) -> None:
        """Append a line that went over a pipe."""
        self._write(
            b'{"type":"bartack.line","dir":"' + direction.encode() + b'","line":' + line.strip() + b"}\n"
        )

    def close(self) -> None:
        """Release the conversation."""
        os.close(self._fd)

    def read_forwards(self, skip: tuple[bytes, ...] = ()) -> Iterator[JsonLine]:
        """All lines from the first one on, but for those that begin with one of ``skip``: they are not even decoded."""
        is_whole = True
        with open(self.path, "rb") as file:
            while raw := file.readline(MAX_JSON_LINE):
                began, is_whole = is_whole, raw.endswith(b"\n")
                if began and is_whole and not raw.startswith(skip):
                    yield from _objects([raw.strip()])

    def _newline(self) -> bytes:
        with open(self.path, "rb") as file:
            if file.seek(0, os.SEEK_END) == 0:
                return b""
            file.seek(-1, os.SEEK_END)
            return b"" if file.read(1) == b"\n" else b"\n"

    def _write(self, data: bytes) -> None:
        while data:
            data = data[os.write(self._fd, data) :]


def _objects(lines: Iterable[bytes]) -> Iterator[JsonLine]:
    for line in lines:
        read = read_json_line(line) if line else None
        if isinstance(read, JsonLine):
            yield read


def load_session(folder: Path) -> str:
    """The id that the program itself has given to the conversation; empty if it has none yet."""
    try:
        return (folder / SESSION).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return ""


def save_session(folder: Path, session: str) -> None:
    """Remember that id. It is durable when this returns: a prompt is sent only then."""
    write_file(folder / SESSION, session.encode() + b"\n")
