"""What a message costs: to and fro between two worker processes, and from many into one mailbox.

Run with ``python -m bench.mailbox [--json] [--quick] [--rounds N] [--check]``.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
from functools import partial
from statistics import median
from time import perf_counter
from typing import Final

from bench._disk import sync
from bench._harness import OURS, Bench, Contestant, Race, main
from bench._mailbox_peers import mailbox_peers, peer_crowd, peer_round_trip
from bench._report import Goal
from bench._runner import Sample
from bench._runs import run_worker
from bench._work import appending

PRODUCERS: Final = 8


def round_trip(directory: str, size: int, *, durability: str) -> Sample:
    """Milliseconds of a message to another worker's process and one back, the median."""
    times = run_worker(directory, list[float], "round_trips", size, durability=durability)
    return Sample(value=median(times) * 1e3)


def one_sync(directory: str, size: int) -> Sample:
    """Milliseconds of one write and one sync, the median."""
    times: list[float] = []
    with appending(directory) as fd:
        for _ in range(size):
            began = perf_counter()
            os.write(fd, b"x" * 199 + b"\n")
            sync(fd)
            times.append(perf_counter() - began)
    return Sample(value=median(times) * 1e3)


def queue_round_trip(directory: str, size: int) -> Sample:
    """Milliseconds to and fro through multiprocessing queues, which keep nothing."""
    context = multiprocessing.get_context("fork")
    out: multiprocessing.SimpleQueue[int] = context.SimpleQueue()
    back: multiprocessing.SimpleQueue[int] = context.SimpleQueue()
    process = context.Process(target=_echo, args=(out, back, size), daemon=True)
    process.start()
    times: list[float] = []
    for number in range(size):
        began = perf_counter()
        out.put(number)
        back.get()
        times.append(perf_counter() - began)
    process.join(10)
    return Sample(value=median(times) * 1e3)


def _echo(out: multiprocessing.SimpleQueue[int], back: multiprocessing.SimpleQueue[int], size: int) -> None:
    for _ in range(size):
        back.put(out.get())


def crowd(directory: str, size: int) -> Sample:
    """Messages per second of several producers into one mailbox."""
    rate, worst = run_worker(directory, tuple[float, float], "crowd", PRODUCERS, size // PRODUCERS)
    return Sample(value=rate, facts={"worst send": f"{worst * 1e3:.1f} ms"})


def worst_send(directory: str, size: int) -> Sample:
    """Milliseconds of the slowest of all these sends."""
    _, worst = run_worker(directory, tuple[float, float], "crowd", PRODUCERS, size // PRODUCERS)
    return Sample(value=worst * 1e3)


def _ahead(race: str, title: str, peer: str, *, lower: bool) -> Goal:
    """Not slower than a peer in the same run."""
    if lower:
        return Goal(race=race, title=title, bound="at most", target=1.0, stretch=0.8, against=peer)
    return Goal(race=race, title=title, bound="at least", target=1.0, stretch=1.25, against=peer)


BENCH: Final = Bench(
    name="mailbox",
    title="Messages",
    races=(
        Race(
            key="round_trip",
            title="to another worker and back, synced",
            unit="ms",
            better="lower",
            contestants=(
                Contestant(
                    key=OURS, label="bartack", measure=partial(round_trip, durability="power"), size=300
                ),
                Contestant(key="floor", label="one write + fdatasync", measure=one_sync, size=300),
                *mailbox_peers(peer_round_trip, 300),
            ),
        ),
        Race(
            key="process",
            title="to another worker and back, process-durable",
            unit="ms",
            better="lower",
            contestants=(
                Contestant(
                    key=OURS, label="bartack", measure=partial(round_trip, durability="process"), size=1000
                ),
                Contestant(
                    key="queue",
                    label="multiprocessing queues, nothing kept",
                    measure=queue_round_trip,
                    size=1000,
                ),
            ),
        ),
        Race(
            key="crowd",
            title=f"{PRODUCERS} producers to one mailbox, synced",
            unit="messages/s",
            better="higher",
            contestants=(
                Contestant(key=OURS, label="bartack", measure=crowd, size=PRODUCERS * 1000, every=2),
                *mailbox_peers(peer_crowd, PRODUCERS * 250),
            ),
        ),
        Race(
            key="worst_send",
            title=f"the slowest send of {PRODUCERS} producers, synced",
            unit="ms",
            better="lower",
            contestants=(
                Contestant(key=OURS, label="bartack", measure=worst_send, size=PRODUCERS * 1000, every=4),
            ),
        ),
    ),
    goals=(
        Goal(
            race="round_trip",
            title="round trip to one sync",
            bound="at most",
            target=5.5,
            stretch=4.5,
            against="floor",
        ),
        _ahead("round_trip", "round trip to Redis", "redis", lower=True),
        _ahead("round_trip", "round trip to PostgreSQL", "postgres", lower=True),
        Goal(race="process", title="round trip, process-durable", bound="at most", target=0.33, stretch=0.2),
        Goal(race="crowd", title="8 producers", bound="at least", target=12_000, stretch=15_000),
        _ahead("crowd", "8 producers to Redis", "redis", lower=False),
        _ahead("crowd", "8 producers to PostgreSQL", "postgres", lower=False),
        Goal(race="worst_send", title="worst send of 8 producers", bound="at most", target=10.0, stretch=5.0),
    ),
    notes=(
        "The servers of the peers are started by the benchmark itself, as far as they are on this machine.",
    ),
)

if __name__ == "__main__":
    sys.exit(main(BENCH))
