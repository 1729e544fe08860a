"""``bartack ps``: the processes of a run, told by the hub that has them."""

from __future__ import annotations

import sys
from pathlib import Path

import click
import msgspec

from bartack.cli._options import json_option, write_json
from bartack.cli._runs import complete_run, locate, paint_status, workspace_option
from bartack.cli._terminal import Screen, human_time, printable
from bartack.core import SystemClock
from bartack.runtime.operate import HubClient, Process, RunDir, is_active, list_runs


@click.command(short_help="Show the processes of a run.")
@click.argument("run", required=False, shell_complete=complete_run)
@workspace_option
@json_option
def ps(run: str | None, workspace: str, *, as_json: bool) -> None:
    """Show the processes of a run: its hub, its workers with the step each is busy with, and its commands.

    Without RUN, those of every run of the workspace that somebody runs now.
    """
    named = [locate(run, workspace)] if run is not None else []
    runs = named or [found for found in list_runs(Path(workspace)) if is_active(found)]
    told = [(found, processes_of(found)) for found in runs]
    if as_json:
        write_json([{"run": found.id, "processes": msgspec.to_builtins(has)} for found, has in told])
        return
    screen = Screen(sys.stdout)
    if not told:
        screen.line("Nobody runs a run here.")
    for found, has in told:
        _write(screen, found, has)


def processes_of(run: RunDir) -> list[Process]:
    """The processes of a run.

    Raises:
        RunNotActiveError: Nobody runs it.
    """
    with HubClient(run) as hub:
        return msgspec.json.decode(hub.ask("ps"), type=list[Process])


def _write(screen: Screen, run: RunDir, processes: list[Process]) -> None:
    screen.line(screen.paint(run.id, "bold"))
    screen.listing([(*_row(screen, process), _busy(process)) for process in processes])


def _row(screen: Screen, process: Process) -> tuple[str, ...]:
    pid = str(process.pid or "-")
    if process.kind == "worker":
        depth = "  " * (process.worker.count("/") + 1)
        again = f" (start {process.incarnation})" if process.incarnation > 1 else ""
        return pid, f"{depth}{printable(process.worker)}{again}", paint_status(screen, process.status)
    if process.kind == "command":
        return pid, f"{'  ' * (process.worker.count('/') + 2)}command of {printable(process.worker)}", ""
    return pid, process.kind if process.kind == "hub" else f"  {process.kind}", ""


def _busy(process: Process) -> str:
    if not process.step:
        return printable(process.about)
    took = human_time((SystemClock().now_us() - process.since) / 1e6)
    left = "" if process.left_s is None else f", {human_time(process.left_s)} left"
    return printable(f"{process.step} {process.about}, {took}{left}")
