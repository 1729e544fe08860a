"""The calls of agents, and one call: prompt, what the agent says and does as it comes, reply, usage, attempts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, cast
from urllib.parse import quote, urlencode

from bartack.web._queries import BeforeQuery, TalkQuery
from bartack.web.models._model import Shown
from bartack.web.models._talk import Talk
from bartack.web.pages._frame import EVENTS, RunPage, RunTab
from bartack.web.reading._said import said_line
from bartack.web.reading._talk import read_calls, read_reply, read_talk
from bartack.web.streams._parts import Part


async def _read(page: RunPage) -> Mapping[str, object]:
    query: BeforeQuery = page.query
    return {"calls": await read_calls(page.view, query.before), "query": query}


async def _read_one(page: RunPage) -> Mapping[str, object]:
    query: TalkQuery = page.query
    talk = await read_talk(page.view, page.path["key"], query.after, raw=query.raw)
    lines = [said_line(line) for line in talk.lines]
    reads_on = page.view.is_live and not query.raw and not query.after
    return {
        "talk": talk,
        "query": query,
        "call": [Part("call", "call", talk.call)],
        "lines": [Part(f"l{line.n}", "line", line) for line in lines],
        "asked": _members(talk.prompt),
        "reply": [Part("reply", "reply", read_reply(page.view, talk.call))],
        **({"stream": _stream(page, talk)} if reads_on else {}),
    }


def _stream(page: RunPage, talk: Talk) -> str:
    members = {"view": "talk", "talk": talk.call.key, "after": talk.next, "since": page.view.seq}
    return f"{EVENTS.format(run=quote(page.view.run.id))}?{urlencode(members)}"


def _members(value: Shown | None) -> Mapping[str, object]:
    """The members of a prompt that are not empty; none if it is cut."""
    if value is None or not isinstance(value.value, dict):
        return {}
    members = cast("dict[str, object]", value.value)
    return {name: member for name, member in members.items() if member not in (None, "", [], {})}


PAGE: Final = RunTab("talk", "Agents", "talk.html", _read, BeforeQuery)
ONE: Final = RunTab("talk/{key}", "", "call.html", _read_one, TalkQuery, parent="talk")
