"""The built-in program: takes tasks through implementation, tests, review and spec maintenance, with agents that do the work.

Its parts are useful by themselves: ``capture`` takes a snapshot of a workspace.
"""

from bartack.pipeline._entry import FileEntry
from bartack.pipeline._listing import SnapshotOptions
from bartack.pipeline._snapshot import Change, Snapshot, capture, compare, snapshot_id

__all__ = ["Change", "FileEntry", "Snapshot", "SnapshotOptions", "capture", "compare", "snapshot_id"]
