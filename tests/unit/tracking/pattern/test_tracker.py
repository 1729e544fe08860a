from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import cast
from unittest.mock import AsyncMock

import pytest

from bartack.resilience import NewEvent, Outbox, PatternCache
from bartack.testing import CountingService
from bartack.tracking import PatternTracker, track_edit_tool_pattern, track_write_tool_pattern
from bartack.tracking.pattern._tracker import Delivering, Result

AREA = "def area(w, h):\n    return w * h\n"
PLUS = "def area(w, h):\n    return w + h\n"
OTHER = "import os\n\nfor name in os.listdir('.'):\n    print(name, len(name))\n"


@pytest.fixture(autouse=True)
def instance() -> Iterator[None]:
    PatternTracker.reset_instance()
    yield
    PatternTracker.reset_instance()


@pytest.fixture
def tracker(service: CountingService) -> PatternTracker:
    return PatternTracker(service.url)


def run(delivering: Delivering) -> Result:
    return asyncio.run(delivering)


def cache_of(tracker: PatternTracker) -> PatternCache:
    cache = tracker.api_client.cache
    assert isinstance(cache, PatternCache)
    return cache


def body(service: CountingService, result: Result) -> dict[str, object]:
    return service.bodies[str(result["event_id"])]


def test_a_creation_arrives_with_everything(tracker: PatternTracker, service: CountingService) -> None:
    result = run(
        tracker.track_pattern_creation(
            AREA, {"file_path": "/p/area.py", "session_id": "s", "extra": 5, "tool_name": "Write"}
        )
    )

    event = body(service, result)
    assert result["success"] is True
    assert (event["event_type"], event["pattern_id"]) == ("pattern_created", result["pattern_id"])
    assert (event["pattern_name"], event["language"], event["pattern_version"]) == ("area", "python", "1.0.0")
    assert event["pattern_data"] == {"code": AREA, "file_path": "/p/area.py"}
    assert event["triggered_by"] == "claude-code"
    assert event["metadata"] == {
        "extra": 5, "tool_name": "Write", "session_id": "s", "id_scheme": "p1", "file_path": "/p/area.py",
        "normaliser": "python",
    }  # fmt: skip


def test_a_modification_has_its_parent_version_and_edge(
    tracker: PatternTracker, service: CountingService
) -> None:
    first = run(tracker.track_pattern_creation(AREA, {"file_path": "/p/a.py"}))

    second = run(
        tracker.track_pattern_modification(str(first["pattern_id"]), PLUS, {"file_path": "/p/a.py"}, "why")
    )

    event = body(service, second)
    assert (second["parent_pattern_id"], second["version"], second["similarity"]) == (
        first["pattern_id"],
        "1.0.1",
        0.9375,
    )
    assert (event["event_type"], event["edge_type"], event["reason"]) == (
        "pattern_modified",
        "modified_from",
        "why",
    )
    assert (event["parent_pattern_ids"], event["parent_versions"]) == ([first["pattern_id"]], ["1.0.0"])
    assert event["edge_weight"] == 0.9375


def test_a_change_of_layout_only_is_an_application(tracker: PatternTracker, service: CountingService) -> None:
    first = run(tracker.track_pattern_creation(AREA, {"file_path": "/p/a.py"}))

    second = run(
        tracker.track_pattern_modification(str(first["pattern_id"]), f"# new\n{AREA}", {"language": "python"})
    )

    event = body(service, second)
    assert (event["event_type"], "edge_type" in event, second["similarity"]) == (
        "pattern_applied",
        False,
        1.0,
    )


def test_an_unknown_parent_means_a_minor_change_of_unknown_likeness(tracker: PatternTracker) -> None:
    result = run(tracker.track_pattern_modification("python-code-unknown", PLUS, {}))

    assert (result["version"], result["similarity"]) == ("1.1.0", None)


def test_something_else_in_place_of_a_named_parent_is_derived(
    tracker: PatternTracker, service: CountingService
) -> None:
    first = run(tracker.track_pattern_creation(AREA, {}))

    second = run(tracker.track_pattern_modification(str(first["pattern_id"]), OTHER, {"language": "python"}))

    event = body(service, second)
    assert (event["edge_type"], event["pattern_version"]) == ("derived_from", "2.0.0")


