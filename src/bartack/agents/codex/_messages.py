"""What is sent to Codex's app server: parameters of its methods, tools of ours, and the texts of prompts. Pure.

The form of each message is checked against the schema that the program itself writes, in the tests with the real program.
"""

from __future__ import annotations

from typing import Final

import msgspec

from bartack._version import __version__
from bartack.agents._permissions import Mode
from bartack.agents.codex._schema import ValuePlan
from bartack.agents.contract import AgentRequest
from bartack.agents.program._checks import free_name
from bartack.agents.program._json_lines import Json
from bartack.core.canonical_json import canonical

LOGIN: Final = "account/login/start"
"""The one request with a secret in it: it is never copied."""
ASK: Final = "ask"
ANSWER: Final = "answer"

SANDBOXES: Final[dict[Mode, str]] = {
    "read": "read-only",
    "edit": "workspace-write",
    "auto": "workspace-write",
    "ask": "workspace-write",
    "all": "danger-full-access",
}
"""The sandbox of Codex for each mode. In every mode it asks before each command and each change of a file."""
ASKS: Final = "untrusted"
"""The policy of approvals with which Codex asks before everything that is not harmless."""

REFUSED: Final = "Your last answer was refused: {why}. Correct that, and finish the original task."

_ASK_SCHEMA: Final[Json] = {
    "type": "object",
    "properties": {
        "question": {"type": "string", "description": "What a person is asked."},
        "options": {"type": "array", "items": {"type": "string"}, "description": "What can be answered; without: any text."},
        "default": {"type": "string", "description": "What counts if there is no person to ask."},
    },
    "required": ["question"],
    "additionalProperties": False,
}  # fmt: skip


class CodexPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What one call asks of Codex, over all its attempts.

    Attributes:
        request: What the agent is asked.
        value: How a value is asked for.
        mode: What it may do.
        model: The model; empty: its own choice.
        effort: How much effort the model makes; empty: its own choice.
        may_ask: It may ask people.
    """

    request: AgentRequest
    value: ValuePlan = ValuePlan()
    mode: Mode = "edit"
    model: str = ""
    effort: str = ""
    may_ask: bool = False

    @property
    def ask_tool(self) -> str:
        """What the tool is called that asks a person; the tools of the step keep their names."""
        return free_name(self.request, ASK)

    @property
    def answer_tool(self) -> str:
        """What the tool is called that takes the value."""
        return free_name(self.request, ANSWER)


def initialize() -> Json:
    """The first message. Without the experimental methods there are no tools of ours."""
    return {
        "clientInfo": {"name": "bartack", "title": "Bartack", "version": __version__},
        "capabilities": {"experimentalApi": True},
    }


def login_params(key: str) -> Json:
    """The parameters of ``account/login/start``."""
    return {"type": "apiKey", "apiKey": key}


def thread_params(plan: CodexPlan) -> Json:
    """What a thread is started, resumed and forked with, tools not included."""
    given: Json = {"cwd": plan.request.cwd, "sandbox": SANDBOXES[plan.mode], "approvalPolicy": ASKS}
    if plan.model:
        given["model"] = plan.model
    if plan.request.system:
        given["developerInstructions"] = plan.request.system
    return given


def start_params(plan: CodexPlan) -> Json:
    """The parameters of ``thread/start``."""
    tools = tool_specs(plan)
    return {**thread_params(plan), **({"dynamicTools": tools} if tools else {})}


def resume_params(plan: CodexPlan, thread: str) -> Json:
    """The parameters of ``thread/resume``. The thread keeps its tools."""
    return {**thread_params(plan), "threadId": thread}


def fork_params(plan: CodexPlan, thread: str) -> Json:
    """The parameters of ``thread/fork``. The new thread has the tools of the one that is forked, and no others."""
    return {**thread_params(plan), "threadId": thread}


def turn_params(plan: CodexPlan, thread: str, text: str, client_id: str) -> Json:
    """The parameters of ``turn/start``."""
    given: Json = {
        "threadId": thread,
        "input": [{"type": "text", "text": text}],
        "clientUserMessageId": client_id,
    }
    if plan.effort:
        given["effort"] = plan.effort
    if plan.value.output_schema is not None:
        given["outputSchema"] = plan.value.output_schema
    return given


def steer_params(thread: str, turn: str, text: str, client_id: str) -> Json:
    """The parameters of ``turn/steer``: a text that the model reads before its next reply."""
    return {
        "threadId": thread,
        "expectedTurnId": turn,
        "input": [{"type": "text", "text": text}],
        "clientUserMessageId": client_id,
    }


def tool_specs(plan: CodexPlan) -> list[Json]:
    """The tools of ours: those of the step, and what Codex has none for."""
    specs = [_tool(tool.name, tool.description, tool.input_schema) for tool in plan.request.tools]
    if plan.may_ask:
        specs.append(_tool(plan.ask_tool, "Ask a person, and wait for the answer.", _ASK_SCHEMA))
    if plan.value.answer_schema is not None:
        text = "Return the final answer of the task. Call it once, when everything else is done."
        specs.append(_tool(plan.answer_tool, text, plan.value.answer_schema))
    return specs


def _tool(name: str, description: str, schema: Json) -> Json:
    return {"type": "function", "name": name, "description": description, "inputSchema": schema}


def prompt_text(plan: CodexPlan) -> str:
    """The text of the prompt, with what its tools are called."""
    text = plan.request.inputs.get("text")
    parts = [text if isinstance(text, str) else ""]
    if plan.request.tools:
        parts.append("Where this text names [tool NAME], call the tool NAME.")
    if plan.value.in_text:
        schema = result_text(plan.value.schema)
        parts.append(
            f"Reply with a JSON value that satisfies this JSON Schema, and with nothing else: {schema}"
        )
    if plan.value.answer_schema is not None:
        parts.append(f"When you are done, return the value by calling the tool {plan.answer_tool}.")
    return "\n\n".join(parts)


def tool_reply(text: str, *, success: bool) -> Json:
    """The answer to a call of a tool of ours."""
    return {"success": success, "contentItems": [{"type": "inputText", "text": text}]}


def result_text(result: object) -> str:
    """A value as the model reads it.

    Raises:
        CanonicalJsonError: It is not one that JSON has.
    """
    return canonical(result).decode()
