"""Lists over all runs: the runs themselves, and their open questions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from bartack.errors import BartackError
from bartack.web._queries import RunsQuery
from bartack.web.following._runs import ListedRun, count_statuses
from bartack.web.models._run import Question, Questions, RunRow, Runs
from bartack.web.reading._questions import last_questions, read_questions
from bartack.web.reading._view import RunView

if TYPE_CHECKING:
    from bartack.web._site import Site

ACTIVE: Final = frozenset({"running", "waiting"})


async def read_runs(site: Site, query: RunsQuery) -> Runs:
    """The runs that fit, the newest first, as a part of the list."""
    site.followers.hurry()
    listed = await site.runs.rows()
    found = [one for one in listed if _fits(one, query)]
    start = (
        next((place + 1 for place, one in enumerate(found) if one.run.id == query.after), 0)
        if query.after
        else 0
    )
    shown = found[start : start + query.limit]
    more = start + len(shown) < len(found)
    return Runs(
        runs=[shown_row(site, one) for one in shown],
        next=shown[-1].run.id if more else "",
        counts=count_statuses(listed),
        total=len(found),
        workspaces=[
            *(str(place) for place in site.workspaces),
            *(database.name for database in site.databases),
        ],
        problems=list(site.runs.problems),
    )


def shown_row(site: Site, listed: ListedRun) -> RunRow:
    """A run of the list without secrets."""
    return site.settings.hider(listed.row.ws).hide(listed.row)


def _fits(listed: ListedRun, query: RunsQuery) -> bool:
    return (
        (not query.status or listed.row.status in query.status)
        and (not query.ws or listed.row.ws == query.ws)
        and (not query.q or query.q.casefold() in listed.words)
    )


async def read_all_questions(site: Site) -> Questions:
    """The open questions of all runs, the oldest first.

    Those that the end of a journal asks are known at once. Of others the journal has to be read, which begins here.
    """
    found: list[Question] = []
    unread: list[str] = []
    for listed in await site.runs.rows():
        if listed.row.questions:
            program = shown_row(site, listed).program
            asked = [msgspec.structs.replace(one, program=program) for one in _questions_of(site, listed)]
            found += asked
            if len(asked) < len(listed.row.questions):
                unread.append(listed.run.id)
    return Questions(questions=sorted(found, key=lambda question: question.at), unread=unread)


def _questions_of(site: Site, listed: ListedRun) -> list[Question]:
    """The questions of one run, as far as they are known now."""
    followed = site.followers.look_at(listed.run)
    if not followed.is_here:
        return []
    if followed.follower.state == "building":
        try:
            # The first look opens the journal; the rest is read by the task that follows it.
            followed.follower.read(0.0)
            tail = followed.follower.tail()
        except BartackError:
            return []
        if followed.follower.state == "building":
            hider = site.settings.hider(listed.row.ws)
            found = last_questions(listed.run.id, listed.row.questions, tail, followed.follower.load, hider)
            return [msgspec.structs.replace(one, row=0) for one in found]
    followed.refresh()
    return read_questions(RunView(followed, None, site.settings))
