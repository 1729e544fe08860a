"""Agents: AI programs outside Bartack. What is asked of them, what they answer, and everything between that can go wrong.

``AgentRequest`` and ``AgentResult`` are what every kind of agent takes and gives. ``NdjsonAgent`` is a program that speaks the line
protocol; the scripted one needs no model. Nothing here knows of journals or runs.

Every name is imported when it is first used: who only needs the scripted agent does not load the rest.

Read ``_contract.py`` (what every kind of agent promises), then ``conversation/_conversation.py`` (one call) and
``conversation/_dialect.py`` (what a new kind implements).
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from bartack.agents._artifacts import check_path, open_artifact, verify_artifacts
    from bartack.agents._config import (
        AgentConfig,
        AgentsConfig,
        NdjsonConfig,
        ProtocolConfig,
        ScriptedConfig,
        agent_settings,
        examine_agents,
        read_agents,
    )
    from bartack.agents._contract import (
        Agent,
        AgentCapabilities,
        AgentEvent,
        AgentRequest,
        AgentResult,
        Call,
        CallRateLimit,
        CallRetry,
        CallSink,
        CallStarted,
        Outcome,
        Rejection,
        ToolOutcome,
        Verdict,
        VerifiedArtifact,
    )
    from bartack.agents._doctor import DoctorReport, check_agents
    from bartack.agents._permissions import Denial, Permissions
    from bartack.agents._process import AgentProcess, Host
    from bartack.agents._prompted import answer_event, reply_schema, takes_actions
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
    from bartack.agents._usage import total_usage
    from bartack.agents.ndjson._agent import (
        NdjsonAgent,
        NdjsonCall,
        Surroundings,
        program_config,
        scripted_argv,
    )
    from bartack.agents.protocol._codes import AGENT_CODES, OWN_CODES, describe_retry
    from bartack.agents.protocol._ids import (
        NO_SNAPSHOT,
        command_key,
        conversation_id,
        correlation_id,
        moment,
        parse_moment,
    )
    from bartack.agents.protocol._lines import MAX_LINE, BadLine, Line, LineReader, read_line, write_line
    from bartack.agents.protocol._messages import (
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
    from bartack.agents.scripted._call import obey
    from bartack.agents.scripted._program import run_scripted
    from bartack.agents.scripted._scripted import (
        Capabilities,
        Prompt,
        ScriptedAgent,
        ScriptedCall,
        ScriptedReply,
    )

__all__ = [
    "AGENT_CODES",
    "DEADLINES_S",
    "DECLINE_REQUEST",
    "MAX_LINE",
    "NO_SNAPSHOT",
    "OWN_CODES",
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
    "CallRateLimit",
    "CallRetry",
    "CallSink",
    "CallStarted",
    "Cancel",
    "Capabilities",
    "Cause",
    "Command",
    "Denial",
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
    "Permissions",
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
    "agent_settings",
    "answer_event",
    "check_agents",
    "check_path",
    "check_value",
    "command_key",
    "conversation_id",
    "correlation_id",
    "describe_retry",
    "examine_agents",
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
    "reply_schema",
    "run_scripted",
    "schema",
    "schema_names",
    "schema_text",
    "scripted_argv",
    "takes_actions",
    "total_usage",
    "verify_artifacts",
    "write_line",
]

_HOMES: Final = {
    "_artifacts": "check_path open_artifact verify_artifacts",
    "_config": (
        "AgentConfig AgentsConfig NdjsonConfig ProtocolConfig ScriptedConfig agent_settings examine_agents "
        "read_agents"
    ),
    "_contract": (
        "Agent AgentCapabilities AgentEvent AgentRequest AgentResult Call CallRateLimit CallRetry CallSink "
        "CallStarted Outcome Rejection ToolOutcome Verdict VerifiedArtifact"
    ),
    "_doctor": "DoctorReport check_agents",
    "_permissions": "Denial Permissions",
    "_process": "AgentProcess Host",
    "_replies": "findings_of",
    "_reply": (
        "DECLINE_REQUEST Fault ReplyFaultsError Schema check_value is_declined read_reply read_text "
        "read_value repair_request"
    ),
    "_schema": "render_schema schema schema_names schema_text",
    "_usage": "total_usage",
    "ndjson._agent": "NdjsonAgent NdjsonCall Surroundings program_config scripted_argv",
    "protocol._codes": "AGENT_CODES OWN_CODES describe_retry",
    "protocol._ids": "NO_SNAPSHOT command_key conversation_id correlation_id moment parse_moment",
    "protocol._lines": "MAX_LINE BadLine Line LineReader read_line write_line",
    "protocol._messages": (
        "DEADLINES_S ROLES TERMINAL Artifact Budget Cancel Cause Command Event ExpectedOutput Finding "
        "Heartbeat Hello Log Notice Party Retry Role Source ToolCall ToolResult ToolSpec Usage Version"
    ),
    "scripted._call": "obey",
    "scripted._program": "run_scripted",
    "_prompted": "answer_event reply_schema takes_actions",
    "scripted._scripted": "Capabilities Prompt ScriptedAgent ScriptedCall ScriptedReply",
}
"""The module of each name."""


def __getattr__(name: str) -> object:
    for module, names in _HOMES.items():
        if name in names.split():
            return getattr(import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
