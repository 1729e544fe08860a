"""Reads the report of a run from its directory; nothing is changed, and no hub is needed."""

from __future__ import annotations

import os
import shlex
from collections.abc import Generator
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import Final

import msgspec

from bartack.errors import NotPipelineError, RunNotFoundError, TaskNotFoundError, WorkspaceError
from bartack.pipeline.report._gathered import Gathered, gather
from bartack.pipeline.report._make import Asked, Situation, make_report
from bartack.pipeline.report._work import (
    Difference,
    Work,
    find_carried_work,
    find_work,
    open_difference,
)
from bartack.pipeline.report.report import RunReport
from bartack.pipeline.request import MAIN
from bartack.runtime.hub.carried import show_workspace
from bartack.runtime.rundir.asked import load_question
from bartack.runtime.rundir.find import status_of
from bartack.runtime.rundir.layout import RunDir
from bartack.runtime.state.run_state import State

MOST_RESULT: Final = 2000
"""Characters of a program's result that a report has."""


def read_report(run: RunDir) -> RunReport:
    """The report of a run, as it is now.

    Raises:
        RunNotFoundError: The journal has no run in it.
        JournalError: The journal cannot be read.
    """
    gathered, result = _gather(run)
    state = gathered.timeline.state
    is_pipeline = _is_pipeline(state)
    situation = Situation(
        run=run.id,
        status=status_of(run, state),
        is_pipeline=is_pipeline,
        questions=_questions(run, state),
        result="" if is_pipeline else result,
    )
    work = Work()
    if is_pipeline and state.copies.latest is not None:
        work = find_carried_work(gathered, run.path, _pulling(run))
    elif is_pipeline:
        try:
            work = find_work(gathered, run.path, run.workspace(state))
        except WorkspaceError as error:
            work = Work(problem=error.message)
    return make_report(gathered, situation, work)


@contextmanager
def open_work(run: RunDir, task: str = "") -> Generator[Difference]:
    """The work of a run, or of one task, to be compared by git.

    Raises:
        TaskNotFoundError: The run has no such task.
        NotPipelineError: It is not a run of the pipeline.
        GitError: Git cannot be used, or a branch is gone.
    """
    gathered, _ = _gather(run)
    state = gathered.timeline.state
    if not _is_pipeline(state):
        raise NotPipelineError(run.id)
    if task and task not in gathered.tasks:
        known = tuple(gathered.tasks)
        raise TaskNotFoundError(task, tuple(get_close_matches(task, known)), known, run.id)
    with open_difference(gathered, run.path, show_workspace(run, state), task) as found:
        yield found


def read_tasks(run_dir: str | os.PathLike[str]) -> list[str]:
    """The ids of the tasks of a run."""
    return list(_gather(RunDir(Path(run_dir)))[0].tasks)


def _gather(run: RunDir) -> tuple[Gathered, str]:
    with run.open_reader() as reader:
        entries = list(reader.read())
        gathered = gather(entries, reader.load_value)
        state = gathered.timeline.state
        if state.run is None:
            raise RunNotFoundError(run.id)
        ended = next((entry for entry in reversed(entries) if entry.kind == "run.ended"), None)
        value = reader.load_value(ended) if ended is not None else None
    return gathered, _one_line(value)


def _pulling(run: RunDir) -> str:
    """The command that brings the files of a run of a database."""
    on = f" --on {shlex.quote(run.where.on)}" if run.where is not None and not run.is_of_node else ""
    return f"bartack pull {run.id}{on}"


def _one_line(value: bytes | None) -> str:
    if value is None or value == b"null":
        return ""
    text = msgspec.json.format(value, indent=0).decode()
    return text if len(text) <= MOST_RESULT else f"{text[:MOST_RESULT]}…"


def _is_pipeline(state: State) -> bool:
    return state.run is not None and state.run.worker == MAIN


def _questions(run: RunDir, state: State) -> list[Asked]:
    found: list[Asked] = []
    for question in state.questions.values():
        args, _ = load_question(run, question)
        options = f" (one of: {', '.join(args.options)})" if args.options else ""
        found.append(Asked(id=question.id, worker=question.worker, text=f"{args.question}{options}"))
    return found
