"""What a program for coding says, as parts of the contract: its reply as an event, a permission that it needs as a question."""

from __future__ import annotations

from typing import Final

import msgspec

from bartack.agents._commands import correlation_of, task_of
from bartack.agents.contract import AgentQuestion, AgentRequest
from bartack.agents.protocol.ids import moment, new_message_id
from bartack.agents.protocol.messages import Event, Source, Usage
from bartack.agents.tool_use import ToolUse

SHOWN: Final = 200
"""Characters of what a tool is to be used with, in a question."""


def completed(
    request: AgentRequest, agent: str, text: str, value: object, usage: Usage, now_us: int
) -> Event:
    """The reply to a prompt. ``value`` counts if a schema was given; ``msgspec.UNSET``: there is none but in the text."""
    payload: dict[str, object] = {"text": text}
    if value is not msgspec.UNSET:
        payload["result"] = value
    return Event(
        message_id=new_message_id(),
        correlation_id=correlation_of(request),
        idempotency_key=request.key,
        task_id=task_of(request),
        sender=Source(request.role, agent),
        event="prompt.completed",
        payload=payload,
        usage=usage,
        occurred_at=moment(now_us),
    )


def permission_question(question_id: str, use: ToolUse, reason: str) -> AgentQuestion:
    """Whether an agent may use a tool of its own, for a person."""
    subject = " ".join(use.subject.split())[:SHOWN]
    text = f"May it use {use.tool}{f': {subject}' if subject else ''}?"
    return AgentQuestion(
        id=question_id,
        kind="permission",
        text=f"{text} ({reason})" if reason else text,
        options=["allow", "deny"],
        tool=use.tool,
        input=dict(use.input),
    )
