"""Both directions of a conversation in the line protocol, copied to ``stream.ndjson``; ``program/_lease.py`` says who may write it.

An answer that came before a hub died is found in the stream.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, Literal, Self

import msgspec

from bartack.agents.program._lease import take_conversation
from bartack.agents.protocol.ids import moment
from bartack.agents.protocol.lines import BadLine, Line, Read, read_command, read_line
from bartack.agents.protocol.messages import ENDING, Command, Event, Heartbeat
from bartack.core import typed
from bartack.core.clock import Clock

STREAM_BYTES: Final = 16 * 1024 * 1024
"""After this much only commands and answers are copied."""
COMMAND: Final = b'{"kind":"command"'
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
        stream = take_conversation(agent, folder)
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
                copied = typed.decode(raw, type=Copied)
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
