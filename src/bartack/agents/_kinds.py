"""The kinds of agents that are programs: from the settings of one to the agent."""

from __future__ import annotations

from bartack.agents.bridge import BridgeHost
from bartack.agents.contract import Agent
from bartack.agents.program.adapter import Surroundings
from bartack.agents.program_config import (
    AcpConfig,
    ClaudeConfig,
    CodexConfig,
    NdjsonConfig,
    ProgramConfig,
)


def open_agent(
    name: str, config: ProgramConfig, host: BridgeHost, surroundings: Surroundings, *, kind: str = "ndjson"
) -> Agent:
    """An agent that is a program, by its settings.

    Args:
        name: Its name in the settings.
        config: Its settings.
        host: The loop it lives in.
        surroundings: What the agents of a run have in common.
        kind: What a program that speaks the line protocol is called: ``ndjson``, or ``scripted``.
    """
    match config:
        case NdjsonConfig():
            from bartack.agents.ndjson.agent import open_line_agent  # noqa: PLC0415 - one kind needs not load another

            return open_line_agent(name, config, host, surroundings, kind=kind)
        case AcpConfig():
            from bartack.agents.acp._agent import open_acp_agent  # noqa: PLC0415 - likewise

            return open_acp_agent(name, config, host, surroundings)
        case ClaudeConfig():
            from bartack.agents.claude._agent import open_claude_agent  # noqa: PLC0415 - likewise

            return open_claude_agent(name, config, host, surroundings)
        case CodexConfig():
            from bartack.agents.codex._agent import open_codex_agent  # noqa: PLC0415 - likewise

            return open_codex_agent(name, config, host, surroundings)
        case _:
            raise AssertionError(f"agents of type {type(config).__name__} are not programs")
