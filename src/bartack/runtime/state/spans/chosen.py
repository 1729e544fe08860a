"""Which steps of a run fit what a person looks for: a part of ``spans.py`` that goes over its columns piece by piece.

A run can have a million steps. A caller that must not be held up takes a pause between two pieces.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Final

from bartack.runtime.state.spans.lanes import STATUS_BITS, STATUSES
from bartack.runtime.state.spans.rows import StepSpan
from bartack.runtime.state.spans.steps import StepColumns
from bartack.runtime.state.timeline import StepStatus

PIECE: Final = 16_384
"""Steps that are looked at in one go."""


class Wanted:
    """What a person looks for.

    Args:
        worker: Only the steps of this worker, its branches included.
        kinds: Only of these kinds.
        statuses: Only with these statuses.
        text: Only those that have this text in what they are about, whatever its case.
        fits: Only those whose kind and subject fit.
    """

    def __init__(
        self,
        *,
        worker: str = "",
        kinds: Collection[str] = (),
        statuses: Collection[StepStatus] = (),
        text: str = "",
        fits: Callable[[str, str], bool] | None = None,
    ) -> None:
        self.worker = worker
        self.kinds = frozenset(kinds)
        self.statuses = frozenset(statuses)
        self.text = text.casefold()
        self.fits = fits

    def has(self, step: StepSpan) -> bool:
        """Whether a step fits."""
        return (
            (not self.worker or step.worker == self.worker)
            and (not self.kinds or step.kind in self.kinds)
            and (not self.statuses or step.status in self.statuses)
            and self.fits_subject(step.kind, step.about)
        )

    def fits_subject(self, kind: str, about: str) -> bool:
        """Whether steps of this kind that are about this may be meant."""
        if self.text and self.text not in about.casefold():
            return False
        return self.fits is None or self.fits(kind, about)


def iter_rows(
    columns: StepColumns, wanted: Wanted, seq: int, *, newest_first: bool = False
) -> Iterator[list[int]]:
    """The rows of the steps that fit, as of an entry, in pieces."""
    rows: Sequence[int] = range(columns.rows.opened_by(seq))
    if wanted.worker:
        limit = len(rows)
        of_worker = (row for lane in columns.lanes_of(wanted.worker) for row in lane.rows() if row < limit)
        rows = sorted(of_worker)
    if newest_first:
        rows = rows[::-1]
    look = _Look(columns, wanted, seq)
    for place in range(0, len(rows), PIECE):
        yield look.chosen(rows[place : place + PIECE])


class _Look:
    def __init__(self, columns: StepColumns, wanted: Wanted, seq: int) -> None:
        self._columns = columns
        self._wanted = wanted
        self._seq = seq
        self._kinds = {number for number, kind in enumerate(columns.kinds) if kind in wanted.kinds}
        self._subjects: dict[tuple[int, int], bool] = {}
        """Whether a kind and a subject fit: there are far fewer of them than steps."""

    def chosen(self, rows: Sequence[int]) -> list[int]:
        wanted, columns = self._wanted, self._columns
        found = rows
        if wanted.kinds:
            kinds, column = self._kinds, columns.kind
            found = [row for row in found if column[row] in kinds]
        if wanted.statuses:
            found = self._with_status(found)
        if wanted.text or wanted.fits is not None:
            found = [row for row in found if self._fits(row)]
        return list(found)

    def _with_status(self, rows: Sequence[int]) -> list[int]:
        columns, seq = self._columns, self._seq
        wanted = {number for number, status in enumerate(STATUSES) if status in self._wanted.statuses}
        if seq >= len(columns.times) - 1:
            status = columns.status
            return [row for row in rows if status[row] & STATUS_BITS in wanted]
        return [row for row in rows if columns.status_at(row, seq) in wanted]

    def _fits(self, row: int) -> bool:
        columns = self._columns
        subject = (columns.kind[row], columns.subject[row])
        known = self._subjects.get(subject)
        if known is None:
            known = self._wanted.fits_subject(columns.kinds[subject[0]], columns.about(row))
            self._subjects[subject] = known
        return known
