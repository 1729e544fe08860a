"""One turn of the real Claude Code from a bare script, and a run with several of them at a time."""

from __future__ import annotations

import json
import select
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import ClassVar, Final, cast
from uuid import uuid4

import msgspec

from bartack.agents import AgentRequest
from bartack.agents.claude._command import Beginning, command_line, environment
from bartack.agents.claude._lines import answer, decision, initialize, prompt
from bartack.agents.mcp.answer import value_answer
from bartack.agents.mcp.server import ToolServer
from bartack.agents.program_config import ClaudeConfig
from bartack.testing import find_program
from bench._stage import NOTE, Stage

HOOK: Final = {"type": "command", "command": sys.executable, "args": ["-I", "-m", "bartack", "hook", "guard"]}
HOOKS: Final = {"hooks": {"PreToolUse": [{"matcher": "*", "hooks": [HOOK]}]}}
WAITING: Final = """
import pathlib
from bartack import Context, worker

@worker
async def main(ctx: Context, count: int) -> None:
    prompts = [ctx.think(f"[[script:say]] {number}") for number in range(count)]
    pathlib.Path("begun").touch()
    await ctx.gather(ctx.sleep(600), *prompts)
"""
SETTLE_S: Final = 0.5


class ClaudeStage(Stage):
    """See ``Stage``. ``has_hook``: the bare script has a command hook beside the callback."""

    settings: ClassVar[str] = "[agents.claude]\nsetting_sources = []\n"

    def __init__(self, directory: str, stack: ExitStack, *, has_hook: bool = False) -> None:
        super().__init__(directory, stack)
        self._more = ["--settings", json.dumps(HOOKS)] if has_hook else []

    def bare_turn(self, text: str, *, with_tool: bool) -> None:
        """See ``Stage.bare_turn``."""
        config = msgspec.convert({"kind": "claude", "setting_sources": []}, type=ClaudeConfig)
        request = AgentRequest(run_id="r", key="k", worker="main", cwd=str(self.box.work))
        argv = command_line(find_program("claude"), config, request, Beginning("new", str(uuid4())))
        env = {**environment(config, self.box.environment), **self.box.environment}
        tools = ToolServer([NOTE] if with_tool else [], "bartack", "1")
        with subprocess.Popen(
            [*argv, *self._more], cwd=self.box.work, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as process:
            _speak(process, text, tools)

    def hub_mb(self, count: int) -> float:
        """The memory of a hub with that many calls under way: its proportional share, in MB."""
        (self.box.work / "waiting.py").write_text(WAITING, encoding="utf-8")
        begun = self.box.work / "begun"
        begun.unlink(missing_ok=True)
        before = len(self.server.requests_of("say"))
        with self.server.hold("say"):
            words = [sys.executable, "-m", "bartack", "run", "waiting.py", str(count), "--no-input"]
            process = self.box.start(words)
            try:
                _wait_for(begun)
                if count:
                    self.server.wait_for(lambda one: one.script == "say", count=before + count, timeout_s=60)
                _rest(SETTLE_S)
                return _pss_mb(process.pid)
            finally:
                process.kill()
                process.communicate()


def _wait_for(path: Path) -> None:
    for _ in range(600):
        if path.exists():
            return
        _rest(0.05)
    raise TimeoutError(f"there is no {path}")


def _rest(seconds: float) -> None:
    select.select([], [], [], seconds)


def _pss_mb(pid: int) -> float:
    text = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="utf-8")
    return int(text.partition("Pss:")[2].split()[0]) / 1024


def _speak(process: subprocess.Popen[bytes], text: str, tools: ToolServer) -> None:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(initialize("1"))
    process.stdin.flush()
    for line in process.stdout:
        message = msgspec.json.decode(line)
        if message["type"] == "control_response":
            process.stdin.write(prompt(text))
        elif message["type"] == "control_request":
            process.stdin.write(_answer(message, tools))
        elif message["type"] == "result":
            break
        process.stdin.flush()
    process.stdin.close()
    for _ in process.stdout:
        pass


def _answer(message: dict[str, dict[str, object]], tools: ToolServer) -> bytes:
    request, request_id = message["request"], cast("str", message["request_id"])
    if request["subtype"] == "hook_callback":
        return answer(request_id, decision("allow", "measured"))
    replies: Sequence[object] = tools.feed(cast("dict[str, object]", request.get("message") or {}))
    calls = [tools.answer(number, value_answer("noted")) for number in tools.open_calls]
    found = [reply for reply in (*replies, *calls) if isinstance(reply, dict)]
    return answer(request_id, {"mcp_response": found[0] if found else {}})
