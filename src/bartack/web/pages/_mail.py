"""Messages as a sequence diagram and a table, mailboxes, dead letters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, get_args
from urllib.parse import urlencode

from bartack.messaging.letter import LetterState
from bartack.runtime.state.spans.rows import StayStatus
from bartack.web._queries import AtQuery, LettersQuery, MessagesQuery
from bartack.web.pages._frame import RunPage, RunTab
from bartack.web.pages._sequence import draw_sequence
from bartack.web.reading._mail import read_letter, read_letters, read_mailboxes, read_messages


async def _read_messages(page: RunPage) -> Mapping[str, object]:
    query: MessagesQuery = page.query
    found = await read_messages(
        page.view,
        mailbox=query.mailbox,
        worker=query.worker,
        status=frozenset(query.status),
        before=query.before,
    )
    return {
        "found": found,
        "query": query,
        "statuses": get_args(StayStatus),
        "drawing": draw_sequence(found.messages),
        "earlier": _address(query, found.next) if found.next else "",
        "latest": _address(query, 0) if query.before else "",
    }


def _address(query: MessagesQuery, before: int) -> str:
    members = {
        "mailbox": query.mailbox,
        "worker": query.worker,
        "status": list(query.status),
        "before": before,
        "at": query.at,
    }
    return f"?{urlencode({name: value for name, value in members.items() if value}, doseq=True)}"


async def _read_mailboxes(page: RunPage) -> Mapping[str, object]:
    query: LettersQuery = page.query
    return {
        "boxes": read_mailboxes(page.view),
        "letters": read_letters(page.view, query.state),
        "states": get_args(LetterState),
        "query": query,
    }


async def _read_letter(page: RunPage) -> Mapping[str, object]:
    return {"letter": read_letter(page.view, page.path["letter"])}


MESSAGES: Final = RunTab("messages", "Messages", "messages.html", _read_messages, MessagesQuery)
MAILBOXES: Final = RunTab("mailboxes", "Mailboxes", "mailboxes.html", _read_mailboxes, LettersQuery)
LETTER: Final = RunTab("letters/{letter}", "", "letter.html", _read_letter, AtQuery, parent="mailboxes")
