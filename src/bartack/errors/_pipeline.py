"""The errors of the pipeline: BT900 to BT923. How errors are declared: ``_root.py``."""

from __future__ import annotations

from bartack.errors._root import BartackError, message


class PipelineError(BartackError, code="BT900"):
    """The pipeline cannot continue."""

    remedy = "Fix the problem that the message names, then resume the run; it keeps everything that was done."


class SnapshotError(PipelineError, code="BT901"):
    """A snapshot of the workspace could not be made."""

    remedy = "Check the file that the message names. Nothing was changed."


@message("{path}: {problem}")
class SnapshotReadError(SnapshotError, code="BT902"):
    """A file or directory of the workspace cannot be read. An incomplete snapshot is never made."""

    path: str
    problem: str
    remedy = "Make the path readable, or exclude it with snapshot.exclude in bartack.toml."


@message("{path} changes while it is read")
class SnapshotUnstableError(SnapshotError, code="BT903"):
    """A file changed each time it was read: another process is writing it."""

    path: str
    remedy = "Stop the process that writes the file, or exclude the file with snapshot.exclude in bartack.toml, then resume."


@message("{path}: {problem}")
class ManifestError(SnapshotError, code="BT904"):
    """A manifest cannot be read, or its files do not have the id that it claims."""

    path: str
    problem: str
    remedy = "Use the manifest in the run's own directory; an edited manifest is not accepted."


@message()
class TaskNotFoundError(PipelineError, code="BT905"):
    """No task has this id."""

    task: str
    near: tuple[str, ...] = ()
    known: tuple[str, ...] = ()
    run: str = ""
    """The run that was searched; empty: the settings were."""
    remedy = "Name a task of bartack.toml or of the run, or describe the work with --goal."

    def describe(self) -> str:
        nothing = "it has none yet" if self.run else "none is configured"
        listed = f"there are: {', '.join(self.known)}" if self.known else nothing
        hint = f"did you mean {' or '.join(self.near)}?" if self.near else listed
        if self.run:
            return f"{self.run} has no task {self.task!r}; {hint}"
        return f"there is no task {self.task!r}; {hint} (a task that is not configured needs --goal)"


@message()
class WorkspaceBusyError(PipelineError, code="BT906", retryable=True):
    """Another run is working in this workspace. The changes of two runs in one tree cannot be distinguished."""

    workspace: str
    owner: str
    remedy = "Wait for the other run with --wait, queue this one after it with --detach, or inspect it with 'bartack status'."

    def describe(self) -> str:
        return f"{self.workspace}: {self.owner or 'another process'} is working there"


@message()
class LoopLimitError(PipelineError, code="BT919"):
    """A loop of the pipeline reached its limit."""

    task: str
    problem: str
    findings: str = ""
    remedy = (
        "Fix the findings if they are justified. 'bartack resume' grants the same number of rounds again. The limits are "
        "pipeline.max_… in bartack.toml."
    )

    def describe(self) -> str:
        return f"task {self.task}: {self.problem}" + (f"\n{self.findings}" if self.findings else "")


class TestsGateError(LoopLimitError, code="BT907"):
    """The tests of a task still fail after the allowed number of repairs, or cannot be run."""

    remedy = "Fix the code or the command, or raise pipeline.max_fix_rounds; 'bartack resume' runs the tests again."
    __test__ = False


class ReviewLimitError(LoopLimitError, code="BT908"):
    """The reviewer still requests changes after the allowed number of rounds."""

    remedy = (
        "Address the findings, or raise pipeline.max_review_rounds; 'bartack resume' starts another review."
    )


class SpecLimitError(LoopLimitError, code="BT909"):
    """The spec maintainer still requests changes after the allowed number of rounds."""

    remedy = "Address the findings, or raise pipeline.max_spec_rounds; 'bartack resume' asks the spec maintainer again."


