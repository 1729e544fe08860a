"""The tools of a step as the agent reaches them over its bridge: those of the request, ``answer`` and ``ask``. Without I/O.

The bytes come from and go to the bridge that ``_agent.py`` has opened. The protocol of tools is in ``mcp/server.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, cast

import msgspec

from bartack._version import __version__
from bartack.agents.acp._messages import SERVER
from bartack.agents.acp._prompts import ANSWER, ASK
from bartack.agents.contract import AgentAnswer, AgentQuestion, AgentRequest
from bartack.agents.conversation._conversation import Conversation
from bartack.agents.mcp.answer import ToolAnswer, error_answer
from bartack.agents.mcp.calls import McpCall, Withdrawn
from bartack.agents.mcp.lines import message_line
from bartack.agents.mcp.server import ToolServer
from bartack.agents.program._checks import free_name
from bartack.agents.program._json_lines import Json, JsonRead, member, text_of
from bartack.agents.program._tool_results import Store, tool_answer
from bartack.agents.protocol.messages import ToolProblem, ToolSpec

RECORDED: Final = "recorded"
_QUESTION: Final[dict[str, object]] = {
    "type": "object",
    "properties": {
        "question": {"type": "string"},
        "options": {"type": "array", "items": {"type": "string"}},
        "default": {"type": "string"},
    },
    "required": ["question"],
    "additionalProperties": False,
}


class StepTools:
    """The tools of one attempt.

    Args:
        talk: The call that the tools belong to.
        send: Writes to the agent over its bridge.
        connection: The number of the attempt, for calls that have no id of the agent's own.
        note_result: Called with the id, the tool and the reply of a tool that has ended, before the agent gets it; without a tool
            with the value that was given with ``answer``.
        store: Stores a result that is too long for the model.
    """

    def __init__(
        self,
        talk: Conversation[JsonRead],
        send: Callable[[bytes], None],
        connection: int,
        note_result: Callable[[str, str, str], None],
        store: Store,
    ) -> None:
        self.value: object = msgspec.UNSET
        """The value that was given with ``answer``."""
        self._talk = talk
        self._send = send
        self._connection = connection
        self._note_result = note_result
        self._store = store
        self._wraps = is_wrapped(talk.request)
        self._server = ToolServer(step_tools(talk.request), SERVER, __version__)
        self._calls: dict[str, McpCall] = {}
        """Calls of the request's tools that are open, by the id that the run knows them by."""
        self._asked: dict[str, McpCall] = {}
        """Open questions, likewise."""

    def read(self, data: bytes) -> None:
        """Bytes came over the bridge."""
        for event in self._server.read(data):
            if isinstance(event, McpCall):
                self._call(event)
            elif isinstance(event, Withdrawn):
                self._withdraw(event.id)
            else:
                self._send(message_line(event))

    def send_result(self, call_id: str, result: object, problem: ToolProblem | None) -> None:
        """A tool of the request has ended."""
        call = self._calls.pop(call_id, None)
        if call is None:
            return
        answer = tool_answer(result, problem, self._store)
        self._note_result(call_id, call.name, answer.text)
        self._reply(call, answer)

    def send_answer(self, question_id: str, answer: AgentAnswer) -> bool:
        """A person has answered; returns whether the question was one of ``ask``."""
        call = self._asked.pop(question_id, None)
        if call is None:
            return False
        refused = f"No person can be asked: {answer.refused}." if answer.refused else ""
        self._reply(call, error_answer(refused) if refused else ToolAnswer(answer.text))
        return True

    def close(self) -> None:
        """The attempt is over: nothing is answered any longer."""
        self._calls.clear()
        self._asked.clear()

    def _call(self, call: McpCall) -> None:
        talk = self._talk
        if talk.state != "running":
            self._reply(call, error_answer("this step has ended"))
            return
        talk.watchdog.progress()
        call_id = call.own_id or f"mcp-{self._connection}-{call.request_id}"
        known = {tool.name for tool in talk.request.tools}
        if call.name in known:
            self._run(call_id, call)
        elif call.name == free_name(talk.request, ANSWER):
            self.value = member(call.arguments, "value") if self._wraps else call.arguments
            self._note_result(call_id, "", msgspec.json.encode(self.value).decode())
            self._reply(call, ToolAnswer(RECORDED))
        else:
            self._ask(f"ask-{call_id}", call)

    def _run(self, call_id: str, call: McpCall) -> None:
        if call_id in self._calls:
            self._reply(call, error_answer("a call with this id is still open"))
            return
        self._calls[call_id] = call
        self._talk.tools.call(call_id, call.name, call.arguments)

    def _ask(self, question_id: str, call: McpCall) -> None:
        options = member(call.arguments, "options")
        self._asked[question_id] = call
        self._talk.questions.ask(
            AgentQuestion(
                id=question_id,
                text=text_of(call.arguments, "question"),
                options=cast("list[str]", options) if isinstance(options, list) else [],
                default=text_of(call.arguments, "default"),
            )
        )

    def _withdraw(self, number: int) -> None:
        """The agent does not wait any longer. A tool runs on to its end; a question is withdrawn."""
        for question_id, call in list(self._asked.items()):
            if call.id == number:
                del self._asked[question_id]
                self._talk.questions.withdraw(question_id)

    def _reply(self, call: McpCall, answer: ToolAnswer) -> None:
        message = self._server.answer(call.id, answer)
        if message is not None:
            self._send(message_line(message))


def step_tools(request: AgentRequest) -> list[ToolSpec]:
    """The tools that the agent of a request is offered."""
    tools = list(request.tools)
    if request.schema is not None:
        name = free_name(request, ANSWER)
        tools.append(
            ToolSpec(name, "Returns the result of the task. Call it once, at the end.", _given(request))
        )
    if request.may_ask:
        name = free_name(request, ASK)
        tools.append(
            ToolSpec(name, "Asks a person and waits for the answer, which may take long.", dict(_QUESTION))
        )
    return tools


def is_wrapped(request: AgentRequest) -> bool:
    """Whether the value that is wanted is not an object, so that it is passed as the member ``value`` of one."""
    schema = request.schema
    return schema is not None and schema.get("type") != "object"


def _given(request: AgentRequest) -> Json:
    schema = dict(request.schema or {})
    if not is_wrapped(request):
        return schema
    # References are to definitions at the root, so these have to stay there.
    shared: Json = {key: schema.pop(key) for key in ("$defs", "definitions") if key in schema}
    return {"type": "object", "properties": {"value": schema}, "required": ["value"], **shared}
