"""The statuses of a run and which may follow which: one table. An entry that would make another move is refused, and not written.

``State.status`` says which one a run has, ``worker_status`` which one a worker of it has for people.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, TypeVar

from bartack.errors import EntryError
from bartack.runtime.state import entries as e
from bartack.runtime.state.run_state import RunStatus, State

Happening = Literal["asked", "answered", "started", "stopped", "completed", "failed", "cancelled", "aborted"]
"""What may happen to a run: a question opens or is settled, a process runs it from now on or shuts down cleanly, it ends."""

_ENDS: Final[Mapping[Happening, frozenset[RunStatus]]] = {
    "failed": frozenset({"failed"}),
    "cancelled": frozenset({"cancelled"}),
}
_OPEN: Final[frozenset[RunStatus]] = frozenset({"running", "waiting"})
_STOPS: Final[Mapping[Happening, frozenset[RunStatus]]] = {
    "stopped": frozenset({"interrupted"}),
    "aborted": frozenset({"aborted"}),
    **_ENDS,
}

MOVES: Final[Mapping[RunStatus, Mapping[Happening, frozenset[RunStatus]]]] = {
    "running": {
        "asked": frozenset({"waiting"}),
        "started": frozenset({"running"}),
        "completed": frozenset({"completed"}),
        **_STOPS,
    },
    "waiting": {
        "asked": frozenset({"waiting"}),
        "answered": _OPEN,
        "started": frozenset({"waiting"}),
        **_STOPS,
    },
    "interrupted": {"answered": frozenset({"interrupted"}), "started": _OPEN, **_ENDS},
    "failed": {"answered": frozenset({"failed"}), "started": _OPEN, **_ENDS},
    "completed": {},
    "cancelled": {},
    "aborted": {},
}
"""A run that is running or waiting is started when its hub was killed. A run without a hub can be cancelled or failed,
and questions of its agents can be answered, without starting it."""

_Data = TypeVar("_Data", bound=e.HubStarted | e.HubStopped | e.RunEnded)


def is_cut_off(state: State, *, active: bool) -> bool:
    """Whether the run has failed, was cancelled or aborted, and has stopped: what was under way then has no outcome."""
    if state.ended is not None:
        return state.ended.status != "completed"
    return state.failure is not None and not active


def worker_status(state: State, status: str, *, active: bool) -> str:
    """The status of a worker for people: one that has not ended is running, interrupted, or aborted with its run.

    Args:
        state: The run.
        status: The status of the worker, as entries have it.
        active: Whether a hub runs the run.
    """
    if status not in {"waiting", "running"}:
        return status
    if is_cut_off(state, active=active):
        return "aborted"
    return "running" if active else "interrupted"


def happening_of(data: e.EntryData) -> Happening | None:
    """What an entry means for the status of its run; ``None``: nothing."""
    match data:
        case e.HubStarted():
            return "started"
        case e.HubStopped():
            return "stopped"
        case e.RunEnded(status="completed" | "failed" | "cancelled" | "aborted" as status):
            return status
        case _:
            return _happening_of_question(data)


def _happening_of_question(data: e.EntryData) -> Happening | None:
    match data:
        case e.StepStarted(question=""):
            return None
        case e.QuestionAsked() | e.StepStarted():
            return "asked"
        case e.QuestionSettled() | e.StepFinished(step="ask") | e.StepFailed(step="ask"):
            return "answered"
        case _:
            return None


def moving(state: State, data: _Data, *, leaver: str = "") -> _Data:
    """The entry, if a run in this state may make the move that it is.

    Args:
        state: The run.
        data: The entry.
        leaver: A worker that ends in the same line: its questions are no longer open.

    Raises:
        EntryError: The move is not allowed: the caller is wrong, and nothing is written.
    """
    status: RunStatus = state.status
    if status == "waiting" and all(asked.worker == leaver for asked in state.questions.values()):
        status = "running"
    happening = happening_of(data)
    if happening not in MOVES[status]:
        raise EntryError(data.kind, f"a run that is {status} cannot be {happening}")
    return data
