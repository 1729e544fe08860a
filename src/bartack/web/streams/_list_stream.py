"""The events of lists: the rows of runs, or the cards of open questions, that changed."""

from __future__ import annotations

import asyncio
from contextlib import AbstractContextManager
from hashlib import sha256
from typing import Final
from urllib.parse import urlencode

import msgspec

from bartack.web._queries import ListEventsQuery, RunsQuery
from bartack.web._site import Site
from bartack.web._templates import PartRenderer
from bartack.web.models._events import Hello, Reset
from bartack.web.models._parts import Filter, Filters
from bartack.web.models._run import Question, Runs, RunStatus
from bartack.web.reading._lists import read_all_questions, read_runs
from bartack.web.streams._parts import Part
from bartack.web.streams._run_stream import ChangedParts
from bartack.web.streams._sse import MOST_BYTES, event

NEVER_S: Final = 3600.0
_DIGITS: Final = 16

GROUPS: Final[dict[str, tuple[RunStatus, ...]]] = {
    "all": (),
    "active": ("running", "waiting"),
    "waiting": ("waiting",),
    "failed": ("failed",),
    "interrupted": ("interrupted",),
    "completed": ("completed",),
}
"""The filters above the list of runs: their words, and the statuses that they stand for."""

_encode: Final = msgspec.json.Encoder().encode


class ListStream:
    """The events of a list for one page.

    Args:
        site: The site.
        query: Which list, and what it shows already.
        renderer: Renders parts of the page.
    """

    def __init__(self, site: Site, query: ListEventsQuery, renderer: PartRenderer) -> None:
        self._site = site
        self._query = query
        self._changed = ChangedParts(renderer)
        self._is_first = True
        self.is_over = False
        self.poll_s = NEVER_S

    def listen(self) -> AbstractContextManager[asyncio.Event]:
        """See ``EventStream``."""
        return self._site.runs.listen()

    def hello(self) -> bytes:
        """The first event."""
        return event("hello", 0, Hello(seq=0, read_only=self._site.read_only, server=self._site.mark))

    async def frame(self, *, is_late: bool) -> bytes:
        """See ``EventStream``."""
        parts = await self._parts()
        if self._is_first or is_late:
            # The page has just been rendered, or has to be rendered anew.
            self._changed.keep(parts)
            was_first, self._is_first = self._is_first, False
            is_same = was_first and self._query.state in {"", state_of(parts)}
            return b"" if is_same else event("reset", 0, Reset(why="behind"))
        changed = self._changed.take(parts, 0)
        data = b"" if changed is None else event("parts", 0, changed)
        return event("reset", 0, Reset(why="behind")) if len(data) > MOST_BYTES else data

    async def _parts(self) -> list[Part]:
        query = self._query
        if query.view == "questions":
            found = await read_all_questions(self._site)
            return await question_parts(self._site, found.questions)
        runs = RunsQuery(status=query.status, q=query.q, ws=query.ws, limit=query.limit)
        return run_parts(await read_runs(self._site, runs), runs)


def run_parts(runs: Runs, query: RunsQuery) -> list[Part]:
    """The parts of the list of runs: the filters above it, and its rows."""
    filters = Filters(
        filters=[
            Filter(
                name=name,
                address=list_address(query, status=list(statuses), after=""),
                is_current=set(query.status) == set(statuses),
                count=sum(runs.counts.get(status, 0) for status in statuses or runs.counts),
            )
            for name, statuses in GROUPS.items()
        ]
    )
    return [Part("filters", "filters", filters), *(Part(f"r{row.row}", "run", row) for row in runs.runs)]


def list_address(query: RunsQuery, **changes: object) -> str:
    """The address of the list of runs with this query, but for some of its members."""
    members = {"status": list(query.status), "q": query.q, "ws": query.ws, "after": query.after, **changes}
    given = {name: value for name, value in members.items() if value}
    return f"/runs?{urlencode(given, doseq=True)}" if given else "/runs"


async def question_parts(site: Site, questions: list[Question]) -> list[Part]:
    """The parts of the list of open questions."""
    listed = {one.run.id: one.row.row for one in await site.runs.rows()}
    return [
        Part(f"r{listed.get(one.run, 0)}e{one.seq}", "question", msgspec.structs.replace(one, left_s=None))
        for one in questions
    ]


def state_of(parts: list[Part]) -> str:
    """A mark of what a page shows, by which its stream knows whether it is still so."""
    return sha256(_encode([(part.id, part.model) for part in parts])).hexdigest()[:_DIGITS]
