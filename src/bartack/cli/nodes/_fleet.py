"""``bartack node --on`` and ``bartack nodes``: nodes that take runs from a database."""

from __future__ import annotations

import os
import platform
import socket
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
import msgspec

from bartack.cli.app._app import DefaultGroup
from bartack.cli.app._database import INSECURE_HELP, ON_HELP, on_option, open_named, open_team, own_database
from bartack.cli.app._exit import Exit
from bartack.cli.app._grouped import grouped
from bartack.cli.app._options import json_option, write_json
from bartack.cli.app._terminal import Screen, human_time, printable, write_note
from bartack.depot.elsewhere import Elsewhere, without_database
from bartack.errors import ConfigError, UsageError
from bartack.runtime.program.environment import python_label
from bartack.telemetry import NO_TELEMETRY, Telemetry

if TYPE_CHECKING:
    from bartack.core.accounts import Account
    from bartack.depot.team import Team

SHORTEST_S: Final = 3.0
LONGEST_S: Final = 60.0


class FleetOptions(msgspec.Struct, kw_only=True, frozen=True):
    """The options of a node that takes runs from a database."""

    on: str = ""
    insecure: bool = False
    name: str = ""
    pools: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    state_dir: str = ""
    lease_s: float | None = None
    blobs: str = ""
    drain_s: float | None = None
    run_as: str = ""

    @property
    def database(self) -> str:
        """The database that was named, or the user's own if another option needs one."""
        return self.on or (own_database() or "" if self != FleetOptions() else "")

    @property
    def given(self) -> bool:
        """Whether a database was named.

        Raises:
            UsageError: None was, but an option that needs one.
        """
        if not self.database and self != FleetOptions():
            problem = "--insecure, --name, --pool, --label, --state-dir, --lease, --blobs, --drain and --run-as need --on DATABASE"
            raise UsageError("bartack node run", problem)
        return bool(self.database)


fleet_options = grouped(
    "fleet",
    FleetOptions,
    (
        click.option("--on", default="", metavar="DATABASE", help=f"Take runs from {ON_HELP}."),
        click.option("--insecure", is_flag=True, help=INSECURE_HELP),
        click.option(
            "--name", default="", metavar="NAME", help="With --on: its name; the name of the host by default."
        ),
        click.option(
            "--pool",
            "pools",
            multiple=True,
            metavar="NAME",
            help="With --on: take runs of this pool (node.pools); 'default' by default.",
        ),
        click.option(
            "--label",
            "labels",
            multiple=True,
            metavar="LABEL",
            help="With --on: what runs may need, as in --need (node.labels).",
        ),
        click.option(
            "--state-dir",
            default="",
            metavar="DIR",
            help="With --on: where its runs have their directories; in your state home by default.",
        ),
        click.option(
            "--lease",
            "lease_s",
            type=click.FloatRange(SHORTEST_S, LONGEST_S),
            metavar="SECONDS",
            help="With --on: without an answer of the database for this long its runs go to other nodes (depot.lease_s).",
        ),
        click.option(
            "--blobs",
            default="",
            metavar="STORE",
            help="With --on: the object store with large values of the database, s3://BUCKET/PREFIX or file:///PATH (depot.blobs).",
        ),
        click.option(
            "--drain",
            "drain_s",
            type=click.FloatRange(0),
            metavar="SECONDS",
            help="With --on: when it is to end, wait at most this long for steps in flight (node.drain_s).",
        ),
        click.option(
            "--run-as",
            default="",
            metavar="USER",
            help="With --on: execute runs and their hubs as this user, who cannot read what opens the database (root only; "
            "node.run_as).",
        ),
    ),
)
"""Adds the options to a command; it receives them together, as ``fleet``."""


