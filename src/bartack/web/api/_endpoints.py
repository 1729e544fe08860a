"""The endpoints of the API that read, as one table. Routes, OpenAPI document and reference page are made from it.

To add an endpoint, write the function that reads its model (``reading/``), the members of its query (``_queries.py``), and a line.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from bartack.core import typed
from bartack.errors import RunBeingReadError, WebQueryError
from bartack.tracking import LineageQuery
from bartack.tracking.lineage.wire import LineageAnswer, SearchAnswer, SearchRequest
from bartack.web import _queries as q
from bartack.web._hide import Hider
from bartack.web._site import Site
from bartack.web.models._failure import Failure
from bartack.web.models._journal import Entries, Log
from bartack.web.models._mail import Letter, LetterRow, Messages
from bartack.web.models._model import Shown
from bartack.web.models._money import Money
from bartack.web.models._run import MailboxRow, Moment, Questions, Runs
from bartack.web.models._steps import StepFull, Steps, Timeline
from bartack.web.models._talk import Calls, Talk
from bartack.web.models._work import Program, ReceiptRow, Receipts, SnapshotDiff, Snapshots
from bartack.web.reading import (
    _failure,
    _journal,
    _lists,
    _mail,
    _money,
    _open,
    _patterns,
    _program,
    _receipts,
    _snapshots,
    _steps,
    _talk,
)
from bartack.web.reading._view import RunView

S = TypeVar("S", bound=msgspec.Struct)

ARTIFACT: Final = "/runs/{run}/receipts/{task}/{step}/artifacts/{number}"
"""A download, which ``_api.py`` answers."""
STREAMS: Final[dict[str, type[q.Query]]] = {"/events": q.ListEventsQuery, "/runs/{run}/events": q.EventsQuery}
"""Streams of events, which ``_stream.py`` answers, and the members of their queries."""


class Asked(NamedTuple):
    """A request: the site, the parts of its path, and its query."""

    site: Site
    path: dict[str, str]
    query: Any

    @property
    def run(self) -> str:
        """The run that its path names."""
        return self.path["run"]

    def number(self, name: str) -> int:
        """A part of its path that is a number.

        Raises:
            WebQueryError: It is not.
        """
        text = self.path[name]
        if not (text.isascii() and text.isdecimal() and len(text) <= 15):
            raise WebQueryError(name, "it must be a whole number from 0 on")
        return int(text)


class Endpoint(NamedTuple):
    """One line of the table. ``name`` is the operation."""

    name: str
    path: str
    what: str
    query: type[q.Query]
    answer: object
    """The type of its answer."""
    read: Callable[[Asked], Awaitable[object]]


async def _runs(asked: Asked) -> Runs:
    return await _lists.read_runs(asked.site, asked.query)


async def _questions(asked: Asked) -> Questions:
    return await _lists.read_all_questions(asked.site)


async def _run(asked: Asked) -> Moment:
    return await _open.open_moment(asked.site, asked.run, asked.query.at)


async def _view(asked: Asked) -> RunView:
    return await _open.open_view(asked.site, asked.run, asked.query.at)


async def _list_steps(asked: Asked) -> Steps:
    query: q.StepsQuery = asked.query
    wanted = _steps.StepFilter(
        query.worker, frozenset(query.kind), frozenset(query.status), query.q, everything=query.all
    )
    return await _steps.read_steps(await _view(asked), wanted, query.page)


async def _step(asked: Asked) -> StepFull:
    query: q.StepQuery = asked.query
    return await _steps.read_step(await _view(asked), query.p, query.n, query.row)


async def _timeline(asked: Asked) -> Timeline:
    query: q.TimelineQuery = asked.query
    return _steps.read_timeline(await _view(asked), query.from_us, query.to_us, query.px)


async def _messages(asked: Asked) -> Messages:
    query: q.MessagesQuery = asked.query
    return await _mail.read_messages(
        await _view(asked),
        mailbox=query.mailbox,
        worker=query.worker,
        status=frozenset(query.status),
        before=query.before,
    )


async def _mailboxes(asked: Asked) -> list[MailboxRow]:
    return _mail.read_mailboxes(await _view(asked))


async def _letters(asked: Asked) -> list[LetterRow]:
    return _mail.read_letters(await _view(asked), asked.query.state)


async def _letter(asked: Asked) -> Letter:
    return _mail.read_letter(await _view(asked), asked.path["letter"])


async def _calls(asked: Asked) -> Calls:
    return await _talk.read_calls(await _view(asked), asked.query.before)


async def _one_talk(asked: Asked) -> Talk:
    query: q.TalkQuery = asked.query
    return await _talk.read_talk(await _view(asked), asked.path["key"], query.after, raw=query.raw)


async def _why(asked: Asked) -> Failure:
    return _failure.read_failure(await _view(asked))


async def _cost(asked: Asked) -> Money:
    return await _money.read_money(await _view(asked))


async def _all_receipts(asked: Asked) -> Receipts:
    return await _receipts.read_receipts(await _view(asked), asked.site.verifier)


async def _receipt(asked: Asked) -> ReceiptRow:
    step = asked.number("step")
    return await _receipts.read_receipt(await _view(asked), asked.path["task"], step, asked.site.verifier)


async def _all_snapshots(asked: Asked) -> Snapshots:
    return _snapshots.read_snapshots(await _view(asked))


async def _diff(asked: Asked) -> SnapshotDiff:
    return await _snapshots.read_snapshot_diff(await _view(asked), asked.query.a, asked.query.b)


async def _entries(asked: Asked) -> Entries:
    query: q.EntriesQuery = asked.query
    try:
        view = await _view(asked)
    except RunBeingReadError:
        if query.first:
            raise
        return _journal.read_last_entries(
            await _open.follow(asked.site, asked.run), asked.site.settings, query.limit
        )
    return _journal.read_entries(view, query.first or view.seq - query.limit + 1, query.limit)


async def _value(asked: Asked) -> Shown:
    return await _journal.read_value(await _view(asked), asked.number("seq"))


async def _log(asked: Asked) -> Log:
    return await _journal.read_log(await _view(asked), asked.query.before)


async def _source(asked: Asked) -> Program:
    return await _program.read_program(await _view(asked))


async def _search(asked: Asked) -> SearchAnswer:
    query: q.SearchQuery = asked.query
    request = SearchRequest(query=query.q, limit=query.limit, cursor=query.cursor)
    return _plain(asked, await _patterns.ask_lineage(lambda store: store.search(request)))


async def _pattern(asked: Asked) -> LineageAnswer:
    query: q.PatternQuery = asked.query
    members = {name: value for name, value in msgspec.structs.asdict(query).items() if value is not None}
    try:
        wanted = typed.convert(members, LineageQuery)
    except msgspec.ValidationError as error:
        raise WebQueryError("version", str(error).partition(" - at ")[0]) from None
    pattern = asked.path["pattern"]
    return _plain(asked, await _patterns.ask_lineage(lambda store: store.lineage(pattern, wanted)))


def _plain(asked: Asked, answer: S) -> S:
    """An answer of the lineage database without the secrets of this user."""
    places = asked.site.workspaces
    hider: Hider = asked.site.settings.hider(str(places[0]) if places else "")
    return hider.hide_any(answer)


ENDPOINTS: Final = (
    Endpoint("runs", "/runs", "List runs, the newest first.", q.RunsQuery, Runs, _runs),
    Endpoint("questions", "/questions", "List the open questions of all runs.", q.Nothing, Questions, _questions),
    Endpoint("run", "/runs/{run}", "Show a run after an entry.", q.AtQuery, Moment, _run),
    Endpoint("steps", "/runs/{run}/steps", "List steps, 200 a page.", q.StepsQuery, Steps, _list_steps),
    Endpoint("step", "/runs/{run}/step", "Show one step in full.", q.StepQuery, StepFull, _step),
    Endpoint("timeline", "/runs/{run}/timeline", "Draw a part of the timeline.", q.TimelineQuery, Timeline, _timeline),
    Endpoint("messages", "/runs/{run}/messages", "List messages, at most 200.", q.MessagesQuery, Messages, _messages),
    Endpoint("mailboxes", "/runs/{run}/mailboxes", "List mailboxes.", q.AtQuery, list[MailboxRow], _mailboxes),
    Endpoint("letters", "/runs/{run}/letters", "List dead letters.", q.LettersQuery, list[LetterRow], _letters),
    Endpoint("letter", "/runs/{run}/letters/{letter}", "Show a dead letter with its message.", q.AtQuery, Letter, _letter),
    Endpoint("calls", "/runs/{run}/talk", "List calls of agents, at most 200.", q.BeforeQuery, Calls, _calls),
    Endpoint("talk", "/runs/{run}/talk/{key}", "Show one call and the lines of its transcript.", q.TalkQuery, Talk, _one_talk),
    Endpoint("failure", "/runs/{run}/failure", "Show why a run failed, and crashes.", q.AtQuery, Failure, _why),
    Endpoint("money", "/runs/{run}/money", "Show what agents have cost and used.", q.AtQuery, Money, _cost),
    Endpoint("receipts", "/runs/{run}/receipts", "List receipts, compared with the files.", q.AtQuery, Receipts, _all_receipts),
    Endpoint("receipt", "/runs/{run}/receipts/{task}/{step}", "Show one receipt.", q.AtQuery, ReceiptRow, _receipt),
    Endpoint("snapshots", "/runs/{run}/snapshots", "List snapshots of the workspace.", q.AtQuery, Snapshots, _all_snapshots),
    Endpoint("diff", "/runs/{run}/snapshots/diff", "Compare two snapshots.", q.DiffQuery, SnapshotDiff, _diff),
    Endpoint("entries", "/runs/{run}/entries", "Show entries of the journal.", q.EntriesQuery, Entries, _entries),
    Endpoint("value", "/runs/{run}/value/{seq}", "Show the value of an entry.", q.ValueQuery, Shown, _value),
    Endpoint("log", "/runs/{run}/log", "Show the transcript, at most 200 lines.", q.BeforeQuery, Log, _log),
    Endpoint("program", "/runs/{run}/program", "Show the program, and what differs from it now.", q.AtQuery, Program, _source),
    Endpoint("patterns", "/patterns", "Find patterns by words.", q.SearchQuery, SearchAnswer, _search),
    Endpoint("pattern", "/patterns/{pattern}", "Show the relatives of a pattern.", q.PatternQuery, LineageAnswer, _pattern),
)  # fmt: skip
