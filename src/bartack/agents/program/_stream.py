"""The stream of one conversation with a program for coding: ``stream.ndjson``, its lease, and what is read back after a crash.

The first line says that it is not of the line protocol. Between the lines of the program are marks of ours, whose ``type`` begins
with ``bartack.``; ``bartack.begun`` comes before the first attempt of a step, ``bartack.sent`` before each prompt. The file is
append-only and never shown.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from io import FileIO
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
BLOCK: Final = 256 * 1024
"""Bytes that are read at once: few enough to stay in a cache of the processor while lines are looked for."""


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

    def read_lines(self, skip: tuple[bytes, ...] = ()) -> Iterator[bytes]:
        """All lines from the first one on, as they are in the file, but for those that begin with one of ``skip``.

        A torn line is left out, and so is one that is longer than ``MAX_JSON_LINE``.
        """
        with open(self.path, "rb", buffering=0) as file:
            yield from _whole_lines(file, skip)

    def read_forwards(self) -> Iterator[JsonLine]:
        """The objects in these lines; other lines are left out."""
        for line in self.read_lines():
            read = read_object(line)
            if read is not None:
                yield read

    def _newline(self) -> bytes:
        with open(self.path, "rb") as file:
            if file.seek(0, os.SEEK_END) == 0:
                return b""
            file.seek(-1, os.SEEK_END)
            return b"" if file.read(1) == b"\n" else b"\n"

    def _write(self, data: bytes) -> None:
        while data:
            data = data[os.write(self._fd, data) :]


def read_object(line: bytes) -> JsonLine | None:
    """The object in a line of a stream, if there is one."""
    read = read_json_line(line.strip())
    return read if isinstance(read, JsonLine) else None


def _whole_lines(file: FileIO, skip: tuple[bytes, ...]) -> Iterator[bytes]:
    """Lines without their newlines. What is left out is never in memory as a whole."""
    rest, is_left_out = b"", False
    while data := file.read(BLOCK):
        start = 0
        while (newline := data.find(b"\n", start)) >= 0:
            if rest or is_left_out:
                line, rest = rest + data[:newline], b""
                if not is_left_out and len(line) < MAX_JSON_LINE and not line.startswith(skip):
                    yield line
                is_left_out = False
            elif newline - start < MAX_JSON_LINE and not data.startswith(skip, start, newline):
                yield data[start:newline]
            start = newline + 1
        rest += data[start:]
        if is_left_out or len(rest) >= MAX_JSON_LINE or rest.startswith(skip):
            rest, is_left_out = b"", True


def load_session(folder: Path) -> str:
    """The id that the program itself has given to the conversation; empty if it has none yet."""
    try:
        return (folder / SESSION).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return ""


def save_session(folder: Path, session: str) -> None:
    """Remember that id. It is durable when this returns: a prompt is sent only then."""
    write_file(folder / SESSION, session.encode() + b"\n")
