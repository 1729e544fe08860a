"""``bartack schedules``: runs that the nodes of a database start again and again."""

from __future__ import annotations

import os
import shlex
import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from bartack.cli.app._app import PlainGroup
from bartack.cli.app._database import INSECURE_HELP, on_option, open_named
from bartack.cli.app._exit import Exit
from bartack.cli.app._options import json_option, write_json
from bartack.cli.app._terminal import Screen, printable, write_note
from bartack.core.clock import SystemClock
from bartack.errors import ScheduleError, UsageError

if TYPE_CHECKING:
    from bartack.config.load import Config
    from bartack.depot.timetable import FleetSchedule, Timetable
    from bartack.runtime.hub.planned import PackedPlan

COMMAND: Final = "bartack schedules add"
REFUSED: Final = {
    "on": "--on",
    "here": "--here",
    "insecure": "--insecure",
    "key": "--key",
    "at": "--at",
    "detach": "--detach",
    "after": "--after",
    "retry": "--retry",
    "run_as": "--run-as",
    "goal": "--goal",
    "instruction": "--instruction",
    "tasks": "--task",
}
"""Options of ``bartack run`` that have no meaning in a schedule of a database."""
_insecure = click.option("--insecure", is_flag=True, help=INSECURE_HELP)


def _timetable(on: str, *, insecure: bool) -> Timetable:
    from bartack.depot.timetable import Timetable  # noqa: PLC0415 - only these commands need it

    return Timetable(open_named(on, insecure=insecure))


@click.group(cls=PlainGroup, short_help="Start runs at fixed times on the nodes of a database.")
def schedules() -> None:
    """Start runs at fixed times on the nodes of a database. 'bartack schedule' does that on this machine, without a database."""


# Long because its options and its help are part of it; the functions that it calls do the work.
@schedules.command(short_help="Add a schedule.")
@click.argument("name")
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="-- run [RUN-ARG]...")
@on_option
@click.option(
    "--cron", required=True, metavar="CRON", help="When: minute, hour, day of month, month, day of week."
)
@click.option(
    "--zone", metavar="ZONE", help="The time zone of CRON, as Europe/Berlin (default: that of this machine)."
)
@click.option(
    "--overlap", is_flag=True, help="Use a time although the last run of the schedule has not ended."
)
@_insecure
@json_option
def add(
    name: str,
    words: tuple[str, ...],
    on: str,
    cron: str,
    zone: str | None,
    *,
    overlap: bool,
    insecure: bool,
    as_json: bool,
) -> Exit:
    """Let the nodes of a database start a run whenever CRON says so, each time once, whichever node is alive then.

    What follows '-- run' is what 'bartack run' takes: FILE with its arguments, --input, --set, --carry, --pool, --need, --priority,
    --team. The program is checked now, and kept with the schedule as it is now. So are the settings and a copy of the workspace,
    with which each run begins.

    Every night at three: bartack schedules add nightly --on DATABASE --cron "0 3 * * *" -- run night.pw

    Of times that pass while no node is alive, one run is started. A time is skipped while the last run of the schedule has not
    ended.
    """
    from bartack.config.load import load_config  # noqa: PLC0415 - only this command needs it
    from bartack.depot.timetable import FleetSchedule  # noqa: PLC0415 - likewise
    from bartack.node import local_zone, next_time  # noqa: PLC0415 - likewise

    timetable = _timetable(on, insecure=insecure)
    zone = zone or local_zone(os.environ)
    next_us = next_time(name, cron, zone, SystemClock().now_us())
    given = _parse(words)
    place = Path(given["workspace"]).resolve()
    if given["carry"] is not None:
        given["sets"] = (*given["sets"], f"workspace.carry={given['carry']}")
    config = load_config(place, given["sets"])
    plan = _plan(given, place, config)
    made = FleetSchedule(
        name,
        given["team"] or config.run.team,
        cron,
        zone,
        words[1:],
        given["pool"] or config.run.pool,
        config.run.priority if given["priority"] is None else given["priority"],
        [*dict.fromkeys((*(given["needs"] or config.run.needs), *plan.needs))],
        overlap,
        next_us,
    )
    timetable.add(made, plan.job, plan.program, plan.copy)
    if as_json:
        write_json(_facts(made))
    else:
        write_note(f"schedule {printable(name)}: the next run starts at {_at(made, next_us)}, {zone}")
    return Exit.OK


