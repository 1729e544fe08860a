"""Finds one step of a run without decoding the whole journal: only lines that name the step or its worker are decoded.

The result equals that of a ``Timeline`` of the whole journal; a test compares the two. Small journals are read as a whole, which
also checks that they are intact.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

from bartack.errors import JournalCorruptError, RunNotFoundError
from bartack.journal import Entry, FileReader, open_reader
from bartack.runtime.protocol.paths import parse_call, worker_path
from bartack.runtime.rundir.layout import RunDir
from bartack.runtime.state import entries as e
from bartack.runtime.state.timeline import StepRecord, Timeline, parse_step

LARGE: Final = 4 * 1024 * 1024
"""A journal with more bytes than this is searched instead of read as a whole."""

_HEAD: Final = 64
"""Entries at the beginning of a journal that describe the run."""

_encode: Final = msgspec.json.Encoder().encode


class FoundStep(NamedTuple):
    """A step, with what is needed to show it."""

    run: e.RunCreated
    step: StepRecord | None
    """Its record; ``None`` if the journal has no such step."""
    value: bytes | None
    """Its outcome as encoded JSON, if it has one."""


def find_step(run: RunDir, asked: str, large: int = LARGE) -> FoundStep:
    """The step that a person means by ``path:n``, or by ``n`` alone: a step of the first worker.

    Raises:
        RunNotFoundError: The journal has no run in it.
        JournalCorruptError: A line that was looked at is damaged.
    """
    with open_reader(run.path) as reader:
        created = _created(reader)
        if created is None:
            raise RunNotFoundError(run.id)
        named = parse_step(asked, created.name)
        if named is None:
            return FoundStep(created, None, None)
        found = None if run.journal.stat().st_size <= large else _about(reader, *named)
        timeline = Timeline.of(reader.read() if found is None else found)
        step = timeline.step(*named)
        if step is None or not step.seq:
            return FoundStep(created, step, None)
        places = reader.read(step.seq) if found is None else found
        entry = next((entry for entry in places if entry.seq == step.seq), None)
        return FoundStep(created, step, None if entry is None else reader.load_value(entry))


def _created(reader: FileReader) -> e.RunCreated | None:
    for entry in reader.read():
        data = e.decode_entry(entry.kind, entry.raw)
        if isinstance(data, e.RunCreated):
            return data
        if entry.seq >= _HEAD:
            return None
    return None


def _about(reader: FileReader, p: str, n: int) -> list[Entry] | None:
    """The entries of a journal that decide the record of one step, in order; ``None`` if it has to be read as a whole."""
    try:
        return _searched(reader, p, n)
    except JournalCorruptError:
        return None  # or a line is just being written: reading the whole journal shows which


def _searched(reader: FileReader, p: str, n: int) -> list[Entry]:
    called = parse_call(p)
    place = (called.p, called.n) if called is not None and not n else (p, n)
    owner = worker_path(place[0])
    step = b'"p":%b,"n":%d' % (_encode(place[0]), place[1])
    needles = [step + b",", step + b"}", b'"path":%b' % _encode(owner), b'"kind":"run.', b'"kind":"hub.']
    found = [entry for entry in reader.search(needles) if _concerns(entry, place, owner)]
    rewinds = [
        (data.to, entry.seq)
        for entry in found
        if isinstance(data := e.decode_entry(entry.kind, entry.raw), e.WorkerRewound) and data.to
    ]
    if not rewinds:
        return found
    # What a rewind undoes follows from everything that its worker did since the failure.
    seen = {entry.seq for entry in found}
    first, last = min(to for to, _ in rewinds), max(seq for _, seq in rewinds)
    for entry in reader.read(first):
        if entry.seq > last:
            break
        if (
            entry.seq not in seen
            and any(to <= entry.seq <= seq for to, seq in rewinds)
            and _is_of(entry, owner)
        ):
            found.append(entry)
    return sorted(found, key=lambda entry: entry.seq)


def _concerns(entry: Entry, place: tuple[str, int], owner: str) -> bool:
    data = e.decode_entry(entry.kind, entry.raw)
    if (getattr(data, "p", None), getattr(data, "n", None)) == place:
        return True
    return getattr(data, "path", None) == owner or entry.kind.startswith(("run.", "hub."))


def _is_of(entry: Entry, owner: str) -> bool:
    """Whether an entry is about a step of a worker, or of one of its branches."""
    data = e.decode_entry(entry.kind, entry.raw)
    p = getattr(data, "p", "")
    return bool(p) and getattr(data, "path", None) is None and worker_path(p) == owner