def test_something_else_in_the_same_file_replaces(tracker: PatternTracker, service: CountingService) -> None:
    first = run(tracker.track_file(AREA, {"file_path": "/p/a.py"}))

    second = run(tracker.track_file(OTHER, {"file_path": "/p/a.py"}))

    event = body(service, second)
    assert (event["event_type"], event["pattern_version"]) == ("pattern_created", "1.0.0")
    assert "parent_pattern_ids" not in event
    metadata = event["metadata"]
    assert isinstance(metadata, dict)
    assert metadata["replaces"] == first["pattern_id"]


def test_going_back_to_old_code_makes_a_new_version_of_it(
    tracker: PatternTracker, service: CountingService
) -> None:
    run(tracker.track_file(AREA, {"file_path": "/p/a.py"}))
    run(tracker.track_file(PLUS, {"file_path": "/p/a.py"}))

    back = run(tracker.track_file(AREA, {"file_path": "/p/a.py"}))

    event = body(service, back)
    assert (event["event_type"], event["pattern_version"], event["parent_versions"]) == (
        "pattern_modified",
        "1.0.2",
        ["1.0.1"],
    )


def test_a_version_that_has_other_parents_already_is_passed_over(tracker: PatternTracker) -> None:
    first = run(tracker.track_pattern_creation(AREA, {"file_path": "/p/a.py"}))
    other = run(tracker.track_pattern_creation(AREA.replace("*", "-"), {"file_path": "/p/b.py"}))

    one = run(tracker.track_pattern_modification(str(first["pattern_id"]), PLUS, {"file_path": "/p/a.py"}))
    two = run(tracker.track_pattern_modification(str(other["pattern_id"]), PLUS, {"file_path": "/p/b.py"}))

    assert one["pattern_id"] == two["pattern_id"]
    assert (one["version"], two["version"]) == ("1.0.1", "1.0.2")


def test_a_merge_is_a_major_version_above_its_sources(
    tracker: PatternTracker, service: CountingService
) -> None:
    first = run(tracker.track_pattern_creation(AREA, {"language": "python"}))
    second = run(tracker.track_pattern_creation(OTHER, {"language": "python"}))
    sources = [str(first["pattern_id"]), str(second["pattern_id"])]

    merged = run(tracker.track_pattern_merge(sources, AREA + OTHER, {"language": "python"}))

    event = body(service, merged)
    assert (event["event_type"], event["edge_type"], event["pattern_version"]) == (
        "pattern_merged",
        "merged_from",
        "2.0.0",
    )
    assert event["parent_pattern_ids"] == sources


@pytest.mark.parametrize("code", ["", "  \n"])
def test_wrong_arguments_are_reported_not_raised(tracker: PatternTracker, code: str) -> None:
    assert run(tracker.track_pattern_creation(code, {})) == {"success": False, "error": "there is no code"}
    assert run(tracker.track_pattern_merge([], "x", {}))["error"] == "there are no sources to merge"
    assert run(tracker.track_pattern_application("", {}))["success"] is False


def test_the_same_creation_is_sent_once(tracker: PatternTracker, service: CountingService) -> None:
    first = run(tracker.track_pattern_creation(AREA, {"file_path": "/p/a.py"}))
    again = run(tracker.track_pattern_creation(AREA, {"file_path": "/p/a.py"}))
    elsewhere = run(tracker.track_pattern_creation(AREA, {"file_path": "/p/b.py"}))

    assert again == {"success": True, "cached": True, "duplicate": True, "pattern_id": first["pattern_id"]}
    assert "duplicate" not in elsewhere
    assert len(service.received) == 2


CREATOR = """
import asyncio, sys
from bartack.tracking import PatternTracker
print(asyncio.run(PatternTracker(sys.argv[1]).track_pattern_creation(sys.argv[2], {"file_path": "/p/a.py"})).get("duplicate"))
"""


def test_the_same_creation_in_another_process_is_known_too(tracker: PatternTracker) -> None:
    run(tracker.track_pattern_creation(AREA, {"file_path": "/p/a.py"}))

    done = subprocess.run(
        [sys.executable, "-c", CREATOR, tracker.base_url, AREA],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )

    assert done.stdout.strip() == "True"


