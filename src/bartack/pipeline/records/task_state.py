"""How far a run of the pipeline is: its stage, its tasks, and the last answer of each agent. A pure fold of the journal.

What the entries of the journal mean is in ``facts.py``.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Final, Literal, cast, get_args

import msgspec

from bartack.depot import KeptRun
from bartack.errors import StepCancelledError
from bartack.journal import JournalReader
from bartack.pipeline.records.facts import Fact, FactMaker, read_facts
from bartack.pipeline.records.records import (
    Accepted,
    Activated,
    Delivered,
    Merged,
    PipelineOrder,
    Record,
    Shot,
    TaskRecord,
)
from bartack.runtime.protocol.steps import ThinkArgs
from bartack.runtime.rundir.find import shorten_goal
from bartack.runtime.rundir.layout import kept_run
from bartack.runtime.state.entries import RunEnded

Stage = Literal["intake", "activate", "implement", "tests", "review", "spec", "merge", "complete"]
TaskStatus = Literal["waiting", "running", "done", "failed", "conflict", "skipped", "aborted"]

_STAGES: Final[dict[str, Stage]] = {
    "intake": "intake",
    "task_discovery": "intake",
    "implement": "implement",
    "implement_changes": "implement",
    "review": "review",
    "update_spec": "spec",
}


_ORDER: Final[tuple[Stage, ...]] = get_args(Stage)


class TaskProgress(msgspec.Struct):
    """How far a task is."""

    id: str
    title: str
    status: TaskStatus = "waiting"
    receipts: int = 0


class AgentWord(Record, frozen=True):
    """The last answer of an agent."""

    event: str
    task_id: str
    action: str
    at: str
    status: str = ""
    receipt: int = 0


class Progress(msgspec.Struct):
    """How far a run is."""

    stage: Stage = "activate"
    task_id: str = ""
    tasks: list[TaskProgress] = []
    agents: dict[str, AgentWord] = {}
    snapshot_id: str = ""
    goal: str = ""
    """What is to be done, in a few words."""
    files: int = 0
    """How many files the agents have changed."""
    result: Delivered | None = None
    """Where the work of tasks side by side is."""


def read_progress(run: KeptRun | str | os.PathLike[str]) -> Progress:
    """How far a run is, from its journal; the run, or its directory."""
    return make_progress(read_facts(run))


class ProgressReader:
    """How far a run is, read again and again: each entry of the journal is read once."""

    def __init__(self, run: KeptRun | str | os.PathLike[str]) -> None:
        self._run = kept_run(run)
        self._reader: JournalReader | None = None
        self._folding = _Fold()

    def read(self) -> Progress:
        """How far it is now.

        Raises:
            JournalError: The journal cannot be read.
        """
        if self._reader is None:
            self._reader = self._run.open_reader()
            self._maker = FactMaker(self._reader.load_value)
        for fact in self._maker.take(self._reader.read_on()):
            self._folding.take(fact)
        return self._folding.progress

    def close(self) -> None:
        """Close the journal."""
        if self._reader is not None:
            self._reader.close()
            self._reader = None


def make_progress(facts: Iterable[Fact]) -> Progress:
    """How far a run is, from its facts."""
    folding = _Fold()
    for fact in facts:
        folding.take(fact)
    return folding.progress


class _Fold:
    def __init__(self) -> None:
        self.progress = Progress()
        self._tasks: dict[str, TaskProgress] = {}
        self._paths: dict[str, TaskProgress] = {}
        self._stages: dict[str, Stage] = {}
        """The stage of each task that is under way; the earliest of them is the stage of the run."""
        self._changed: set[str] = set()

    def take(self, fact: Fact) -> None:
        progress = self.progress
        match fact.value:
            case PipelineOrder() as order:
                progress.stage = "intake" if order.instruction else "activate"
                progress.goal = _goal_of(order)
            case Activated(tasks=tasks):
                self._activate(tasks)
            case (str() as path, TaskRecord() as record):
                self._begin(path, record)
            case Shot(snapshot_id=snapshot):
                progress.snapshot_id = snapshot
            case ThinkArgs(command=command) if command is not None:
                self._reach(command.task_id, _STAGES.get(command.action, progress.stage))
            case Accepted() as accepted:
                self._accept(accepted)
            case Delivered() as delivered:
                progress.result = delivered
            case Merged() as merged:
                self._merge(merged)
            case RunEnded(status="aborted" | "cancelled"):
                self._abort()
            case RunEnded(status="completed"):
                progress.stage, progress.task_id = "complete", ""
            case _:
                pass
        if fact.kind == "task_ended":
            self._end(fact)

    def _abort(self) -> None:
        """The run has ended: tasks that were under way are aborted, and those that waited are skipped."""
        for task in self._tasks.values():
            if task.status in {"running", "conflict"}:
                task.status = "aborted"
            elif task.status == "waiting":
                task.status = "skipped"

    def _activate(self, tasks: list[TaskRecord]) -> None:
        self._tasks = {task.id: TaskProgress(task.id, task.title) for task in tasks}
        self.progress.tasks = list(self._tasks.values())

    def _begin(self, path: str, record: TaskRecord) -> None:
        task = self._tasks.setdefault(record.id, TaskProgress(record.id, record.title))
        task.status = "running"
        self._paths[path] = task
        self.progress.task_id = record.id
        self._stages[record.id] = "implement"

    def _reach(self, task_id: str, stage: Stage) -> None:
        if task_id in self._tasks:
            self._stages[task_id] = stage
        under_way = set(self._stages.values()) or {stage}
        self.progress.stage = next(stage for stage in _ORDER if stage in under_way)

    def _merge(self, merged: Merged) -> None:
        task = self._tasks.get(merged.task_id)
        if task is not None:
            task.status = "done" if merged.commit else "conflict"
        self.progress.stage, self.progress.task_id = "merge", merged.task_id

    def _end(self, fact: Fact) -> None:
        task = self._paths.get(cast("str", fact.value))
        if task is None:
            return
        self._stages.pop(task.id, None)
        if fact.error is None:
            task.status = "done"
        elif not fact.error.type.endswith(f":{StepCancelledError.__name__}"):
            task.status = "failed"

    def _accept(self, accepted: Accepted) -> None:
        receipt = accepted.receipt
        if receipt is None:
            return
        self._changed.update(change.path for change in receipt.changes)
        self.progress.files = len(self._changed)
        if receipt.action in {"implement", "implement_changes"}:
            self._reach(receipt.task_id, "tests")
        task = self._tasks.get(receipt.task_id)
        if task is not None:
            task.receipts = receipt.step
            task.status = "running"
        self.progress.agents[receipt.agent.agent_id] = AgentWord(
            event=receipt.event,
            status=receipt.status,
            task_id=receipt.task_id,
            action=receipt.action,
            at=receipt.created_at,
            receipt=receipt.step,
        )


def _goal_of(order: PipelineOrder) -> str:
    """What a run is to do, in a few words."""
    if order.instruction or not order.tasks:
        return shorten_goal(order.instruction)
    first = order.tasks[0]
    return shorten_goal(first.title or first.goal, len(order.tasks))
