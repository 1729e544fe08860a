"""Keeping events for a service and bringing them there, and what a breaker's decision costs.

Everything that is kept is synced before it counts. The peers do the part of the work that they can; the notes say what they cannot.

Run with ``python -m bench.outbox [--json] [--quick] [--rounds N] [--check]``.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import sqlite3
import sys
from collections.abc import Callable
from multiprocessing.connection import Connection
from time import perf_counter, perf_counter_ns
from typing import Final

from bartack.resilience import (
    CircuitBreaker,
    Deliverer,
    NewEvent,
    Outbox,
    PatternCache,
    StateStore,
    load_settings,
)
from bartack.testing import CountingService
from bench._harness import OURS, Bench, Contestant, Race, main
from bench._report import Goal
from bench._runner import Sample

EVENT: Final = {"event_type": "pattern_created", "pattern_id": "p", "pattern_data": {"code": "x = 1\n" * 20}}
PAYLOAD: Final = b'{"event_type":"pattern_created","pattern_id":"p","pattern_data":{"code":"%s"}}' % (
    b"x = 1 " * 20
)


def enqueue(directory: str, size: int) -> Sample:
    """Events kept per second, each durable before the next."""
    cache = PatternCache(directory)
    return _rate(lambda: cache.keep(EVENT), size)


def enqueue_persist_queue(directory: str, size: int) -> Sample:
    """The same with the queue of persist-queue that knows acknowledgements."""
    from persistqueue import SQLiteAckQueue  # noqa: PLC0415 - only where it is installed

    queue = SQLiteAckQueue(directory, auto_commit=True)
    return _rate(lambda: queue.put(EVENT), size)


def enqueue_floor(directory: str, size: int) -> Sample:
    """One row into one table of SQLite, synced."""
    connection = sqlite3.connect(os.path.join(directory, "floor.db"), isolation_level=None)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute("CREATE TABLE events(seq INTEGER PRIMARY KEY, payload BLOB)")
    return _rate(lambda: connection.execute("INSERT INTO events(payload) VALUES(?)", (PAYLOAD,)), size)


def drain(directory: str, size: int) -> Sample:
    """Events per second from the outbox to a service on this machine, in a process of its own."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    server = context.Process(target=_serve, args=(theirs,), daemon=True)
    server.start()
    url: str = ours.recv()
    outbox = Outbox(StateStore(directory))
    outbox.put([NewEvent(f"e{n}", "pattern", url, PAYLOAD) for n in range(size)])
    deliverer = Deliverer(outbox, url, load_settings())

    async def work() -> float:
        started = perf_counter()
        delivered = await deliverer.drain()
        took = perf_counter() - started
        await deliverer.close()
        assert delivered == size, delivered
        return took

    took = asyncio.run(work())
    server.kill()
    server.join()
    return Sample(value=size / took)


def _serve(connection: Connection) -> None:
    with CountingService() as service:
        connection.send(service.url)
        connection.recv()


def drain_persist_queue(directory: str, size: int) -> Sample:
    """Events per second taken from persist-queue and acknowledged, without any service."""
    from persistqueue import SQLiteAckQueue  # noqa: PLC0415 - only where it is installed

    queue = SQLiteAckQueue(directory, auto_commit=True)
    for _ in range(size):
        queue.put(EVENT)
    return _rate(lambda: queue.ack(queue.get()), size)


def decide_private(directory: str, size: int) -> Sample:
    """Microseconds per call through a closed breaker of one object."""
    del directory
    return _calls(CircuitBreaker(), size)


def decide_shared(directory: str, size: int) -> Sample:
    """Microseconds per call through a closed breaker that all processes share."""
    return _calls(CircuitBreaker(name="n", store=StateStore(directory)), size)


def decide_pybreaker(directory: str, size: int) -> Sample:
    """The same with pybreaker, which keeps its state in one process and calls no coroutine."""
    del directory
    import pybreaker  # noqa: PLC0415 - only where it is installed

    breaker = pybreaker.CircuitBreaker(fail_max=3, reset_timeout=60)
    started = perf_counter_ns()
    for _ in range(size):
        breaker.call(_nothing)
    return Sample(value=(perf_counter_ns() - started) / size / 1000)


