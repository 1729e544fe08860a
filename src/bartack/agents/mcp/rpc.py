"""Messages of JSON-RPC 2.0, as MCP has them: replies, errors, and what may name a request."""

from __future__ import annotations

from typing import Final, TypeAlias

from bartack.agents.mcp.answer import ToolAnswer

McpMessage: TypeAlias = dict[str, object]
"""A message of JSON-RPC 2.0."""

NOT_JSON: Final = -32700
NOT_A_REQUEST: Final = -32600
NO_SUCH_METHOD: Final = -32601
WRONG_PARAMS: Final = -32602

_LARGEST_ID: Final = 2**63


def is_id(value: object) -> bool:
    """Whether this may name a request: what JSON-RPC allows, without what cannot be written again."""
    if isinstance(value, int) and not isinstance(value, bool):
        return -_LARGEST_ID <= value < _LARGEST_ID
    return isinstance(value, str | float)


def same(one: object, other: object) -> bool:
    """Whether two ids are one: 1 and "1" are two."""
    return type(one) is type(other) and one == other


def result(answer: ToolAnswer) -> McpMessage:
    """The result of a tool call."""
    structured = {} if answer.structured is None else {"structuredContent": answer.structured}
    content = [{"type": "text", "text": answer.text}]
    return {"content": content, **structured, "isError": answer.is_error}


def reply(request_id: str | float, value: McpMessage) -> McpMessage:
    """The answer to a request."""
    return {"jsonrpc": "2.0", "id": request_id, "result": value}


def error(request_id: str | float | None, code: int, text: str) -> McpMessage:
    """The answer to a request that is refused; without an id where it has no legal one."""
    return {"jsonrpc": "2.0", "id": request_id, "error": {"code": code, "message": text}}
