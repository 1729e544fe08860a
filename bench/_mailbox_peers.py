"""The peers of mailboxes: two servers that keep messages, each started on this machine for one measurement.

Both do the work of ours: a send is on the disk when it returns, and so is a receive, before its value is seen. Redis Streams
with ``appendfsync always``: ``XADD``, and ``XREADGROUP`` of a group without acknowledgement, so that one sync makes the
hand-over durable as it does here. PostgreSQL: a row inserted, and one deleted that ``FOR UPDATE SKIP LOCKED`` has found, each a
transaction of its own; a receiver that finds none waits for ``NOTIFY``, in a crowd it asks again after a millisecond.

Every sender and receiver is a process with a connection of its own, over a Unix socket. Which driver is installed and which
server is on the machine is asked by the harness.
"""

from __future__ import annotations

import multiprocessing
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from multiprocessing.synchronize import Barrier
from statistics import median
from threading import Event
from time import perf_counter
from typing import Final, Protocol

import msgspec

from bartack.supervision.process.system import set_death_signal
from bench._disk import find_program
from bench._harness import Contestant
from bench._runner import Sample

PRODUCERS: Final = 8
PATIENCE_S: Final = 60.0
MAILBOXES: Final = ("out", "back", "crowd")
BATCH: Final = 100
"""How many messages the receiver of a crowd takes at once, if they are there."""

Span = tuple[float, float, float]
"""When a producer began and ended, and its worst send."""


class Box(Protocol):
    """A connection of one process."""

    def send(self, mailbox: str, body: str) -> None:
        """Return when the message is durable."""
        ...

    def receive(self, mailbox: str) -> str:
        """Wait for a message, and return it when its receipt is durable."""
        ...

    def drain(self, mailbox: str) -> int:
        """Take up to ``BATCH`` messages, at least one; return how many."""
        ...

    def facts(self) -> dict[str, str]:
        """Facts that the server reports."""
        ...


@dataclass(frozen=True, kw_only=True)
class Peer:
    """How to start a server in a directory, and how to reach it."""

    serve: Callable[[str], AbstractContextManager[str]]
    connect: Callable[[str], Box]


# What is measured


def peer_round_trip(directory: str, size: int, *, peer: str) -> Sample:
    """Milliseconds of a message to another process and one back, the median."""
    with PEERS[peer].serve(directory) as where:
        process = multiprocessing.get_context("fork").Process(
            target=_echo, args=(peer, where, size), daemon=True
        )
        process.start()
        box = PEERS[peer].connect(where)
        times: list[float] = []
        for number in range(size):
            began = perf_counter()
            box.send("out", str(number))
            box.receive("back")
            times.append(perf_counter() - began)
        process.join(PATIENCE_S)
        return Sample(value=median(times) * 1e3, facts=box.facts())


def _echo(peer: str, where: str, size: int) -> None:
    box = PEERS[peer].connect(where)
    for _ in range(size):
        box.send("back", box.receive("out"))


def peer_crowd(directory: str, size: int, *, peer: str) -> Sample:
    """Messages per second of several producers into one mailbox, which one receiver empties meanwhile."""
    with PEERS[peer].serve(directory) as where:
        context = multiprocessing.get_context("fork")
        spans: multiprocessing.SimpleQueue[Span] = context.SimpleQueue()
        ready = context.Barrier(PRODUCERS + 1)
        count = size // PRODUCERS
        work = [partial(_produce, peer, where, count, ready, spans) for _ in range(PRODUCERS)]
        work.append(partial(_consume, peer, where, count * PRODUCERS, ready))
        processes = [context.Process(target=one, daemon=True) for one in work]
        for process in processes:
            process.start()
        found = [spans.get() for _ in range(PRODUCERS)]
        processes[-1].join(PATIENCE_S)
        if processes[-1].exitcode != 0:
            raise RuntimeError("the receiver did not get every message")
        facts = PEERS[peer].connect(where).facts()
    seconds = max(span[1] for span in found) - min(span[0] for span in found)
    worst = max(span[2] for span in found)
    return Sample(value=count * PRODUCERS / seconds, facts={**facts, "worst send": f"{worst * 1e3:.1f} ms"})


def _produce(
    peer: str, where: str, count: int, ready: Barrier, spans: multiprocessing.SimpleQueue[Span]
) -> None:
    box = PEERS[peer].connect(where)
    ready.wait(PATIENCE_S)
    worst = 0.0
    first = time.monotonic()
    for number in range(count):
        began = time.monotonic()
        box.send("crowd", str(number))
        worst = max(worst, time.monotonic() - began)
    spans.put((first, time.monotonic(), worst))


def _consume(peer: str, where: str, count: int, ready: Barrier) -> None:
    box = PEERS[peer].connect(where)
    ready.wait(PATIENCE_S)
    while count > 0:
        count -= box.drain("crowd")


