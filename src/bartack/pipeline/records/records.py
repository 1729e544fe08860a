"""What the steps of the pipeline take and give: plain values that are journaled. No I/O, no decisions."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from bartack.agents import Usage
from bartack.agents.protocol.messages import Finding
from bartack.config.sections import (
    BudgetConfig,
    IntakeConfig,
    ParallelConfig,
    PipelineConfig,
    QuestionsConfig,
    RedactionConfig,
    ReviewConfig,
    SnapshotConfig,
    SpecConfig,
    TestsConfig,
)
from bartack.runtime.rundir.receipts import Answered, Receipt

Verdict = Literal["pass", "fail", "waived"]
StopPlace = Literal["tests", "review", "spec", "rounds", "intake", "answer", "budget", "tasks"]
"""Where a run stops until a person resumes it."""
MOST_COUNTED: Final = 2**53 - 1
"""Where counts of tokens and turns end: what agents report may be anything."""
KEPT_BYTES: Final = 64 * 1024
"""What the journal keeps of each output of a configured command; agents see the end of that."""


class Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A value that is part of the journal, or passed between workers."""


class Settings(Record, frozen=True):
    """The settings of a run, as they were when it began or was last resumed.

    Attributes:
        agents: Which agent plays which role.
        deadlines: Seconds that an action may take.
        asks: Whether a person can be asked at a bound.
        state_dir: Where runs are kept, relative to the workspace.
        prompts: For agents that take prompts only: a template for each action.
        checks_money: Whether the money that is left is checked before a command; runs that began earlier do not.
        hub: How many times the run had been started when they were decided; 0: before it began.
        carried: The run works in a copy of the workspace that belongs to it alone, on whichever machine it is.
    """

    pipeline: PipelineConfig = PipelineConfig()
    tests: TestsConfig = TestsConfig()
    review: ReviewConfig = ReviewConfig()
    spec: SpecConfig = SpecConfig()
    snapshot: SnapshotConfig = SnapshotConfig()
    intake: IntakeConfig = IntakeConfig()
    questions: QuestionsConfig = QuestionsConfig()
    parallel: ParallelConfig = ParallelConfig()
    budget: BudgetConfig = BudgetConfig()
    redaction: RedactionConfig = RedactionConfig()
    agents: dict[str, str] = {}
    deadlines: dict[str, float] = {}
    asks: bool = False
    checks_money: bool = False
    state_dir: str = ".bartack"
    prompts: dict[str, str] = {}
    hub: int = 0
    carried: bool = False


class Place(Record, frozen=True):
    """Where a step works.

    Attributes:
        run_dir: The run.
        workspace: Where agents work: the user's workspace, or what stands for it in a worktree.
        root: The user's workspace, with its settings.
        lane: The name of the worktree, where it is one.
    """

    run_dir: str
    workspace: str = "."
    root: str = "."
    lane: str = ""


class TaskRecord(Record, frozen=True):
    """A task, with everything that is part of every command for it."""

    id: str
    goal: str
    title: str = ""
    task_files: list[str] = []
    depends_on: list[str] = []
    instruction: str = ""
    approved_plan: str = ""
    clarifications: list[Answered] = []
    conflict_resolutions: list[str] = []


class PipelineOrder(Record, frozen=True):
    """What a run of the pipeline is started with: tasks, or an instruction that becomes tasks."""

    settings: Settings
    tasks: list[TaskRecord] = []
    instruction: str = ""
    yes: bool = False


class Activated(Record, frozen=True):
    """The tasks of a run, in the order in which they are done."""

    tasks: list[TaskRecord]
    plan: str = ""
    plan_sha256: str = ""
    settings: Settings | None = None
    """The settings, if the run was resumed before with others."""


class Shot(Record, frozen=True):
    """A snapshot that was taken; ``changed``: what differs from an earlier one."""

    snapshot_id: str
    files: int
    bytes: int
    specs_hash: str = ""
    changed: list[str] = []
    changed_more: int = 0
    notes: list[str] = []
    hub: int = 0
    """How many times the run had been started by then."""
    settings: Settings | None = None
    """The settings that hold since the run was resumed, where the worker had others."""


