"""``bartack node``: the process that runs what is queued."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from datetime import datetime
from functools import partial

import click

from bartack.cli.app._app import DefaultGroup
from bartack.cli.app._exit import Exit
from bartack.cli.app._options import json_option, write_json
from bartack.cli.app._terminal import Screen, human_time, printable, write_note
from bartack.cli.nodes._fleet import FleetOptions, fleet_options, run_fleet
from bartack.cli.nodes._service import install, installed_service, uninstall
from bartack.core.clock import SystemClock
from bartack.depot import NodeFacts, user_depot
from bartack.errors import NodeRunningError
from bartack.node import ensure_node, node_log, stop_node, trim_log


class NodeGroup(DefaultGroup):
    """Options of the node without a command run it."""

    default = "run"


@click.group(cls=NodeGroup, short_help="Run what is queued, without a terminal.")
def node() -> None:
    """Run what is queued, without a terminal.

    There is one node per user. It starts with the first detached run and ends when nothing is left to do. It resumes what a crash
    or a reboot has interrupted; 'bartack node install' starts it at login.

    'bartack node --on DATABASE' is 'bartack node run --on DATABASE': a node that takes runs from a database.
    """


# Long because its options and its help are part of it; what it starts does the work.
@node.command(short_help="Run the node in the foreground.")
@click.option(
    "--max-runs",
    "--slots",
    "max_runs",
    type=click.IntRange(1),
    metavar="N",
    help="Run at most N runs at a time (node.max_runs); by default two for each processor, as far as the memory allows.",
)
@click.option(
    "--idle", type=float, metavar="SECONDS", help="End when there has been nothing to do for this long."
)
@click.option(
    "--rest-after",
    type=click.FloatRange(0),
    metavar="SECONDS",
    help="Stop the process of a run that has nothing to do for longer than this (node.rest_after_s).",
)
@fleet_options
def run(max_runs: int | None, idle: float | None, rest_after: float | None, fleet: FleetOptions) -> Exit:
    """Run the node in the foreground. Ctrl-C stops it and its runs; the next node resumes them.

    Its settings are in the section [node] of the bartack.toml in your state home.

    With --on DATABASE it is one of any number of nodes, on any machines, that take runs from that database. If one dies, the others
    continue its runs. It ends with the first SIGTERM or Ctrl-C when its runs have stopped cleanly, and with a second one at once.
    """
    if fleet.given:
        return run_fleet(fleet, max_runs, idle, rest_after, _say)
    from bartack.config.load import load_own_node  # noqa: PLC0415 - only this command needs it
    from bartack.core.boot import boot_id  # noqa: PLC0415 - likewise
    from bartack.node import (  # noqa: PLC0415 - likewise
        Launcher,
        Node,
        NodeNotices,
        RealHubs,
        Schedules,
        WarmHubs,
        choose_slots,
        new_node,
    )
    from bartack.supervision.process.limits import memory_left  # noqa: PLC0415 - likewise

    depot, clock = user_depot(), SystemClock()
    settings, memory = load_own_node(), memory_left()
    slots = choose_slots(
        max_runs or settings.max_runs, os.cpu_count() or 1, None if memory is None else memory.left
    )
    facts = new_node(slots, boot_id(), clock)
    try:
        _say(f"node {facts.id}, version {facts.version}, {facts.slots} runs at a time")
        with (
            NodeNotices(depot, _say) as notices,
            Schedules(depot, Launcher(os.environ), _say, notices.schedule_failed) as schedules,
            WarmHubs(os.environ) as warm,
        ):

            def chores(now_us: int) -> int | None:
                notices.look(now_us)
                return schedules(now_us)

            hubs = RealHubs(os.environ, warm, settings.rest_after_s if rest_after is None else rest_after)
            tidy = partial(trim_log, depot)
            Node(depot, facts, hubs, _say, idle_s=idle, clock=clock, chores=chores, tidy=tidy).run()
    except NodeRunningError:
        if idle is None:
            raise
        return Exit.OK  # another one was started at the same time
    _say("the node has ended")
    return Exit.OK


def _say(text: str) -> None:
    screen = Screen(sys.stderr)
    with suppress(OSError):  # the disk of the log may be full
        screen.line(f"{datetime.now().astimezone():%Y-%m-%d %H:%M:%S} {printable(text)}")
        screen.flush()


@node.command(short_help="Start the node in the background.")
def start() -> Exit:
    """Start the node in the background, unless it is running."""
    facts = ensure_node(user_depot())
    write_note(f"the node is running, process {facts.pid}")
    return Exit.OK


@node.command(short_help="Show the node and how many runs it has.")
@json_option
def status(*, as_json: bool) -> Exit:
    """Show the node and how many runs it has. The exit code is 0 if a node is running, 9 if not."""
    depot = user_depot()
    facts = depot.seated()
    counts: dict[str, int] = {}
    for one in depot.standings():
        counts[one.state] = counts.get(one.state, 0) + 1
    if as_json:
        service = installed_service()
        path = None if service is None else str(service.path)
        write_json({"running": facts is not None, **_described(facts), "runs": counts, "service": path})
    else:
        _show(facts, counts)
    return Exit.OK if facts is not None else Exit.NOT_ACTIVE


def _described(facts: NodeFacts | None) -> dict[str, object]:
    if facts is None:
        return {}
    return {
        "node": facts.id,
        "pid": facts.pid,
        "version": facts.version,
        "slots": facts.slots,
        "started_us": facts.started_us,
    }


def _show(facts: NodeFacts | None, counts: dict[str, int]) -> None:
    screen = Screen(sys.stdout)
    if facts is None:
        screen.line("no node is running; the next detached run starts one")
    else:
        since = human_time(max(0.0, (SystemClock().now_us() - facts.started_us) / 1e6))
        screen.line(
            f"running, process {facts.pid}, version {printable(facts.version)}, for {since}, {facts.slots} runs at a time"
        )
    owned = "running" if facts is not None else "to be continued by the next node"
    for state in ("owned", "queued", "resting", "held"):
        if counts.get(state):
            screen.line(f"  {counts[state]} {owned if state == 'owned' else state}")
    service = installed_service()
    if service is not None:
        screen.line(f"  installed as a service: {printable(str(service.path))}")
        screen.line(f"  log of the service: {printable(service.log)}")
    screen.line(f"  log: {printable(str(node_log(user_depot())))}")


@node.command(short_help="Stop the node; its runs continue with the next one.")
def stop() -> Exit:
    """Stop the node. Its runs are shut down cleanly and stay queued: the next node resumes them."""
    stopped = stop_node(user_depot())
    write_note(
        "stopped; its runs continue with the next node" if stopped is not None else "no node is running"
    )
    return Exit.OK


node.add_command(install)
node.add_command(uninstall)
