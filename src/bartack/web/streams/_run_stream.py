"""The events of one run: its bars, the parts of its page that changed, or the lines of one call as they come.

**Why a page neither misses nor doubles a change.** A page is rendered at an entry, and says so when it opens the stream: ``since``.
From then on the stream knows which entry the page shows (``_seq``), and each frame takes the page from there to the last entry that
was read. Frames are computed from the two entries and not collected on the way, so nothing waits in a queue that could overflow.

- *Bars* are what was opened or closed after ``_seq``, up to the last entry. ``_seq`` is raised in the same call, and the loop that
  calls it sends each frame before it asks for the next. So an entry is in one frame.
- *Parts*, rows of steps and lines of a call are replaced as a whole, by their id: to send one twice changes nothing.
  ``ChangedParts`` has the models that the page shows. After a reconnect these are the parts at ``since``, so whatever differs
  from then is sent.
- *A connection may break in the middle of a frame.* The id of an event is the entry up to which the page has everything: the old
  one for parts, the new one for the bars, which come last. The page opens the next stream with the last id that it got. So if
  it has the bars, it has the whole frame; if not, the frame is computed again, and what it gets twice are parts.

If the way from one entry to the other cannot be computed, the page gets ``reset`` and asks for itself again, complete:

- ``journal``: an entry after ``_seq`` undid steps that the page may show, or the follower began anew because entries that it had
  read are gone (its ``generation`` counts that).
- ``built``: the journal was still being read when the page was made.
- ``behind``: the page took a frame too slowly, or the frame would be too large.

A power cut can take back entries that a page has shown, and it ends this server, too. The next server has another mark, which
``hello`` carries; a page of an earlier server asks for itself again, because numbers of rows are valid in one process only. The
same is not noticed in one case: another program replaced the journal (a backup was restored) while the page had no stream, and
the server lived on. Then the page has to be loaded again by its reader.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import AbstractContextManager
from typing import Final

from bartack.errors import BartackError
from bartack.runtime.rundir.find import TERMINAL
from bartack.runtime.state.timeline import StepStatus
from bartack.web._queries import EventsQuery
from bartack.web._site import Site
from bartack.web._templates import PartRenderer
from bartack.web.following._follow import Followed
from bartack.web.models._events import Bars, Hello, Over, Parts, Reason, Reset, TalkLines
from bartack.web.models._model import Model
from bartack.web.models._parts import Head
from bartack.web.models._talk import Call
from bartack.web.reading._files import open_regular
from bartack.web.reading._moment import read_beginning
from bartack.web.reading._said import said_line
from bartack.web.reading._steps import StepFilter
from bartack.web.reading._talk import (
    TRANSCRIPT,
    Line,
    agent_folders,
    find_call,
    read_call,
    read_reply,
    read_transcript_line,
)
from bartack.web.reading._view import RunView
from bartack.web.reading._words import AgentWords
from bartack.web.streams._parts import HeadParts, OverviewParts, Part, StepParts
from bartack.web.streams._sse import MOST_BYTES, event

WORDS_S: Final = 1.0
"""How often transcripts of agents are looked at for the page of a run."""
TALK_S: Final = 0.2
"""The same for the page of a call."""
NEVER_S: Final = 3600.0
LONGEST_TALK: Final = 48 * 1024
"""Bytes of lines of a call in one frame; the rest comes with the next one."""


class ChangedParts:
    """Which parts of a page changed since it was sent the last time.

    Args:
        renderer: Renders them for the page.
    """

    def __init__(self, renderer: PartRenderer) -> None:
        self._renderer = renderer
        self._sent: dict[str, Model] = {}

    def keep(self, parts: list[Part]) -> None:
        """The page has these."""
        self._sent = {part.id: part.model for part in parts}

    def take(self, parts: list[Part], seq: int) -> Parts | None:
        """What the page needs to have these; ``None`` if it has them."""
        changed = [part for part in parts if self._sent.get(part.id) != part.model]
        gone = self._sent.keys() - {part.id for part in parts}
        self.keep(parts)
        if not changed and not gone:
            return None
        return Parts(
            seq=seq,
            set=[self.render(part) for part in changed],
            gone=sorted(gone),
        )

    def render(self, part: Part) -> tuple[str, str]:
        """The id and the HTML of a part."""
        return part.id, self._renderer.render(part.template, part.id, part.model)


class RunStream:
    """The events of a run for one page.

    Args:
        site: The site.
        followed: The run.
        query: What the page shows.
        renderer: Renders parts of the page.
        steps: With the view ``steps``: which of them.
    """

    def __init__(
        self,
        site: Site,
        followed: Followed,
        query: EventsQuery,
        renderer: PartRenderer,
        steps: StepFilter | None = None,
    ) -> None:
        self._site = site
        self._followed = followed
        self._query = query
        self._seq = 0
        self._kinds = self._lanes = 0
        self._generation = followed.follower.generation
        self._is_built = followed.follower.state != "building"
        self._changed = ChangedParts(renderer)
        self._call = ChangedParts(renderer)
        self._page: HeadParts | OverviewParts = HeadParts()
        self._steps = StepParts(steps or StepFilter())
        self._talk = _TalkFile(query.talk, query.after) if query.view == "talk" else None
        self.is_over = False
        if self._is_built:
            self._begin(query.since)

    @property
    def poll_s(self) -> float:
        """See ``EventStream``."""
        if self._query.view == "talk":
            return TALK_S
        return WORDS_S if self._query.view == "overview" else NEVER_S

    def listen(self) -> AbstractContextManager[asyncio.Event]:
        """See ``EventStream``."""
        return self._followed.listen()

    def hello(self) -> bytes:
        """The first event."""
        view = self._view()
        hello = Hello(
            seq=self._seq,
            status=view.status,
            read_only=self._site.read_only,
            server=self._site.mark,
            built=round(self._followed.follower.built, 2),
        )
        return event("hello", self._seq, hello)

    async def frame(self, *, is_late: bool) -> bytes:
        """See ``EventStream``."""
        follower = self._followed.follower
        if self._followed.over or follower.state == "deleted":
            return self._end(self._followed.over or "deleted")
        if follower.state == "building":
            self._is_built = False
            return self._progress()
        why = self._reason_to_reset(is_late=is_late)
        data = b"" if why else self._changes()
        if len(data) > MOST_BYTES:
            why = "behind"
        return self._reset(why) if why else data

    def _reason_to_reset(self, *, is_late: bool) -> Reason | None:
        """Why the page has to ask again for what it shows, if it has to."""
        follower = self._followed.follower
        was_built, self._is_built = self._is_built, True
        before, self._generation = self._generation, follower.generation
        if before != follower.generation or follower.spans.columns.last_undo > self._seq:
            return "journal"  # it is another one, or steps that the page shows were undone
        if not was_built:
            return "built"
        return "behind" if is_late else None

    # Inside.

    def _view(self, at: int | None = None) -> RunView:
        return RunView(self._followed, at, self._site.settings)

    def _begin(self, since: int | None) -> None:
        """Take it that the page shows the run after an entry: the last one, if it is not known."""
        view = self._view(since)
        self._seq = view.seq
        spans = view.spans
        self._kinds, self._lanes = len(spans.columns.kinds), len(spans.columns.lanes)
        self._page = OverviewParts(AgentWords()) if self._query.view == "overview" else HeadParts()
        self._changed.keep(self._page.parts(view))
        if self._talk is not None:
            self._call.keep(_call_parts(view, self._talk.call(view)))

    def _reset(self, why: Reason) -> bytes:
        self._begin(None)
        return event("reset", self._seq, Reset(why=why))

    def _end(self, status: str) -> bytes:
        self.is_over = True
        return event("over", self._seq, Over(status=status))

    def _progress(self) -> bytes:
        """While the journal is being read: the head, with how far that is."""
        moment = read_beginning(self._followed, self._site.settings)
        head = Head(
            run=moment.run,
            state=moment.state,
            built=round(moment.built, 2),
            seq=moment.seq,
            last_seq=moment.last_seq,
            at=moment.at,
            hub=moment.hub,
        )
        parts = self._changed.take([Part("head", "head", head)], 0)
        return b"" if parts is None else event("parts", 0, parts)

    def _changes(self) -> bytes:
        view = self._view()
        before, self._seq = self._seq, view.seq
        # Bars come last, and only they have the new entry as their id: a page that gets a part of the frame asks for all of it
        # again.
        found = self._parts(view, before)
        if self._query.view == "steps" and view.seq > before:
            found += self._step_rows(view, before)
        elif self._talk is not None:
            found += self._lines(view, before)
        if view.seq > before:
            found += self._bars(view, before)
        status = view.status
        if status in TERMINAL and not view.is_active:
            found += self._end(status)
        return found

    def _bars(self, view: RunView, before: int) -> bytes:
        spans, columns = view.spans, view.spans.columns
        changes = spans.since(before)
        if len(changes.opened) + len(changes.closed) > MOST_BYTES // 16:
            return b" " * (MOST_BYTES + 1)  # far too much for one frame
        kinds, lanes = columns.kinds, columns.lanes[self._lanes :]
        bars = Bars(
            seq=view.seq,
            open=[
                (row, columns.lane_of(row).id, columns.kind[row], columns.began[row])
                for row in changes.opened
            ],
            close=[(row, *_end_of(view, row)) for row in changes.closed],
            marks=[(mark.us, mark.kind, mark.seq, mark.text, mark.path) for mark in changes.marks],
            kinds=list(kinds) if len(kinds) > self._kinds else [],
            lanes=[(lane.id, lane.path, lane.worker) for lane in lanes],
            last_us=spans.last_us,
        )
        self._kinds, self._lanes = len(kinds), len(columns.lanes)
        return event("bars", view.seq, view.hider.hide(bars))

    def _parts(self, view: RunView, before: int) -> bytes:
        parts = self._changed.take(self._page.parts(view), view.seq)
        return b"" if parts is None else event("parts", before, parts)

    def _step_rows(self, view: RunView, before: int) -> bytes:
        rows = self._steps.since(view, before)
        if not rows:
            return b""
        rendered = [self._changed.render(part) for part in rows]
        return event("parts", before, Parts(seq=view.seq, set=rendered))

    def _lines(self, view: RunView, before: int) -> bytes:
        assert self._talk is not None, "the page of a call has lines"
        call, lines = self._talk.read(view)
        found = b""
        if lines:
            found += event("talk", before, view.hider.hide(TalkLines(key=self._talk.key, lines=lines)))
            said = [view.hider.hide(said_line(line)) for line in lines]
            rendered = [self._call.render(Part(f"l{line.n}", "line", line)) for line in said]
            found += event("parts", before, Parts(seq=view.seq, set=rendered))
        parts = self._call.take(_call_parts(view, call), view.seq)
        return found + (b"" if parts is None else event("parts", before, parts))


def _call_parts(view: RunView, call: Call | None) -> list[Part]:
    """The parts of the page of a call besides its lines."""
    if call is None:
        return []
    return [Part("call", "call", view.hider.hide(call)), Part("reply", "reply", read_reply(view, call))]


def _end_of(view: RunView, row: int) -> tuple[int, StepStatus]:
    step = view.spans.step(row, view.seq)
    return step.ended_us, step.status


class _TalkFile:
    """The transcript of one call, read as it grows."""

    def __init__(self, key: str, after: int) -> None:
        self.key = key
        self._after = after
        self._agent = ""
        self._offset = 0

    def call(self, view: RunView) -> Call | None:
        """The call at the entry of a view; ``None`` if it had not begun."""
        try:
            return read_call(view, find_call(view, self.key))
        except BartackError:
            return None

    def read(self, view: RunView) -> tuple[Call | None, list[Line]]:
        """The call as it is now, and its lines since the last time."""
        call = self.call(view)
        if call is None:
            return None, []
        folders = [self._agent] if self._agent else agent_folders(view, call.agent)
        for agent in folders:
            lines = self._new_lines(view, agent)
            if lines:
                self._agent = agent
                return call, lines
        return call, []

    def _new_lines(self, view: RunView, agent: str) -> list[Line]:
        descriptor = open_regular(str(view.run.path), f"agents/{agent}/{TRANSCRIPT}")
        if descriptor is None:
            return []
        with open(descriptor, "rb") as file:
            offset = self._offset if agent == self._agent else 0
            if os.fstat(descriptor).st_size < offset:
                offset = 0  # it was written anew
            file.seek(offset)
            data = file.read(LONGEST_TALK)
        whole = data[: data.rfind(b"\n") + 1] if b"\n" in data else b""
        if not whole and len(data) == LONGEST_TALK:
            whole = data  # a line that is longer than a frame is left out
        found: list[Line] = []
        for line in whole.split(b"\n"):
            read = read_transcript_line(view.hider, line, self.key) if self.key.encode() in line else None
            number = 0 if read is None else read.get("n")
            if read is not None and isinstance(number, int) and number > self._after:
                self._after = number
                found.append(read)
        if found or self._agent == agent:
            self._agent, self._offset = agent, offset + len(whole)
        return found
