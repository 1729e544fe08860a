"""Queueing a run for the nodes of a database, and showing it from there."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from bartack.cli.app._database import open_team
from bartack.cli.app._exit import Exit
from bartack.cli.app._options import name_database, write_json
from bartack.cli.app._terminal import local_moment, printable, write_note
from bartack.cli.live._watch import watch_run
from bartack.errors import DepotError
from bartack.runtime.client.databases import labels_needed
from bartack.runtime.rundir.layout import RunDir

if TYPE_CHECKING:
    from datetime import datetime

    from bartack.cli.app._database import DatabaseOptions
    from bartack.cli.live._choose import ViewName
    from bartack.depot.elsewhere import Elsewhere, Home


def find_known(home: Home, runs: Path) -> RunDir | None:
    """The run of a key, with a directory below ``runs``; ``None`` if there is none.

    Raises:
        UsageError: There is no such team.
    """
    team = open_team(home.where)
    found = team.find_key(home.team, home.key)
    return None if found is None else RunDir(team.place(found, runs))


def queue_for_nodes(
    run: RunDir,
    where: Elsewhere,
    kept: DatabaseOptions,
    priority: int | None = None,
    begins: datetime | None = None,
) -> None:
    """Queue a run for the nodes of its database. If there is no node that can take it, that is reported.

    Raises:
        DepotError: The database does not take it.
    """
    team = open_team(where)
    team.enqueue(run.id, kept.pool, priority, labels_needed(run, team, kept.needs), begins)
    if begins is not None:
        write_note(f"{run.id} begins at {local_moment(round(begins.timestamp() * 1e6))}")
    place = team.queue_place(run.id)
    if place is not None and not place.has_nodes:
        labels = f" with {', '.join(map(printable, place.needs))}" if place.needs else ""
        write_note(
            f"no node{labels} takes runs of pool {printable(place.pool)} now; it waits for one: bartack node run --on DATABASE"
        )


def follow_queued(run: RunDir, view: ViewName, *, detach: bool) -> Exit:
    """Show a run that is queued, until it has ended or a person leaves the view; only name it with ``detach``."""
    if not detach:
        if run.where is not None:
            name_database(run.where.on)
        return watch_run(run, view, "attach")
    with suppress(DepotError):
        run.open_reader().close()  # its journal comes here, by which commands find it in this workspace
    if view == "json":
        write_json({"run": run.id, "dir": str(run.path), "state": "queued", "reason": ""})
    else:
        write_note(f"{run.id} is queued; watch it: bartack attach {run.id}")
    return Exit.OK
