"""The messages of line protocol version 1, one type each. What is read and what is written is decoded and encoded with these.

A required member has no default. An optional one is left out when it is absent, and ``null`` means absent. Members are written in
the order in which they stand here. ``lines.py`` turns them into lines and back.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

PROTOCOL: Final = 1

Role = Literal["builder", "reviewer", "spec_maintainer", "orchestration", "general"]
Sender = Literal["builder", "reviewer", "spec_maintainer", "orchestration", "general", "system"]
Cause = Literal["first", "resend", "failed", "rejected"]
Reason = Literal["user", "deadline", "stalled", "budget", "session_failed", "superseded"]

Id = Annotated[str, Meta(min_length=1, max_length=128)]
Moment = Annotated[
    str, Meta(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?Z$", description="RFC 3339, UTC")
]
Sum = Annotated[str, Meta(pattern="^sha256:[0-9a-f]{64}$")]
Count = Annotated[int, Meta(ge=0, le=2**53 - 1)]
Amount = Annotated[float, Meta(ge=0, le=1e12)]


class Part(msgspec.Struct, omit_defaults=True, frozen=True):
    """A part of a message."""


class Party(Part, frozen=True):
    """Whom a command is for."""

    agent_type: Role
    agent_id: Id


class Source(Part, frozen=True):
    """Whom a message is from."""

    agent_type: Sender
    agent_id: Id | None = None


class ExpectedOutput(Part, frozen=True):
    """A file that an agent is asked to leave."""

    path: str
    required: bool
    description: str | None = None


class Version(Part, frozen=True):
    """Which files are meant: a snapshot, and the sum of the spec file where there is one."""

    snapshot_id: str
    specs_hash: str | None = None


class Retry(Part, frozen=True):
    """Which attempt this is, and why there is another."""

    attempt: Annotated[int, Meta(ge=1)]
    max_attempts: Annotated[int, Meta(ge=1)]
    cause: Cause
    code: str | None = None
    message: str | None = None


class Budget(Part, frozen=True):
    """What is reserved for a command; what is absent has no cap."""

    usd: Amount | None = None
    tokens: Count | None = None
    turns: Count | None = None
    wall_s: Amount | None = None


class ToolSpec(Part, frozen=True):
    """A tool that the agent may call."""

    name: Id
    description: str
    input_schema: dict[str, object]


class ToolProblem(Part, frozen=True):
    """Why a tool has no result."""

    code: str
    message: str


class Artifact(Part, frozen=True):
    """A file that an agent says it has left."""

    path: str
    sha256: Sum
    size: Count


class Usage(Part, frozen=True):
    """What a command has used so far: totals, never increments."""

    input_tokens: Count | None = None
    output_tokens: Count | None = None
    cache_read_tokens: Count | None = None
    cache_write_tokens: Count | None = None
    turns: Count | None = None
    cost_usd: Amount | None = None

    @property
    def tokens(self) -> int:
        """All tokens together."""
        counted = (self.input_tokens, self.output_tokens, self.cache_read_tokens, self.cache_write_tokens)
        return sum(count or 0 for count in counted)


class Abilities(Part, frozen=True):
    """What an agent says that it can do."""

    dedupe: bool = False
    dedupe_across_restarts: bool = False
    cancel: bool = False
    heartbeat: bool = False
    tools: bool = False


class Stats(Part, frozen=True):
    """What a process uses."""

    cpu_pct: Amount | None = None
    rss_bytes: Count | None = None


class Finding(Part, frozen=True):
    """Something a reviewer wants changed."""

    message: Annotated[str, Meta(pattern=r"\S")]
    id: str | None = None
    severity: Literal["blocker", "major", "minor", "note"] | None = None
    path: str | None = None
    line: int | None = None
    suggestion: str | None = None


# To the agent.


class Message(msgspec.Struct, omit_defaults=True, frozen=True, kw_only=True, tag_field="kind"):
    """One line."""


class Command(Message, frozen=True, kw_only=True, tag="command"):
    """Something to do."""

    protocol: Literal[1]
    message_id: Id
    correlation_id: Id
    run_id: Id
    task_id: str
    idempotency_key: Id
    to: Party
    action: Id
    inputs: dict[str, object]
    expected_outputs: list[ExpectedOutput]
    version: Version
    deadline: Moment
    retry: Retry
    budget: Budget | None = None
    conversation: Id
    tools: list[ToolSpec] | None = None
    priority: Annotated[int, Meta(ge=0, le=9)]


class Cancel(Message, frozen=True, kw_only=True, tag="cancel"):
    """Stop working on a command."""

    message_id: Id
    correlation_id: Id
    reason: Reason
    message: str | None = None


class ToolResult(Message, frozen=True, kw_only=True, tag="tool_result"):
    """What became of a tool call."""

    message_id: Id
    correlation_id: Id
    call_id: Id
    ok: bool
    result: object = None
    error: ToolProblem | None = None


class Notice(Message, frozen=True, kw_only=True, tag="notice"):
    """A line of the agent could not be used."""

    message_id: Id
    correlation_id: Id | None = None
    code: str
    message: Annotated[str, Meta(max_length=512)]


# From the agent.


class Hello(Message, frozen=True, kw_only=True, tag="hello"):
    """The agent introduces itself."""

    protocol: list[int]
    agent: Source | None = None
    name: str
    version: str
    capabilities: Abilities | None = None


class Event(Message, frozen=True, kw_only=True, tag="event"):
    """Something happened to a command."""

    message_id: Id
    correlation_id: Id
    in_reply_to: Id | None = None
    idempotency_key: Id | None = None
    task_id: str
    sender: Source = msgspec.field(name="from")
    event: Id
    status: str | None = None
    payload: dict[str, object] | None = None
    artifacts: list[Artifact] | None = None
    observed_version: Version | None = None
    usage: Usage | None = None
    replayed: bool | None = None
    occurred_at: Moment


class Heartbeat(Message, frozen=True, kw_only=True, tag="heartbeat"):
    """The agent lives."""

    agent: Source
    seq: Count
    status: Literal["starting", "ready", "busy", "stopping", "backoff"]
    pid: Annotated[int, Meta(ge=1)]
    ppid: int | None = None
    uptime_s: Amount
    last_activity_at: Moment
    task_id: str | None = None
    stats: Stats | None = None


class Log(Message, frozen=True, kw_only=True, tag="log"):
    """The agent says something to people."""

    level: Literal["debug", "info", "warn", "error"]
    message: str
    fields: dict[str, object] | None = None
    timestamp: Moment
    correlation_id: Id | None = None


class ToolCall(Message, frozen=True, kw_only=True, tag="tool_call"):
    """The agent calls a tool."""

    message_id: Id
    correlation_id: Id
    call_id: Id
    name: str
    arguments: dict[str, object]
    timestamp: Moment


ToAgent = Command | Cancel | ToolResult | Notice
FromAgent = Hello | Event | Heartbeat | Log | ToolCall

TO_AGENT: Final[dict[str, type[ToAgent]]] = {
    "command": Command,
    "cancel": Cancel,
    "tool_result": ToolResult,
    "notice": Notice,
}
FROM_AGENT: Final[dict[str, type[FromAgent]]] = {
    "hello": Hello,
    "event": Event,
    "heartbeat": Heartbeat,
    "log": Log,
    "tool_call": ToolCall,
}

# What ends which action, and who does it.

ROLES: Final[dict[str, Role]] = {
    "implement": "builder",
    "implement_changes": "builder",
    "review": "reviewer",
    "update_spec": "spec_maintainer",
    "intake": "orchestration",
    "task_discovery": "orchestration",
}
"""The role of each action; a prompt goes to any."""

_PROPOSALS: Final = frozenset(
    {"orchestration.proposed_tasks", "orchestration.needs_clarification", "orchestration.plan_conflict"}
)
TERMINAL: Final[dict[str, frozenset[str]]] = {
    "implement": frozenset({"builder.completed"}),
    "implement_changes": frozenset({"builder.completed"}),
    "review": frozenset({"review.completed"}),
    "update_spec": frozenset({"spec.updated", "spec.no_changes_needed", "spec.changes_requested"}),
    "intake": _PROPOSALS,
    "task_discovery": _PROPOSALS,
    "prompt": frozenset({"prompt.completed"}),
}
"""The events that end an action well; ``error`` ends every action."""

ENDING: Final = frozenset({"error"}).union(*TERMINAL.values())
PASSING: Final = frozenset({"progress", "builder.progress", "artifact.produced"})
DEADLINES_S: Final[dict[str, float]] = {
    "implement": 3600.0,
    "implement_changes": 3600.0,
    "review": 900.0,
    "update_spec": 600.0,
    "intake": 300.0,
    "task_discovery": 300.0,
    "prompt": 3600.0,
}
