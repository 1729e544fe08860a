"""A run of the pipeline over time: entries in as they come, and its progress, snapshots and receipts after any of them out.

Of any other run it keeps nothing. What the entries mean is in ``pipeline/records/facts.py``.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from typing import NamedTuple

import msgspec

from bartack.core import typed
from bartack.errors import BlobCorruptError, BlobMissingError
from bartack.journal import Entry
from bartack.pipeline.records.facts import Fact, FactMaker
from bartack.pipeline.records.records import Accepted, Shot, TaskRecord
from bartack.pipeline.records.task_state import Progress, make_progress
from bartack.pipeline.request import MAIN
from bartack.runtime.rundir.receipts import Receipt
from bartack.runtime.state.entries import RunCreated


class TakenSnapshot(NamedTuple):
    """A snapshot and the step that took it."""

    seq: int
    at: int
    p: str
    n: int
    shot: Shot


class GivenReceipt(NamedTuple):
    """A receipt and the outcome of the step that accepted the answer."""

    seq: int
    p: str
    n: int
    receipt: Receipt


class PipelineHistory:
    """What the entries of a run of the pipeline add up to, after each of them.

    Args:
        load: Returns the value of an entry.
    """

    def __init__(self, load: Callable[[Entry], bytes | None]) -> None:
        self.is_pipeline = False
        self._maker = FactMaker(load)
        self._facts: list[Fact] = []
        self._progress = (-1, Progress())

    def take(self, entry: Entry) -> None:
        """Take the next entry of the journal."""
        if entry.kind == RunCreated.kind:
            self.is_pipeline = typed.decode(entry.raw, type=_Created).worker == MAIN
        if not self.is_pipeline:
            return
        try:
            self._facts += self._maker.take([entry])
        except (msgspec.MsgspecError, BlobMissingError, BlobCorruptError):
            return  # the value of another version, or of another program, or one that is lost: it is not a fact

    def progress(self, seq: int) -> Progress | None:
        """How far the run was after an entry; ``None`` if it is not one of the pipeline."""
        if not self.is_pipeline:
            return None
        count = self._count(seq)
        if self._progress[0] != count:
            self._progress = (count, make_progress(self._facts[:count]))
        return self._progress[1]

    def tasks(self, seq: int) -> dict[str, str]:
        """The task that each worker works on, by path, up to an entry."""
        found: dict[str, str] = {}
        for fact in self._facts[: self._count(seq)]:
            match fact.value:
                case (str() as path, TaskRecord() as record):
                    found[path] = record.id
                case _:
                    pass
        return found

    def snapshots(self, seq: int) -> list[TakenSnapshot]:
        """The snapshots that were taken up to an entry, in order."""
        return [
            TakenSnapshot(fact.seq, fact.at, fact.p, fact.n, fact.value)
            for fact in self._facts[: self._count(seq)]
            if isinstance(fact.value, Shot)
        ]

    def receipts(self, seq: int) -> list[GivenReceipt]:
        """The receipts up to an entry, in order, those of answers included that were set aside since."""
        return [
            GivenReceipt(fact.seq, fact.p, fact.n, fact.value.receipt)
            for fact in self._facts[: self._count(seq)]
            if isinstance(fact.value, Accepted) and fact.value.receipt is not None
        ]

    def _count(self, seq: int) -> int:
        return bisect_right(self._facts, seq, key=lambda fact: fact.seq)


class _Created(msgspec.Struct):
    worker: str = ""