class Lane(Record, frozen=True):
    """Where a task works that is done side by side with others.

    Attributes:
        name: Of its worktree.
        start: The commit that its branch begins at.
        prefix: Where the workspace is in the worktree.
        width: How many tasks are done at a time.
        conflicts: Files whose conflicts with the result are marked, and are to be settled.
    """

    name: str
    start: str
    prefix: str = ""
    width: int = 1
    conflicts: list[str] = []


class Checks(Record, frozen=True):
    """What an answer has to keep to.

    Attributes:
        cleared: Files that the agent did not change, as a person decided.
        accused: Files that the agent changed, as a person decided.
        isolated: The worktree in which a reviewer worked that has one of its own.
    """

    review: ReviewConfig | None = None
    spec: SpecConfig | None = None
    protect: list[str] = []
    proposal: dict[str, object] | None = None
    cleared: list[str] = []
    accused: list[str] = []
    isolated: Lane | None = None


class Accepted(Record, frozen=True):
    """What was found when an answer came. If it was refused, ``code`` has the reason, and it has no receipt."""

    result_snapshot_id: str
    code: str = ""
    problem: str = ""
    diff: str = ""
    protected: list[str] = []
    """Files that the builder had to leave alone, and changed."""
    blamed: list[str] = []
    """Files because of which an answer was refused, or waits until a person has decided who changed them."""
    notes: list[str] = []
    receipt: Receipt | None = None
    after: Shot | None = None
    """The workspace after an answer that was not refused."""
    used: Usage | None = None
    """What an answer has used that was refused: the receipt of the one that is accepted counts it."""


class Gate(Record, frozen=True):
    """The verdict on the tests of a task."""

    task_id: str
    round: int
    verdict: Verdict
    mode: Literal["command", "report", "off"]
    snapshot_id: str
    exit_code: int | None = None
    duration_s: float = 0.0
    tail: str = ""
    findings: list[Finding] = []
    reported: str = ""
    disagreement: bool = False
    unchecked: bool = False
    stuck: str = ""
    """Why the command cannot be run at all: nothing that a builder could repair."""
    after: Shot | None = None
    """The workspace after the tests."""


class TestRun(Record, frozen=True):
    """How the test command ended."""

    __test__ = False

    command: str
    exit_code: int | None = None
    output: str = ""
    problem: str = ""
    stuck: bool = False
    duration_s: float = 0.0


class Stop(Record, frozen=True):
    """Why a run cannot continue by itself."""

    kind: str
    task_id: str
    loop: StopPlace
    count: int
    problem: str
    detail: str = ""


class Grant(Record, frozen=True):
    """A person has resumed a run that had stopped; the settings as they are now."""

    granted: bool = True
    settings: Settings | None = None


class FindingsFile(Record, frozen=True):
    """Findings that are too long for a line."""

    path: str
    sha256: str
    size: int


class Spent(Record, frozen=True):
    """What agents have used."""

    tokens: int = 0
    turns: int = 0
    wall_s: float = 0.0
    usd: float = 0.0
    """Only in the result of a task: while it is done, the hub counts the money."""

    def __add__(self, other: Spent) -> Spent:
        """Both together."""
        return Spent(
            usd=self.usd + other.usd,
            tokens=min(self.tokens + other.tokens, MOST_COUNTED),
            turns=min(self.turns + other.turns, MOST_COUNTED),
            wall_s=self.wall_s + other.wall_s,
        )


class Noted(Record, frozen=True):
    """The outcome of a step of a task: which step, and what it gave."""

    kind: str
    about: str = ""
    value: object = None


class Left(Record, frozen=True):
    """A note as a worker leaves it in a file: the how manyth it is, and what was used until then."""

    number: int
    noted: Noted
    spent: Spent
    own: bool = False
    """What was used by this task alone; an earlier version counted that of the tasks before it, too."""


