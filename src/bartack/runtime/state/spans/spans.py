"""A run as spans: whatever lasts (a step, a message in a mailbox, a question, a worker) lasts from one entry to another.

What a run was doing at an entry is the spans that contain it, and what it does now is the spans that contain the last one. So a
live view and a look back are the same question. Pure: entries in, spans out (``rows.py``).

``Spans`` does not interpret entries again. It holds a ``State``, adds each entry with the one ``apply``, and is notified which
steps, messages, questions and workers become open and cease to be (``observed.py``). All of it is kept in columns
(``columns.py``). Values are not kept: they are read from the journal, from a bookmark before their entry (``bookmark``).
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import cached_property
from itertools import islice
from typing import Final

from bartack.journal import Bookmark, Entry
from bartack.runtime.state import entries as e
from bartack.runtime.state.apply import apply
from bartack.runtime.state.run_state import RunStatus, State
from bartack.runtime.state.spans.chosen import Wanted, iter_rows
from bartack.runtime.state.spans.columns import Texts
from bartack.runtime.state.spans.lanes import LaneSteps
from bartack.runtime.state.spans.letters import LetterColumns
from bartack.runtime.state.spans.lives import QuestionColumns, WorkerColumns
from bartack.runtime.state.spans.mail import MessageColumns
from bartack.runtime.state.spans.mailboxes import MailboxColumns
from bartack.runtime.state.spans.marks import Marks
from bartack.runtime.state.spans.observed import Current, ObservedState
from bartack.runtime.state.spans.rows import (
    Bar,
    Changes,
    LaneBars,
    MessageSpan,
    QuestionSpan,
    RunMark,
    Spent,
    StepSpan,
    Window,
    WorkerSpan,
)
from bartack.runtime.state.spans.steps import StepColumns
from bartack.runtime.state.timeline import StepStatus
from bartack.runtime.state.worker_state import Value

EVERY: Final = 1024
"""A bookmark is kept for this many entries."""
MOST_BARS: Final = 8000
"""A timeline has at most this many bars."""
NARROWEST_PX: Final = 2
"""Bars that would be narrower than this are merged."""
MOST_POINTS: Final = 400
MOST_MARKS: Final = 2000
FIRST: Final = Bookmark(1, 0, 0)


class Moment:
    """A run after one of its entries; made by ``Spans.at``. The spans are made when they are asked for.

    Attributes:
        seq: The entry.
        at_us: Its time.
        status: The status of the run then, as far as the journal shows.
        spent: What agents had cost and used.
        reserved_usd: What was reserved for the prompts that were under way.
        step_rows: The steps that were open.
        message_rows: The messages that were in a mailbox or held by a receiver.
        question_rows: The questions that were open.
        worker_rows: The workers that were alive.
    """

    def __init__(self, spans: Spans, seq: int) -> None:
        self._spans = spans
        self.seq = seq
        self.at_us = spans.time_of(seq)
        self.status = spans.status_at(seq)
        self.spent = spans.past.spent_at(seq)
        self.step_rows = spans.columns.rows.at(seq)
        self.message_rows = spans.mail.at(seq)
        self.question_rows = spans.asked.rows.at(seq)
        self.worker_rows = spans.lives.lives.at(seq)
        self.reserved_usd = spans.columns.reserved(self.step_rows)

    @cached_property
    def steps(self) -> list[StepSpan]:
        """The steps that were open, and the calls of tools, in the order in which they began."""
        return [self._spans.step(row, self.seq) for row in self.step_rows]

    @cached_property
    def messages(self) -> list[MessageSpan]:
        """The messages that were in a mailbox or held by a receiver, in the order in which they were sent."""
        return [self._spans.message(row, self.seq) for row in self.message_rows]

    @cached_property
    def questions(self) -> list[QuestionSpan]:
        """The questions that were open, the oldest first."""
        return [self._spans.question(row) for row in self.question_rows]

    @cached_property
    def workers(self) -> list[WorkerSpan]:
        """The workers that were alive, in the order in which they were started."""
        return [self._spans.worker(row, self.seq) for row in self.worker_rows]


class Spans:
    """All that lasted in a run, added up entry by entry.

    Attributes:
        columns: The steps in columns, for those who look at many of them.
        mail: The messages in columns.
        boxes: The mailboxes.
        letters: The dead letters.
        asked: The questions in columns.
        lives: The workers in columns.
        past: What changed over time: statuses, failures, hubs, sums.
    """

    def __init__(self) -> None:
        self._current = Current()
        self._times = array("q", [0])
        """The time of each entry, by its place."""
        texts = Texts()
        self.columns = StepColumns(self._current, self._times, texts)
        self.mail = MessageColumns(self._current, self._times, texts)
        self.boxes = MailboxColumns(self._current)
        self.asked = QuestionColumns(self._current, self._times)
        self.lives = WorkerColumns(self._current, self._times, texts, self.columns)
        self._state = ObservedState(self.columns, self.mail, self.boxes, self.asked, self.lives)
        self.letters = LetterColumns(self._current, self._state)
        self.past = Marks(self._current)
        self._bookmarks: list[Bookmark] = [FIRST]
        look = self.letters.look
        self._handlers: Mapping[type[e.EntryData], Callable[..., None]] = {
            e.WorkerEnded: self._worker_changed,
            e.WorkerRestarted: self._worker_changed,
            e.WorkerRewound: self._rewound,
            e.StepSetAside: self._rewound,
            e.StepRetried: self.columns.retried,
            e.ToolCalled: self._tool_called,
            e.ToolFinished: self.columns.tool_ended,
            e.ToolFailed: self.columns.tool_ended,
            e.AttemptFailed: self.columns.calls.asked_again,
            e.WorkerCrashed: self.lives.crashed,
            e.MailboxChanged: self.boxes.changed,
            e.LetterAdded: self._letter_added,
            **dict.fromkeys(
                (e.LetterMoved, e.MessageMoved, e.MessageTaken, e.MessagesDrained, e.MessageHeld), look
            ),
        }

    # Entries.

    @classmethod
    def of(cls, entries: Iterable[Entry]) -> Spans:
        """The spans of a whole journal."""
        spans = cls()
        for entry in entries:
            spans.add(entry)
        return spans

    def add(self, entry: Entry) -> None:
        """Add the next entry of the journal."""
        self._times.append(entry.at)
        data = e.decode_entry(entry.kind, entry.raw)
        if data is None:
            return
        current = self._current
        current.seq, current.at, current.data = entry.seq, entry.at, data
        value = current.value = Value(entry.value, entry.ref)
        apply(self._state, data, entry.seq, entry.at, value)
        kind = type(data)
        handler = self._handlers.get(kind)
        if handler is not None:
            handler(data)
        past = self.past
        noted = past.handlers.get(kind)
        if noted is not None:
            noted(self._state, data)
        past.note_status(self._state.status)

    def keep(self, bookmark: Bookmark) -> None:
        """Note a place of the journal to read values from; of many places, one for 1,024 entries is kept."""
        if bookmark.seq >= self._bookmarks[-1].seq + EVERY:
            self._bookmarks.append(bookmark)

    def bookmark(self, seq: int) -> Bookmark:
        """The last place that is known from which entry ``seq`` is read."""
        return self._bookmarks[bisect_right(self._bookmarks, seq, key=lambda kept: kept.seq) - 1]

    # The run.

    @property
    def state(self) -> State:
        """The state of the run after the last entry. It is not to be changed."""
        return self._state

    @property
    def marks(self) -> list[RunMark]:
        """What people look for, in order: crashes, resumes, failures, questions, answers, the end."""
        return self.past.all

    @property
    def last_seq(self) -> int:
        """The place of the last entry; 0 if there is none."""
        return len(self._times) - 1

    @property
    def first_us(self) -> int:
        """The time of the first entry."""
        return self._times[1] if len(self._times) > 1 else 0

    @property
    def last_us(self) -> int:
        """The time of the last entry."""
        return self._times[-1]

    def time_of(self, seq: int) -> int:
        """The time of an entry; that of the last one if there is none of this place yet."""
        return self._times[max(0, min(seq, self.last_seq))]

    def status_at(self, seq: int) -> RunStatus:
        """The status of the run after an entry, as far as the journal shows."""
        return self.past.status_at(seq)

    def at(self, seq: int | None = None) -> Moment:
        """The run after an entry; after the last one by default."""
        return Moment(self, self.last_seq if seq is None else max(0, min(seq, self.last_seq)))

    def since(self, seq: int) -> Changes:
        """What happened after an entry, for a page that shows all up to it."""
        steps = self.columns
        first, last = steps.rows.opened_by(seq), len(steps)
        opened = list(range(first, last))
        closed = [row for row in (*steps.rows.at(seq), *opened) if steps.rows.closed[row] <= self.last_seq]
        return Changes(self.last_seq, opened, closed, self.past.since(seq))

    # Steps, messages, questions, workers.

    def step(self, row: int, seq: int | None = None) -> StepSpan:
        """A step by its row, as of an entry; as of the last one by default."""
        return self.columns.step(row, self.last_seq if seq is None else seq)

    def find_step(self, p: str, n: int, seq: int | None = None) -> StepSpan | None:
        """The last step of this path and number that had begun up to an entry."""
        seq = self.last_seq if seq is None else seq
        steps = self.columns
        rows = steps.rows_of(p)
        for row in reversed(rows):
            if steps.key(row)[1] == n and steps.rows.opened[row] <= seq:
                return steps.step(row, seq)
        return None

    def attempts_of(self, p: str, n: int) -> list[StepSpan]:
        """All steps that had this path and number, the undone ones included, in the order in which they began."""
        steps = self.columns
        return [self.step(row) for row in steps.rows_of(p) if steps.key(row)[1] == n]

    def steps(
        self,
        *,
        worker: str = "",
        kinds: Collection[str] = (),
        statuses: Collection[StepStatus] = (),
        text: str = "",
        seq: int | None = None,
        newest_first: bool = False,
    ) -> Iterator[StepSpan]:
        """The steps that match, in the order in which they began, as of an entry.

        Args:
            worker: Only those of this worker, its branches included.
            kinds: Only of these kinds.
            statuses: Only with these statuses.
            text: Only those that have this text in what they are about, whatever its case.
            seq: The entry; the last one by default.
            newest_first: In the opposite order.
        """
        seq = self.last_seq if seq is None else seq
        wanted = Wanted(worker=worker, kinds=kinds, statuses=statuses, text=text)
        for rows in iter_rows(self.columns, wanted, seq, newest_first=newest_first):
            for row in rows:
                yield self.columns.step(row, seq)

    def message(self, row: int, seq: int | None = None) -> MessageSpan:
        """A message by its row, as of an entry; as of the last one by default."""
        return self.mail.message(row, self.last_seq if seq is None else seq)

    def messages(self, seq: int | None = None, *, newest_first: bool = False) -> Iterator[MessageSpan]:
        """All messages that were sent up to an entry, in order."""
        seq = self.last_seq if seq is None else seq
        rows = range(self.mail.sent_by(seq))
        return (self.mail.message(row, seq) for row in (reversed(rows) if newest_first else rows))

    def question(self, row: int) -> QuestionSpan:
        """A question by its row."""
        return self.asked.question(row)

    def worker(self, row: int, seq: int | None = None) -> WorkerSpan:
        """A life of a worker by its row, as of an entry; as of the last one by default."""
        return self.lives.worker(row, self.last_seq if seq is None else seq)

    # Money.

    def spent(self, most: int = MOST_POINTS, seq: int | None = None) -> list[Spent]:
        """How cost and tokens grew up to an entry: at most this many points, the last one included."""
        return self.past.spent(most, self.last_seq if seq is None else seq)

    # The timeline.

    def window(
        self,
        from_us: int,
        to_us: int,
        px: int,
        *,
        lanes: Collection[int] | None = None,
        seq: int | None = None,
    ) -> Window:
        """The bars between two moments, for a drawing of this width.

        Args:
            from_us: The left end.
            to_us: The right end.
            px: The width of the drawing.
            lanes: Only these lanes.
            seq: As they were after this entry; after the last one by default.
        """
        past = None if seq is None or seq >= self.last_seq else max(seq, 0)
        to_us = max(to_us, from_us + 1)
        shown = [
            lane
            for lane in self.columns.lanes
            if (lanes is None or lane.id in lanes) and lane.is_in(from_us, to_us)
        ]
        wide = to_us - from_us
        # Half of the bars for narrow steps, which are merged; the other half for wide ones.
        least = max(NARROWEST_PX * wide // max(px, 1), 2 * wide * len(shown) // MOST_BARS, 1)
        while True:
            drawn = [(lane, bars) for lane in shown if (bars := lane.draw(from_us, to_us, least, past))]
            if sum(len(bars) for _, bars in drawn) <= MOST_BARS or least > wide:
                break
            least *= 2
        kept = list(_up_to(drawn, MOST_BARS))
        last = self.last_seq if past is None else past
        marks = [mark for mark in self.marks if from_us <= mark.us <= to_us and mark.seq <= last]
        return Window(
            from_us,
            to_us,
            tuple(self.columns.kinds),
            [LaneBars(lane.id, lane.path, lane.worker, bars) for lane, bars in kept],
            marks if len(marks) <= MOST_MARKS else list(islice(marks, 0, None, -(-len(marks) // MOST_MARKS))),
            merged=any(bar.steps > 1 for _, bars in kept for bar in bars),
            left_out=len(drawn) - len(kept),
        )

    # Kinds of entries.

    def _letter_added(self, data: e.LetterAdded) -> None:
        self.mail.letter_added(data)
        self.letters.look(data)

    def _worker_changed(self, data: e.WorkerEnded | e.WorkerRestarted) -> None:
        self.lives.changed(self._state.workers[data.path])

    def _rewound(self, data: e.WorkerRewound | e.StepSetAside) -> None:
        worker = self._state.workers[data.path]
        self.lives.changed(worker)
        if data.to:
            self.columns.rewound(worker, data.to)

    def _tool_called(self, data: e.ToolCalled) -> None:
        worker = self._state.worker_of(data.p)
        if worker is not None:
            self.columns.tool_called(worker, data)


def _up_to(drawn: list[tuple[LaneSteps, list[Bar]]], most: int) -> Iterator[tuple[LaneSteps, list[Bar]]]:
    """The first lanes that have at most this many bars together."""
    count = 0
    for lane, bars in drawn:
        count += len(bars)
        if count > most:
            return
        yield lane, bars
