"""The guard as a hook of a person's own session: one JSON object on stdin, the verdict on stdout.

The agent's program lets a call through when a hook crashes or takes too long. So everything here runs under one handler and one
deadline of its own, and whatever goes wrong blocks the call: exit code 2 and a line on stderr. The rules are in ``bartack.agents``.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NoReturn, cast

if TYPE_CHECKING:
    from bartack.agents.guard.guard import Guard
    from bartack.agents.guard.verdict import GuardVerdict

DEADLINE_S: Final = 3.0
"""Below the five seconds that the hook declares."""
MOST_INPUT: Final = 64 * 1024 * 1024
MOST_LOG: Final = 16 * 1024 * 1024
LOG: Final = "guard.ndjson"
STRICT: Final = frozenset({"dontAsk", "bypassPermissions"})
"""Modes of Claude Code in which no person is asked: what cannot be read is denied."""
BLOCKED: Final = 2


class _InputError(Exception):
    """The input is not the call of a hook."""


def run_guard_hook() -> int:
    """Judge the tool call on stdin; returns the exit code."""
    signal.signal(signal.SIGALRM, lambda number, frame: _block("no time left"))
    signal.setitimer(signal.ITIMER_REAL, DEADLINE_S)
    try:
        answer = _answer(_read_input())
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - the call must not be made, whatever went wrong
        _block(_described(error))
    if answer is not None:
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()
    signal.setitimer(signal.ITIMER_REAL, 0)
    return 0


def _block(problem: str) -> NoReturn:
    text = f"Blocked: the guard could not decide ({problem})\n".encode("utf-8", "replace")
    try:
        os.write(2, text)
    finally:
        os._exit(BLOCKED)


def _described(error: BaseException) -> str:
    text = " ".join(str(error).split())[:300]
    return (
        text
        if isinstance(error, _InputError) or type(error).__name__ == "PolicyFlawError"
        else type(error).__name__
    )


def _read_input() -> dict[str, object]:
    parts: list[bytes] = []
    size = 0
    while part := os.read(0, 1 << 20):
        parts.append(part)
        size += len(part)
        if size > MOST_INPUT:
            raise _InputError("the input is too large")
    try:
        data: object = json.loads(b"".join(parts))
    except ValueError:
        raise _InputError("the input is not JSON") from None
    if not isinstance(data, dict):
        raise _InputError("the input is not an object")
    return cast("dict[str, object]", data)


def _answer(data: dict[str, object]) -> dict[str, object] | None:
    event = data.get("hook_event_name")
    if event == "SessionStart":
        return _self_test(data)
    if event != "PreToolUse":
        raise _InputError("the event is not PreToolUse")
    verdict = _judge(data)
    if verdict.decision == "none":
        return None
    return {
        "hookSpecificOutput": {
            "hookEventName": event,
            "permissionDecision": verdict.decision,
            "permissionDecisionReason": verdict.text,
        }
    }


def _judge(data: dict[str, object]) -> GuardVerdict:
    from bartack.agents.tool_use import ToolUse  # noqa: PLC0415 - under the handler, as everything that can fail

    tool, given = data.get("tool_name"), data.get("tool_input")
    if not isinstance(tool, str) or not tool or not isinstance(given, dict):
        raise _InputError("the tool or its input is missing")
    guard, state_dir = _open(data)
    use = ToolUse(tool, cast("dict[str, object]", given))
    verdict = guard.judge(use, strict=data.get("permission_mode") in STRICT)
    _record(data, verdict, state_dir, tool)
    return verdict


def _open(data: Mapping[str, object]) -> tuple[Guard, str]:
    """The guard of the project in which the session is, and the project's state directory."""
    from bartack.agents.guard.project import find_project, open_guard  # noqa: PLC0415 - see above

    given = data.get("cwd")
    cwd = given if isinstance(given, str) and os.path.isabs(given) else os.getcwd()
    named = os.environ.get("CLAUDE_PROJECT_DIR", "")
    session = named if os.path.isabs(named) else cwd
    return open_guard(find_project(session), cwd, (session,))


def _self_test(data: dict[str, object]) -> dict[str, object] | None:
    """At the start of a session: nothing if the guard works, else a message for the person."""
    try:
        from bartack.agents.tool_use import ToolUse  # noqa: PLC0415 - a broken installation is what is looked for

        guard, _ = _open(data)
        denied = guard.judge(ToolUse.of_command("rm -rf /"))
        works = denied.decision == "deny" or not guard.has_built_in_rules
        problem = (
            ""
            if works and guard.judge(ToolUse.of_command("ls")).decision == "none"
            else "its rules do not hold"
        )
    except Exception as error:  # noqa: BLE001 - this is the report of whatever is wrong
        problem = _described(error)
    return (
        {"systemMessage": f"The Bartack guard does not work: {problem}. Every tool call will be blocked."}
        if problem
        else None
    )


def _record(data: Mapping[str, object], verdict: GuardVerdict, state_dir: str, tool: str) -> None:
    """Append one line about a verdict. It names the rule, not the command, so there is no secret in it."""
    line = {
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "session": _short(data.get("session_id")),
        "tool_use_id": _short(data.get("tool_use_id")),
        "tool": _short(tool),
        "rule": verdict.rule,
        "decision": verdict.decision,
    }
    run_dir = os.environ.get("BARTACK_RUN_DIR", "")
    try:
        folder = run_dir if os.path.isdir(run_dir) else _make(state_dir)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
        descriptor = os.open(os.path.join(folder, LOG), flags, 0o600)
        try:
            if os.fstat(descriptor).st_size < MOST_LOG:
                os.write(descriptor, json.dumps(line).encode() + b"\n")
        finally:
            os.close(descriptor)
    except OSError:
        # The verdict counts, whether or not there is room to note it.
        return


def _make(state_dir: str) -> str:
    if not os.path.isdir(state_dir):
        os.mkdir(state_dir, 0o700)
        with open(
            os.open(os.path.join(state_dir, ".gitignore"), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w"
        ) as file:
            file.write("*\n")
    return state_dir


def _short(value: object) -> str:
    return value[:100] if isinstance(value, str) else ""
