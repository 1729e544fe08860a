"""``bartack detach``: an active run continues without its terminal."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final

import click

from bartack.cli.app._exit import Exit
from bartack.cli.app._options import json_option
from bartack.cli.app._runs import latest_argument, locate, workspace_option
from bartack.cli.app._terminal import printable, write_note
from bartack.cli.queued._options import DetachOptions
from bartack.cli.queued._queueing import queue_run
from bartack.config.load import kept_sets, load_config
from bartack.depot import user_depot
from bartack.depot.elsewhere import Elsewhere
from bartack.depot.taken import Queueing
from bartack.errors import ResumeRefusedError, RunNotActiveError
from bartack.runtime.client.connection import HubClient
from bartack.runtime.rundir.find import TERMINAL, read_state, status_of
from bartack.runtime.rundir.layout import RunDir
from bartack.runtime.rundir.origin import check_own

STOP_S: Final = 30.0
"""How long the process of a run may take to shut down cleanly."""


@click.command(short_help="Hand an active run over to the node.")
@latest_argument
@workspace_option
@json_option
def detach(run: str, workspace: str, *, as_json: bool) -> Exit:
    """Hand RUN over to the node, so that it continues without its terminal.

    The process that runs it shuts down cleanly, and the node resumes it at the exact step. A call of an agent that is in progress
    is continued in its conversation. A run that is not active is handed over, too.
    """
    found = locate(run, workspace)
    check_own(found)
    state = read_state(found)
    assert state.run is not None
    if state.ended is not None and state.ended.status in TERMINAL:
        raise ResumeRefusedError(found.id, f"it is {state.ended.status}")
    standing = user_depot().find(found.id)
    if standing is not None and standing.state == "owned" and found.is_active():
        write_note(f"{found.id} runs detached already; watch it: bartack attach {found.id}")
        return Exit.OK
    if found.is_for_nodes() and found.where is not None:
        return _leave_to_nodes(found, found.where, as_json=as_json)
    _interrupt(found)
    place = found.workspace(state, None)
    config = load_config(Path(place), kept_sets(found.path))
    return queue_run(found, config, DetachOptions(detach=True), as_json=as_json)


def _leave_to_nodes(run: RunDir, where: Elsewhere, *, as_json: bool) -> Exit:
    """Give a run back to the nodes of its database, unless one of them runs it."""
    from bartack.cli.runs._fleet import follow_queued, queue_for_nodes  # noqa: PLC0415 - only runs in a database need it

    node = run.node_name()
    if node:
        write_note(f"{run.id} runs on node {printable(node)} already; watch it: bartack attach {run.id}")
        return Exit.OK
    _interrupt(run)
    queue_for_nodes(run, where, Queueing())
    return follow_queued(run, "json" if as_json else "plain", detach=True)


def _interrupt(run: RunDir) -> None:
    """Shut the hub of a run down cleanly, and wait until it is gone."""
    if not run.is_active():
        return
    try:
        with HubClient(run) as hub:
            hub.ask("interrupt")
    except RunNotActiveError:
        return
    limit = time.monotonic() + STOP_S
    with run.watch() as watch:
        while run.is_active() and time.monotonic() < limit:
            watch.wait(0.05)
    if status_of(run, read_state(run)) == "running":
        raise ResumeRefusedError(run.id, "its process does not stop")
