"""The stages of a task and which may follow which: one table. Every other move is refused before anything is journaled."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

from bartack.errors import PipelineError

TaskStage = Literal["start", "implement", "tests", "review", "spec", "complete"]

NEXT: Final[Mapping[TaskStage, frozenset[TaskStage]]] = {
    "start": frozenset({"implement"}),
    "implement": frozenset({"tests"}),
    "tests": frozenset({"tests", "implement", "review", "spec", "complete"}),
    "review": frozenset({"review", "implement", "spec", "complete"}),
    "spec": frozenset({"spec", "implement", "complete"}),
    "complete": frozenset(),
}
"""A stage follows itself where a person has resumed a run at its bound."""

STAGES: Final[Mapping[str, TaskStage]] = {
    "implement": "implement",
    "implement_changes": "implement",
    "review": "review",
    "update_spec": "spec",
}
"""The stage that a command belongs to."""


class Stages:
    """Where a task is."""

    def __init__(self, task_id: str) -> None:
        self._task_id = task_id
        self._now: TaskStage = "start"

    def enter(self, stage: TaskStage) -> None:
        """Enter a stage.

        Raises:
            PipelineError: It cannot follow the one before: the program is wrong, and does nothing more.
        """
        if stage not in NEXT[self._now]:
            raise PipelineError(f"task {self._task_id}: {stage} cannot follow {self._now}")
        self._now = stage
