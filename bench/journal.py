"""What keeping an entry costs: one after the other, from many at once, without the disk, and reading all of it again.

The floors are what any program has to pay for the same promise: one ``write`` and one ``fdatasync`` of equally many bytes.
The peers (``_peers.py``) keep the same outcome in their own way.

Run with ``python -m bench.journal [--json] [--quick] [--rounds N] [--check]``.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections import deque
from functools import partial
from time import perf_counter, process_time
from typing import Final
from zlib import crc32

from bartack.errors import JournalError
from bartack.journal import Draft, open_journal
from bartack.journal.group import AsyncAppender, GroupCommit
from bench._disk import sync
from bench._harness import OURS, Bench, Contestant, Race, main
from bench._peers import (
    DBOS_NEEDS,
    SAVER_NEEDS,
    dbos_concurrent,
    dbos_sequential,
    langgraph_concurrent,
    langgraph_sequential,
)
from bench._report import Goal
from bench._runner import Sample
from bench._work import APPENDERS, KIND, appending, entry_data, write_and_sync

REPLAYED: Final = 100_000
"""Replay is given in seconds for this many entries, however many were read."""

PEERS_EVERY: Final = 3
"""The peers take long to begin and are far away from us: fewer rounds are enough. Replay takes long, and no disk disturbs it."""


# Ours


def append_sequential(directory: str, size: int) -> Sample:
    """Entries per second, each durable before the next."""
    entries = [entry_data(number) for number in range(size)]
    with open_journal(directory) as journal:
        started = perf_counter()
        for data in entries:
            journal.append(KIND, data)
        seconds = perf_counter() - started
    return Sample(value=size / seconds)


def append_from_tasks(directory: str, size: int) -> Sample:
    """Entries per second of many asyncio tasks, each waiting for its entry before it appends the next."""
    return Sample(value=size / asyncio.run(_append_from_tasks(directory, size // APPENDERS)))


async def _append_from_tasks(directory: str, each: int) -> float:
    entries = [entry_data(number) for number in range(each)]

    async def work() -> None:
        for data in entries:
            await appender.append(Draft(KIND, data))

    with open_journal(directory) as journal:
        appender = AsyncAppender(journal, asyncio.get_running_loop())
        started = perf_counter()
        async with asyncio.TaskGroup() as group:
            for _ in range(APPENDERS):
                group.create_task(work())
        seconds = perf_counter() - started
        appender.close()
    return seconds


def append_with_callbacks(directory: str, size: int) -> Sample:
    """Entries per second when a loop of our own drives the group commit."""
    entries = [entry_data(number) for number in range(size // APPENDERS)]
    with open_journal(directory) as journal:
        group = GroupCommit(journal, slow_s=float("inf"))
        started = perf_counter()
        for data in entries:
            for _ in range(APPENDERS):
                group.append((Draft(KIND, data),), _check_done)
            group.flush()
        seconds = perf_counter() - started
        group.close()
    return Sample(value=size / seconds)


def _check_done(error: JournalError | None) -> None:
    if error is not None:
        raise error


def append_without_sync(directory: str, size: int) -> Sample:
    """Microseconds of CPU per entry, the operating system's share of the write included."""
    entries = [entry_data(number) for number in range(size)]
    with open_journal(directory, durability="process") as journal:
        started = process_time()
        for data in entries:
            journal.append(KIND, data)
        seconds = process_time() - started
    return Sample(value=seconds / size * 1e6)


def fill(directory: str, size: int) -> None:
    """A journal to be replayed, one commit for each entry."""
    with open_journal(directory, durability="process") as journal:
        for number in range(size):
            journal.append(KIND, entry_data(number))


def replay(directory: str, size: int) -> Sample:
    """Seconds to own a journal and read all of it."""
    started, cpu = perf_counter(), process_time()
    with open_journal(directory) as journal:
        deque(journal.read(), maxlen=0)
        seconds, cpu = perf_counter() - started, process_time() - cpu
        assert journal.last_seq > size
    return Sample(value=seconds * REPLAYED / size, facts={"of it CPU": f"{cpu * REPLAYED / size:.2f} s"})


# Floors


def write_sequential(directory: str, size: int) -> Sample:
    """Lines per second, each written and synced before the next."""
    line = _line(directory)
    return Sample(value=write_and_sync(directory, line, size), facts={"bytes a line": str(len(line))})


