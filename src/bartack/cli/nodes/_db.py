"""``bartack db``, ``move`` and ``pull``: runs in a database, as a whole and one by one."""

from __future__ import annotations

import select
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from bartack.cli.app._database import on_option, open_named
from bartack.cli.app._exit import Exit
from bartack.cli.app._options import json_option, write_json
from bartack.cli.app._runs import locate, run_argument, workspace_option
from bartack.cli.app._terminal import Screen, human_size, human_time, printable, write_note
from bartack.config.load import kept_sets, load_config
from bartack.depot.upkeep import Upkeep
from bartack.errors import (
    DepotError,
    DepotUnavailableError,
    JournalFormatError,
    JournalNotFoundError,
    UsageError,
)
from bartack.runtime.rundir.find import runs_dir
from bartack.runtime.rundir.origin import check_own

if TYPE_CHECKING:
    from bartack.depot.team import Stats, Team

WAIT_S: Final = 1.0
"""How often to look whether older nodes have ended."""
PROGRESS_S: Final = 5.0
"""How often a check reports how far it is, on a terminal."""

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
@click.option(
    "--roles",
    is_flag=True,
    help="Also make the roles bartack_node, bartack_user and bartack_reader, and let them do only what they need.",
)
@json_option
def init(on: str, *, insecure: bool, roles: bool, as_json: bool) -> None:
    """Make the tables of Bartack in a database, in the schema 'bartack', or update them.

    It changes nothing that is up to date, and nothing outside of its schema. The user needs the right to make a schema.

    Without roles the user that owns the tables does everything. With --roles other users can be given a part of it, and later
    updates keep that. The user needs the right to make roles, once.
    """
    team = _team(on, insecure=insecure)
    before, after = team.prepare(roles=roles)
    if as_json:
        write_json({"database": team.name, "before": before, "after": after})
        return
    if before == after:
        write_note(f"{printable(team.name)} is up to date (version {after})")
    else:
        write_note(
            f"{printable(team.name)} can keep runs now (version {after}): bartack run --on DATABASE --here FILE"
        )
    if roles:
        write_note(
            "grant bartack_node to users of nodes, bartack_user to people who submit runs, bartack_reader to people who only look"
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
@click.option(
    "--sample",
    type=click.IntRange(min=1),
    metavar="N",
    help="Check N runs, chosen at random, instead of all.",
)
@json_option
def check(runs: tuple[str, ...], on: str, *, insecure: bool, sample: int | None, as_json: bool) -> Exit:
    """Read the journals of all runs of a database, or of the named ones, and check every entry and large value.

    Everything is read from the database, a piece at a time, and nothing of it is kept on this machine. Without names it also checks
    the counters of teams, and reports the work for all nodes that has failed. It changes nothing in the database. Exit code 10:
    something is damaged or missing.
    """
    if runs and sample is not None:
        raise UsageError("bartack db check", "--sample chooses runs, and you have named some: choose one")
    team = _team(on, insecure=insecure)
    named = [team.find(asked) for asked in runs] or None
    chosen = team.sample(sample) if sample is not None else named
    of = team.count() if not runs else len(chosen or ())
    found = _check_runs(team, team.iter_ids() if chosen is None else chosen, of, as_json=as_json)
    problems = sum(isinstance(one, str) for one in found.values())
    others = [] if runs else Upkeep(team).problems()
    if as_json:
        write_json({"runs": found, "checked": len(found), "of": of, "problems": problems, "others": others})
    else:
        for other in others:
            write_note(printable(other))
        some = f"{len(found)} of {of}" if sample is not None and len(found) < of else str(len(found))
        write_note(f"{some} {'run' if some == '1' else 'runs'} checked, {problems or 'none'} damaged")
    return Exit.CORRUPT if problems or others else Exit.OK


def _check_runs(team: Team, ids: Iterable[str], of: int, *, as_json: bool) -> dict[str, int | str]:
    """For each run how many entries it has, or what is wrong with it; reported at once, and how far the check is."""
    found: dict[str, int | str] = {}
    check = team.open_check()
    progress = Progress(lambda: f"{len(found)} of {of} runs checked") if sys.stderr.isatty() else None
    for run_id in ids:
        try:
            entries, problem = check.judge(run_id)
        except JournalNotFoundError:
            continue  # it was deleted meanwhile
        except DepotUnavailableError:
            raise  # it is not known what is there
        except (DepotError, JournalFormatError) as error:
            problem = str(error)
        else:
            found[run_id] = entries
        if problem:
            found[run_id] = problem
            if not as_json:
                write_note(f"{run_id}: {printable(problem)}")
        if progress is not None:
            progress.look()
    return found


class Progress:
    """Reports from time to time how far a command is.

    Args:
        describe: How far it is, in words.
        clock: The time.
    """

    def __init__(self, describe: Callable[[], str], clock: Callable[[], float] = time.monotonic) -> None:
        self._describe = describe
        self._clock = clock
        self._next = clock() + PROGRESS_S

    def look(self) -> None:
        """Report it if that is due."""
        if self._clock() >= self._next:
            self._next = self._clock() + PROGRESS_S
            write_note(self._describe())


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
        ("object store", _describe_store(held)),
        ("oldest transaction", _describe_oldest(held)),
    ):
        screen.line(f"{name:<20}{printable(value)}")


