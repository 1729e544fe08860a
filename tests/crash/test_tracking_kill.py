"""Tracking under fire: services that come and go, and processes that are killed at any moment."""

from __future__ import annotations

import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bartack.core.user_home import user_home
from bartack.resilience import PatternCache
from bartack.resilience.link import DaemonLink, register_outbox
from bartack.resilience.spool import Spool
from bartack.testing import CountingService
from bartack.testing._service import hold_port

PRODUCER = Path(__file__).with_name("producer.py")
SOAK = bool(os.environ.get("SOAK"))
PROCESSES = 50
EVENTS = 200 if SOAK else 4
KILLS = 2000 if SOAK else 200


def until(condition: Callable[[], bool], timeout_s: float = 60.0) -> bool:
    deadline, pause = time.monotonic() + timeout_s, threading.Event()
    while not condition():
        if time.monotonic() > deadline:
            return False
        pause.wait(0.005)
    return True


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    for name in ("INTELLIGENCE_SERVICE_URL", "PATTERN_CACHE_DIR", "PATTERN_TRACKING_ENABLED"):
        monkeypatch.delenv(name, raising=False)
    place = user_home()
    place.mkdir(parents=True)
    return place


class Fleet:
    """Producers, the daemon and what they leave behind."""

    def __init__(self, home: Path, directory: Path, url: str) -> None:
        self.home = home
        self.directory = directory
        self.url = url
        self.acknowledged = directory.parent / "acknowledged"
        self.acknowledged.touch()
        self.daemon: subprocess.Popen[bytes] | None = None
        (home / "bartack.toml").write_text(
            f'[tracking]\nurl = "{url}"\n[daemon]\nhttp_port = 0\n[health]\ninterval = 0.2\ntimeout = 0.5\n'
            "[breaker]\ntimeout = 0.2\n[outbox]\nmax_attempts = 1000\nbackoff_cap = 0.2\n"
        )
        directory.mkdir()
        (directory / "bartack.toml").write_text((home / "bartack.toml").read_text())
        register_outbox(directory, home)
        command = [sys.executable, str(PRODUCER), str(directory), url, str(self.acknowledged)]
        self.zygote = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def start_daemon(self) -> None:
        self.daemon = subprocess.Popen([sys.executable, "-I", "-m", "bartack", "daemon", "run"], cwd="/")
        assert until(DaemonLink(self.home).is_running)

    def kill_daemon(self) -> None:
        assert self.daemon is not None
        self.daemon.kill()
        self.daemon.wait()

    def produce(self, count: int) -> int:
        assert self.zygote.stdin is not None
        assert self.zygote.stdout is not None
        self.zygote.stdin.write(f"{count}\n")
        self.zygote.stdin.flush()
        return int(self.zygote.stdout.readline())

    def finish(self) -> None:
        """Wait for every producer."""
        assert self.zygote.stdin is not None
        assert self.zygote.stdout is not None
        self.zygote.stdin.close()
        assert self.zygote.wait(120) == 0
        self.zygote.stdout.close()

    def ids(self) -> set[str]:
        return set(self.acknowledged.read_text().split())

    def close(self) -> None:
        if self.zygote.poll() is None:
            self.zygote.kill()
            self.zygote.wait()
        for stream in (self.zygote.stdin, self.zygote.stdout):
            if stream is not None:
                stream.close()
        if self.daemon is not None and self.daemon.poll() is None:
            self.daemon.terminate()
            self.daemon.wait(60)


@pytest.fixture
def service() -> Iterator[CountingService]:
    with CountingService() as service:
        yield service


@pytest.fixture
def fleet(home: Path, tmp_path: Path, service: CountingService) -> Iterator[Fleet]:
    fleet = Fleet(home, tmp_path / "outbox", service.url)
    yield fleet
    fleet.close()


def be_up(service: CountingService) -> None:
    service.come_back()


def be_down(service: CountingService) -> None:
    service.go_away()


