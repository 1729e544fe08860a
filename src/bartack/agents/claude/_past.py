"""What the stream of a conversation says about attempts of dead hubs: the answer that came, and what they used.

A stream may be long, so of a reply of a model only what it used is decoded, and of what tools returned nothing.

Marks of ours divide it: ``bartack.begun`` before the first attempt of a step, ``bartack.started`` before each process,
``bartack.sent`` before each prompt, ``bartack.tool`` with the result of a tool.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from bartack.agents.claude._own_tools import FinishedTool
from bartack.agents.claude._spent import REPLY, StreamUsage, skim_reply
from bartack.agents.claude._turn import Turn
from bartack.agents.program._json_lines import Json, JsonLine, text_of
from bartack.agents.program._stream import BEGUN, SENT, STARTED, read_object

TOOL: Final = "bartack.tool"
SKIPPED: Final = (b'{"type":"user"', b'{"type":"stream_event"')
"""How lines begin that say nothing about that: most of a stream, and the longest ones."""


class Past:
    """What was read. ``new_spending`` counts what one process used."""

    def __init__(self, lines: Iterable[bytes], new_spending: Callable[[], StreamUsage]) -> None:
        self.processes: list[StreamUsage] = []
        """What each process used."""
        self.finished: dict[str, FinishedTool] = {}
        """Tools whose results were sent."""
        self.result: JsonLine | None = None
        """The last result after the newest prompt."""
        self.turns = 0
        """How many prompts the last process got: the second one asks it to fix its reply."""
        self._turn = Turn()
        self._new_spending = new_spending
        for line in lines:
            reply = skim_reply(line) if line.startswith(REPLY) else None
            if reply is None:
                self._read(line)
            elif self.processes:  # a turn learns from replies only what its own process acts on
                self.processes[-1].take_reply(reply)

    @property
    def answer(self) -> JsonLine | None:
        """What may be the answer: a result with no work left in the background."""
        return None if self._turn.works_in_background else self.result

    def _read(self, line: bytes) -> None:
        read = read_object(line)
        if read is not None:
            self._take(read)

    def _take(self, line: JsonLine) -> None:
        value = line.value
        match text_of(value, "type"):
            case kind if kind == BEGUN:
                self.processes.clear()
                self.finished.clear()
                self._new_turn()
            case kind if kind == STARTED:
                self.processes.append(self._new_spending())
                self.turns = 0
                self._new_turn()
            case kind if kind == SENT:
                self.turns += 1
                self._new_turn()
            case kind if kind == TOOL:
                self._note_tool(value)
            case kind:
                self._turn.take(value)
                if kind == "result":
                    self.result = line
                if self.processes:
                    self.processes[-1].take(value)

    def _new_turn(self) -> None:
        self._turn = Turn()
        self.result = None

    def _note_tool(self, value: Json) -> None:
        finished = FinishedTool(text_of(value, "id"), text_of(value, "name"), text_of(value, "text"))
        self.finished[finished.id] = finished
