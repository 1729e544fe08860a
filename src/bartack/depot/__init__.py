"""Where runs are kept, and which process has to take care of them.

A ``RunStore`` keeps runs: each is a ``KeptRun``, whose journal is read, followed and owned through it, wherever it is kept. Nothing
above this package knows where that is. A ``Depot`` is the queue of a user, with its schedules and the seat of the one node that
takes runs from it. Where runs are kept in files, a user has one queue and a directory of runs for each workspace.

The journal of a run is the truth about the run. The queue is the truth about who has to take care of it: whether it waits for its
turn, is owned by a node, rests, is held, or is over. Read ``_kept.py`` for what is promised of runs that are kept, then
``_directory.py``, a run in files. Read ``_contract.py`` for what a queue promises and ``ledger.py`` for the decisions, which every
queue shares; ``_file.py`` and ``_memory.py`` only keep what was decided. ``_workspaces.py`` knows the workspaces of the user, where
the runs are that no queue knows.

``postgres/`` keeps runs in a database. ``placed.py`` is a run by its directory, wherever it is kept; ``elsewhere.py`` says how a
directory names a database, and ``team.py`` moves runs between the two.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bartack._lazy import lazy

if TYPE_CHECKING:
    from bartack.depot._contract import (
        Claim,
        Depot,
        Job,
        Missed,
        NodeFacts,
        OnFailure,
        Placement,
        Schedule,
        Seat,
        Standing,
        Verdict,
        WorkspaceUse,
    )
    from bartack.depot._file import FileDepot, user_depot
    from bartack.depot._kept import KeptRun, RunStore
    from bartack.depot._memory import MemoryDepot
    from bartack.depot._workspaces import Workspace, Workspaces, user_workspaces
    from bartack.depot.folder import FileRuns

__all__ = [
    "Claim",
    "Depot",
    "FileDepot",
    "FileRuns",
    "Job",
    "KeptRun",
    "MemoryDepot",
    "Missed",
    "NodeFacts",
    "OnFailure",
    "Placement",
    "RunStore",
    "Schedule",
    "Seat",
    "Standing",
    "Verdict",
    "Workspace",
    "WorkspaceUse",
    "Workspaces",
    "user_depot",
    "user_workspaces",
]

__getattr__, __dir__ = lazy(
    __name__,
    {
        "_contract": "Claim Depot Job Missed NodeFacts OnFailure Placement Schedule Seat Standing Verdict WorkspaceUse",
        "_file": "FileDepot user_depot",
        "_kept": "KeptRun RunStore",
        "_memory": "MemoryDepot",
        "_workspaces": "Workspace Workspaces user_workspaces",
        "folder": "FileRuns",
    },
)
