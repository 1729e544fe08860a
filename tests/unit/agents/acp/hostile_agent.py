"""A program that speaks ACP and misbehaves as its first argument says. It is started by tests, by its path."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

BEHAVIOUR = sys.argv[1]
FILE = Path(sys.argv[2]) if len(sys.argv) > 2 else None


def send(**message: Any) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def say(session: str, text: str) -> None:
    update = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}}
    send(method="session/update", params={"sessionId": session, "update": update})


def prompt(number: int, session: str) -> None:
    if BEHAVIOUR == "daemon":
        words = [sys.executable, "-c", "import signal; signal.pause()"]
        subprocess.Popen(words, start_new_session=True, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
    if BEHAVIOUR == "environment" and FILE is not None:
        FILE.write_text(json.dumps(dict(os.environ)))
    if BEHAVIOUR == "counts" and FILE is not None:
        with FILE.open("a") as file:
            file.write("asked\n")
    if BEHAVIOUR == "notes sessions" and FILE is not None and not FILE.with_suffix(".over").exists():
        FILE.with_suffix(".over").write_text("")
        return  # its hub dies first
    if BEHAVIOUR == "dies once" and FILE is not None and not FILE.exists():
        FILE.write_text("died")
        say(session, "Lost.")
        os._exit(1)
    if BEHAVIOUR == "homes":
        note = Path(os.environ["CLAUDE_CONFIG_DIR"], "note")
        say(session, f"{note.read_text() if note.exists() else 'nothing'} ")
        note.write_text(session)
    say(session, "Done.")
    send(id=number, result={"stopReason": "end_turn"})
    if BEHAVIOUR == "twice":
        send(id=number, result={"stopReason": "refusal"})


def answer(message: dict[str, Any]) -> None:
    method, number = message.get("method"), message["id"]
    if BEHAVIOUR == "notes sessions" and FILE is not None and str(method).startswith("session/"):
        with FILE.open("a") as file:
            file.write(f"{method}\n")
    if method == "initialize":
        capabilities: dict[str, Any] = {} if BEHAVIOUR == "dies once" else {"loadSession": True}
        capabilities["sessionCapabilities"] = {"fork": {}} if BEHAVIOUR == "homes" else {}
        send(id=number, result={"protocolVersion": 1, "agentCapabilities": capabilities})
        if BEHAVIOUR == "twice":
            send(id=number, result={"protocolVersion": 2})
    elif method == "session/new":
        send(id=number, result={"sessionId": f"session-{os.getpid()}"})
    elif method == "session/load":
        send(id=number, result={})
    elif method == "session/fork":
        send(id=number, result={"sessionId": f"fork-of-{message['params']['sessionId']}"})
    elif method == "session/prompt":
        prompt(number, message["params"]["sessionId"])


if BEHAVIOUR == "exits":
    sys.exit(0)
if BEHAVIOUR == "chatters":
    sys.stdout.write("".join(f"debug line {number}\n" for number in range(200)))
    sys.stdout.flush()
if BEHAVIOUR == "floods":
    while True:
        sys.stdout.write("x" * 65536)
for line in sys.stdin:
    request = json.loads(line)
    if BEHAVIOUR != "silent" and "id" in request and "method" in request:
        answer(request)
