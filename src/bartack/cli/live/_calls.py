"""What agents are doing right now: their last words and what they have used, from the transcripts of a run as they grow.

A transcript is a file for people (``agents/NAME/transcript.ndjson``), without secrets. Reading it works the same way in the process
that runs the run and in any other.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Final

import msgspec

from bartack.agents import AgentEvent
from bartack.agents.contract import (
    CallFinished,
    CallRetry,
    CallStarted,
    CallText,
    CallTool,
    CallUsage,
)
from bartack.core import typed
from bartack.core.closing import Closing

TAIL: Final = 64 * 1024
"""How much of the end of a transcript is read at a time; what came before is not shown any more."""
SEARCH_S: Final = 1.0
"""How often new transcripts are looked for; at once if a call is missing."""
LONGEST: Final = 400
"""Characters of a line that are kept."""

_decode: Final = typed.decoder(AgentEvent).decode


class Call:
    """A call of an agent that is under way.

    Attributes:
        agent: The name of the agent.
        last: The last line that it said, or the tool that it uses.
        usd: What it has cost so far; ``None`` if the agent does not report it.
        tokens: How many tokens it has used.
        turn: The turn that it is in.
    """

    def __init__(self, agent: str) -> None:
        self.agent = agent
        self.last = ""
        self.usd: float | None = None
        self.tokens = 0
        self.turn = 0

    def take(self, event: AgentEvent) -> None:
        """Something happened."""
        match event:
            case CallText(text=text, parent=""):
                said = text.rstrip().rpartition("\n")[2].strip()
                self.last = said[:LONGEST] or self.last
            case CallTool(phase="started", tool=tool, input=given):
                self.last = f"{tool} {given}"[:LONGEST].rstrip()
            case CallUsage(usage=usage):
                self.usd, self.tokens, self.turn = usage.cost_usd, usage.tokens, usage.turns or 0
            case CallRetry(own=False, error=error):
                self.last = f"asked again: {error}"[:LONGEST]
            case _:
                pass


class _Transcript:
    """One transcript, read as it grows."""

    def __init__(self, path: Path) -> None:
        self.agent = path.parent.name
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        self._at = max(os.fstat(self._fd).st_size - TAIL, 0)
        self._rest = b""
        self._whole = not self._at
        """Whether the next byte begins a line."""

    def lines(self) -> list[bytes]:
        """The lines that were added; of many, the last ones."""
        size = os.fstat(self._fd).st_size
        if size - self._at > TAIL:
            self._at, self._rest, self._whole = size - TAIL, b"", False
        data = os.pread(self._fd, TAIL, self._at)
        if not data:
            return []
        self._at += len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        if not self._whole and lines:
            del lines[0]
            self._whole = True
        return lines

    def close(self) -> None:
        os.close(self._fd)


class Calls(Closing):
    """The calls of a run's agents that are under way, by the keys of their steps.

    Args:
        folder: The directory of the run's agents.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: dict[str, _Transcript] = {}
        self._calls: dict[str, Call] = {}
        self._searched = 0.0
        self._is_missing = False

    def look(self) -> None:
        """Read what was added to the transcripts; called while a prompt is open."""
        now = time.monotonic()
        if self._is_missing or now - self._searched >= SEARCH_S:
            self._searched, self._is_missing = now, False
            self._search()
        for file in self._files.values():
            for line in file.lines():
                self._take(file.agent, line)

    def find(self, *keys: str) -> Call | None:
        """The call with one of these keys, if its transcript has begun."""
        found = next((self._calls[key] for key in keys if key in self._calls), None)
        self._is_missing = self._is_missing or found is None
        return found

    def close(self) -> None:
        """Close the transcripts."""
        for file in self._files.values():
            file.close()
        self._files.clear()

    def _search(self) -> None:
        try:
            names = os.listdir(self._folder)
        except OSError:
            return  # no agent was called yet
        for name in names:
            if name not in self._files:
                try:
                    self._files[name] = _Transcript(self._folder / name / "transcript.ndjson")
                except OSError:
                    continue  # it is made with the first line

    def _take(self, agent: str, line: bytes) -> None:
        try:
            event = _decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return
        if isinstance(event, CallFinished):
            self._calls.pop(event.key, None)
            return
        if isinstance(event, CallStarted) and event.attempt == 1:
            self._calls.pop(event.key, None)
        self._calls.setdefault(event.key, Call(agent)).take(event)
