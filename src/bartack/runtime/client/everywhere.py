"""The runs of all workspaces of the user: those of the workspaces that are known, and those in the queue of the node.

A workspace is known since its first run (``bartack.depot.Workspaces``). Its runs are read with the same checks as those of the
current workspace: a directory that another user can change is reported, and not read.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final, NamedTuple

from bartack.core.trust import check_private
from bartack.depot import Standing, Workspace, user_depot, user_workspaces
from bartack.errors import BartackError, RunNotFoundError
from bartack.runtime.rundir.find import list_kept_runs, match_runs, runs_dir
from bartack.runtime.rundir.layout import RunDir

MOST_NAMED: Final = 5
"""Runs that an error names."""


class PlacedRun(NamedTuple):
    """A run of any workspace.

    Attributes:
        run: Its directory.
        workspace: Where it works, as far as that is known without reading it.
        standing: Its place in the queue of the node.
    """

    run: RunDir
    workspace: str
    standing: Standing | None = None


class Unlisted(NamedTuple):
    """A workspace whose runs cannot be listed, and why."""

    workspace: str
    reason: str


class Everything(NamedTuple):
    """The runs of all workspaces, the newest first, and the workspaces whose runs cannot be listed."""

    runs: list[PlacedRun]
    unlisted: list[Unlisted]


def all_runs(here: Path | None = None) -> Everything:
    """The runs of all workspaces.

    Args:
        here: A workspace that counts in any case, also if it is not known yet.

    Raises:
        UntrustedError: Another user can change the list of the workspaces.
    """
    queued = {os.path.realpath(one.job.path): one for one in user_depot().standings()}
    found: dict[str, PlacedRun] = {}
    workspaces, unlisted = _workspaces(here)
    for workspace in workspaces:
        try:
            runs = list_kept_runs(Path(workspace.state_dir))
        except BartackError as error:
            unlisted.append(Unlisted(workspace.path, error.message))
            continue
        real = os.path.realpath(os.path.join(workspace.state_dir, "runs"))
        for run in runs:
            path = os.path.join(real, run.id)
            found[path] = PlacedRun(run, workspace.path, queued.pop(path, None))
    for path, one in queued.items():
        # A directory that was deleted after its run was over is not missed.
        if one.state != "over" or os.path.lexists(path):
            found[path] = PlacedRun(RunDir(one.job.path), one.job.workspace, one)
    # An id begins with the moment of its creation.
    return Everything(sorted(found.values(), key=lambda placed: placed.run.id, reverse=True), unlisted)


def _workspaces(here: Path | None) -> tuple[list[Workspace], list[Unlisted]]:
    """All workspaces, each directory of runs once: several workspaces can share one."""
    known, unlisted = list(user_workspaces().all()), list[Unlisted]()
    if here is not None:
        try:
            known.append(Workspace(str(here.resolve()), str(runs_dir(here).parent.absolute())))
        except BartackError as error:
            unlisted.append(Unlisted(str(here.resolve()), error.message))
    places: dict[str, Workspace] = {}
    for workspace in known:
        places.setdefault(os.path.realpath(workspace.state_dir), workspace)
    return list(places.values()), unlisted


def find_elsewhere(missing: RunNotFoundError) -> PlacedRun:
    """Find a run in all workspaces, by its id or a unique prefix, that was not found in one.

    Args:
        missing: The error of the search in one workspace.

    Raises:
        RunNotFoundError: No run matches, or several do, or what was asked for is not the name of a run.
        UntrustedError: Another user can change the run.
    """
    asked = missing.asked
    if missing.near or asked in {"", "latest", ".", ".."} or os.sep in asked:
        raise missing
    placed = {one.run: one for one in all_runs().runs}
    found = match_runs(asked, list(placed))
    if len(found) != 1:
        raise _not_one(asked, found)
    check_private(found[0].path)
    return placed[found[0]]


def _not_one(asked: str, found: list[RunDir]) -> RunNotFoundError:
    ids = sorted({run.id for run in found}, reverse=True)
    if len(ids) != 1:
        return RunNotFoundError(asked, tuple(ids[:MOST_NAMED]))
    # Copies of one run: only their directories differ.
    paths = sorted(str(run.path) for run in found)
    error = RunNotFoundError(asked, tuple(paths[:MOST_NAMED]), wanted="in this workspace")
    error.remedy = "Name the directory of the run instead of its id."
    return error


def ids_elsewhere(beginning: str) -> list[str]:
    """The ids of runs of all workspaces that begin so, for the shell's completion: no run is read."""
    found: set[str] = set()
    try:
        places = [os.path.join(one.state_dir, "runs") for one in user_workspaces().all()]
    except BartackError:
        return []  # completion cannot show an error
    for place in places:
        try:
            found.update(name for name in os.listdir(place) if name.startswith(beginning))
        except OSError:
            continue
    return sorted(name for name in found if name.startswith("run-"))
