"""What ``Spans`` (``spans.py``) returns: steps, messages, questions and workers as spans, and the bars and marks of a timeline.

A span lasts from one entry of the journal to another: ``from_seq`` is the entry that opened it, ``to_seq`` the one that closed
it (0: it is open). It contains entry ``seq`` if it is open after that entry: ``from_seq <= seq < to_seq``. A step of which the
journal has only the outcome has ``from_seq == to_seq``, and contains no entry. All times are microseconds since 1970, UTC; 0
means never.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import msgspec

from bartack.messaging import Overflow
from bartack.messaging.mailboxes import CAPACITY, MAX_BYTES
from bartack.runtime.protocol.steps import UsageFacts
from bartack.runtime.state.timeline import StepStatus

Began = Literal["exact", "after"]
"""Whether the beginning of a step is known, or only that it was after this moment."""

StayStatus = Literal["scheduled", "queued", "held", "received", "dead", "dropped", "withdrawn"]
"""Where a message is, or how it left its mailbox. ``dropped``: the mailbox was full."""

LifeStatus = Literal["running", "completed", "failed", "cancelled", "aborted", "undone"]
"""How a worker is: ``aborted`` if it ended because of another worker, ``undone`` if it was removed from the run."""

MarkKind = Literal["crash", "resume", "failure", "question", "answer", "end"]


class ErrorFacts(NamedTuple):
    """What failed, in short. All of it is in the entry of the outcome."""

    type: str
    """``module:QualifiedName``."""
    message: str
    """Its beginning."""
    code: str = ""


class StepSpan(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One step, or one call of a tool (kind ``tool``, number 0). ``row`` names it for as long as its ``Spans`` exists."""

    row: int
    p: str
    """The worker's path, or that of a branch of it."""
    n: int
    worker: str
    """The path of its worker."""
    kind: str
    status: StepStatus
    """As of the entry that was asked for."""
    about: str = ""
    from_seq: int
    to_seq: int = 0
    began_us: int
    began: Began = "exact"
    ended_us: int = 0
    attempt: int = 1
    """The attempt that was under way, as of the entry that was asked for."""
    due_us: int = 0
    """When a timer fires, or when the next attempt begins."""
    timeout_s: float | None = None
    usd: float = 0.0
    tokens: int = 0
    reserved_usd: float = 0.0
    by: str = ""
    """Who answered a question."""
    question: str = ""
    once: bool = False
    cleanup: bool = False
    error: ErrorFacts | None = None

    @property
    def name(self) -> str:
        """How a person names the step: path and number."""
        return f"{self.p}:{self.n}"

    @property
    def took_us(self) -> int | None:
        """How long it took, if it is over and its beginning is known."""
        return self.ended_us - self.began_us if self.ended_us and self.began == "exact" else None


