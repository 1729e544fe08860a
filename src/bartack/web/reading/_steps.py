"""Steps: a table of those that fit, one in full, and the timeline."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import msgspec

from bartack.core.text import cut
from bartack.errors import StepNotFoundError
from bartack.journal import Entry
from bartack.runtime.protocol.paths import CallPlace
from bartack.runtime.protocol.step_key import step_key
from bartack.runtime.protocol.steps import HARMLESS
from bartack.runtime.state import entries as e
from bartack.runtime.state.spans.chosen import Wanted, iter_rows
from bartack.runtime.state.spans.rows import Bar, StepSpan
from bartack.runtime.state.timeline import StepStatus
from bartack.web.following._pauses import Pauses
from bartack.web.models._model import Shown
from bartack.web.models._steps import (
    BlobFacts,
    Lane,
    SourcePlace,
    StepFull,
    StepRow,
    Steps,
    Timeline,
    ToolRow,
)
from bartack.web.reading._sources import Sources
from bartack.web.reading._view import RunView, error_text

PAGE: Final = 200
"""Steps in one answer."""
LONGEST_ABOUT: Final = 2000
"""Characters of what a step in a table is about."""
MOST_TOOLS: Final = 500
MOST_ENTRIES: Final = 500
NARROWEST: Final = 1
WIDEST: Final = 10_000
"""The narrowest and widest drawing of a timeline, in pixels."""

_BOOKKEEPING: Final = HARMLESS | {"log", "version"}
"""Kinds of steps of the pipeline that are not part of its story."""
_STORY: Final = frozenset({"accept", "gate", "merge", "deliver", "decide"})
"""Bodies of the pipeline that are."""


class StepFilter(NamedTuple):
    """Which steps a person wants to see."""

    worker: str = ""
    kinds: frozenset[str] = frozenset()
    statuses: frozenset[StepStatus] = frozenset()
    text: str = ""
    everything: bool = False
    """The bookkeeping of the pipeline, too."""

    def wanted(self, *, is_pipeline: bool) -> Wanted:
        """The same for the columns of a run."""
        folds = is_pipeline and not self.everything
        return Wanted(
            worker=self.worker,
            kinds=self.kinds,
            statuses=self.statuses,
            text=self.text,
            fits=is_story if folds else None,
        )


def is_story(kind: str, about: str) -> bool:
    """Whether a step of the pipeline is part of its story, and not bookkeeping."""
    return kind not in _BOOKKEEPING and (kind != "body" or about in _STORY)


async def read_steps(view: RunView, query: StepFilter, page: int = 0) -> Steps:
    """A page of the steps that fit, in the order in which they began.

    Args:
        view: The run.
        query: Which steps.
        page: The number of the page, from 1; 0: the last one.
    """
    is_pipeline = view.followed.pipeline.is_pipeline
    rows = await _rows(view, query.wanted(is_pipeline=is_pipeline))
    folded = 0
    if is_pipeline and not query.everything:
        folded = len(await _rows(view, query._replace(everything=True).wanted(is_pipeline=True))) - len(rows)
    pages = max(-(-len(rows) // PAGE), 1)
    page = min(page or pages, pages)
    shown = rows[(page - 1) * PAGE : page * PAGE]
    return view.hider.hide(
        Steps(
            steps=[step_row(view.spans.step(row, view.seq), view.seq) for row in shown],
            total=len(rows),
            page=page,
            pages=pages,
            next=page + 1 if page < pages else 0,
            folded=folded,
            seq=view.seq,
            kinds=sorted(view.spans.columns.kinds),
        )
    )


async def _rows(view: RunView, wanted: Wanted) -> list[int]:
    found: list[int] = []
    pauses = Pauses()
    for piece in iter_rows(view.spans.columns, wanted, view.seq):
        found += piece
        await pauses.take(1000)
    return found


def step_row(step: StepSpan, seq: int) -> StepRow:
    """A step in a table, as of an entry."""
    is_over = 0 < step.to_seq <= seq
    took = step.took_us if is_over else None
    return StepRow(
        row=step.row,
        step=step.name,
        p=step.p,
        n=step.n,
        worker=step.worker,
        kind=step.kind,
        status=step.status,
        about=cut(step.about, LONGEST_ABOUT),
        began_at=step.began_us,
        began=step.began,
        ended_at=step.ended_us if is_over else 0,
        took_s=None if took is None else took / 1e6,
        seq_from=step.from_seq,
        seq_to=step.to_seq if is_over else 0,
        attempt=step.attempt,
        usd=step.usd,
        by=step.by,
        question=step.question,
        once=step.once,
        cleanup=step.cleanup,
        error=error_text(step.error) if is_over or step.attempt > 1 else None,
    )


# One step.


async def read_step(view: RunView, p: str, n: int, row: int | None = None) -> StepFull:
    """One step in full: the last one of this path and number, or one of those that were undone.

    Args:
        view: The run.
        p: Its path.
        n: Its number there.
        row: Its row, where several have this path and number.

    Raises:
        StepNotFoundError: There is none.
        JournalError: The journal cannot be read where its values are.
    """
    attempts = [step for step in view.spans.attempts_of(p, n) if step.from_seq <= view.seq]
    chosen = [step for step in attempts if row is None or step.row == row]
    if not chosen:
        raise StepNotFoundError(view.run.id, f"{p}:{n}")
    step = view.spans.step(chosen[-1].row, view.seq)
    entries = [seq for seq in view.spans.columns.entries_of(step.row) if seq <= view.seq]
    facts = _Facts(view, step)
    for seq in dict.fromkeys([*entries[:1], *entries[-2:]]):
        entry = view.entry(seq)
        facts.take(entry, await view.show_large(entry))
    before, after = _neighbours(view, step)
    members: dict[str, Any] = {**msgspec.structs.asdict(step_row(step, view.seq)), "about": step.about}
    full = StepFull(
        **members,
        blob=facts.blob,
        tools=_tools(view, step),
        key=facts.key,
        site=facts.site,
        failure=facts.failure,
        entries=entries[:MOST_ENTRIES],
        attempts=[one.row for one in attempts],
        before=before,
        after=after,
    )
    return msgspec.structs.replace(view.hider.hide(full), asked=facts.asked, value=facts.value)


class _Facts:
    """What the entries of a step say beside its row."""

    def __init__(self, view: RunView, step: StepSpan) -> None:
        self.asked: Shown | None = None
        self.value: Shown | None = None
        self.blob: BlobFacts | None = None
        self.site: SourcePlace | None = None
        self.failure: object = None
        self.key = self._key_of(view, step)
        self._view = view

    def take(self, entry: Entry, value: Shown | None) -> None:
        """Learn what an entry of the step says."""
        view = self._view
        match e.decode_entry(entry.kind, entry.raw):
            case e.StepStarted() as data:
                self.asked = self.asked or value
                if data.site is not None:
                    self.site = Sources(view).at(data.site)
            case e.ToolCalled():
                self.asked = value
            case e.StepFailed(error=error) | e.ToolFailed(error=error):
                self.failure = msgspec.to_builtins(error)
            case (
                e.WorkerRewound() | e.StepSetAside() | e.WorkersDropped() | e.StepRetried() | e.WorkerEnded()
            ):
                pass
            case _:
                self.value = value
                self.blob = (
                    None if entry.ref is None else BlobFacts(sha256=entry.ref.sha256, size=entry.ref.size)
                )

    @staticmethod
    def _key_of(view: RunView, step: StepSpan) -> str:
        call = view.spans.columns.calls.call(step.row, (step.p, step.n)) if step.kind == "think" else None
        if call is not None:
            return call.key
        worker = view.spans.state.workers.get(step.worker)
        rewinds = 0 if worker is None else worker.rewinds
        return step_key(view.spans.state.run_id, step.p, step.n, rewinds) if step.n else ""


def _neighbours(view: RunView, step: StepSpan) -> tuple[StepRow | None, StepRow | None]:
    rows = [
        row for row in view.spans.columns.rows_of(step.p) if view.spans.columns.rows.opened[row] <= view.seq
    ]
    place = rows.index(step.row)
    before = rows[place - 1] if place else None
    after = rows[place + 1] if place + 1 < len(rows) else None
    return _row_of(view, before), _row_of(view, after)


def _row_of(view: RunView, row: int | None) -> StepRow | None:
    return None if row is None else step_row(view.spans.step(row, view.seq), view.seq)


def _tools(view: RunView, step: StepSpan) -> list[ToolRow]:
    if step.kind != "think":
        return []
    found: list[ToolRow] = []
    for call in range(1, MOST_TOOLS + 1):
        tool = view.spans.find_step(CallPlace(step.p, step.n, call).path, 0, view.seq)
        if tool is None:
            break
        row = step_row(tool, view.seq)
        found.append(
            ToolRow(
                row=row.row,
                call=call,
                tool=row.about,
                status=row.status,
                began_at=row.began_at,
                ended_at=row.ended_at,
                took_s=row.took_s,
                seq_from=row.seq_from,
                seq_to=row.seq_to,
                error=row.error,
            )
        )
    return found


# The timeline.


def read_timeline(view: RunView, from_us: int | None, to_us: int | None, px: int) -> Timeline:
    """The bars between two moments, as of the entry; by default those of the whole run."""
    spans, seq = view.spans, view.seq
    last = spans.time_of(seq)
    first = spans.first_us if from_us is None else from_us
    until = max(last if to_us is None else to_us, first + 1)
    window = spans.window(first, until, min(max(px, NARROWEST), WIDEST), seq=seq)
    return view.hider.hide(
        Timeline(
            from_us=first,
            to_us=until,
            first_us=spans.first_us,
            last_us=last,
            seq=seq,
            kinds=list(window.kinds),
            lanes=[
                Lane(id=lane.id, path=lane.path, worker=lane.worker, bars=[_bar(bar) for bar in lane.bars])
                for lane in window.lanes
            ],
            marks=[(mark.us, mark.kind, mark.seq, mark.text, mark.path) for mark in window.marks],
            merged=window.merged,
            left_out=window.left_out,
        )
    )


def _bar(bar: Bar) -> tuple[int, int, int, StepStatus, int, int, int, bool]:
    return (bar.from_us, bar.to_us, bar.kind, bar.state, bar.steps, bar.seq, bar.row, bar.began == "exact")
