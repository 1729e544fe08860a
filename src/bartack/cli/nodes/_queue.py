"""``bartack queue``: the runs that the node has to take care of."""

from __future__ import annotations

import sys
from pathlib import Path

import click
import msgspec

from bartack.cli.app._exit import Exit
from bartack.cli.app._options import json_option, write_json
from bartack.cli.app._runs import locate, program_name, short_path, workspace_option
from bartack.cli.app._terminal import Screen, printable, write_note
from bartack.cli.queued._options import DetachOptions
from bartack.cli.queued._queueing import describe_place, locate_queued, note_no_node, queue_run, state_of
from bartack.config.load import kept_sets, load_config
from bartack.core.clock import SystemClock
from bartack.depot import FileDepot, Standing, user_depot
from bartack.errors import RunNotQueuedError
from bartack.runtime.rundir.find import read_state, summarise
from bartack.runtime.rundir.layout import RunDir


class _Queue(click.Group):
    """A group that lists the queue when it is called without a command."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """See ``click.Command.parse_args``."""
        known = args and (args[0] in self.commands or args[0] in {"-h", "--help"})
        return super().parse_args(ctx, args if known else ["list", *args])


@click.group(cls=_Queue, short_help="List and change what the node has to run.")
def queue() -> None:
    """List and change what the node has to run: without a command, the list."""


@queue.command("list", short_help="List the runs in the queue.")
@click.option("--all", "everything", is_flag=True, help="Also runs that are over.")
@json_option
def list_(*, everything: bool, as_json: bool) -> None:
    """List the runs in the queue, of all workspaces: running, queued, resting and held.

    A run rests if it needs no process: it waits for an answer or a time, or a person has stopped it. A run is held if the node has
    given it up, for the reason in the list. A run is interrupted if neither it nor a node has a process; the next node resumes it.
    """
    depot = user_depot()
    found = [one for one in depot.standings() if everything or one.state != "over"]
    has_node = depot.seated() is not None
    states = [state_of(one, has_node=has_node) for one in found]
    if as_json:
        write_json([_facts(one, state) for one, state in zip(found, states, strict=True)])
        return
    screen = Screen(sys.stdout)
    if not found:
        screen.line("The queue is empty. 'bartack run --detach' adds a run.")
        return
    names = ("run", "state", "program", "workspace", "")
    rows = [_row(screen, one, state) for one, state in zip(found, states, strict=True)]
    screen.listing([(*(screen.paint(name, "dim") for name in names),), *rows], indent=0)
    note_no_node(screen, found)


def _facts(one: Standing, state: str) -> dict[str, object]:
    job = one.job
    return {
        "run": job.run,
        "dir": job.path,
        "workspace": job.workspace,
        "program": program_name(job.title),
        "state": state,
        "priority": job.priority,
        "after": list(job.after),
        "retries": job.retries,
        "schedule": job.schedule,
        **msgspec.to_builtins(
            {
                name: getattr(one, name)
                for name in (
                    "submitted_us",
                    "changed_us",
                    "due_us",
                    "strikes",
                    "failures",
                    "outcome",
                    "reason",
                )
            }
        ),
    }


def _row(screen: Screen, one: Standing, state: str) -> tuple[str, ...]:
    state = one.outcome if one.state == "over" else state
    style = {
        "running": "cyan",
        "held": "red",
        "interrupted": "yellow",
        "resting": "yellow",
        "completed": "green",
        "failed": "red",
    }.get(state)
    painted = screen.paint(state, style) if style else state  # type: ignore[arg-type]  # - the styles of a screen
    return (
        one.job.run,
        painted,
        printable(program_name(one.job.title)),
        printable(short_path(one.job.workspace)),
        _remark(one),
    )


def _remark(one: Standing) -> str:
    """What a run waits for, or why it is where it is."""
    words: list[str] = []
    if one.state == "owned":
        questions = summarise(RunDir(one.job.path)).questions
        words += [f"waits for an answer: {', '.join(questions)}"] if questions else []
    return "; ".join([*words, *describe_place(one)])


@queue.command(short_help="Queue a run that is not active.")
@click.argument("run", metavar="RUN")
@click.option("--priority", type=int, metavar="N", help="Runs with a higher number are taken first.")
@workspace_option
@json_option
def add(run: str, priority: int | None, workspace: str, *, as_json: bool) -> Exit:
    """Queue a run that is not active: the node resumes it. A run that is held or rests is queued again."""
    known = user_depot().find(locate_queued(run, user_depot()))
    found = RunDir(known.job.path) if known is not None else locate(run, workspace)
    place = found.workspace(read_state(found), None)
    config = load_config(Path(place), kept_sets(found.path))
    return queue_run(found, config, DetachOptions(detach=True, priority=priority), as_json=as_json)


@queue.command(short_help="Take a run out of the queue.")
@click.argument("run", metavar="RUN")
def remove(run: str) -> None:
    """Take a run out of the queue, unless it is running. The run itself stays; 'bartack resume' resumes it."""
    depot = user_depot()
    gone = depot.withdraw(locate_queued(run, depot))
    write_note(f"{gone.job.run} is not in the queue any more")


@queue.command(short_help="Change the priority of a run.")
@click.argument("run", metavar="RUN")
@click.argument("number", type=int)
def priority(run: str, number: int) -> None:
    """Give a run another priority: between -100 and 100; 0 is usual."""
    depot = user_depot()
    standing = _known(depot, run)
    depot.submit(msgspec.structs.replace(standing.job, priority=number), SystemClock().now_us())
    write_note(f"{standing.job.run} has priority {number}")


def _known(depot: FileDepot, run: str) -> Standing:
    standing = depot.find(locate_queued(run, depot))
    if standing is None or standing.state not in {"queued", "owned"}:
        raise RunNotQueuedError(run, "it is not in the queue")
    return standing
