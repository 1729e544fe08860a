"""Snapshots of the workspace: a list of them, and the files in which two differ, with their lines where both can still be had.

A snapshot keeps checksums and no contents. A content is found if a file of the workspace, or the file of the last commit, still has
its checksum.
"""

from __future__ import annotations

import difflib
import hashlib
import os
import re
from pathlib import Path
from typing import Final, cast

from bartack.errors import ManifestError, NotShownError
from bartack.pipeline.report.committed import committed_contents
from bartack.pipeline.report.history import TakenSnapshot
from bartack.runtime.rundir.snapshots import Change, FileEntry, compare, manifest_path, read_manifest
from bartack.web._threads import in_thread
from bartack.web.models._work import ChangeKind, FileChangeRow, SnapshotDiff, SnapshotRow, Snapshots
from bartack.web.reading._files import read_regular
from bartack.web.reading._view import RunView

MOST_FILES: Final = 2000
"""Files of a difference that are listed."""
MOST_DIFFS: Final = 100
"""Files whose lines are compared."""
MOST_BYTES: Final = 128 * 1024
"""Files with more bytes than this are not compared by lines."""
MOST_LINES: Final = 2000
"""Lines of a difference that are shown."""

_ID: Final = re.compile(r"snap-[0-9a-f]{12}")


def read_snapshots(view: RunView) -> Snapshots:
    """The snapshots that were taken up to the entry, in order."""
    folder = view.run.path / "snapshots"
    try:
        kept = set(os.listdir(folder))
    except OSError:
        kept = set[str]()
    rows = [
        SnapshotRow(
            id=taken.shot.snapshot_id,
            at=taken.at,
            seq=taken.seq,
            files=taken.shot.files,
            bytes=taken.shot.bytes,
            task=view.task_of(taken.p),
            p=taken.p,
            n=taken.n,
            kept=manifest_path(folder, taken.shot.snapshot_id).name in kept,
        )
        for taken in _first_of_each(view.followed.pipeline.snapshots(view.seq))
    ]
    return view.hider.hide(Snapshots(snapshots=rows, seq=view.seq))


def _first_of_each(taken: list[TakenSnapshot]) -> list[TakenSnapshot]:
    """Those that differ from the one before: the same tree is often captured twice."""
    ids = [one.shot.snapshot_id for one in taken]
    return [one for one, before in zip(taken, ["", *ids], strict=False) if one.shot.snapshot_id != before]


async def read_snapshot_diff(view: RunView, a: str, b: str) -> SnapshotDiff:
    """The files in which two snapshots of the run differ.

    Raises:
        NotShownError: The run has no such snapshot, or its manifest is gone.
    """
    folder, workspace = view.run.path / "snapshots", view.workspace
    for name in (a, b):
        if not _ID.fullmatch(name):
            raise NotShownError(f"{name!r} is not the id of a snapshot")
    found = await in_thread(lambda: _compare(folder, workspace, a, b))
    return view.hider.hide(found)


def _compare(folder: Path, workspace: str, a: str, b: str) -> SnapshotDiff:
    before, after = _load(folder, a), _load(folder, b)
    changes = compare(before.values(), after.values())
    shown = changes[:MOST_FILES]
    contents = _Contents(workspace, [change.path for change in shown[:MOST_DIFFS]])
    files = [
        _file(change, before.get(change.path), contents if place < MOST_DIFFS else None)
        for place, change in enumerate(shown)
    ]
    return SnapshotDiff(a=a, b=b, files=files, left_out=len(changes) - len(shown))


def _load(folder: Path, name: str) -> dict[bytes, FileEntry]:
    try:
        return {entry.path: entry for entry in read_manifest(manifest_path(folder, name))[1]}
    except ManifestError as error:
        raise NotShownError(f"the run does not have the snapshot {name}") from error


def _file(change: Change, before: FileEntry | None, contents: _Contents | None) -> FileChangeRow:
    after = change.entry
    return FileChangeRow(
        path=change.path.decode("utf-8", "backslashreplace"),
        change=cast("ChangeKind", change.change),
        size_before=None if before is None else before.size,
        size_after=None if after is None else after.size,
        lines=None if contents is None else _lines(contents, before, after),
    )


def _lines(contents: _Contents, before: FileEntry | None, after: FileEntry | None) -> list[str] | None:
    """A unified diff; ``None`` if one of the contents cannot be had, is not text, or is long."""
    old, new = contents.of(before), contents.of(after)
    if old is None or new is None or old == new:
        return None
    return diff_lines(old, new)


def diff_lines(old: str, new: str) -> list[str]:
    """The lines of a unified diff of two texts, without the names of files."""
    lines = difflib.unified_diff(old.splitlines(), new.splitlines(), lineterm="", n=3)
    return [line for _, line in zip(range(MOST_LINES + 2), lines, strict=False)][2:]


class _Contents:
    """Finds contents by their checksums: in the workspace, and in the last commit."""

    def __init__(self, workspace: str, paths: list[bytes]) -> None:
        self._workspace = workspace
        self._committed = committed_contents(workspace, paths)

    def of(self, entry: FileEntry | None) -> str | None:
        """The text of a file as it was; empty if there was none, ``None`` if it cannot be had."""
        if entry is None:
            return ""
        if entry.size > MOST_BYTES or entry.mode not in {"100644", "100755"}:
            return None
        for content in (self._of_file(entry), self._committed.get(entry.path)):
            if content is not None and hashlib.sha256(content).hexdigest() == entry.sha256:
                return _text(content)
        return None

    def _of_file(self, entry: FileEntry) -> bytes | None:
        found = read_regular(self._workspace, os.fsdecode(entry.path), MOST_BYTES)
        return None if found is None else found[0]


def _text(content: bytes) -> str | None:
    try:
        return None if b"\0" in content else content.decode()
    except UnicodeDecodeError:
        return None