def write_in_place(directory: str, size: int) -> Sample:
    """Lines per second, each written over a part of the file that was filled before: its size does not change."""
    line = _line(directory)
    fd = os.open(os.path.join(directory, "floor"), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        os.pwrite(fd, b"\n" * len(line) * size, 0)
        sync(fd)
        started = perf_counter()
        for number in range(size):
            os.pwrite(fd, line, number * len(line))
            sync(fd)
        seconds = perf_counter() - started
    finally:
        os.close(fd)
    return Sample(value=size / seconds)


def write_groups(directory: str, size: int) -> Sample:
    """Lines per second, one write and one sync for as many as there are appenders."""
    lines = _line(directory) * APPENDERS
    return Sample(value=write_and_sync(directory, lines, size // APPENDERS) * APPENDERS)


def write_without_sync(directory: str, size: int) -> Sample:
    """Microseconds of CPU per line that is only written."""
    line = _line(directory)
    with appending(directory) as fd:
        started = process_time()
        for _ in range(size):
            os.write(fd, line)
        seconds = process_time() - started
    return Sample(value=seconds / size * 1e6)


def read_lines(directory: str, size: int) -> Sample:
    """Seconds to read the same file and compute the checksum of each line, with nothing made of it."""
    started = perf_counter()
    with open(os.path.join(directory, "journal.ndjson"), "rb") as file:
        crc = 0
        for line in file:
            crc = crc32(line, crc)
    return Sample(value=(perf_counter() - started) * REPLAYED / size)


def _line(directory: str) -> bytes:
    """A line as long as one of ours."""
    with open_journal(os.path.join(directory, "ours"), durability="process") as journal:
        before = journal.size_bytes
        for number in range(100):
            journal.append(KIND, entry_data(number))
        length = (journal.size_bytes - before) // 100
    return b"x" * (length - 1) + b"\n"


BENCH: Final = Bench(
    name="journal",
    title="Keeping entries in a journal",
    races=(
        Race(
            key="sequential",
            title="one after the other, synced",
            unit="entries/s",
            better="higher",
            contestants=(
                Contestant(key=OURS, label="bartack", measure=append_sequential, size=500),
                Contestant(key="floor", label="floor: write + fdatasync", measure=write_sequential, size=500),
                Contestant(
                    key="in_place", label="write in place + fdatasync", measure=write_in_place, size=500
                ),
                Contestant(
                    key="dbos_default",
                    label="DBOS on SQLite, as it comes",
                    measure=partial(dbos_sequential, wal=False),
                    size=100,
                    quick_size=20,
                    needs=DBOS_NEEDS,
                    every=PEERS_EVERY,
                ),
                Contestant(
                    key="dbos",
                    label="DBOS on SQLite, WAL",
                    measure=partial(dbos_sequential, wal=True),
                    size=200,
                    quick_size=60,
                    needs=DBOS_NEEDS,
                    every=PEERS_EVERY,
                ),
                Contestant(
                    key="langgraph",
                    label="LangGraph SqliteSaver",
                    measure=langgraph_sequential,
                    size=600,
                    needs=SAVER_NEEDS,
                    every=PEERS_EVERY,
                ),
            ),
        ),
        Race(
            key="concurrent",
            title=f"{APPENDERS} appenders at once, synced",
            unit="entries/s",
            better="higher",
            contestants=(
                Contestant(
                    key=OURS, label="bartack, asyncio tasks", measure=append_from_tasks, size=APPENDERS * 60
                ),
                Contestant(
                    key="callbacks",
                    label="bartack, callbacks",
                    measure=append_with_callbacks,
                    size=APPENDERS * 60,
                ),
                Contestant(
                    key="floor",
                    label=f"floor: write of {APPENDERS} lines + fdatasync",
                    measure=write_groups,
                    size=APPENDERS * 200,
                ),
                Contestant(
                    key="dbos",
                    label=f"DBOS on SQLite, WAL, {APPENDERS} workflows",
                    measure=partial(dbos_concurrent, wal=True),
                    size=APPENDERS * 4,
                    quick_size=APPENDERS,
                    needs=DBOS_NEEDS,
                    every=PEERS_EVERY,
                ),
                Contestant(
                    key="langgraph",
                    label=f"LangGraph SqliteSaver, {APPENDERS} threads",
                    measure=langgraph_concurrent,
                    size=APPENDERS * 20,
                    quick_size=APPENDERS * 2,
                    needs=SAVER_NEEDS,
                    every=PEERS_EVERY,
                ),
            ),
        ),
        Race(
            key="cpu",
            title="CPU of one append, no sync",
            unit="µs",
            better="lower",
            contestants=(
                Contestant(key=OURS, label="bartack", measure=append_without_sync, size=20_000),
                Contestant(key="floor", label="floor: write", measure=write_without_sync, size=20_000),
            ),
        ),
        Race(
            key="replay",
            title=f"open and read {REPLAYED:,} entries",
            unit="s",
            better="lower",
            contestants=(
                Contestant(
                    key=OURS,
                    label="bartack",
                    measure=replay,
                    prepare=fill,
                    size=REPLAYED,
                    quick_size=REPLAYED // 2,
                    every=PEERS_EVERY,
                ),
                Contestant(
                    key="floor",
                    label="floor: lines and checksums",
                    measure=read_lines,
                    prepare=fill,
                    size=REPLAYED,
                ),
            ),
        ),
    ),
    goals=(
        Goal(
            race="sequential",
            title="sequential appends to write + fdatasync",
            against="floor",
            bound="at least",
            target=0.80,
            stretch=0.95,
        ),
        Goal(
            race="concurrent",
            title=f"{APPENDERS} appenders to raw group commit",
            against="floor",
            bound="at least",
            target=0.30,
            stretch=0.40,
        ),
        Goal(race="cpu", title="CPU of one append", bound="at most", target=20.0, stretch=10.0),
        Goal(
            race="replay", title=f"replay of {REPLAYED:,} entries", bound="at most", target=0.5, stretch=0.3
        ),
    ),
    notes=(
        "every contestant runs in a process of its own; ratios are taken within each round",
        "peers do more than keep an entry (a workflow engine, a graph's state); only their recording is timed",
        "synchronous FULL with a write-ahead log keeps a commit through a power cut, as bartack does; with a rollback "
        "journal (delete) SQLite does not sync the directory after it, so the last commit may come undone",
    ),
)

if __name__ == "__main__":
    sys.exit(main(BENCH))
