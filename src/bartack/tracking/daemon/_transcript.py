"""Reading an agent's transcript for tool calls that no hook has reported.

Best effort: a transcript is another program's file, and its shape may change. Lines that are not understood are passed over, a
file that has none that are is reported once. Reading continues where it ended; a call without its result yet is read again.
"""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Iterator
from typing import Final, NamedTuple, cast

from bartack.resilience import StateStore
from bartack.resilience.mirror import encode_event, parse_object
from bartack.resilience.spool import Header, hook_event_id

_log = logging.getLogger("bartack.tracking")
_TOOLS: Final = {"Write", "Edit", "MultiEdit", "NotebookEdit"}
_READ_MOST: Final = 64 * 1024 * 1024


class SeenCall(NamedTuple):
    """A finished tool call, as a hook would have reported it."""

    event_id: str
    at_ns: int
    cwd: str
    body: dict[str, object]


class _Waiting(NamedTuple):
    offset: int
    line: dict[str, object]
    call: dict[str, object]


def remember_transcript(store: StateStore, path: str) -> None:
    """Know a transcript from its start on."""
    store.write(
        lambda connection: connection.execute(
            "INSERT OR IGNORE INTO offsets VALUES(?,0,?)", (path, store.wall())
        ),
        durable=False,
    )


def unseen_calls(store: StateStore, path: str) -> tuple[list[SeenCall], int]:
    """The tool calls of a transcript after the place where reading ended, and where it ends now."""
    query = "SELECT offset FROM offsets WHERE transcript=?"
    found = store.read(lambda connection: connection.execute(query, (path,)).fetchone())
    start = int(found[0]) if found else 0
    calls: list[SeenCall] = []
    waiting: dict[str, _Waiting] = {}
    understood = lines = 0
    end = start
    for offset, raw in _lines(path, start):
        lines += 1
        end = offset + len(raw)
        line = parse_object(raw)
        if line is None or not isinstance(line.get("message"), dict):
            continue
        understood += 1
        for part in _parts(line):
            if part.get("type") == "tool_use" and part.get("name") in _TOOLS:
                waiting[str(part.get("id"))] = _Waiting(offset, line, part)
            elif part.get("type") == "tool_result":
                asked = waiting.pop(str(part.get("tool_use_id")), None)
                if asked and not part.get("is_error"):
                    calls.append(_seen(asked, line, store.wall()))
    if lines and not understood:
        _log.warning("transcript %s has an unknown shape and is skipped", path)
    return calls, min((one.offset for one in waiting.values()), default=end)


def _lines(path: str, start: int) -> Iterator[tuple[int, bytes]]:
    """Whole lines with their places; one that is still being written is left for the next time."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    except OSError:
        return
    with open(fd, "rb") as file:
        facts = os.fstat(fd)
        if not stat.S_ISREG(facts.st_mode):
            return
        offset = start if start <= facts.st_size else 0
        file.seek(offset)
        read = 0
        while read < _READ_MOST and (line := file.readline()).endswith(b"\n"):
            yield offset, line
            offset += len(line)
            read += len(line)


def _parts(line: dict[str, object]) -> list[dict[str, object]]:
    content = cast("dict[str, object]", line["message"]).get("content")
    found = cast("list[object]", content) if isinstance(content, list) else []
    return [cast("dict[str, object]", part) for part in found if isinstance(part, dict)]


def _seen(asked: _Waiting, result: dict[str, object], wall: float) -> SeenCall:
    body: dict[str, object] = {
        "session_id": asked.line.get("sessionId") or asked.line.get("session_id") or "",
        "hook_event_name": "PostToolUse",
        "tool_name": asked.call.get("name"),
        "tool_input": asked.call.get("input"),
        "tool_response": result.get("toolUseResult") or {},
        "tool_use_id": asked.call.get("id"),
    }
    header = Header("PostToolUse", int(wall * 1e9), str(asked.line.get("cwd") or ""))
    event_id = hook_event_id(header.encode() + b"\n" + encode_event(body))
    return SeenCall(event_id, header.received_ns, header.cwd, body)
