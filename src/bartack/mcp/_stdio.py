"""The loop of ``bartack mcp``: lines from standard input, replies to standard output, one thread for each open call.

Calls may wait for long, so none holds up another one. The end of the input ends the process at once: runs are not affected.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Final, Protocol

from bartack._version import __version__
from bartack.agents.mcp.answer import ToolAnswer, error_answer, object_answer
from bartack.agents.mcp.calls import McpCall, McpEvent, Withdrawn
from bartack.agents.mcp.lines import message_line
from bartack.agents.mcp.rpc import McpMessage
from bartack.agents.mcp.server import ToolServer
from bartack.errors import BartackError
from bartack.mcp._errors import ToolError, explain
from bartack.mcp._tools import INSTRUCTIONS, ListedEntry, RunTool, run_tools

CHUNK: Final = 65_536
MOST_CALLS: Final = 64
"""A client with more open calls than this gets an error for the next one."""


class OpenCall(Protocol):
    """What a tool needs to know of the call that it works for."""

    @property
    def own_id(self) -> str:
        """What the agent calls this call; empty if it has no name."""
        ...

    @property
    def withdrawn(self) -> bool:
        """Whether the client does not wait any more."""
        ...

    def progress(self, text: str) -> None:
        """Show the client a sign of life."""
        ...


class Service(Protocol):
    """What the tools do. Each method may be called from any thread."""

    def entries(self) -> Sequence[ListedEntry]:
        """What can be started."""
        ...

    def call(self, name: str, arguments: dict[str, object], call: OpenCall) -> dict[str, object]:
        """Execute a tool.

        Raises:
            ToolError: It cannot be done.
        """
        ...

    def answered(self, name: str, result: dict[str, object], call: OpenCall) -> None:
        """The client was sent the result of a call, unless it had withdrawn the call."""
        ...


def serve_stdio(open_service: Callable[[], Service], *, read_only: bool = False) -> None:
    """Serve a client on standard input and output until the input ends.

    Args:
        open_service: Makes what the tools do; called when a client first asks for tools.
        read_only: Offer only tools that change nothing.
    """
    # Whatever else writes to standard output must not come between the messages.
    out = os.dup(1)
    os.dup2(2, 1)
    _Connection(open_service, out, read_only=read_only).run()


class _Connection:
    """The one client of this process."""

    def __init__(self, open_service: Callable[[], Service], out: int, *, read_only: bool) -> None:
        self._open_service = open_service
        self._read_only = read_only
        self._out = out
        self._lock = threading.RLock()
        """Held while the state of the protocol changes, and while a line is written."""
        names = {tool.name for tool in run_tools([], read_only=True)}
        self._server = ToolServer(
            self._list_tools, "bartack", __version__, instructions=INSTRUCTIONS, read_only=names
        )
        self._calls: dict[int, _Call] = {}

    @cached_property
    def _service(self) -> Service:
        return self._open_service()

    def run(self) -> None:
        """Serve until the end of the input."""
        while data := os.read(0, CHUNK):
            with self._lock:
                for event in self._server.read(data):
                    self._handle(event)

    def _list_tools(self) -> Sequence[RunTool]:
        return run_tools(self._service.entries(), read_only=self._read_only)

    def _handle(self, event: McpEvent) -> None:
        if isinstance(event, McpCall):
            self._begin(event)
        elif isinstance(event, Withdrawn):
            self._calls.pop(event.id).withdraw()
        else:
            self._write(event)

    def _begin(self, use: McpCall) -> None:
        if len(self._calls) >= MOST_CALLS:
            self._reply(use.id, error_answer(f"{MOST_CALLS} calls are open; wait for one of them."))
            return
        call = self._calls[use.id] = _Call(use, self._progress)
        threading.Thread(  # bartack: allow[unsupervised_thread] it ends with its call, or with this process
            target=self._work, args=(call,), name=f"bartack {use.name}", daemon=True
        ).start()

    def _work(self, call: _Call) -> None:
        """Execute one call, in a thread of its own."""
        service, use = self._service, call.use
        result: dict[str, object] | None = None
        try:
            result = service.call(use.name, use.arguments, call)
            answer = object_answer(result)
        except ToolError as problem:
            answer = error_answer(str(problem))
        except BartackError as problem:
            answer = error_answer(explain(problem))
        except Exception as problem:  # noqa: BLE001 - the boundary of a call: the client gets every error
            answer = error_answer(f"{type(problem).__name__}: {problem}")
        with self._lock:
            self._calls.pop(use.id, None)
            sent = self._reply(use.id, answer)
        if sent and result is not None:
            service.answered(use.name, result, call)

    def _reply(self, call: int, answer: ToolAnswer) -> bool:
        reply = self._server.answer(call, answer)
        if reply is not None:
            self._write(reply)
        return reply is not None

    def _progress(self, call: int, text: str) -> None:
        with self._lock:
            message = self._server.progress(call, text)
            if message is not None:
                self._write(message)

    def _write(self, message: McpMessage) -> None:
        rest = memoryview(message_line(message))
        try:
            while rest:
                rest = rest[os.write(self._out, rest) :]
        except BrokenPipeError:
            os._exit(0)  # the client is gone; nothing here outlives it, and runs are elsewhere


class _Call:
    """See ``OpenCall``."""

    def __init__(self, use: McpCall, progress: Callable[[int, str], None]) -> None:
        self.use = use
        self.own_id = use.own_id
        self.withdrawn = False
        self._progress = progress

    def withdraw(self) -> None:
        """The client does not wait any more."""
        self.withdrawn = True

    def progress(self, text: str) -> None:
        """See ``OpenCall.progress``."""
        self._progress(self.use.id, text)
