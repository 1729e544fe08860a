"""``bartack db``, ``move`` and ``pull``: runs in a database, as a whole and one by one."""

from __future__ import annotations

import select
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from bartack.cli.app._database import ON_HELP, open_team, shown_place
from bartack.cli.app._exit import Exit
from bartack.cli.app._options import json_option, write_json
from bartack.cli.app._runs import locate, run_argument, workspace_option
from bartack.cli.app._terminal import Screen, human_size, human_time, printable, write_note
from bartack.core.user_home import user_home
from bartack.depot.elsewhere import Elsewhere
from bartack.depot.upkeep import Upkeep
from bartack.errors import BartackError, UsageError
from bartack.runtime.rundir.find import runs_dir
from bartack.runtime.rundir.origin import check_own

if TYPE_CHECKING:
    from bartack.depot.team import Team

WAIT_S: Final = 1.0
"""How often to look whether older nodes have ended."""

on_option = click.option("--on", required=True, metavar="DATABASE", help=f"The database: {ON_HELP}.")
insecure_option = click.option(
    "--insecure",
    is_flag=True,
    help="Connect also where the connection is not encrypted or the server not checked.",
)


@click.group(short_help="Prepare and check a database that keeps runs.")
def db() -> None:
    """Prepare, check and look at a PostgreSQL database that keeps runs.

    A run in a database can be resumed on any machine that reaches it, and outlives the disk of the one that ran it.
    'bartack run --on DATABASE --here' keeps a run there.
    """


@db.command(short_help="Make or update the tables of Bartack.")
@on_option
@insecure_option
@json_option
def init(on: str, *, insecure: bool, as_json: bool) -> None:
    """Make the tables of Bartack in a database, in the schema 'bartack', or update them.

    It changes nothing that is up to date, and nothing outside of its schema. The user needs the right to make a schema.
    """
    team = _team(on, insecure=insecure)
    before, after = team.prepare()
    if as_json:
        write_json({"database": team.name, "before": before, "after": after})
    elif before == after:
        write_note(f"{printable(team.name)} is up to date (version {after})")
    else:
        write_note(
            f"{printable(team.name)} can keep runs now (version {after}): bartack run --on DATABASE --here FILE"
        )


@db.command(short_help="Bring the tables of Bartack up to date, while they are in use.")
@on_option
@insecure_option
@json_option
def migrate(on: str, *, insecure: bool, as_json: bool) -> None:
    """Bring the tables of Bartack in a database up to date. Nodes and runs continue meanwhile.

    Do this first, then replace the nodes one after the other. Older nodes work with the new tables, unless a migration removes
    something: then the command names the nodes that it waits for, and continues when they have ended.
    """
    named: list[Sequence[str]] = []

    def wait(names: Sequence[str]) -> None:
        if named[-1:] != [names]:
            named.append(names)
            write_note(f"waits until these nodes have ended: {printable(', '.join(names))}")
        select.select([], [], [], WAIT_S)

    team = _team(on, insecure=insecure)
    before, after = Upkeep(team).migrate(wait)
    if as_json:
        write_json({"database": team.name, "before": before, "after": after})
    elif before == after:
        write_note(f"{printable(team.name)} is up to date (version {after})")
    else:
        write_note(f"{printable(team.name)} was migrated from version {before} to {after}")


@db.command(short_help="Hold all runs, after a backup was restored.")
@on_option
@insecure_option
@json_option
def restored(on: str, *, insecure: bool, as_json: bool) -> None:
    """Call this once after a database was restored from a backup, before nodes start.

    What runs did since the backup is not in the database. So no run continues by itself: every one that nodes had to run is held,
    and 'bartack resume RUN --on DATABASE' decides about it. No process that owned a run before can write to it.
    """
    held = Upkeep(_team(on, insecure=insecure)).restored()
    if as_json:
        write_json({"held": held})
    else:
        write_note(
            f"{held} run{' is' if held == 1 else 's are'} held; give one back with: bartack resume RUN --on DATABASE"
        )


