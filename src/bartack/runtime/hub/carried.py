"""The workspace that travels with a run: copied when the run is submitted, and brought to the machine that continues the run."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from bartack.config.load import kept_sets, load_kept_config
from bartack.config.sections import WorkspaceConfig
from bartack.core.user_home import user_home
from bartack.depot.port import open_blob_port
from bartack.errors import WorkspaceKeepError, WorkspaceRemoteError
from bartack.journal import BlobRef, Draft
from bartack.runtime.copies.copies import PART_BYTES, Copies, drop_copies, find_top, open_copies
from bartack.runtime.copies.lanes import drop_lanes
from bartack.runtime.copies.mirrors import Base, fetch_base, find_base, has_large_history, objects_of
from bartack.runtime.copies.remotes import find_url
from bartack.runtime.copies.values import Carry, Sources
from bartack.runtime.hub.workspace.preparation import note_restored
from bartack.runtime.rundir.layout import RunDir
from bartack.runtime.state import entries as e
from bartack.runtime.state.copies import KeptCopies
from bartack.runtime.state.run_state import State

CARRIES: Final[dict[str, Carry]] = {"auto": "auto", "full": "full", "remote": "full", "none": "none"}
"""The ways in which a workspace travels with its run. The other way is not to travel: ``shared``."""
MIRRORS: Final = "mirrors"
"""The directory with repositories from elsewhere."""


class Carried(NamedTuple):
    """A workspace that was copied.

    Attributes:
        kept: The entry of the copy.
        pack: The parts of its pack, of which the last one is the value of the entry.
    """

    kept: e.WorkspaceKept
    pack: Sequence[BlobRef]

    def drafts(self) -> list[Draft]:
        """The entries for the first line of the run."""
        *parts, last = self.pack
        return [*(e.draft(e.WorkspacePart(), ref=part) for part in parts), e.draft(self.kept, ref=last)]


def carry_workspace(
    run: RunDir, workspace: Path, config: WorkspaceConfig, part_bytes: int = PART_BYTES
) -> Carried:
    """Copy the workspace of a run that is being made.

    Raises:
        WorkspaceCarryError: It is too large.
        WorkspaceKeepError: It cannot be copied.
        WorkspaceRemoteError: A remote that it needs cannot be used.
    """
    carry, top = CARRIES[config.carry], find_top(workspace)
    base = _find_base(run, top, config)
    push = find_url(top, config.push, pushes=True) if config.push else ""
    copies = open_copies(run.copies, include=config.include, base="" if base is None else base.commit)
    objects = None if base is None else objects_of(top)
    if objects is not None:
        copies.borrow(objects)
    copy = copies.take(Sources(top, run.path), "", carry)
    blobs = open_blob_port(run.blob_port())
    pack = [blobs.put(part) for part in copies.pack(copy.commit, part_bytes=part_bytes)]
    below = "" if carry == "none" else os.path.relpath(workspace.resolve(), top)
    kept = e.WorkspaceKept(
        copy=copy.commit,
        head=copy.head,
        refs=dict(copy.refs),
        below="" if below == os.curdir else below,
        left_out=list(copy.left_out),
        push=push,
        base=None if base is None else e.RemoteBase(url=base.url, ref=base.ref, commit=base.commit),
    )
    return Carried(kept, pack)


def _find_base(run: RunDir, top: Path, config: WorkspaceConfig) -> Base | None:
    """The commit that nodes fetch from a remote, if the workspace travels so.

    Raises:
        WorkspaceRemoteError: That was asked for, and there is none.
    """
    if config.carry == "remote":
        return find_base(top, config.remote, run.copies)
    if config.carry != "auto" or not has_large_history(top):
        return None
    try:
        found = find_base(top, config.remote, run.copies)
    except (WorkspaceRemoteError, WorkspaceKeepError):
        return None  # only the commit that is checked out travels
    # Whether nodes have a path of this machine is only known by the person who asks for it.
    return None if found.url.startswith("file:") else found


def base_of(kept: KeptCopies) -> str:
    """The commit that no pack of a run has; empty if there is none."""
    return "" if kept.first is None or kept.first.base is None else kept.first.base.commit


def bring_workspace(
    run: RunDir,
    kept: KeptCopies,
    top: Path,
    load: Callable[[BlobRef], bytes],
    mirrors: Path | None = None,
) -> str:
    """Bring the files of the latest copy of a run to a directory of this machine, to that of the run, and to its worktrees.

    What is there already at this copy stays; anything else there is replaced.

    Args:
        run: The run, whose directory is up to date.
        kept: The copies that its journal has.
        top: Where its workspace is to be.
        load: Returns a large value of it as it is stored.
        mirrors: Where repositories from elsewhere are; in the state home of the user by default.

    Returns:
        Where the workspace is.

    Raises:
        WorkspaceKeepError: That is not possible.
        WorkspaceRemoteError: A commit that it needs cannot be fetched.
    """
    drop_copies(run.copies, top)
    try:
        return _bring(run, kept, top, load, mirrors)
    except WorkspaceKeepError:
        # What is here may be damaged; nothing of it is needed that cannot be fetched again.
        drop_copies(run.copies, top, always=True)
        return _bring(run, kept, top, load, mirrors)


def _bring(
    run: RunDir, kept: KeptCopies, top: Path, load: Callable[[BlobRef], bytes], mirrors: Path | None
) -> str:
    assert kept.first is not None
    assert kept.latest is not None
    include = load_kept_config(run.path, top, kept_sets(run.path)).workspace.include
    copies = fetch_copies(run, kept, load, include, mirrors)
    lanes = {name: run.worktrees / name for name in copies.lanes(kept.latest.copy)}
    sources = Sources(top, run.path, lanes)
    drop_lanes(run.worktrees, lanes)
    if not top.exists() or not _is_there(copies, sources, kept.latest.copy):
        note_restored(top)
        top.mkdir(mode=0o700, parents=True, exist_ok=True)
        copies.restore(kept.latest.copy, sources)
    workspace = top / kept.first.below
    workspace.mkdir(parents=True, exist_ok=True)
    return str(workspace)


def show_workspace(run: RunDir, state: State) -> str:
    """Where the files of a run can be read on this machine: those of its latest copy, if it keeps copies and is not active here.

    Raises:
        WorkspaceError: It keeps none, and its workspace is not there.
        WorkspaceKeepError: They cannot be brought.
    """
    if state.copies.latest is None or run.is_of_node or run.socket.has_listener():
        return run.workspace(state)
    return bring_workspace(run, state.copies, run.own_workspace, run.open_blobs().get)


def top_of(kept: KeptCopies, workspace: str) -> Path:
    """The directory that is copied for a workspace."""
    top = Path(workspace)
    return top.parents[len(Path(kept.first.below).parts) - 1] if kept.first and kept.first.below else top


def fetch_copies(
    run: RunDir,
    kept: KeptCopies,
    load: Callable[[BlobRef], bytes],
    include: Sequence[str] = (),
    mirrors: Path | None = None,
    *,
    near: Path | None = None,
    with_first: bool = False,
) -> Copies:
    """The copies of a run on this machine, with the latest one.

    Args:
        run: The run.
        kept: The copies that its journal has.
        load: Returns a large value of it as it is stored.
        include: Patterns of ignored files that are copied all the same.
        mirrors: Where repositories from elsewhere are; in the state home of the user by default.
        near: A workspace whose repository may have the commit that no copy has.
        with_first: Whether the first one is needed, too.

    Raises:
        WorkspaceKeepError: A pack cannot be read.
        WorkspaceRemoteError: A commit that no copy has cannot be fetched.
    """
    drop_copies(run.copies)
    first = [kept.first_pack] if with_first and kept.first_pack is not None else []

    def fetch() -> Copies:
        copies = open_copies(run.copies, include=include, base=base_of(kept))
        _bring_base(copies, kept, mirrors, near)
        for pack in [*first, *kept.packs]:
            if not copies.has(pack.copy):
                copies.add_pack(map(load, pack.parts))
        return copies

    try:
        return fetch()
    except WorkspaceKeepError:
        # Those that are here may be damaged; nothing of them is needed that cannot be fetched again.
        drop_copies(run.copies, always=True)
        return fetch()


def _bring_base(copies: Copies, kept: KeptCopies, mirrors: Path | None, near: Path | None) -> None:
    """Have the commit here that no copy has."""
    objects = None if near is None or copies.has_base() else objects_of(find_top(near))
    if objects is not None:
        copies.borrow(objects)
    if not copies.has_base():
        assert kept.first is not None
        assert kept.first.base is not None
        named = kept.first.base
        copies.borrow(fetch_base(mirrors or user_home() / MIRRORS, Base(named.url, named.ref, named.commit)))


def _is_there(copies: Copies, sources: Sources, copy: str) -> bool:
    try:
        return copies.take(sources, copy).is_same
    except WorkspaceKeepError:
        return False  # what is there cannot be read, and is replaced
