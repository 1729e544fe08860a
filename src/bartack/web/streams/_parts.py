"""The parts of live pages: each is an element with an id of ours, a template and a model.

A page is rendered from the same parts, so a stream has to send only those whose models have changed. Ids are made of rows, never of
texts: the row of a worker, of a question, of a step. Of a long run only the workers that something happened to are looked at.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

from bartack.core.text import cut
from bartack.web.following._runs import OVER
from bartack.web.models._model import Model
from bartack.web.models._parts import Actions, FailureCard, Head, OpenTitle, Output
from bartack.web.models._run import Hub, WorkerRow
from bartack.web.reading._journal import output_places, read_output
from bartack.web.reading._mail import count_letters, mailbox_rows
from bartack.web.reading._moment import (
    MOST_ENDED,
    hub_now,
    open_steps,
    problem_of,
    read_money_now,
    run_row,
    worker_row,
    worker_rows,
)
from bartack.web.reading._questions import read_questions
from bartack.web.reading._steps import StepFilter, step_row
from bartack.web.reading._travel import TravelReader
from bartack.web.reading._view import RunView, short_error
from bartack.web.reading._words import AgentWords

LINES: Final = 10
"""Lines of the transcript on the page of a run."""
LONGEST_LINE: Final = 1000
"""Characters of such a line."""
MOST_OPEN: Final = 20
"""Open steps in the row of a worker."""
MOST_STEPS: Final = 200
"""Open steps in the list of all of them."""


class Part(NamedTuple):
    """An element of a page: its id, the template of it, and its model, without secrets."""

    id: str
    template: str
    model: Model


class HeadParts:
    """The parts that every page of a run has: its head, and what can be done to it."""

    def parts(self, view: RunView) -> list[Part]:
        """These parts at the entry of the view."""
        head = _read_head(view)
        return [Part("head", "head", head), Part("actions", "actions", actions_of(head))]


def actions_of(head: Head) -> Actions:
    """What can be done to a run, of what its head says. It changes seldom, so that forms stay as they are."""
    run = head.run
    over = run.status in {"completed", "cancelled", "aborted"}
    is_expected = run.queue is not None and run.queue.state in {"queued", "owned"}
    can_resume = not head.hub.alive and not is_expected and run.status in {"interrupted", "failed"}
    return Actions(
        run=run.run,
        can_resume=head.live and can_resume,
        can_interrupt=head.live and head.hub.alive and not over,
        can_end=head.live and not over,
    )


def _read_head(view: RunView) -> Head:
    spans, follower = view.spans, view.followed.follower
    return view.hider.hide(
        Head(
            run=run_row(view),
            state=follower.state,
            built=round(follower.built, 2),
            problem=problem_of(view.followed),
            seq=view.seq,
            last_seq=spans.last_seq,
            at=spans.time_of(view.seq),
            first_at=spans.first_us,
            live=view.is_live,
            hub=_steady(hub_now(view)),
            steps=spans.columns.rows.opened_by(view.seq),
            workers=len(view.moment.worker_rows),
            letters=count_letters(view),
            money=read_money_now(view),
        )
    )


class OverviewParts:
    """The parts of the page of a run, brought up to date entry by entry.

    Args:
        words: What agents say while they work; without it that is not shown.
    """

    def __init__(self, words: AgentWords | None = None) -> None:
        self._words = words
        self._head = HeadParts()
        self._seq = -1
        self._shown: object = None
        self._workers: dict[int, WorkerRow] = {}
        self.left_out = 0
        """How many workers that have ended are not among the parts of a page that was just made."""
        self._travel = TravelReader()
        self._output = Output()
        self._outputs: list[int] | None = None

    def parts(self, view: RunView) -> list[Part]:
        """All parts of the page at the entry of the view, which is not before that of the last call."""
        self._look_at_workers(view)
        found = self._head.parts(view)
        asked = [msgspec.structs.replace(one, left_s=None) for one in read_questions(view)]
        found += [Part(f"q{one.row}", "question", one) for one in asked]
        found += [Part(f"w{one.id}", "worker", one) for one in self._workers.values()]
        # In the order in which a page that grows has them.
        opened = [step for worker in self._workers.values() for step in worker.open]
        opened.sort(key=lambda step: step.row)
        found.append(Part("opened", "open_title", _open_title(view)))
        found += [Part(f"o{step.row}", "open", step) for step in opened[:MOST_STEPS]]
        found += [Part(f"m{one.row}", "mailbox", view.hider.hide(one)) for one in mailbox_rows(view)]
        found += self._failure(view)
        found.append(Part("output", "output", self._last_output(view)))
        found.append(Part("travel", "travel", self._travel.read(view)))
        if self._words is not None:
            found += [
                Part(f"c{one.row}", "words", one) for one in self._words.read(view, self._workers.values())
            ]
        self._seq = view.seq
        return found

    def _look_at_workers(self, view: RunView) -> None:
        """Make the rows of workers anew that something happened to: all of them, if the whole run changed."""
        shown = (view.is_active, view.spans.status_at(view.seq), len(view.tasks), view.seq < self._seq)
        if shown != self._shown or self._seq < 0:
            self._shown = shown
            listed, self.left_out = worker_rows(view)
            rows = [view.hider.hide(_calm(row)) for row in listed]
            self._workers = {row.id: row for row in rows}
            return
        touched = _touched(view, self._seq)
        if not touched:
            return
        opened = open_steps(view, touched)
        lives = view.spans.lives
        alive = set(view.moment.worker_rows)
        known = {row.path: row.id for row in self._workers.values()}
        wanted = {row for row in alive if lives.path(row) in touched}
        wanted |= {known[path] for path in touched if path in known and known[path] not in alive}
        for row in sorted(wanted):
            worker = lives.worker(row, view.seq)
            before = known.get(worker.path)
            if before is not None and before != row:
                del self._workers[before]
            if worker.status == "undone":
                self._workers.pop(row, None)
                continue
            made = worker_row(view, worker, opened.get(worker.path, []))
            self._workers[row] = view.hider.hide(_calm(made))
        self._forget_ended(len(alive))

    def _forget_ended(self, alive: int) -> None:
        """Keep as many workers that have ended as a page lists."""
        over = [row for row, worker in self._workers.items() if worker.ended_at]
        for row in over[: max(len(self._workers) - alive - MOST_ENDED, 0)]:
            del self._workers[row]

    def _failure(self, view: RunView) -> list[Part]:
        failure = view.spans.past.failure_at(view.seq)
        if failure is None:
            return []
        step = f"{failure.p}:{failure.n}" if failure.n else ""
        card = FailureCard(worker=failure.worker, step=step, error=short_error(failure.error))
        return [Part("failure", "failure", view.hider.hide(card))]

    def _last_output(self, view: RunView) -> Output:
        places = output_places(view, view.seq, 1)
        if places != self._outputs:
            self._outputs = places
            lines = [
                msgspec.structs.replace(line, text=cut(line.text, LONGEST_LINE))
                for line in read_output(view, LINES)
            ]
            self._output = view.hider.hide(Output(lines=lines))
        return self._output


def _open_title(view: RunView) -> OpenTitle:
    if not view.is_live:
        return OpenTitle(when="then")
    if view.is_active:
        return OpenTitle(when="now")
    return OpenTitle(when="ended" if view.status in OVER else "interrupted")


def _touched(view: RunView, seq: int) -> set[str]:
    """The workers that something happened to after an entry."""
    spans = view.spans
    changes = spans.since(seq)
    columns = spans.columns
    touched = {columns.lane_of(row).worker for row in (*changes.opened, *changes.closed)}
    touched |= {mark.path for mark in changes.marks if mark.path}
    return touched | spans.lives.changed_since(seq)


def _calm(row: WorkerRow) -> WorkerRow:
    """A worker without what changes by itself as time goes by: the page counts that."""
    if not row.open:
        return row
    steps = [msgspec.structs.replace(step, left_s=None) for step in row.open[:MOST_OPEN]]
    return msgspec.structs.replace(row, open=steps, open_more=row.open_more + len(row.open) - len(steps))


def _steady(hub: Hub) -> Hub:
    """A hub without the moment at which it was seen, as long as it is alive."""
    return msgspec.structs.replace(hub, seen_at=0) if hub.alive else hub


class StepParts:
    """The rows of a table of steps that changed.

    Args:
        query: Which steps the table shows.
    """

    def __init__(self, query: StepFilter) -> None:
        self._query = query

    def since(self, view: RunView, seq: int) -> list[Part]:
        """The rows of the steps that began or ended after an entry, and fit."""
        changes = view.spans.since(seq)
        wanted = self._query.wanted(is_pipeline=view.followed.pipeline.is_pipeline)
        found: list[Part] = []
        for row in sorted({*changes.opened, *changes.closed}):
            step = view.spans.step(row, view.seq)
            if wanted.has(step):
                found.append(Part(f"s{row}", "step", view.hider.hide(step_row(step, view.seq))))
        return found
