"""Calls of agents, and what was said in them."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from bartack.runtime.protocol.steps import UsageFacts
from bartack.web.models._model import At, ErrorText, Model, Row, Seconds, Seq, Shown, Usd


class Call(Model, frozen=True, kw_only=True):
    """A call of an agent: the step of a prompt."""

    row: Row
    key: str
    agent: str = ""
    conversation: Annotated[str, Meta(description="What the agent's own session is called.")] = ""
    p: str
    n: int
    worker: str
    action: Annotated[
        str, Meta(description="What the pipeline asks for; empty: it is a prompt of a program.")
    ] = ""
    task: str = ""
    about: str = ""
    attempt: int = 1
    status: Literal["open", "finished", "failed", "undone", "aborted"]
    began_at: At
    ended_at: At = 0
    took_s: Seconds | None = None
    usd: Usd = 0.0
    tokens: int = 0
    usage: UsageFacts | None = None
    prompt_chars: int = 0
    seq_from: Seq
    seq_to: Seq = 0
    error: ErrorText | None = None


class Calls(Model, frozen=True, kw_only=True):
    """The calls of agents, the newest last."""

    calls: list[Call]
    next: Annotated[
        int, Meta(description="Give it as `before` to get the calls before these; 0: there are none.")
    ] = 0
    seq: Seq


LineData = Annotated[
    dict[str, object],
    Meta(
        description="`n`, `at`, `event` and more, as in `transcript.ndjson`; raw: `n`, `at`, `dir`, `bytes` and `line`."
    ),
]


class Reply(Model, frozen=True, kw_only=True):
    """What a call of an agent came to, as a page shows it: a text, a value, or the whole outcome."""

    run: str
    seq: Seq = 0
    shown: Annotated[Shown | None, Meta(description="Absent while the call is open.")] = None
    text: str = ""
    value: object = None


class Talk(Model, frozen=True, kw_only=True):
    """One call of an agent: what it was asked, and the lines of its transcript."""

    call: Call
    prompt: Shown | None = None
    reply: Shown | None = None
    lines: list[LineData] = []
    next: Annotated[int, Meta(description="Give it as `after` to get the lines after these.")] = 0
    more: Annotated[bool, Meta(description="Whether there are lines after these already.")] = False
    left_out: Annotated[
        int, Meta(description="Lines before these that are left out, because there are too many.")
    ] = 0


SaidKind = Literal[
    "started",
    "text",
    "tool",
    "permission",
    "usage",
    "retry",
    "rate_limit",
    "notice",
    "finished",
    "wire",
    "other",
]

SaidPhase = Literal["", "started", "finished", "failed"]


class SaidLine(Model, frozen=True, kw_only=True):
    """A line of a call, as a page shows it."""

    n: int
    at: At = 0
    kind: SaidKind
    text: str = ""
    tool: str = ""
    phase: SaidPhase = ""
    input: Annotated[str, Meta(description="What a tool was called with.")] = ""
    took_s: Seconds | None = None
    usage: UsageFacts | None = None
    facts: Annotated[list[tuple[str, str]], Meta(description="What else it says.")] = []
