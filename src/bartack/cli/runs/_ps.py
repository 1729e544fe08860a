"""``bartack ps``: the processes of a run as a tree, told by its hub; of a run without one, its workers, told by the journal."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import click
import msgspec

from bartack.cli.app._options import json_option, write_json
from bartack.cli.app._terminal import Screen, human_time, printable, say
from bartack.cli.runs._runs import complete_run, locate, paint_status, workspace_option
from bartack.cli.runs._status import write_deadlock
from bartack.core import SystemClock
from bartack.errors import BartackError, HubStoppedError, RunNotActiveError
from bartack.runtime.client.connection import HubClient
from bartack.runtime.protocol.requests import Process, RunFacts
from bartack.runtime.rundir.find import list_runs, read_state, status_of
from bartack.runtime.rundir.layout import RunDir
from bartack.runtime.rundir.presence import is_active
from bartack.runtime.state.timeline import describe_worker


class Household(NamedTuple):
    """The processes of a run; of one that nobody runs, its workers."""

    run: RunDir
    status: str
    active: bool
    processes: list[Process]
    deadlock: Sequence[str] = ()


@click.command(short_help="Show the processes of a run as a tree.")
@click.argument("run", required=False, shell_complete=complete_run)
@workspace_option
@json_option
def ps(run: str | None, workspace: str, *, as_json: bool) -> None:
    """Show the processes of a run as a tree: its hub, its workers with the step each is busy with, its commands and agents.

    Of a run that nobody runs it shows the workers and how each stands. Without RUN, every run of the workspace that somebody
    runs now.
    """
    named = [locate(run, workspace)] if run is not None else []
    runs = named or [found for found in list_runs(Path(workspace)) if is_active(found)]
    told, stopped = _look_at_all(runs)
    if as_json:
        write_json([_facts(household) for household in told])
    else:
        screen = Screen(sys.stdout)
        if not runs:
            screen.line("No run is active here.")
        for household in told:
            _write(screen, household)
    if stopped:
        raise stopped[0]


def _look_at_all(runs: list[RunDir]) -> tuple[list[Household], list[HubStoppedError]]:
    """The processes of all runs that answer, and what is to be reported of those that are stopped."""
    told: list[Household] = []
    stopped: list[HubStoppedError] = []
    for run in runs:
        try:
            told.append(look_at(run))
        except HubStoppedError as error:
            stopped.append(error)
        except BartackError as error:
            if len(runs) == 1:
                raise
            say(f"{run.id} is left out: {printable(error.message)}")
    return told, stopped


def look_at(run: RunDir) -> Household:
    """The processes of a run, told by its hub; of one without a hub, what the journal tells of its workers."""
    try:
        with HubClient(run) as hub:
            facts = msgspec.json.decode(hub.ask("state"), type=RunFacts)
            processes = msgspec.json.decode(hub.ask("ps"), type=list[Process])
            return Household(run, facts.status, active=True, processes=processes, deadlock=facts.deadlock)
    except RunNotActiveError:
        return _from_journal(run)


def _from_journal(run: RunDir) -> Household:
    state = read_state(run)
    status = status_of(run, state)
    processes: list[Process] = []
    for worker in state.workers.values():
        process = Process("worker", worker=worker.path)
        describe_worker(process, worker)
        if not worker.ended:
            process.status = status
        processes.append(process)
    return Household(run, status, active=False, processes=processes)


def _facts(household: Household) -> dict[str, object]:
    return {
        "run": household.run.id,
        "status": household.status,
        "active": household.active,
        "processes": msgspec.to_builtins(household.processes),
        **({"deadlock": list(household.deadlock)} if household.deadlock else {}),
    }


# For people.


def _write(screen: Screen, household: Household) -> None:
    status = paint_status(screen, household.status)
    screen.line(f"{screen.paint(household.run.id, 'bold')}  {status}")
    now_us = SystemClock().now_us()
    below: dict[str, list[Process]] = {}
    known = {_name(process) for process in household.processes}
    for process in household.processes:
        above = _above(process, known)
        below.setdefault(above, []).append(process)
    screen.listing([_row(screen, stem, process, now_us) for stem, process in _tree(below, "", "")])
    if household.deadlock:
        write_deadlock(screen, household.run.id, household.deadlock)


def _tree(below: dict[str, list[Process]], name: str, stem: str) -> list[tuple[str, Process]]:
    """Each process behind the branches that lead to it."""
    rows: list[tuple[str, Process]] = []
    children = below.get(name, [])
    for process in children:
        last = process is children[-1]
        rows.append((stem + ("" if not name else "└─ " if last else "├─ "), process))
        deeper = stem + ("" if not name else "   " if last else "│  ")
        if process.kind not in {"command", "agent"}:
            rows += _tree(below, _name(process), deeper)
    return rows


def _name(process: Process) -> str:
    return process.worker if process.kind == "worker" else process.kind


def _above(process: Process, known: set[str]) -> str:
    """What is shown above a process: what made it, or that one's worker if a branch of it did."""
    above = process.under
    while above and above not in known:
        above = above.rpartition(".")[0]
    return above


def _row(screen: Screen, stem: str, process: Process, now_us: int) -> tuple[str, ...]:
    name = (
        process.worker
        if process.kind == "worker"
        else process.about
        if process.kind == "command"
        else process.kind
    )
    again = f"#{process.incarnation}" if process.incarnation else ""
    up = human_time((now_us - process.started) / 1e6) if process.started else ""
    return (
        f"{stem}{screen.fit(printable(name), 60)}{again}",
        process.kind if process.kind in {"worker", "command"} else "",
        str(process.pid or "-"),
        paint_status(screen, process.status),
        up,
        printable(busy_with(process, now_us)),
    )


def busy_with(process: Process, now_us: int) -> str:
    """What a process does, in words."""
    parts: list[str] = []
    if process.kind == "agent":
        parts.append(
            f"{process.about} of {process.step}" if process.step else f"{process.about}, between calls"
        )
    elif process.kind == "command":
        parts.append(f"of {process.step}")
    elif process.step:
        took = f", {human_time((now_us - process.since) / 1e6)}" if process.since else ""
        parts.append(f"{process.step} {process.about}{took}")
    if process.left_s is not None:
        parts.append(f"{human_time(process.left_s)} left")
    if process.restarted:
        parts.append(f"last crash: {process.restarted}")
    return ", ".join(parts)
