"""A program that is an agent for tests. It speaks what its first argument says, and behaves as the second one says.

    python agent_stub.py acp|claude|codex|ndjson BEHAVIOUR COUNTER

It appends a byte to the file COUNTER for each prompt that it takes.
"""

import json
import os
import signal
import subprocess
import sys
from typing import Any

PROTOCOL, BEHAVIOUR, COUNTER = sys.argv[1:4]
SESSION = "stub-1"


def send(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def resist() -> None:
    """Ignore every signal that can be ignored, and have a child that does, too, in a session of its own."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    words = [sys.executable, "-c", "import signal; signal.pause()"]
    subprocess.Popen(words, start_new_session=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)


def behave() -> None:
    """Do what the argument says; returns if a reply is wanted."""
    if BEHAVIOUR == "resists":
        resist()
    with open(COUNTER, "ab") as file:
        file.write(b".")
    if BEHAVIOUR == "exits":
        os._exit(0)
    if BEHAVIOUR == "floods":
        sys.stdout.write("x" * 20_000_000 + "\n")
        sys.stdout.flush()
    if BEHAVIOUR == "resists":
        while True:
            signal.pause()


def acp(message: dict[str, Any]) -> None:
    method, number = message.get("method"), message.get("id")
    if method == "initialize":
        capabilities = {"loadSession": True}
        send(
            {
                "jsonrpc": "2.0",
                "id": number,
                "result": {"protocolVersion": 1, "agentCapabilities": capabilities},
            }
        )
    elif method in {"session/new", "session/load"}:
        send({"jsonrpc": "2.0", "id": number, "result": {"sessionId": SESSION}})
    elif method == "session/prompt":
        behave()
        if BEHAVIOUR == "replies":
            update = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "hello"}}
            params = {"sessionId": SESSION, "update": update}
            send({"jsonrpc": "2.0", "method": "session/update", "params": params})
            send({"jsonrpc": "2.0", "id": number, "result": {"stopReason": "end_turn"}})


def claude(message: dict[str, Any]) -> None:
    kind, request = message["type"], message.get("request", {})
    if kind == "control_request" and request["subtype"] == "initialize":
        about = {"hooks_applied": True, "hook_on_failure_supported": True, "claude_code_version": "2.1.325"}
        answer = {"subtype": "success", "request_id": message["request_id"], "response": about}
        send({"type": "control_response", "response": answer})
    elif kind == "user":
        behave()
        if BEHAVIOUR == "replies":
            send({"type": "result", "subtype": "success", "is_error": False, "result": "hello"})
            send({"type": "system", "subtype": "session_state_changed", "state": "idle"})


def codex(message: dict[str, Any]) -> None:
    method, number = message.get("method"), message.get("id")
    if method in {"thread/start", "thread/resume"}:
        send({"jsonrpc": "2.0", "id": number, "result": {"thread": {"id": SESSION, "turns": finished()}}})
    elif method == "turn/start":
        behave()
        send({"jsonrpc": "2.0", "id": number, "result": {"turn": {"id": "turn-1"}}})
        if BEHAVIOUR == "replies":
            turn = codex_turn(message["params"]["clientUserMessageId"])
            with open(f"{COUNTER}.turns", "a") as file:
                file.write(json.dumps(turn) + "\n")
            for item in turn["items"]:
                params = {"threadId": SESSION, "turnId": "turn-1", "item": item}
                send({"jsonrpc": "2.0", "method": "item/completed", "params": params})
            send(
                {"jsonrpc": "2.0", "method": "turn/completed", "params": {"threadId": SESSION, "turn": turn}}
            )
    elif number is not None and method is not None:
        send({"jsonrpc": "2.0", "id": number, "result": {"userAgent": "codex_cli/0.163.0"}})


def codex_turn(client_id: str) -> dict[str, Any]:
    said: dict[str, Any] = {"type": "userMessage", "id": "i1", "clientId": client_id, "content": []}
    reply = {"type": "agentMessage", "id": "i2", "text": "hello"}
    return {"id": "turn-1", "status": "completed", "items": [said, reply]}


def finished() -> list[dict[str, Any]]:
    """The turns of earlier processes, as a rollout keeps them."""
    try:
        with open(f"{COUNTER}.turns") as file:
            return [json.loads(line) for line in file]
    except FileNotFoundError:
        return []


def ndjson(message: dict[str, Any]) -> None:
    if message["kind"] != "command":
        return
    behave()
    if BEHAVIOUR == "replies":
        send(
            {
                "kind": "event",
                "message_id": message["message_id"][:-1] + "0",
                "correlation_id": message["correlation_id"],
                "in_reply_to": message["message_id"],
                "idempotency_key": message["idempotency_key"],
                "task_id": message["task_id"],
                "from": {"agent_type": message["to"]["agent_type"]},
                "event": "prompt.completed",
                "payload": {"text": "hello"},
                "occurred_at": "2026-01-01T00:00:00Z",
            }
        )


for line in sys.stdin:
    {"acp": acp, "claude": claude, "codex": codex, "ndjson": ndjson}[PROTOCOL](json.loads(line))
