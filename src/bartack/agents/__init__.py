"""Agents: AI programs that prompts go to. The scripted one needs no model."""

from bartack.agents._reply import (
    DECLINE_REQUEST,
    Fault,
    ReplyFaultsError,
    Schema,
    check_value,
    is_declined,
    read_text,
    read_value,
    repair_request,
)
from bartack.agents._scripted import Capabilities, Prompt, ScriptedAgent, ScriptedCall, ScriptedReply

__all__ = [
    "DECLINE_REQUEST",
    "Capabilities",
    "Fault",
    "Prompt",
    "ReplyFaultsError",
    "Schema",
    "ScriptedAgent",
    "ScriptedCall",
    "ScriptedReply",
    "check_value",
    "is_declined",
    "read_text",
    "read_value",
    "repair_request",
]
