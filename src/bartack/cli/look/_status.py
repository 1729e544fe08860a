"""``bartack status``: the runs of a workspace, or the state of one run."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from bartack.cli.app._database import (
    branches_of,
    describe_wait,
    reason_in_queue,
    shows_database,
    state_in_queue,
    status_in_queue,
    wait_of,
    waits_of,
)
from bartack.cli.app._options import TOTAL, json_option, with_on, write_json
from bartack.cli.app._runs import (
    QuestionFacts,
    ago,
    complete_run,
    cost_of,
    describe_rest,
    iso,
    locate,
    may_be_queued,
    open_questions,
    paint_status,
    program_name,
    remark_of,
    short_path,
    workspace_option,
)
from bartack.cli.app._terminal import (
    Screen,
    human_time,
    printable,
    printable_lines,
    usd_text,
    write_note,
)
from bartack.cli.look._failure import write_decision, write_failure
from bartack.cli.look._reading import FactsBeside, read_progress_of
from bartack.core.clock import SystemClock
from bartack.depot import user_depot
from bartack.errors import BartackError, UsageError
from bartack.journal import Entry
from bartack.runtime.protocol.frames import ErrorData
from bartack.runtime.rundir.find import (
    ENDED,
    RunSummary,
    is_readable,
    list_runs,
    status_of,
    summarise,
)
from bartack.runtime.rundir.follower import RunFollower
from bartack.runtime.rundir.layout import RunDir
from bartack.runtime.rundir.presence import is_stopped
from bartack.runtime.state.run_state import State
from bartack.runtime.state.status import worker_status
from bartack.runtime.state.timeline import name_deadlock
from bartack.runtime.state.worker_state import OpenStep, WorkerState

if TYPE_CHECKING:
    from bartack.depot.upkeep import Wait
    from bartack.pipeline.records.task_state import Progress

WATCH_S = 1.0
"""How often a run that is watched is looked at, whether or not its journal changes."""


class OpenFacts(msgspec.Struct):
    """An open step."""

    step: str
    kind: str
    about: str
    since: int
    attempt: int


class WorkerFacts(msgspec.Struct):
    """A worker and what it is doing."""

    path: str
    worker: str
    status: str
    steps: int
    open: list[OpenFacts]
    error: str = ""


class MailboxFacts(msgspec.Struct):
    """The counts of a mailbox."""

    queued: int
    scheduled: int
    held: int
    sent: int
    closed: bool


class RunFacts(msgspec.Struct):
    """The state of one run."""

    run: str
    dir: str
    status: str
    pid: int
    program: str
    worker: str
    project: str
    workspace: str
    created_at: str
    updated_at: str
    forked_from: str
    spent_usd: float
    usd_estimated: bool
    """What was spent was computed from a table of prices, or in part."""
    reserved_usd: float
    workers: list[WorkerFacts]
    questions: list[QuestionFacts]
    mailboxes: dict[str, MailboxFacts]
    failure: ErrorData | None
    deadlock: list[str]
    """What each worker waits for, if all workers wait for each other."""
    rests_until: str = ""
    """When a run that no process runs has something to do again by itself."""
    rests_for: str = ""
    pipeline: Progress | None = None
    """The progress of a run of the pipeline."""
    queue: str = ""
    """What a run that nodes of a database are to run waits for."""
    queue_state: str = ""
    """Its state in their queue, while no process runs it: queued, owned, resting, held or over."""
    branches: str = ""
    """What became of the branches that nodes push at its end."""
    node: str = ""
    """The node of a database that runs it."""
    for_nodes: bool = False
    """Nodes of a database continue it by themselves."""


@click.command(short_help="List the runs, or show the state of one.")
@click.argument("run", required=False, shell_complete=complete_run)
@click.option(
    "--watch", is_flag=True, help="Show the run live, like 'bartack watch', until it ends or Ctrl-C."
)
@click.option("--all", "everywhere", is_flag=True, help="List the open and recent runs of all workspaces.")
@click.option(
    "--since", metavar="AGE", help="With --all: include runs that ended within this time (default: 24h)."
)
@click.option(
    "--limit",
    type=click.IntRange(1),
    metavar="N",
    is_eager=True,
    help="List the newest N runs; with --on, 1000 and older ones with an open question if it is not given.",
)
@shows_database
@workspace_option
@json_option
def status(
    run: str | None,
    since: str | None,
    limit: int | None,
    workspace: str,
    *,
    everywhere: bool,
    watch: bool,
    as_json: bool,
) -> None:
    """List the runs of the workspace and show the state of the newest one, or show the state of one run.

    RUN is an id, a unique prefix of one, 'latest', or the directory of a run. An id or a prefix of a run of another workspace is
    found, too. A run that is not active and has not ended is interrupted; 'bartack resume' resumes it.

    With --all the command lists the runs of all your workspaces that are active, waiting, queued, held or interrupted, or that
    ended in the last 24 hours, and what each of them waits for.
    """
    if limit is not None and (everywhere or watch or run is not None):
        raise UsageError(
            "bartack status", "--limit is for the list of runs; it goes with neither RUN nor --all"
        )
    if everywhere:
        _list_everything(run, since, workspace, watch=watch, as_json=as_json)
        return
    if since is not None:
        raise UsageError("bartack status", "--since is for the list of all workspaces: add --all")
    if run is None and watch:
        run = "latest"
    if run is None:
        _list(Path(workspace), limit, as_json=as_json)
    elif watch and as_json:
        _follow(locate(run, workspace))
    elif watch:
        _watch(run, workspace)
    else:
        _show(locate(run, workspace), as_json=as_json)


def _list_everything(
    run: str | None, since: str | None, workspace: str, *, watch: bool, as_json: bool
) -> None:
    if run is not None or watch:
        raise UsageError("bartack status", "--all lists runs; it goes with neither RUN nor --watch")
    from bartack.cli.look._status_all import SINCE, list_everything  # noqa: PLC0415 - others do not need it

    list_everything(Path(workspace), since or SINCE, as_json=as_json)


def _show(run: RunDir, *, as_json: bool) -> None:
    state, progress = read_progress_of(run)
    if as_json:
        write_json(msgspec.to_builtins(facts_of(run, state, progress)))
    else:
        show_run(Screen(sys.stdout), run, state, progress)


def _list(workspace: Path, limit: int | None, *, as_json: bool) -> None:
    everything = list_runs(workspace)
    runs = everything[:limit]
    _note_others(len(runs), len(everything), limit)
    newest = None if as_json else next((run for run in runs if is_readable(run)), None)
    state, progress, problem = _try_reading(newest)
    found = [summarise(run, state if run is newest else None) for run in runs]
    waits = waits_of(run for run, summary in zip(runs, found, strict=True) if may_be_queued(summary))
    if as_json:
        write_json([_summary_facts(summary, waits.get(summary.run)) for summary in found])
        return
    screen = Screen(sys.stdout)
    if not found:
        screen.line("There are no runs here. 'bartack run FILE' or 'bartack run --goal TEXT' starts one.")
        return
    paid = any(summary.spent_usd for summary in found)
    names = ["run", "status", "program", "what", *(["usd"] if paid else []), "changed"]
    rows = [_row(screen, summary, waits.get(summary.run), paid=paid) for summary in found]
    screen.listing([(*(screen.paint(name, "dim") for name in names), ""), *rows], indent=0)
    if newest is not None:
        screen.line()
        if state is None:
            assert problem is not None
            raise problem
        show_run(screen, newest, state, progress)


def _note_others(shown: int, here: int, limit: int | None) -> None:
    """Report that there are more runs than are listed."""
    total = max(here, click.get_current_context().meta.get(TOTAL, 0))
    if shown < total:
        which = (
            f"the newest {shown}"
            if limit is not None
            else f"the newest, and all with an open question: {shown}"
        )
        write_note(f"{which} of {total} runs; list more with --limit N")


def _try_reading(run: RunDir | None) -> tuple[State | None, Progress | None, BartackError | None]:
    """What the journal of the newest run adds up to, for its line and for what is below the list; or why it cannot be read."""
    if run is None:
        return None, None, None
    try:
        return *read_progress_of(run), None
    except BartackError as problem:
        return None, None, problem


def _summary_facts(summary: RunSummary, wait: Wait | None) -> dict[str, object]:
    facts: dict[str, object] = msgspec.to_builtins(summary)
    return (
        facts
        if wait is None
        else {**facts, "queue": describe_wait(wait), "queue_state": state_in_queue(wait)}
    )


def _row(screen: Screen, summary: RunSummary, wait: Wait | None, *, paid: bool) -> tuple[str, ...]:
    """One run in the list, with its goal if it is a run of the pipeline, else with its worker."""
    cost = cost_of(summary)
    return (
        summary.run,
        paint_status(screen, status_in_queue(summary.status, state_in_queue(wait))),
        printable(program_name(summary.program)),
        printable(summary.goal or summary.worker),
        *([cost] if paid else []),
        ago(summary.updated_at),
        printable(reason_in_queue(wait)) or remark_of(summary),
    )


# One run.


def facts_of(run: RunDir, state: State, progress: Progress | None = None) -> RunFacts:
    """Return all facts about a run.

    Args:
        run: The run.
        state: What its journal adds up to.
        progress: How far it is, if it is one of the pipeline.
    """
    assert state.run is not None
    active = run.is_active()
    summary = summarise(run, state) if active else None
    node = run.node_name() if active else ""
    wait = None if active else wait_of(run)
    return RunFacts(
        run=run.id,
        dir=str(run.path),
        status=status_of(run, state, active=active),
        pid=0 if summary is None or node else summary.pid,
        node=node,
        for_nodes=run.is_for_nodes(),
        program=state.run.program,
        worker=state.run.name,
        project=state.run.project,
        workspace=state.run.workspace,
        created_at=iso(state.created_at),
        updated_at=iso(state.last_at),
        forked_from=state.run.forked_from,
        spent_usd=state.spent_usd,
        usd_estimated=state.usd_estimated,
        reserved_usd=state.reserved_usd,
        workers=[_worker(worker, state, active=active) for worker in state.workers.values()],
        questions=open_questions(run, state),
        mailboxes=_mailboxes(state),
        failure=None if state.failure is None else state.failure.error,
        deadlock=[] if summary is None else summary.deadlock,
        rests_until=iso(state.rests_until) if state.rests_until and not active else "",
        rests_for="" if active else state.rests_for,
        pipeline=progress,
        queue=describe_wait(wait),
        queue_state=state_in_queue(wait),
        branches=branches_of(state, wait),
    )


def _worker(worker: WorkerState, state: State, *, active: bool) -> WorkerFacts:
    status = worker_status(state, worker.status, active=active)
    return WorkerFacts(
        path=worker.path,
        worker=worker.worker,
        status=status,
        steps=len(worker.history),
        open=[_opened(step) for step in worker.open.values()],
        error="" if worker.error is None else worker.error.message,
    )


def _opened(step: OpenStep) -> OpenFacts:
    return OpenFacts(f"{step.p}:{step.n}", step.step, step.about, step.at, step.attempt)


def _mailboxes(state: State) -> dict[str, MailboxFacts]:
    return {
        name: MailboxFacts(len(box), box.scheduled, box.held, box.sent, box.closed)
        for name, box in sorted(state.mailboxes.items())
    }


def show_run(screen: Screen, run: RunDir, state: State, progress: Progress | None = None) -> None:
    """Write the state of a run for people; see ``facts_of``."""
    facts = facts_of(run, state, progress)
    _write_head(screen, facts)
    if facts.pipeline is not None:
        _write_progress(screen, facts.pipeline)
    _write_workers(screen, facts)
    if facts.deadlock:
        write_deadlock(screen, facts.run, facts.deadlock)
    if facts.questions:
        _write_questions(screen, facts)
    full = {name: box for name, box in facts.mailboxes.items() if box.queued or box.scheduled or box.held}
    if full:
        screen.line()
        screen.line(screen.paint("Mailboxes", "bold"))
        screen.table([(printable(name), _mailbox_text(box)) for name, box in full.items()])
    if facts.failure is not None and facts.status == "failed":
        screen.line()
        write_failure(screen, run, state)
    _write_next(screen, facts, state)


def _write_next(screen: Screen, facts: RunFacts, state: State) -> None:
    """Write the command to type next, if one is needed."""
    resume = with_on(f"bartack resume {facts.run}")
    if facts.status == "waiting" and facts.questions:
        then = "" if facts.pid or facts.node or facts.for_nodes else f"  # then: {resume}"
        screen.line()
        first = facts.questions[0]
        screen.line(with_on(f"bartack answer {facts.run} {first.id} {first.hint}") + then)
    elif facts.queue_state in {"queued", "owned", "resting"}:
        return
    elif facts.status in {"failed", "interrupted"} or (
        facts.status == "waiting" and not (facts.pid or facts.node)
    ):
        screen.line()
        if facts.status != "failed" or not write_decision(screen, facts.run, state):
            screen.line(resume)


def _write_head(screen: Screen, facts: RunFacts) -> None:
    pid = f" in process {facts.pid}" if facts.pid else ""
    pid += f" on node {printable(facts.node)}" if facts.node else ""
    if is_stopped(facts.pid):
        pid += f", which is suspended; continue it with 'fg' in its terminal or 'kill -CONT {facts.pid}'"
    rests = f", {describe_rest(facts.rests_until, facts.rests_for)}" if facts.rests_until else ""
    rows = [
        ("run", facts.run),
        ("status", paint_status(screen, status_in_queue(facts.status, facts.queue_state)) + pid + rests),
        *([("queue", place)] if not facts.pid and (place := _describe_queued(facts)) else []),
        ("program", printable(_program(facts))),
        *([("project", printable(facts.project))] if facts.project else []),
        ("workspace", printable(facts.workspace)),
        *([("branches", printable(facts.branches))] if facts.branches else []),
        ("began", f"{facts.created_at}, {ago(facts.created_at)}"),
        ("changed", f"{facts.updated_at}, {ago(facts.updated_at)}"),
    ]
    if facts.forked_from:
        rows.append(("forked", f"from {facts.forked_from}"))
    if facts.spent_usd or facts.reserved_usd:
        spent = usd_text(facts.spent_usd, estimated=facts.usd_estimated)
        rows.append(("money", f"{spent} spent, {facts.reserved_usd:.2f} USD reserved"))
    screen.table([(screen.paint(name, "dim"), text) for name, text in rows], indent=0)


def _describe_queued(facts: RunFacts) -> str:
    """What a run waits for in the queue; empty if it is not there."""
    if facts.queue:
        return printable(facts.queue)
    standing = user_depot().find(facts.run)
    if standing is None or standing.state not in {"queued", "held"} or standing.job.path != facts.dir:
        return ""
    from bartack.cli.queued._queueing import describe_place  # noqa: PLC0415 - few runs are queued

    return "; ".join([standing.state, *describe_place(standing)])


def _program(facts: RunFacts) -> str:
    if facts.pipeline is not None:
        return "the pipeline"
    return f"{short_path(facts.program)}, worker {facts.worker}"


def _write_workers(screen: Screen, facts: RunFacts) -> None:
    screen.line()
    screen.line(screen.paint("Workers", "bold"))
    screen.listing(
        [
            (printable(worker.path), paint_status(screen, worker.status), _doing(worker))
            for worker in facts.workers
        ]
    )


def write_deadlock(screen: Screen, run_id: str, waits: Sequence[str]) -> None:
    """Report that no worker of a run can continue, and how to continue one."""
    screen.line(f"  {screen.paint(name_deadlock(waits).capitalize(), 'yellow')}; a message continues it:")
    screen.line("    " + with_on(f"bartack mailbox send {run_id} MAILBOX VALUE"))


def _write_progress(screen: Screen, progress: Progress) -> None:
    screen.line()
    screen.line(f"{screen.paint('Tasks', 'bold')}  at {progress.stage}")
    screen.listing(
        [
            (
                printable(task.id),
                paint_status(screen, task.status),
                f"{task.receipts} receipt{'' if task.receipts == 1 else 's'}",
                printable(task.title),
            )
            for task in progress.tasks
        ]
    )
    if progress.result is not None:
        write_result(screen, progress)
    if progress.agents:
        screen.line()
        screen.line(screen.paint("Agents", "bold"))
        screen.listing(
            [
                (printable(name), word.event, printable(f"{word.action} {word.task_id}"), ago(word.at))
                for name, word in progress.agents.items()
            ]
        )


def write_result(screen: Screen, progress: Progress) -> None:
    """Write which branch has the work of parallel tasks, and how to merge it."""
    result = progress.result
    if result is None:
        return
    if result.carried:
        where = "in the workspace of the run" if result.moved else f"on its branch {printable(result.branch)}"
        screen.line(f"  the work of all tasks is {where}: {result.commit[:12]}")
        return
    if result.moved:
        screen.line(f"  your branch has the work of all tasks: {result.commit[:12]}")
        return
    first = "commit your own changes first, then: " if result.dirty else ""
    screen.line(f"  the work is on {printable(result.branch)}; merge it: {first}{printable(result.command)}")


def _doing(worker: WorkerFacts) -> str:
    if worker.status in {"running", "interrupted", "aborted"} and worker.open:
        step = max(worker.open, key=lambda step: step.since)
        took = human_time((SystemClock().now_us() - step.since) / 1e6)
        doing = f"step {step.step}: {step.kind} {step.about}".rstrip()
        return printable(f"{doing}, {took}" if worker.status == "running" else doing)
    if worker.status == "failed":
        return printable(worker.error.splitlines()[0] if worker.error else "")
    return f"{worker.steps} steps" if worker.steps != 1 else "1 step"


def _write_questions(screen: Screen, facts: RunFacts) -> None:
    screen.line()
    screen.line(screen.paint("Questions", "bold"))
    for question in facts.questions:
        kind = " | ".join(question.options) if question.options else question.type
        asker = f"; asked by {question.asker}" if question.agent else ""
        screen.line(f"  {question.id}  {printable_lines(question.question, 6)} ({printable(kind + asker)})")
        if question.use:
            screen.line(f"      {printable(question.use)}")
        screen.line("      " + with_on(f"bartack answer {facts.run} {question.id} {question.hint}"))


def _mailbox_text(box: MailboxFacts) -> str:
    counts = [(box.queued, "queued"), (box.scheduled, "scheduled"), (box.held, "held")]
    return ", ".join(f"{count} {name}" for count, name in counts if count)


# Watching.


def _watch(run: str, workspace: str) -> None:
    """Show a run live: ``bartack watch``, which may use this module and not the other way round."""
    context = click.get_current_context()
    commands = context.find_root().command
    assert isinstance(commands, click.Group)
    command = commands.get_command(context, "watch")
    assert command is not None
    raise click.exceptions.Exit(
        context.invoke(command, run=run, workspace=workspace, view=None, as_json=False)
    )


def _follow(run: RunDir) -> None:
    """Write the facts of a run as JSON whenever they change."""
    beside = FactsBeside()

    def take(entry: Entry) -> None:
        beside.take(entry, follower.spans.state, follower.load)

    before: object = None
    with RunFollower(run, each=take, anew=beside.clear) as follower:
        while True:
            follower.read_all()
            follower.check()
            facts = facts_of(run, follower.spans.state, beside.progress)
            if facts != before:
                write_json(msgspec.to_builtins(facts))
                sys.stdout.flush()
            before = facts
            if facts.status in ENDED or (facts.status == "waiting" and not facts.pid):
                return
            follower.wait(WATCH_S)
