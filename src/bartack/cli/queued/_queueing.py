"""Queueing a run for the node: from ``bartack run --detach`` and ``resume --detach``, and for the commands of the queue.

Runs are queued again here, too: one that rests and has its answer now, and those of ``bartack resume --all``.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from bartack.agents.program.adapter import ACCOUNTS
from bartack.cli.app._exit import Exit
from bartack.cli.app._options import write_json
from bartack.cli.app._pipeline_options import PIPELINE
from bartack.cli.app._terminal import Screen, human_time, listed, local_moment, printable, write_note
from bartack.cli.queued._options import DetachOptions
from bartack.config.load import Config, kept_sets, load_config
from bartack.core.clock import SystemClock
from bartack.depot import FileDepot, Standing, WorkspaceUse, user_depot
from bartack.errors import BartackError
from bartack.node import Submission, enqueue, ensure_node
from bartack.runtime.rundir.find import read_state, summarise
from bartack.runtime.rundir.layout import RunDir
from bartack.runtime.rundir.origin import check_own

START_S: Final = 15.0
"""How long to wait for the node to take a run; then the command says that it is queued."""
SETTLE_S: Final = 15.0
"""How long to wait for the node to notice that the process of a run has ended."""


def queue_run(run: RunDir, config: Config, options: DetachOptions, *, as_json: bool) -> Exit:
    """Queue a run for the node, start the node if there is none, and report where the run is.

    Raises:
        NodeError: The queue does not take it; the run was created and can be resumed.
        ForeignRunError: It came from elsewhere, and is not trusted.
    """
    check_own(run)
    depot = user_depot()
    known = depot.find(run.id) if options.start_key else None
    queued = Submission(known, ()) if known is not None else _enqueue(depot, run, config, options)
    standing = queued.standing
    if not options.schedule:  # otherwise the node, or a command that starts one, has called this
        ensure_node(depot)
        standing = _follow(depot, standing)
    if as_json:
        write_json({"run": run.id, "dir": str(run.path), "state": standing.state, "reason": standing.reason})
        return Exit.OK if standing.state != "held" else Exit.FAILED
    _report(run, standing)
    note_left_out(queued.left_out, config, "run")
    return Exit.OK if standing.state != "held" else Exit.FAILED


def _enqueue(depot: FileDepot, run: RunDir, config: Config, options: DetachOptions) -> Submission:
    of_settings = config.node.retries if config.node.on_failure == "retry" else 0
    retries = of_settings if options.retry is None else options.retry
    return enqueue(
        depot,
        run,
        os.environ,
        config.redaction.rule,
        priority=options.priority or 0,
        after=[locate_queued(name, depot) for name in options.after],
        on_failure="retry" if retries else "stop",
        retries=retries,
        schedule=options.schedule,
        use=_use_of(run),
    )


def _use_of(run: RunDir) -> WorkspaceUse:
    """How a run uses its workspace: only runs of the pipeline cannot work there side by side."""
    started = read_state(run).run
    if started is None or started.worker != PIPELINE:
        return "free"
    from bartack.pipeline.lock import workspace_use  # noqa: PLC0415 - other runs are queued faster without it

    return workspace_use(run.path)


def note_left_out(left_out: Sequence[str], config: Config, kept_with: str) -> None:
    """Name the secret variables that agents may need and that are not kept with a run or a schedule."""
    missing = [name for name in left_out if name in ACCOUNTS] if config.agents.named else []
    if missing:
        names = listed(printable(name) for name in missing)
        write_note(
            f"{names} is secret and not kept with the {kept_with}: a node that is started elsewhere does not have it"
        )


def locate_queued(name: str, depot: FileDepot) -> str:
    """The run of the queue that a name, or a unique beginning of one, stands for; the name itself if there is none."""
    ids = [one.job.run for one in depot.standings()]
    found = [run for run in ids if run == name] or [
        run for run in ids if run.startswith((name, f"run-{name}"))
    ]
    return found[0] if len(found) == 1 else name


def state_of(standing: Standing, *, has_node: bool) -> str:
    """The state of a run in the queue, for lists.

    Without a node, no process keeps the queue up to date: a run whose hub was killed, too, is not running.

    Args:
        standing: The run.
        has_node: Whether a node is running.
    """
    if standing.state != "owned":
        return standing.state
    if has_node:
        return "running"
    summary = summarise(RunDir(standing.job.path))
    return "running" if summary.pid else summary.status


def note_no_node(screen: Screen, standings: Iterable[Standing]) -> None:
    """Add a last line to a list if runs of it need a node and there is none."""
    needed = any(one.state in {"owned", "queued"} or one.wakes for one in standings)
    if needed and user_depot().seated() is None:
        screen.line("No node is running; start it with: bartack node start")


def describe_place(standing: Standing) -> list[str]:
    """Why a run is where it is in the queue, and what it waits for there, in words."""
    words: list[str] = []
    left_s = (standing.due_us - SystemClock().now_us()) / 1e6
    if standing.state == "resting" and standing.due_us:
        words.append(f"rests until {local_moment(standing.due_us)}")
    if standing.state == "queued" and left_s > 0:
        words.append(f"in {human_time(left_s)}")
    if standing.state == "queued" and standing.job.after:
        words.append(f"after {', '.join(standing.job.after)}")
    if standing.job.schedule:
        words.append(f"schedule {printable(standing.job.schedule)}")
    if standing.job.priority and standing.state != "over":
        words.append(f"priority {standing.job.priority}")
    return [*words, printable(standing.reason)] if standing.reason else words


def _follow(depot: FileDepot, standing: Standing) -> Standing:
    """Wait a moment until the node has taken the run, unless it has to wait for something."""
    limit = time.monotonic() + START_S
    run = standing.job.run
    with depot.watch() as watch:
        while (found := depot.find(run)) is not None and found.state == "queued" and time.monotonic() < limit:
            if _is_blocked(depot, found):
                break
            watch.wait(0.05)
        # The hub is started after the run is claimed.
        while (found := depot.find(run)) is not None and found.state == "owned" and time.monotonic() < limit:
            if RunDir(found.job.path).is_active():
                break
            watch.wait(0.02)
    return found or standing


def _is_blocked(depot: FileDepot, standing: Standing) -> bool:
    """Whether it waits for another run, its workspace or a time, or for a free slot."""
    node = depot.seated()
    running = sum(one.state == "owned" for one in depot.standings())
    return bool(standing.job.after or standing.reason) or (node is not None and running >= node.slots)


def _report(run: RunDir, standing: Standing) -> None:
    match standing.state:
        case "owned":
            write_note(f"{run.id} runs detached")
            write_note(f"  watch it: bartack attach {run.id}")
        case "over":
            write_note(f"{run.id} {standing.outcome}; bartack show {run.id}")
        case "queued":
            why = f": {printable(standing.reason)}" if standing.reason else ""
            write_note(f"{run.id} is queued{why}")
            write_note("  the queue: bartack queue")
        case state:
            write_note(f"{run.id} is {state}: {printable(standing.reason)}")


# Runs that are queued again.


def requeue_resting(run: RunDir) -> bool:
    """Queue a run again if it rests in the queue, and start the node; whether the node is going to resume it.

    What the queue or the node refuses is reported only: what a person has answered is stored in any case.
    """
    depot = user_depot()
    if not _is_here(depot.find(run.id), run):
        return False
    try:
        standing = _settled(depot, run)
        if standing is not None and _was_woken(standing, run):
            return True
        if standing is None or standing.state not in {"resting", "queued"}:
            return False
        if standing.state == "resting":
            submit_again(depot, standing)
        wake_node(depot)
    except BartackError as error:
        write_note(f"{run.id} is not resumed: {printable(error.message)}")
        return False
    return True


def _was_woken(standing: Standing, run: RunDir) -> bool:
    """Whether the node has found by itself what was left for the run."""
    return standing.outcome == "completed" or (standing.state == "owned" and run.is_active())


def _is_here(standing: Standing | None, run: RunDir) -> bool:
    """Whether the queue means this run, and not a copy with the same id."""
    return standing is not None and os.path.realpath(standing.job.path) == os.path.realpath(run.path)


def _settled(depot: FileDepot, run: RunDir) -> Standing | None:
    """The place of a run that no process runs. A node that still owns it is about to see that its process has ended."""
    limit = time.monotonic() + SETTLE_S
    with depot.watch() as watch:
        while (found := depot.find(run.id)) is not None and found.state == "owned":
            if run.is_active() or time.monotonic() > limit:
                break
            ensure_node(depot)  # a new node decides about the runs of one that was killed
            watch.wait(0.05)
    return found


def submit_again(depot: FileDepot, standing: Standing) -> Standing:
    """Queue a run that the queue knows, with the variables that are kept with it. It has begun, so it follows no other run."""
    return depot.submit(msgspec.structs.replace(standing.job, after=()), SystemClock().now_us())


def submit_run(depot: FileDepot, run: RunDir, standing: Standing | None) -> None:
    """Queue a run of any workspace.

    Raises:
        BartackError: It cannot be read, or the queue does not take it.
    """
    if standing is not None:
        submit_again(depot, standing)
        return
    place = run.workspace(read_state(run))
    config = load_config(Path(place), kept_sets(run.path))
    _enqueue(depot, run, config, DetachOptions(detach=True))


def wake_node(depot: FileDepot) -> None:
    """Start the node if there is none. If that fails, runs stay queued for the next node, and the reason is reported."""
    try:
        ensure_node(depot)
    except BartackError as error:
        write_note(f"the node is not started: {printable(error.message)}; start it with: bartack node start")
