"""The files of one call: both directions of the protocol, what the program wrote to stderr, and the lock on the conversation.

``agents/<name>/<conversation>/`` has ``stream.ndjson`` and, if there is any stderr, ``stderr.txt``. The process that has locked the
stream owns the conversation. An answer that came before a hub died is found in the stream.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, Literal, Self

import msgspec

from bartack.agents.protocol._ids import moment
from bartack.agents.protocol._lines import BadLine, Line, Read, read_command, read_line
from bartack.agents.protocol._messages import ENDING, Command, Event, Heartbeat
from bartack.core import Clock, make_private, open_private
from bartack.errors import AgentBusyError

STREAM_BYTES: Final = 16 * 1024 * 1024
"""After this much only commands and answers are copied."""
STDERR_BYTES: Final = 1024 * 1024
TAIL_BYTES: Final = 8192
TAIL_LINES: Final = 20
COMMAND: Final = b'{"kind":"command"'
HELD: Final = 4096
"""This much of stderr is stored only when what follows is there: a secret may be cut in two."""
LOOK_BACK: Final = 1024 * 1024


class Copied(msgspec.Struct, omit_defaults=True):
    """A line of ``stream.ndjson``."""

    at: str
    dir: Literal["in", "out"]
    bytes: int
    case: str = ""
    line: msgspec.Raw = msgspec.Raw()
    text: str = ""


class CallFiles:
    """The files of one conversation. Made by ``open``, which also takes it for this process."""

    def __init__(self, folder: Path, stream: int, clock: Clock, redact: Callable[[bytes], bytes]) -> None:
        self.folder = folder
        self._clock = clock
        self._redact = redact
        self._stream = stream
        self._copied = os.fstat(stream).st_size

    @classmethod
    def open(cls, agent: str, folder: Path, clock: Clock, redact: Callable[[bytes], bytes]) -> Self:
        """Take the conversation for this process.

        Raises:
            AgentBusyError: Another process has it.
        """
        make_private(folder)
        stream = _append(folder / "stream.ndjson")
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(stream)
            raise AgentBusyError(agent, "another call uses this conversation", "busy") from None
        return cls(folder, stream, clock, redact)

    def find_answer(self, *, anew: bool = False) -> Line | None:
        """The answer to the last command, if it came and was not taken.

        Args:
            anew: An earlier answer was refused: only one to a command that says so counts.
        """
        answer: Line | None = None
        for copied in reversed(self._copies()):
            if copied.dir == "out":
                command = read_command(bytes(copied.line))
                if isinstance(command, Command):
                    return None if anew and command.retry.cause != "rejected" else answer
            elif answer is None and not copied.case:
                read = read_line(bytes(copied.line))
                answer = read if isinstance(read, Line) and _is_answer(read) else None
        return None

    def _copies(self) -> list[Copied]:
        """The last lines that were copied whole, in both directions."""
        with open(self.folder / "stream.ndjson", "rb") as file:
            file.seek(max(self._copied - LOOK_BACK, 0))
            lines = file.read().split(b"\n")[:-1]
        copies: list[Copied] = []
        for raw in lines:
            with suppress(msgspec.DecodeError):  # the first one may be cut in two
                copied = msgspec.json.decode(raw, type=Copied)
                if copied.line:
                    copies.append(copied)
        return copies

    def copy_out(self, line: bytes) -> None:
        """A line went to the agent."""
        text = self._redact(line.rstrip(b"\n"))
        copied = Copied(moment(self._clock.now_us()), "out", len(line), line=msgspec.Raw(text))
        self._copy(copied, keep=line.startswith(COMMAND))

    def copy_in(self, read: Read, case: str) -> None:
        """A line came from the agent; secrets are out of it already."""
        now = moment(self._clock.now_us())
        if isinstance(read, BadLine):
            text = read.excerpt.decode("utf-8", "replace")
            self._copy(Copied(now, "in", read.size, case or read.case, text=text))
        elif not isinstance(read.message, Heartbeat):
            copied = Copied(now, "in", len(read.raw) + 1, case, line=msgspec.Raw(read.raw))
            self._copy(copied, keep=not case and _is_answer(read))

    def close(self) -> None:
        """Release the conversation."""
        os.close(self._stream)

    def _copy(self, copied: Copied, *, keep: bool = False) -> None:
        if self._copied < STREAM_BYTES or keep:
            data = msgspec.json.encode(copied) + b"\n"
            self._copied += len(data)
            with suppress(OSError):  # a full disk ends the run elsewhere; a copy is not worth that
                os.write(self._stream, data)


def _is_answer(read: Line) -> bool:
    event = read.message
    return isinstance(event, Event) and event.event in ENDING and event.event != "error"


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
            with suppress(OSError):  # as for copies
                os.write(file, kept)

    def _open(self) -> int | None:
        if self._file is None and self._path is not None:
            with suppress(OSError):
                self._file = _append(self._path)
                self._stored = os.fstat(self._file).st_size
        return self._file


def _append(path: Path) -> int:
    return open_private(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
