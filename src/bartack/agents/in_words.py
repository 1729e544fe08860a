"""Commands to agents that take prompts and not actions: what their reply must be, and the event that it becomes."""

from __future__ import annotations

import msgspec

from bartack.agents._commands import correlation_of
from bartack.agents.contract import AgentRequest
from bartack.agents.protocol.ids import moment, new_message_id
from bartack.agents.protocol.messages import TERMINAL, Event, Source, Usage
from bartack.agents.replies import check_reply
from bartack.agents.reply import Fault, ReplyFaultsError
from bartack.core import typed


def reply_schema(action: str) -> dict[str, object]:
    """What the reply to the text of a command has to be: one of the events that end the action."""
    properties: dict[str, object] = {
        "event": {"enum": sorted(TERMINAL[action])},
        "payload": {"type": "object", "additionalProperties": {}},
    }
    required = ["event"]
    if action == "review":
        properties["status"] = {"enum": ["approved", "changes_requested"]}
        required.append("status")
    return {"type": "object", "properties": properties, "required": required}


class _Said(msgspec.Struct):
    event: str
    status: str | None = None
    payload: dict[str, object] | None = None


def answer_event(request: AgentRequest, agent: str, value: object, usage: Usage, now_us: int) -> Event:
    """The event that a reply is.

    Raises:
        ReplyFaultsError: It lacks what such an event requires.
    """
    said = typed.convert(value, type=_Said)
    event = Event(
        message_id=new_message_id(),
        correlation_id=correlation_of(request),
        idempotency_key=request.key,
        task_id=request.task_id,
        sender=Source(request.role, agent),
        event=said.event,
        status=said.status,
        payload=said.payload,
        usage=usage,
        occurred_at=moment(now_us),
    )
    problem = check_reply(event)
    if problem:
        raise ReplyFaultsError([Fault("$", problem, said.event)])
    return event
