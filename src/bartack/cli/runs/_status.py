"""``bartack status``: the runs of a workspace, or the state of one run."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from bartack.cli.app._options import json_option, write_json
from bartack.cli.app._paint import Board
from bartack.cli.app._terminal import Screen, human_time, printable, printable_lines
from bartack.cli.runs._failure import write_failure
from bartack.cli.runs._pipeline_options import PIPELINE, PIPELINE_FILE
from bartack.cli.runs._runs import (
    QuestionFacts,
    ago,
    complete_run,
    iso,
    locate,
    open_questions,
    paint_status,
    short_path,
    workspace_option,
)
from bartack.core import SystemClock, open_watch
from bartack.runtime.protocol.frames import ErrorData
from bartack.runtime.rundir.find import ENDED, RunSummary, list_runs, read_state, status_of, summarise
from bartack.runtime.rundir.layout import RunDir
from bartack.runtime.rundir.presence import is_active, is_stopped
from bartack.runtime.state.run_state import State
from bartack.runtime.state.timeline import name_deadlock
from bartack.runtime.state.worker_state import OpenStep, WorkerState

if TYPE_CHECKING:
    from bartack.pipeline import Progress

WATCH_S = 1.0
"""A watched view is redrawn at least this often, because the times in it change."""


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
    reserved_usd: float
    workers: list[WorkerFacts]
    questions: list[QuestionFacts]
    mailboxes: dict[str, MailboxFacts]
    failure: ErrorData | None
    deadlock: list[str]
    """What each worker waits for, if all workers wait for each other."""
    pipeline: Progress | None = None
    """The progress of a run of the pipeline."""


@click.command(short_help="List the runs, or show the state of one.")
@click.argument("run", required=False, shell_complete=complete_run)
@click.option("--watch", is_flag=True, help="Redraw whenever the run changes, until it ends or Ctrl-C.")
@workspace_option
@json_option
def status(run: str | None, workspace: str, *, watch: bool, as_json: bool) -> None:
    """List the runs of the workspace, or show the state of one run.

    RUN is an id, a unique prefix of one, 'latest', or the directory of a run. A run that is not active and has not ended is
    interrupted; 'bartack resume' resumes it.
    """
    if run is None and watch:
        run = "latest"
    if run is None:
        _list(Path(workspace), as_json=as_json)
    elif watch:
        _watch(locate(run, workspace), as_json=as_json)
    elif as_json:
        write_json(msgspec.to_builtins(facts_of(locate(run, workspace))))
    else:
        show_run(Screen(sys.stdout), locate(run, workspace))


def _list(workspace: Path, *, as_json: bool) -> None:
    found = [summarise(run) for run in list_runs(workspace)]
    if as_json:
        write_json(msgspec.to_builtins(found))
        return
    screen = Screen(sys.stdout)
    if not found:
        screen.line("There are no runs here. 'bartack run FILE' or 'bartack run --goal TEXT' starts one.")
        return
    paid = any(summary.spent_usd for summary in found)
    names = ["run", "status", "program", "what", *(["usd"] if paid else []), "changed"]
    rows = [_row(screen, summary, paid=paid) for summary in found]
    screen.listing([(*(screen.paint(name, "dim") for name in names), ""), *rows], indent=0)


def _row(screen: Screen, summary: RunSummary, *, paid: bool) -> tuple[str, ...]:
    """One run in the list, with its goal if it is a run of the pipeline, else with its worker."""
    cost = f"{summary.spent_usd:.2f}" if summary.spent_usd else ""
    return (
        summary.run,
        paint_status(screen, summary.status),
        printable(program_name(summary.program)),
        printable(summary.goal or summary.worker),
        *([cost] if paid else []),
        ago(summary.updated_at),
        _remark(summary),
    )


def program_name(program: str) -> str:
    """The short name of a program."""
    name = Path(program).name
    return "pipeline" if name == PIPELINE_FILE else name


def _remark(summary: RunSummary) -> str:
    if summary.questions and summary.status not in ENDED - {"interrupted"}:
        return f"waits for an answer: {', '.join(summary.questions)}"
    if summary.deadlock:
        return name_deadlock(summary.deadlock)
    if not summary.error:
        return ""
    first = summary.error.splitlines()[0]
    # The status shows already that it was cancelled.
    cancelled = summary.status in {"aborted", "cancelled"}
    return printable(first.removeprefix("cancelled: ") if cancelled else first)


# One run.


def facts_of(run: RunDir, state: State | None = None) -> RunFacts:
    """Return all facts about a run; ``state`` is the state from its journal, if that was read already."""
    state = state or read_state(run)
    assert state.run is not None
    active = is_active(run)
    summary = summarise(run) if active else None
    return RunFacts(
        run=run.id,
        dir=str(run.path),
        status=status_of(run, state, active=active),
        pid=0 if summary is None else summary.pid,
        program=state.run.program,
        worker=state.run.name,
        project=state.run.project,
        workspace=state.run.workspace,
        created_at=iso(state.created_at),
        updated_at=iso(state.last_at),
        forked_from=state.run.forked_from,
        spent_usd=state.spent_usd,
        reserved_usd=state.reserved_usd,
        workers=[_worker(worker, active=active) for worker in state.workers.values()],
        questions=open_questions(run, state),
        mailboxes=_mailboxes(state),
        failure=None if state.failure is None else state.failure.error,
        deadlock=[] if summary is None else summary.deadlock,
        pipeline=_progress(run, state),
    )


def _progress(run: RunDir, state: State) -> Progress | None:
    if state.run is None or state.run.worker != PIPELINE:
        return None
    from bartack.pipeline import read_progress  # noqa: PLC0415 - only runs of the pipeline need it

    return read_progress(run.path)


def _worker(worker: WorkerState, *, active: bool) -> WorkerFacts:
    status = worker.status if worker.ended else "running" if active else "interrupted"
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


def show_run(screen: Screen, run: RunDir) -> None:
    """Write the state of a run for people."""
    state = read_state(run)
    facts = facts_of(run, state)
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
    _write_next(screen, facts)


def _write_next(screen: Screen, facts: RunFacts) -> None:
    """Write the command to type next, if one is needed."""
    resume = f"bartack resume {facts.run}"
    if facts.status == "waiting" and facts.questions:
        then = "" if facts.pid else f"  # then: {resume}"
        screen.line()
        screen.line(f"bartack answer {facts.run} {facts.questions[0].id} VALUE{then}")
    elif facts.status in {"failed", "interrupted"} or (facts.status == "waiting" and not facts.pid):
        screen.line()
        screen.line(resume)


def _write_head(screen: Screen, facts: RunFacts) -> None:
    pid = f" in process {facts.pid}" if facts.pid else ""
    if is_stopped(facts.pid):
        pid += f", which is suspended; continue it with 'fg' in its terminal or 'kill -CONT {facts.pid}'"
    rows = [
        ("run", facts.run),
        ("status", paint_status(screen, facts.status) + pid),
        ("program", printable(_program(facts))),
        *([("project", printable(facts.project))] if facts.project else []),
        ("workspace", printable(facts.workspace)),
        ("began", f"{facts.created_at}, {ago(facts.created_at)}"),
        ("changed", f"{facts.updated_at}, {ago(facts.updated_at)}"),
    ]
    if facts.forked_from:
        rows.append(("forked", f"from {facts.forked_from}"))
    if facts.spent_usd or facts.reserved_usd:
        rows.append(("money", f"{facts.spent_usd:.2f} USD spent, {facts.reserved_usd:.2f} USD reserved"))
    screen.table([(screen.paint(name, "dim"), text) for name, text in rows], indent=0)


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
    screen.line(f"    bartack mailbox send {run_id} MAILBOX VALUE")


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
    if result.moved:
        screen.line(f"  your branch has the work of all tasks: {result.commit[:12]}")
        return
    first = "commit your own changes first, then: " if result.dirty else ""
    screen.line(f"  the work is on {printable(result.branch)}; merge it: {first}{printable(result.command)}")


def _doing(worker: WorkerFacts) -> str:
    if worker.status in {"running", "interrupted"} and worker.open:
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
        screen.line(f"  {question.id}  {printable_lines(question.question, 6)} ({printable(kind)})")
        screen.line(f"      bartack answer {facts.run} {question.id} VALUE")


def _mailbox_text(box: MailboxFacts) -> str:
    counts = [(box.queued, "queued"), (box.scheduled, "scheduled"), (box.held, "held")]
    return ", ".join(f"{count} {name}" for count, name in counts if count)


# Watching.


def _watch(run: RunDir, *, as_json: bool) -> None:
    board = Board(sys.stdout)
    before: object = None
    with open_watch(str(run.path)) as watch:
        while True:
            facts = facts_of(run)
            if as_json:
                if facts != before:
                    write_json(msgspec.to_builtins(facts))
                before = facts
            else:
                _draw(board, run)
            sys.stdout.flush()
            if facts.status in ENDED or (facts.status == "waiting" and not facts.pid):
                return
            watch.wait(WATCH_S)


def _draw(board: Board, run: RunDir) -> None:
    board.draw(lambda screen: show_run(screen, run))
