"""The first exchange with a program for coding: whether it starts and speaks what is expected of it. It costs nothing.

With ``ask`` one prompt of a word follows, which does cost something.
"""

from __future__ import annotations

import os
import select
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from bartack.agents.codex import _messages as m
from bartack.agents.codex._command import command_line
from bartack.agents.doctor._checked_program import started
from bartack.agents.program._json_lines import Json, JsonLine, JsonLines, member, text_of
from bartack.agents.program.cli_facts import CODEX
from bartack.agents.program_config import AcpConfig, ClaudeConfig, CliConfig, CodexConfig

END_S: Final = 5.0
LIVE_S: Final = 120.0
"""How long an answer of a model may take."""
READY: Final = "Reply with the word: ready"
TAIL: Final = 400


class Greeting(NamedTuple):
    """What a program said about itself, and what is wrong with that.

    Attributes:
        version: Its name and version, if it said them.
        problem: Why it cannot be used; empty if it can.
        notes: What a person may want to know.
    """

    version: str = ""
    problem: str = ""
    notes: tuple[str, ...] = ()


class Speaker:
    """A program that was started, as far as the handshake needs it.

    Args:
        process: The program.
        until: When patience ends, in seconds of the monotonic clock.
    """

    def __init__(self, process: subprocess.Popen[bytes], until: float) -> None:
        self._process = process
        self._until = until
        self._reader = JsonLines()
        self._read: list[Json] = []

    def send(self, message: Json) -> None:
        """Write a message; one that has ended gets none."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.write(msgspec.json.encode(message) + b"\n")
            self._process.stdin.flush()

    def wait_for(self, wanted: Callable[[Json], bool]) -> Json | None:
        """The first message that is wanted; ``None`` if it does not come in time, or the program ends."""
        return next((value for value in self._messages() if wanted(value)), None)

    def _messages(self) -> Iterator[Json]:
        assert self._process.stdout is not None
        fd = self._process.stdout.fileno()
        while (left := self._until - time.monotonic()) > 0:
            while self._read:
                yield self._read.pop(0)
            if not select.select([fd], [], [], left)[0]:
                return
            data = os.read(fd, 65_536)
            if not data:
                return
            self._read += [read.value for read in self._reader.feed(data) if isinstance(read, JsonLine)]


def greet(
    config: CliConfig, program: Sequence[str], cwd: Path, env: Mapping[str, str], *, ask: bool, usd: float
) -> Greeting:
    """Start a program and begin as an adapter does.

    Args:
        config: The settings of the agent.
        program: The program and its arguments.
        cwd: Where.
        env: With which variables.
        ask: Also ask it for a word, which costs something.
        usd: What that may cost.
    """
    match config:
        case ClaudeConfig():
            own = [f"--max-budget-usd={usd:.2f}", *([f"--model={config.model}"] if config.model else [])]
            speak, argv = _greet_claude, [*program, *CLAUDE_OPTIONS, *own]
        case CodexConfig():
            key = next((env[name] for name in CODEX.credentials if env.get(name)), "") if ask else ""
            speak = partial(_greet_codex, model=config.model, key=key)
            argv = command_line(program[0], config, logs_in=bool(key))
        case AcpConfig():
            speak, argv = _greet_acp, list(program)
        case _:
            return Greeting()
    with tempfile.TemporaryFile() as stderr, started(argv, cwd, env, stderr.fileno(), END_S) as process:
        patience_s = LIVE_S if ask else config.start_s
        greeting = speak(Speaker(process, time.monotonic() + patience_s), cwd, ask=ask)
        if greeting.problem:
            stderr.seek(0)
            said = " ".join(stderr.read(4096).decode("utf-8", "replace").split())[-TAIL:]
            return greeting._replace(
                problem=f"{greeting.problem}; it printed: {said}" if said else greeting.problem
            )
        return greeting


CLAUDE_OPTIONS: Final = (
    "-p",
    "--input-format=stream-json",
    "--output-format=stream-json",
    "--verbose",
    "--setting-sources=",
    "--strict-mcp-config",
    "--no-session-persistence",
)
NEEDED: Final = ("hooks_applied", "hook_on_failure_supported")


def _greet_claude(speaker: Speaker, cwd: Path, *, ask: bool) -> Greeting:
    hooks = {
        "PreToolUse": [{"matcher": "*", "hookCallbackIds": ["decide"], "timeout": 30, "onFailure": "block"}]
    }
    request = {"subtype": "initialize", "hooks": hooks}
    speaker.send({"type": "control_request", "request_id": "doctor", "request": request})
    answer = speaker.wait_for(lambda value: text_of(value, "response", "request_id") == "doctor")
    if answer is None:
        return Greeting(problem="it does not answer the first request")
    missing = [name for name in NEEDED if member(answer, "response", "response", name) is not True]
    if missing:
        return Greeting(problem=f"it is too old: it lacks {', '.join(missing)}")
    if not ask:
        return Greeting(notes=("it answered the first request",))
    content = [{"type": "text", "text": READY}]
    speaker.send({"type": "user", "message": {"role": "user", "content": content}})
    result = speaker.wait_for(lambda value: value.get("type") == "result")
    if result is None or result.get("is_error"):
        return Greeting(problem=f"it does not answer: {text_of(result, 'result') or 'it ended'}"[:TAIL])
    return Greeting(notes=("it answered a prompt",))


def _greet_codex(speaker: Speaker, cwd: Path, *, ask: bool, model: str, key: str) -> Greeting:
    """``key``: what it logs in with, as an adapter does it. An app server takes none from its environment."""
    answer = _call(speaker, 1, "initialize", m.initialize())
    if answer is None or "result" not in answer:
        return Greeting(problem=_refusal("it does not answer the first request", answer))
    version = text_of(answer, "result", "userAgent")
    if not ask:
        return Greeting(version, notes=("it answered the first request",))
    speaker.send({"jsonrpc": "2.0", "method": "initialized"})
    if key:
        _call(speaker, 4, m.LOGIN, m.login_params(key))
    place = {"cwd": str(cwd), "sandbox": "read-only", "approvalPolicy": "never", "ephemeral": True}
    thread = _call(speaker, 2, "thread/start", {**place, **({"model": model} if model else {})})
    turn = {"threadId": text_of(thread, "result", "thread", "id"), "input": [{"type": "text", "text": READY}]}
    speaker.send({"jsonrpc": "2.0", "id": 3, "method": "turn/start", "params": turn})
    ended = speaker.wait_for(lambda value: value.get("method") == "turn/completed")
    if text_of(ended, "params", "turn", "status") != "completed":
        why = text_of(ended, "params", "turn", "error", "message") or "it ended"
        return Greeting(version, problem=f"it does not answer: {why}"[:TAIL])
    return Greeting(version, notes=("it answered a prompt",))


def _greet_acp(speaker: Speaker, cwd: Path, *, ask: bool) -> Greeting:
    files = {"readTextFile": True, "writeTextFile": True}
    client = {"fs": files, "terminal": False}
    answer = _call(speaker, 1, "initialize", {"protocolVersion": 1, "clientCapabilities": client})
    if answer is None or "result" not in answer:
        return Greeting(problem=_refusal("it does not answer the first request", answer))
    if member(answer, "result", "protocolVersion") != 1:
        found = member(answer, "result", "protocolVersion")
        return Greeting(problem=f"it speaks version {found!r} of the Agent Client Protocol, not 1")
    info = f"{text_of(answer, 'result', 'agentInfo', 'name')} {text_of(answer, 'result', 'agentInfo', 'version')}"
    can = ["resume a session"] if member(answer, "result", "agentCapabilities", "loadSession") is True else []
    notes = (
        f"it can {', '.join(can)}" if can else "it cannot resume a session: an interrupted call starts over",
    )
    if not ask:
        return Greeting(info.strip(), notes=notes)
    session = _call(speaker, 2, "session/new", {"cwd": str(cwd), "mcpServers": []})
    if session is None or "result" not in session:
        return Greeting(info.strip(), problem=_refusal("it did not open a session", session))
    prompt = [{"type": "text", "text": READY}]
    params = {"sessionId": text_of(session, "result", "sessionId"), "prompt": prompt}
    ended = _call(speaker, 3, "session/prompt", params)
    if text_of(ended, "result", "stopReason") != "end_turn":
        return Greeting(info.strip(), problem=_refusal("it does not answer", ended))
    return Greeting(info.strip(), notes=(*notes, "it answered a prompt"))


def _call(speaker: Speaker, number: int, method: str, params: Mapping[str, object]) -> Json | None:
    speaker.send({"jsonrpc": "2.0", "id": number, "method": method, "params": dict(params)})
    return speaker.wait_for(lambda value: value.get("id") == number and "method" not in value)


def _refusal(problem: str, answer: Json | None) -> str:
    said = text_of(answer, "error", "message")
    return f"{problem}: {said}"[:TAIL] if said else problem
