"""The texts that a program with a session gets: the task, and how a value is to be returned."""

from __future__ import annotations

from typing import Final

from bartack.agents.acp._messages import SERVER
from bartack.agents.contract import AgentRequest
from bartack.agents.program._checks import free_name
from bartack.agents.program._json_lines import text_of

ANSWER: Final = "answer"
"""The tool that takes a value where the agent cannot be held to a schema."""
ASK: Final = "ask"
"""The tool that asks a person."""


def task_text(request: AgentRequest) -> str:
    """The whole task: instructions, the text of the prompt, and how the tools of the step are called here."""
    system = request.system or text_of(request.inputs, "context", "system")
    text = text_of(request.inputs, "text")
    parts = [system, text, tool_text(request), answer_text(request)]
    return "\n\n".join(part for part in parts if part)


def tool_text(request: AgentRequest) -> str:
    """What marks such as ``[tool do_1]`` in a prompt mean for this agent; empty if there are no tools."""
    if not request.tools:
        return ""
    names = ", ".join(tool.name for tool in request.tools)
    return (
        f"A mark such as [tool {request.tools[0].name}] in this text stands for a tool of the MCP server {SERVER!r}. "
        f"It has these tools: {names}. Call such a tool exactly where the text says so."
    )


def answer_text(request: AgentRequest) -> str:
    """How a value is to be returned; empty if text is wanted."""
    if request.schema is None:
        return ""
    name = free_name(request, ANSWER)
    return (
        f"Return the result by calling the tool {name!r} of the MCP server {SERVER!r} with it. If you cannot call that "
        "tool, end your reply with the result as JSON in a block fenced as json."
    )
