"""Agents: AI programs outside Bartack. What is asked of them, what they answer, and everything between that can go wrong.

``AgentRequest`` and ``AgentResult`` are what every kind of agent takes and gives. ``NdjsonAgent`` is a program that speaks the line
protocol; the scripted one needs no model. Nothing here knows of journals or runs.

Every name is imported when it is first used: who only needs the scripted agent does not load the rest.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bartack.agents._actions import Rejection, Verdict
    from bartack.agents._artifacts import check_path, open_artifact, verify_artifacts
    from bartack.agents._config import (
        AgentConfig,
        AgentsConfig,
        NdjsonConfig,
        ProtocolConfig,
        ScriptedConfig,
        read_agents,
    )
    from bartack.agents._contract import (
        Agent,
        AgentCapabilities,
        AgentEvent,
        AgentRequest,
        AgentResult,
        Call,
        CallSink,
        CallStarted,
        Outcome,
        ToolOutcome,
        VerifiedArtifact,
    )
    from bartack.agents._doctor import DoctorReport, check_agents
    from bartack.agents._ids import (
        NO_SNAPSHOT,
        command_key,
        conversation_id,
        correlation_id,
        moment,
        parse_moment,
    )
    from bartack.agents._lines import MAX_LINE, BadLine, Line, LineReader, read_line, write_line
    from bartack.agents._messages import (
        DEADLINES_S,
        ROLES,
        TERMINAL,
        Artifact,
        Budget,
        Cancel,
        Cause,
        Command,
        Event,
        ExpectedOutput,
        Finding,
        Heartbeat,
        Hello,
        Log,
        Notice,
        Party,
        Retry,
        Role,
        Source,
        ToolCall,
        ToolResult,
        ToolSpec,
        Usage,
        Version,
    )
    from bartack.agents._ndjson import NdjsonAgent, NdjsonCall, Surroundings, program_config, scripted_argv
    from bartack.agents._process import AgentProcess, Host
    from bartack.agents._replies import findings_of
    from bartack.agents._reply import (
        DECLINE_REQUEST,
        Fault,
        ReplyFaultsError,
        Schema,
        check_value,
        is_declined,
        read_reply,
        read_text,
        read_value,
        repair_request,
    )
    from bartack.agents._schema import render_schema, schema, schema_names, schema_text
    from bartack.agents._scripted import Capabilities, Prompt, ScriptedAgent, ScriptedCall, ScriptedReply
    from bartack.agents._scripted_call import obey
    from bartack.agents._scripted_program import run_scripted

__all__ = [
    "DEADLINES_S",
    "DECLINE_REQUEST",
    "MAX_LINE",
    "NO_SNAPSHOT",
    "ROLES",
    "TERMINAL",
    "Agent",
    "AgentCapabilities",
    "AgentConfig",
    "AgentEvent",
    "AgentProcess",
    "AgentRequest",
    "AgentResult",
    "AgentsConfig",
    "Artifact",
    "BadLine",
    "Budget",
    "Call",
    "CallSink",
    "CallStarted",
    "Cancel",
    "Capabilities",
    "Cause",
    "Command",
    "DoctorReport",
    "Event",
    "ExpectedOutput",
    "Fault",
    "Finding",
    "Heartbeat",
    "Hello",
    "Host",
    "Line",
    "LineReader",
    "Log",
    "NdjsonAgent",
    "NdjsonCall",
    "NdjsonConfig",
    "Notice",
    "Outcome",
    "Party",
    "Prompt",
    "ProtocolConfig",
    "Rejection",
    "ReplyFaultsError",
    "Retry",
    "Role",
    "Schema",
    "ScriptedAgent",
    "ScriptedCall",
    "ScriptedConfig",
    "ScriptedReply",
    "Source",
    "Surroundings",
    "ToolCall",
    "ToolOutcome",
    "ToolResult",
    "ToolSpec",
    "Usage",
    "Verdict",
    "VerifiedArtifact",
    "Version",
    "check_agents",
    "check_path",
    "check_value",
    "command_key",
    "conversation_id",
    "correlation_id",
    "findings_of",
    "is_declined",
    "moment",
    "obey",
    "open_artifact",
    "parse_moment",
    "program_config",
    "read_agents",
    "read_line",
    "read_reply",
    "read_text",
    "read_value",
    "render_schema",
    "repair_request",
    "run_scripted",
    "schema",
    "schema_names",
    "schema_text",
    "scripted_argv",
    "verify_artifacts",
    "write_line",
]

_HOMES = {
    "_actions": (
        "Rejection",
        "Verdict",
    ),
    "_artifacts": (
        "check_path",
        "open_artifact",
        "verify_artifacts",
    ),
    "_config": (
        "AgentConfig",
        "AgentsConfig",
        "NdjsonConfig",
        "ProtocolConfig",
        "ScriptedConfig",
        "read_agents",
    ),
    "_contract": (
        "Agent",
        "AgentEvent",
        "AgentRequest",
        "AgentResult",
        "Call",
        "CallSink",
        "CallStarted",
        "AgentCapabilities",
        "Outcome",
        "ToolOutcome",
        "VerifiedArtifact",
    ),
    "_doctor": (
        "DoctorReport",
        "check_agents",
    ),
    "_ids": (
        "NO_SNAPSHOT",
        "command_key",
        "conversation_id",
        "correlation_id",
        "moment",
        "parse_moment",
    ),
    "_lines": (
        "MAX_LINE",
        "BadLine",
        "Line",
        "LineReader",
        "read_line",
        "write_line",
    ),
    "_messages": (
        "DEADLINES_S",
        "ROLES",
        "TERMINAL",
        "Artifact",
        "Budget",
        "Cancel",
        "Cause",
        "Command",
        "Event",
        "ExpectedOutput",
        "Finding",
        "Heartbeat",
        "Hello",
        "Log",
        "Notice",
        "Party",
        "Retry",
        "Role",
        "Source",
        "ToolCall",
        "ToolResult",
        "ToolSpec",
        "Usage",
        "Version",
    ),
    "_ndjson": (
        "NdjsonAgent",
        "NdjsonCall",
        "Surroundings",
        "program_config",
        "scripted_argv",
    ),
    "_process": (
        "AgentProcess",
        "Host",
    ),
    "_replies": ("findings_of",),
    "_reply": (
        "DECLINE_REQUEST",
        "Fault",
        "ReplyFaultsError",
        "Schema",
        "check_value",
        "is_declined",
        "read_reply",
        "read_text",
        "read_value",
        "repair_request",
    ),
    "_schema": (
        "render_schema",
        "schema",
        "schema_names",
        "schema_text",
    ),
    "_scripted": (
        "Capabilities",
        "Prompt",
        "ScriptedAgent",
        "ScriptedCall",
        "ScriptedReply",
    ),
    "_scripted_call": ("obey",),
    "_scripted_program": ("run_scripted",),
}


def __getattr__(name: str) -> object:
    for module, names in _HOMES.items():
        if name in names:
            return getattr(importlib.import_module(f"bartack.agents.{module}"), name)
    raise AttributeError(name)
