"""What a hook event becomes: a pattern event, a record, or a dead row that keeps its bytes.

Rows come in as raw bytes, so that making them durable costs nothing else; here they are read. No part of an event is ever
executed or made part of a command.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import stat
from collections.abc import Mapping
from typing import Final, NamedTuple, cast

from bartack.errors import ResilienceError
from bartack.resilience import NewEvent, Outbox, Settings
from bartack.resilience.cache import TakenBackError
from bartack.resilience.mirror import encode_event, parse_object
from bartack.resilience.outbox.outbox import bump
from bartack.resilience.outbox.row import Claim, Verdict
from bartack.resilience.spool import Header, split_event
from bartack.tracking.daemon._transcript import remember_transcript, unseen_calls
from bartack.tracking.pattern._event import ArgumentFault, Draft, Drafter

_log = logging.getLogger("bartack.tracking")
HOOK: Final = "hook"
PATTERN: Final = "pattern"
_EDITS: Final = {"Edit", "MultiEdit", "NotebookEdit"}
_FILE_MOST: Final = 8 * 1024 * 1024
Body = Mapping[str, object]


class ToolCall(NamedTuple):
    """A finished tool call that wrote a file."""

    tool: str
    path: str
    code: str


class HookProcessor:
    """Turns the raw hook events of one outbox into what they mean."""

    def __init__(self, outbox: Outbox, settings: Settings) -> None:
        self._outbox = outbox
        self._settings = settings
        self._drafter = Drafter(outbox.store, keep_code=settings.store == "code")

    def process(self, limit: int = 16) -> int:
        """Turn some waiting events; how many there were."""
        claims = self._outbox.claim(kind=HOOK, limit=limit)
        for claim in claims:
            try:
                self._turn(claim)
            except ResilienceError:
                raise
            except Exception:  # noqa: BLE001 - the row must not come back again and again, whatever is in it
                _log.exception("hook event %s could not be read", claim.event_id)
                self._outbox.settle([(claim, Verdict("dead", "unparsable"))])
        return len(claims)

    def _turn(self, claim: Claim) -> None:
        header, raw = split_event(claim.payload)
        body = parse_object(raw)
        if body is None:
            self._outbox.settle([(claim, Verdict("dead", "unparsable"))])
            return
        self._reconcile(header, body)
        draft = self._draft(header, body) if self._settings.enabled else None
        if draft is None:
            self._outbox.keep_as_record(claim)
            return
        self._replace(claim, draft)

    def _replace(self, claim: Claim, draft: Draft) -> None:
        draft.event["event_id"] = claim.event_id
        event = NewEvent(claim.event_id, PATTERN, self._settings.url, encode_event(draft.event))
        wall = self._outbox.store.wall()
        try:
            self._outbox.replace(claim, event, beside=lambda connection: draft.remember(connection, wall))
        except TakenBackError:
            self._outbox.store.write(lambda connection: bump(connection, "duplicates", 1), durable=False)
            self._outbox.keep_as_record(claim)

    def _draft(self, header: Header, body: Body) -> Draft | None:
        call = tool_call(header, body)
        if call is None:
            return None
        context: dict[str, object] = {
            "file_path": call.path,
            "tool_name": call.tool,
            "session_id": session_of(body),
            "cwd": header.cwd,
        }
        context |= {"tool_use_id": body["tool_use_id"]} if body.get("tool_use_id") else {}
        context |= {"run": header.run} if header.run else {}
        parent = self._drafter.pattern_of_file(call.path)
        draft = (
            self._drafter.created(call.code, context)
            if parent is None
            else self._drafter.modified(parent, call.code, context, by_path=True)
        )
        return None if isinstance(draft, ArgumentFault) else draft

    def _reconcile(self, header: Header, body: Body) -> None:
        path = body.get("transcript_path")
        if not isinstance(path, str) or not path:
            return
        if header.event == "SessionStart":
            remember_transcript(self._outbox.store, path)
        elif header.event in {"Stop", "SessionEnd"}:
            fill_in(self._outbox, path, header.cwd)


def fill_in(outbox: Outbox, transcript: str, cwd: str) -> int:
    """Add the tool calls of a transcript that no hook has reported; how many there were."""
    calls, offset = unseen_calls(outbox.store, transcript)
    events: list[NewEvent] = []
    for call in calls:
        header = Header("PostToolUse", call.at_ns, call.cwd or cwd)
        events.append(
            NewEvent(call.event_id, HOOK, "local", header.encode() + b"\n" + encode_event(call.body))
        )

    def remember(connection: sqlite3.Connection) -> None:
        remember_offset = "INSERT OR REPLACE INTO offsets VALUES(?,?,?)"
        connection.execute(remember_offset, (transcript, offset, outbox.store.wall()))

    return sum(outbox.put(events, beside=remember))


def session_of(body: Body) -> str:
    """The agent's session, in either spelling."""
    return str(body.get("session_id") or body.get("sessionId") or "")


def tool_call(header: Header, body: Body) -> ToolCall | None:
    """The file that a finished tool call wrote, with its content; ``None`` if it wrote none."""
    if header.event != "PostToolUse":
        return None
    tool = str(body.get("tool_name") or "")
    given, answer = _object(body.get("tool_input")), _object(body.get("tool_response"))
    path = next(
        (
            str(found)
            for found in (given.get("file_path"), given.get("notebook_path"), answer.get("filePath"))
            if found
        ),
        "",
    )
    if not path or "\0" in path:
        return None
    path = os.path.normpath(os.path.join(header.cwd or "/", os.path.expanduser(path)))
    if tool == "Write":
        code: object = given.get("content")
    elif tool in _EDITS:
        code = _edited(given, answer) or _from_disk(path)
    else:
        return None
    return ToolCall(tool, path, code) if isinstance(code, str) else None


def _object(value: object) -> dict[str, object]:
    return cast("dict[str, object]", value) if isinstance(value, dict) else {}


def _edited(given: Body, answer: Body) -> str | None:
    """The content after an edit, if the answer has it."""
    if isinstance(answer.get("content"), str):
        return str(answer["content"])
    before = answer.get("originalFile")
    edits = given.get("edits") if isinstance(given.get("edits"), list) else [given]
    if not isinstance(before, str):
        return None
    text = before
    for edit in cast("list[object]", edits):
        step = _object(edit)
        old, new = step.get("old_string"), step.get("new_string")
        if not isinstance(old, str) or not isinstance(new, str) or (old and old not in text):
            return None
        text = text.replace(old, new, -1 if step.get("replace_all") else 1)
    return text


def _from_disk(path: str) -> str | None:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    except OSError:
        return None
    with open(fd, "rb") as file:
        facts = os.fstat(fd)
        if not stat.S_ISREG(facts.st_mode) or facts.st_size > _FILE_MOST:
            return None
        return file.read(_FILE_MOST).decode("utf-8", "replace")
