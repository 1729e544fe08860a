"""The sections of ``bartack.toml`` that the pipeline reads. Each key is one setting; every one has a default."""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from bartack.core.redact import SecretRule
from bartack.messaging import Overflow
from bartack.messaging.mailboxes import CAPACITY, MAX_BYTES

Count = Annotated[int, Meta(ge=0)]
Many = Annotated[int, Meta(ge=1)]
FAR: Final = 1e9
"""No time is longer, in seconds, and no budget larger: none is without end."""
Seconds = Annotated[float, Meta(ge=0, le=FAR)]
Positive = Annotated[float, Meta(gt=0, le=FAR)]
Money = Annotated[float, Meta(ge=0, le=FAR)]
TaskId = Annotated[
    str,
    Meta(
        pattern=r"\A[A-Za-z0-9][A-Za-z0-9._-]{0,63}\Z",
        description="up to 64 letters, digits and '.', '_', '-', a letter or digit first",
    ),
]
Action = Literal["implement", "implement_changes", "review", "update_spec", "intake", "task_discovery"]
Text = Annotated[str, Meta(pattern=r"\S", description="a text that is not blank")]
PathText = Annotated[
    str,
    Meta(
        pattern=r"\A[^\x00]*[^\x00\s][^\x00]*\Z",
        description="a path, neither blank nor with a NUL character in it",
    ),
]
EntryName = Annotated[
    str,
    Meta(
        pattern=r"\A[a-z][a-z0-9]*(?:-[a-z0-9]+)*\Z",
        max_length=64,
        description="up to 64 small letters and digits, with single '-' between them",
    ),
]
Word = Annotated[str, Meta(pattern=r"\A[^\x00]*\Z", description="a text without a NUL character")]
Line = Annotated[str, Meta(pattern=r"\A[^\x00-\x1f]*\Z", description="one line of text")]
RemoteName = Annotated[
    str,
    Meta(pattern=r"\A([A-Za-z0-9_][A-Za-z0-9._/-]*)?\Z", description="the name of a remote, such as origin"),
]
VariableName = Annotated[
    str, Meta(pattern=r"\A[^\x00=]+\Z", description="the name of a variable, without '=' in it")
]


