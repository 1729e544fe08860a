"""A run after an entry: head, workers and what they are doing, questions, mailboxes, money, failure."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, cast

import msgspec

from bartack.core.text import cut
from bartack.errors import BartackError, JournalError
from bartack.runtime.protocol.paths import CallPlace, parse_call
from bartack.runtime.rundir.find import ENDED, current_file
from bartack.runtime.rundir.follower import TAIL
from bartack.runtime.rundir.mirror import RunBudget, RunFile, describe_failure
from bartack.runtime.rundir.moments import iso_time
from bartack.runtime.state.spans.rows import StepSpan, WorkerSpan
from bartack.runtime.state.spans.waits import left_of_step
from bartack.runtime.state.status import worker_status
from bartack.web._hide import CUT_BYTES
from bartack.web._settings import SiteSettings
from bartack.web.following._follow import Followed
from bartack.web.following._runs import row_of
from bartack.web.following._shown import ShownRun
from bartack.web.models._model import Problem
from bartack.web.models._run import (
    Hub,
    Moment,
    MoneyNow,
    OpenStep,
    RunRow,
    TaskCount,
    WorkerRow,
    WorkerStatus,
)
from bartack.web.reading._mail import count_letters, mailbox_rows
from bartack.web.reading._questions import last_questions, read_questions
from bartack.web.reading._view import RunView, error_text, until

MOST_ENDED: Final = 200
"""Workers that have ended and are listed; the newest of them."""
MOST_OPEN: Final = 100
"""Open steps of a worker that are listed."""
LONGEST_ABOUT: Final = 300
"""Characters of what an open step is about."""
MOST_LANES: Final = 200
TOOL: Final = "tool"


def read_moment(view: RunView) -> Moment:
    """The run after the entry that is shown."""
    spans, seq = view.spans, view.seq
    failure = spans.past.failure_at(seq)
    workers, left_out = worker_rows(view)
    follower = view.followed.follower
    moment = Moment(
        run=run_row(view),
        state=follower.state,
        built=1.0,
        problem=problem_of(view.followed),
        seq=seq,
        last_seq=spans.last_seq,
        at=spans.time_of(seq),
        first_at=spans.first_us,
        live=view.is_live,
        hub=hub_now(view),
        steps=spans.columns.rows.opened_by(seq),
        workers=workers,
        ended=left_out,
        mailboxes=mailbox_rows(view),
        letters=count_letters(view),
        money=read_money_now(view),
        failure=None if failure is None else failure.error,
        pipeline=view.followed.pipeline.progress(seq),
        result=read_result(view),
    )
    # The questions have been looked at for secrets already.
    return msgspec.structs.replace(view.hider.hide(moment), questions=read_questions(view))


def read_beginning(followed: Followed, settings: SiteSettings) -> Moment:
    """What is known of a run while its journal is being read: from run.json and the end of the file."""
    workspace = str(followed.run.path.parent.parent.parent)
    try:
        file = current_file(followed.run, quickly=True)
        workspace = file.workspace or workspace
    except (BartackError, OSError):
        file = RunFile(followed.run.id, "interrupted", "", "", workspace, "", "", seq=0, hub=0)
    follower, hider = followed.follower, settings.hider(workspace)
    try:
        tail = follower.tail(TAIL)
    except JournalError:
        tail = []
    last = tail[-1].seq if tail else file.seq
    moment = Moment(
        run=msgspec.structs.replace(row_of(file, workspace), seq=last),
        state=follower.state,
        built=round(follower.built, 4),
        problem=problem_of(followed),
        seq=last,
        last_seq=last,
        at=tail[-1].at if tail else 0,
        live=True,
        hub=Hub(number=file.hub, pid=file.pid, alive=followed.is_active),
        tail=[tail[0].seq, last] if tail else [],
    )
    questions = last_questions(followed.run.id, file.questions, tail, follower.load, hider)
    return msgspec.structs.replace(hider.hide(moment), questions=questions)


def problem_of(followed: Followed) -> Problem | None:
    """Why a run cannot be shown as a whole, if it cannot."""
    problem = followed.follower.problem
    if problem is None or followed.follower.state in {"building", "current"}:
        problem = followed.trouble
    if problem is None:
        return None
    return Problem(code=problem.code, message=problem.message, help=problem.remedy)


# The run.


def run_row(view: RunView) -> RunRow:
    """The line of the run in a list, as of the entry."""
    spans, seq = view.spans, view.seq
    state, past = spans.state, spans.past
    created, failure = state.run, past.failure_at(seq)
    status = view.status
    spent, hub = past.spent_at(seq), past.hub_at(seq)
    progress = view.followed.pipeline.progress(seq)
    file = RunFile(
        run=view.run.id,
        status=status,
        worker="" if created is None else created.name,
        program="" if created is None else created.program,
        workspace="" if created is None else created.workspace,
        created_at="" if created is None else iso_time(state.created_at),
        updated_at=iso_time(spans.time_of(seq)),
        seq=seq,
        hub=hub.number,
        project="" if created is None else created.project,
        pid=_pid(view),
        resumes=max(hub.number - 1, 0),
        questions=[question.id for question in view.moment.questions],
        error="" if failure is None else describe_failure(failure).removeprefix(": "),
        budget=RunBudget(round(spent.usd, 6), round(view.moment.reserved_usd, 6)),
    )
    row = row_of(file, view.workspace)
    ended = spans.time_of(seq) if status in ENDED and status != "interrupted" else 0
    row = msgspec.structs.replace(
        row,
        created_at=state.created_at,
        changed_at=spans.time_of(seq),
        ended_at=ended,
        queue=view.run.queue if view.is_live and isinstance(view.run, ShownRun) else None,
    )
    if progress is None:
        return row
    done = sum(task.status == "done" for task in progress.tasks)
    tasks = TaskCount(done=done, all=len(progress.tasks)) if progress.tasks else None
    return msgspec.structs.replace(row, goal=progress.goal, stage=progress.stage, tasks=tasks)


def _pid(view: RunView) -> int:
    return view.run.owner_pid() if view.is_live and view.is_active else 0


def hub_now(view: RunView) -> Hub:
    """The process that runs the run, or ran it then."""
    hub = view.spans.past.hub_at(view.seq)
    if not view.is_live:
        return Hub(number=hub.number, alive=view.is_active, seen_at=view.spans.time_of(view.seq))
    seen = view.now_us if view.is_active else view.run.last_sign_of_life_us() or 0
    return Hub(number=hub.number, pid=_pid(view), alive=view.is_active, seen_at=seen)


def read_money_now(view: RunView) -> MoneyNow:
    """What agents had cost and used."""
    spent = view.spans.past.spent_at(view.seq)
    return MoneyNow(
        spent_usd=round(spent.usd, 6),
        reserved_usd=round(view.moment.reserved_usd, 6),
        limit_usd=view.limit_usd(),
        tokens=spent.tokens,
    )


def read_result(view: RunView) -> object:
    """What a run that is over has returned, if it is short."""
    state = view.spans.state
    raw = state.result.raw
    if not view.is_live or state.ended is None or raw is None or len(bytes(raw)) > CUT_BYTES:
        return None
    return view.hider.show(bytes(raw)).value


# Workers.


def worker_rows(view: RunView) -> tuple[list[WorkerRow], int]:
    """All workers that are alive and the newest of the others, in the order of their starts; and how many are left out."""
    alive = view.moment.workers
    ended, left_out = _ended_workers(view, {worker.path for worker in alive})
    opened = open_steps(view)
    shown = sorted([*alive, *ended], key=lambda worker: (worker.spawned_seq, worker.row))
    return [worker_row(view, worker, opened.get(worker.path, [])) for worker in shown], left_out


def _ended_workers(view: RunView, alive: set[str]) -> tuple[list[WorkerSpan], int]:
    lives = view.spans.lives
    seen = set(alive)
    found: list[WorkerSpan] = []
    row = lives.lives.opened_by(view.seq) - 1
    while row >= 0 and len(found) < MOST_ENDED:
        path = lives.path(row)
        if path not in seen:
            seen.add(path)
            worker = lives.worker(row, view.seq)
            # One that was removed from the run is only in the timeline.
            if worker.status != "undone":
                found.append(worker)
        row -= 1
    return found, row + 1


def worker_row(view: RunView, worker: WorkerSpan, opened: list[OpenStep]) -> WorkerRow:
    """A worker and what it is doing."""
    p, n = worker.parent
    task = view.tasks.get(worker.path, "")
    is_over = 0 < worker.to_seq <= view.seq
    return WorkerRow(
        id=worker.row,
        path=worker.path,
        name=task or worker.label,
        worker=worker.worker,
        args=worker.arguments,
        status=_status_of(view, worker),
        parent=f"{p}:{n}" if p else "",
        task=task,
        since_at=worker.since_us,
        ended_at=worker.ended_us if is_over else 0,
        steps=worker.steps,
        crashes=worker.crashes,
        open=opened[:MOST_OPEN],
        open_more=max(len(opened) - MOST_OPEN, 0),
        lanes=[(lane.id, lane.path) for lane in view.spans.columns.lanes_of(worker.path)[:MOST_LANES]],
        error=error_text(worker.error),
    )


def _status_of(view: RunView, worker: WorkerSpan) -> WorkerStatus:
    if worker.status != "running":
        return cast("WorkerStatus", worker.status)
    if view.is_live:
        return cast("WorkerStatus", worker_status(view.spans.state, "running", active=view.is_active))
    ended = view.status
    if ended in ENDED and ended != "completed":
        return "interrupted" if ended == "interrupted" else "aborted"
    return "running"


def open_steps(view: RunView, workers: Collection[str] | None = None) -> dict[str, list[OpenStep]]:
    """The steps that were open, by worker, in the order in which they began; of these workers, or of all."""
    tools = _running_tools(view)
    found: dict[str, list[OpenStep]] = {}
    for step in view.moment.steps:
        if step.kind != TOOL and (workers is None or step.worker in workers):
            opened = open_step(view, step, tools.get((step.p, step.n), ""))
            found.setdefault(step.worker, []).append(opened)
    return found


def _running_tools(view: RunView) -> dict[tuple[str, int], str]:
    found: dict[tuple[str, int], str] = {}
    for step in view.moment.steps:
        call = parse_call(step.p) if step.kind == TOOL else None
        if isinstance(call, CallPlace):
            found[call.p, call.n] = step.about
    return found


def open_step(view: RunView, step: StepSpan, tool: str = "") -> OpenStep:
    """A step that was open."""
    call = view.spans.columns.calls.call(step.row, (step.p, step.n)) if step.kind == "think" else None
    left = left_of_step(view.spans, step, view.seq, view.now_us) if view.is_active else None
    return OpenStep(
        row=step.row,
        p=step.p,
        n=step.n,
        kind=step.kind,
        about=cut(step.about, LONGEST_ABOUT),
        began_at=step.began_us,
        attempt=step.attempt,
        due_at=step.due_us,
        left_s=None if left is None else round(left, 3),
        until_at=until(left, view.now_us),
        key="" if call is None else call.key,
        question=step.question,
        stopped_at=0 if view.is_live and view.is_active else view.spans.time_of(view.seq),
        tool=tool,
        agent="" if call is None else call.agent,
    )
