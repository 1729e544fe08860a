"""The runs of a database, for programs: found, listed, and given to its nodes."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

from bartack.config.load import kept_sets, load_elsewhere, load_kept_config
from bartack.depot.shown import shown_runs
from bartack.depot.taken import Queueing
from bartack.errors import DepotError, UsageError
from bartack.runtime.program.environment import is_of_version, labels_of
from bartack.runtime.rundir.find import read_state
from bartack.runtime.rundir.layout import RunDir

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bartack.config.sections import RunConfig
    from bartack.depot.team import Team
    from bartack.runtime.state.entries import RunCreated


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
    """The newest 1,000 runs of a database, and all older ones that have a question open, the newest first.

    Raises:
        DepotError: The database cannot be used.
    """
    from bartack.depot.team import Team, listed  # noqa: PLC0415 - only runs in a database need it

    where = load_elsewhere(on)
    return [RunDir(path) for path in listed(Team(where), shown_runs(where))]


def queueing_of(chosen: RunConfig) -> Queueing:
    """How the settings queue a run."""
    return Queueing(chosen.pool, chosen.priority, tuple(chosen.needs))


def complete_queueing(run: RunDir, team: Team, given: Queueing) -> Queueing:
    """How to queue a run, with what is not given: as before.

    For a run that no node was ever given, that is as the run that it was forked from, or as the settings say that are kept with it.
    Its nodes also need the labels of what it uses.
    """
    created = read_state(run).run
    before = team.queueing(run.id)
    if created is None:
        return given._replace(needs=given.needs or None)
    first = before or team.queueing(created.forked_from) or _kept_queueing(run)
    own = created.needs if before is None else ()
    return Queueing(
        first.pool if given.pool is None else given.pool,
        first.priority if given.priority is None else given.priority,
        _with_versions(created, (*(given.needs or first.needs or ()), *own)),
        given.begins,
    )


def _with_versions(created: RunCreated, needs: Sequence[str]) -> list[str]:
    """Labels with those of the versions that a run needs now: an update of its program may have recorded others."""
    own = labels_of(created.environment_rule, created.environment)
    return [*dict.fromkeys((*(label for label in needs if not own or not is_of_version(label)), *own))]


def _kept_queueing(run: RunDir) -> Queueing:
    """How the settings queue a run that are kept with it; they are in its own directory if other machines may continue it."""
    return queueing_of(load_kept_config(run.path, run.path, kept_sets(run.path)).run)


def give_to_nodes(run: RunDir) -> None:
    """Queue a run for the nodes of its database again: those that it was for before.

    Raises:
        UsageError: It is not kept in one.
        DepotError: The database does not take it.
    """
    from bartack.depot.team import Team  # noqa: PLC0415 - only runs in a database need it

    if run.where is None:
        raise UsageError("on", f"{run.id} is not kept in a database")
    team = Team(run.where)
    team.enqueue(run.id, *complete_queueing(run, team, Queueing()))
    bring_journal(run)


def bring_journal(run: RunDir) -> None:
    """Bring the journal of a run in a database into its directory, by which the run is found in its workspace."""
    with suppress(DepotError):
        run.open_reader().close()
