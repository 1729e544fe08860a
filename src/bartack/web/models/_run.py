"""A run: its line in a list, and what it was doing after an entry."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from bartack.pipeline.records.task_state import Progress
from bartack.runtime.protocol.frames import ErrorData
from bartack.runtime.rundir.follower import FollowState
from bartack.web.models._model import At, ErrorText, Model, Problem, Row, Seconds, Seq, Usd

RunStatus = Literal[
    "running", "waiting", "failed", "completed", "cancelled", "aborted", "interrupted", "unreadable"
]
"""``unreadable``: this user or this version cannot read the run."""

WorkerStatus = Literal["running", "completed", "failed", "cancelled", "aborted", "interrupted"]
QuestionType = Literal["str", "bool", "int", "float", "json"]


class TaskCount(Model, frozen=True, kw_only=True):
    """How many tasks of a run of the pipeline are done, and how many there are."""

    done: int = 0
    all: int = 0


class OpenCount(Model, frozen=True, kw_only=True):
    """Steps of one kind that are under way."""

    kind: str
    count: int
    since_at: Annotated[At, Meta(description="When the oldest of them began.")] = 0
    step: Annotated[str, Meta(description="The oldest of them.")] = ""


class ListedQuestion(Model, frozen=True, kw_only=True):
    """The oldest open question of a run, in a list of runs."""

    id: str
    question: Annotated[str, Meta(description="In one line, which may be cut.")] = ""
    type: Annotated[
        QuestionType | None, Meta(description="Absent if it is to be answered where all of it is shown.")
    ] = None
    options: list[str] = []


class QueueRow(Model, frozen=True, kw_only=True):
    """Where a run of a database is among its nodes."""

    state: Annotated[
        str, Meta(description="`queued`, `owned`, `resting`, `held` or `over`; `over`: no node is to run it.")
    ]
    node: Annotated[str, Meta(description="The node, or the machine, that owns it.")] = ""
    pool: Annotated[str, Meta(description="The nodes that may take it; empty: it is run by hand.")] = ""
    reason: Annotated[str, Meta(description="Why no process runs it.")] = ""
    stuck: Annotated[bool, Meta(description="A person has to do something about that.")] = False


class RunRow(Model, frozen=True, kw_only=True):
    """A run in a list."""

    row: Row = 0
    run: Annotated[str, Meta(description="Its id.")]
    ws: Annotated[str, Meta(description="The workspace, or the database, that the server shows it for.")] = ""
    project: str = ""
    status: RunStatus
    program: str = ""
    worker: str = ""
    goal: Annotated[str, Meta(description="What a run of the pipeline is to do, in a few words.")] = ""
    created_at: At = 0
    changed_at: At = 0
    ended_at: At = 0
    pid: Annotated[int, Meta(description="The process that runs it; 0: none does.")] = 0
    resumes: int = 0
    seq: Seq = 0
    questions: Annotated[
        list[str],
        Meta(description="The numbers of the questions that it waits for; none once it has ended or failed."),
    ] = []
    asked: Annotated[ListedQuestion | None, Meta(description="The oldest of them; in lists only.")] = None
    workers: Annotated[int, Meta(description="Workers that have not ended; in lists only.")] = 0
    open: Annotated[
        list[OpenCount],
        Meta(description="What is under way, the kind that says most first; in lists only."),
    ] = []
    error: str = ""
    deadlock: Annotated[bool, Meta(description="All its workers wait for each other.")] = False
    rests_until_at: Annotated[At, Meta(description="When it has something to do again by itself.")] = 0
    rests_for: str = ""
    spent_usd: Usd = 0.0
    reserved_usd: Usd = 0.0
    stage: Annotated[str, Meta(description="How far a run of the pipeline is.")] = ""
    tasks: TaskCount | None = None
    queue: Annotated[QueueRow | None, Meta(description="Of a run in a database.")] = None


class Runs(Model, frozen=True, kw_only=True):
    """A part of the list of runs, the newest first."""

    runs: list[RunRow]
    next: Annotated[
        str, Meta(description="Give it as `after` to get the next part; empty: this is the last one.")
    ] = ""
    counts: Annotated[
        dict[str, int], Meta(description="How many runs there are, by status, whatever is looked for.")
    ] = {}
    total: Annotated[int, Meta(description="Number of matching runs.")]
    workspaces: list[str] = []
    problems: Annotated[
        list[Problem], Meta(description="Workspaces and databases whose runs cannot be listed.")
    ] = []


class Question(Model, frozen=True, kw_only=True):
    """An open question."""

    row: Row = 0
    id: Annotated[str, Meta(description="Its number in its run, such as `q4`.")]
    run: str
    program: Annotated[str, Meta(description="The program of its run; in lists of all questions only.")] = ""
    worker: str
    p: str
    n: int
    at: At
    seq: Annotated[Seq, Meta(description="The entry that asks it.")] = 0
    question: Annotated[str, Meta(description="At most 32 kB of it.")]
    type: QuestionType = "str"
    options: list[str] = []
    schema: Annotated[dict[str, object] | None, Meta(description="Absent if it is longer than 32 kB.")] = None
    default: Annotated[object, Meta(description="Likewise.")] = None
    left_s: Annotated[Seconds | None, Meta(description="How long it still waits; absent: for ever.")] = None
    until_at: Annotated[At, Meta(description="When that time is over, if a hub is alive until then.")] = 0
    kind: Annotated[
        Literal["ask", "permission"], Meta(description="`permission`: whether an agent may use a tool.")
    ] = "ask"
    agent: Annotated[str, Meta(description="The agent that asks; empty: the program does.")] = ""
    tool: str = ""
    input: Annotated[str, Meta(description="What the tool is to be used with: JSON in one line, cut.")] = ""
    kept: Annotated[bool, Meta(description="An answer was left, and is kept until the run is resumed.")] = (
        False
    )
    over: Annotated[
        Literal["", "failed", "ended"],
        Meta(
            description="Absent while an answer is awaited. `failed`: it is asked again if the run is resumed. `ended`: never."
        ),
    ] = ""


class Questions(Model, frozen=True, kw_only=True):
    """The open questions of all runs, the oldest first."""

    questions: list[Question]
    unread: Annotated[
        list[str], Meta(description="Runs with open questions whose journals are still being read.")
    ] = []


class OpenStep(Model, frozen=True, kw_only=True):
    """A step that is under way."""

    row: Row
    p: str
    n: int
    kind: str
    about: str = ""
    began_at: At
    attempt: int = 1
    due_at: Annotated[At, Meta(description="When a timer fires, or when the next attempt begins.")] = 0
    left_s: Seconds | None = None
    until_at: Annotated[At, Meta(description="When that time is over, if a hub is alive until then.")] = 0
    key: Annotated[str, Meta(description="Of a prompt: the key of its call.")] = ""
    question: str = ""
    stopped_at: Annotated[
        At,
        Meta(
            description="Up to when it was under way, if it is not now: no process runs the run, or it is a past entry."
        ),
    ] = 0
    tool: Annotated[str, Meta(description="Of a prompt: the tool that it waits for.")] = ""
    agent: str = ""


class WorkerRow(Model, frozen=True, kw_only=True):
    """A worker and what it is doing."""

    id: Row
    path: str
    name: Annotated[
        str, Meta(description="What people call it: its task, or its name and its first short argument.")
    ]
    worker: Annotated[str, Meta(description="`module:name`.")]
    args: Annotated[str, Meta(description="What it was called with: JSON in one line, cut.")] = ""
    status: WorkerStatus
    parent: Annotated[str, Meta(description="The step that made it; empty: it is the first.")] = ""
    task: Annotated[str, Meta(description="The task of the pipeline that it works on.")] = ""
    since_at: At
    ended_at: At = 0
    steps: Annotated[int, Meta(description="How many of its steps had an outcome.")] = 0
    crashes: int = 0
    open: list[OpenStep] = []
    open_more: Annotated[int, Meta(description="Open steps that are left out: the ones that began last.")] = 0
    lanes: Annotated[
        list[tuple[int, str]], Meta(description="Number and path of its lanes in the timeline.")
    ] = []
    error: ErrorText | None = None


class MailboxRow(Model, frozen=True, kw_only=True):
    """A mailbox."""

    row: Row
    name: str
    queued: int = 0
    scheduled: int = 0
    held: int = 0
    sent: int = 0
    closed: bool = False
    capacity: int
    overflow: Literal["block", "reject", "drop_oldest", "drop_newest"] = "block"
    owner: Annotated[str, Meta(description="Only this worker can receive from it, as long as it lives.")] = ""
    topics: list[str] = []
    oldest_at: Annotated[At, Meta(description="When the message was sent that is received next.")] = 0
    size_bytes: int = 0


class Hub(Model, frozen=True, kw_only=True):
    """The process that runs a run."""

    number: Annotated[int, Meta(description="How many times the run was started.")] = 0
    pid: int = 0
    alive: Annotated[
        bool, Meta(description="Whether it runs now; at a past entry, whether one ran then.")
    ] = False
    seen_at: Annotated[At, Meta(description="When it was last seen alive.")] = 0


class MoneyNow(Model, frozen=True, kw_only=True):
    """What agents have cost and used."""

    spent_usd: Usd = 0.0
    reserved_usd: Usd = 0.0
    limit_usd: Usd | None = None
    tokens: int = 0


class Moment(Model, frozen=True, kw_only=True):
    """A run after an entry."""

    run: RunRow
    state: Annotated[
        FollowState,
        Meta(
            description="`building`: the journal is being read, and only `run`, `questions` and `tail` are known. `damaged`: it is "
            "shown up to the damage. `newer`: a newer version wrote it. `deleted`: it is gone."
        ),
    ] = "current"
    built: Annotated[float, Meta(ge=0, le=1, description="Which part of the journal was read.")] = 1.0
    problem: Problem | None = None
    seq: Seq
    last_seq: Seq
    at: At
    first_at: At = 0
    live: Annotated[bool, Meta(description="Whether it is the last entry that is shown.")] = False
    hub: Hub = Hub()
    steps: Annotated[int, Meta(description="How many steps had begun.")] = 0
    workers: list[WorkerRow] = []
    ended: Annotated[
        int, Meta(description="How many workers that have ended are left out: the newest are listed.")
    ] = 0
    questions: list[Question] = []
    mailboxes: list[MailboxRow] = []
    letters: Annotated[int, Meta(description="Dead letters that wait, are tried again or have expired.")] = 0
    money: MoneyNow = MoneyNow()
    failure: ErrorData | None = None
    pipeline: Progress | None = None
    result: Annotated[
        object, Meta(description="What the run returned, if it is over; absent if that is long.")
    ] = None
    tail: Annotated[
        list[Seq], Meta(description="While it is being read: the first and the last entry of its end.")
    ] = []
