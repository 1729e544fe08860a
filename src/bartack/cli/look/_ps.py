"""``bartack ps``: the processes of an active run as a tree, from its hub; the workers of any other run, from its journal."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import click
import msgspec

from bartack.cli.app._database import shows_database
from bartack.cli.app._options import json_option, write_json
from bartack.cli.app._runs import complete_run, locate, paint_status, workspace_option
from bartack.cli.app._terminal import Screen, human_time, printable, write_note
from bartack.cli.look._status import write_deadlock
from bartack.core import typed
from bartack.core.clock import SystemClock
from bartack.errors import BartackError, HubStoppedError, RunNotActiveError
from bartack.runtime.client.connection import HubClient
from bartack.runtime.protocol.requests import Process, RunFacts
from bartack.runtime.rundir.find import list_runs, read_state, status_of
from bartack.runtime.rundir.layout import RunDir
from bartack.runtime.state.status import worker_status
from bartack.runtime.state.timeline import describe_worker


class ProcessTree(NamedTuple):
    """The processes of an active run, or the workers of any other run."""

    run: RunDir
    status: str
    active: bool
    processes: list[Process]
    deadlock: Sequence[str] = ()


@click.command(short_help="Show the processes of a run as a tree.")
@click.argument("run", required=False, shell_complete=complete_run)
@shows_database
@workspace_option
@json_option
def ps(run: str | None, workspace: str, *, as_json: bool) -> None:
    """Show the processes of a run as a tree: its hub, its workers with their open steps, its commands and agents.

    For a run that is not active, the command shows the workers and their status. Without RUN it shows every active run of the
    workspace.
    """
    named = [locate(run, workspace)] if run is not None else []
    runs = named or [found for found in list_runs(Path(workspace)) if found.is_active()]
    trees, stopped = _read_all(runs)
    if as_json:
        write_json([_facts(tree) for tree in trees])
    else:
        screen = Screen(sys.stdout)
        if not runs:
            screen.line("No run is active here.")
        for tree in trees:
            _write(screen, tree)
    if stopped:
        raise stopped[0]


def _read_all(runs: list[RunDir]) -> tuple[list[ProcessTree], list[HubStoppedError]]:
    """The processes of all runs that answer, and the errors of those that are suspended."""
    trees: list[ProcessTree] = []
    stopped: list[HubStoppedError] = []
    for run in runs:
        try:
            trees.append(read_tree(run))
        except HubStoppedError as error:
            stopped.append(error)
        except BartackError as error:
            if len(runs) == 1:
                raise
            write_note(f"{run.id} is skipped: {printable(error.message)}")
    return trees, stopped


def read_tree(run: RunDir) -> ProcessTree:
    """Read the processes of a run from its hub, or its workers from the journal if it has no hub."""
    try:
        with HubClient(run) as hub:
            facts = typed.decode(hub.ask("state"), type=RunFacts)
            processes = typed.decode(hub.ask("ps"), type=list[Process])
            return ProcessTree(run, facts.status, active=True, processes=processes, deadlock=facts.deadlock)
    except RunNotActiveError:
        return _from_journal(run)


def _from_journal(run: RunDir) -> ProcessTree:
    state = read_state(run)
    status = status_of(run, state, active=False)
    processes: list[Process] = []
    for worker in state.workers.values():
        process = Process("worker", worker=worker.path)
        describe_worker(process, worker, state)
        process.status = worker_status(state, worker.status, active=False)
        processes.append(process)
    return ProcessTree(run, status, active=False, processes=processes)


def _facts(tree: ProcessTree) -> dict[str, object]:
    return {
        "run": tree.run.id,
        "status": tree.status,
        "active": tree.active,
        "processes": msgspec.to_builtins(tree.processes),
        **({"deadlock": list(tree.deadlock)} if tree.deadlock else {}),
    }


# For people.


def _write(screen: Screen, tree: ProcessTree) -> None:
    status = paint_status(screen, tree.status)
    screen.line(f"{screen.paint(tree.run.id, 'bold')}  {status}")
    now_us = SystemClock().now_us()
    below: dict[str, list[Process]] = {}
    known = {_name(process) for process in tree.processes}
    for process in tree.processes:
        above = _above(process, known)
        below.setdefault(above, []).append(process)
    screen.listing([_row(screen, stem, process, now_us) for stem, process in _tree(below, "", "")])
    if tree.deadlock:
        write_deadlock(screen, tree.run.id, tree.deadlock)


def _tree(below: dict[str, list[Process]], name: str, stem: str) -> list[tuple[str, Process]]:
    """Each process with the branches of the tree in front of it."""
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
    """The parent of a process in the tree: its creator, or the creator's worker if a branch created it."""
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
    """Describe what a process is doing."""
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
