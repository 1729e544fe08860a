"""How long an MCP client waits for us, and how much memory a server takes: ``bartack mcp``, and the bridge of a step.

The peer is a server with one tool made with the official library. Run with
``python -m bench.mcp [--json] [--quick] [--rounds N] [--check]``.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import IO, Final, cast

from bartack.agents.bridge import TOKEN_VARIABLE, bridge_argv
from bench._harness import OURS, Bench, Contestant, Race, main
from bench._report import Goal
from bench._runner import Sample

SERVER: Final = (sys.executable, "-m", "bartack", "mcp")
PEER: Final = (
    sys.executable,
    "-c",
    "from mcp.server.mcpserver import MCPServer\n"
    "server = MCPServer('peer')\n"
    "@server.tool()\n"
    "def echo(text: str) -> str: return text\n"
    "server.run()",
)
BARE: Final = (sys.executable, "-I", "-S", "-c")
_HELLO: Final[dict[str, object]] = {
    "protocolVersion": "2025-06-18",
    "capabilities": {},
    "clientInfo": {"name": "bench", "version": "1"},
}
_ACCEPTED: Final = b'{"k":"ok","i":0}'


def server_ready(directory: str, size: int, *, words: tuple[str, ...], memory: bool) -> Sample:
    """Milliseconds until a client has the list of tools, or megabytes at that moment, the median."""
    values = [_serve(directory, words) for _ in range(size)]
    return Sample(value=median(found[memory] for found in values))


def _serve(directory: str, words: tuple[str, ...]) -> tuple[float, float]:
    began = perf_counter()
    with _started(words, directory, dict(os.environ)) as process:
        _ask(process, 1, "initialize", _HELLO)
        _send(process, {"jsonrpc": "2.0", "method": "notifications/initialized"})
        _ask(process, 2, "tools/list", {})
        took = (perf_counter() - began) * 1e3
        return took, _end(process)


def bridge_ready(directory: str, size: int, *, memory: bool) -> Sample:
    """Milliseconds until a byte of the hub has come through a bridge, or megabytes at that moment, the median."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        place = os.path.join(directory, "hub.sock")
        listener.bind(place)
        listener.listen(1)
        values = [_bridge(directory, place, listener) for _ in range(size)]
    return Sample(value=median(found[memory] for found in values))


def _bridge(directory: str, place: str, listener: socket.socket) -> tuple[float, float]:
    began = perf_counter()
    with _started(tuple(bridge_argv(place)), directory, {TOKEN_VARIABLE: "ab" * 32}) as process:
        hub, _ = listener.accept()
        with hub:
            hub.recv(1000)
            hub.sendall(len(_ACCEPTED).to_bytes(4, "big") + _ACCEPTED + b"x")
            cast("IO[bytes]", process.stdout).read(1)
            took = (perf_counter() - began) * 1e3
            return took, _end(process)


def bridge_added(directory: str, size: int) -> Sample:
    """Milliseconds that a bridge takes longer than an interpreter that only starts and writes a byte; they take turns."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        place = os.path.join(directory, "hub.sock")
        listener.bind(place)
        listener.listen(1)
        pairs = [(_bridge(directory, place, listener)[0], _interpreter(directory)) for _ in range(size)]
    return Sample(value=median(bridge - floor for bridge, floor in pairs))


def _interpreter(directory: str) -> float:
    began = perf_counter()
    with _started((*BARE, "print(end='x', flush=True)"), directory, {}) as process:
        cast("IO[bytes]", process.stdout).read(1)
        return (perf_counter() - began) * 1e3


def _started(words: tuple[str, ...], directory: str, env: dict[str, str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(words, cwd=directory, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def _send(process: subprocess.Popen[bytes], message: dict[str, object]) -> None:
    stdin = cast("IO[bytes]", process.stdin)
    stdin.write(json.dumps(message).encode() + b"\n")
    stdin.flush()


def _ask(process: subprocess.Popen[bytes], number: int, method: str, params: dict[str, object]) -> None:
    _send(process, {"jsonrpc": "2.0", "id": number, "method": method, "params": params})
    reply = json.loads(cast("IO[bytes]", process.stdout).readline())
    assert reply["id"] == number, reply


def _end(process: subprocess.Popen[bytes]) -> float:
    """The megabytes that a process has taken so far; its input ends."""
    status = Path(f"/proc/{process.pid}/status").read_text(encoding="utf-8")
    cast("IO[bytes]", process.stdin).close()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def _servers(*, memory: bool) -> tuple[Contestant, ...]:
    ours = partial(server_ready, words=SERVER, memory=memory)
    peer = partial(server_ready, words=PEER, memory=memory)
    return (
        Contestant(key=OURS, label="bartack mcp", measure=ours, size=5, quick_size=3, every=2),
        Contestant(
            key="mcp", label="mcp (official)", measure=peer, size=3, quick_size=1, every=3, needs=("mcp",)
        ),
    )


def _bridges(*, memory: bool) -> tuple[Contestant, ...]:
    measure = partial(bridge_ready, memory=memory)
    return (Contestant(key=OURS, label="bridge", measure=measure, size=10, quick_size=3, every=2),)


BENCH: Final = Bench(
    name="mcp",
    title="MCP servers",
    races=(
        Race(
            key="ready",
            title="a server, from its start to the list of tools",
            unit="ms",
            better="lower",
            contestants=_servers(memory=False),
        ),
        Race(
            key="memory",
            title="its memory then",
            unit="MB",
            better="lower",
            contestants=_servers(memory=True),
        ),
        Race(
            key="bridge",
            title="a bridge, from its start to the first byte",
            unit="ms",
            better="lower",
            contestants=_bridges(memory=False),
        ),
        Race(
            key="bridge_added",
            title="the same, over a bare interpreter that writes a byte",
            unit="ms",
            better="lower",
            contestants=(
                Contestant(key=OURS, label="bridge", measure=bridge_added, size=10, quick_size=3, every=2),
            ),
        ),
        Race(
            key="bridge_memory",
            title="its memory then",
            unit="MB",
            better="lower",
            contestants=_bridges(memory=True),
        ),
    ),
    goals=(
        Goal(race="ready", title="bartack mcp", bound="at most", target=100.0, stretch=60.0),
        Goal(race="memory", title="memory of bartack mcp", bound="at most", target=25.0, stretch=16.0),
        Goal(race="bridge", title="bridge", bound="at most", target=30.0, stretch=12.0),
        Goal(race="bridge_added", title="bridge over bare Python", bound="at most", target=20.0, stretch=5.0),
        Goal(race="bridge_memory", title="memory of a bridge", bound="at most", target=12.0, stretch=10.0),
    ),
)

if __name__ == "__main__":
    sys.exit(main(BENCH))
