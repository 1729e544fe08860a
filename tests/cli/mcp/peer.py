"""A client of ``bartack mcp`` over its real standard streams, as raw as a test wants it; and the project that it serves."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final

PATIENCE_S: Final = 60.0

PROGRAM: Final = """
from bartack import Context, worker

@worker
async def main(ctx: Context, folder: str, limit: int = 3) -> dict:
    ctx.print(f"sorting {folder}")
    return {"folder": folder, "limit": limit}

@worker
async def chatty(ctx: Context, lines: int = 100, wide: int = 1) -> str:
    for number in range(lines):
        ctx.print(f"line {number} " + "x" * wide)
    ctx.print("\\n".join(f"part {number}" for number in range(lines)))
    return "y" * (wide * 1000)

@worker
async def gated(ctx: Context) -> object:
    ctx.print("before")
    await ctx.mailbox.out.send({"n": 1})
    await ctx.mailbox.out.send({"n": 2})
    value = await ctx.mailbox.gate.receive(timeout_s=600)
    ctx.print("after")
    return value

@worker
async def asking(ctx: Context) -> str:
    return await ctx.ask("Which colour?", options=["red", "green"], default="red")

@worker
async def broken(ctx: Context) -> None:
    ctx.print("begin")
    raise ValueError("no luck")
"""

SETTINGS: Final = """
[project]
name = "desk"

[budget]
usd = 5.0

[mcp.entries]
sort = "desk.py"
chatty = "desk.py:chatty"
gated = "desk.py:gated"
asking = "desk.py:asking"
broken = "desk.py:broken"
missing = "nothing.py"
"""


def make_project(folder: Path) -> Path:
    """A project with some entries."""
    (folder / "desk.py").write_text(PROGRAM)
    (folder / "bartack.toml").write_text(SETTINGS)
    return folder


class Peer:
    """One server, and the client side of its streams."""

    def __init__(self, project: Path, *options: str, session: str = "s1", **env: str) -> None:
        variables = {**os.environ, "CLAUDE_CODE_SESSION_ID": session, **env}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "bartack", "mcp", *options],
            cwd=project,
            env=variables,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,
        )
        self.notes: list[dict[str, Any]] = []
        """Notifications, in the order in which they came."""
        self._number = 0
        self._data = b""
        self._replies: dict[object, dict[str, Any]] = {}

    def __enter__(self) -> Peer:
        self.request("initialize", {"protocolVersion": "2025-06-18"})
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        with self.process:
            pass

    def send(self, line: bytes) -> None:
        """Write bytes as they are."""
        rest = memoryview(line)
        stdin: Any = self.process.stdin
        while rest:
            rest = rest[stdin.write(rest) :]

    def read(self) -> dict[str, Any]:
        """The next message, whatever it is."""
        stdout: Any = self.process.stdout
        until = time.monotonic() + PATIENCE_S
        while b"\n" not in self._data:
            ready, _, _ = select.select([stdout], [], [], until - time.monotonic())
            more = stdout.read(1 << 20) if ready else b""
            assert more, f"no message: {self.process.poll()}"
            self._data += more
        line, _, self._data = self._data.partition(b"\n")
        message: dict[str, Any] = json.loads(line)
        return message

    def begin(self, method: str, params: object = None, **more: object) -> int:
        """Send a request and do not wait for its reply."""
        self._number += 1
        message: dict[str, object] = {
            "jsonrpc": "2.0",
            "id": self._number,
            "method": method,
            "params": params or {},
            **more,
        }
        self.send(json.dumps(message).encode() + b"\n")
        return self._number

    def end(self, number: int) -> dict[str, Any]:
        """The reply to a request; other messages that come meanwhile are kept."""
        while number not in self._replies:
            message = self.read()
            if "method" in message:
                self.notes.append(message)
            else:
                self._replies[message["id"]] = message
        return self._replies.pop(number)

    def request(self, method: str, params: object = None) -> dict[str, Any]:
        return self.end(self.begin(method, params))

    def begin_call(self, tool: str, meta: dict[str, object] | None = None, **arguments: object) -> int:
        return self.begin("tools/call", {"name": tool, "arguments": arguments, "_meta": meta or {}})

    def result(self, number: int) -> dict[str, Any]:
        """The result of a call that has to succeed."""
        reply = self.end(number)
        assert "result" in reply, reply
        assert not reply["result"]["isError"], reply["result"]["content"][0]["text"]
        structured: dict[str, Any] = reply["result"]["structuredContent"]
        assert json.loads(reply["result"]["content"][0]["text"]) == structured
        assert len(reply["result"]["content"][0]["text"].encode()) <= 24 * 1024
        return structured

    def call(self, tool: str, meta: dict[str, object] | None = None, **arguments: object) -> dict[str, Any]:
        return self.result(self.begin_call(tool, meta, **arguments))

    def refused(self, tool: str, **arguments: object) -> str:
        """The text of a call that has to fail."""
        reply = self.end(self.begin_call(tool, None, **arguments))
        assert reply["result"]["isError"], reply
        text: str = reply["result"]["content"][0]["text"]
        return text

    def finish(self, run: str) -> dict[str, Any]:
        """Wait until a run is done, as a model does; all lines together."""
        cursor, lines = 0, list[str]()
        while True:
            found = self.call("wait_run", run=run, cursor=cursor)
            cursor = found["cursor"]
            lines += found["lines"]
            if found["done"]:
                return {**found, "lines": lines}

    def close(self) -> int:
        """End the input; the exit status of the server."""
        stdin: Any = self.process.stdin
        stdin.close()
        return self.process.wait(PATIENCE_S)
