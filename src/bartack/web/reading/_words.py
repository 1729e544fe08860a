"""What agents say while they work: the last line of each open call, from the end of its transcript.

A transcript that has not grown is not read again. It is for people, and may be gone or unreadable at any moment.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Final

import msgspec

from bartack.core import typed
from bartack.core.text import cut
from bartack.runtime.protocol.steps import UsageFacts
from bartack.web.models._parts import Words
from bartack.web.models._run import WorkerRow
from bartack.web.reading._files import open_regular
from bartack.web.reading._talk import TRANSCRIPT, Line, agent_folders, read_transcript_line
from bartack.web.reading._view import RunView

TAIL: Final = 64 * 1024
"""Bytes at the end of a transcript that are looked at."""
LONGEST: Final = 300
"""Characters of a line that are shown."""
MOST: Final = 64
"""Open calls whose words are shown."""


class AgentWords:
    """The last words of the open calls of one run."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[int, Words]] = {}
        """Of each call, by its key: the size of the transcript, and what it said."""

    def read(self, view: RunView, workers: Iterable[WorkerRow]) -> list[Words]:
        """What the agents of the open calls said last."""
        calls = [
            Words(row=step.row, key=step.key, agent=step.agent, worker=worker.path, name=worker.name)
            for worker in workers
            for step in worker.open
            if step.kind == "think"
        ]
        found = [self._look(view, call) for call in calls[:MOST]]
        self._known = {
            key: known for key, known in self._known.items() if any(key == one.key for one in found)
        }
        return found

    def _look(self, view: RunView, call: Words) -> Words:
        for agent in agent_folders(view, call.agent):
            descriptor = open_regular(str(view.run.path), f"agents/{agent}/{TRANSCRIPT}")
            if descriptor is None:
                continue
            try:
                size = os.fstat(descriptor).st_size
                known = self._known.get(call.key)
                if known is not None and known[0] == size:
                    return msgspec.structs.replace(known[1], name=call.name, row=call.row)
                lines = _last_lines(descriptor, size)
            finally:
                os.close(descriptor)
            words = _words(view, msgspec.structs.replace(call, agent=call.agent or agent), lines)
            if words is not None:
                self._known[call.key] = (size, words)
                return words
        return call


def _last_lines(descriptor: int, size: int) -> list[bytes]:
    first = max(size - TAIL, 0)
    lines = os.pread(descriptor, TAIL, first).split(b"\n")
    return lines[1:-1] if first else lines[:-1]


def _words(view: RunView, call: Words, lines: list[bytes]) -> Words | None:
    """What the lines of a transcript say of a call; ``None`` if none of them belongs to it."""
    read = [_read(view, line, call.key) for line in lines if call.key.encode() in line]
    own = [line for line in read if line is not None]
    if not own:
        return None
    usage = _last(own, "agent.usage").get("usage")
    tool = _last(own, "agent.tool")
    facts = _convert(usage)
    return Words(
        row=call.row,
        key=call.key,
        agent=call.agent,
        worker=call.worker,
        name=call.name,
        text=_one_line(str(_last(own, "agent.text").get("text", ""))),
        tool=str(tool.get("tool", "")) if tool.get("phase") == "started" else "",
        usage=facts,
        turn=0 if facts is None or facts.turns is None else facts.turns,
    )


def _read(view: RunView, line: bytes, key: str) -> Line | None:
    return read_transcript_line(view.hider, line, key)


def _last(lines: list[Line], event: str) -> Line:
    nothing: Line = {}
    return next((line for line in reversed(lines) if line.get("event") == event), nothing)


def _convert(usage: object) -> UsageFacts | None:
    try:
        return None if usage is None else typed.convert(usage, type=UsageFacts)
    except msgspec.ValidationError:
        return None


def _one_line(text: str) -> str:
    """The last line of a text that is not blank, cut."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    last = lines[-1] if lines else ""
    return cut(last, LONGEST)
