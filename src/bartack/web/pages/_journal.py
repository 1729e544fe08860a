"""The transcript, the entries of the journal as they are, and the program that the run executes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from bartack.web._queries import BeforeQuery, EntriesQuery
from bartack.web.pages._frame import RunPage, RunTab
from bartack.web.reading._journal import read_entries, read_log
from bartack.web.reading._program import read_program


async def _read_log(page: RunPage) -> Mapping[str, object]:
    query: BeforeQuery = page.query
    return {"log": await read_log(page.view, query.before), "query": query}


async def _read_entries(page: RunPage) -> Mapping[str, object]:
    query: EntriesQuery = page.query
    found = read_entries(page.view, query.first or page.view.seq - query.limit + 1, query.limit)
    first = found.entries[0].seq if found.entries else 0
    return {
        "found": found,
        "query": query,
        "first": first,
        "earlier": max(first - query.limit, 1) if first > 1 else 0,
        "last_page": max(page.view.seq - query.limit + 1, 1) if found.next else 0,
    }


async def _read_program(page: RunPage) -> Mapping[str, object]:
    return {"program": await read_program(page.view)}


LOG: Final = RunTab("log", "Log", "log.html", _read_log, BeforeQuery)
JOURNAL: Final = RunTab("journal", "Journal", "journal.html", _read_entries, EntriesQuery)
PROGRAM: Final = RunTab("program", "Program", "program.html", _read_program)
