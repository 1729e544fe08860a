"""Stand-ins for Claude Code, Codex and an agent that speaks ACP: one script that says just enough of each protocol, and misbehaves.

The script is started as ``fake KIND BEHAVIOUR ...``. Each start and each daemon that it leaves behind is noted in ``starts`` beside
it, with its pid, so that a test sees what was started and whether it is gone.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

VERSIONS = {"claude": "2.1.325", "codex": "0.163.0", "acp": "1.0.0"}
KINDS = tuple(VERSIONS)
SECRET = "s3cr3t-of-the-test"  # noqa: S105 - of nothing

SCRIPT = r'''
import json, os, pathlib, signal, sys, time
kind, behaviour, words = sys.argv[1], sys.argv[2], sys.argv[3:]
place = pathlib.Path(sys.argv[0]).resolve().parent
version = {"claude": "2.1.325", "codex": "0.163.0", "acp": "1.0.0"}[kind]
if "--version" in words:
    if behaviour == "no-version":
        print("what?")
    else:
        print("0.0.1" if behaviour == "old" else version)
    raise SystemExit

def note(what):
    with open(place / "starts", "a") as file:
        file.write(f"{what} {os.getpid()}\n")

def say(message):
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()

def rpc(message):
    say({"jsonrpc": "2.0", **message})

note(behaviour)
if behaviour == "stubborn":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if behaviour == "exit":
    raise SystemExit(0)
if behaviour == "noise-first":
    for number in range(200):
        print("Welcome!", flush=True)
if behaviour in ("mute", "noise-first"):
    for line in sys.stdin:
        pass
    raise SystemExit(0)
shown = "0.0.2" if behaviour == "old-inside" else version
answers = 2 if behaviour == "twice" else 1

def misbehave():
    """What happens between the prompt and the answer."""
    if behaviour == "long":
        sys.stdout.write('{"type": "' + "x" * 20_000_000 + '"}\n')
        sys.stdout.flush()
    elif behaviour == "noise":
        for number in range(200):
            sys.stdout.write(f"this is line {number}\n")
        sys.stdout.flush()
    elif behaviour == "wrong":
        members = {"type": 3}, {"id": [], "method": 5}, {"id": 1e99, "result": 3}, {"method": "x", "params": 4}
        for value in (7, [], None, {}, *members):
            say(value)
    elif behaviour == "daemon" and os.fork() == 0:
        os.setsid()
        if os.fork():
            os._exit(0)
        for fd in (0, 1, 2):
            os.close(fd)
        note("left-behind")
        time.sleep(600)
        os._exit(0)
    elif behaviour == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    elif behaviour == "hang":
        time.sleep(600)
    elif behaviour == "fill":
        with open(os.path.join(os.environ["BARTACK_RUN_DIR"], "..", "filler"), "wb", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(4096))
            except OSError:
                pass
        for number in range(3000):
            say({"jsonrpc": "2.0", "method": "nothing", "type": "nothing", "params": {"text": "x" * 100}})

def reply():
    return os.environ.get("REPLY", "fine")

def claude():
    for line in sys.stdin:
        message = json.loads(line)
        if message["type"] == "control_request":
            about = {"hooks_applied": True, "hook_on_failure_supported": True, "claude_code_version": shown}
            say({"type": "control_response", "response": {
                "subtype": "success", "request_id": message["request_id"], "response": about}})
        elif message["type"] == "user":
            say({"type": "system", "subtype": "init", "model": "claude-opus-4-5"})
            if behaviour in ("tools", "ask"):
                claude_tools()
            if behaviour == "limited" and claude_limit():
                continue
            misbehave()
            usage = {"input_tokens": 1000, "output_tokens": 100}
            content = [{"type": "text", "text": f"I say {reply()}"}]
            say({"type": "assistant", "message": {
                "id": "m9", "model": "claude-opus-4-5", "usage": usage, "content": content}})
            used = {"inputTokens": 1000, "outputTokens": 100, "costUSD": 0.25, "costBasis": "list"}
            for _ in range(answers):
                say({"type": "result", "subtype": "success", "is_error": False, "result": reply(),
                     "model_usage_since_last_result": {"claude-opus-4-5": used}})
                say({"type": "system", "subtype": "session_state_changed", "state": "idle"})

def claude_limit():
    """The first call of all meets a limit that ends in twelve seconds."""
    try:
        file = open(place / "resets-at", "x")
    except FileExistsError:
        return False
    with file:
        resets = int(time.time()) + 12
        file.write(str(resets))
    say({"type": "rate_limit_event", "rate_limit_info": {"status": "rejected", "resetsAt": resets}})
    say({"type": "result", "subtype": "success", "is_error": True, "terminal_reason": "api_error",
         "api_error_status": 429, "result": "limit reached"})
    say({"type": "system", "subtype": "session_state_changed", "state": "idle"})
    return True

def wait_answer(number):
    for line in sys.stdin:
        message = json.loads(line)
        if message.get("id") == number or message.get("response", {}).get("request_id") == number:
            return message

def claude_tools():
    command = {"command": "touch " + os.environ.get("CANARY_TOKEN", "") + "x" * 9000}
    used = [("t1", "Bash", command), ("t2", "Read", {"file_path": "README.md"})]
    for call_id, tool, given in used:
        usage = {"input_tokens": 1000, "output_tokens": 100}
        content = [{"type": "tool_use", "id": call_id, "name": tool, "input": given}]
        say({"type": "assistant", "message": {
            "id": call_id + "m", "model": "claude-opus-4-5", "usage": usage, "content": content}})
        hook = {"tool_name": tool, "tool_input": given, "tool_use_id": call_id}
        say({"type": "control_request", "request_id": "h" + call_id, "request": {
            "subtype": "hook_callback", "callback_id": "decide", "input": hook}})
        told = wait_answer("h" + call_id)
        output = told["response"]["response"]["hookSpecificOutput"]
        decision = output["permissionDecision"]
        if decision == "ask":
            say({"type": "control_request", "request_id": "a" + call_id, "request": {
                "subtype": "can_use_tool", "tool_name": tool, "input": given, "tool_use_id": call_id}})
            decision = wait_answer("a" + call_id)["response"]["response"]["behavior"]
        (place / "decisions").open("a").write(f"{tool} {decision}\n")
        result = [{"type": "tool_result", "tool_use_id": call_id, "content": "ok", "is_error": decision != "allow"}]
        say({"type": "user", "message": {"role": "user", "content": result}})

def codex():
    thread, turn = "thread-1", "turn-1"
    model = "gpt-99" if behaviour.startswith("unpriced") else "gpt-5.1"
    for line in sys.stdin:
        message = json.loads(line)
        number, method = message.get("id"), message.get("method")
        if method == "initialize":
            rpc({"id": number, "result": {"userAgent": f"codex/{shown}"}})
        elif method in ("thread/start", "thread/resume"):
            rpc({"id": number, "result": {"thread": {"id": thread, "turns": []}, "model": model}})
        elif method == "turn/start":
            rpc({"id": number, "result": {"turn": {"id": turn}}})
            rpc({"method": "turn/started", "params": {"threadId": thread, "turn": {"id": turn}}})
            if behaviour in ("tools", "ask"):
                codex_tools(thread, turn)
            misbehave()
            item = {"type": "agentMessage", "id": "i9", "text": reply()}
            rpc({"method": "item/completed", "params": {"threadId": thread, "turnId": turn, "item": item}})
            last = {"inputTokens": 1000, "outputTokens": 100, "cachedInputTokens": 0, "totalTokens": 1100}
            rpc({"method": "thread/tokenUsage/updated", "params": {
                "threadId": thread, "turnId": turn, "tokenUsage": {"last": last, "total": last}}})
            if behaviour in ("die-late", "unpriced-die"):
                os.kill(os.getpid(), signal.SIGKILL)
            for _ in range(answers):
                rpc({"method": "turn/completed", "params": {
                    "threadId": thread, "turn": {"id": turn, "status": "completed", "items": [item]}}})
        elif number is not None and method:
            rpc({"id": number, "result": {}})

def codex_tools(thread, turn):
    command = "touch " + os.environ.get("CANARY_TOKEN", "") + "x" * 9000
    item = {"type": "commandExecution", "id": "c1", "command": command, "cwd": os.getcwd()}
    params = {"threadId": thread, "turnId": turn}
    rpc({"method": "item/started", "params": {**params, "item": item}})
    rpc({"id": 71, "method": "item/commandExecution/requestApproval", "params": {
        **params, "itemId": "c1", "command": command, "cwd": os.getcwd()}})
    decision = wait_answer(71)["result"]["decision"]
    (place / "decisions").open("a").write(f"Bash {decision}\n")
    done = {**item, "status": "completed" if decision == "accept" else "declined", "durationMs": 1500}
    rpc({"method": "item/completed", "params": {**params, "item": done}})

def acp():
    session = "session-1"
    for line in sys.stdin:
        message = json.loads(line)
        number, method = message.get("id"), message.get("method")
        if method == "initialize":
            protocol = 2 if behaviour == "old-inside" else 1
            rpc({"id": number, "result": {
                "protocolVersion": protocol, "agentInfo": {"name": "fake", "version": shown},
                "agentCapabilities": {"loadSession": True}}})
        elif method in ("session/new", "session/load"):
            rpc({"id": number, "result": {"sessionId": session}})
        elif method == "session/prompt":
            if behaviour in ("tools", "ask"):
                acp_tools(session)
            misbehave()
            part = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": reply()}}
            rpc({"method": "session/update", "params": {"sessionId": session, "update": part}})
            for _ in range(answers):
                rpc({"id": number, "result": {"stopReason": "end_turn"}})

def acp_tools(session):
    given = {"command": "touch " + os.environ.get("CANARY_TOKEN", "") + "x" * 9000}
    call = {"toolCallId": "c1", "title": "Run a command", "kind": "execute", "rawInput": given}
    begun = {"sessionUpdate": "tool_call", "status": "pending", **call}
    rpc({"method": "session/update", "params": {"sessionId": session, "update": begun}})
    options = [{"optionId": "y", "name": "Yes", "kind": "allow_once"}, {"optionId": "n", "name": "No", "kind": "reject_once"}]
    rpc({"id": 71, "method": "session/request_permission", "params": {
        "sessionId": session, "toolCall": call, "options": options}})
    outcome = wait_answer(71)["result"]["outcome"]
    decision = "allow" if outcome.get("optionId") == "y" else "deny"
    (place / "decisions").open("a").write(f"Bash {decision}\n")
    ended = {"sessionUpdate": "tool_call_update", "toolCallId": "c1", "status": "completed"}
    rpc({"method": "session/update", "params": {"sessionId": session, "update": ended}})

{"claude": claude, "codex": codex, "acp": acp}[kind]()
while behaviour == "stubborn":
    time.sleep(600)
'''


def write_fake(folder: Path) -> Path:
    """Write the script; returns its path."""
    script = folder / "fake"
    script.write_text(f"#!{sys.executable} -S\n{SCRIPT}", encoding="utf-8")
    script.chmod(0o755)
    return script


def settings(
    kind: str, behaviour: str, command: list[str] | None = None, more: str = "", home: str = "run"
) -> str:
    """The text of ``bartack.toml`` for an agent that misbehaves, with short limits."""
    words = json.dumps(["./fake", kind, behaviour] if command is None else command)
    return (
        f'[agents.a]\nkind = "{kind}"\ncommand = {words}\nhome = "{home}"\nretries = 2\n'
        f"backoff_initial_s = 0.01\n{more}\n"
    )


def started(folder: Path) -> list[tuple[str, int]]:
    """What the script noted: the behaviour, or ``left-behind``, each with its pid."""
    path = folder / "starts"
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [(what, int(pid)) for what, _, pid in (line.partition(" ") for line in lines)]


def alive(folder: Path) -> list[tuple[str, int]]:
    """Those of them that still live."""
    return [
        (what, pid) for what, pid in started(folder) if os.path.exists(f"/proc/{pid}") and not _is_dead(pid)
    ]


def _is_dead(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True
