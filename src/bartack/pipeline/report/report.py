"""The report of a run as plain values, which ``bartack report --json`` prints. No I/O, no decisions.

All members are always there: a program that reads them does not have to ask first. ``_make.py`` makes a report.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

SCHEMA: Final = 1
"""The version of the form; a member that is added does not change it."""

FileState = Literal["added", "modified", "deleted"]
PointKind = Literal[
    "failed", "tests", "finding", "remark", "question", "refused", "unclear", "denied", "secret", "protected",
    "left_out", "accepted", "unchecked",
]  # fmt: skip
TakeoverState = Literal["applies", "conflicts", "blocked", "done", "unchecked", "nothing"]


class Reported(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a report."""


class FileLines(Reported, frozen=True):
    """A file that was changed; without numbers of lines if it is binary, or its content before is not kept."""

    path: str
    change: FileState
    added: int | None = None
    removed: int | None = None


class WorkCommit(Reported, frozen=True):
    """A commit with work of a task."""

    id: str
    subject: str


class TestsReport(Reported, frozen=True):
    """The tests of a task: the last verdict, and how often they were run.

    Attributes:
        mode: ``command``: Bartack ran them; ``report``: the builder reports them; ``off``: there are none.
        command: What was run; empty in other modes.
        verdict: ``pass``, ``fail`` or ``waived``.
        exit_code: Of the command; ``None`` if it did not end by itself.
        duration_s: How long the last one took.
        runs: How many verdicts there are.
        failed: How many of them are not a pass.
        disagreement: The builder reported something else than the last verdict.
    """

    __test__ = False

    mode: str
    command: str
    verdict: str
    exit_code: int | None
    duration_s: float
    runs: int
    failed: int
    disagreement: bool


class ReportedFinding(Reported, frozen=True):
    """Something that an agent wants changed."""

    message: str
    severity: str = ""
    path: str = ""
    line: int | None = None


class ReviewRound(Reported, frozen=True):
    """An answer of a reviewer (``review``) or of a spec maintainer (``spec``)."""

    stage: Literal["review", "spec"]
    round: int
    agent: str
    verdict: str
    findings: list[ReportedFinding]


class OpenPoint(Reported, frozen=True):
    """Something that a person should look at before the work is taken over."""

    kind: PointKind
    text: str
    path: str = ""
    line: int | None = None


class AgentUse(Reported, frozen=True):
    """What an agent has used. ``failed``: how many of its calls failed; ``estimated``: its cost is computed from prices."""

    agent: str
    calls: int = 0
    failed: int = 0
    usd: float = 0.0
    tokens: int = 0
    turns: int = 0
    wall_s: float = 0.0
    estimated: bool = False


class Resumed(Reported, frozen=True):
    """How often a run was resumed, and the answers that were recorded before and not paid for again."""

    times: int = 0
    answers: int = 0
    usd: float = 0.0
    tokens: int = 0


class Takeover(Reported, frozen=True):
    """How the work gets into the user's branch, and whether that works now.

    Attributes:
        state: ``applies``: ``command`` works now. ``conflicts``: ``files`` are in conflict. ``blocked``: something in the workspace
            is in the way, in ``files`` where it is files. ``done``: the work is there. ``unchecked``: ``advice`` has the reason.
            ``nothing``: there is no work.
        command: The one line to type; empty if there is nothing to type.
        branch: The branch that has the work; empty if the work is in the workspace.
        commit: Its commit.
        files: See ``state``.
        advice: What to do, in a sentence or two of our own words.
        remark: What else to know, with names of files and branches, and words of git.
    """

    state: TakeoverState
    command: str = ""
    branch: str = ""
    commit: str = ""
    files: list[str] = []
    advice: str = ""
    remark: str = ""


class WaitsFor(Reported, frozen=True):
    """What a run that has not ended waits for, and the command that answers it; empty if it is at work."""

    text: str
    command: str = ""


class TaskReport(Reported, frozen=True):
    """What became of a task."""

    id: str
    title: str
    goal: str
    status: str
    files: list[FileLines]
    added: int
    removed: int
    uncounted: int
    """How many files have no numbers of lines."""
    branch: str
    commits: list[WorkCommit]
    tests: TestsReport | None
    reviews: list[ReviewRound]
    open: list[OpenPoint]
    agents: list[AgentUse]


class StepCounts(Reported, frozen=True):
    """The steps of a run; ``undone``: set aside since."""

    finished: int = 0
    failed: int = 0
    open: int = 0
    undone: int = 0


class RunReport(Reported, frozen=True):
    """What a run has done.

    Attributes:
        kind: ``pipeline``, or ``program`` for any other run, which has no tasks and no takeover.
        took_s: From its first entry to its last one, pauses included.
        tests: The tests on the work of all tasks together, where they worked in parallel.
        open: Points of no task.
        problem: Why the run failed or was ended; empty otherwise.
        result: What a program returned, as JSON in one line; empty for the pipeline.
        total: What all agents have used; its ``agent`` is empty.
    """

    schema: int
    run: str
    kind: Literal["pipeline", "program"]
    status: str
    program: str
    goal: str
    created_at: str
    updated_at: str
    took_s: float
    tasks: list[TaskReport]
    tests: TestsReport | None
    open: list[OpenPoint]
    agents: list[AgentUse]
    total: AgentUse
    resumed: Resumed
    steps: StepCounts
    waits_for: list[WaitsFor]
    problem: str
    result: str
    takeover: Takeover | None
