"""The built-in program: takes tasks through implementation, tests, review and spec maintenance, with agents that do the work.

Its parts are useful by themselves: ``capture`` takes a snapshot of a workspace, ``iter_receipts`` reads what a run has to show.
``_task.py`` is where to begin reading.

Every name is imported when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from bartack.pipeline._entry import FileEntry
    from bartack.pipeline._facts import read_order
    from bartack.pipeline._ledger import LedgerLine, LedgerProblem, check_ledger, export_ledger
    from bartack.pipeline._listing import SnapshotOptions
    from bartack.pipeline._lock import WorkspaceLock, hold_workspace
    from bartack.pipeline._main import main, make_order
    from bartack.pipeline._manifest import Manifest, read_manifest, verify_manifest
    from bartack.pipeline._receipts import (
        iter_receipts,
        load_receipt,
        receipt_path,
        restore_receipts,
        verify_receipt,
    )
    from bartack.pipeline._records import PipelineOrder, Place, Receipt, Settings, TaskRecord
    from bartack.pipeline._request import MAIN, PROGRAM, check_ready, choose_tasks
    from bartack.pipeline._sections import missing_titles
    from bartack.pipeline._settings import choose_agents, make_settings, needed_roles
    from bartack.pipeline._snapshot import Change, Snapshot, capture, compare, snapshot_id
    from bartack.pipeline._standing import Progress, Standing, read_progress
    from bartack.pipeline._steps import note_resume
    from bartack.pipeline._task import task

__all__ = [
    "MAIN",
    "PROGRAM",
    "Change",
    "FileEntry",
    "LedgerLine",
    "LedgerProblem",
    "Manifest",
    "PipelineOrder",
    "Place",
    "Progress",
    "Receipt",
    "Settings",
    "Snapshot",
    "SnapshotOptions",
    "Standing",
    "TaskRecord",
    "WorkspaceLock",
    "capture",
    "check_ledger",
    "check_ready",
    "choose_agents",
    "choose_tasks",
    "compare",
    "export_ledger",
    "hold_workspace",
    "iter_receipts",
    "load_receipt",
    "main",
    "make_order",
    "make_settings",
    "missing_titles",
    "needed_roles",
    "note_resume",
    "read_manifest",
    "read_order",
    "read_progress",
    "receipt_path",
    "restore_receipts",
    "snapshot_id",
    "task",
    "verify_manifest",
    "verify_receipt",
]

_HOMES: Final = {
    "_entry": ("FileEntry",),
    "_listing": ("SnapshotOptions",),
    "_facts": ("read_order",),
    "_ledger": ("LedgerLine", "LedgerProblem", "check_ledger", "export_ledger"),
    "_lock": ("WorkspaceLock", "hold_workspace"),
    "_main": ("main", "make_order"),
    "_manifest": ("Manifest", "read_manifest", "verify_manifest"),
    "_standing": ("Progress", "Standing", "read_progress"),
    "_receipts": ("iter_receipts", "load_receipt", "receipt_path", "restore_receipts", "verify_receipt"),
    "_records": ("PipelineOrder", "Place", "Receipt", "Settings", "TaskRecord"),
    "_request": ("MAIN", "PROGRAM", "check_ready", "choose_tasks"),
    "_sections": ("missing_titles",),
    "_settings": ("choose_agents", "make_settings", "needed_roles"),
    "_snapshot": ("Change", "Snapshot", "capture", "compare", "snapshot_id"),
    "_steps": ("note_resume",),
    "_task": ("task",),
}


def __getattr__(name: str) -> object:
    for module, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
