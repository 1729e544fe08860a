"""The errors of the pipeline: BT900 to BT922. How errors are declared: ``_root.py``."""

from __future__ import annotations

from bartack.errors._root import BartackError, message


class PipelineError(BartackError, code="BT900"):
    """The pipeline cannot go on."""

    remedy = "The message says what is in the way; the run stays as it is and can be resumed."


class SnapshotError(PipelineError, code="BT901"):
    """The workspace could not be captured."""

    remedy = "The message names the file; nothing was changed."


@message("{path}: {problem}")
class SnapshotReadError(SnapshotError, code="BT902"):
    """A file or directory of the workspace cannot be read. A snapshot is complete or it is not made."""

    path: str
    problem: str
    remedy = "Make it readable, or leave it out with snapshot.exclude in bartack.toml."


@message("{path} changes while it is read")
class SnapshotUnstableError(SnapshotError, code="BT903"):
    """A file changed each time it was read: somebody is writing it."""

    path: str
    remedy = (
        "Stop whoever writes the file, or leave it out with snapshot.exclude in bartack.toml, and resume."
    )


@message("{path}: {problem}")
class ManifestError(SnapshotError, code="BT904"):
    """A manifest cannot be read, or its files do not have the id that it claims."""

    path: str
    problem: str
    remedy = "Take the manifest from the run's own directory; one that was changed by hand is of no use."


@message()
class TaskNotFoundError(PipelineError, code="BT905"):
    """No task has this id."""

    task: str
    near: tuple[str, ...] = ()
    known: tuple[str, ...] = ()
    remedy = "Name a task of bartack.toml, or say what is to be done with --goal."

    def describe(self) -> str:
        listed = f"there are: {', '.join(self.known)}" if self.known else "none is configured"
        hint = f"did you mean {' or '.join(self.near)}?" if self.near else listed
        return f"there is no task {self.task!r}; {hint} (a task that is not configured needs --goal)"


@message()
class WorkspaceBusyError(PipelineError, code="BT906", retryable=True):
    """Another run works in this workspace. Two runs in one tree would not know whose change is whose."""

    workspace: str
    owner: str
    remedy = "Wait for the other run ('--wait' does), or look at it with 'bartack status'."

    def describe(self) -> str:
        return f"{self.workspace}: {self.owner or 'another process'} works there"


@message()
class LoopLimitError(PipelineError, code="BT919"):
    """A loop of the pipeline came to its bound."""

    task: str
    problem: str
    findings: str = ""
    remedy = (
        "Mend what the findings say, or not; 'bartack resume' grants as many rounds again. The bounds are "
        "pipeline.max_… in bartack.toml."
    )

    def describe(self) -> str:
        return f"task {self.task}: {self.problem}" + (f"\n{self.findings}" if self.findings else "")


class TestsGateError(LoopLimitError, code="BT907"):
    """The tests of a task still fail after as many repairs as are allowed, or cannot be run at all."""

    remedy = "Mend the code or the command, or raise pipeline.max_fix_rounds; 'bartack resume' runs the tests again."
    __test__ = False


class ReviewLimitError(LoopLimitError, code="BT908"):
    """The reviewer still wants changes after as many rounds as are allowed."""

    remedy = (
        "Deal with the findings, or raise pipeline.max_review_rounds; 'bartack resume' has it reviewed again."
    )


class SpecLimitError(LoopLimitError, code="BT909"):
    """The spec maintainer still wants changes after as many rounds as are allowed."""

    remedy = "Deal with the findings, or raise pipeline.max_spec_rounds; 'bartack resume' asks the spec maintainer again."


class RoundLimitError(LoopLimitError, code="BT910"):
    """The builder was commanded as often as one task may command it."""

    remedy = "See why it takes so many rounds, or raise pipeline.max_rounds; 'bartack resume' grants as many again."


@message("task {task}: {who} changed {paths}")
class ReadOnlyViolationError(PipelineError, code="BT911"):
    """A reviewer changed files that it may only read. The changes are left as they are."""

    task: str
    paths: str
    who: str = "the reviewer"
    remedy = (
        "Undo or keep the file, then resume. If it is undone, the answer counts; if it is kept, the review is made again with "
        "the files as they are. With 'review.isolated' a reviewer has a worktree of its own."
    )


@message()
class SpecEditError(PipelineError, code="BT912"):
    """A spec maintainer changed something outside of the sections that it may edit. The changes are left as they are."""

    task: str
    problem: str
    diff: str = ""
    remedy = "Undo the forbidden part of the change, or do that edit yourself, then resume: the step is made again."

    def describe(self) -> str:
        return f"task {self.task}: {self.problem}" + (f"\n{self.diff}" if self.diff else "")


@message("{path} is there already, with another content")
class ReceiptConflictError(PipelineError, code="BT913"):
    """There is another file where a receipt has to be. It was not overwritten."""

    path: str
    remedy = (
        "Move the file that the message names to another place, then resume. If it is a receipt of this run, two answers claim "
        "its place: set the first one aside with 'bartack resume RUN --again STEP' ('bartack show RUN' lists the steps)."
    )


@message("{problem}")
class ActivationError(PipelineError, code="BT914"):
    """The tasks of a run cannot be begun."""

    problem: str
    remedy = "Correct the tasks: ids are unique, what they depend on exists, and nothing depends on itself."


class PlanPathError(ActivationError, code="BT915"):
    """The plan that was approved is not there, or not in the workspace."""

    remedy = "Put the plan back where it was, then resume."


class NoCandidatesError(PipelineError, code="BT916"):
    """No file of the workspace looks like a plan, and intake.require_plan wants one."""

    remedy = (
        "Write the plan to a file such as docs/plan.md, or set intake.require_plan = false in bartack.toml."
    )

    def __init__(self) -> None:
        super().__init__("no file of the workspace looks like a plan")


@message("the proposal cannot be used: {problem}")
class ProposalError(PipelineError, code="BT917"):
    """An agent proposed tasks that cannot be used."""

    problem: str
    remedy = "Resume to ask the agent again, or say the instruction in other words in a new run."


@message("{summary}")
class TasksFailedError(PipelineError, code="BT918"):
    """Some tasks of a run failed; the others are done."""

    summary: str
    remedy = "Mend what hindered them, then resume: the tasks that failed or were skipped are begun again."


@message("{command}: {problem}")
class GitError(PipelineError, code="BT920"):
    """Tasks side by side need git, and it is missing, too old, or refused what was asked of it."""

    command: str
    problem: str
    remedy = "Mend what git complains about and resume, or do one task at a time with parallel.tasks = 1."


class WorktreeError(GitError, code="BT921"):
    """The repository, or the worktree of a task, is not in a state in which the task can be done. Nothing was changed."""

    remedy = "Bring it into the state that the message names, then run or resume."

    def __init__(self, place: str, problem: str) -> None:
        self.place = place
        super().__init__(place, problem)


class WorktreeDirtyError(GitError, code="BT922"):
    """A worktree was not removed: it may hold something that is nowhere else."""

    remedy = "Look into the worktree that the message names; commit what is there, or copy it elsewhere, then try again."

    def __init__(self, place: str, problem: str) -> None:
        self.place = place
        super().__init__(place, problem)
