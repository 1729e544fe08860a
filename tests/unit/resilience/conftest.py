"""Every test has a home of its own, and none of the user's settings."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bartack.resilience import Outbox, StateStore
from bartack.testing import CountingService, VirtualClock

VARIABLES = (
    "INTELLIGENCE_SERVICE_URL",
    "PATTERN_TRACKING_ENABLED",
    "PATTERN_CACHE_DIR",
    "PATTERN_CACHE_MAX_AGE_DAYS",
    "PATTERN_CACHE_MAX_SIZE_MB",
    "CIRCUIT_BREAKER_FAILURE_THRESHOLD",
    "CIRCUIT_BREAKER_TIMEOUT",
    "HEALTH_CHECK_INTERVAL",
    "HEALTH_CHECK_TIMEOUT",
)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    home = tmp_path / "home"
    work = home / "work"
    work.mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("XDG_STATE_HOME", str(home / "state"))
    monkeypatch.chdir(work)
    return home


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def store(tmp_path: Path, clock: VirtualClock) -> Iterator[StateStore]:
    with StateStore(tmp_path / "state", clock=clock) as store:
        yield store


@pytest.fixture
def outbox(store: StateStore) -> Outbox:
    return Outbox(store)


@pytest.fixture
def service() -> Iterator[CountingService]:
    with CountingService() as service:
        yield service
