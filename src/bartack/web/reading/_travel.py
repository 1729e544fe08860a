"""Where one can go from an entry of a run, and what a fork there begins after."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from typing import Final

from bartack.runtime.state.spans.rows import RunMark, StepSpan
from bartack.web.models._travel import Outcome, Travel
from bartack.web.reading._steps import step_row
from bartack.web.reading._view import RunView

MOST_STEPS: Final = 2000
"""Of a run with more steps, the one that a fork begins after is not named: all of them would have to be looked at."""


class TravelReader:
    """Reads where one can go, for one page. While the run grows, only what is new is looked at."""

    def __init__(self) -> None:
        self._seq = -1
        self._last: StepSpan | None = None

    def read(self, view: RunView) -> Travel:
        """The entry that is shown, and its surroundings."""
        spans, seq = view.spans, view.seq
        marks = spans.marks
        place = bisect_left(marks, seq, key=_seq_of)
        after = bisect_right(marks, seq, key=_seq_of)
        count = spans.columns.rows.opened_by(seq)
        self._look_for_outcome(view, count)
        last = self._last
        return view.hider.hide(
            Travel(
                run=view.run.id,
                seq=seq,
                last_seq=spans.last_seq,
                at=spans.time_of(seq),
                first_at=spans.first_us,
                live=view.is_live,
                mark_before=marks[place - 1].seq if place else 0,
                mark_after=marks[after].seq if after < len(marks) else 0,
                has_outcome=last is not None or count > MOST_STEPS,
                outcome=None if last is None else _outcome(view, last),
            )
        )

    def _look_for_outcome(self, view: RunView, count: int) -> None:
        before, self._seq = self._seq, view.seq
        rows: Iterable[int]
        if 0 <= before <= view.seq and view.is_live and view.spans.columns.last_undo <= before:
            rows = view.spans.since(before).closed
        else:
            self._last = None
            rows = range(count) if count <= MOST_STEPS else ()
        for step in (view.spans.step(row, view.seq) for row in rows):
            is_later = self._last is None or step.to_seq > self._last.to_seq
            is_over = 0 < step.to_seq <= view.seq and step.status != "undone" and not step.cleanup
            if is_over and is_later:
                self._last = step


def _seq_of(mark: RunMark) -> int:
    return mark.seq


def _outcome(view: RunView, step: StepSpan) -> Outcome:
    row = step_row(step, view.seq)
    return Outcome(step=row.step, p=row.p, n=row.n, kind=row.kind, about=row.about, seq=row.seq_to)
