"""Steps: their lines in a table, one step in full, and the timeline."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from bartack.runtime.state.timeline import StepStatus
from bartack.web.models._model import At, ErrorText, Model, Row, Seconds, Seq, Shown, Usd


class StepRow(Model, frozen=True, kw_only=True):
    """A step in a table."""

    row: Row
    step: Annotated[str, Meta(description="How people name it: path and number.")]
    p: str
    n: int
    worker: str
    kind: str
    status: StepStatus
    about: str = ""
    began_at: At
    began: Annotated[
        Literal["exact", "after"], Meta(description="`after`: it began some time after `began_at`.")
    ] = "exact"
    ended_at: At = 0
    took_s: Annotated[
        Seconds | None, Meta(description="Absent: it is open, or its beginning is not known.")
    ] = None
    seq_from: Seq
    seq_to: Seq = 0
    attempt: int = 1
    usd: Usd = 0.0
    by: Annotated[str, Meta(description="Who answered a question.")] = ""
    question: str = ""
    once: bool = False
    cleanup: bool = False
    error: ErrorText | None = None


class Steps(Model, frozen=True, kw_only=True):
    """A page of the steps that fit, in the order in which they began."""

    steps: list[StepRow]
    total: Annotated[int, Meta(description="How many fit.")]
    page: int = 1
    pages: int = 1
    next: Annotated[int, Meta(description="The next page; 0: this is the last one.")] = 0
    folded: Annotated[
        int,
        Meta(description="Steps of the pipeline's own bookkeeping that are left out; `all=true` shows them."),
    ] = 0
    seq: Seq
    kinds: Annotated[list[str], Meta(description="The kinds of steps that the run has.")] = []


class SourcePlace(Model, frozen=True, kw_only=True):
    """A place in a program, with the lines around it if they can still be had."""

    file: str
    line: int
    column: Annotated[int, Meta(description="Where in the line, from 1; 0: not known.")] = 0
    width: Annotated[int, Meta(description="How many characters of the line it is about.")] = 0
    function: str = ""
    around: list[tuple[int, str]] = []


class ToolRow(Model, frozen=True, kw_only=True):
    """A call of a tool by the agent of a prompt."""

    row: Row
    call: Annotated[int, Meta(description="Its number among all calls of the prompt, from 1.")]
    tool: str
    status: StepStatus
    began_at: At
    ended_at: At = 0
    took_s: Seconds | None = None
    seq_from: Seq
    seq_to: Seq = 0
    error: ErrorText | None = None


class BlobFacts(Model, frozen=True, kw_only=True):
    """A large value, by its content."""

    sha256: str
    size: int


class StepFull(StepRow, frozen=True, kw_only=True):
    """One step in full."""

    asked: Annotated[Shown | None, Meta(description="What it was asked, if the journal has that.")] = None
    value: Annotated[Shown | None, Meta(description="Its outcome.")] = None
    blob: BlobFacts | None = None
    tools: list[ToolRow] = []
    key: str = ""
    site: SourcePlace | None = None
    failure: Annotated[object, Meta(description="The whole error, if it failed.")] = None
    entries: Annotated[list[Seq], Meta(description="Its entries in the journal.")] = []
    attempts: Annotated[
        list[Row], Meta(description="All steps of this path and number; those before were undone.")
    ] = []
    before: Annotated[StepRow | None, Meta(description="The step before it on its path.")] = None
    after: Annotated[StepRow | None, Meta(description="The step after it on its path.")] = None


BarData = Annotated[
    tuple[int, int, int, StepStatus, int, int, int, bool],
    Meta(
        description="from_us, to_us, place in `kinds`, state, number of steps, entry that opened the first, row of the first, "
        "whether its beginning is known."
    ),
]
MarkData = Annotated[
    tuple[int, Literal["crash", "resume", "failure", "question", "answer", "end"], int, str, str],
    Meta(description="us, kind, entry, text, path of the worker."),
]


class Lane(Model, frozen=True, kw_only=True):
    """The bars of one path."""

    id: Row
    path: str
    worker: str
    bars: list[BarData] = []


class Timeline(Model, frozen=True, kw_only=True):
    """A part of a run's timeline, for a drawing of some width."""

    from_us: int
    to_us: int
    first_us: Annotated[int, Meta(description="The time of the first entry.")]
    last_us: Annotated[int, Meta(description="The time of the last entry, or of the one that is looked at.")]
    seq: Seq
    kinds: list[str] = []
    lanes: list[Lane] = []
    marks: list[MarkData] = []
    merged: Annotated[bool, Meta(description="Whether a bar stands for several steps.")] = False
    left_out: Annotated[int, Meta(description="How many lanes are left out, because there are too many.")] = 0
