"""The tools of a step, served to Claude Code by MCP over its control channel: no process of ours, and nothing to connect to."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from bartack.agents.claude._lines import answer
from bartack.agents.mcp.answer import ToolAnswer, error_answer
from bartack.agents.mcp.calls import McpCall, Withdrawn
from bartack.agents.mcp.server import ToolServer
from bartack.agents.program._tool_results import Store, tool_answer
from bartack.agents.protocol.messages import ToolProblem, ToolSpec

SERVER: Final = "bartack"
"""What the server is called."""
PREFIX: Final = f"mcp__{SERVER}__"
"""What the names of its tools begin with, as the model sees them."""


class FinishedTool(NamedTuple):
    """A tool call that has its result, which the agent has perhaps not got."""

    id: str
    name: str
    text: str


class OwnTools:
    """One connection of the program.

    Args:
        tools: The tools of the step.
        send: Writes a line to the program.
        call: Has a tool executed: the program's id of the call, the tool, the arguments.
        store: Stores a text that is too long for the model, and returns where.
    """

    def __init__(
        self,
        tools: Sequence[ToolSpec],
        send: Callable[[bytes], None],
        call: Callable[[str, str, dict[str, object]], None],
        store: Store,
    ) -> None:
        self.finished: dict[str, FinishedTool] = {}
        """Every call that has its result, over all attempts."""
        self._tools = tools
        self._send = send
        self._call = call
        self._store = store
        self._server = self._serve()
        self._waiting: dict[str, tuple[McpCall, str]] = {}
        """Open calls by id: the call, and the request that it came with."""
        self._connections = 0

    @property
    def names(self) -> list[str]:
        """What the model calls them."""
        return [PREFIX + tool.name for tool in self._tools]

    def begin_process(self) -> None:
        """A new process connects anew."""
        self._server = self._serve()
        self._waiting.clear()
        self._connections += 1

    def take(self, request_id: str, message: Mapping[str, object], *, is_open: bool) -> None:
        """The program sends a message to the server; calls are refused if the step has ended."""
        answered = False
        for event in self._server.feed(message):
            if isinstance(event, McpCall):
                self._begin(event, request_id, is_open=is_open)
                answered = True
            elif not isinstance(event, Withdrawn):
                self._send(answer(request_id, {"mcp_response": event}))
                answered = True
        if not answered:
            # A notification has no answer of its own; the request that carries it needs one.
            self._send(answer(request_id, {"mcp_response": {"jsonrpc": "2.0", "result": {}, "id": 0}}))

    def end(self, call_id: str, result: object, problem: ToolProblem | None) -> None:
        """A call has its outcome."""
        waiting = self._waiting.pop(call_id, None)
        if waiting is None:
            return
        call, request_id = waiting
        given = tool_answer(result, problem, self._store)
        self.finished[call_id] = FinishedTool(call_id, call.name, given.text)
        self._reply(call, request_id, given)

    def _begin(self, call: McpCall, request_id: str, *, is_open: bool) -> None:
        if not is_open:
            self._reply(call, request_id, error_answer("this step has ended"))
            return
        call_id = call.own_id or f"{self._connections}:{call.id}"
        self._waiting[call_id] = (call, request_id)
        self._call(call_id, call.name, call.arguments)

    def _reply(self, call: McpCall, request_id: str, given: ToolAnswer) -> None:
        reply = self._server.answer(call.id, given)
        if reply is not None:
            self._send(answer(request_id, {"mcp_response": reply}))

    def _serve(self) -> ToolServer:
        return ToolServer(self._tools, SERVER, "1")
