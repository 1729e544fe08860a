"""The facts of a run of the pipeline, in order, from its journal. Its progress and its ledger are made of them.

The values are in ``records.py``; ``task_state.py`` and ``ledger.py`` add them up.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Final, Literal, TypeVar

import msgspec

from bartack.agents import AgentResult
from bartack.core import typed
from bartack.depot import KeptRun
from bartack.journal import Entry
from bartack.pipeline.records.records import (
    Accepted,
    Activated,
    Base,
    Decision,
    Delivered,
    Gate,
    Grant,
    Merged,
    PipelineOrder,
    Shot,
    TaskRecord,
    TaskResult,
)
from bartack.runtime.protocol.frames import ErrorData
from bartack.runtime.protocol.steps import AskArgs, CallArgs, ThinkArgs, ThinkOutcome
from bartack.runtime.rundir.layout import kept_run
from bartack.runtime.state.entries import (
    EntryData,
    RunCreated,
    RunEnded,
    StepFailed,
    StepFinished,
    StepStarted,
    WorkerEnded,
    WorkerSpawned,
    decode_entry,
)

Kind = Literal[
    "started", "order", "task", "task_ended", "snapshot", "activated", "command", "answer", "accepted", "refused",
    "attempt_failed", "gate", "limit", "granted", "question", "answered", "decision", "base", "merged", "delivered",
    "ended",
]  # fmt: skip

T = TypeVar("T")

TASK_FAILED: Final = "bartack.errors:TasksFailedError"


class Fact(msgspec.Struct, frozen=True, kw_only=True):
    """One fact: when it was journaled, and its value."""

    seq: int
    at: int
    kind: Kind
    value: object = None
    part: str = ""
    """Which fact it is, of an entry with several."""
    p: str = ""
    n: int = 0
    error: ErrorData | None = None


_BODIES: Final[dict[str, tuple[Kind, type[msgspec.Struct]]]] = {
    "snapshot": ("snapshot", Shot),
    "activate": ("activated", Activated),
    "accept": ("accepted", Accepted),
    "gate": ("gate", Gate),
    "limit": ("granted", Grant),
    "decide": ("decision", Decision),
    "base": ("base", Base),
    "merge": ("merged", Merged),
    "deliver": ("delivered", Delivered),
}


def read_facts(run: KeptRun | str | os.PathLike[str]) -> list[Fact]:
    """The facts of a run, in the order of its journal. No hub is needed, and a running hub is not disturbed."""
    with kept_run(run).open_reader() as reader:
        return make_facts(reader.read(), reader.load_value)


def read_order(run: KeptRun | str | os.PathLike[str]) -> PipelineOrder | None:
    """What a run was started with."""
    found = (fact.value for fact in read_facts(run) if fact.kind == "order")
    order = next(found, None)
    return order if isinstance(order, PipelineOrder) else None


def make_facts(entries: Iterable[Entry], load: Callable[[Entry], bytes | None]) -> list[Fact]:
    """The facts that entries add up to.

    Args:
        entries: All entries of a journal.
        load: Returns the value of an entry.
    """
    return FactMaker(load).take(entries)


class FactMaker:
    """Makes facts of entries as they come.

    Args:
        load: Returns the value of an entry.
    """

    def __init__(self, load: Callable[[Entry], bytes | None]) -> None:
        self._load = load
        self._names: dict[tuple[str, int], str] = {}

    def take(self, entries: Iterable[Entry]) -> list[Fact]:
        """The facts of the next entries."""
        facts: list[Fact] = []
        for entry in entries:
            data = decode_entry(entry.kind, entry.raw)
            if isinstance(data, StepStarted):
                self._names[data.p, data.n] = data.about
            elif isinstance(data, StepFinished | StepFailed) and not data.about:
                # What a step is about is journaled once, where it begins.
                data = msgspec.structs.replace(data, about=self._names.get((data.p, data.n), ""))
            if data is not None:
                facts += _Entry(data, entry, self._load).facts()
        return facts


class _Entry:
    """One entry of the journal, and its facts about the pipeline."""

    def __init__(self, data: EntryData, entry: Entry, load: Callable[[Entry], bytes | None]) -> None:
        self._data = data
        self._entry = entry
        self._load = load

    def facts(self) -> list[Fact]:
        found: list[Fact] = []
        match self._data:
            case RunCreated() | RunEnded() as data:
                found = self._fact("ended" if isinstance(data, RunEnded) else "started", data)
            case WorkerSpawned() as data:
                found = self._worker(data)
            case WorkerEnded(path=path, error=error):
                found = self._fact("task_ended", path, error=error or self._problem(path))
            case StepStarted(step="think" | "ask") as data:
                found = self._started(data)
            case StepFinished() as data:
                found = self._finished(data)
            case StepFailed(step="think", error=error):
                found = self._fact("attempt_failed", error=error)
            case StepFailed(step="body", about="limit", error=error):
                found = self._fact("limit", error=error)
            case _:
                pass
        return found

    def _decode(self, type_: type[T]) -> T:
        return typed.decode(self._load(self._entry) or b"null", type=type_)

    def _fact(
        self, kind: Kind, value: object = None, *, part: str = "", error: ErrorData | None = None
    ) -> list[Fact]:
        p, n = getattr(self._data, "p", ""), getattr(self._data, "n", 0)
        entry = self._entry
        return [Fact(seq=entry.seq, at=entry.at, kind=kind, value=value, part=part, p=p, n=n, error=error)]

    def _started(self, data: StepStarted) -> list[Fact]:
        if data.step == "ask":
            return self._fact("question", (data.question, self._decode(AskArgs)))
        # Only commands are the pipeline's. In journals of earlier versions a prompt has no value there.
        asked = self._decode(ThinkArgs) if self._load(self._entry) else None
        return self._fact("command", asked) if asked is not None and asked.command is not None else []

    def _finished(self, data: StepFinished) -> list[Fact]:
        if data.step == "think":
            result = self._decode(ThinkOutcome).result
            return self._fact("answer", typed.decode(result, type=AgentResult)) if result else []
        if data.step == "ask":
            return self._fact("answered", (self._decode(object), data.by))
        if data.step != "body" or data.about not in _BODIES:
            return []
        kind, type_ = _BODIES[data.about]
        value = self._decode(type_)
        found = self._fact("refused" if isinstance(value, Accepted) and value.code else kind, value)
        if isinstance(value, Accepted | Gate) and value.after is not None:
            found += self._fact("snapshot", value.after, part="after")
        return found

    def _problem(self, path: str) -> ErrorData | None:
        """Why a task failed, if that is in its result."""
        if not path.endswith(":task"):
            return None
        value = self._decode(object)
        result = None if value is None else typed.convert(value, type=TaskResult)
        if result is None or result.status != "failed":
            return None
        return ErrorData(type=TASK_FAILED, message=result.problem)

    def _worker(self, data: WorkerSpawned) -> list[Fact]:
        args = self._decode(CallArgs).args
        if data.worker.endswith(":main") and args:
            return self._fact("order", typed.decode(args[0], type=PipelineOrder))
        if data.worker.endswith(":task") and len(args) > 1:
            return self._fact("task", (data.path, typed.decode(args[1], type=TaskRecord)))
        return []
