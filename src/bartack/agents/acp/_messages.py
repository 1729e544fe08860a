"""What we write to a program that speaks the Agent Client Protocol: the parameters of requests, and answers to its requests.

The names are those of the protocol. Which message is written when is decided in ``_dialect.py``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Literal

from bartack.agents.program._json_lines import Json
from bartack.agents.program._json_rpc import RpcId

PROTOCOL: Final = 1
"""The version of the protocol. Version 2 ends turns in another way, so no other version is accepted."""
AUTH_REQUIRED: Final = -32000
NOT_FOUND: Final = -32002
SERVER: Final = "bartack"
"""The name of our MCP server, as the agent knows it."""

INITIALIZE: Final = "initialize"
NEW: Final = "session/new"
LOAD: Final = "session/load"
RESUME: Final = "session/resume"
FORK: Final = "session/fork"
SET_OPTION: Final = "session/set_config_option"
PROMPT: Final = "session/prompt"
CANCEL: Final = "session/cancel"
UPDATE: Final = "session/update"
ASK_PERMISSION: Final = "session/request_permission"
READ_FILE: Final = "fs/read_text_file"
WRITE_FILE: Final = "fs/write_text_file"

ASKED: Final = ("Bash", "Edit", "Glob", "Grep", "NotebookEdit", "Read", "WebFetch", "WebSearch", "Write")
"""Tools that Claude Code uses without a question if it looks only, or if settings of the project allow it."""

Reopening = Literal["session/load", "session/resume"]


def introduction(version: str) -> Json:
    """The parameters of ``initialize``."""
    return {
        "protocolVersion": PROTOCOL,
        "clientCapabilities": {"fs": {"readTextFile": True, "writeTextFile": True}, "terminal": False},
        "clientInfo": {"name": "bartack", "title": "Bartack", "version": version},
    }


def stdio_server(argv: Sequence[str], env: Mapping[str, str]) -> Json:
    """An MCP server that the agent is to start."""
    variables = [{"name": name, "value": value} for name, value in env.items()]
    return {"name": SERVER, "command": argv[0], "args": list(argv[1:]), "env": variables}


def session(
    cwd: str,
    servers: Sequence[Json],
    session_id: str = "",
    more: Sequence[str] = (),
    *,
    is_claude: bool = False,
) -> Json:
    """The parameters of a request that opens a session.

    Args:
        cwd: Where the agent works.
        servers: The MCP servers that it is to start.
        session_id: The session that it continues; empty for a new one.
        more: Further directories that it may use.
        is_claude: Whether it is Claude Code, which then has to ask before each tool call, whatever other settings allow.
    """
    params: Json = {"cwd": cwd, "mcpServers": list(servers)}
    if more:
        params["additionalDirectories"] = list(more)
    if is_claude:
        settings = {"permissions": {"ask": list(ASKED)}}
        params["_meta"] = {"claudeCode": {"options": {"settings": settings}}}
    return {"sessionId": session_id, **params} if session_id else params


def prompt(session_id: str, text: str) -> Json:
    """The parameters of ``session/prompt``."""
    return {"sessionId": session_id, "prompt": [{"type": "text", "text": text}]}


def option(session_id: str, config_id: str, value: str) -> Json:
    """The parameters of ``session/set_config_option``."""
    return {"sessionId": session_id, "configId": config_id, "value": value}


def chosen(option_id: str) -> Json:
    """The answer to a request for a permission: one of its options, or none if there is no suitable one."""
    if not option_id:
        return {"outcome": {"outcome": "cancelled"}}
    return {"outcome": {"outcome": "selected", "optionId": option_id}}


def request_name(request_id: RpcId) -> str:
    """A request of the agent as text: 1 and "1" are two."""
    return f"{'n' if isinstance(request_id, int) else 's'}{request_id}"