def test_a_creation_whose_event_died_is_sent_again(tracker: PatternTracker, service: CountingService) -> None:
    service.status = 422
    assert run(tracker.track_pattern_creation(AREA, {"file_path": "/p/a.py"}))["dead"] is True
    service.status = 200

    assert run(tracker.track_pattern_creation(AREA, {"file_path": "/p/a.py"}))["success"] is True


def test_code_over_the_limit_is_not_stored_itself(tracker: PatternTracker, service: CountingService) -> None:
    result = run(tracker.track_pattern_creation("x = 1\n" + "#" * 1_199_994, {"file_path": "/p/a.py"}))

    data = body(service, result)["pattern_data"]
    assert isinstance(data, dict)
    assert (data["code_omitted"], data["size"]) == (True, 1_200_000)
    assert "code" not in data


def test_with_store_hash_no_code_leaves(home: Path, service: CountingService) -> None:
    (home / "work" / "bartack.toml").write_text('[tracking]\nstore = "hash"\n')

    result = run(PatternTracker(service.url).track_pattern_creation(AREA, {"file_path": "/p/a.py"}))

    data = cast("dict[str, object]", body(service, result)["pattern_data"])
    assert "code" not in data
    assert len(str(data["sha256"])) == 64


def test_a_hanging_service_does_not_hold_the_caller_for_long(
    tracker: PatternTracker, service: CountingService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bartack.tracking.pattern._tracker._INLINE_MOST_S", 0.1)
    service.hang()

    result = run(tracker.track_pattern_creation(AREA, {}))

    assert (result["success"], result["cached"]) == (False, True)
    assert cache_of(tracker).outbox.count()["pending"] == 1


def test_hook_functions_return_when_the_event_is_durable(
    service: CountingService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INTELLIGENCE_SERVICE_URL", service.url)
    service.hang()

    written = run(track_write_tool_pattern("/p/a.py", AREA, "python"))
    edited = run(track_edit_tool_pattern("/p/a.py", None, PLUS))

    assert (written["success"], written["queued"]) == (True, True)
    assert edited["parent_pattern_id"] == written["pattern_id"]
    assert service.requests.total() == 0
    assert cache_of(PatternTracker.shared()).outbox.count()["pending"] == 2


def test_hook_functions_say_when_the_service_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INTELLIGENCE_SERVICE_URL", "http://127.0.0.1:9")
    breaker = PatternTracker.shared().api_client.circuit_breaker
    assert breaker is not None
    breaker.trip("failures", 60)

    result = run(track_write_tool_pattern("/p/a.py", AREA))

    assert (result["success"], result["cached"]) == (False, True)


def test_a_dropped_coroutine_loses_nothing(tracker: PatternTracker) -> None:
    tracker.track_pattern_creation(AREA, {}).close()

    assert cache_of(tracker).get_stats()["pending_events"] == 1


def test_the_numbers_show_how_tracking_goes(tracker: PatternTracker) -> None:
    for path in ("/p/a.py", "/p/a.py", "/p/b.py"):
        run(tracker.track_pattern_creation(AREA, {"file_path": path}))

    stats = asyncio.run(tracker.get_tracker_stats())

    assert stats["tracker"] == {"enabled": True, "base_url": tracker.base_url, "cached_patterns": 1}
    analytics = cast("dict[str, object]", stats["analytics"])
    assert (analytics["success_rate"], analytics["dedup_hit_rate"]) == (1.0, 1 / 3)
    trend = cast("list[dict[str, object]]", analytics["health_trend"])
    assert [day["healthy"] for day in trend] == [1.0]


def test_without_data_the_numbers_are_null(tracker: PatternTracker) -> None:
    analytics = asyncio.run(tracker.get_tracker_stats())["analytics"]

    assert analytics == {"success_rate": None, "health_trend": None, "dedup_hit_rate": None}


def test_offline_events_are_synced_and_old_ones_cleaned_up(
    tracker: PatternTracker, service: CountingService
) -> None:
    service.go_away()
    run(tracker.track_pattern_creation(AREA, {}))
    service.come_back()

    synced = asyncio.run(tracker.sync_offline_events())

    assert (synced["success"], len(service.received)) == (True, 1)
    assert asyncio.run(tracker.cleanup_cache()) == {"success": True, "removed": 0}


@pytest.mark.requirement("explicit-sync-leaves-nothing-behind")
def test_a_sync_right_after_the_service_is_back_delivers_although_the_breaker_is_open(
    tracker: PatternTracker, service: CountingService
) -> None:
    service.go_away()
    for path in ("/p/a.py", "/p/b.py", "/p/c.py"):
        run(tracker.track_pattern_creation(AREA, {"file_path": path}))
    breaker = tracker.api_client.circuit_breaker
    assert breaker is not None
    assert breaker.get_state()["state"] == "open"
    service.come_back()

    synced = asyncio.run(tracker.sync_offline_events())

    assert (synced["success"], synced["message"]) == (True, "3 of 3 events delivered")
    assert (len(service.received), breaker.get_state()["state"]) == (3, "closed")


@pytest.mark.requirement("explicit-sync-leaves-nothing-behind")
def test_a_sync_while_the_service_is_away_says_so_and_costs_no_event_an_attempt(
    tracker: PatternTracker, service: CountingService
) -> None:
    service.go_away()
    run(tracker.track_pattern_creation(AREA, {}))

    synced = [asyncio.run(tracker.sync_offline_events()) for _ in range(15)][-1]

    assert synced["success"] is False
    assert synced["sync_stats"] == {"total_found": 1, "synced": 0, "failed": 1, "skipped": 0}
    assert f"{service.url} cannot be used now" in str(synced["message"])
    assert [row.attempts for row in cache_of(tracker).outbox.rows()] == [0]


@pytest.mark.requirement("explicit-sync-leaves-nothing-behind")
@pytest.mark.parametrize("attempts", [3, 50])
def test_a_sync_takes_also_events_that_failed_often(
    tracker: PatternTracker, service: CountingService, attempts: int
) -> None:
    run(tracker.track_pattern_creation(OTHER, {}))
    event = NewEvent("often", "pattern", service.url, b'{"pattern_id":"p"}', attempts=attempts)
    cache_of(tracker).outbox.put([event])

    synced = asyncio.run(tracker.sync_offline_events())

    assert synced["sync_stats"] == {"total_found": 1, "synced": 1, "failed": 0, "skipped": 0}
    assert (synced["success"], service.received["often"]) == (True, 1)


@pytest.mark.requirement("explicit-sync-leaves-nothing-behind")
def test_a_sync_is_not_a_success_while_another_process_has_an_event(
    tracker: PatternTracker, service: CountingService
) -> None:
    cache_of(tracker).outbox.put([NewEvent("theirs", "pattern", service.url, b"{}")])
    assert Outbox(cache_of(tracker).store, owner=f"{os.getppid()}@elsewhere-1").claim()

    synced = asyncio.run(tracker.sync_offline_events())

    assert synced["sync_stats"] == {"total_found": 1, "synced": 0, "failed": 0, "skipped": 1}
    assert (synced["success"], service.received["theirs"]) == (False, 0)


@pytest.mark.requirement("explicit-sync-leaves-nothing-behind")
def test_a_sync_takes_over_what_a_dead_process_had(tracker: PatternTracker, service: CountingService) -> None:
    keeps = (
        "from bartack.tracking import PatternTracker\n"
        f"PatternTracker({service.url!r}).track_pattern_creation({AREA!r}, {{}}).close()"
    )
    subprocess.run([sys.executable, "-c", keeps], check=True, timeout=30)
    assert cache_of(tracker).outbox.count()["leased"] == 1

    synced = asyncio.run(tracker.sync_offline_events())

    assert (synced["success"], len(service.received)) == (True, 1)


def test_a_sync_asks_nothing_about_health_where_the_call_is_replaced(
    tracker: PatternTracker, service: CountingService
) -> None:
    service.go_away()
    run(tracker.track_pattern_creation(AREA, {}))
    tracker.api_client._call_api = AsyncMock(return_value={"success": True})  # type: ignore[method-assign]  # - that it can be is tested

    assert asyncio.run(tracker.sync_offline_events())["success"] is True
