"""``bartack pull``: the files that a run of a database has made, from its latest copy."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from bartack.cli.app._options import write_json
from bartack.cli.app._terminal import Screen, printable, write_note
from bartack.depot.shown import shown_runs
from bartack.errors import UsageError
from bartack.runtime.hub.carried import fetch_copies
from bartack.runtime.rundir.find import read_state
from bartack.runtime.rundir.layout import RunDir

if TYPE_CHECKING:
    from pathlib import Path

    from bartack.depot.team import Team
    from bartack.runtime.copies.values import Delivered


def pull_files(team: Team, asked: str, repository: Path, into: Path | None, *, as_json: bool) -> None:
    """Bring the files of the latest copy of a run here.

    Args:
        team: Where the run is.
        asked: The run, as it was named.
        repository: A directory of the repository that gets branches with them.
        into: Write them to this directory instead.
        as_json: Report as JSON.

    Raises:
        UsageError: The run has no copies.
        WorkspaceKeepError: They cannot be brought.
    """
    run = RunDir(team.place(team.find(asked), shown_runs(team.where)))
    state = read_state(run)
    kept, latest = state.copies, state.copies.latest
    if kept.first is None or latest is None:
        where = "" if state.run is None else f": {state.run.workspace}"
        raise UsageError(
            "bartack pull", f"{run.id} worked where it was submitted{where}; --whole takes the run"
        )
    copies = fetch_copies(run, kept, run.open_blobs().get, near=repository, with_first=True)
    if kept.left_out and not as_json:
        write_note(f"the copy leaves something out: bartack show {run.id} names it")
    if into is not None:
        copies.write_files(latest.copy, into)
        _report_files(run, into, as_json=as_json)
    else:
        _report(run, copies.deliver(latest.copy, repository, run.id, kept.first.copy), as_json=as_json)


def _report_files(run: RunDir, into: Path, *, as_json: bool) -> None:
    if as_json:
        write_json({"run": run.id, "path": str(into)})
    else:
        write_note(f"the files of {run.id} are in {printable(str(into))}")


def _report(run: RunDir, delivered: Delivered, *, as_json: bool) -> None:
    if as_json:
        command, branches = delivered.command, dict(delivered.branches)
        write_json({"run": run.id, "command": command, "branches": branches, "refs": dict(delivered.refs)})
        return
    for branch in delivered.branches:
        write_note(f"the files of {run.id} are in the branch {printable(branch)}")
    screen = Screen(sys.stdout)
    screen.line(printable(delivered.command))
    screen.flush()
