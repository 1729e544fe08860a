"""The built-in program: takes tasks through implementation, tests, review and spec maintenance, with agents that do the work.

Its parts are useful by themselves: ``capture`` takes a snapshot of a workspace, ``iter_receipts`` reads what a run has to show.
``_task.py`` is where to begin reading.

Every name is imported when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from bartack.pipeline._lock import WorkspaceLock, hold_workspace
    from bartack.pipeline._main import main, make_order
    from bartack.pipeline._ready import Obstacle, find_obstacles, warn_of_conflicts
    from bartack.pipeline._request import MAIN, PROGRAM, choose_tasks
    from bartack.pipeline._resume import describe_run, owning
    from bartack.pipeline._settings import PipelineRole, choose_agents, make_settings, needed_roles
    from bartack.pipeline._steps import note_resume
    from bartack.pipeline._task import task
    from bartack.pipeline.records._facts import read_order
    from bartack.pipeline.records._ledger import LedgerLine, LedgerProblem, check_ledger, export_ledger
    from bartack.pipeline.records._receipts import receipt_path, restore_receipts
    from bartack.pipeline.records._records import PipelineOrder, Place, Settings, TaskRecord
    from bartack.pipeline.records._task_state import Progress, ProgressReader, read_progress
    from bartack.pipeline.snapshot._listing import SnapshotOptions
    from bartack.pipeline.snapshot._manifest import verify_manifest
    from bartack.pipeline.snapshot._sections import missing_titles
    from bartack.pipeline.snapshot._snapshot import capture
    from bartack.pipeline.worktree._old_worktrees import (
        Cleared,
        check_repository,
        clear_trees,
        count_trees,
        has_trees,
        ignored_files,
        resumed_places,
        workspace_of,
    )
    from bartack.runtime.rundir.receipts import Receipt, iter_receipts, load_receipt
    from bartack.runtime.rundir.snapshots import (
        Change,
        FileEntry,
        Manifest,
        Snapshot,
        compare,
        read_manifest,
        snapshot_id,
    )

__all__ = [
    "MAIN",
    "PROGRAM",
    "Change",
    "Cleared",
    "FileEntry",
    "LedgerLine",
    "LedgerProblem",
    "Manifest",
    "Obstacle",
    "PipelineOrder",
    "PipelineRole",
    "Place",
    "Progress",
    "ProgressReader",
    "Receipt",
    "Settings",
    "Snapshot",
    "SnapshotOptions",
    "TaskRecord",
    "WorkspaceLock",
    "capture",
    "check_ledger",
    "check_repository",
    "choose_agents",
    "choose_tasks",
    "clear_trees",
    "compare",
    "count_trees",
    "describe_run",
    "export_ledger",
    "find_obstacles",
    "has_trees",
    "hold_workspace",
    "ignored_files",
    "iter_receipts",
    "load_receipt",
    "main",
    "make_order",
    "make_settings",
    "missing_titles",
    "needed_roles",
    "note_resume",
    "owning",
    "read_manifest",
    "read_order",
    "read_progress",
    "receipt_path",
    "restore_receipts",
    "resumed_places",
    "snapshot_id",
    "task",
    "verify_manifest",
    "warn_of_conflicts",
    "workspace_of",
]

_HOMES: Final = {
    "_lock": "WorkspaceLock hold_workspace",
    "_main": "main make_order",
    "_ready": "Obstacle find_obstacles warn_of_conflicts",
    "_request": "MAIN PROGRAM choose_tasks",
    "_resume": "describe_run owning",
    "_settings": "PipelineRole choose_agents make_settings needed_roles",
    "_steps": "note_resume",
    "_task": "task",
    "records._facts": "read_order",
    "records._ledger": "LedgerLine LedgerProblem check_ledger export_ledger",
    "records._task_state": "Progress ProgressReader read_progress",
    "records._receipts": "receipt_path restore_receipts",
    "records._records": "PipelineOrder Place Settings TaskRecord",
    "snapshot._listing": "SnapshotOptions",
    "snapshot._manifest": "verify_manifest",
    "snapshot._sections": "missing_titles",
    "snapshot._snapshot": "capture",
    "worktree._old_worktrees": (
        "Cleared check_repository clear_trees count_trees has_trees ignored_files resumed_places workspace_of"
    ),
}
"""The module of each name."""
_OF_RUNS: Final = {
    "bartack.runtime.rundir.receipts": "Receipt iter_receipts load_receipt",
    "bartack.runtime.rundir.snapshots": (
        "Change FileEntry Manifest Snapshot compare read_manifest snapshot_id"
    ),
}
"""What can be read of a run without the pipeline."""


def __getattr__(name: str) -> object:
    homes = {f"{__name__}.{module}": names for module, names in _HOMES.items()} | _OF_RUNS
    for module, names in homes.items():
        if name in names.split():
            return getattr(import_module(module), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
