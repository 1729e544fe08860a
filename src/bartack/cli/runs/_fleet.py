"""Queueing a run for the nodes of a database, and showing it from there."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from bartack.cli.app._database import open_team, wait_of
from bartack.cli.app._exit import Exit
from bartack.cli.app._options import name_database, write_json
from bartack.cli.app._terminal import local_moment, printable, write_note
from bartack.cli.live._watch import watch_run
from bartack.depot.taken import TEAM
from bartack.errors import RunHeldError
from bartack.runtime.client.databases import bring_journal, complete_queueing
from bartack.runtime.rundir.find import TERMINAL, summarise
from bartack.runtime.rundir.layout import RunDir

if TYPE_CHECKING:
    from bartack.cli.live._choose import ViewName
    from bartack.depot.elsewhere import Elsewhere, Home
    from bartack.depot.taken import Queueing


def find_known(home: Home, runs: Path) -> RunDir | None:
    """The run of a key, with a directory below ``runs``; ``None`` if there is none.

    Raises:
        UsageError: There is no such team.
    """
    team = open_team(home.where)
    found = team.find_key(home.team, home.key)
    return None if found is None else RunDir(team.place(found, runs))


def queue_for_nodes(run: RunDir, where: Elsewhere, queueing: Queueing) -> None:
    """Queue a run for the nodes of its database. If there is no node that can take it, that is reported.

    Raises:
        DepotError: The database does not take it.
    """
    team = open_team(where)
    team.enqueue(run.id, *complete_queueing(run, team, queueing))
    note_queued(run, where, queueing)


def finish_submission(run: RunDir, where: Elsewhere, queueing: Queueing) -> None:
    """Queue a run whose submission was interrupted before it was queued; others are left as they are.

    Raises:
        DepotError: The database does not take it.
    """
    team = open_team(where)
    if team.queueing(run.id) is None and team.finish_submission(
        run.id, complete_queueing(run, team, queueing)
    ):
        write_note(f"its submission was interrupted: no node had been given {run.id} until now")
        note_queued(run, where, queueing)


def note_queued(run: RunDir, where: Elsewhere, queueing: Queueing) -> None:
    """Report when a run begins that was just queued, and that there is no node which can take it."""
    if queueing.begins is not None:
        write_note(f"{run.id} begins at {local_moment(round(queueing.begins.timestamp() * 1e6))}")
    place = open_team(where).queue_place(run.id)
    if place is not None and place.state == "queued" and not place.has_nodes:
        labels = f" with {', '.join(place.needs)}" if place.needs else ""
        team = f" of the team {place.team}" if place.team != TEAM else ""
        which = printable(f"no node{labels} takes runs of pool {place.pool}{team} now")
        write_note(f"{which}; it waits for one: bartack node --on DATABASE")


def follow_queued(run: RunDir, view: ViewName, *, detach: bool) -> Exit:
    """Show a run that is for nodes, until it has ended or a person leaves the view; with ``detach`` only report where it is."""
    if not detach:
        if run.where is not None:
            name_database(run.where.on)
        return watch_run(run, view, "attach")
    bring_journal(run)
    place = _find_place(run)
    if view == "json":
        facts = {"run": run.id, "dir": str(run.path)}
        write_json({**facts, "state": place.state, "status": place.status, "reason": place.reason})
    else:
        _report(run, place)
    return Exit.FAILED if place.state == "held" else Exit.OK


class _Place(NamedTuple):
    """Where a run is that nodes have been given.

    Attributes:
        state: ``queued``, ``owned``, ``resting``, ``held`` or ``over``.
        status: What the run itself is doing, or how it has ended.
        reason: Why it is there, in words.
    """

    state: str
    status: str
    reason: str


def _find_place(run: RunDir) -> _Place:
    wait, status = wait_of(run), summarise(run).status
    if wait is not None:
        return _Place(wait.state, status, wait.text.removeprefix(f"{wait.state}: "))
    # A process of a person had it last, or the database does not answer any more.
    return _Place("owned" if run.is_active() else "over" if status in TERMINAL else "resting", status, "")


def _report(run: RunDir, place: _Place) -> None:
    why = f": {printable(place.reason)}" if place.reason else ""
    match place.state:
        case "queued":
            write_note(f"{run.id} is queued; watch it: bartack attach {run.id}")
        case "owned":
            on = f" on node {printable(node)}" if (node := run.node_name()) else why
            write_note(f"{run.id} is running{on}; watch it: bartack attach {run.id}")
        case "held":
            write_note(f"{run.id} is held{why}")
            write_note(f"  {RunHeldError.remedy} [{RunHeldError.code}]")
        case "over":
            write_note(f"{run.id} is over: it is {place.status}; its steps: bartack show {run.id}")
        case _:
            write_note(f"{run.id} rests, {place.status}{why}; what it waits for: bartack status {run.id}")
