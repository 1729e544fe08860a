"""Everything that happens during the call of an agent is an event of telemetry, and no text of the agent is in it."""

from __future__ import annotations

from typing import get_args

import msgspec
import pytest

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
from bartack.agents.conversation._actions import Stamp
from bartack.runtime.hub.agents.events import About, to_telemetry

ABOUT: About = {"run": "r", "worker": "main", "key": "k", "agent": "claude"}
STAMP: Stamp = {"key": "k", "at": "2026-01-01T00:00:00Z", "n": 1}
EVENTS: list[AgentEvent] = [
    CallStarted(**STAMP, pid=7, conversation="c", attempt=2, version="1", generation=1, model="m"),
    CallText(**STAMP, text="hello", parent="t1"),
    CallTool(**STAMP, id="t1", tool="Bash", phase="finished", input="{}", duration_s=0.5),
    CallPermission(**STAMP, id="t1", tool="Bash", decision="deny", by="guard"),
    CallUsage(**STAMP, usage=Usage(input_tokens=3, cost_usd=0.25)),
    CallRetry(**STAMP, code="overloaded", error="hello", attempt=1, delay_s=1.5),
    CallRateLimit(**STAMP, status="rate_limited", resets_at="2026-01-01T00:00:00Z", error="hello"),
    CallNotice(**STAMP, level="warn", text="hello", case="torn"),
    CallFinished(**STAMP, reason="completed", duration_s=2.0),
]


def test_every_event_of_a_call_has_one() -> None:
    assert {type(event) for event in EVENTS} == set(get_args(AgentEvent))


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_an_event_is_about_its_call(event: AgentEvent) -> None:
    made = to_telemetry(event, ABOUT)
    facts = msgspec.structs.asdict(made)

    assert made.name == type(event).__struct_config__.tag
    assert {name: facts[name] for name in ABOUT} == ABOUT
    assert "hello" not in facts.values()


def test_durations_are_nanoseconds() -> None:
    made = msgspec.structs.asdict(to_telemetry(EVENTS[2], ABOUT))

    assert made["duration_ns"] == 500_000_000