@db.command(short_help="Check the journals and large values of runs.")
@click.argument("runs", nargs=-1, metavar="[RUN]...")
@on_option
@insecure_option
@json_option
def check(runs: tuple[str, ...], on: str, *, insecure: bool, as_json: bool) -> Exit:
    """Read the journals of all runs of a database, or of the named ones, and check every entry and large value.

    Without names it also checks the counters of teams, and reports the work for all nodes that has failed. It changes nothing in
    the database. Exit code 10: something is damaged or missing.
    """
    team = _team(on, insecure=insecure)
    place = shown_place(user_home(), team.where) / ".bartack" / "runs"
    found: dict[str, object] = {}
    problems = 0
    for run_id in [team.find(asked) for asked in runs] or team.ids():
        try:
            found[run_id] = team.verify(run_id, place)
        except BartackError as error:
            problems += 1
            found[run_id] = str(error)
            if not as_json:
                write_note(f"{run_id}: {printable(str(error))}")
    others = [] if runs else Upkeep(team).problems()
    if as_json:
        write_json({"runs": found, "problems": problems, "others": others})
    else:
        for other in others:
            write_note(printable(other))
        write_note(
            f"{len(found)} {'run' if len(found) == 1 else 'runs'} checked, {problems or 'none'} damaged"
        )
    return Exit.CORRUPT if problems or others else Exit.OK


@db.command(short_help="Show what a database holds.")
@on_option
@insecure_option
@json_option
def stats(on: str, *, insecure: bool, as_json: bool) -> None:
    """Show how many runs a database keeps, how many are active or wait, how much room they take, and how its nodes keep up."""
    team = _team(on, insecure=insecure)
    team.check()
    held, activity = team.stats(), Upkeep(team).activity()
    if as_json:
        write_json({"database": team.name, **held._asdict(), **activity._asdict()})
        return
    screen = Screen(sys.stdout)
    for name, value in (
        ("database", team.name),
        ("tables", f"version {held.version}"),
        ("runs", f"{held.runs}, {held.owned} of them active; {held.nodes} processes with a lease"),
        ("queue", f"{activity.queued} wait for a node, the oldest for {human_time(activity.queue_age_s)}"),
        ("beats", f"answered within {activity.beat_ms:.1f} ms"),
        ("appends", f"{activity.appends_per_statement:.1f} with each statement"),
        ("journals", human_size(held.journal_bytes)),
        ("large values", human_size(held.content_bytes)),
        ("oldest transaction", f"{held.oldest_transaction_s:.1f} s"),
    ):
        screen.line(f"{name:<20}{printable(value)}")


@click.command(short_help="Keep a run in a database from now on.")
@run_argument
@on_option
@insecure_option
@workspace_option
@json_option
def move(run: str, on: str, workspace: str, *, insecure: bool, as_json: bool) -> None:
    """Move a run that is not active into a database. Its directory stays, as the working copy of the run on this machine.

    All commands find the run as before. 'bartack resume RUN --on DATABASE --here' continues it on another machine.
    """
    found = locate(run, workspace)
    check_own(found)
    if found.where is not None:
        raise UsageError("bartack move", f"{found.id} is kept in a database already")
    team = _team(on, insecure=insecure)
    team.move_in(found)
    if as_json:
        write_json({"run": found.id, "database": team.name})
    else:
        write_note(f"{found.id} is kept in {printable(team.name)} from now on")


@click.command(short_help="Take a run out of a database.")
@run_argument
@on_option
@insecure_option
@click.option(
    "--whole", is_flag=True, help="Take the whole run: it is kept in its directory here from now on."
)
@workspace_option
@json_option
def pull(run: str, on: str, workspace: str, *, insecure: bool, whole: bool, as_json: bool) -> None:
    """Take a run that is not active out of a database, with its journal, its large values and its program.

    With --whole the run is kept in the workspace of this machine from now on, and no longer in the database.
    """
    if not whole:
        raise UsageError("bartack pull", "it takes whole runs only: add --whole")
    team = _team(on, insecure=insecure)
    path = team.move_out(team.find(run), runs_dir(Path(workspace)))
    if as_json:
        write_json({"run": path.name, "path": str(path)})
    else:
        write_note(f"{path.name} is kept in {printable(str(path))} from now on")


def _team(on: str, *, insecure: bool) -> Team:
    return open_team(Elsewhere(on, insecure))
