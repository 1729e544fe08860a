"""Names of workers for people: the task of the pipeline, else the worker and its first short argument."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeVar

import msgspec

from bartack.cli.app._pipeline_options import PIPELINE
from bartack.cli.app._terminal import printable
from bartack.core import typed
from bartack.runtime.state.run_state import State
from bartack.runtime.state.worker_state import WorkerState

SHORT: Final = 16
"""The longest argument that is part of a name."""
_OURS: Final = "bartack.pipeline."
_TASK: Final = ":task"

T = TypeVar("T")


class _Arguments(msgspec.Struct):
    args: list[msgspec.Raw] = []
    kwargs: dict[str, msgspec.Raw] = {}


class TaskFacts(msgspec.Struct):
    """A task of the pipeline, as far as it is shown."""

    id: str
    depends_on: list[str] = []


class _Order(msgspec.Struct):
    tasks: list[TaskFacts] = []


def name_of(worker: WorkerState) -> str:
    """The name of a worker; siblings can have the same one (see ``place_of``)."""
    own = worker.path.rpartition("/")[2]
    name = own.partition(":")[2] or own
    given = _arguments(worker)
    if given is None:
        return printable(name)
    if worker.worker.startswith(_OURS) and worker.worker.endswith(_TASK):
        task = _decoded(given.args[1:2], TaskFacts)
        return printable(task.id) if task is not None else printable(name)
    short = _short([*given.args[:1], *list(given.kwargs.values())[:1]])
    return printable(f"{name} {short}" if short else name)


def place_of(worker: WorkerState) -> str:
    """What distinguishes a worker from siblings of the same name: its place in the path."""
    place, colon, _ = worker.path.rpartition("/")[2].partition(":")
    return place if colon else ""


def planned_tasks(state: State) -> Sequence[TaskFacts]:
    """The tasks that a run of the pipeline was started with."""
    if state.run is None or state.run.worker != PIPELINE:
        return ()
    first = state.workers.get(state.run.name)
    given = None if first is None else _arguments(first)
    order = None if given is None else _decoded(given.args[:1], _Order)
    return () if order is None else order.tasks


def _arguments(worker: WorkerState) -> _Arguments | None:
    """What a worker was called with; ``None`` if that is too large to be kept in its entry."""
    if worker.given.raw is None:
        return None
    try:
        return typed.decode(worker.given.raw, type=_Arguments)
    except msgspec.DecodeError:
        return None


def _decoded(given: Sequence[msgspec.Raw], type_: type[T]) -> T | None:
    try:
        return typed.decode(given[0], type=type_) if given else None
    except msgspec.DecodeError:
        return None


def _short(given: Sequence[msgspec.Raw]) -> str:
    """The first argument as text, if it is a short text or a number."""
    for one in given[:1]:
        if len(one) > 4 * SHORT:
            break
        value: object = msgspec.json.decode(one)
        if isinstance(value, str | int | float) and not isinstance(value, bool):
            text = str(value)
            return text if len(text) <= SHORT and text.isprintable() else ""
    return ""