def decide_purgatory(directory: str, size: int) -> Sample:
    """The same with purgatory, with its state in memory."""
    del directory
    from purgatory import AsyncCircuitBreakerFactory  # noqa: PLC0415 - only where it is installed

    async def work() -> float:
        factory = AsyncCircuitBreakerFactory(default_threshold=3, default_ttl=60)
        breaker = await factory.get_breaker("n")
        started = perf_counter_ns()
        for _ in range(size):
            async with breaker:
                _nothing()
        return (perf_counter_ns() - started) / size / 1000

    return Sample(value=asyncio.run(work()))


def _calls(breaker: CircuitBreaker, size: int) -> Sample:
    async def work() -> float:
        started = perf_counter_ns()
        for _ in range(size):
            await breaker.execute(_nothing)
        return (perf_counter_ns() - started) / size / 1000

    return Sample(value=asyncio.run(work()))


def _nothing() -> int:
    return 1


def _rate(work: Callable[[], object], size: int) -> Sample:
    started = perf_counter()
    for _ in range(size):
        work()
    return Sample(value=size / (perf_counter() - started))


_QUEUE: Final = ("persist-queue",)

BENCH: Final = Bench(
    name="outbox",
    title="the outbox and the breaker",
    races=(
        Race(
            key="enqueue",
            title="events kept one by one, synced",
            unit="1/s",
            better="higher",
            contestants=(
                Contestant(key=OURS, label="bartack", measure=enqueue, size=300),
                Contestant(key="floor", label="floor: SQLite insert", measure=enqueue_floor, size=300),
                Contestant(
                    key="persist-queue",
                    label="persist-queue",
                    measure=enqueue_persist_queue,
                    size=300,
                    needs=_QUEUE,
                ),
            ),
        ),
        Race(
            key="drain",
            title="events brought to a service on this machine",
            unit="1/s",
            better="higher",
            contestants=(
                Contestant(key=OURS, label="bartack", measure=drain, size=4000),
                Contestant(
                    key="persist-queue",
                    label="persist-queue (no service)",
                    measure=drain_persist_queue,
                    size=300,
                    needs=_QUEUE,
                ),
            ),
        ),
        Race(
            key="decision",
            title="a call through a closed breaker, private to a process",
            unit="us",
            better="lower",
            contestants=(
                Contestant(key=OURS, label="bartack", measure=decide_private, size=20_000),
                Contestant(
                    key="pybreaker",
                    label="pybreaker",
                    measure=decide_pybreaker,
                    size=20_000,
                    needs=("pybreaker",),
                ),
                Contestant(
                    key="purgatory",
                    label="purgatory",
                    measure=decide_purgatory,
                    size=20_000,
                    needs=("purgatory-circuitbreaker",),
                ),
            ),
        ),
        Race(
            key="shared-decision",
            title="a call through a closed breaker that all processes share",
            unit="us",
            better="lower",
            contestants=(Contestant(key=OURS, label="bartack", measure=decide_shared, size=1000),),
        ),
    ),
    goals=(
        Goal(
            race="drain",
            title="delivered to a local service",
            bound="at least",
            target=2000.0,
            stretch=4000.0,
        ),
        Goal(
            race="shared-decision",
            title="decision and result, shared",
            bound="at most",
            target=1000.0,
            stretch=300.0,
        ),
    ),
    notes=(
        "persist-queue syncs every commit, as we do. It has no leases, backoff, quota or ids that make a second insert"
        " harmless; an unacknowledged item goes to the next process that opens the queue, also while its first taker is"
        " still at work.",
        "drain: we finish up to 32 events with one commit, after a service has answered; persist-queue commits twice for"
        " each event.",
        "pybreaker and purgatory keep their state in one process or in Redis; none lets exactly one process of a machine probe.",
    ),
)

if __name__ == "__main__":
    sys.exit(main(BENCH))
