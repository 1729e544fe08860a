"""Agents: AI programs outside Bartack. What is asked of them, what they answer, and everything between that can go wrong.

``AgentRequest`` and ``AgentResult`` are what every kind of agent takes and gives. ``open_agent`` makes one that is a
program from its settings; the scripted one needs no model. Nothing here knows of journals or runs.

Every name is imported when it is first used: who only needs the scripted agent does not load the rest.

Read ``contract.py`` (what every kind of agent promises), then ``conversation/_conversation.py`` (one call). A new kind of program
implements ``program/adapter.py`` and ``conversation/_dialect.py``, and is listed in ``_kinds.py``.

- ``claude/``, ``codex/``, ``acp/``, ``ndjson/``: the kinds that are programs. ``scripted/``: the kind that answers from a file.
- ``program/``: what these programs have in common; ``conversation/``: one call of one; ``process/``: its process.
- ``protocol/``: messages of the line protocol, described in ``schemas/``. ``mcp/``: the tools of a step as an MCP server.
- ``guard/``: rules about commands and files. ``doctor/``: whether agents can be used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bartack._lazy import lazy

if TYPE_CHECKING:
    from bartack.agents._kinds import open_agent
    from bartack.agents.contract import (
        Agent,
        AgentAnswer,
        AgentCapabilities,
        AgentEvent,
        AgentQuestion,
        AgentRequest,
        AgentResult,
        Call,
        CallSink,
        Outcome,
        Rejection,
    )
    from bartack.agents.protocol.ids import command_key
    from bartack.agents.protocol.lines import BadLine, Line, read_line
    from bartack.agents.protocol.messages import Usage
    from bartack.agents.scripted.scripted import ScriptedAgent

__all__ = [
    "Agent",
    "AgentAnswer",
    "AgentCapabilities",
    "AgentEvent",
    "AgentQuestion",
    "AgentRequest",
    "AgentResult",
    "BadLine",
    "Call",
    "CallSink",
    "Line",
    "Outcome",
    "Rejection",
    "ScriptedAgent",
    "Usage",
    "command_key",
    "open_agent",
    "read_line",
]

__getattr__, __dir__ = lazy(
    __name__,
    {
        "_kinds": "open_agent",
        "contract": "Agent AgentAnswer AgentCapabilities AgentEvent AgentQuestion AgentRequest AgentResult Call CallSink Outcome "
        "Rejection",
        "protocol.ids": "command_key",
        "protocol.lines": "BadLine Line read_line",
        "protocol.messages": "Usage",
        "scripted.scripted": "ScriptedAgent",
    },
)
