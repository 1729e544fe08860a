from __future__ import annotations

import gc
import logging
import os
import sqlite3
import stat
import subprocess
import sys
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import ClassVar

import pytest

from bartack.errors import StoreTooNewError, StoreUnavailableError
from bartack.resilience import NewEvent, Outbox, StateStore
from bartack.resilience._salvage import put_aside
from bartack.resilience._schema import MIGRATIONS, VERSION
from bartack.telemetry import Telemetry

PAYLOAD = b'{"event_type":"pattern_created","pattern_id":"p"}'


def fill(outbox: Outbox, count: int, size: int = 400) -> list[str]:
    ids = [f"e{n}" for n in range(count)]
    payload = b'{"pattern_id":"%s"}' % os.urandom(size // 2).hex().encode()
    outbox.put([NewEvent(one, "hook", "local", payload) for one in ids])
    return ids


def damage(path: Path, offset: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(data)


def count(connection: sqlite3.Connection) -> int:
    found: int = connection.execute("SELECT count(*) FROM outbox").fetchone()[0]
    return found


def test_files_are_for_their_owner_only(store: StateStore) -> None:
    store.write(lambda connection: None)

    assert stat.S_IMODE(store.directory.stat().st_mode) == 0o700
    modes = {stat.S_IMODE(path.stat().st_mode) for path in store.directory.iterdir()}
    assert modes == {0o600}


def test_a_write_that_raises_leaves_nothing(outbox: Outbox) -> None:
    def work(connection: sqlite3.Connection) -> None:
        connection.execute("INSERT INTO counters VALUES('x', 1)")
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        outbox.store.write(work)

    assert "x" not in outbox.counters()


@pytest.mark.requirement("corrupt-database-is-quarantined")
def test_random_bytes_in_the_middle_cost_only_the_rows_they_hit(
    outbox: Outbox, caplog: pytest.LogCaptureFixture
) -> None:
    ids = fill(outbox, 400)
    outbox.store.checkpoint()
    outbox.store.close()
    size = outbox.store.path.stat().st_size
    damage(outbox.store.path, size // 2, os.urandom(3 * 4096))

    outbox.store.check()

    saved = outbox.known(ids)
    assert len(ids) // 2 < len(saved) <= len(ids)
    assert [
        path.name.startswith("outbox-") for path in (outbox.store.directory / "quarantine").iterdir()
    ] == [True]
    assert "moved aside" in caplog.text
    outbox.put([NewEvent("later", "pattern", "http://x", PAYLOAD)])
    assert outbox.known(["later"]) == {"later"}


@pytest.mark.requirement("corrupt-database-is-quarantined")
@pytest.mark.parametrize("kept", [3, 100, 5000])
def test_a_truncated_database_is_put_aside_and_work_continues(outbox: Outbox, kept: int) -> None:
    fill(outbox, 100)
    outbox.store.checkpoint()
    outbox.store.close()
    os.truncate(outbox.store.path, kept)

    outbox.put([NewEvent("later", "pattern", "http://x", PAYLOAD)])
    outbox.store.check()

    assert outbox.known(["later"]) == {"later"}
    assert len(list((outbox.store.directory / "quarantine").iterdir())) == 1


def test_who_has_the_damaged_file_open_continues_with_the_fresh_one(tmp_path: Path) -> None:
    first, second = StateStore(tmp_path), StateStore(tmp_path)
    fill(Outbox(first), 50)
    assert second.read(count) == 50
    first.checkpoint()
    damage(first.path, 0, b"no database any more")
    first.close()

    first.check()
    Outbox(second).put([NewEvent("later", "pattern", "http://x", PAYLOAD)])

    assert Outbox(first).known(["later"]) == {"later"}
    first.close()
    second.close()


def test_what_went_to_a_database_that_was_put_aside_meanwhile_is_done_again(outbox: Outbox) -> None:
    fill(outbox, 1)
    aside: list[Path] = []

    def work(connection: sqlite3.Connection) -> None:
        if not aside:  # another process, in the middle of our transaction
            aside.append(put_aside(outbox.store.directory))
        connection.execute("INSERT INTO counters VALUES('mine', 1)")

    outbox.store.write(work)

    assert outbox.counters()["mine"] == 1
    assert (aside[0] / "outbox.db").exists()


def test_a_damaged_database_is_reported_to_telemetry(tmp_path: Path) -> None:
    reported: list[tuple[str, int]] = []

    def note(name: str, numbers: Mapping[str, int], facts: Mapping[str, object], config: object) -> None:
        reported.append((name, numbers["events"]))

    telemetry = Telemetry()
    telemetry.attach("test", "outbox.quarantined", note)
    with StateStore(tmp_path, telemetry=telemetry) as store:
        fill(Outbox(store), 3)
        store.checkpoint()
        store.close()
        damage(store.path, 0, b"garbage garbage garbage")

        store.check()

    assert reported == [("outbox.quarantined", 0)]


def test_a_database_of_version_1_is_migrated_with_its_rows(tmp_path: Path) -> None:
    path = tmp_path / "outbox.db"
    with sqlite3.connect(path) as connection:
        connection.executescript(MIGRATIONS[0] + "PRAGMA user_version=1;")
        connection.execute(
            "INSERT INTO outbox(event_id,kind,recipient,payload,size,state,next_attempt_at,created_at,boot)"
            " VALUES('old','pattern','http://x',?,?,'pending',0,1,'b')",
            (PAYLOAD, len(PAYLOAD)),
        )
    connection.close()

    with StateStore(tmp_path) as store:
        outbox = Outbox(store)
        claims = outbox.claim()

        assert [(claim.event_id, claim.payload) for claim in claims] == [("old", PAYLOAD)]
        assert outbox.counters()["bytes"] == len(PAYLOAD)
        version = store.read(lambda connection: connection.execute("PRAGMA user_version").fetchone()[0])
        assert version == VERSION


def test_a_database_of_the_future_is_refused_unchanged(tmp_path: Path) -> None:
    path = tmp_path / "outbox.db"
    with sqlite3.connect(path) as connection:
        connection.execute(f"PRAGMA user_version={VERSION + 1}")
    connection.close()
    before = path.read_bytes()

    with pytest.raises(StoreTooNewError) as raised:
        StateStore(tmp_path).write(lambda connection: None)

    assert (raised.value.found, raised.value.known) == (VERSION + 1, VERSION)
    assert path.read_bytes() == before


def test_a_directory_that_cannot_be_made_is_unavailable(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(StoreUnavailableError):
        StateStore(tmp_path / "file" / "below").write(lambda connection: None)


def test_a_busy_database_is_unavailable_after_the_given_time(tmp_path: Path) -> None:
    holder, other = StateStore(tmp_path), StateStore(tmp_path)
    other.write(lambda connection: None)

    def hold(connection: sqlite3.Connection) -> None:
        with pytest.raises(StoreUnavailableError, match="locked"):
            other.write(lambda connection: None, busy_s=0.05)

    holder.write(hold)
    holder.close()
    other.close()


def test_a_deleted_database_is_made_anew(outbox: Outbox) -> None:
    fill(outbox, 1)
    for path in outbox.store.directory.glob("outbox.db*"):
        path.unlink()

    outbox.put([NewEvent("later", "pattern", "http://x", PAYLOAD)])

    assert outbox.count()["pending"] == 1


def test_a_forked_child_opens_a_connection_of_its_own(outbox: Outbox) -> None:
    fill(outbox, 1)

    child = os.fork()
    if child == 0:
        try:
            outbox.put([NewEvent("child", "pattern", "http://x", PAYLOAD)])
        finally:
            os._exit(0)
    os.waitpid(child, 0)

    assert outbox.known(["e0", "child"]) == {"e0", "child"}


@pytest.mark.parametrize("opener", ["another store", "another thread"])
def test_a_second_connection_of_a_process_keeps_the_lock_of_the_first(tmp_path: Path, opener: str) -> None:
    directory = tmp_path / "state"
    program = (
        "import sys\n"
        "from bartack.resilience import NewEvent, Outbox, StateStore\n"
        "with StateStore(sys.argv[1]) as store:\n"
        "    Outbox(store).put([NewEvent('other', 'pattern', 'http://x', b'{}')])\n"
    )
    with StateStore(directory) as store, StateStore(directory) as second, ThreadPoolExecutor(1) as thread:
        fill(Outbox(store), 1)
        log = (directory / "outbox.db-wal").stat().st_ino
        assert (thread.submit(store.read, count).result() if "thread" in opener else second.read(count)) == 1
        # The last process to close a database deletes its log, unless it finds the lock of another process.
        subprocess.run([sys.executable, "-c", program, str(directory)], check=True, timeout=120)

        assert (directory / "outbox.db-wal").stat().st_ino == log
        assert store.read(count) == 2


def test_importing_the_package_loads_nothing_slow() -> None:
    code = (
        "import sys; before = set(sys.modules); import bartack.resilience;"
        "print(sorted({'asyncio', 'httpx', 'sqlite3', 'json'} & (set(sys.modules) - before)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    )

    assert done.stdout.strip() == "[]"


def test_every_exported_name_can_be_loaded_and_no_other() -> None:
    import bartack.resilience as door  # noqa: PLC0415 - the module itself is looked at

    assert [name for name in door.__all__ if getattr(door, name) is None] == []
    with pytest.raises(AttributeError):
        getattr(door, "no_such_name")  # noqa: B009 - a checker would refuse it written plainly


@pytest.fixture(autouse=True)
def logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "bartack")


class Watched(sqlite3.Connection):
    """Counts the connections that were closed and not just left to the interpreter."""

    closed: ClassVar[int] = 0

    def close(self) -> None:
        Watched.closed += 1
        super().close()


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> type[Watched]:
    monkeypatch.setattr(Watched, "closed", 0)
    monkeypatch.setattr(sqlite3, "connect", partial(sqlite3.connect, factory=Watched))
    return Watched


@pytest.mark.requirement("connections-are-closed")
def test_the_connection_of_a_thread_ends_with_the_thread(tmp_path: Path, watched: type[Watched]) -> None:
    with StateStore(tmp_path / "state") as store:
        store.read(count)
        for _ in range(3):
            thread = threading.Thread(target=store.read, args=(count,))
            thread.start()
            thread.join()

        assert watched.closed == 3
        assert store.read(count) == 0
    assert watched.closed == 4


@pytest.mark.requirement("connections-are-closed")
def test_a_store_that_is_dropped_closes_its_connections(tmp_path: Path, watched: type[Watched]) -> None:
    StateStore(tmp_path / "state").read(count)
    gc.collect()

    assert watched.closed == 1


@pytest.mark.requirement("connections-are-closed")
def test_a_program_without_a_word_about_closing_leaves_nothing_open() -> None:
    program = (
        "import asyncio, functools, sqlite3\n"
        "class Watched(sqlite3.Connection):\n"
        "    def close(self):\n"
        "        print('closed', flush=True)\n"
        "        super().close()\n"
        "sqlite3.connect = functools.partial(sqlite3.connect, factory=Watched)\n"
        "from bartack.tracking import PatternTracker\n"
        "async def main():\n"
        "    tracker = await PatternTracker.get_instance()\n"
        "    print((await tracker.track_pattern_creation('x = 1', {}))['cached'])\n"
        "asyncio.run(main())\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        env={**os.environ, "INTELLIGENCE_SERVICE_URL": "http://127.0.0.1:9"},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )

    assert (done.returncode, "unclosed" in done.stderr) == (0, False), done.stderr
    assert done.stdout.splitlines() == ["True", "closed"]
