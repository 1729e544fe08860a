"""``bartack teams``: whose runs a database keeps, and how many of them run at once."""

from __future__ import annotations

import sys

import click

from bartack.cli.app._app import PlainGroup
from bartack.cli.app._database import INSECURE_HELP, on_option, open_named
from bartack.cli.app._options import json_option, write_json
from bartack.cli.app._terminal import Screen, printable, write_note

_insecure = click.option("--insecure", is_flag=True, help=INSECURE_HELP)


@click.group(cls=PlainGroup, short_help="List and limit the teams of a database.")
def teams() -> None:
    """List the teams of a database, and limit how many of their runs have a node at once.

    'bartack run --on DATABASE --team NAME' submits a run of a team; without --team it is one of the team 'default'.
    """


@teams.command("list", short_help="List the teams of a database.")
@on_option
@_insecure
@json_option
def list_teams(on: str, *, insecure: bool, as_json: bool) -> None:
    """List the teams of a database with the number of runs that have a node, their limit, and the number of runs that wait."""
    from bartack.depot.upkeep import Upkeep  # noqa: PLC0415 - only these commands need it

    found = Upkeep(open_named(on, insecure=insecure)).teams()
    if as_json:
        write_json([team._asdict() for team in found])
        return
    screen = Screen(sys.stdout)
    for team in found:
        limit = "" if team.max_running is None else f" of {team.max_running}"
        screen.line(f"{printable(team.name):<20} {team.running}{limit} running, {team.queued} queued")


@teams.command("set", short_help="Make a team, or change its limit.")
@click.argument("name")
@click.option(
    "--max-running",
    type=click.IntRange(0),
    metavar="N",
    help="Let at most N of its runs have a node at once; without this option any number.",
)
@on_option
@_insecure
def set_team(name: str, max_running: int | None, on: str, *, insecure: bool) -> None:
    """Make the team NAME, or change how many of its runs have a node at once. Runs beyond the limit stay queued."""
    from bartack.depot.upkeep import Upkeep  # noqa: PLC0415 - only these commands need it

    Upkeep(open_named(on, insecure=insecure)).set_team(name, max_running)
    limit = (
        "any number of runs"
        if max_running is None
        else f"at most {max_running} run{'' if max_running == 1 else 's'}"
    )
    write_note(f"the team {printable(name)} has {limit} at once")