def _parse(words: tuple[str, ...]) -> dict[str, Any]:
    """What ``bartack run`` is to be called with.

    Raises:
        UsageError: It does not take that, or a node cannot start it.
    """
    from bartack.cli.runs._run import run as run_command  # noqa: PLC0415 - only 'schedules add' needs it

    if words[:1] != ("run",):
        raise UsageError(COMMAND, "write the command after --, as in: -- run night.pw")
    with run_command.make_context("bartack run", list(words[1:])) as context:
        given = context.params
    if given["program"] is None:
        raise UsageError(COMMAND, "schedules of a database are for programs: name a FILE after '-- run'")
    refused = [option for name, option in REFUSED.items() if given[name]]
    if refused:
        raise UsageError(COMMAND, f"{refused[0]} is not for a run that a schedule starts")
    return given


def _plan(given: dict[str, Any], place: Path, config: Config) -> PackedPlan:
    """Find out now what can keep the run from being made, and pack it."""
    from bartack.cli.runs._run import make_request  # noqa: PLC0415 - only 'schedules add' needs it
    from bartack.runtime.hub.create import plan_run  # noqa: PLC0415 - likewise
    from bartack.runtime.hub.planned import pack_plan  # noqa: PLC0415 - likewise

    request = make_request(given["program"], given["args"], given["workers"], given["given"])
    request.no_input = given["no_input"]
    plan = plan_run(request, place, config, given["sets"], is_for_nodes=True)
    plan = replace(plan, is_carried=config.workspace.carry != "shared")
    for text in plan.notes:
        write_note(printable(text))
    return pack_plan(plan)


@schedules.command("list", short_help="List the schedules of a database.")
@on_option
@_insecure
@json_option
def list_schedules(on: str, *, insecure: bool, as_json: bool) -> None:
    """List the schedules of a database: when the next run starts, the last run, and problems."""
    found = _timetable(on, insecure=insecure).schedules()
    if as_json:
        write_json([_facts(one) for one in found])
        return
    screen = Screen(sys.stdout)
    if not found:
        screen.line("There are no schedules. 'bartack schedules add' adds one.")
    for one in found:
        rows = [
            ("when", f"{one.cron}, {one.zone}"),
            ("next", _at(one, one.next_us) if one.next_us > SystemClock().now_us() else "due"),
            ("run", f"{shlex.join(['bartack', 'run', *one.words])}, team {one.team}, pool {one.pool}"),
            *([("last", f"{one.last_run}, {_at(one, one.last_us)}")] if one.last_run else []),
            *([("problem", one.problem)] if one.problem else []),
        ]
        screen.line(screen.paint(printable(one.name), "bold"))
        screen.listing([(screen.paint(label, "dim"), printable(text)) for label, text in rows])


@schedules.command(short_help="Remove a schedule.")
@click.argument("name")
@on_option
@_insecure
def remove(name: str, on: str, *, insecure: bool) -> None:
    """Remove the schedule NAME. Runs that it has started are not affected."""
    _timetable(on, insecure=insecure).remove(name)
    write_note(f"schedule {printable(name)} is removed; the runs that it started are not affected")


def _at(one: FleetSchedule, time_us: int) -> str:
    """A time in the zone of a schedule; in UTC if that zone is unknown here."""
    from bartack.node import load_zone  # noqa: PLC0415 - only these commands need it

    try:
        zone = load_zone(one.name, one.zone)
    except ScheduleError:
        zone = UTC
    return f"{datetime.fromtimestamp(time_us / 1e6, zone):%Y-%m-%d %H:%M}"


def _facts(one: FleetSchedule) -> dict[str, object]:
    return {**one._asdict(), "words": list(one.words), "needs": list(one.needs)}
