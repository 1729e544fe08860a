"""The statuses of a run and which may follow which: one table. An entry that would make another move is refused, and not written.

``State.status`` says which one a run has.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, TypeVar

from bartack.errors import EntryError
from bartack.runtime.state import entries as e
from bartack.runtime.state.run_state import RunStatus, State

Happening = Literal["asked", "answered", "started", "stopped", "completed", "failed", "cancelled", "aborted"]
"""What may happen to a run: a question opens or is settled, a process runs it from now on or stops in order, it ends."""

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
    "interrupted": {"started": _OPEN, **_ENDS},
    "failed": {"started": _OPEN, **_ENDS},
    "completed": {},
    "cancelled": {},
    "aborted": {},
}
"""A run that is running or waiting is started when its hub was killed. A run without a hub can be cancelled or failed without
starting it."""

_Data = TypeVar("_Data", bound=e.HubStarted | e.HubStopped | e.RunEnded)


def happening_of(data: e.EntryData) -> Happening | None:
    """What an entry means for the status of its run; ``None``: nothing."""
    match data:
        case e.HubStarted():
            return "started"
        case e.HubStopped():
            return "stopped"
        case e.RunEnded(status="completed" | "failed" | "cancelled" | "aborted" as status):
            return status
        case e.StepStarted(question=question) if question:
            return "asked"
        case e.StepFinished(step="ask") | e.StepFailed(step="ask"):
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
    if status == "waiting" and all(path == leaver for path, _, _ in state.questions.values()):
        status = "running"
    happening = happening_of(data)
    if happening not in MOVES[status]:
        raise EntryError(data.kind, f"a run that is {status} cannot be {happening}")
    return data
