"""The built-in program: takes tasks through implementation, tests, review and spec maintenance, with agents that do the work.

Its parts are useful by themselves: ``capture`` takes a snapshot of a workspace, ``iter_receipts`` reads what a run has to show.
``_task.py`` is where to begin reading: it chooses the next stage of a task.

``program/`` is the program itself, which a run keeps a copy of; ``records/`` what a run leaves, ``snapshot/`` the id of a
workspace, ``worktree/`` tasks in parallel, ``report/`` the report for the person who takes the work over.

Every name is imported when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bartack._lazy import lazy

if TYPE_CHECKING:
    from bartack.pipeline._main import main, make_order
    from bartack.pipeline._steps import note_resume
    from bartack.pipeline._task import task

__all__ = [
    "main",
    "make_order",
    "note_resume",
    "task",
]

__getattr__, __dir__ = lazy(
    __name__,
    {
        "_main": "main make_order",
        "_steps": "note_resume",
        "_task": "task",
    },
)
