"""What a user wants done, as the tasks of a run."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Final

from bartack.config.load import Config
from bartack.config.sections import TaskConfig
from bartack.errors import TaskNotFoundError, UsageError
from bartack.pipeline.records.records import TaskRecord

GOAL: Final = "goal"
"""The id of a task that is only a goal."""
TITLE: Final = 80
MAIN: Final = "bartack.pipeline._main:main"
"""The first worker of every run of the pipeline."""
PROGRAM: Final = Path(__file__).with_name("program") / "_pipeline.py"


def choose_tasks(config: Config, goal: str, ids: Sequence[str]) -> list[TaskRecord]:
    """The tasks that are meant: the goal, else the named ones, else all that are configured.

    Raises:
        TaskNotFoundError: One is not configured.
        UsageError: The goal is blank, or is to be several tasks.
    """
    if goal:
        if not goal.strip():
            raise UsageError("bartack run", "the goal is blank")
        if len(ids) > 1:
            raise UsageError("bartack run", "one goal is one task; name at most one --task with --goal")
        title = goal.strip().splitlines()[0][:TITLE]
        return [TaskRecord(id=ids[0] if ids else GOAL, goal=goal, title=title)]
    known = {task.id: task for task in config.tasks}
    for name in ids:
        if name not in known:
            raise TaskNotFoundError(name, tuple(get_close_matches(name, list(known))), tuple(known))
    chosen = [known[name] for name in dict.fromkeys(ids)] if ids else config.tasks
    return [_record(task, {task.id for task in chosen}) for task in chosen]


def _record(task: TaskConfig, chosen: set[str]) -> TaskRecord:
    return TaskRecord(
        id=task.id,
        title=task.title,
        goal=task.goal,
        task_files=task.files,
        # What is not part of this run cannot be waited for.
        depends_on=[name for name in task.depends_on if name in chosen],
    )
