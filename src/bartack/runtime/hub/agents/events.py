"""What happens during the calls of agents, as events of telemetry. Texts never appear in them, only their sizes."""

from __future__ import annotations

from typing import TypedDict

from bartack.agents import AgentEvent
from bartack.agents.contract import (
    CallFinished,
    CallNotice,
    CallPermission,
    CallRateLimit,
    CallRetry,
    CallStarted,
    CallText,
    CallTool,
    CallUsage,
)
from bartack.telemetry import catalogue as t


class About(TypedDict):
    """Which call an event is about."""

    run: str
    worker: str
    key: str
    agent: str


def to_telemetry(event: AgentEvent, about: About) -> t.Event:  # noqa: PLR0911 - one line for each event
    """The event of telemetry for what happened during a call."""
    match event:
        case CallStarted():
            return t.AgentStarted(
                **about,
                attempt=event.attempt,
                pid=event.pid,
                conversation=event.conversation,
                generation=event.generation,
                version=event.version,
                model=event.model,
            )
        case CallText(text=text, parent=parent):
            return t.AgentText(**about, size_bytes=len(text.encode()), parent=parent)
        case CallTool(id=call_id, tool=tool, phase=phase, duration_s=took_s):
            return t.AgentTool(**about, id=call_id, tool=tool, phase=phase, duration_ns=int(took_s * 1e9))
        case CallPermission(id=call_id, tool=tool, decision=decision, by=by):
            return t.AgentPermission(**about, id=call_id, tool=tool, decision=decision, by=by)
        case CallUsage():
            return _usage(event, about)
        case CallRetry(attempt=attempt, code=code, delay_s=delay_s):
            return t.AgentRetry(**about, attempt=attempt, delay_ns=int(delay_s * 1e9), code=code)
        case CallRateLimit(status=status, resets_at=resets_at):
            return t.AgentRateLimit(**about, status=status, resets_at=resets_at)
        case CallNotice(level=level, text=text, case=case):
            return t.AgentNotice(**about, size_bytes=len(text.encode()), level=level, case=case)
        case CallFinished(reason=reason, duration_s=took_s):
            return t.AgentFinished(**about, duration_ns=int(took_s * 1e9), reason=reason)


def _usage(event: CallUsage, about: About) -> t.AgentUsage:
    usage = event.usage
    return t.AgentUsage(
        **about,
        input_tokens=usage.input_tokens or 0,
        output_tokens=usage.output_tokens or 0,
        cache_read_tokens=usage.cache_read_tokens or 0,
        cache_write_tokens=usage.cache_write_tokens or 0,
        turns=usage.turns or 0,
        cost_usd=usage.cost_usd or 0.0,
    )
