"""The command line of Claude Code and its environment. Values from outside are bound with ``=``: none becomes an option."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Final, Literal, NamedTuple

import msgspec

from bartack.agents.claude._approvals import ASK
from bartack.agents.claude._own_tools import SERVER
from bartack.agents.claude._schemas import schema_text
from bartack.agents.contract import AgentRequest
from bartack.agents.program_config import ClaudeConfig

OUTLIVING: Final = (
    "CronCreate", "CronDelete", "CronList", "ScheduleWakeup", "Monitor", "EnterWorktree", "ExitWorktree",
    "SendMessage", "ListAgents",
)  # fmt: skip
"""Tools of its own that outlive a step, or work round it."""
LOOKING: Final = ("Read", "Grep", "Glob")
"""The tools of an agent that may only look."""
MAX_SCHEMA: Final = 100 * 1024
"""Bytes of a schema that fit on a command line."""

QUIET: Final = {
    "DISABLE_AUTOUPDATER": "1",
    "DISABLE_TELEMETRY": "1",
    "DISABLE_ERROR_REPORTING": "1",
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "CLAUDE_CODE_MAX_RETRIES": "2",
    "MCP_TOOL_TIMEOUT": "86400000",
    "ENABLE_TOOL_SEARCH": "false",
    "CLAUDE_CODE_SDK_READS_SESSION_STATE": "1",
}
"""Variables that it always gets: no traffic of its own, few retries, and tools of ours that it sees at once and waits for."""

Start = Literal["new", "resume", "fork"]


class Beginning(NamedTuple):
    """How a process begins: a new conversation, one that is resumed, or a copy of ``parent``."""

    how: Start
    conversation: str
    parent: str = ""


def command_line(
    program: Sequence[str],
    config: ClaudeConfig,
    request: AgentRequest,
    beginning: Beginning,
    *,
    system: str = "",
    usd: float | None = None,
    turns: int | None = None,
) -> list[str]:
    """The words of the command.

    Args:
        program: The program, and words of the settings.
        config: The settings of the agent.
        request: What it is asked.
        beginning: How it begins.
        system: A file with instructions that are added to its own.
        usd: What it may cost.
        turns: How many replies of the model it may take.
    """
    servers = {"mcpServers": {SERVER: {"type": "sdk", "name": SERVER}}}
    argv = [
        *program,
        "-p",
        "--input-format=stream-json",
        "--output-format=stream-json",
        "--verbose",
        "--forward-subagent-text",
        *_session(beginning),
        f"--setting-sources={','.join(config.setting_sources)}",
        "--permission-mode=manual",
        "--permission-prompt-tool=stdio",
        f"--mcp-config={msgspec.json.encode(servers).decode()}",
        "--strict-mcp-config",
    ]
    disallowed = _disallowed(config, request)
    if disallowed:
        argv.append(f"--disallowedTools={','.join(disallowed)}")
    if config.permissions.for_role(request.role).mode == "read":
        argv.append(f"--tools={','.join(_looking(config, request))}")
    argv += [f"--add-dir={place}" for place in request.extra_dirs]
    argv += [f"--plugin-dir={place}" for place in config.plugin_dirs]
    if request.schema is not None:
        argv.append(f"--json-schema={schema_text(request)}")
    options = {
        "append-system-prompt-file": system,
        "model": config.model,
        "effort": config.effort,
        "max-budget-usd": "" if usd is None else f"{usd:.4f}",
        "max-turns": "" if turns is None else str(turns),
    }
    return argv + [f"--{name}={value}" for name, value in options.items() if value]


def environment(config: ClaudeConfig, environ: Mapping[str, str]) -> dict[str, str]:
    """What the program gets of our variables, those that it always gets, and those of the settings; no others."""
    fixed = dict(QUIET) if config.background else {**QUIET, "CLAUDE_CODE_DISABLE_BACKGROUND_TASKS": "1"}
    shell = next((path for path in ("/bin/bash", "/usr/bin/bash") if os.access(path, os.X_OK)), "")
    if shell:
        fixed["SHELL"] = shell
    return {**config.environment(environ), **fixed, **config.env}


def _session(beginning: Beginning) -> list[str]:
    match beginning.how:
        case "new":
            return [f"--session-id={beginning.conversation}"]
        case "resume":
            return [f"--resume={beginning.conversation}"]
        case "fork":
            parent, own = beginning.parent, beginning.conversation
            return [f"--resume={parent}", "--fork-session", f"--session-id={own}"]


def _looking(config: ClaudeConfig, request: AgentRequest) -> list[str]:
    """The tools of an agent that may only look, and do what rules allow."""
    names = [*LOOKING, *config.permissions.allowed_tools, *((ASK,) if request.may_ask else ())]
    return list(dict.fromkeys(names))


def _disallowed(config: ClaudeConfig, request: AgentRequest) -> list[str]:
    names = list(OUTLIVING if config.disallowed_tools is None else config.disallowed_tools)
    if not request.may_ask and ASK not in names:
        names.append(ASK)
    return names
