"""Where one can go from an entry of a run, and what a fork there begins after."""

from __future__ import annotations

from typing import Final

from bartack.runtime.state.spans.rows import StepSpan
from bartack.web.models._travel import Outcome, Travel
from bartack.web.reading._steps import step_row
from bartack.web.reading._view import RunView

MOST_STEPS: Final = 2000
"""Of a run with more steps, the one that a fork begins after is not named: all of them would have to be looked at."""


def read_travel(view: RunView) -> Travel:
    """The entry that is shown, and its surroundings."""
    spans, seq = view.spans, view.seq
    marks = [mark.seq for mark in spans.marks]
    count = spans.columns.rows.opened_by(seq)
    last = _last_outcome(view, count) if count <= MOST_STEPS else None
    return view.hider.hide(
        Travel(
            run=view.run.id,
            seq=seq,
            last_seq=spans.last_seq,
            at=spans.time_of(seq),
            first_at=spans.first_us,
            live=view.is_live,
            mark_before=max((mark for mark in marks if mark < seq), default=0),
            mark_after=min((mark for mark in marks if mark > seq), default=0),
            has_outcome=last is not None or count > MOST_STEPS,
            outcome=None if last is None else _outcome(view, last),
        )
    )


def _last_outcome(view: RunView, count: int) -> StepSpan | None:
    steps = (view.spans.step(row, view.seq) for row in range(count))
    ended = [
        step for step in steps if 0 < step.to_seq <= view.seq and step.status != "undone" and not step.cleanup
    ]
    return max(ended, key=lambda step: step.to_seq, default=None)


def _outcome(view: RunView, step: StepSpan) -> Outcome:
    row = step_row(step, view.seq)
    return Outcome(step=row.step, p=row.p, n=row.n, kind=row.kind, about=row.about, seq=row.seq_to)
