"""``bartack cancel``, ``fail`` and ``fork``: what is done to a run from outside."""

from __future__ import annotations

import sys

import click

from bartack.cli.app._options import json_option, write_json
from bartack.cli.app._terminal import say
from bartack.cli.runs._runs import locate, run_argument, workspace_option
from bartack.runtime.client.manage import cancel_run, delete_run, fail_run, fork_run
from bartack.runtime.program.update import update_program
from bartack.runtime.rundir.find import read_state, status_of
from bartack.runtime.rundir.layout import RunDir


@click.command(short_help="End a run for good.")
@run_argument
@click.option("--reason", default="", metavar="TEXT", help="Why; it is kept with the run.")
@workspace_option
@json_option
def cancel(run: str, reason: str, workspace: str, *, as_json: bool) -> None:
    """End a run in order and for good: it cannot be resumed.

    Workers, commands and agents are ended first. A run that nobody runs is cancelled as well.
    """
    found = locate(run, workspace)
    cancel_run(found, reason)
    _tell(found, as_json=as_json)


@click.command(short_help="Fail a run on purpose; it can be resumed.")
@run_argument
@click.argument("reason")
@workspace_option
@json_option
def fail(run: str, reason: str, workspace: str, *, as_json: bool) -> None:
    """Fail a run on purpose: everybody in it learns REASON and is ended. It can be resumed.

    A run that nobody runs is failed as well.
    """
    found = locate(run, workspace)
    fail_run(found, reason)
    _tell(found, as_json=as_json)


@click.command(short_help="Make a run from the first part of another one.")
@run_argument
@click.option("--at", required=True, metavar="STEP", help="The last step that the fork has in common.")
@click.option("--update", is_flag=True, help="With the source as it is now, if it fits what was done.")
@workspace_option
@json_option
def fork(run: str, at: str, workspace: str, *, update: bool, as_json: bool) -> None:
    """Make a run that begins with what RUN did, up to and with the outcome of STEP. RUN is not changed.

    STEP is a worker's path, a colon and a number (main/3.1:analyst:2), or a number alone: a step of the first worker. The
    program goes back to that step; files do not, neither in the workspace nor those of the run.
    """
    found = locate(run, workspace)
    made = fork_run(found, at)
    if update:
        _update(made)
    if as_json:
        write_json({"run": made.id, "forked_from": found.id, "dir": str(made.path)})
        return
    sys.stdout.write(f"{made.id}\n")
    say(f"forked from {found.id} behind step {at}; files are as they are now, they were not set back")
    say(f"start it with: bartack resume {made.id}")


def _update(run: RunDir) -> None:
    try:
        update_program(run)
    except BaseException:
        delete_run(run)
        raise


def _tell(run: RunDir, *, as_json: bool) -> None:
    state = read_state(run)
    status = status_of(run, state)
    if as_json:
        write_json({"run": run.id, "status": status})
    elif status in {"running", "waiting"}:
        sys.stdout.write(f"{run.id} is being stopped\n")
    else:
        sys.stdout.write(f"{run.id} is {status}\n")