def run_fleet(
    options: FleetOptions,
    max_runs: int | None,
    idle: float | None,
    rest_after: float | None,
    say: Callable[[str], object],
) -> Exit:
    """Be a node of a database until a signal comes."""
    from bartack.agents.labels import find_labels  # noqa: PLC0415 - only this command needs it
    from bartack.config.load import load_own_depot, load_own_node  # noqa: PLC0415 - likewise
    from bartack.core.boot import boot_id  # noqa: PLC0415 - likewise
    from bartack.node import choose_slots  # noqa: PLC0415 - likewise
    from bartack.node.account import open_runs_account  # noqa: PLC0415 - likewise
    from bartack.node.fleet import FleetLoop, FleetSettings  # noqa: PLC0415 - likewise
    from bartack.supervision.process.limits import memory_left  # noqa: PLC0415 - likewise
    from bartack.supervision.process.system import hide_process  # noqa: PLC0415 - likewise

    if idle is not None:
        raise UsageError("bartack node run", "a node of a database does not end by itself: leave out --idle")
    hide_process()  # what opens the database is in its memory and environment
    own, depot, memory = load_own_node(), load_own_depot(), memory_left()
    blobs = options.blobs or depot.blobs
    run_as = options.run_as or own.run_as
    account = open_runs_account(run_as) if run_as else None
    team = open_team(Elsewhere(options.database, options.insecure, blobs))
    team.check()
    slots = choose_slots(
        max_runs or own.max_runs, os.cpu_count() or 1, None if memory is None else memory.left
    )
    seat = _take_seat(team, options.state_dir, account)
    environ = without_database(os.environ, has_bucket=blobs.startswith("s3:"), passed=own.pass_env)
    found = find_labels(seat, environ)
    with node_telemetry(wanted=own.otel) as telemetry:
        settings = FleetSettings(
            team=team,
            name=options.name or socket.gethostname(),
            seat=seat,
            slots=slots,
            pools=options.pools or tuple(own.pools) or ("default",),
            labels=tuple(dict.fromkeys((*(options.labels or own.labels), *own_labels(), *found))),
            lease_s=options.lease_s or depot.lease_s,
            hold_s=depot.hold_s,
            drain_s=own.drain_s if options.drain_s is None else options.drain_s,
            boot=boot_id(),
            say=say,
            environ=environ,
            rest_after_s=own.rest_after_s if rest_after is None else rest_after,
            telemetry=telemetry,
        )
        whose = f", as {account.name}" if account is not None else ""
        say(
            f"node {settings.name} of {team.name}, {slots} runs at a time{whose}, pools {', '.join(settings.pools)}"
        )
        FleetLoop(settings).run()
    say("the node has ended")
    return Exit.OK


def _take_seat(team: Team, state_dir: str, account: Account | None) -> Path:
    """The directory of the node. With an account it is that of the account, as which this process acts from then on.

    Raises:
        RunAsError: The account cannot have it.
    """
    from bartack.core.user_home import user_home  # noqa: PLC0415 - only this command needs it
    from bartack.node.account import become, describe_account  # noqa: PLC0415 - likewise

    if account is not None:
        describe_account(account, os.environ)
    seat = Path(state_dir).absolute() if state_dir else team.where.place_in(user_home() / "nodes")
    if account is not None:
        become(account, seat)
    return seat


@contextmanager
def node_telemetry(*, wanted: bool) -> Generator[Telemetry]:
    """What takes the events of a node: OpenTelemetry, if the user's own settings say so.

    Raises:
        ConfigError: OpenTelemetry is not installed.
    """
    if not wanted:
        yield NO_TELEMETRY
        return
    try:
        from bartack.telemetry.otel import attach_otel  # noqa: PLC0415 - an optional dependency
    except ImportError as error:
        problem = f"OpenTelemetry is not installed ({error.name}); install bartack[otel]"
        raise ConfigError("bartack.toml: node.otel", problem) from None
    telemetry = Telemetry()
    bridge = attach_otel(telemetry)
    try:
        yield telemetry
    finally:
        bridge.close()


def own_labels() -> tuple[str, ...]:
    """The labels that every node has by itself."""
    return f"os:{sys.platform}", f"arch:{platform.machine()}", python_label(platform.python_version())


_insecure = click.option("--insecure", is_flag=True, help=INSECURE_HELP)


class NodesGroup(DefaultGroup):
    """Without a command the nodes are listed."""

    default = "list"
    is_bare = True


@click.group(cls=NodesGroup, short_help="List and drain the nodes of a database.")
def nodes() -> None:
    """List and drain the nodes that take runs from a database: 'bartack node --on DATABASE' starts one.

    Without a command it lists them.
    """


@nodes.command("list", short_help="List the nodes of a database.")
@on_option
@_insecure
@json_option
def list_nodes(on: str, *, insecure: bool, as_json: bool) -> None:
    """List the nodes of a database: those that run, and those that have ended or died in the last day."""
    found = open_named(on, insecure=insecure).nodes()
    if as_json:
        write_json([node._asdict() for node in found])
        return
    screen = Screen(sys.stdout)
    if not found:
        screen.line("no node takes runs from this database; start one with: bartack node --on DATABASE")
    for node in found:
        seen = f"seen {human_time(max(0.0, node.seen_s))} ago"
        screen.line(
            f"{printable(node.name):<20} {node.state:<9} {node.runs} of {node.slots} runs, {seen}, "
            f"version {printable(node.version)}, pools {printable(', '.join(node.pools))}"
        )
        screen.line(f"  {printable(' '.join(node.labels))}")


@nodes.command(short_help="Let a node take no more runs, and end.")
@click.argument("name")
@on_option
@_insecure
@click.option("--now", is_flag=True, help="Do not wait for steps in flight: other nodes execute them again.")
def drain(name: str, on: str, *, insecure: bool, now: bool) -> None:
    """Let the node NAME take no more runs, and end.

    Each of its runs stops when no command, prompt or other step with an effect is in flight, or when the time for that is over
    ('node run --drain'), and another node continues it.
    """
    if not open_named(on, insecure=insecure).drain(name, now=now):
        raise UsageError("bartack nodes drain", f"there is no node {name!r} that takes runs")
    ends = "now" if now else "when its steps in flight have ended"
    write_note(f"{printable(name)} takes no more runs; other nodes continue those that it has {ends}")
