"""The lines that Claude Code reads: requests of ours, answers to its requests, and prompts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

DECIDE: Final = "decide"
"""What we call the callback that decides every tool call."""
DECISION_S: Final = 30
"""After this many seconds without a decision a tool call is blocked."""
PROMPT: Final = b'{"type":"user",'
"""How the line of a prompt begins, and no other."""


def initialize(request_id: str) -> bytes:
    """The first line: every tool call is to be decided by us, and is blocked without a decision."""
    hook = {"matcher": "*", "hookCallbackIds": [DECIDE], "timeout": DECISION_S, "onFailure": "block"}
    return _request(request_id, {"subtype": "initialize", "hooks": {"PreToolUse": [hook]}})


def interrupt(request_id: str) -> bytes:
    """Stop what the agent is doing."""
    return _request(request_id, {"subtype": "interrupt"})


def prompt(text: str) -> bytes:
    """A prompt that the model gets as it is written: no command, and no file that it names."""
    content = [{"type": "text", "text": text}]
    return _line({"type": "user", "client_composed": True, "message": {"role": "user", "content": content}})


def answer(request_id: str, response: Mapping[str, object]) -> bytes:
    """The answer to a request of the agent."""
    return _response({"subtype": "success", "request_id": request_id, "response": response})


def refusal(request_id: str, problem: str) -> bytes:
    """The answer to a request of the agent that is not known."""
    return _response({"subtype": "error", "request_id": request_id, "error": problem})


def decision(verdict: str, reason: str) -> dict[str, object]:
    """The answer to the callback about a tool call: ``allow``, ``deny`` or ``ask``."""
    return {
        "hookSpecificOutput": {
            "hookEventName": "PreToolUse",
            "permissionDecision": verdict,
            "permissionDecisionReason": reason,
        }
    }


def _request(request_id: str, request: Mapping[str, object]) -> bytes:
    return _line({"type": "control_request", "request_id": request_id, "request": request})


def _response(response: Mapping[str, object]) -> bytes:
    return _line({"type": "control_response", "response": response})


def _line(value: Mapping[str, object]) -> bytes:
    return msgspec.json.encode(value) + b"\n"
