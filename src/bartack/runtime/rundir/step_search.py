"""Finds one step of a run without decoding the whole journal: only lines that name the step or its worker are decoded.

The result equals that of a ``Timeline`` of the whole journal; a test compares the two. The journal is read once; of a worker that
was set back, only the entries from its failure to there are read again. Small journals are read as a whole, which also checks that
they are intact.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Final, NamedTuple

import msgspec

from bartack.core import typed
from bartack.depot import KeptRun
from bartack.errors import JournalCorruptError, RunNotFoundError
from bartack.journal import Bookmark, Entry, JournalReader
from bartack.runtime.protocol.paths import parse_call, worker_path
from bartack.runtime.state import entries as e
from bartack.runtime.state.timeline import StepRecord, Timeline, parse_step

LARGE: Final = 512 * 1024
"""A journal with more bytes than this is searched instead of read as a whole."""

ASKING: Final = frozenset({"think", "ask"})
"""Kinds of steps whose ``step.started`` has what is asked."""

_encode: Final = msgspec.json.Encoder().encode


class FoundStep(NamedTuple):
    """A step, with what is needed to show it."""

    run: e.RunCreated
    step: StepRecord | None
    """Its record; ``None`` if the journal has no such step."""
    value: bytes | None
    """Its outcome as encoded JSON, if it has one."""
    asked: bytes | None = None
    """What it was asked, as encoded JSON, if the journal has that: of a prompt and of a question."""
    is_cut_off: bool = False
    """Its run has failed or was cancelled, so that it will not get an outcome unless the run is resumed."""
    unused: tuple[str, ...] = ()
    """Tools that its prompt offered and the agent has not called."""


def find_step(run: KeptRun, asked: str, large: int = LARGE) -> FoundStep:
    """The step that a person means by ``path:n``, or by ``n`` alone: a step of the first worker.

    Raises:
        RunNotFoundError: The journal has no run in it.
        JournalCorruptError: A line that was looked at is damaged.
    """
    with run.open_reader() as reader:
        found = None if reader.size_bytes <= large else _about(reader, asked)
        if found is None:
            found = list(reader.read())
        timeline = Timeline.of(found)
        created = timeline.state.run
        if created is None:
            raise RunNotFoundError(run.id)
        named = parse_step(asked, created.name)
        step = None if named is None else timeline.step(*named)
        if step is None:
            return FoundStep(created, None, None)
        ended = timeline.state.ended
        asks = _load(reader, step.started_seq, found) if step.kind in ASKING else None
        return FoundStep(
            created,
            step,
            _load(reader, step.seq, found),
            asks,
            ended is not None and ended.status != "completed",
            _unused(step, asks, found) if asks is not None and step.kind == "think" else (),
        )


class _Offered(msgspec.Struct):
    """The tools of a prompt; see ``ThinkArgs``."""

    class Tool(msgspec.Struct):
        """See ``ToolSpec``."""

        name: str

    tools: list[Tool] = []


def _unused(step: StepRecord, asked: bytes, found: list[Entry]) -> tuple[str, ...]:
    offered = typed.decode(asked, type=_Offered).tools
    calls = (e.decode_entry(entry.kind, entry.raw) for entry in found if entry.kind == e.ToolCalled.kind)
    place = (step.p, step.n)
    called = {call.tool for call in calls if isinstance(call, e.ToolCalled) and (call.p, call.n) == place}
    return tuple(tool.name for tool in offered if tool.name not in called)


def _load(reader: JournalReader, seq: int, found: list[Entry]) -> bytes | None:
    """The value of an entry that was read already, if it has one."""
    entry = next((entry for entry in found if entry.seq == seq), None) if seq else None
    return None if entry is None else reader.load_value(entry)


def _about(reader: JournalReader, asked: str) -> list[Entry] | None:
    """The entries of a journal that decide the record of one step, in order; ``None`` if it has to be read as a whole."""
    try:
        return _searched(reader, asked)
    except JournalCorruptError:
        return None  # or a line is just being written: reading the whole journal shows which


class _Wanted(NamedTuple):
    """The step that is searched for, and the path of its worker."""

    place: tuple[str, int]
    owner: str

    @classmethod
    def named(cls, asked: str, first: str) -> _Wanted:
        """The step that a person means, if ``first`` is the name of the first worker."""
        p, n = parse_step(asked, first) or ("", 0)
        called = parse_call(p)
        place = (called.p, called.n) if called is not None and not n else (p, n)
        return cls(place, worker_path(place[0]))

    def needles(self) -> list[bytes]:
        """Texts of which each line has one that may be about it. Without a path, those of all workers are found."""
        p, n = self.place
        step = b'"p":%b,"n":%d' % (_encode(p), n) if p else b'"n":%d' % n
        path = b'"path":%b' % _encode(self.owner) if p else b'"path":'
        return [step + b",", step + b"}", path, b'"kind":"run.', b'"kind":"hub.']


def _searched(reader: JournalReader, asked: str) -> list[Entry]:
    wanted = _Wanted.named(asked, "")
    lines: list[Bookmark] = []
    found: list[Entry] = []
    for entry in reader.search(wanted.needles(), lines):
        data = e.decode_entry(entry.kind, entry.raw)
        if isinstance(data, e.RunCreated):
            wanted = _Wanted.named(asked, data.name)
        if _concerns(entry, data, wanted):
            found.append(entry)
    owner = wanted.owner
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
    before = lines[max(bisect_right(lines, first, key=lambda line: line.seq) - 1, 0)]
    for entry in reader.read_from(before, first):
        if entry.seq > last:
            break
        if (
            entry.seq not in seen
            and any(to <= entry.seq <= seq for to, seq in rewinds)
            and _is_of(entry, owner)
        ):
            found.append(entry)
    return sorted(found, key=lambda entry: entry.seq)


def _concerns(entry: Entry, data: e.EntryData | None, wanted: _Wanted) -> bool:
    if (getattr(data, "p", None), getattr(data, "n", None)) == wanted.place:
        return True
    return getattr(data, "path", None) == wanted.owner or entry.kind.startswith(("run.", "hub."))


def _is_of(entry: Entry, owner: str) -> bool:
    """Whether an entry is about a step of a worker, or of one of its branches."""
    data = e.decode_entry(entry.kind, entry.raw)
    p = getattr(data, "p", "")
    return bool(p) and getattr(data, "path", None) is None and worker_path(p) == owner
