"""One test per variable sees changed behaviour; then precedence, files and bad values."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from bartack.core.user_home import user_home
from bartack.resilience import (
    CircuitBreaker,
    HealthChecker,
    PatternCache,
    ResilientAPIClient,
    load_settings,
)
from bartack.resilience.home import state_home
from bartack.testing import CountingService, VirtualClock
from bartack.tracking import PatternTracker

pytestmark = pytest.mark.requirement("variables-are-read")
EVENT = {"event_type": "pattern_created", "pattern_id": "p"}


def fail() -> None:
    raise ValueError


def fail_times(breaker: CircuitBreaker, count: int) -> object:
    async def scenario() -> None:
        for _ in range(count):
            await breaker.call(fail)

    asyncio.run(scenario())
    return breaker.get_state()["state"]


def test_intelligence_service_url_is_where_events_go(
    monkeypatch: pytest.MonkeyPatch, service: CountingService
) -> None:
    monkeypatch.setenv("INTELLIGENCE_SERVICE_URL", service.url)

    async def scenario() -> object:
        return await PatternTracker().track_pattern_creation("x = 1\n", {})

    result = asyncio.run(scenario())
    assert isinstance(result, dict)
    assert result["success"] is True
    assert list(service.received) == [result["event_id"]]


@pytest.mark.parametrize("text", ["false", "0", "no", "OFF"])
def test_pattern_tracking_enabled_switches_tracking_off(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("PATTERN_TRACKING_ENABLED", text)

    async def scenario() -> object:
        return await PatternTracker().track_pattern_creation("x = 1\n", {})

    assert asyncio.run(scenario()) == {"success": False, "skipped": True, "reason": "disabled"}
    assert not (user_home() / "outbox.db").exists()


def test_pattern_cache_dir_is_where_events_are_kept(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    monkeypatch.setenv("PATTERN_CACHE_DIR", "~/kept")

    asyncio.run(PatternCache().cache_pattern_event(EVENT))

    assert (home / "kept" / "outbox.db").exists()
    assert len(list((home / "kept").glob("pending_*.json"))) == 1


def test_pattern_cache_max_age_days_decides_what_is_too_old(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATTERN_CACHE_MAX_AGE_DAYS", "2")
    clock = VirtualClock()
    cache = PatternCache(tmp_path / "c", clock=clock)
    asyncio.run(cache.cache_pattern_event(EVENT))
    (mirror,) = (tmp_path / "c").glob("pending_*.json")
    os.utime(mirror, (cache.store.wall(), cache.store.wall()))

    clock.advance(1.9 * 86_400)
    assert asyncio.run(cache.cleanup_old_events()) == 0
    clock.advance(0.2 * 86_400)
    assert asyncio.run(cache.cleanup_old_events()) == 1


def test_pattern_cache_max_size_mb_bounds_what_is_kept(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATTERN_CACHE_MAX_SIZE_MB", "0.01")
    cache = PatternCache(tmp_path / "c")

    for _ in range(20):
        cache.keep({**EVENT, "noise": os.urandom(500).hex()})

    stats = cache.get_stats()
    assert int(str(stats["size_bytes"])) <= 0.01 * 1024 * 1024
    assert int(str(stats["dropped_events"])) > 0


def test_circuit_breaker_failure_threshold_decides_when_it_opens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CIRCUIT_BREAKER_FAILURE_THRESHOLD", "5")
    breaker = CircuitBreaker()

    assert fail_times(breaker, 4) == "closed"
    assert fail_times(breaker, 1) == "open"


def test_circuit_breaker_timeout_decides_when_it_tries_again(
    monkeypatch: pytest.MonkeyPatch, clock: VirtualClock
) -> None:
    monkeypatch.setenv("CIRCUIT_BREAKER_TIMEOUT", "5")
    breaker = CircuitBreaker(clock=clock)
    fail_times(breaker, 3)

    clock.advance(5)

    assert breaker.get_state()["is_available"] is True


def test_health_check_interval_decides_how_long_an_answer_holds(
    monkeypatch: pytest.MonkeyPatch, service: CountingService, clock: VirtualClock
) -> None:
    monkeypatch.setenv("HEALTH_CHECK_INTERVAL", "5")
    checker = HealthChecker(service.url, clock=clock)
    asyncio.run(checker.check_health())

    clock.advance(4.9)
    asyncio.run(checker.check_health())
    assert service.requests["/health"] == 1
    clock.advance(0.2)
    asyncio.run(checker.check_health())
    assert service.requests["/health"] == 2


def test_health_check_timeout_decides_how_long_to_wait(
    monkeypatch: pytest.MonkeyPatch, service: CountingService
) -> None:
    monkeypatch.setenv("HEALTH_CHECK_TIMEOUT", "0.05")
    service.hang()

    checker = HealthChecker(service.url)

    assert checker.timeout == 0.05
    assert asyncio.run(checker.check_health()) is False


def test_what_a_caller_gives_wins_over_the_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name, value in {
        "CIRCUIT_BREAKER_FAILURE_THRESHOLD": "9",
        "CIRCUIT_BREAKER_TIMEOUT": "9",
        "HEALTH_CHECK_INTERVAL": "9",
        "HEALTH_CHECK_TIMEOUT": "9",
        "PATTERN_CACHE_MAX_AGE_DAYS": "9",
        "PATTERN_CACHE_MAX_SIZE_MB": "9",
        "INTELLIGENCE_SERVICE_URL": "http://elsewhere",
        "PATTERN_TRACKING_ENABLED": "false",
    }.items():
        monkeypatch.setenv(name, value)

    breaker = CircuitBreaker(3, 60)
    checker = HealthChecker("http://localhost:8053", 30, 1.0)
    cache = PatternCache(tmp_path, 7, 50)
    client = ResilientAPIClient("http://localhost:8053")

    assert (breaker.failure_threshold, breaker.timeout) == (3, 60)
    assert (checker.base_url, checker.check_interval, checker.timeout) == ("http://localhost:8053", 30, 1.0)
    assert (cache.max_age_days, cache.max_cache_size_mb) == (7, 50)
    assert client.base_url == "http://localhost:8053"
    assert PatternTracker(enable_tracking=True).enabled is True


def test_without_anything_the_defaults_hold(tmp_path: Path) -> None:
    breaker, checker, cache = CircuitBreaker(), HealthChecker(), PatternCache(tmp_path)

    assert (breaker.failure_threshold, breaker.timeout) == (3, 60)
    assert (checker.base_url, checker.check_interval, checker.timeout) == ("http://localhost:8053", 30, 1.0)
    assert (cache.max_age_days, cache.max_cache_size_mb) == (7, 50)
    assert PatternTracker().enabled is True


def test_the_configuration_is_read_and_the_environment_wins_over_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "bartack.toml").write_text(
        '[tracking]\nurl = "http://127.0.0.1:9/"\nenabled = false\nmax_age_days = 3\n'
        "[breaker]\nfailure_threshold = 7\n[outbox]\nmax_attempts = 4\npolicy = 'reject'\n[daemon]\nhttp_port = 9\n"
    )
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    monkeypatch.setenv("CIRCUIT_BREAKER_FAILURE_THRESHOLD", "8")

    found = load_settings(start=below)

    assert (found.url, found.enabled, found.max_age_days) == ("http://127.0.0.1:9", False, 3)
    assert (found.failure_threshold, found.max_attempts, found.policy, found.http_port) == (8, 4, "reject", 9)


@pytest.mark.parametrize(
    ("name", "text", "field", "default"),
    [
        ("CIRCUIT_BREAKER_FAILURE_THRESHOLD", "0", "failure_threshold", 3),
        ("CIRCUIT_BREAKER_FAILURE_THRESHOLD", "2.5", "failure_threshold", 3),
        ("CIRCUIT_BREAKER_TIMEOUT", "soon", "breaker_timeout", 60),
        ("HEALTH_CHECK_TIMEOUT", "nan", "health_timeout", 1.0),
        ("HEALTH_CHECK_INTERVAL", "inf", "health_interval", 30),
        ("PATTERN_CACHE_MAX_AGE_DAYS", "-1", "max_age_days", 7),
        ("PATTERN_TRACKING_ENABLED", "perhaps", "enabled", True),
        ("INTELLIGENCE_SERVICE_URL", "ftp://x", "url", "http://localhost:8053"),
    ],
)
def test_a_value_that_cannot_be_used_is_reported_once_and_replaced(
    name: str, text: str, field: str, default: object, caplog: pytest.LogCaptureFixture
) -> None:
    found = load_settings({name: text})

    assert getattr(found, field) == default
    assert [name in record.message and text in record.message for record in caplog.records] == [True]


def test_a_configuration_that_cannot_be_read_is_not_an_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "bartack.toml").write_text("this is = = not toml")

    assert load_settings(start=tmp_path).max_attempts == 12
    assert "cannot be read" in caplog.text


def test_the_state_home_is_the_first_that_is_given(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    project = tmp_path / "project"
    inside = project / "src"
    inside.mkdir(parents=True)
    assert state_home(start=inside) == user_home()

    (project / ".bartack").mkdir()
    assert state_home(start=inside) == project / ".bartack"

    (project / "bartack.toml").write_text('state_dir = "elsewhere"\n')
    assert state_home(start=inside) == project / "elsewhere"

    monkeypatch.setenv("BARTACK_STATE_DIR", str(tmp_path / "env"))
    assert state_home(start=inside) == tmp_path / "env"

    monkeypatch.setenv("PATTERN_CACHE_DIR", str(tmp_path / "cache"))
    assert state_home(start=inside) == tmp_path / "cache"
    assert state_home(tmp_path / "given", start=inside) == tmp_path / "given"


def test_the_configured_directory_is_relative_to_its_configuration(tmp_path: Path) -> None:
    (tmp_path / "bartack.toml").write_text('[tracking]\ndir = "events"\n')
    below = tmp_path / "deep"
    below.mkdir()

    assert state_home(start=below) == tmp_path / "events"
