"""What we write, checked with the types of the protocol's own library."""

from __future__ import annotations

from typing import Any

import acp.schema as s

REQUESTS: dict[str, Any] = {
    "initialize": s.InitializeRequest,
    "session/new": s.NewSessionRequest,
    "session/load": s.LoadSessionRequest,
    "session/resume": s.ResumeSessionRequest,
    "session/fork": s.ForkSessionRequest,
    "session/prompt": s.PromptRequest,
    "session/cancel": s.CancelNotification,
    "session/set_config_option": s.SetSessionConfigOptionSelectRequest,
}


def check_from_client(message: dict[str, Any]) -> None:
    """A message that a client writes: each of its members is one that the protocol has."""
    assert message["jsonrpc"] == "2.0"
    if "method" in message:
        _check(REQUESTS[message["method"]], message["params"])
    elif "outcome" in message.get("result", {}):
        _check(s.RequestPermissionResponse, message["result"])
    elif "content" in message.get("result", {}):
        _check(s.ReadTextFileResponse, message["result"])
    elif "error" in message:
        _check(s.Error, message["error"])


def _check(kind: Any, given: dict[str, Any]) -> None:
    read = kind.model_validate(given)
    again = read.model_dump(mode="json", by_alias=True, exclude_none=True)
    lost = {name for name in given if name not in again and given[name] != []}
    assert not lost, f"{kind.__name__} has no {sorted(lost)}"
