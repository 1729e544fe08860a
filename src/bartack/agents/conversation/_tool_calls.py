"""The tools of ours that an agent calls during a command: which calls are allowed, and which wait for their results.

How a call arrives and how its result is written is decided by the ``Dialect`` of the agent; who runs the tool, by the caller.
"""

from __future__ import annotations

from typing import Final, Literal

from bartack.agents.contract import AgentRequest, CallTool, ToolOutcome
from bartack.agents.conversation._actions import ActionQueue, CallOut
from bartack.agents.conversation._dialect import SendResult
from bartack.agents.conversation._watchdog import Watchdog
from bartack.agents.protocol._sound import find_unsound
from bartack.agents.protocol.messages import ToolProblem

OPEN_TOOLS: Final = 64
"""At most this many calls of tools may wait for their results."""


class ToolCalls:
    """The tool calls of one command.

    Each call is answered exactly once: at once with a problem, or with the outcome of its tool. The time limits of the call are
    paused while a tool runs.
    """

    def __init__(
        self, request: AgentRequest, actions: ActionQueue, watchdog: Watchdog, send_result: SendResult
    ) -> None:
        self._known = {tool.name for tool in request.tools}
        self._actions = actions
        self._watchdog = watchdog
        self._send_result = send_result
        self._open: set[str] = set()

    def is_open(self, call_id: str) -> bool:
        """Whether a call waits for its result."""
        return call_id in self._open

    def call(self, call_id: str, name: str, arguments: dict[str, object]) -> None:
        """The agent calls a tool."""
        problem = self._problem(name, arguments)
        if problem is not None:
            self._send_result(call_id, None, problem)
            return
        self._open.add(call_id)
        self._watchdog.hold(call_id)
        self._actions.report(CallTool(**self._actions.stamp(), id=call_id, tool=name, phase="started"))
        self._actions.add(CallOut(call_id, name, arguments))

    def ended(self, call_id: str, outcome: ToolOutcome) -> None:
        """A tool has ended; one whose attempt is over is ignored."""
        if call_id not in self._open:
            return
        self._open.discard(call_id)
        problem = ToolProblem(outcome.code, outcome.message) if outcome.code else None
        self._send_result(call_id, outcome.result, problem)
        phase: Literal["finished", "failed"] = "failed" if problem else "finished"
        self._actions.report(CallTool(**self._actions.stamp(), id=call_id, tool="", phase=phase))
        self._watchdog.release(call_id)

    def forget(self) -> None:
        """The attempt is over: no result is sent any longer."""
        for call_id in self._open:
            self._watchdog.release(call_id)
        self._open.clear()

    def _problem(self, name: str, arguments: dict[str, object]) -> ToolProblem | None:
        if name not in self._known:
            return ToolProblem("unknown_tool", f"there is no tool {name!r}")
        unsound = find_unsound(arguments, keyed=False, place="arguments")
        if unsound:
            return ToolProblem("invalid_arguments", unsound)
        if len(self._open) >= OPEN_TOOLS:
            return ToolProblem(
                "too_many_calls", f"{OPEN_TOOLS} calls wait already; call again when one has its result"
            )
        return None