@click.command(short_help="Keep a run in a database from now on.")
@run_argument
@on_option
@insecure_option
@click.option("--team", default="", metavar="NAME", help="The team whose run it is from now on (run.team).")
@workspace_option
@json_option
def move(run: str, on: str, workspace: str, *, insecure: bool, team: str, as_json: bool) -> None:
    """Move a run that is not active into a database. Its directory stays, as the working copy of the run on this machine.

    All commands find the run as before. 'bartack resume RUN --on DATABASE --here' continues it on another machine.
    """
    found = locate(run, workspace)
    check_own(found)
    if found.where is not None:
        raise UsageError("bartack move", f"{found.id} is kept in a database already")
    database = _team(on, insecure=insecure)
    database.move_in(found, team or load_config(Path(workspace), kept_sets(found.path)).run.team)
    if as_json:
        write_json({"run": found.id, "database": database.name})
    else:
        write_note(f"{found.id} is kept in {printable(database.name)} from now on")


@click.command(short_help="Bring the files of a run here, or the whole run.")
@run_argument
@on_option
@insecure_option
@click.option("--dir", "into", metavar="DIR", help="Write the files of its workspace to DIR, without git.")
@click.option(
    "--whole", is_flag=True, help="Take the whole run: it is kept in its directory here from now on."
)
@workspace_option
@json_option
def pull(
    run: str, on: str, workspace: str, *, into: str | None, insecure: bool, whole: bool, as_json: bool
) -> None:
    """Bring what a run on a node has made in its workspace into the git repository here, and print the command that merges it.

    The files are those of the latest copy, also while the run is active. They are in branches bartack/RUN/…; nothing that is
    checked out changes. With --dir they are written to a directory instead.

    With --whole a run that is not active is taken out of the database, with its journal, its large values and its program. It
    is kept in the workspace of this machine from now on, and no longer in the database.
    """
    if whole and into is not None:
        raise UsageError("bartack pull", "--dir brings files, and --whole takes the run itself: choose one")
    team = _team(on, insecure=insecure)
    if not whole:
        from bartack.cli.nodes._pull import pull_files  # noqa: PLC0415 - the other commands start faster without it

        pull_files(team, run, Path(workspace), None if into is None else Path(into), as_json=as_json)
        return
    path = team.move_out(team.find(run), runs_dir(Path(workspace)))
    if as_json:
        write_json({"run": path.name, "path": str(path)})
    else:
        write_note(f"{path.name} is kept in {printable(str(path))} from now on")


def _describe_store(held: Stats) -> str:
    values = f"{held.objects} value{'' if held.objects == 1 else 's'}, {human_size(held.object_bytes)}"
    kept = f"{values}; {held.orphans} objects that nothing names"
    if not held.store:
        return f"none is set here (depot.blobs), and it has {kept}" if held.objects else "none"
    return f"{held.store}: {held.store_problem or 'it answers'}; {kept}"


def _describe_oldest(held: Stats) -> str:
    seen = f"{held.oldest_transaction_s:.1f} s"
    if held.sees_all_transactions:
        return seen
    return f"{seen} of this role; {held.hidden_transactions} of other roles are open, for how long is not visible for this role"


def _team(on: str, *, insecure: bool) -> Team:
    return open_named(on, insecure=insecure)