class Section(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """A table of ``bartack.toml``."""


class ProjectConfig(Section, frozen=True):
    """The section ``project``.

    Attributes:
        name: What people call it; else the name of its directory.
        workspace: Where programs, commands and agents work, relative to the file.
    """

    name: Line = ""
    workspace: PathText = "."


class RedactionConfig(Section, frozen=True, rename={"exempt": "except"}):
    """The section ``redaction``: which variables are secrets.

    Attributes:
        names: Names that are secret although they do not look like it.
        exempt: Names that look like it, and are not.
        min_length: Shorter values are left alone: they would make nonsense of every text.
    """

    names: list[str] = []
    exempt: list[str] = []
    min_length: Many = 8

    @property
    def rule(self) -> SecretRule:
        """Which variables that are."""
        return SecretRule(tuple(self.names), tuple(self.exempt), self.min_length)


class ArtifactsConfig(Section, frozen=True):
    """The section ``artifacts``.

    Attributes:
        max_bytes: An answer with a larger file is refused.
    """

    max_bytes: Count = 1024 * 1024 * 1024


class TranscriptConfig(Section, frozen=True):
    """The section ``transcript``.

    Attributes:
        color: Whether what people see is painted; ``auto``: on a terminal that wants it.
    """

    color: Literal["auto", "always", "never"] = "auto"


class WorkersConfig(Section, frozen=True):
    """The section ``workers``: bounds of what a program may start, so that one that starts itself without end is an error.

    Attributes:
        max: The most workers that run at a time.
        max_depth: The most workers below each other: the first one, one that it started, and so on.
    """

    max: Many = 2000
    max_depth: Many = 64


class BudgetConfig(Section, frozen=True):
    """The section ``budget``: what a run may use, all agents together. ``None``: as much as it wants.

    Attributes:
        usd: Money.
        reserve_usd: What is reserved for one call before it is made, or all that is left if that is less.
        min_reserve_usd: No call is made with less than this left.
        tokens: Tokens of all kinds.
        turns: How often agents may use their tools.
        wall_s: Seconds that agents may take for all commands together, as far as a hub was alive.
        strict: An agent that reports no usage at all has used all that was reserved for it; else nothing.
    """

    usd: Money | None = None
    reserve_usd: Money = 2.0
    min_reserve_usd: Money = 0.05
    tokens: Count | None = None
    turns: Count | None = None
    wall_s: Seconds | None = None
    strict: bool = False


class RunConfig(Section, frozen=True):
    """The section ``run``: which nodes of a database take a run, whose run it is there, and with which packages it continues.

    Options of the command override it.

    Attributes:
        team: Whose run it is.
        pool: Only nodes of this pool take it.
        needs: Only nodes with these labels take it.
        priority: Runs with a higher one are taken first.
        environment: Where a run is continued with other versions of packages than it was started with, that is noted (``same``) or
            refused (``strict``); or nodes install the versions in ``uv.lock`` (``uv``).
    """

    team: Line = "default"
    pool: Line = "default"
    needs: list[Line] = []
    priority: Annotated[int, Meta(ge=-100, le=100)] = 0
    environment: Literal["same", "strict", "uv"] = "same"


class NodeConfig(Section, frozen=True):
    """The section ``node``: how the node of the user runs what is queued.

    Attributes:
        max_runs: How many runs at a time; 0: two for each processor, as far as the memory allows.
        rest_after_s: A run that has nothing to do for longer than this has no process meanwhile.
        drain_s: How long a node of a database that is to end waits for steps in flight before it interrupts them.
        pools: The queues that a node of a database takes runs from.
        labels: What runs in a database may need of it.
        pass_env: Names of variables that open the object store of the database and that its runs get all the same.
        on_failure: What becomes of a queued run whose program fails: it is over, or it is resumed.
        retries: How often it is resumed.
        otel: A node of a database counts and measures what it does with OpenTelemetry.
        run_as: The user whom a node of a database that root starts gives its runs; empty: its own.
    """

    max_runs: Count = 0
    rest_after_s: Seconds = 120.0
    drain_s: Seconds = 600.0
    pools: list[Line] = []
    labels: list[Line] = []
    pass_env: list[Line] = []
    on_failure: Literal["stop", "retry"] = "stop"
    retries: Annotated[int, Meta(ge=1, le=100)] = 3
    otel: bool = False
    run_as: Line = ""


class DepotConfig(Section, frozen=True):
    """The section ``depot``: the database that keeps runs.

    Attributes:
        on: The database where a command needs one and none is named.
        lease_s: Without an answer of the database for this long, the runs of a node go to other nodes.
        hold_s: How long the runs of a node stand still without an answer before they are stopped.
        blobs: The object store with the largest values of the database; empty: all of them are in the database.
    """

    on: Line = ""
    lease_s: Annotated[float, Meta(ge=3, le=60)] = 5.0
    hold_s: Positive = 300.0
    blobs: Line = ""


class AllBudgetConfig(BudgetConfig, frozen=True):
    """The whole section ``budget``. A run of the pipeline records only what is of the run itself: its history compares that.

    Attributes:
        daily_usd: What all runs of this user together may cost on one day.
        day_begins: When a day begins, by the local clock.
    """

    daily_usd: Money | None = None
    day_begins: Annotated[
        str,
        Meta(pattern=r"\A(?:[01][0-9]|2[0-3]):[0-5][0-9]\Z", description='a time of the day such as "12:00"'),
    ] = "00:00"

    @property
    def limits_money(self) -> bool:
        """Whether the cost of a run is limited."""
        return self.usd is not None or self.daily_usd is not None

    @property
    def of_run(self) -> BudgetConfig:
        """What one run may use."""
        fields = msgspec.structs.fields(BudgetConfig)
        return BudgetConfig(**{field.name: getattr(self, field.name) for field in fields})


class PipelineConfig(Section, frozen=True):
    """The section ``pipeline``.

    Attributes:
        review: Whether work is reviewed.
        spec: Whether the spec file is kept true.
        max_fix_rounds: How often failed tests are repaired before a person is needed.
        max_review_rounds: How many reviews may want changes.
        max_spec_rounds: How often the spec maintainer may want changes.
        max_rounds: How often the builder is commanded for one task, in all.
        on_limit: What happens at a bound: the run fails, or a person is asked; ``auto`` asks on a terminal.
        on_task_failure: Whether the other tasks continue when one fails.
        version_pinning: What is done about an answer that saw other files.
        roles: Which agent plays which role, where several could.
        prompts: For agents that know prompts only: the file with the prompts, by action.
    """

    review: bool = True
    spec: bool = True
    max_fix_rounds: Count = 2
    max_review_rounds: Count = 3
    max_spec_rounds: Count = 2
    max_rounds: Many = 12
    on_limit: Literal["auto", "ask", "fail"] = "auto"
    on_task_failure: Literal["stop", "continue"] = "stop"
    version_pinning: Literal["strict", "require", "warn"] = "strict"
    roles: dict[Literal["builder", "reviewer", "spec_maintainer", "orchestration"], str] = {}
    prompts: dict[Action, PathText] = {}


class TestsConfig(Section, frozen=True):
    """The section ``tests``.

    Attributes:
        command: What runs the tests: words, or a text that ``sh -c`` reads.
        mode: Whether the command decides, or what the builder reports, or nothing; ``auto``: the command if there is one.
        timeout_s: How long the command may take.
        env: Variables that are added to its environment.
        honour_waiver: Whether the builder may say that failures of the command are expected.
        protect: Patterns of files that the builder must leave alone.
    """

    __test__ = False

    command: list[Word] | str = []
    mode: Literal["auto", "command", "report", "off"] = "auto"
    timeout_s: Positive = 900.0
    env: dict[VariableName, Word] = {}
    honour_waiver: bool = False
    protect: list[str] = []

    @property
    def argv(self) -> list[str]:
        """The words of the command; none if there is no command."""
        if isinstance(self.command, str):
            return ["sh", "-c", self.command] if self.command.strip() else []
        return self.command

    @property
    def judged_by(self) -> Literal["command", "report", "off"]:
        """Who decides."""
        if self.mode == "auto":
            return "command" if self.argv else "report"
        return self.mode


class ReviewConfig(Section, frozen=True):
    """The section ``review``.

    Attributes:
        strict: Whether a reviewer that changes files fails its step; else that is only noted.
        unclear: What happens when files changed meanwhile and it is not certain that the agent changed them: a note, a question,
            or a failure; ``auto``: a failure in the worktree of a task, else a question on a terminal, and a note without one.
            It holds for the spec maintainer as well.
        isolated: Whether reviewers work in a git worktree of their own, where they can change nothing that counts.
        writable: Patterns of files that it may change.
    """

    strict: bool = True
    unclear: Literal["auto", "ask", "warn", "fail"] = "auto"
    isolated: bool = False
    writable: list[str] = msgspec.field(default_factory=lambda: ["reviews/**"])


class SpecConfig(Section, frozen=True):
    """The section ``spec``.

    Attributes:
        file: The file that is kept true.
        sections: Titles of the sections that the maintainer may edit.
        notes: Patterns of other files that it may change.
        create: Whether it makes the file if there is none.
    """

    file: PathText = "SPEC.md"
    sections: list[Text] = msgspec.field(default_factory=lambda: ["Status", "Decisions", "Changelog"])
    notes: list[str] = msgspec.field(default_factory=lambda: ["spec_notes/**"])
    create: bool = False


class SnapshotConfig(Section, frozen=True):
    """The section ``snapshot``: which files belong to the workspace."""

    source: Literal["auto", "git", "roots"] = "auto"
    roots: list[str] = msgspec.field(default_factory=lambda: ["."])
    exclude: list[str] = []
    include: list[str] = []
    ignore: Literal["tree", "git"] = "tree"
    threads: Annotated[int, Meta(ge=0, le=256)] = 0


class IntakeConfig(Section, frozen=True):
    """The section ``intake``: how an instruction becomes tasks.

    Attributes:
        max_candidates: How many files that may hold a plan are named to an agent.
        max_rounds: How often the agent is commanded.
        require_plan: Whether there has to be such a file.
        prefer: Files that are likely to be the plan.
    """

    max_candidates: Count = 20
    max_rounds: Many = 8
    require_plan: bool = False
    prefer: list[str] = []


class QuestionsConfig(Section, frozen=True):
    """The section ``questions``.

    Attributes:
        timeout_s: How long a question waits for an answer; 0: for ever.
        on_timeout: What happens then: the step fails, or the question's first option counts.
        from_runs: The runs whose processes may answer and steer a run: ids, patterns of ids, or ``creator`` for the run that
            created it. Never the run itself.
    """

    timeout_s: Seconds = 0.0
    on_timeout: Literal["fail", "default"] = "fail"
    from_runs: list[Word] = []


class McpConfig(Section, frozen=True):
    """The section ``mcp``: what MCP clients may start.

    Attributes:
        entries: Programs by the name that clients use: ``FILE`` or ``FILE:WORKER``.
    """

    entries: dict[EntryName, PathText] = {}


class WebConfig(Section, frozen=True):
    """The section ``web``: what ``bartack web`` shows, and where.

    Attributes:
        port: The port of the server on this machine; 0 takes a free one.
        open: Whether a browser is opened where one can be shown.
        read_only: Whether runs are shown only.
        cache_mb: The most memory that the histories of all watched runs may take.
        workspaces: Other workspaces that are shown besides; relative paths begin at this one.
    """

    port: Annotated[int, Meta(ge=0, le=65535)] = 8055
    open: bool = True
    read_only: bool = False
    cache_mb: Many = 256
    workspaces: list[PathText] = []


class ParallelConfig(Section, frozen=True):
    """The section ``parallel``: tasks side by side, each in a git worktree of its own.

    Attributes:
        tasks: How many at a time; 1: one after the other, in the workspace itself.
        merge: What becomes of the result: a branch to merge, or the user's own branch is moved to it where that is safe.
        keep: Whether worktrees stay when the run is completed.
        setup: Words of a command that is run once in every new worktree.
    """

    tasks: Many = 1
    merge: Literal["branch", "fast-forward"] = "branch"
    keep: bool = True
    setup: list[Word] = []


class PluginHooksConfig(Section, frozen=True):
    """The section ``plugin.hooks``: which hooks the plugin for Claude Code has.

    Attributes:
        guard: Whether each use of a tool is judged by the guard first.
        record: Whether what Claude Code does is recorded.
    """

    guard: bool = False
    record: bool = False


class PluginConfig(Section, frozen=True):
    """The section ``plugin``: what ``bartack plugin build`` writes into ``plugin.json``.

    Attributes:
        name: The name; else that of the trait.
        version: The version.
        description: What it is for; else the comment above the trait.
        author: Its author; else the name of the project.
        homepage: Its page.
        repository: Where its source is.
        license: The SPDX id of its licence.
        keywords: Words by which people find it.
        hooks: Which hooks it has.
    """

    name: Line = ""
    version: Annotated[
        str, Meta(pattern=r"\A\d+\.\d+\.\d+([-+][0-9A-Za-z.+-]+)?\Z", description="a version such as 1.2.0")
    ] = "0.1.0"
    description: Line = ""
    author: Line = ""
    homepage: Line = ""
    repository: Line = ""
    license: Line = ""
    keywords: list[Line] = []
    hooks: PluginHooksConfig = PluginHooksConfig()


class WorkspaceConfig(Section, frozen=True):
    """The section ``workspace``: how the workspace of a run comes to the nodes of a database.

    Attributes:
        carry: ``auto``: a copy travels with the run, with the history of its repository if that is not large; ``full``: always with
            it; ``remote``: with what its remote lacks of it, and nodes fetch the rest there; ``none``: the run begins with an empty
            workspace; ``shared``: all nodes have it at the same path.
        remote: The remote of its repository that nodes fetch from.
        include: Patterns of ignored files that are copied all the same.
        setup: Words of a command that prepares it, once on each machine, when it was made from a copy.
        setup_timeout_s: How long that may take.
        push: The remote of its repository that gets the branches of a run when it is completed; empty: none does.
        during_s: How often it is copied while a step takes long.
    """

    carry: Literal["auto", "full", "remote", "none", "shared"] = "auto"
    remote: RemoteName = "origin"
    include: list[str] = []
    setup: list[Word] = []
    setup_timeout_s: Positive = 1800.0
    push: RemoteName = ""
    during_s: Annotated[float, Meta(ge=1.0, le=3600.0)] = 30.0


class TaskConfig(Section, frozen=True):
    """One of ``[[tasks]]``."""

    id: TaskId
    goal: Text
    title: str = ""
    files: list[str] = []
    depends_on: list[str] = []


class Bounds(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The bounds of a mailbox: the settings ``[mailboxes.NAME]``."""

    capacity: Annotated[int, msgspec.Meta(ge=1)] = CAPACITY
    max_bytes: Annotated[int, msgspec.Meta(ge=1)] = MAX_BYTES
    overflow: Overflow = "block"