class MessageSpan(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One message, from the entry that sent it to the one that removed it from its mailbox."""

    row: int
    id: str
    mailbox: str
    status: StayStatus
    """As of the entry that was asked for."""
    sender: str = ""
    receiver: str = ""
    topic: str = ""
    size: int = 0
    from_seq: int
    """The entry that sent it; its value is the message."""
    sent_us: int
    to_seq: int = 0
    """The entry that removed it from its mailbox."""
    ended_us: int = 0
    attempts: int = 0
    """How often it was handed to a receiver that has to acknowledge it."""
    reason: str = ""
    """Why it is dead, dropped or returned."""


class QuestionSpan(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One question of a program or of an agent, while it is open."""

    row: int
    id: str
    """Its number, such as ``q4``."""
    worker: str
    p: str
    n: int
    """The step: the question itself, or the prompt of the agent that asks."""
    from_seq: int
    to_seq: int = 0
    asked_seq: int
    """The entry whose value is the question: ``AskArgs``, or ``AgentAsk`` if an agent asks."""
    asked_us: int
    ended_us: int = 0
    by_agent: bool = False
    agent: str = ""
    about: str = ""
    kind: Literal["ask", "permission"] = "ask"
    """Whether it is a question, or whether an agent may use a tool."""
    tool: str = ""
    timeout_s: float | None = None
    """How long a question of an agent waits; that of a program is a step, which has its own."""


class WorkerSpan(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One life of a worker: from its start, or from when it was set back after a failure, to its end."""

    row: int
    path: str
    worker: str
    """``module:name``."""
    parent: tuple[str, int]
    """The step that made it; an empty path for the first worker."""
    status: LifeStatus
    """As of the entry that was asked for."""
    spawned_seq: int
    """The entry that made it; its value is the arguments."""
    from_seq: int
    to_seq: int = 0
    since_us: int
    ended_us: int = 0
    error: ErrorFacts | None = None
    label: str = ""
    """What people call it: its name and its first short argument."""
    arguments: str = ""
    """What it was called with, in one line, cut."""
    steps: int = 0
    """How many of its steps had an outcome, as of the entry that was asked for; those that were undone since count."""
    crashes: int = 0
    """How often its process had crashed by then."""


class CallFacts(NamedTuple):
    """What the step of a prompt says of the call of its agent; see ``calls.py``."""

    key: str
    agent: str
    action: str
    task: str
    conversation: str
    prompt_chars: int
    usage: UsageFacts | None
    asked_unread: bool
    """The prompt is a blob, which was not read: agent, action, task and the length of the prompt are not known."""
    outcome_unread: bool
    """The outcome is a blob: conversation and usage are not known."""


class MailboxFacts(NamedTuple):
    """How a mailbox is declared; the defaults are those of one that was only used."""

    closed: bool = False
    capacity: int = CAPACITY
    max_bytes: int = MAX_BYTES
    overflow: Overflow = "block"
    owner: str = ""
    """The worker that registered it as its name, also if that has ended since."""
    topics: tuple[str, ...] = ()


class MailboxCounts(msgspec.Struct):
    """The messages of a mailbox after an entry."""

    queued: int = 0
    scheduled: int = 0
    held: int = 0
    size_bytes: int = 0
    """Of the queued ones."""
    oldest_us: int = 0
    """When the oldest of the queued ones was sent."""


class RunMark(NamedTuple):
    """A moment of a run that people look for."""

    us: int
    kind: MarkKind
    seq: int
    text: str
    path: str = ""
    """The worker it belongs to, if it belongs to one."""


class Bar(NamedTuple):
    """A step in a timeline, or several that are too short to be drawn one by one."""

    from_us: int
    to_us: int
    """Of an open step: the time of the last entry."""
    kind: int
    """Its place in ``Window.kinds``; of several steps, the kind of the longest."""
    state: StepStatus
    """Of several steps: the one that people should know first."""
    steps: int
    """How many steps it stands for."""
    seq: int
    """The entry that opened the first of them."""
    row: int
    """The row of the first of them."""
    began: Began = "exact"


class LaneBars(NamedTuple):
    """The bars of one path, in the order of their beginnings."""

    id: int
    """Names the path for as long as its ``Spans`` exists, in the order in which paths came up."""
    path: str
    worker: str
    """The path of its worker."""
    bars: list[Bar]


class Window(NamedTuple):
    """A part of a run's timeline, ready to be drawn."""

    from_us: int
    to_us: int
    kinds: tuple[str, ...]
    lanes: list[LaneBars]
    """Those with at least one bar, in the order in which they came up."""
    marks: list[RunMark]
    merged: bool
    """Whether a bar stands for several steps."""
    left_out: int = 0
    """How many lanes were left out, because there are more than a timeline can hold."""


class HubSince(NamedTuple):
    """The hub that runs a run from an entry on, or the same one from a change of the clock on."""

    seq: int
    number: int
    """How many times the run had been started; 0: never."""
    started_us: int
    dead_us: int
    """How long no hub had been alive by then, and by how much the clock had been set."""


class Spent(NamedTuple):
    """What agents had cost and used, after an entry."""

    us: int
    seq: int
    usd: float
    tokens: int


class Cost(NamedTuple):
    """What one step has cost and used."""

    row: int
    seq: int
    usd: float
    tokens: int


class Changes(NamedTuple):
    """What happened after an entry, for a page that shows all up to it."""

    seq: int
    """The last entry."""
    opened: list[int]
    """Rows of steps that began, those that are over by now included."""
    closed: list[int]
    """Rows of steps that ended."""
    marks: list[RunMark]
