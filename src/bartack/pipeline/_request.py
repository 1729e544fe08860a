"""What somebody wants done, as the tasks of a run; and whether everything is there that it takes, before anything is paid for."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Final

from bartack.agents import check_agents
from bartack.errors import ConfigError, TaskNotFoundError, UsageError
from bartack.pipeline._kept import check_repository
from bartack.pipeline._records import TaskRecord
from bartack.pipeline._settings import PipelineRole, choose_agents
from bartack.runtime.operate import Config, TaskConfig

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
            raise TaskNotFoundError(name, tuple(get_close_matches(name, list(known))))
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


def check_ready(
    config: Config, workspace: Path, environ: Mapping[str, str], roles: Sequence[PipelineRole]
) -> None:
    """Look whether every agent that a run may need can be used, and its test command is there. Nothing is started.

    Raises:
        ConfigError: Something is missing.
        GitError: Tasks are to be side by side, and the workspace is not fit for that.
    """
    if config.parallel.tasks > 1:
        check_repository(workspace)
    names = set(choose_agents(config, roles).values())
    for report in check_agents(config.agents, workspace, environ, sorted(names)):
        if not report.usable:
            raise ConfigError(f"agents.{report.name}", "; ".join(report.problems))
    tests = config.tests
    if tests.judged_by == "command" and not isinstance(tests.command, str):
        program = tests.argv[0]
        found = (workspace / program).is_file() if "/" in program else shutil.which(program)
        if not found:
            raise ConfigError("tests.command", f"{program!r} is not found")
