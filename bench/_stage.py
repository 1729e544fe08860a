"""Turns of a real agent, from a bare script and through a run, answered by a scripted model server on loopback.

``_claude.py`` and ``_rpc.py`` have the bare scripts.
"""

from __future__ import annotations

import json
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import ClassVar, Final, NamedTuple, cast

from bartack.agents.protocol.messages import ToolSpec
from bartack.testing import ClaudeSandbox, ModelServer

PROGRAM: Final = """
import time
from bartack import Context, step, worker

@step
def write_note() -> str:
    return "x"

@worker
async def main(ctx: Context, script: str, count: int) -> list[float]:
    async def note() -> str:
        "Take a note."
        await write_note()
        return "noted"

    tools = [note] if script == "tool" else []
    times = []
    for number in range(count):
        began = time.monotonic()
        await ctx.think(f"[[script:{script}]] {number}", tools=tools)
        times.append(time.monotonic() - began)
    return times
"""
CALLS: Final = 6
"""Tool calls of a turn. The first one of a process is slower than the others, by more than what is measured."""
NOTE: Final = ToolSpec("note", "Take a note.", {"type": "object", "additionalProperties": False})
NOTED: Final = {"tool_result": "noted"}
"""What the next request has, if the tool has done its work."""


class Turns(NamedTuple):
    """Milliseconds of a turn, and of a tool call in it: from the reply that calls it to the request that has its result."""

    whole_ms: float
    tool_ms: float


class Stage(ABC):
    """A sandbox with the program, for both sides of a race."""

    settings: ClassVar[str] = ""
    tool: ClassVar[str] = "mcp__bartack__note"
    """What the model calls our tool."""

    def __init__(self, directory: str, stack: ExitStack) -> None:
        scripts: Mapping[str, list[dict[str, object]]] = {
            "say": [{"text": "hello"}],
            "read": [_call("Read", file_path="{{cwd}}/note.txt")] * CALLS + [{"text": "read"}],
            "tool": [
                _call(self.tool),
                *[{**_call(self.tool), "expect": NOTED}] * (CALLS - 1),
                {"text": "noted", "expect": NOTED},
            ],
        }
        self.server = stack.enter_context(ModelServer(scripts))
        self.box = stack.enter_context(ClaudeSandbox(Path(directory, "box"), self.server, network="shared"))
        (self.box.work / "note.txt").write_text("x", encoding="utf-8")
        (self.box.work / "team.py").write_text(PROGRAM, encoding="utf-8")
        (self.box.work / "bartack.toml").write_text(self.make_settings(), encoding="utf-8")

    def make_settings(self) -> str:
        """The settings of the run."""
        return self.settings

    def through_a_run(self, script: str, count: int) -> Turns:
        """Prompts of one run: from asking to the value in the program."""
        before = len(self.server.requests)
        words = [sys.executable, "-m", "bartack", "run", "team.py", script, str(count), "--no-input"]
        done = self.box.run(words, timeout_s=120)
        if done.returncode:
            raise RuntimeError(done.stderr)
        times = cast("list[float]", json.loads(done.stdout))
        return Turns(median(times) * 1e3, self._tool_ms(before))

    def bare(self, script: str, count: int) -> Turns:
        """The same words and lines from a script that allows everything, and whose tool returns at once."""
        before, times = len(self.server.requests), list[float]()
        for number in range(count):
            began = perf_counter()
            self.bare_turn(f"[[script:{script}]] {number}", with_tool=script == "tool")
            times.append(perf_counter() - began)
        return Turns(median(times) * 1e3, self._tool_ms(before))

    @abstractmethod
    def bare_turn(self, text: str, *, with_tool: bool) -> None:
        """One turn."""

    def _tool_ms(self, before: int) -> float:
        self.server.check()
        asked = [request for request in self.server.requests[before:] if request.script]
        gaps = [
            (later.started_at - earlier.ended_at) * 1e3
            for earlier, later in pairwise(asked)
            if later.step == earlier.step + 1
        ]
        return median(gaps) if gaps else 0.0


def _call(tool: str, **given: str) -> dict[str, object]:
    """The step of a script that calls a tool."""
    return {"tools": [{"name": tool, "input": given}]}
