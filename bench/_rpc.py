"""One turn of Codex and of claude-agent-acp from a bare script: JSON-RPC, one object a line."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar, Final, cast

from bartack.agents import AgentRequest
from bartack.agents.acp import _messages as acp
from bartack.agents.codex import _messages as codex
from bartack.agents.codex._command import ALWAYS, IN_MEMORY
from bartack.testing import find_program
from bench._stage import NOTE, Stage

Json = dict[str, object]
AT_ONCE: Final = """
import json, sys
tool = {"name": "note", "description": "Take a note.", "inputSchema": {"type": "object", "additionalProperties": False}}
results = {
    "initialize": {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "b", "version": "1"}},
    "tools/list": {"tools": [tool]},
    "tools/call": {"content": [{"type": "text", "text": "noted"}]},
}
for line in sys.stdin:
    asked = json.loads(line)
    if "id" in asked:
        result = results.get(asked["method"], {})
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}), flush=True)
"""
"""An MCP server whose tool returns at once."""


class Peer:
    """The client of one process."""

    def __init__(self, process: subprocess.Popen[bytes], answer: Callable[[str, Json], Json]) -> None:
        self._process = process
        self._answer = answer
        self._last = 0

    def ask(self, method: str, params: Json) -> Json:
        """A request; returns its result. Requests of the other side are answered meanwhile."""
        self._last += 1
        self._send({"id": self._last, "method": method, "params": params})
        return cast(
            "Json",
            self._read(lambda message: message.get("id") == self._last and "method" not in message)["result"],
        )

    def notify(self, method: str) -> None:
        """A message without an answer."""
        self._send({"method": method})

    def wait_for(self, method: str) -> None:
        """Wait until the other side reports something."""
        self._read(lambda message: message.get("method") == method)

    def _read(self, is_wanted: Callable[[Json], bool]) -> Json:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            message = cast("Json", json.loads(line))
            if is_wanted(message):
                return message
            if "method" in message and "id" in message:
                params = cast("Json", message.get("params") or {})
                self._send({"id": message["id"], "result": self._answer(str(message["method"]), params)})
        raise RuntimeError("it has left")

    def _send(self, message: Json) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        self._process.stdin.flush()


class CodexStage(Stage):
    """See ``Stage``. Both sides use the home of the sandbox."""

    settings: ClassVar[str] = '[agents.codex]\nhome = "user"\n'
    tool: ClassVar[str] = "note"

    def bare_turn(self, text: str, *, with_tool: bool) -> None:
        """See ``Stage.bare_turn``."""
        tools = [NOTE] if with_tool else []
        request = AgentRequest(run_id="r", key="k", worker="main", cwd=str(self.box.work), tools=tools)
        plan = codex.CodexPlan(request=request)
        words = [word for setting in (*ALWAYS, *IN_MEMORY) for word in ("-c", setting)]
        with subprocess.Popen(
            [*find_program("codex"), "app-server", *words],
            cwd=self.box.work,
            env=self.box.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        ) as process:
            peer = Peer(process, self._answer)
            peer.ask("initialize", codex.initialize())
            peer.notify("initialized")
            thread = cast("Json", peer.ask("thread/start", codex.start_params(plan))["thread"])
            peer.ask("turn/start", codex.turn_params(plan, str(thread["id"]), text, "k#1"))
            peer.wait_for("turn/completed")
            assert process.stdin is not None
            process.stdin.close()

    @staticmethod
    def _answer(method: str, params: Json) -> Json:
        del params
        return (
            codex.tool_reply("noted", success=True) if method == "item/tool/call" else {"decision": "accept"}
        )


class AcpStage(Stage):
    """See ``Stage``."""

    def make_settings(self) -> str:
        """See ``Stage.make_settings``."""
        return (
            f"[agents.acp]\ncommand = {json.dumps(find_program('acp'))}\n"
            'pass_env = ["ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", "CLAUDE_CONFIG_DIR"]\n'
            f'env = {{ CLAUDE_CODE_EXECUTABLE = "{find_program("claude")[0]}" }}\n'
        )

    def bare_turn(self, text: str, *, with_tool: bool) -> None:
        """See ``Stage.bare_turn``."""
        server = Path(self.box.work, "server.py")
        server.write_text(AT_ONCE, encoding="utf-8")
        servers = [acp.stdio_server([sys.executable, "-I", "-S", str(server)], {})] if with_tool else []
        with subprocess.Popen(
            find_program("acp"),
            cwd=self.box.work,
            env={**self.box.environment, "CLAUDE_CODE_EXECUTABLE": find_program("claude")[0]},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        ) as process:
            peer = Peer(process, self._answer)
            peer.ask(acp.INITIALIZE, acp.introduction("1"))
            session = str(peer.ask(acp.NEW, acp.session(str(self.box.work), servers))["sessionId"])
            peer.ask(acp.PROMPT, acp.prompt(session, text))
            assert process.stdin is not None
            process.stdin.close()

    @staticmethod
    def _answer(method: str, params: Json) -> Json:
        if method != acp.ASK_PERMISSION:
            return {}
        options = cast("list[Json]", params["options"])
        chosen = next(str(option["optionId"]) for option in options if option["kind"] == "allow_once")
        return acp.chosen(chosen)
