"""The peers: other libraries that keep what a program has done, doing the work of a journal entry.

Each is used in the way its own documentation shows, with nothing around it that we would not also have. What cannot be
compared is said in ``docs/how-to/benchmark.md``.

DBOS records one row for each step of a workflow. It is timed inside the workflow, around its steps only: starting and ending
a workflow, which also write, do not count. LangGraph runs a graph with one node in a loop, as its users do: each turn stores
what the node wrote and a checkpoint, before the next begins (``durability="sync"``). Its saver alone, without a graph, is a
second contestant: one checkpoint for each step.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from time import perf_counter
from typing import TYPE_CHECKING, Final, TypedDict

from bench._runner import PATIENCE_S, Sample
from bench._work import APPENDERS, outcome

if TYPE_CHECKING:
    from dbos import DBOSConfig
    from langchain_core.runnables import RunnableConfig
    from langgraph.checkpoint.sqlite import SqliteSaver
    from sqlalchemy import Engine

DBOS_NEEDS: Final = ("dbos",)
SAVER_NEEDS: Final = ("langgraph-checkpoint-sqlite",)
LANGGRAPH_NEEDS: Final = ("langgraph", *SAVER_NEEDS)
TEMPORAL_NEEDS: Final = ("temporalio",)
TEMPORAL_ADDRESS: Final = "TEMPORAL_ADDRESS"

SYNCHRONOUS: Final = {0: "OFF", 1: "NORMAL", 2: "FULL", 3: "EXTRA"}


def pragmas(connection: sqlite3.Connection) -> dict[str, str]:
    """How durable this SQLite connection is, as it says itself."""
    mode = connection.execute("PRAGMA journal_mode").fetchone()[0]
    level = connection.execute("PRAGMA synchronous").fetchone()[0]
    return {"journal_mode": str(mode), "synchronous": SYNCHRONOUS.get(level, str(level))}


# DBOS


def dbos_sequential(directory: str, size: int, *, wal: bool) -> Sample:
    """Steps per second of one workflow, on a SQLite file."""
    with _dbos_on_sqlite(directory, wal=wal) as facts:
        return Sample(value=dbos_steps(size), facts=facts)


def dbos_concurrent(directory: str, size: int, *, wal: bool) -> Sample:
    """Steps per second of many workflows at once, on a SQLite file."""
    with _dbos_on_sqlite(directory, wal=wal) as facts:
        return Sample(value=dbos_workflows(APPENDERS, size // APPENDERS), facts=facts)


def dbos_steps(size: int) -> float:
    """Steps per second of one workflow, while DBOS runs."""
    from dbos import DBOS  # noqa: PLC0415 - only the process of this contestant has to have it

    step = DBOS.step(name="step")(outcome)

    def work(count: int) -> float:
        started = perf_counter()
        for number in range(count):
            step(number)
        return perf_counter() - started

    seconds: float = DBOS.workflow(name="work")(work)(size)
    return size / seconds


def dbos_workflows(many: int, each: int) -> float:
    """Steps per second of many workflows at once, each in its thread, which is how DBOS runs them."""
    from dbos import DBOS  # noqa: PLC0415 - only the process of this contestant has to have it

    step = DBOS.step(name="step")(outcome)
    crew = _Crew(many)
    run = DBOS.workflow(name="work")(crew.doing(lambda count: [step(number) for number in range(count)]))
    handles = [DBOS.start_workflow(run, each) for _ in range(many)]
    for handle in handles:
        handle.get_result()
    return crew.rate(each)


@contextmanager
def running_dbos(settings: DBOSConfig) -> Generator[None]:
    """DBOS, while it runs."""
    from dbos import DBOS  # noqa: PLC0415 - only the process of this contestant has to have it

    known: DBOSConfig = {"name": "bench", "log_level": "ERROR", "application_version": "1"}
    DBOS(config={**known, **settings})
    DBOS.launch()
    try:
        yield
    finally:
        DBOS.destroy(destroy_registry=True)


@contextmanager
def _dbos_on_sqlite(directory: str, *, wal: bool) -> Generator[dict[str, str]]:
    """DBOS running on a SQLite file: as it comes, or in the fastest way SQLite has to be as durable as we are."""
    path = os.path.join(directory, "dbos.sqlite")
    settings: DBOSConfig = {"system_database_url": f"sqlite:///{path}"}
    if wal:
        settings["system_database_engine"] = _wal_engine(path)
    with running_dbos(settings):
        yield _pragmas_of(path, wal=wal)


def _wal_engine(path: str) -> Engine:
    """What DBOS itself would make, with a write-ahead log."""
    from sqlalchemy import create_engine, event  # noqa: PLC0415 - see above

    engine = create_engine(f"sqlite:///{path}", pool_size=20, max_overflow=0, pool_pre_ping=True)
    event.listen(engine, "connect", _set_up)
    return engine


def _set_up(connection: sqlite3.Connection, _: object) -> None:
    connection.isolation_level = "IMMEDIATE"
    for setting in ("busy_timeout=30000", "foreign_keys=ON", "journal_mode=WAL", "synchronous=FULL"):
        connection.execute(f"PRAGMA {setting}")


def _pragmas_of(path: str, *, wal: bool) -> dict[str, str]:
    """How durable DBOS is: it changes neither setting, so a connection of our own says what its connections say."""
    with closing(sqlite3.connect(path)) as connection:
        if wal:
            _set_up(connection, None)
        return pragmas(connection)


# LangGraph


class _Turns(TypedDict):
    """The state of the graph."""

    number: int
    outcome: dict[str, object]


def langgraph_loop(directory: str, size: int) -> Sample:
    """Steps per second of a graph with one node in a loop, each durable before the next begins.

    Timed from the end of the first turn to the end of the last: starting a graph, which also writes, does not count.
    """
    from langgraph.graph import END, START, StateGraph  # noqa: PLC0415 - only the process of this contestant has to have it

    times: list[float] = []

    def turn(state: _Turns) -> _Turns:
        times.append(perf_counter())
        return {"number": state["number"] + 1, "outcome": outcome(state["number"])}

    def following(state: _Turns) -> str:
        return "turn" if state["number"] <= size else END

    graph = StateGraph(_Turns)
    graph.add_node("turn", turn)
    graph.add_edge(START, "turn")
    graph.add_conditional_edges("turn", following, ["turn", END])
    with _saver(directory) as (saver, facts):
        config: RunnableConfig = {"configurable": {"thread_id": "main"}, "recursion_limit": size + 10}
        first: _Turns = {"number": 0, "outcome": {}}
        graph.compile(checkpointer=saver).invoke(first, config, durability="sync")
    return Sample(value=size / (times[size] - times[0]), facts=facts)


def temporal_sequential(directory: str, size: int) -> Sample:
    """Steps per second of one workflow, on a server that runs already."""
    from bench._temporal import steps  # noqa: PLC0415 - only the process of this contestant has to have its SDK

    return steps(size)


def langgraph_sequential(directory: str, size: int) -> Sample:
    """Checkpoints per second of one thread of a graph."""
    with _saver(directory) as (saver, facts):
        started = perf_counter()
        _put_checkpoints(saver, "main", size)
        seconds = perf_counter() - started
    return Sample(value=size / seconds, facts=facts)


def langgraph_concurrent(directory: str, size: int) -> Sample:
    """Checkpoints per second of many threads that share a saver, which has a lock of its own for them."""
    crew = _Crew(APPENDERS)
    with _saver(directory) as (saver, facts), ThreadPoolExecutor(APPENDERS) as pool:
        names = iter(range(APPENDERS))
        run = crew.doing(lambda count: _put_checkpoints(saver, str(next(names)), count))
        for done in [pool.submit(run, size // APPENDERS) for _ in range(APPENDERS)]:
            done.result()
    return Sample(value=crew.rate(size // APPENDERS), facts=facts)


@contextmanager
def _saver(directory: str) -> Generator[tuple[SqliteSaver, dict[str, str]]]:
    from langgraph.checkpoint.sqlite import SqliteSaver  # noqa: PLC0415 - see above

    with SqliteSaver.from_conn_string(os.path.join(directory, "checkpoints.sqlite")) as saver:
        saver.setup()
        saver.conn.execute("PRAGMA synchronous=FULL")
        yield saver, pragmas(saver.conn)


def _put_checkpoints(saver: SqliteSaver, thread: str, count: int) -> None:
    from langgraph.checkpoint.base import empty_checkpoint  # noqa: PLC0415 - see above

    config: RunnableConfig = {"configurable": {"thread_id": thread, "checkpoint_ns": ""}}
    for number in range(count):
        checkpoint = empty_checkpoint()
        checkpoint["channel_values"] = {"outcome": outcome(number)}
        config = saver.put(config, checkpoint, {"source": "loop", "step": number}, {})


class _Crew:
    """Threads that begin their work together and wait for each other at its end, so that only the work is timed."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._begin = threading.Barrier(size)
        self._end = threading.Barrier(size)
        self._times: list[tuple[float, float]] = []

    def doing(self, work: Callable[[int], object]) -> Callable[[int], None]:
        """What each of the threads has to call."""

        def run(count: int) -> None:
            self._begin.wait(PATIENCE_S)
            started = perf_counter()
            work(count)
            self._times.append((started, perf_counter()))
            self._end.wait(PATIENCE_S)

        return run

    def rate(self, each: int) -> float:
        """Pieces of work per second of all together, ``each`` of them for every thread."""
        began = min(started for started, _ in self._times)
        return each * self._size / (max(ended for _, ended in self._times) - began)
