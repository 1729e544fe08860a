"""The call of an agent for people: attempts, what the agent said, its tools, decisions and cost, one line each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from bartack.agents import AgentEvent, Usage
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
from bartack.cli.app._terminal import Screen, human_time, printable
from bartack.runtime.rundir.call_transcript import CallTranscript

INPUT: Final = 200
"""Characters of the input of a tool that are shown."""
TEXT: Final = 2000
"""Characters of one thing that the agent said that are shown."""


def write_call(screen: Screen, call: CallTranscript) -> None:
    """Write the transcript of a call; nothing if there is none."""
    if not call.events:
        return
    screen.line()
    screen.line(screen.paint(f"Call of agent {printable(call.agent)}", "bold"))
    if call.left_out:
        screen.line(screen.paint(f"  {call.left_out:,} older events are left out", "dim"))
    for event in _shown(call.events):
        what, text = _describe(event)
        moment = screen.paint(event.at[11:23], "dim")
        first, *rest = text.splitlines() or [""]
        screen.line(f"  {moment}  {what:<10}  {printable(first)}".rstrip())
        for line in rest:
            screen.line(f"{'':28}{printable(line)}")


def _shown(events: tuple[AgentEvent, ...]) -> Iterator[AgentEvent]:
    """The events with the names of their tools. Usage is cumulative: only what an attempt has used at its end is shown."""
    used: AgentEvent | None = None
    names = {event.id: event.tool for event in events if isinstance(event, CallTool) and event.tool}
    for event in events:
        if isinstance(event, CallTool) and not event.tool:
            yield msgspec.structs.replace(event, tool=names.get(event.id, event.id))
            continue
        if isinstance(event, CallUsage):
            used = event
            continue
        ends = isinstance(event, CallRetry | CallFinished) and not getattr(event, "own", False)
        if ends and used is not None:
            yield used
            used = None
        yield event
    if used is not None:
        yield used


def _describe(event: AgentEvent) -> tuple[str, str]:  # noqa: PLR0911 - one for each kind of event
    match event:
        case CallStarted():
            parts = [
                f"process {event.pid}" if event.pid else "",
                event.version,
                event.model,
                f"conversation {event.conversation}" if event.conversation else "",
                f"begun anew {event.generation} times" if event.generation else "",
            ]
            return "attempt", f"{event.attempt}: {', '.join(part for part in parts if part)}"
        case CallText():
            return "subagent" if event.parent else "text", _cut(event.text, TEXT)
        case CallTool(phase="started"):
            return "tool", f"{event.tool} {_cut(event.input, INPUT)}".rstrip()
        case CallTool():
            return "tool", f"{event.tool} {event.phase} after {human_time(event.duration_s)}"
        case CallPermission():
            decided = {"allow": "allowed", "deny": "denied", "asked": "asked"}[event.decision]
            return "permission", f"{event.tool} {decided} by {event.by}"
        case CallUsage():
            return "used", _usage(event.usage)
        case CallRetry():
            who = "the agent repeats a request" if event.own else f"attempt {event.attempt} ended"
            return "retry", f"{who}: {_cut(event.error, TEXT)} [{event.code}]"
        case CallRateLimit():
            return "limit", f"{event.status} until {event.resets_at}: {_cut(event.error, TEXT)}"
        case CallNotice():
            return "notice", _cut(event.text, TEXT)
        case CallFinished():
            return "end", f"{event.reason} after {human_time(event.duration_s)}"


def _usage(usage: Usage) -> str:
    parts = [f"{usage.input_tokens or 0:,} tokens in, {usage.output_tokens or 0:,} out"]
    if usage.turns:
        parts.append(f"{usage.turns} replies" if usage.turns > 1 else "1 reply")
    if usage.cost_usd is not None:
        parts.append(f"{usage.cost_usd:.4f} USD")
    return ", ".join(parts)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}… ({len(text):,} characters)"
