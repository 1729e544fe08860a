"""``bartack schedule``: runs that the node starts again and again."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, get_args

import click

from bartack.cli.app._app import PlainGroup
from bartack.cli.app._exit import Exit
from bartack.cli.app._options import json_option, write_json
from bartack.cli.app._runs import short_path
from bartack.cli.app._terminal import Screen, printable, write_note
from bartack.config.load import Config, load_config
from bartack.core.clock import SystemClock
from bartack.depot import FileDepot, Missed, Schedule, user_depot
from bartack.errors import ProgramImportError, ScheduleError, UsageError
from bartack.node import (
    Launcher,
    ensure_node,
    kept_environment,
    load_zone,
    local_zone,
    next_time,
    start_now,
)

MOST_NAME: Final = 64
MISSED: Final[dict[str, str]] = {"once": "one run for missed times", "skip": "skips missed times"}


def complete_schedule(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """The names of schedules, for the completion of a shell."""
    return [one.name for one in user_depot().schedules() if one.name.startswith(incomplete)]


name_argument = click.argument("name", metavar="NAME", shell_complete=complete_schedule)


@click.group(cls=PlainGroup, short_help="Start runs at fixed times.")
def schedule() -> None:
    """Start runs at fixed times: every night, every hour, on Mondays.

    The node starts them, and stays as long as there are schedules. 'bartack node install' starts the node at login.
    """


# Long because its options and its help are part of it; the functions that it calls do the work.
@schedule.command(short_help="Add a schedule.")
@click.argument("cron", metavar="CRON")
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[-- RUN-ARG...]")
@click.option("--name", metavar="NAME", help="Its name (default: that of the program).")
@click.option(
    "--zone", metavar="ZONE", help="The time zone of CRON, as Europe/Berlin (default: that of this machine)."
)
@click.option(
    "--missed",
    type=click.Choice(get_args(Missed)),
    default="once",
    help="For times that pass while no node is running: start one run (default), or none.",
)
@click.option(
    "-C",
    "--workspace",
    metavar="DIR",
    help="Call 'bartack run' in this directory (default: the current one).",
)
@json_option
def add(
    cron: str,
    words: tuple[str, ...],
    name: str | None,
    zone: str | None,
    missed: Missed,
    workspace: str | None,
    *,
    as_json: bool,
) -> Exit:
    """Start a run whenever CRON says so: minute, hour, day of the month, month, day of the week.

    What follows '--' is what 'bartack run' takes: FILE with its arguments, --goal TEXT, or nothing for the tasks of bartack.toml.

    Every night at three: bartack schedule add "0 3 * * *" -- night.pw

    A time is used once. It is skipped if the last run of the schedule is still queued or running.
    """
    place = os.path.abspath(workspace or ".")
    if not Path(place).is_dir():
        raise UsageError("bartack schedule add", f"the directory {place} does not exist")
    config, program = _check_words(words, place)
    depot, zone = user_depot(), zone or local_zone(os.environ)
    named = name if name is not None else _free_name(depot, program)
    kept, left_out = kept_environment(os.environ, config.redaction.rule)
    made = Schedule(
        name=named,
        cron=cron,
        zone=zone,
        workspace=place,
        words=words,
        missed=missed,
        next_us=next_time(named, cron, zone, SystemClock().now_us()),
        environ=kept,
    )
    depot.put_schedule(made)
    ensure_node(depot)
    if as_json:
        write_json(_facts(made))
        return Exit.OK
    write_note(f"schedule {named}: the next run starts at {_at(made, made.next_us)}, {zone}")
    _note_left_out(left_out, config)
    return Exit.OK


def _note_left_out(left_out: Sequence[str], config: Config) -> None:
    from bartack.cli.queued._queueing import note_left_out  # noqa: PLC0415 - only 'schedule add' needs it

    note_left_out(left_out, config, "schedule")


def _check_words(words: Sequence[str], place: str) -> tuple[Config, str]:
    """Check what 'bartack run' is to be called with, now instead of at night; returns the settings and the program.

    Raises:
        UsageError: 'bartack run' does not take it.
        ProgramImportError: The program does not exist.
    """
    from bartack.cli.runs._run import run as run_command  # noqa: PLC0415 - only 'schedule add' needs it

    own = ["--detach", *(() if os.path.samefile(place, ".") else ("--workspace", place))]
    with run_command.make_context("bartack run", [*own, *words]) as context:
        given = context.params
    if given["schedule"] or given["start_key"]:
        raise UsageError("bartack schedule add", "--schedule and --start-key are for the node")
    if "-" in {given["goal"], given["instruction"]}:
        raise UsageError(
            "bartack schedule add", "a scheduled run has no standard input: write the text, or name @FILE"
        )
    workspace = Path(given["workspace"])
    config = load_config(workspace, given["sets"])
    program: str | None = given["program"]
    if program is not None:
        _check_program(program, Path(place), workspace)
    elif given["goal"] is None and given["instruction"] is None:
        _check_tasks(config, given["tasks"])
    return config, program or ("tasks" if given["goal"] is None else "goal")


def _check_program(program: str, place: Path, workspace: Path) -> None:
    from bartack.runtime.program.source import find_program  # noqa: PLC0415 - only 'schedule add' needs it

    try:
        find_program(program, place)
    except ProgramImportError:
        find_program(program, workspace)


def _check_tasks(config: Config, tasks: Sequence[str]) -> None:
    from bartack.pipeline.request import choose_tasks  # noqa: PLC0415 - other schedules are added faster without it

    if not choose_tasks(config, "", tasks):
        raise UsageError(
            "bartack schedule add",
            "there are no tasks: name a program, use --goal or --instruction after --, or write [[tasks]] in bartack.toml",
        )


def _free_name(depot: FileDepot, program: str) -> str:
    """A name that is not taken, from that of the program."""
    file = Path(program.partition(":")[0]).stem
    base = re.sub(r"[^A-Za-z0-9_-]+", "-", file)[: MOST_NAME - 4].strip("-") or "schedule"
    taken = {one.name for one in depot.schedules()}
    return next(
        name for n in range(1, len(taken) + 2) if (name := base if n == 1 else f"{base}-{n}") not in taken
    )


@schedule.command("list", short_help="List the schedules.")
@json_option
def list_(*, as_json: bool) -> None:
    """List the schedules: when the next run starts, what happens about missed times, the last run, and problems."""
    found = user_depot().schedules()
    if as_json:
        write_json([_facts(one) for one in found])
        return
    screen = Screen(sys.stdout)
    if not found:
        screen.line("There are no schedules. 'bartack schedule add' adds one.")
        return
    for one in found:
        _show(screen, one)
    if user_depot().seated() is None:
        screen.line("No node is running, so nothing is started. 'bartack node start' starts one.")


def _show(screen: Screen, one: Schedule) -> None:
    words = shlex.join(["bartack", "run", *one.words])
    next_at = f"{_at(one, one.next_us)} {one.zone}" if one.next_us > SystemClock().now_us() else "due"
    rows = [
        ("when", f"{one.cron}; {MISSED[one.missed]}"),
        ("next", next_at),
        ("run", f"{words}, in {short_path(one.workspace)}"),
    ]
    if one.last_run:
        rows.append(("last", f"{one.last_run}, {_at(one, one.last_us)}"))
    screen.line(screen.paint(printable(one.name), "bold"))
    screen.listing([(screen.paint(label, "dim"), printable(text)) for label, text in rows])
    problem = _problem(one)
    if problem:
        screen.line(f"  {screen.paint('problem', 'red')}  {printable(problem)}")


def _problem(one: Schedule) -> str:
    if not Path(one.workspace).is_dir():
        return f"its workspace {one.workspace} is gone"
    return one.problem


def _at(one: Schedule, time_us: int) -> str:
    """A time in the zone of a schedule; in UTC if that zone is unknown by now."""
    try:
        zone = load_zone(one.name, one.zone)
    except ScheduleError:
        zone = UTC
    return f"{datetime.fromtimestamp(time_us / 1e6, zone):%Y-%m-%d %H:%M}"


def _facts(one: Schedule) -> dict[str, object]:
    return {
        "name": one.name,
        "cron": one.cron,
        "zone": one.zone,
        "workspace": one.workspace,
        "run_args": list(one.words),
        "missed": one.missed,
        "next_us": one.next_us,
        "last_us": one.last_us,
        "last_run": one.last_run,
        "problem": _problem(one),
    }


@schedule.command(short_help="Remove a schedule.")
@name_argument
def remove(name: str) -> None:
    """Remove a schedule. Runs that it has started stay in the queue."""
    gone = user_depot().remove_schedule(name)
    write_note(f"schedule {gone.name} is removed; the runs that it started are not affected")


@schedule.command(short_help="Start a run of a schedule now.")
@name_argument
@json_option
def run(name: str, *, as_json: bool) -> Exit:
    """Start a run of a schedule now. Its next time stays. It is refused while a run of the schedule is queued or running."""
    depot = user_depot()
    outcome = start_now(depot, name, Launcher(os.environ), SystemClock().now_us())
    ensure_node(depot)
    if as_json:
        write_json({"schedule": name, "run": outcome.run})
        return Exit.OK
    write_note(f"{outcome.run} is queued")
    write_note(f"  watch it: bartack attach {outcome.run}")
    return Exit.OK
