"""The entries of a journal as they are, their values, and the transcript."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from typing import Final, cast

import msgspec

from bartack.core import typed
from bartack.errors import NotShownError
from bartack.journal import Entry
from bartack.runtime.protocol.paths import worker_path
from bartack.runtime.rundir.follower import TAIL
from bartack.runtime.state import entries as e
from bartack.runtime.state.spans.rows import RunMark
from bartack.web._hide import Hider
from bartack.web._settings import SiteSettings
from bartack.web._threads import in_thread
from bartack.web.following._follow import Followed
from bartack.web.following._pauses import LOOKED, Pauses
from bartack.web.models._journal import Entries, EntryRow, Log, LogLine
from bartack.web.models._model import Shown
from bartack.web.models._steps import BlobFacts
from bartack.web.reading._view import LOST, RunView

MOST_ENTRIES: Final = 500
MOST_BYTES: Final = 1024 * 1024
"""Bytes of entries in one answer."""
LINES: Final = 200
"""Lines of the transcript in one answer."""
NEAR: Final = 256
"""Texts that are this many entries apart are read in one go."""
MOST_TEXT: Final = 64 * 1024
"""Characters of a text of the transcript that are shown."""


# Entries.


def read_entries(view: RunView, first: int, limit: int) -> Entries:
    """The entries from a place on, at most this many, up to the one that is shown.

    Raises:
        JournalError: The journal cannot be read there.
    """
    first = max(first, 1)
    count = max(min(limit, MOST_ENTRIES, view.seq - first + 1), 0)
    found = view.followed.follower.entries(first, count) if count else []
    return _entries(view.hider, found, view.seq)


def read_last_entries(followed: Followed, settings: SiteSettings, limit: int) -> Entries:
    """The last entries of a journal that is still being read."""
    found = followed.follower.tail(min(limit, TAIL))
    workspace = str(followed.run.path.parent.parent.parent)
    return _entries(settings.hider(workspace), found, found[-1].seq if found else 0)


def _entries(hider: Hider, found: list[Entry], last: int) -> Entries:
    rows: list[EntryRow] = []
    size = 0
    for entry in found:
        rows.append(entry_row(hider, entry))
        size += len(bytes(entry.raw)) + (0 if entry.value is None else len(bytes(entry.value)))
        if size > MOST_BYTES:
            break
    following = rows[-1].seq + 1 if rows else 0
    return Entries(entries=rows, next=following if 0 < following <= last else 0, last_seq=last)


def entry_row(hider: Hider, entry: Entry) -> EntryRow:
    """An entry without secrets. A value that is not in the entry is read by its address."""
    data = hider.show(bytes(entry.raw)).value
    row = EntryRow(
        seq=entry.seq,
        commit=entry.commit,
        at=entry.at,
        kind=entry.kind,
        data=cast("dict[str, object]", data) if isinstance(data, dict) else {},
        blob=None if entry.ref is None else BlobFacts(sha256=entry.ref.sha256, size=entry.ref.size),
    )
    value = None if entry.value is None else hider.show(bytes(entry.value))
    return msgspec.structs.replace(hider.hide(row), value=value)


async def read_value(view: RunView, seq: int) -> Shown:
    """The value of an entry: whole, or its beginning if it is long.

    Raises:
        NotShownError: There is no such entry, or it has no value.
        JournalError: The journal or the value cannot be read.
    """
    return view.hider.show(await _load(view, seq))


async def read_whole_value(view: RunView, seq: int) -> bytes:
    """The whole value of an entry as JSON, without secrets, for a download. See ``read_value``."""
    value = await _load(view, seq)
    return await in_thread(lambda: view.hider.data(value))


async def _load(view: RunView, seq: int) -> bytes:
    entry = view.entry(seq)
    value = await view.load_large(entry)
    if value is None:
        raise NotShownError(f"entry {seq} of {view.run.id} has no value")
    return value


# The transcript.


async def read_log(view: RunView, before: int = 0) -> Log:
    """The last lines of the transcript, in order: what workers printed and logged, and what happened to the run.

    Args:
        view: The run.
        before: Only lines before this entry.
    """
    last = min(before - 1, view.seq) if before else view.seq
    outputs = output_places(view, last, LINES + 1)
    marks = [mark for mark in view.spans.marks if mark.seq <= last][-LINES:]
    places = sorted({*outputs, *(mark.seq for mark in marks)})
    chosen = set(places[-LINES:])
    texts = await _read_texts(view, [seq for seq in outputs if seq in chosen])
    notes = [
        LogLine(seq=mark.seq, at=mark.us, worker=mark.path, text=_note(mark))
        for mark in marks
        if mark.seq in chosen
    ]
    lines = sorted([*texts, *notes], key=lambda line: line.seq)
    return view.hider.hide(
        Log(lines=lines, next=min(chosen) if len(places) > len(chosen) else 0, seq=view.seq)
    )


def _note(mark: RunMark) -> str:
    """What happened to the run, in a line."""
    text = mark.text.rstrip(": ")
    if mark.kind == "resume":
        return text
    return f"run {text}" if mark.kind == "end" else f"{mark.kind}: {text}"


def output_places(view: RunView, last: int, most: int) -> list[int]:
    """The entries of the last texts up to an entry, at most this many, in order."""
    columns = view.spans.columns
    count = bisect_left(columns.outputs, columns.rows.opened_by(last))
    return [columns.rows.opened[row] for row in columns.outputs[max(count - most, 0) : count]]


async def _read_texts(view: RunView, places: list[int]) -> list[LogLine]:
    """The texts of entries."""
    found: list[LogLine] = []
    pauses = Pauses()
    for near in _near(places):
        found += _read_near(view, near)
        await pauses.take(LOOKED)
    return found


def read_output(view: RunView, most: int) -> list[LogLine]:
    """The last texts that workers printed or logged, with secrets."""
    places = output_places(view, view.seq, most)
    return [line for near in _near(places) for line in _read_near(view, near)]


def _near(places: list[int]) -> Iterator[list[int]]:
    """Places that are so near to each other that they are read in one go."""
    while places:
        near = [seq for seq in places if seq - places[0] < NEAR]
        yield near
        places = places[len(near) :]


def _read_near(view: RunView, places: list[int]) -> list[LogLine]:
    wanted = set(places)
    entries = view.followed.follower.entries(places[0], places[-1] - places[0] + 1)
    return [_line(view, entry) for entry in entries if entry.seq in wanted]


def _line(view: RunView, entry: Entry) -> LogLine:
    data = entry.decode(e.OutputWritten)
    try:
        text = typed.decode(view.load(entry) or b'""', type=str)
    except (msgspec.DecodeError, RecursionError):
        text = ""
    except LOST as error:
        text = f"(not shown: {error.message}, {error.code})"
    return LogLine(
        seq=entry.seq,
        at=entry.at,
        worker=worker_path(data.p),
        channel="print" if data.channel == "print" else "log",
        text=text[:MOST_TEXT],
    )
