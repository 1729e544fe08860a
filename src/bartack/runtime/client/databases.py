"""The runs of a database, for programs: found, listed, and given to its nodes."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

from bartack.config.load import load_elsewhere
from bartack.depot.shown import shown_runs
from bartack.errors import DepotError, UsageError
from bartack.runtime.rundir.find import read_state
from bartack.runtime.rundir.layout import RunDir

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bartack.config.sections import RunConfig
    from bartack.depot.team import Team


def find_run_on(on: str, asked: str | os.PathLike[str], *, insecure: bool = False) -> RunDir:
    """The run of a database that is meant: an id, a unique beginning of one, or ``latest``.

    Raises:
        RunNotFoundError: There is none, or more than one.
        DepotError: The database cannot be used.
    """
    from bartack.depot.team import Team  # noqa: PLC0415 - only runs in a database need it

    where = load_elsewhere(on, insecure=insecure)
    team = Team(where)
    return RunDir(team.show(team.find(os.fspath(asked)), shown_runs(where)))


def list_runs_on(on: str) -> list[RunDir]:
    """The newest runs of a database, the newest first.

    Raises:
        DepotError: The database cannot be used.
    """
    from bartack.depot.team import Team, listed  # noqa: PLC0415 - only runs in a database need it

    where = load_elsewhere(on)
    return [RunDir(path) for path in listed(Team(where), shown_runs(where))]


def labels_needed(run: RunDir, team: Team, given: Sequence[str] = ()) -> list[str] | None:
    """The labels that a node must have to take a run: those that are given, and at first also those of the agents that it may ask.

    ``None``: as before.
    """
    created = read_state(run).run if team.queue_place(run.id) is None else None
    own = [] if created is None else created.needs
    return [*dict.fromkeys((*given, *own))] or None


def give_to_nodes(run: RunDir, chosen: RunConfig | None = None) -> None:
    """Queue a run for the nodes of its database.

    Args:
        run: The run.
        chosen: Which nodes; by default those that it was for before.

    Raises:
        UsageError: It is not kept in one.
        DepotError: The database does not take it.
    """
    from bartack.depot.team import Team  # noqa: PLC0415 - only runs in a database need it

    if run.where is None:
        raise UsageError("on", f"{run.id} is not kept in a database")
    team = Team(run.where)
    if chosen is None:
        team.enqueue(run.id, needs=labels_needed(run, team))
    else:
        team.enqueue(run.id, chosen.pool, chosen.priority, labels_needed(run, team, chosen.needs))
    with suppress(DepotError):
        run.open_reader().close()  # its journal comes here, by which the run is found in this workspace
