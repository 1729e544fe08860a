"""An MCP server without input and output: messages in; replies, tool calls and withdrawn calls out.

It knows the part of the protocol that tools need. Calls are answered with ``ToolServer.answer``, in any order and as late as
necessary. Transports: the control channel of an agent, a bridge of a step, the standard streams of ``bartack mcp``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Final, cast

from bartack.agents.mcp.answer import ToolAnswer, error_answer
from bartack.agents.mcp.calls import McpCall, McpEvent, ServedTool, Withdrawn
from bartack.agents.mcp.lines import MAX_MESSAGE, MessageLines, TooLong, parse_message
from bartack.agents.mcp.rpc import (
    NO_SUCH_METHOD,
    NOT_A_REQUEST,
    NOT_JSON,
    WRONG_PARAMS,
    McpMessage,
    error,
    is_id,
    reply,
    result,
    same,
)

if TYPE_CHECKING:
    from bartack.agents.reply import Fault

VERSIONS: Final = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
"""The versions of the protocol that begin with ``initialize``; a client that asks for another one gets the last."""


class _RefusedError(Exception):
    """A request that gets an error."""

    def __init__(self, code: int, text: str) -> None:
        self.code = code
        super().__init__(text)


class ToolServer:
    """One connection of a client; see the module.

    Args:
        tools: What is offered, or a function that finds out when a client first asks for it.
        name: What the server is called.
        version: Its version.
        instructions: What a model should know of the tools together.
        read_only: The names of tools that change nothing.
        limit: The most bytes of a message.
    """

    def __init__(
        self,
        tools: Sequence[ServedTool] | Callable[[], Sequence[ServedTool]],
        name: str,
        version: str,
        *,
        instructions: str = "",
        read_only: Collection[str] = (),
        limit: int = MAX_MESSAGE,
    ) -> None:
        self._offered = tools
        self._about: McpMessage = {"serverInfo": {"name": name, "version": version}}
        if instructions:
            self._about["instructions"] = instructions
        self._read_only = read_only
        self._lines = MessageLines(limit)
        self._limit = limit
        self._calls = 0
        self._open: dict[int, McpCall] = {}
        self._progress: dict[int, int] = {}

    def read(self, data: bytes) -> list[McpEvent]:
        """Take bytes of a stream of lines."""
        events: list[McpEvent] = []
        for line in self._lines.feed(data):
            if isinstance(line, TooLong):
                events.append(error(None, NOT_A_REQUEST, f"A message has at most {self._limit} bytes."))
            else:
                events += self.feed(line)
        return events

    def feed(self, message: bytes | Mapping[str, object]) -> list[McpEvent]:
        """Take one message, as one line or as the object that it is."""
        if isinstance(message, bytes):
            try:
                decoded: object = parse_message(message)
            except (ValueError, RecursionError) as problem:
                return [error(None, NOT_JSON, f"This is not JSON: {problem}")]
        else:
            decoded = message
        if isinstance(decoded, list):
            return [error(None, NOT_A_REQUEST, "Batches are not supported: send one message a line.")]
        if not isinstance(decoded, Mapping):
            return [error(None, NOT_A_REQUEST, "A message is an object.")]
        return self._message(cast("Mapping[str, object]", decoded))

    def answer(self, call: int, answer: ToolAnswer) -> McpMessage | None:
        """The reply that ends a call; ``None`` if the client does not wait for it any more."""
        use = self._open.pop(call, None)
        self._progress.pop(call, None)
        return None if use is None else reply(use.request_id, result(answer))

    def progress(self, call: int, text: str) -> McpMessage | None:
        """A sign of life of an open call; ``None`` if the client did not ask for any."""
        use = self._open.get(call)
        token = use.meta.get("progressToken") if use is not None else None
        if token is None:
            return None
        self._progress[call] = count = self._progress.get(call, 0) + 1
        params = {"progressToken": token, "progress": count, "message": text}
        return {"jsonrpc": "2.0", "method": "notifications/progress", "params": params}

    @property
    def open_calls(self) -> list[int]:
        """The calls that have no answer yet, the oldest first."""
        return list(self._open)

    # Inside.

    @cached_property
    def _tools(self) -> dict[str, ServedTool]:
        offered = self._offered() if callable(self._offered) else self._offered
        return {tool.name: tool for tool in offered}

    def _message(self, message: Mapping[str, object]) -> list[McpEvent]:
        method, request_id = message.get("method"), message.get("id")
        if method is None and ("result" in message or "error" in message):
            return []  # an answer, and this server asks nothing
        if "id" in message and not is_id(request_id):
            return [error(None, NOT_A_REQUEST, "The id of a request is a string or a number.")]
        request_id = cast("str | int | float | None", request_id)
        if message.get("jsonrpc") != "2.0" or not isinstance(method, str):
            return [
                error(request_id, NOT_A_REQUEST, "A request has a method and the version 2.0 of JSON-RPC.")
            ]
        params = message.get("params")
        if request_id is None:
            return self._notified(method, params)
        try:
            return [self._request(request_id, method, _object(params, "params"))]
        except _RefusedError as refused:
            return [error(request_id, refused.code, str(refused))]

    def _notified(self, method: str, params: object) -> list[McpEvent]:
        if method != "notifications/cancelled" or not isinstance(params, Mapping):
            return []
        wanted = cast("Mapping[str, object]", params).get("requestId")
        for call, use in self._open.items():
            if same(use.request_id, wanted):
                del self._open[call]
                self._progress.pop(call, None)
                return [Withdrawn(call)]
        return []

    def _request(self, request_id: str | float, method: str, params: Mapping[str, object]) -> McpEvent:
        match method:
            case "initialize":
                return reply(request_id, self._hello(params))
            case "ping":
                return reply(request_id, {})
            case "tools/list":
                return reply(request_id, self._listed(params))
            case "tools/call":
                return self._call(request_id, params)
            case _:
                raise _RefusedError(NO_SUCH_METHOD, f"There is no method {method[:100]!r} here.")

    def _hello(self, params: Mapping[str, object]) -> McpMessage:
        wanted = params.get("protocolVersion")
        version = wanted if wanted in VERSIONS else VERSIONS[-1]
        return {"protocolVersion": version, "capabilities": {"tools": {}}, **self._about}

    def _listed(self, params: Mapping[str, object]) -> McpMessage:
        if params.get("cursor") is not None:
            raise _RefusedError(WRONG_PARAMS, "There is no such cursor: the list of tools has one page.")
        return {"tools": [self._described(tool) for tool in self._tools.values()]}

    def _described(self, tool: ServedTool) -> McpMessage:
        hints = {"annotations": {"readOnlyHint": True}} if tool.name in self._read_only else {}
        return {
            "name": tool.name,
            "description": tool.description,
            "inputSchema": {"type": "object", **tool.input_schema},
            **hints,
        }

    def _call(self, request_id: str | float, params: Mapping[str, object]) -> McpEvent:
        if any(same(use.request_id, request_id) for use in self._open.values()):
            raise _RefusedError(NOT_A_REQUEST, "A request with this id is still open.")
        tool = self._tools.get(name) if isinstance(name := params.get("name"), str) else None
        if tool is None:
            raise _RefusedError(
                WRONG_PARAMS, f"Unknown tool: {str(name)[:100]!r}. There are: {', '.join(self._tools)}."
            )
        given, meta = _object(params.get("arguments"), "arguments"), _object(params.get("_meta"), "_meta")
        arguments, faults = _check(given, tool)
        if faults:
            listed = "\n".join(f"- {fault}" for fault in faults)
            answer = error_answer(f"The arguments of {tool.name} are not what it takes:\n{listed}")
            return reply(request_id, result(answer))
        self._calls += 1
        use = McpCall(self._calls, tool.name, arguments, meta, request_id)
        self._open[use.id] = use
        return use


def _object(given: object, name: str) -> dict[str, object]:
    if given is not None and not isinstance(given, dict):
        raise _RefusedError(WRONG_PARAMS, f"{name} has to be an object.")
    return cast("dict[str, object]", given or {})


def _check(given: dict[str, object], tool: ServedTool) -> tuple[dict[str, object], list[Fault]]:
    """Arguments as the schema wants them, and where they are not; a name that it does not have is a fault too."""
    from bartack.agents.reply import Fault, check_value  # noqa: PLC0415 - a server is ready before it is needed

    arguments, faults = check_value(given, {"type": "object", **tool.input_schema})
    kept = cast("dict[str, object]", arguments)
    if tool.input_schema.get("additionalProperties") is False:
        faults += [Fault(f"$.{name}", "no such argument", "one") for name in given if name not in kept]
    return kept, faults
