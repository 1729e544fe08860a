"""Runs for a web server to show: one with many entries, and one that is written while it is watched."""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Final, Self

from bartack.journal import open_journal
from bartack.runtime.state import entries as e
from bartack.runtime.state.entries import draft
from bench._spans import WORKERS, write_long_run

RUN: Final = "run-20261118-101010-0123abcd"
SMALL: Final = "run-20261118-101009-0123abcd"
"""A short run beside a long one."""
WATCHED_S: Final = 10.0
LIMIT_S: Final = 30.0


def fresh(directory: str) -> str:
    """An empty workspace."""
    place = os.path.join(directory, "workspace")
    shutil.rmtree(place, ignore_errors=True)
    os.makedirs(place)
    return place


def recorded(directory: str, entries: int) -> str:
    """A workspace with a run of this many entries; it is written once for all rounds, since servers only read it."""
    workspace = os.path.join(directory, f"recorded-{entries}")
    if not os.path.exists(workspace):
        os.makedirs(workspace)
        write_long_run(_place(workspace, RUN), entries)
        write_long_run(_place(workspace, SMALL), 1000)
    return workspace


def _place(workspace: str, run: str) -> str:
    place = Path(workspace, ".bartack", "runs")
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    place.parent.chmod(0o700)
    return str(place / run)


class BusyRun:
    """A run of many workers whose journal is written at a rate; a context manager.

    Args:
        workspace: Where the run is made.
        rate: Entries a second.
    """

    def __init__(self, workspace: str, rate: int) -> None:
        self._directory = _place(workspace, RUN)
        self._rate = rate
        self._count = 0
        self._written: dict[int, float] = {}
        self._is_ready = threading.Event()
        self._is_over = threading.Event()
        self._writer = threading.Thread(target=self._write, daemon=True)

    def __enter__(self) -> Self:
        self._writer.start()
        self._is_ready.wait(LIMIT_S)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_over.set()
        self._writer.join(LIMIT_S)

    def delays(self, after: int, seq: int, at: float) -> list[float]:
        """Seconds from the commits of the entries after one and up to another until ``at``; none for the first look."""
        news = range(after + 1, seq + 1) if after else range(0)
        return [at - self._written[entry] for entry in news if entry in self._written]

    @property
    def count(self) -> int:
        """How many entries were written since it began."""
        return self._count

    def _write(self) -> None:
        with open_journal(self._directory, durability="process") as journal:
            for data in _beginning():
                journal.stage(draft(data))
            journal.commit()
            self._is_ready.set()
            entries = _entries()
            began = time.monotonic()
            while not self._is_over.is_set():
                due = int((time.monotonic() - began) * self._rate)
                while self._count < due and not self._is_over.is_set():
                    journal.stage(draft(*next(entries)))
                    self._count += 1
                    if self._count % 4 == 0 or self._count == due:
                        journal.commit()
                        self._written[journal.synced_seq] = time.time()
                self._is_over.wait(0.002)


def _beginning() -> Iterator[e.EntryData]:
    yield e.RunCreated(run=RUN, worker="t:main", name="main", program="", workspace="", root="", seed=0)
    yield e.HubStarted(hub=1)
    yield e.WorkerSpawned(path="main", worker="t:main")
    yield e.StepStarted(p="main", n=1, step="delegate", fp="f")
    for number in range(1, WORKERS + 1):
        yield e.WorkerSpawned(path=f"main/1.{number}:w", worker="t:w", p="main", n=1)


def _entries() -> Iterator[tuple[e.EntryData, bytes | None]]:
    """Steps that begin and end, in any of the workers."""
    draw = Random(2)
    numbers = [0] * WORKERS
    opened = [False] * WORKERS
    while True:
        place = draw.randrange(WORKERS)
        p = f"main/1.{place + 1}:w"
        if opened[place]:
            yield (
                e.StepFinished(p=p, n=numbers[place], step="shell", fp="f"),
                b'{"status":0,"stdout":"passed"}',
            )
        else:
            numbers[place] += 1
            about = f"pytest -q tests/test_{numbers[place]}.py"
            yield e.StepStarted(p=p, n=numbers[place], step="shell", fp="f", about=about), None
        opened[place] = not opened[place]