class RoundLimitError(LoopLimitError, code="BT910"):
    """The builder was called as often as one task allows."""

    remedy = "Find out why the task needs more rounds, or raise pipeline.max_rounds; 'bartack resume' grants the same number again."


@message("task {task}: {who} changed {paths}")
class ReadOnlyViolationError(PipelineError, code="BT911"):
    """A reviewer changed files that it is only allowed to read. The changes were not undone."""

    task: str
    paths: str
    who: str = "the reviewer"
    remedy = (
        "Undo or keep the change, then resume. If you undo it, the answer counts; if you keep it, the review is repeated with the "
        "files as they are. With 'review.isolated' a reviewer has its own worktree."
    )


@message()
class SpecEditError(PipelineError, code="BT912"):
    """A spec maintainer changed something outside the sections that it is allowed to edit. The changes were not undone."""

    task: str
    problem: str
    diff: str = ""
    remedy = "Undo the forbidden part of the change, or make that edit yourself, then resume: the step is repeated."

    def describe(self) -> str:
        return f"task {self.task}: {self.problem}" + (f"\n{self.diff}" if self.diff else "")


@message("{path} already exists with different content")
class ReceiptConflictError(PipelineError, code="BT913"):
    """A different file exists at the path of a receipt. It was left as it is."""

    path: str
    remedy = (
        "Move the file that the message names to another place, then resume. If it is a receipt of this run, two answers claim "
        "its place: set the first one aside with 'bartack resume RUN --again STEP' ('bartack show RUN' lists the steps)."
    )


@message("{problem}")
class ActivationError(PipelineError, code="BT914"):
    """The tasks of a run cannot be started."""

    problem: str
    remedy = "Correct the tasks: ids are unique, dependencies exist, and no task depends on itself."


class PlanPathError(ActivationError, code="BT915"):
    """The approved plan is missing, or is outside the workspace."""

    remedy = "Put the plan back where it was, then resume."


class NoCandidatesError(PipelineError, code="BT916"):
    """No file of the workspace looks like a plan, and intake.require_plan requires one."""

    remedy = (
        "Write the plan to a file such as docs/plan.md, or set intake.require_plan = false in bartack.toml."
    )

    def __init__(self) -> None:
        super().__init__("no file of the workspace looks like a plan")


@message("the proposed tasks are invalid: {problem}")
class ProposalError(PipelineError, code="BT917"):
    """An agent proposed invalid tasks."""

    problem: str
    remedy = "Resume to ask the agent again, or rephrase the instruction in a new run."


@message("{summary}")
class TasksFailedError(PipelineError, code="BT918"):
    """Some tasks of a run failed; the others are done."""

    summary: str
    remedy = "Fix the causes, then resume: failed and skipped tasks are started again."


@message("{command}: {problem}")
class GitError(PipelineError, code="BT920"):
    """Parallel tasks need git, and git is missing, too old, or refused a command."""

    command: str
    problem: str
    remedy = "Fix the problem that git reports and resume, or run one task at a time with parallel.tasks = 1."


class WorktreeError(GitError, code="BT921"):
    """The repository, or the worktree of a task, is not in the state that the task needs. Nothing was changed."""

    remedy = "Fix the state that the message names, then run or resume."

    def __init__(self, place: str, problem: str) -> None:
        self.place = place
        super().__init__(place, problem)


class WorktreeDirtyError(GitError, code="BT922"):
    """A worktree was kept: it may hold changes that exist nowhere else."""

    remedy = "Check the worktree that the message names. Commit its changes or copy them elsewhere, then try again."

    def __init__(self, place: str, problem: str) -> None:
        self.place = place
        super().__init__(place, problem)


@message("{run} is a run of a program: only runs of the pipeline record changes of files")
class NotPipelineError(PipelineError, code="BT923"):
    """The command is for runs of the pipeline, and this is a run of a program."""

    run: str
    remedy = "Name a run of the pipeline ('bartack status' lists the runs), or use 'bartack show RUN' for the steps of a program."