# Redis


class RedisBox:
    """Streams of Redis, each with a group ``all``."""

    def __init__(self, where: str) -> None:
        from redis import Redis  # noqa: PLC0415 - only the process of this contestant has to have it

        client = Redis(unix_socket_path=where, decode_responses=True)
        self._call: Callable[..., object] = getattr(client, "execute_command")  # noqa: B009 - the library has no type for it

    def make(self, mailbox: str) -> None:
        """Make a stream and its group."""
        self._call("XGROUP", "CREATE", mailbox, "all", "$", "MKSTREAM")

    def send(self, mailbox: str, body: str) -> None:
        """See ``Box``."""
        self._call("XADD", mailbox, "*", "body", body)

    def receive(self, mailbox: str) -> str:
        """See ``Box``."""
        return self._take(mailbox, 1)[0]

    def drain(self, mailbox: str) -> int:
        """See ``Box``."""
        return len(self._take(mailbox, BATCH))

    def facts(self) -> dict[str, str]:
        """See ``Box``."""
        info = msgspec.convert(self._call("INFO", "server"), type=dict[str, object])
        synced = msgspec.convert(self._call("CONFIG", "GET", "appendfsync"), type=dict[str, str])
        return {"redis-server": str(info["redis_version"]), **synced}

    def _take(self, mailbox: str, count: int) -> list[str]:
        limit_ms = int(PATIENCE_S * 1000)
        words = ("GROUP", "all", "me", "COUNT", count, "BLOCK", limit_ms, "NOACK", "STREAMS", mailbox, ">")
        found = self._call("XREADGROUP", *words)
        if not found:
            raise TimeoutError(f"nothing came within {PATIENCE_S:g} s")
        streams = msgspec.convert(found, type=list[tuple[str, list[tuple[str, dict[str, str]]]]])
        return [fields["body"] for _, entries in streams for _, fields in entries]


@contextmanager
def serve_redis(directory: str) -> Generator[str]:
    """A Redis of our own, its files in ``directory``; yields its socket."""
    with tempfile.TemporaryDirectory(prefix="bench-") as room:
        where = f"{room}/redis"
        command = [find_program("redis-server") or "", "--port", "0", "--unixsocket", where]
        command += ["--dir", directory, "--save", "", "--appendonly", "yes", "--appendfsync", "always"]
        with _running(command, directory, signal.SIGTERM) as check:
            _wait_for(partial(os.path.exists, where), check)
            box = RedisBox(where)
            for mailbox in MAILBOXES:
                box.make(mailbox)
            yield where


# PostgreSQL

_TABLE: Final = """
DROP TABLE IF EXISTS message;
CREATE TABLE message (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, mailbox text NOT NULL, body text NOT NULL);
CREATE INDEX ON message (mailbox, id);
"""
_SEND: Final = "INSERT INTO message (mailbox, body) VALUES (%s, %s)"
_SEND_AND_NOTIFY: Final = (
    "WITH sent AS (INSERT INTO message (mailbox, body) VALUES (%s, %s) RETURNING mailbox)"
    " SELECT pg_notify(mailbox, '') FROM sent"
)
_TAKE: Final = (
    "DELETE FROM message WHERE id IN (SELECT id FROM message WHERE mailbox = %s ORDER BY id"
    " FOR UPDATE SKIP LOCKED LIMIT %s) RETURNING body"
)

_FACTS: Final = (
    "SELECT name, setting FROM pg_settings"
    " WHERE name IN ('server_version', 'fsync', 'synchronous_commit', 'wal_sync_method')"
)


class PostgresBox:
    """A table of messages in PostgreSQL."""

    def __init__(self, where: str) -> None:
        import psycopg  # noqa: PLC0415 - only the process of this contestant has to have it

        self._client = psycopg.connect(f"host={where} user=bench dbname=postgres", autocommit=True)
        self._listening: set[str] = set()

    def make(self) -> None:
        """Make the table."""
        self._client.execute(_TABLE)

    def send(self, mailbox: str, body: str) -> None:
        """See ``Box``. A crowd needs no notifications: its receiver never waits long for a message."""
        self._client.execute(_SEND if mailbox == "crowd" else _SEND_AND_NOTIFY, (mailbox, body))

    def receive(self, mailbox: str) -> str:
        """See ``Box``."""
        if mailbox not in self._listening:
            self._client.execute(f"LISTEN {mailbox}".encode())
            self._listening.add(mailbox)
        until = time.monotonic() + PATIENCE_S
        while time.monotonic() < until:
            taken = self._take(mailbox, 1)
            if taken:
                return taken[0]
            # A notification may have been missed while another message was received.
            for _ in self._client.notifies(timeout=1.0, stop_after=1):
                pass
        raise TimeoutError(f"nothing came within {PATIENCE_S:g} s")

    def drain(self, mailbox: str) -> int:
        """See ``Box``."""
        until = time.monotonic() + PATIENCE_S
        while not (taken := self._take(mailbox, BATCH)):
            if time.monotonic() > until:
                raise TimeoutError(f"nothing came within {PATIENCE_S:g} s")
            Event().wait(0.001)
        return len(taken)

    def facts(self) -> dict[str, str]:
        """See ``Box``."""
        rows = self._client.execute(_FACTS).fetchall()
        return {str(name): str(value) for name, value in rows}

    def _take(self, mailbox: str, count: int) -> list[str]:
        return [str(row[0]) for row in self._client.execute(_TAKE, (mailbox, count)).fetchall()]


