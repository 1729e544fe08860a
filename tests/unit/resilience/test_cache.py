from __future__ import annotations

import asyncio
import json
import os
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from bartack.resilience import NewEvent, PatternCache, StateStore
from bartack.resilience.link import DaemonLink
from bartack.resilience.spool import Header, Spool
from bartack.testing import VirtualClock

EVENT: dict[str, object] = {"event_type": "pattern_created", "pattern_id": "p", "pattern_data": {"code": "x"}}


class Taker:
    """A foreign client: takes events, or fails on demand."""

    def __init__(self, fail: Callable[[dict[str, object]], bool] = lambda event: False) -> None:
        self.taken: list[dict[str, object]] = []
        self._fail = fail

    async def track_lineage(self, **event: object) -> dict[str, object]:
        if self._fail(event):
            raise ConnectionError("away")
        self.taken.append(event)
        return {"success": True}


@pytest.fixture
def cache(tmp_path: Path) -> PatternCache:
    return PatternCache(tmp_path / "cache")


def keep(cache: PatternCache, count: int = 1) -> list[str]:
    return [cache.keep({**EVENT, "n": n}).event_id for n in range(count)]


def sync(cache: PatternCache, client: object, max_retries: int = 3) -> dict[str, int]:
    return asyncio.run(cache.sync_cached_events(client, max_retries))


def files(cache: PatternCache) -> list[Path]:
    return sorted(cache.cache_dir.glob("pending_*.json"))


def test_an_event_is_kept_with_a_readable_copy(cache: PatternCache) -> None:
    event_id = asyncio.run(cache.cache_pattern_event(EVENT))

    (path,) = files(cache)
    copy = json.loads(path.read_text())
    assert path.name == f"pending_{event_id}.json"
    assert set(copy) == {
        "event_id", "timestamp", "event_type", "pattern_id", "event_data", "retry_count", "last_retry",
    }  # fmt: skip
    assert (copy["event_id"], copy["event_data"], copy["retry_count"]) == (event_id, EVENT, 0)
    assert copy["timestamp"].endswith("+00:00")


def test_a_thousand_events_of_one_pattern_in_one_millisecond_are_a_thousand_rows(tmp_path: Path) -> None:
    cache = PatternCache(tmp_path / "cache", clock=VirtualClock())
    ids = [cache.new_event_id("same") for _ in range(1000)]

    cache.outbox.put([NewEvent(one, "pattern", "http://x", b'{"pattern_id":"same"}') for one in ids])

    assert len({event_id.split("_")[0] for event_id in ids}) == 1
    assert cache.get_stats()["pending_events"] == 1000
    assert len(files(cache)) == 1000


def test_what_is_delivered_leaves_no_file(cache: PatternCache) -> None:
    keep(cache, 3)
    taker = Taker()

    assert sync(cache, taker) == {"total_found": 3, "synced": 3, "failed": 0, "skipped": 0}

    assert [event["n"] for event in taker.taken] == [0, 1, 2]
    assert taker.taken[0] == {**EVENT, "n": 0}
    assert files(cache) == []
    assert cache.get_stats()["total_synced"] == 3


def test_a_failure_keeps_the_file_and_counts_the_attempt(cache: PatternCache) -> None:
    keep(cache, 3)

    counts = sync(cache, Taker(lambda event: event["n"] == 1))

    assert counts == {"total_found": 3, "synced": 2, "failed": 1, "skipped": 0}
    (path,) = files(cache)
    copy = json.loads(path.read_text())
    assert (copy["event_data"]["n"], copy["retry_count"]) == (1, 1)
    assert copy["last_retry"].endswith("+00:00")


def test_an_explicit_sync_ignores_the_backoff_but_not_the_retries(cache: PatternCache) -> None:
    keep(cache)
    for _ in range(3):
        assert sync(cache, Taker(lambda event: True))["failed"] == 1

    assert sync(cache, Taker()) == {"total_found": 1, "synced": 0, "failed": 0, "skipped": 1}
    assert sync(cache, Taker(), max_retries=4)["synced"] == 1


def test_what_another_process_has_leased_is_skipped(cache: PatternCache) -> None:
    keep(cache, 2)
    PatternCache(cache.cache_dir).outbox.claim(limit=1)

    assert sync(cache, Taker()) == {"total_found": 2, "synced": 1, "failed": 0, "skipped": 1}


def test_a_client_that_only_tracks_patterns_will_do(cache: PatternCache) -> None:
    class Other:
        async def track_pattern_resilient(self, **event: object) -> dict[str, object]:
            return {"success": event["n"] == 0}

    keep(cache, 2)

    assert sync(cache, Other()) == {"total_found": 2, "synced": 1, "failed": 1, "skipped": 0}


def test_a_cancelled_sync_gives_back_what_it_had_not_delivered(cache: PatternCache) -> None:
    keep(cache, 3)

    class Slow:
        def __init__(self) -> None:
            self.stuck = asyncio.Event()

        async def track_lineage(self, **event: object) -> None:
            if event["n"] == 1:
                self.stuck.set()
                await asyncio.Event().wait()

    async def scenario() -> None:
        client = Slow()
        async with asyncio.TaskGroup() as group:
            syncing = group.create_task(cache.sync_cached_events(client))
            await client.stuck.wait()
            syncing.cancel()
        assert syncing.cancelled()

    asyncio.run(scenario())

    assert cache.outbox.count() == {"pending": 2, "leased": 0, "delivered": 1, "dead": 0}


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_truncated_copy_blocks_nothing(cache: PatternCache, place: int) -> None:
    keep(cache, 3)
    # As an older tool leaves them: files without rows.
    for path in cache.cache_dir.glob("outbox.db*"):
        path.unlink()
    broken = files(cache)[place]
    broken.write_bytes(broken.read_bytes()[:40])

    assert sync(cache, Taker())["synced"] == 2

    assert files(cache) == []
    assert len(list((cache.cache_dir / "quarantine").iterdir())) == 1