class TaskResult(Record, frozen=True):
    """How a task ended."""

    id: str
    status: Literal["done", "failed", "skipped"]
    receipts: int = 0
    accepted: list[str] = []
    """The loops that a person ended by accepting the work as it is."""
    problem: str = ""
    spent: Spent = Spent()
    """What it has used itself."""
    before: Spent | None = None
    """What was used before it; an earlier version has that in ``spent``, too."""
    notes: list[Noted] = []
    """What a failed task has done, for the worker that continues it."""
    settings: Settings | None = None
    """The settings that it had at its end, where it began with others."""
    left: list[str] = []
    """What the branch of a task that has a worktree does not have, and where it is, one sentence each."""


def plain_result(result: TaskResult) -> TaskResult:
    """The result of a task as people see it: without what only the workers need, and without noise in numbers."""
    spent = msgspec.structs.replace(
        result.spent, wall_s=round(result.spent.wall_s, 6), usd=round(result.spent.usd, 6)
    )
    return msgspec.structs.replace(result, before=None, settings=None, notes=[], spent=spent)


class Base(Record, frozen=True):
    """What tasks side by side begin with.

    Attributes:
        commit: The commit.
        head: The commit that the user's workspace had checked out.
        branch: The branch of that; empty if it was on none.
        prefix: Where the workspace is in its repository.
        dirty: The commit holds what was not committed in the workspace.
    """

    commit: str
    head: str = ""
    branch: str = ""
    prefix: str = ""
    dirty: bool = False


class ReviewTree(Record, frozen=True):
    """The worktree of a reviewer. ``empty``: repositories in the workspace whose files it does not have."""

    lane: Lane
    empty: list[str] = []


class Opened(Record, frozen=True):
    """A worktree that is there. ``ready``: it was prepared before; ``receipts``: what the task has so far."""

    ready: bool = False
    receipts: int = 0


class Committed(Record, frozen=True):
    """What a branch is at, after everything was committed. ``left``: what it does not have, one sentence each."""

    task_id: str
    commit: str
    left: list[str] = []


class Merged(Record, frozen=True):
    """What became of a merge: the result's new commit, or the paths that are in conflict.

    Attributes:
        commit: The result; empty if there are conflicts.
        conflicts: Paths that both sides have changed.
        tree: The files with the conflicts marked in them.
        ours: The result as it was.
        theirs: The commit that was to be merged.
        task_id: The task whose work it is.
    """

    commit: str = ""
    conflicts: list[str] = []
    tree: str = ""
    ours: str = ""
    theirs: str = ""
    task_id: str = ""


class Delivered(Record, frozen=True):
    """Where the work of all tasks is.

    Attributes:
        branch: The branch that has it.
        commit: The commit.
        moved: The user's own branch was moved there.
        problem: Why it was not, where it should have been.
        dirty: The workspace had changes that were not committed: they are part of it.
        carried: The branch and the workspace are those of a copy that travels with the run.
    """

    branch: str
    commit: str
    moved: bool = False
    problem: str = ""
    dirty: bool = False
    carried: bool = False

    @property
    def command(self) -> str:
        """What brings the work into the user's workspace; empty if it is there, or has to be pulled."""
        return "" if self.moved or self.carried else f"git merge {self.branch}"


class Summary(Record, frozen=True):
    """How a run of the pipeline ended. ``result``: where the work of tasks side by side is."""

    tasks: list[TaskResult]
    result: Delivered | None = None


class PlanCandidate(Record, frozen=True):
    """A file that may be the plan."""

    path: str
    confidence: float | None = None
    reason: str = ""


class DerivedTask(Record, frozen=True):
    """A task that the agent has made of the instruction."""

    id: str
    title: str
    files: list[str] = []
    depends_on: list[str] = []
    goal: str = ""


class Proposal(Record, frozen=True):
    """What an agent proposes."""

    plan_candidates: list[PlanCandidate]
    derived_tasks: list[DerivedTask] = []


class Decision(Record, frozen=True):
    """What a person decided about a proposal."""

    status: str
    plan: str = ""
    tasks: list[DerivedTask] = []
    reason: str = ""
