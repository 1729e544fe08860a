"""``bartack cancel``, ``fail`` and ``fork``: commands that change a run from outside."""

from __future__ import annotations

import sys

import click

from bartack.cli.app._database import shows_database
from bartack.cli.app._options import json_option, with_on, write_json
from bartack.cli.app._runs import locate, run_argument, workspace_option
from bartack.cli.app._terminal import write_note
from bartack.runtime.client.manage import cancel_run, count_open_prompts, delete_run, fail_run, fork_run
from bartack.runtime.program.update import update_program
from bartack.runtime.rundir.find import read_state, status_of
from bartack.runtime.rundir.layout import RunDir


@click.command(short_help="Cancel a run for good.")
@run_argument
@click.option("--reason", default="", metavar="TEXT", help="Record why the run is cancelled.")
@shows_database
@workspace_option
@json_option
def cancel(run: str, reason: str, workspace: str, *, as_json: bool) -> None:
    """Cancel a run for good: it cannot be resumed.

    Workers, commands and agents are stopped first. A run that is not active can be cancelled, too.
    """
    found = locate(run, workspace)
    cancel_run(found, reason)
    _write_status(found, as_json=as_json)


@click.command(short_help="Fail a run; it can be resumed.")
@run_argument
@click.argument("reason")
@shows_database
@workspace_option
@json_option
def fail(run: str, reason: str, workspace: str, *, as_json: bool) -> None:
    """Fail a run: all its workers are notified of REASON and stopped. The run can be resumed.

    A run that is not active can be failed, too.
    """
    found = locate(run, workspace)
    fail_run(found, reason)
    _write_status(found, as_json=as_json)


@click.command(short_help="Create a run from the first part of another.")
@run_argument
@click.option("--at", required=True, metavar="STEP", help="Keep the steps up to this one.")
@click.option("--update", is_flag=True, help="Use the current source, if it matches the recorded steps.")
@shows_database
@workspace_option
@json_option
def fork(run: str, at: str, workspace: str, *, update: bool, as_json: bool) -> None:
    """Create a run that begins with the recorded steps of RUN, up to and including STEP. RUN is not changed.

    STEP is a worker's path, a colon and a number (main/3.1:analyst:2). A number alone is a step of the first worker. The program
    continues after that step. Files are not rolled back, neither in the workspace nor in the directory of the run; but a run of
    nodes that keeps copies of its workspace is forked with its files as of that step. A prompt that had no reply at that step is
    asked again from the beginning; finished ones are not.
    """
    found = locate(run, workspace)
    made = fork_run(found, at)
    if update:
        _update(made)
    state = read_state(made)
    asked_again = count_open_prompts(state)
    if as_json:
        facts = {"run": made.id, "forked_from": found.id, "dir": str(made.path), "asked_again": asked_again}
        write_json(facts)
        return
    sys.stdout.write(f"{made.id}\n")
    files = "its files are those of that step" if state.copies.latest else "files were not rolled back"
    write_note(f"forked from {found.id} after step {at}; {files}")
    if asked_again:
        what = "1 prompt had" if asked_again == 1 else f"{asked_again} prompts had"
        write_note(f"{what} no reply yet and will be asked again from the beginning")
    write_note(f"start it with: {with_on(f'bartack resume {made.id}')}")


def _update(run: RunDir) -> None:
    try:
        update_program(run)
    except BaseException:
        delete_run(run)
        raise


def _write_status(run: RunDir, *, as_json: bool) -> None:
    state = read_state(run)
    status = status_of(run, state)
    if as_json:
        write_json({"run": run.id, "status": status})
    elif status in {"running", "waiting"}:
        sys.stdout.write(f"{run.id} is being stopped\n")
    else:
        sys.stdout.write(f"{run.id} is {status}\n")
