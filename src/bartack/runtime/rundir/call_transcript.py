"""What the transcripts of a run's agents have of one step. They are without secrets already; raw streams and homes are never read.

``bartack show RUN STEP`` prints it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

import msgspec

from bartack.agents import AgentEvent
from bartack.core import typed
from bartack.runtime.rundir.layout import RunDir

EVENTS: Final = 2000
"""The newest events of a call that are kept."""

_decode: Final = typed.decoder(AgentEvent).decode


class CallTranscript(NamedTuple):
    """What happened during the call of a step.

    Attributes:
        agent: The agent that was asked; empty if none was.
        events: What its transcript has of the step, in order.
        left_out: How many older events are left out.
    """

    agent: str = ""
    events: tuple[AgentEvent, ...] = ()
    left_out: int = 0


def read_call(run: RunDir, wanted: Iterable[str]) -> CallTranscript:
    """The transcript of a call, which has one of the wanted keys. Lines that cannot be read are left out."""
    keys = {key.encode() for key in wanted}
    for path in sorted(run.agents.glob("*/transcript.ndjson")):
        with path.open("rb") as file:
            read = [_event(line, keys) for line in file if any(key in line for key in keys)]
        events = [event for event in read if event is not None]
        if events:
            return CallTranscript(path.parent.name, tuple(events[-EVENTS:]), max(len(events) - EVENTS, 0))
    return CallTranscript()


def _event(line: bytes, keys: set[bytes]) -> AgentEvent | None:
    try:
        event = _decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return event if event.key.encode() in keys else None
