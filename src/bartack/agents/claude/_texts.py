"""The texts that a process of Claude Code gets: the prompt, or how to continue a conversation that was interrupted."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from bartack.agents.claude._own_tools import PREFIX, FinishedTool
from bartack.agents.contract import AgentRequest
from bartack.agents.program._continuation import continuation_text


def prompt_text(request: AgentRequest) -> str:
    """The prompt as it was written, and how the tools that it names are called here."""
    text = str(request.inputs.get("text", ""))
    if not request.tools:
        return text
    names = ", ".join(f"[tool {tool.name}] is {PREFIX}{tool.name}" for tool in request.tools)
    return f"{text}\n\nThe tools that this text marks have these names here: {names}."


def resumed_text(finished: Iterable[FinishedTool], delivered: Collection[str]) -> str:
    """How to continue, with the outcomes of tool calls that the model has perhaps not got."""
    return continuation_text((PREFIX + tool.name, tool.text) for tool in finished if tool.id not in delivered)


def rejection_text(why: Sequence[str]) -> str:
    """How to continue after an answer was refused: a code, and the reason."""
    code, reason = why
    return f"Your last answer was refused ({code}): {reason}\n\nCorrect this, and answer the original task again."