@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize("cut", [5, -10])
def test_a_truncated_spool_file_blocks_nothing(cache: PatternCache, place: int, cut: int) -> None:
    spool = Spool(cache.cache_dir)
    for n in range(3):
        header = Header("pattern", 1000 + n, "/", event_id=f"e{n}", recipient="http://x")
        spool.put(header, json.dumps({**EVENT, "n": n}).encode())
    broken = sorted((cache.cache_dir / "spool" / "new").iterdir())[place]
    broken.write_bytes(broken.read_bytes()[:cut])

    assert sync(cache, Taker())["synced"] == 2

    assert spool.names() == []
    assert len(list((cache.cache_dir / "quarantine").iterdir())) == 1


@pytest.mark.requirement("older-files-are-imported-once")
def test_files_of_an_older_tool_are_imported_once(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    source = PatternCache(home / "source")
    ids = keep(source, 3)
    folder = home / ".claude" / "hooks" / ".cache" / "patterns"
    folder.mkdir(parents=True)
    for path in files(source):
        shutil.copy(path, folder)
    (folder / "pending_broken.json").write_text("{")
    cache = PatternCache()

    cache.take_in()
    again = PatternCache()
    again.take_in()

    assert cache.outbox.known(ids) == set(ids)
    assert cache.get_stats()["total_cached"] == 3
    assert list(folder.glob("pending_*")) == []
    assert again.get_stats()["total_cached"] == 3


def test_importing_keeps_ids_times_and_retries_and_a_second_time_adds_nothing(
    cache: PatternCache, tmp_path: Path
) -> None:
    folder = tmp_path / "older"
    folder.mkdir()
    copy = {
        "event_id": "17_p_0badcafe",
        "timestamp": "2026-01-01T00:00:00+00:00",
        "event_data": EVENT,
        "retry_count": 2,
    }
    for _ in range(2):
        (folder / "pending_17_p_0badcafe.json").write_text(json.dumps(copy))
        cache.import_folder(folder)

    (row,) = cache.outbox.rows()
    assert (row.event_id, row.created_at, row.attempts) == ("17_p_0badcafe", 1767225600.0, 2)
    assert list(folder.iterdir()) == []


def test_too_old_events_are_given_up_by_their_own_time(tmp_path: Path) -> None:
    clock = VirtualClock(start_us=2_000_000_000_000_000)
    cache = PatternCache(tmp_path / "cache", clock=clock)
    first, second, third = keep(cache, 3)
    now = cache.store.wall()
    for event_id in (first, second, third):
        os.utime(cache.outbox.mirror.path(event_id), (now, now))
    old = now - 8 * 86_400
    os.utime(cache.outbox.mirror.path(first), (old, old))
    path = cache.outbox.mirror.path(second)
    path.write_text(path.read_text().replace('"timestamp": "2033', '"timestamp": "2023'))

    assert asyncio.run(cache.cleanup_old_events()) == 2

    assert [path.name for path in files(cache)] == [f"pending_{third}.json"]
    assert {row.reason for row in cache.outbox.rows(state="dead")} == {"expired"}


def test_a_busy_database_sends_events_to_the_spool_and_none_is_lost(cache: PatternCache) -> None:
    keep(cache)

    def hold(connection: sqlite3.Connection) -> str:
        return cache.keep({**EVENT, "n": "late"}).event_id

    with StateStore(cache.cache_dir) as other:
        event_id = other.write(hold)

    assert len(Spool(cache.cache_dir).names()) == 1
    cache.take_in()
    assert cache.outbox.known([event_id]) == {event_id}
    assert Spool(cache.cache_dir).names() == []


def test_where_nothing_can_be_written_the_id_is_empty_and_the_loss_is_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    cache = PatternCache(tmp_path / "file" / "below")

    assert asyncio.run(cache.cache_pattern_event(EVENT)) == ""

    assert cache.lost == 1
    assert "could not be kept" in caplog.text


def test_values_that_json_has_no_form_for_become_text(cache: PatternCache) -> None:
    cache.keep({**EVENT, "path": Path("/x"), "half": "a\ud800b", "set": {1}})

    (row,) = cache.outbox.rows()
    assert json.loads(row.payload or b"")["path"] == "/x"


def test_known_secrets_are_not_stored(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SOME_API_KEY", "sk-very-secret-value")
    cache = PatternCache(tmp_path / "cache")

    cache.keep({**EVENT, "pattern_data": {"code": "key = 'sk-very-secret-value'"}})

    everything = b"".join(path.read_bytes() for path in cache.cache_dir.rglob("*") if path.is_file())
    assert b"sk-very-secret" not in everything
    assert b"$env:SOME_API_KEY" in everything


def test_another_directory_holds_from_the_next_event_on(cache: PatternCache, tmp_path: Path) -> None:
    keep(cache)
    cache.cache_dir = tmp_path / "moved"

    keep(cache, 2)

    assert cache.get_stats()["pending_events"] == 2
    assert len(files(cache)) == 2
    assert PatternCache(tmp_path / "cache").get_stats()["pending_events"] == 1


def test_nothing_answers_where_no_daemon_is(tmp_path: Path) -> None:
    link = DaemonLink(tmp_path)

    assert (link.is_running(), link.notify(tmp_path), link.facts()) == (False, False, {})
