"""Tasks that an agent proposes: what they look like, and whether they can be used."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Final

import msgspec

from bartack.agents.artifacts import check_path
from bartack.core import typed
from bartack.errors import ActivationError, UnsafePathError
from bartack.pipeline.records.records import DerivedTask, PlanCandidate, Proposal, TaskRecord
from bartack.pipeline.worktree._worktrees import RESULT

_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}\Z")
RESERVED: Final = frozenset({"intake", RESULT})
"""Names under which the pipeline keeps receipts and worktrees of its own."""


def read_proposal(payload: Mapping[str, object]) -> Proposal:
    """A proposal as it came.

    Raises:
        msgspec.ValidationError: It has another form.
    """
    present = {name: value for name, value in payload.items() if value is not None}
    return typed.convert(present, type=Proposal)


def proposal_problem(payload: Mapping[str, object], workspace: str) -> str:
    """What is wrong with a proposal; empty if nothing is."""
    try:
        proposal = read_proposal(payload)
    except msgspec.ValidationError as error:
        return str(error)
    problems = [
        *(_plan_problem(candidate, workspace) for candidate in proposal.plan_candidates),
        "" if proposal.derived_tasks else _emptiness(payload),
        *map(_name_problem, proposal.derived_tasks),
    ]
    if any(problems):
        return next(filter(None, problems))
    if len({task.id.casefold() for task in proposal.derived_tasks}) < len(proposal.derived_tasks):
        return "two tasks have the same id, or ids that differ only in upper and lower case"
    try:
        sort_tasks(
            [TaskRecord(id=t.id, goal=t.goal, depends_on=t.depends_on) for t in proposal.derived_tasks]
        )
    except ActivationError as error:
        return error.problem
    return ""


def _emptiness(payload: Mapping[str, object]) -> str:
    """A proposal without a task leaves nothing to decide; often the tasks are there under another name."""
    unknown = [repr(name) for name in payload if name not in Proposal.__struct_fields__]
    verb = "is not a member" if len(unknown) == 1 else "are not members"
    other = f", and {', '.join(unknown)} {verb} of a proposal" if unknown else ""
    return f"there is no task in derived_tasks{other}; derived_tasks is a list of objects with id and title"


def _name_problem(task: DerivedTask) -> str:
    if not _ID.match(task.id):
        return f"{task.id!r} is not an id of a task"
    if is_reserved(task.id):
        return f"{task.id!r} is a name that the pipeline uses itself: give the task another id"
    return "" if task.title.strip() else f"task {task.id} has no title"


def is_reserved(id_: str) -> bool:
    """Whether the pipeline uses the id of a task itself, also where file names know no upper and lower case."""
    return id_.casefold() in RESERVED


def _plan_problem(candidate: PlanCandidate, workspace: str) -> str:
    if candidate.confidence is not None and not 0 <= candidate.confidence <= 1:
        return f"{candidate.path}: a confidence of {candidate.confidence:g} is not between 0 and 1"
    try:
        found = os.path.isfile(check_path(workspace, candidate.path))
    except UnsafePathError as error:
        return error.message
    return "" if found else f"there is no file {candidate.path}"


def sort_tasks(tasks: list[TaskRecord]) -> list[TaskRecord]:
    """Tasks in their order, each after those it depends on.

    Raises:
        ActivationError: An id is there twice, a task depends on one that is not there, or on itself.
    """
    known = {record.id: record for record in tasks}
    if len(known) != len(tasks):
        raise ActivationError("two tasks have the same id")
    for record in tasks:
        for name in record.depends_on:
            if name not in known:
                raise ActivationError(
                    f"task {record.id} depends on {name!r}, which is not a task of this run"
                )
    order: list[TaskRecord] = []
    placed: set[str] = set()
    while len(order) < len(tasks):
        ready = next((r for r in tasks if r.id not in placed and placed.issuperset(r.depends_on)), None)
        if ready is None:
            stuck = ", ".join(record.id for record in tasks if record.id not in placed)
            raise ActivationError(f"these tasks depend on each other: {stuck}")
        order.append(ready)
        placed.add(ready.id)
    return order
