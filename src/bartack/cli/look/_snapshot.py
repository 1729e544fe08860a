"""``bartack snapshot``: the snapshot id of the workspace, differences between snapshots, verification of a manifest."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

import click

from bartack.cli.app._options import json_option, write_json
from bartack.cli.app._runs import workspace_option
from bartack.cli.app._terminal import Screen, Style, human_size, printable
from bartack.config.load import Config, load_config
from bartack.core.trust import check_private
from bartack.errors import RunNotFoundError, UntrustedError, UsageError
from bartack.pipeline.snapshot.listing import SnapshotOptions
from bartack.pipeline.snapshot.manifest import verify_manifest
from bartack.pipeline.snapshot.snapshot import capture
from bartack.runtime.rundir.find import list_runs
from bartack.runtime.rundir.snapshots import Change, FileEntry, Snapshot, compare, read_manifest

_WORDS: Final = {"added": "added", "deleted": "removed", "modified": "changed", "mode": "mode changed"}
_STYLES: Final[dict[str, Style]] = {"added": "green", "deleted": "red", "modified": "yellow", "mode": "cyan"}


@click.group(invoke_without_command=True, short_help="Compute the snapshot id of the workspace.")
@workspace_option
@json_option
@click.pass_context
def snapshot(context: click.Context, workspace: str, *, as_json: bool) -> None:
    """Compute the snapshot id of the workspace: the same tree has the same id everywhere.

    Git, in a work tree, and the section 'snapshot' of bartack.toml decide which files belong to the snapshot.
    """
    if context.invoked_subcommand is None:
        found = _capture(Path(workspace).resolve())
        _write(found, as_json=as_json)


@snapshot.command(short_help="List the differences between two snapshots.")
@click.argument("before", metavar="A")
@click.argument("after", metavar="B")
@workspace_option
@json_option
def diff(before: str, after: str, workspace: str, *, as_json: bool) -> None:
    """List the files in which two snapshots differ.

    A and B are manifests: files, or ids of snapshots that a run of this workspace has kept. '.' is the current workspace.
    """
    place = Path(workspace).resolve()
    changes = compare(_files(before, place), _files(after, place))
    if as_json:
        write_json([{"path": _text(change), "change": _WORDS[change.change]} for change in changes])
        return
    screen = Screen(sys.stdout)
    for change in changes:
        word = screen.paint(f"{_WORDS[change.change]:<12}", _STYLES[change.change])
        screen.line(f"{word}  {printable(_text(change))}")


@snapshot.command(short_help="Verify the id of a manifest.")
@click.argument("path", metavar="FILE")
@json_option
def verify(path: str, *, as_json: bool) -> None:
    """Compute the id of a manifest again and compare it with the recorded one."""
    found = verify_manifest(Path(path))
    if as_json:
        write_json({"snapshot_id": found})
    else:
        Screen(sys.stdout).line(found)


def _capture(workspace: Path) -> Snapshot:
    config = load_config(workspace)
    return capture(workspace, _options(config), _cache(config.state_dir(workspace)))


def _cache(state_dir: Path) -> Path | None:
    """The cache of file states that runs have left, unless other users can write to its directory."""
    folder = state_dir / "cache"
    try:
        check_private(state_dir)
        check_private(folder)
    except UntrustedError:
        return None
    return folder / "stat-1" if folder.is_dir() else None


def _options(config: Config) -> SnapshotOptions:
    chosen = config.snapshot
    return SnapshotOptions(
        source=chosen.source,
        roots=tuple(chosen.roots),
        exclude=(*chosen.exclude, f"/{config.directory.strip('/')}/"),
        include=tuple(chosen.include),
        ignore=chosen.ignore,
        threads=chosen.threads,
    )


def _files(named: str, workspace: Path) -> list[FileEntry]:
    if named == ".":
        return list(_capture(workspace).files)
    if Path(named).is_file():
        return read_manifest(Path(named))[1]
    if not named.startswith("snap-"):
        raise UsageError("bartack snapshot diff", f"{named!r} is neither a manifest nor the id of a snapshot")
    for run in list_runs(workspace):
        kept = run.path / "snapshots" / f"{named}.manifest.json"
        if os.path.isfile(kept):
            return read_manifest(kept)[1]
    raise RunNotFoundError("", wanted=f"that has the snapshot {named}")


def _text(change: Change) -> str:
    return change.path.decode("utf-8", "backslashreplace")


def _write(found: Snapshot, *, as_json: bool) -> None:
    if as_json:
        write_json(
            {
                "snapshot_id": found.id,
                "source": found.source,
                "count": found.count,
                "bytes": found.size_bytes,
                "notes": list(found.notes),
            }
        )
        return
    screen = Screen(sys.stdout)
    screen.line(f"{found.id}  {found.count} files, {human_size(found.size_bytes)}")
    for note in found.notes:
        screen.line(f"  {printable(note)}")
