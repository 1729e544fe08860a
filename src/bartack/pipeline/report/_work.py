"""Finds the work of a run: which commits or files it is in, how many lines it has, and whether it can be taken over. It only reads.

Tasks in parallel have branches. A run in the workspace has receipts: what each task changed is computed from them, and compared in
a scratch repository (``_scratch.py``).
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from bartack.agents.protocol.ids import moment
from bartack.errors import GitError, ManifestError
from bartack.pipeline.report._gathered import Gathered, Given
from bartack.pipeline.report._reading_git import ReadingGit, check_commit
from bartack.pipeline.report._scratch import Changed, Contents, Scratch, Version
from bartack.pipeline.report._takeover import check_merge, check_workspace
from bartack.pipeline.report.report import FileLines, Takeover, WorkCommit
from bartack.pipeline.snapshot._paths import path_text
from bartack.pipeline.snapshot._patterns import Patterns
from bartack.pipeline.worktree._worktrees import RESULT, branch_of, lane_name
from bartack.runtime.rundir.receipts import FileChange
from bartack.runtime.rundir.snapshots import manifest_path, read_manifest

_SNAPSHOT: Final = re.compile(r"snap-[0-9a-f]{12}\Z")


class TaskWork(msgspec.Struct, frozen=True, kw_only=True):
    """What a task has changed."""

    files: list[FileLines] = []
    commits: list[WorkCommit] = []
    branch: str = ""


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """What a run has changed, and how it is taken over; ``problem``: why that is not known."""

    tasks: dict[str, TaskWork] = {}
    takeover: Takeover | None = None
    problem: str = ""


class Difference(NamedTuple):
    """Two commits with work between them, and files whose content is not there any more."""

    git: ReadingGit
    start: str
    end: str
    unknown: list[FileLines]

    def files(self) -> list[FileLines]:
        """The files that differ, those without content included."""
        found = self.git.list_files(self.start, self.end) if self.start != self.end else []
        return sorted([*found, *self.unknown], key=lambda file: file.path)


def find_work(gathered: Gathered, run_dir: Path, workspace: str) -> Work:
    """Find the work of a run of the pipeline."""
    try:
        if gathered.base is not None:
            return _Branches(gathered, run_dir, workspace).work()
        with _in_workspace(gathered, run_dir, workspace) as found:
            return found.work()
    except GitError as error:
        return Work(problem=error.message.partition("\n")[0])


def find_carried_work(gathered: Gathered, run_dir: Path, command: str) -> Work:
    """Find the work of a run whose workspace is a copy of its own, which need not be on this machine.

    Args:
        gathered: What its journal has.
        run_dir: Its directory on this machine.
        command: Brings the files of the run into a repository.
    """
    receipts = _Receipts(gathered, run_dir)
    changed = {task: receipts.changes(gathered.given_for(task)) for task in gathered.tasks}
    tasks = {task: TaskWork(files=_without_lines(found)) for task, found in changed.items()}
    if not any(changed.values()):
        return Work(tasks=tasks, takeover=Takeover(state="nothing", advice="No file is changed yet."))
    advice = "It brings the files of the run here as a branch, and prints the command that merges it."
    return Work(tasks=tasks, takeover=Takeover(state="unchecked", command=command, advice=advice))


@contextmanager
def open_difference(
    gathered: Gathered, run_dir: Path, workspace: str, task: str = ""
) -> Generator[Difference]:
    """The work of a run, or of one task, as something that git compares.

    Raises:
        GitError: Git cannot be used, or a branch is gone.
    """
    if gathered.base is not None:
        branches = _Branches(gathered, run_dir, workspace)
        yield branches.difference(task)
        return
    with _in_workspace(gathered, run_dir, workspace) as found:
        yield found.difference(task)


# Tasks with branches.


class _Branches:
    def __init__(self, gathered: Gathered, run_dir: Path, workspace: str) -> None:
        assert gathered.base is not None
        self._gathered = gathered
        self._run_dir = str(run_dir)
        self._base = check_commit(gathered.base.commit)
        self._began = gathered.base
        self._git = ReadingGit(workspace)
        self._names = self._list_branches()
        self._ranges = self._merged_ranges()

    def work(self) -> Work:
        tasks = {task: self._task(task) for task in self._gathered.tasks}
        return Work(tasks=tasks, takeover=self._takeover())

    def difference(self, task: str) -> Difference:
        if not task:
            return Difference(self._git, self._base, self._result() or self._base, [])
        start, end = self._range(task)
        return Difference(self._git, start, end, [])

    def _task(self, task: str) -> TaskWork:
        start, end = self._range(task)
        branch = self._branch(task)
        if start == end:
            return TaskWork(branch=branch)
        return TaskWork(
            files=self._git.list_files(start, end),
            commits=self._git.list_commits(start, end),
            branch=branch,
        )

    def _list_branches(self) -> set[str]:
        prefix = f"refs/heads/{branch_of(self._run_dir, '')}"
        listed = self._git.line("for-each-ref", "--format=%(refname)", prefix.rstrip("/")).splitlines()
        return {ref.removeprefix(prefix) for ref in listed}

    def _branch(self, task: str) -> str:
        """The last branch of a task; empty if it has none."""
        name = lane_name(task)
        own = [found for found in self._names if found == name or found.startswith(f"{name}@")]
        last = max(own, key=lambda found: int(found.partition("@")[2] or 1), default="")
        return branch_of(self._run_dir, last) if last else ""

    def _merged_ranges(self) -> dict[str, tuple[str, str]]:
        """Of each task that is merged: the result before it and after it."""
        ranges: dict[str, tuple[str, str]] = {}
        before = self._base
        for merged in self._gathered.merged:
            if merged.commit:
                ranges.setdefault(merged.task_id, (before, check_commit(merged.commit)))
                before = check_commit(merged.commit)
        return ranges

    def _range(self, task: str) -> tuple[str, str]:
        merged = self._ranges.get(task)
        if merged is not None:
            return merged
        branch = self._branch(task)
        end = self._git.find_commit(f"refs/heads/{branch}") if branch else ""
        if not end:
            return self._base, self._base
        return self._git.line("merge-base", self._result() or self._base, end) or self._base, end

    def _result(self) -> str:
        """The commit with the work of all tasks that are merged; empty if none is."""
        tip = self._git.find_commit(f"refs/heads/{branch_of(self._run_dir, RESULT)}")
        if tip:
            return tip
        known = self._gathered.delivered
        return self._git.find_commit(check_commit(known.commit)) if known is not None else ""

    def _takeover(self) -> Takeover:
        if RESULT in self._names:
            return check_merge(self._git, branch_of(self._run_dir, RESULT), self._began)
        done, head = self._result(), self._git.find_commit("HEAD")
        if done and head and self._git.test("merge-base", "--is-ancestor", done, head):
            return Takeover(state="done", commit=done, advice="Your branch has the work.")
        return Takeover(state="nothing", advice="No task is merged yet.")


# Tasks in the workspace.


class _Receipts:
    """What answers have changed, as their receipts and the snapshots of the run have it."""

    def __init__(self, gathered: Gathered, run_dir: Path) -> None:
        self._gathered = gathered
        self._run_dir = run_dir

    def changes(self, given: list[Given]) -> list[Changed]:
        """What some answers together have changed, as their receipts have it."""
        before = self._files(given[0].receipt.snapshot_id) if given else {}
        last = self._files(given[-1].receipt.result_snapshot_id) if given else {}
        after: dict[str, Version | None] = {}
        for one in given:
            for change in self._own(one):
                sum_ = change.sha256.removeprefix("sha256:")
                after[change.path] = None if change.change == "deleted" else Version(sum_)
        found: list[Changed] = []
        for path, now in sorted(after.items()):
            was = None if before is None else before.get(path)
            if before is not None and (None if was is None else was.sha256) == (now and now.sha256):
                continue  # it is as it was before
            kept = now and (last or {}).get(path, now)
            kept = kept if kept is None or now is None or kept.sha256 == now.sha256 else now
            found.append(Changed(path, was, kept, known=before is not None))
        return found

    def _own(self, given: Given) -> list[FileChange]:
        """The changes of an answer that are work: a reviewer works where it may write, and where it reports to have."""
        changes = given.receipt.changes
        if given.receipt.action != "review":
            return changes
        reported = {artifact.path for artifact in given.receipt.artifacts}
        order = self._gathered.order
        writable = Patterns(order.settings.review.writable if order is not None else ())
        return [one for one in changes if one.path in reported or writable.match(os.fsencode(one.path))]

    def _files(self, snapshot: str) -> dict[str, Version] | None:
        """The files of a snapshot; ``None`` if its manifest is missing."""
        if not _SNAPSHOT.match(snapshot):
            return None
        try:
            listed = read_manifest(manifest_path(self._run_dir / "snapshots", snapshot))[1]
        except ManifestError:
            return None
        return {path_text(entry.path): Version(entry.sha256, entry.mode) for entry in listed}


@contextmanager
def _in_workspace(gathered: Gathered, run_dir: Path, workspace: str) -> Generator[_InWorkspace]:
    with tempfile.TemporaryDirectory(prefix="bartack-report-") as folder:
        yield _InWorkspace(gathered, run_dir, workspace, Path(folder))


class _InWorkspace:
    def __init__(self, gathered: Gathered, run_dir: Path, workspace: str, folder: Path) -> None:
        self._gathered = gathered
        self._git = _find_repository(workspace)
        receipts = _Receipts(gathered, run_dir)
        self._changed = {task: receipts.changes(gathered.given_for(task)) for task in gathered.tasks}
        self._all = receipts.changes(gathered.given)
        paths = {one.path for one in self._all}
        kept = run_dir / "work" / "spec"
        self._contents = Contents(workspace, self._git, self._commits(), paths, kept)
        self._folder = folder
        self._made: Scratch | None = None

    def work(self) -> Work:
        try:
            tasks = {task: TaskWork(files=self.difference(task).files()) for task in self._changed}
        except GitError:
            # Without git there are no numbers of lines.
            tasks = {task: TaskWork(files=_without_lines(found)) for task, found in self._changed.items()}
        return Work(tasks=tasks, takeover=check_workspace(self._git, self._contents, self._all))

    def difference(self, task: str) -> Difference:
        self._made = self._made or Scratch(self._folder, self._contents)
        compared = self._made.compare(self._changed[task] if task else self._all)
        return Difference(self._made.git, *compared)

    def _commits(self) -> list[str]:
        """The last commit, and the one that was the last when the run began."""
        if self._git is None:
            return []
        began = moment(self._gathered.timeline.state.created_at)
        head = self._git.find_commit("HEAD")
        return [head, self._git.line("rev-list", "-1", f"--before={began}", "HEAD")] if head else []


def _find_repository(workspace: str) -> ReadingGit | None:
    git = ReadingGit(workspace)
    try:
        inside = git.done("rev-parse", "--is-inside-work-tree", fine=(0, 128))
    except GitError:
        return None
    return git if inside.status == 0 and inside.line == "true" else None


def _without_lines(changed: Iterable[Changed]) -> list[FileLines]:
    return [FileLines(path=one.path, change=one.state) for one in changed]