def prepare_postgres(directory: str, size: int) -> None:
    """Create the files of a server; they belong to a user other than root, because the server refuses to run as root."""
    del size
    data = os.path.join(directory, "data")
    os.mkdir(data, 0o700)
    user = _user()
    if user is not None:
        shutil.chown(data, user)
        _let_through(directory)
    command = [find_program("initdb") or "", "-D", data, "-U", "bench", "-A", "trust", "-E", "UTF8"]
    command += ["--locale", "C", "--no-sync"]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=PATIENCE_S, check=False, user=user, cwd="/"
    )
    if done.returncode:
        raise RuntimeError(done.stderr.strip() or done.stdout.strip())


@contextmanager
def serve_postgres(directory: str) -> Generator[str]:
    """A PostgreSQL of our own with the files in ``directory``; yields the directory of its socket."""
    user = _user()
    with tempfile.TemporaryDirectory(prefix="bench-") as room:
        if user is not None:
            shutil.chown(room, user)
        command = [find_program("postgres") or "", "-D", os.path.join(directory, "data"), "-k", room]
        command += ["-c", "listen_addresses=", "-c", "fsync=on", "-c", "synchronous_commit=on"]
        with _running(command, directory, signal.SIGINT, user) as check:
            _wait_for(partial(_answers, room), check)
            PostgresBox(room).make()
            yield room


def _answers(where: str) -> bool:
    import psycopg  # noqa: PLC0415 - only the process of this contestant has to have it

    try:
        PostgresBox(where)
    except psycopg.OperationalError:
        return False
    return True


def _user() -> str | None:
    """The user of a server that does not run as root; ``None`` if we are not root either."""
    if os.geteuid() != 0:
        return None
    known = {entry.pw_name for entry in pwd.getpwall()}
    return next((name for name in ("postgres", "nobody") if name in known), None)


def _let_through(directory: str) -> None:
    """Open the private directories of the harness for the user of the server, and no directories above them."""
    for _ in ("size", "contestant", "race", "data"):
        os.chmod(directory, os.stat(directory).st_mode | 0o011)  # noqa: S103 - to pass, not to read or to write
        directory = os.path.dirname(directory)


# Servers


@contextmanager
def _running(
    command: list[str], directory: str, end: signal.Signals, user: str | None = None
) -> Generator[Callable[[], None]]:
    """A server that ends with the block and with this process; yields a function that raises if it has ended by itself."""
    log = os.path.join(directory, "server.log")
    with open(log, "wb") as output:
        server = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            user=user,
            cwd="/",
            preexec_fn=partial(set_death_signal, signal.SIGKILL),  # noqa: PLW1509 - we have one thread
        )

    def check() -> None:
        if server.poll() is not None:
            with open(log, encoding="utf-8", errors="replace") as said:
                raise RuntimeError(f"the server ended: {said.read()[-500:].strip()}")

    try:
        yield check
    finally:
        server.send_signal(end)
        try:
            server.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def _wait_for(ready: Callable[[], bool], check: Callable[[], None]) -> None:
    until = time.monotonic() + PATIENCE_S
    while not ready():
        check()
        if time.monotonic() > until:
            raise TimeoutError(f"the server was not there within {PATIENCE_S:g} s")
        Event().wait(0.02)


PEERS: Final = {
    "redis": Peer(serve=serve_redis, connect=RedisBox),
    "postgres": Peer(serve=serve_postgres, connect=PostgresBox),
}


def mailbox_peers(measure: Callable[..., Sample], size: int) -> tuple[Contestant, ...]:
    """The contestants for a race in which ``measure`` does the work of a peer; they take long to begin."""
    return (
        Contestant(
            key="redis",
            label="Redis Streams, appendfsync always",
            measure=partial(measure, peer="redis"),
            size=size,
            needs=("redis",),
            programs=("redis-server",),
            every=2,
        ),
        Contestant(
            key="postgres",
            label="PostgreSQL, FOR UPDATE SKIP LOCKED",
            measure=partial(measure, peer="postgres"),
            size=size,
            prepare=prepare_postgres,
            needs=("psycopg",),
            programs=("postgres", "initdb"),
            every=2,
        ),
    )
