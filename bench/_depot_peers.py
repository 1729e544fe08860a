"""The peers of runs in a database: two libraries that keep the steps of programs in PostgreSQL, on a server of the benchmark.

Both are used as their documentation shows. **Absurd** looks for the checkpoint of a step and writes it, which is two statements. A
worker shares one connection among all of its tasks, so it is raced with one worker for 64 tasks, and with 16 workers for 4 tasks
each. **DBOS** records a row for each step of a workflow; each of 64 workflows has its thread, as DBOS runs them. Both are timed
around the steps only: claiming and ending a task or a workflow, which also write, do not count.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Generator
from contextlib import contextmanager
from multiprocessing.synchronize import Barrier
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

from bench._depot import NEEDS, PREPARE, PROGRAMS, RUNS, url_of
from bench._harness import Contestant
from bench._mailbox_peers import PATIENCE_S, PostgresBox, serve_postgres
from bench._peers import DBOS_NEEDS, dbos_steps, dbos_workflows, running_dbos
from bench._runner import Measure, Sample
from bench._work import outcome

if TYPE_CHECKING:
    from absurd_sdk import Absurd

ABSURD_NEEDS: Final = ("absurd-sdk", "absurdctl", *NEEDS)
WORKERS: Final = 16
QUEUE: Final = "default"

Span = tuple[float, float]
"""When the steps of a task began and ended."""


# DBOS


def dbos_in_turn(directory: str, size: int) -> Sample:
    """Steps per second of one workflow."""
    with serve_postgres(directory) as room, running_dbos({"system_database_url": url_of(room)}):
        return Sample(value=dbos_steps(size), facts=PostgresBox(room).facts())


def dbos_together(directory: str, size: int) -> Sample:
    """Steps per second of many workflows at once."""
    with serve_postgres(directory) as room, running_dbos({"system_database_url": url_of(room)}):
        return Sample(value=dbos_workflows(RUNS, size // RUNS), facts=PostgresBox(room).facts())


# Absurd


def absurd_in_turn(directory: str, size: int) -> Sample:
    """Steps per second of one task."""
    return _absurd(directory, tasks=1, workers=1, each=size)


def absurd_together(directory: str, size: int) -> Sample:
    """Steps per second of many tasks of one worker."""
    return _absurd(directory, tasks=RUNS, workers=1, each=max(size // RUNS, 1))


def absurd_workers(directory: str, size: int) -> Sample:
    """Steps per second of many tasks, of several workers with a process and a connection each."""
    return _absurd(directory, tasks=RUNS, workers=WORKERS, each=max(size // RUNS, 1))


def _absurd(directory: str, *, tasks: int, workers: int, each: int) -> Sample:
    with serve_postgres(directory) as room:
        with _client(url_of(room)) as client:
            for _ in range(tasks):
                client.spawn("work", {}, queue=QUEUE)
        context = multiprocessing.get_context("fork")
        spans: multiprocessing.SimpleQueue[Span] = context.SimpleQueue()
        ready = context.Barrier(tasks)
        given = (url_of(room), tasks // workers, each, ready, spans)
        processes = [context.Process(target=_work, args=given, daemon=True) for _ in range(workers)]
        for process in processes:
            process.start()
        found = [spans.get() for _ in range(tasks)]
        for process in processes:
            process.join(PATIENCE_S)
        seconds = max(end for _, end in found) - min(began for began, _ in found)
        return Sample(value=tasks * each / seconds, facts=PostgresBox(room).facts())


@contextmanager
def _client(url: str) -> Generator[Absurd]:
    """Absurd with its tables, as its command makes them."""
    import psycopg  # noqa: PLC0415 - only the process of this contestant has to have it
    from absurd_sdk import Absurd  # noqa: PLC0415 - likewise
    from absurdctl import BUNDLED_SCHEMA_SQL  # noqa: PLC0415 - likewise

    with psycopg.connect(url, autocommit=True) as connection:
        if connection.execute("SELECT to_regnamespace('absurd')").fetchone() == (None,):
            connection.execute(BUNDLED_SCHEMA_SQL.encode())
    client = Absurd(url, queue_name=QUEUE)
    try:
        client.create_queue(QUEUE)
        yield client
    finally:
        client.close()


def _work(url: str, tasks: int, each: int, ready: Barrier, spans: multiprocessing.SimpleQueue[Span]) -> None:
    """A worker that executes ``tasks`` tasks at a time, and ends when they have ended."""
    from absurd_sdk import Absurd  # noqa: PLC0415 - likewise

    client = Absurd(url, queue_name=QUEUE)
    ended: list[Span] = []

    def work(params: Any, ctx: Any) -> None:
        ready.wait(PATIENCE_S)
        began = perf_counter()
        for number in range(each):
            ctx.step("step", lambda number=number: outcome(number))
        ended.append((began, perf_counter()))
        spans.put(ended[-1])
        if len(ended) == tasks:
            client.stop_worker()

    client.register_task(name="work")(work)
    client.start_worker(concurrency=tasks)
    client.close()


# Contestants


def _peer(key: str, label: str, measure: Measure, size: int, needs: tuple[str, ...]) -> Contestant:
    return Contestant(
        key=key,
        label=label,
        measure=measure,
        size=size,
        prepare=PREPARE,
        needs=needs,
        programs=PROGRAMS,
        every=3,
    )


ONE: Final = (
    _peer("absurd", "Absurd, a task", absurd_in_turn, 300, ABSURD_NEEDS),
    _peer("dbos", "DBOS on PostgreSQL, a workflow", dbos_in_turn, 200, DBOS_NEEDS),
)
"""The peers of a run by itself."""
MANY: Final = (
    _peer("absurd", f"Absurd, a worker for {RUNS} tasks", absurd_together, RUNS * 10, ABSURD_NEEDS),
    _peer(
        "absurd_workers",
        f"Absurd, {WORKERS} workers for {RUNS // WORKERS} tasks each",
        absurd_workers,
        RUNS * 30,
        ABSURD_NEEDS,
    ),
    _peer("dbos", f"DBOS on PostgreSQL, {RUNS} workflows", dbos_together, RUNS * 5, DBOS_NEEDS),
)
"""The peers of many runs on a node."""