def hang(service: CountingService) -> None:
    service.hang()


@pytest.mark.requirement("every-event-arrives")
@pytest.mark.parametrize(
    "behave",
    [
        # In ``make soak``: the service that comes and goes is up for most of the time, too.
        pytest.param(be_up, id="up", marks=pytest.mark.soak),
        pytest.param(be_down, id="down"),
        pytest.param(hang, id="hanging"),
    ],
)
def test_every_event_of_fifty_processes_arrives(
    fleet: Fleet, service: CountingService, behave: Callable[[CountingService], None]
) -> None:
    fleet.start_daemon()
    behave(service)
    for _ in range(PROCESSES):
        fleet.produce(EVENTS)
    fleet.finish()
    service.answer_again()
    service.come_back()

    assert len(fleet.ids()) == PROCESSES * EVENTS
    assert service.wait_for(PROCESSES * EVENTS, timeout_s=120)
    assert set(service.received) == fleet.ids()
    if behave is not hang:  # a call that was given up may have been heard all the same
        assert set(service.received.values()) == {1}


@pytest.mark.requirement("every-event-arrives")
def test_every_event_arrives_at_a_service_that_comes_and_goes(fleet: Fleet, service: CountingService) -> None:
    fleet.start_daemon()
    done = threading.Event()

    def flap() -> None:
        chance = random.Random(5)
        while not done.wait(chance.uniform(0.02, 0.2)):
            chance.choice([service.go_away, service.come_back, service.come_back])()
        service.come_back()

    flapping = threading.Thread(target=flap)
    flapping.start()
    for _ in range(PROCESSES):
        fleet.produce(EVENTS)
    fleet.finish()
    done.set()
    flapping.join()

    assert service.wait_for(PROCESSES * EVENTS, timeout_s=120)
    assert set(service.received) == fleet.ids()


class RealService:
    """The lineage service as a process that can be killed."""

    def __init__(self, home: Path) -> None:
        self.port, self._place = hold_port()
        self.database = home / "lineage.db"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [sys.executable, "-m", "bartack", "lineage", "serve", "--port", str(self.port)]
        self.process = subprocess.Popen([*command, "--db", str(self.database)], stderr=subprocess.DEVNULL)

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def close(self) -> None:
        self.kill()
        self._place.close()

    def events(self) -> list[str]:
        try:
            connection = sqlite3.connect(f"file:{self.database}?mode=ro", uri=True)
            try:
                return [str(one) for (one,) in connection.execute("SELECT event_id FROM events")]
            finally:
                connection.close()
        except sqlite3.OperationalError:
            return []


AT_ONCE = 4


def kill_some_producers(fleet: Fleet, chance: random.Random) -> None:
    producers = [fleet.produce(1000) for _ in range(AT_ONCE)]
    wanted = fleet.acknowledged.stat().st_size + 45 * chance.randrange(1, 12)
    until(lambda: fleet.acknowledged.stat().st_size >= wanted, 60.0)
    for pid in producers:
        os.kill(pid, signal.SIGKILL)


@pytest.mark.requirement("killed-anywhere-loses-nothing")
def test_nothing_is_lost_when_producers_daemon_and_service_are_killed(home: Path, tmp_path: Path) -> None:
    service = RealService(home)
    fleet = Fleet(home, tmp_path / "outbox", f"http://127.0.0.1:{service.port}")
    chance = random.Random(11)
    killed = {"producer": 0, "daemon": 0, "service": 0}
    try:
        service.start()
        fleet.start_daemon()
        while sum(killed.values()) < KILLS:
            kill_some_producers(fleet, chance)
            killed["producer"] += AT_ONCE
            if killed["producer"] % (5 * AT_ONCE) == 0:
                fleet.kill_daemon()
                killed["daemon"] += 1
                fleet.start_daemon()
            if killed["producer"] % (11 * AT_ONCE) == 0:
                service.kill()
                killed["service"] += 1
                service.start()
        fleet.finish()

        expected = fleet.ids()
        assert min(killed.values()) >= 4
        assert len(expected) > KILLS
        assert until(lambda: expected <= set(service.events()), 120.0), (
            len(expected - set(service.events())),
            (home / "daemon.log").read_text()[-3000:],
        )
        assert len(service.events()) == len(set(service.events()))
    finally:
        fleet.close()
        service.close()


