"""What it costs to have a run as spans: a journal of many entries, and a process that follows it and looks at it.

``growth.py`` writes the journal and starts the process: ``python -m bench._spans DIRECTORY`` prints one JSON object. Times are
processor time, so that a busy machine does not change them much.
"""

from __future__ import annotations

import gc
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from random import Random
from statistics import median
from typing import Final

from bartack.journal import Draft, open_journal
from bartack.runtime.rundir.follower import SLICE_S, RunFollower
from bartack.runtime.rundir.layout import RunDir
from bartack.runtime.state import entries as e
from bartack.runtime.state.entries import draft
from bartack.runtime.state.spans.spans import Spans
from bartack.runtime.state.units import Units

WORKERS: Final = 64
LOOKS: Final = 200
PX: Final = 1200
COMMIT: Final = 100

Row = dict[str, float]


def write_long_run(directory: str, count: int) -> None:
    """A journal of this many entries: workers with commands, bodies, messages and prompts, three steps in four entries."""
    with open_journal(directory, durability="process") as journal:
        for place, one in enumerate(_drafts(count)):
            journal.stage(one)
            if not place % COMMIT:
                journal.commit()
        journal.commit()


def _drafts(count: int) -> Iterator[Draft]:
    yield draft(
        e.RunCreated(run="r", worker="t:main", name="main", program="", workspace="", root="", seed=0)
    )
    yield draft(e.HubStarted(hub=1))
    yield draft(e.WorkerSpawned(path="main", worker="t:main"))
    yield draft(e.StepStarted(p="main", n=1, step="delegate", fp="f"))
    paths = [f"main/1.{number}:w" for number in range(1, WORKERS + 1)]
    for path in paths:
        yield draft(e.WorkerSpawned(path=path, worker="t:w", p="main", n=1))
    workers = [_worker(path, number) for number, path in enumerate(paths)]
    draw = Random(1)
    for _ in range(count - 5 - WORKERS):
        yield next(draw.choice(workers))


def _worker(p: str, number: int) -> Iterator[Draft]:
    n = 0
    while True:
        n += 6
        fp = f"{n:064x}"
        yield draft(e.StepStarted(p=p, n=n, step="shell", fp=fp, about=f"pytest -q tests/test_{n % 3000}.py"))
        yield draft(e.StepFinished(p=p, n=n, step="shell", fp=fp), b'{"status":0,"out":"passed"}')
        for body in (n + 1, n + 2):
            yield draft(e.StepFinished(p=p, n=body, step="body", fp=fp, about="count", took_us=40), b"7")
        message = f"m-{number}-{n}"
        yield draft(e.MessageSent(mailbox="box", id=message, size=3, sender=p, p=p, n=n + 3, fp=fp), b'"abc"')
        yield draft(e.MessageTaken(mailbox="box", id=message, p=p, n=n + 4, fp=fp), b'"abc"')
        yield draft(e.StepStarted(p=p, n=n + 5, step="think", fp=fp, about="implement the next task"))
        used = Units(tokens=1000) if not n % 60 else None
        yield draft(
            e.StepFinished(p=p, n=n + 5, step="think", fp=fp, usd=0.01 if used else 0.0, used=used), b"{}"
        )


def look(directory: str) -> Row:
    """Follow the run in this directory, and look at it."""
    gc.collect()
    before = _resident_mb()
    with RunFollower(RunDir(directory)) as follower:
        built, slices = _timed_slices(follower)
        gc.collect()
        memory = _resident_mb() - before
        spans = follower.spans
        draw = Random(2)
        places = [draw.randint(1, spans.last_seq) for _ in range(LOOKS)]
        return {
            "steps": float(len(spans.columns)),
            "build (s of CPU)": built,
            "longest slice (ms of CPU)": max(slices) * 1e3,
            "memory (MB)": memory,
            "at(seq), rows, median (ms of CPU)": _median(spans.at, places),
            "at(seq), with its steps, median (ms of CPU)": _median(lambda seq: spans.at(seq).steps, places),
            "window, the costliest of all zooms (ms of CPU)": max(_windows(spans)),
            "value of an entry, median (ms of CPU)": _median(follower.value, places),
        }


def _timed_slices(follower: RunFollower) -> tuple[float, list[float]]:
    slices: list[float] = []
    more = True
    while more:
        began = time.thread_time()
        more = follower.read(SLICE_S)
        slices.append(time.thread_time() - began)
    return sum(slices), slices


def _windows(spans: Spans) -> Iterator[float]:
    """The cost of a drawing at every zoom, from everything to almost nothing; each is the median of three, in ms."""
    first, wide = spans.first_us, spans.last_us - spans.first_us
    while wide > 1000:
        begin = first + (spans.last_us - first - wide) // 3
        yield _median(partial(spans.window, begin, begin + wide), [PX] * 3)
        wide //= 3


def _median(action: Callable[[int], object], values: Sequence[int]) -> float:
    """The median of what an action costs, in ms."""
    costs: list[float] = []
    for value in values:
        began = time.thread_time()
        action(value)
        costs.append((time.thread_time() - began) * 1e3)
    return median(costs)


def _resident_mb() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 1e6


if __name__ == "__main__":
    print(json.dumps(look(sys.argv[1])))
