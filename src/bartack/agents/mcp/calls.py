"""A tool call as the executing side sees it, and its withdrawal: what ``ToolServer`` hands out besides replies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol, TypeAlias

from bartack.agents.mcp.rpc import McpMessage


class ServedTool(Protocol):
    """What a server needs to know of a tool: a ``ToolSpec``, or anything like it."""

    @property
    def name(self) -> str:
        """How the client calls it."""
        ...

    @property
    def description(self) -> str:
        """What a model chooses it by."""
        ...

    @property
    def input_schema(self) -> Mapping[str, object]:
        """The JSON Schema of its arguments, an object."""
        ...


class McpCall(NamedTuple):
    """A tool call that waits for its answer.

    Attributes:
        id: Its number on this connection, from 1; ``ToolServer.answer`` takes it.
        name: The tool.
        arguments: Checked against the tool's schema.
        meta: What the client added about the request.
        request_id: The client's own number of it.
    """

    id: int
    name: str
    arguments: dict[str, object]
    meta: dict[str, object]
    request_id: str | int | float

    @property
    def own_id(self) -> str:
        """What the agent calls this call; empty if it gave no name that outlives the connection."""
        given = self.meta.get("claudecode/toolUseId")
        return given if isinstance(given, str) else ""


class Withdrawn(NamedTuple):
    """The client no longer waits for a call. Its answer is dropped."""

    id: int


McpEvent: TypeAlias = McpMessage | McpCall | Withdrawn
"""A reply to send, a call to execute, or a call to forget."""