DIER = """
import os, signal, sys
import bartack.resilience.outbox.outbox as outbox, bartack.resilience._store as store, bartack.resilience.mirror as mirror
import bartack.resilience.spool as spool, bartack.resilience._delivery as delivery
from bartack.resilience import *
import asyncio
point, directory, url = sys.argv[1:]

def die(*args, **kwargs):
    os.kill(os.getpid(), signal.SIGKILL)

def before(owner, name):
    setattr(owner, name, die)

def after(owner, name, nth=1):
    real = getattr(owner, name)
    def wrapped(*args, **kwargs):
        real(*args, **kwargs)
        die()
    setattr(owner, name, wrapped)

cache = PatternCache(directory)
first = cache.keep({"event_type": "pattern_created", "pattern_id": "first"}, recipient=url).event_id
print(first, flush=True)
if point.startswith("spool"):
    cache.outbox.insert = None
    def busy(*args, **kwargs):
        from bartack.errors import StoreUnavailableError
        raise StoreUnavailableError("x", "busy")
    cache._outbox.insert = busy
{
    "before commit": lambda: before(store, "_in_transaction"),
    "after commit": lambda: after(store, "_in_transaction"),
    "before copy": lambda: before(mirror.Mirror, "write"),
    "after copy": lambda: after(mirror.Mirror, "write"),
    "spool before rename": lambda: before(spool.os, "rename"),
    "spool after rename": lambda: after(spool.os, "rename"),
    "before post": lambda: before(delivery.Deliverer, "_post"),
    "before mark": lambda: before(outbox.Outbox, "settle"),
    "after mark": lambda: after(outbox.Outbox, "settle"),
    "before claim": lambda: before(outbox.Outbox, "claim"),
    "after claim": lambda: after(outbox.Outbox, "claim"),
}[point]()
second = cache.keep({"event_type": "pattern_created", "pattern_id": "second"}, recipient=url).event_id
print(second, flush=True)
deliverer = Deliverer(cache.outbox, url, load_settings())
asyncio.run(deliverer.drain())
"""


@pytest.mark.requirement("killed-anywhere-loses-nothing")
@pytest.mark.parametrize(
    "point",
    [
        "before commit", "after commit", "before copy", "after copy", "spool before rename", "spool after rename",
        "before claim", "after claim", "before post", "before mark", "after mark",
    ],
)  # fmt: skip
def test_a_kill_at_this_point_loses_nothing_that_was_acknowledged(
    tmp_path: Path, service: CountingService, point: str
) -> None:
    directory = tmp_path / "outbox"
    done = subprocess.run(
        [sys.executable, "-c", DIER, point, str(directory), service.url],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    acknowledged = done.stdout.split()
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert len(acknowledged) == (1 if "commit" in point or "copy" in point or "spool" in point else 2)

    cache = PatternCache(directory)
    cache.take_in()
    # The lease of the dead ends.
    cache.store.write(
        lambda connection: connection.execute("UPDATE outbox SET lease_until=0 WHERE state='leased'")
    )
    sync = subprocess.run(
        [sys.executable, "-m", "bartack", "track", "sync", "--json"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "PATTERN_CACHE_DIR": str(directory)},
    )

    assert sync.returncode == 0, sync.stderr
    assert json.loads(sync.stdout)["waiting"] == 0
    assert set(acknowledged) <= set(service.received)
    assert Spool(directory).names() == []
    assert list(directory.glob("pending_*.json")) == []
