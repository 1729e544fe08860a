"""Every test has a home of its own, and none of the user's settings."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bartack.testing import CountingService

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
    (home / "work").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("XDG_STATE_HOME", str(home / "state"))
    monkeypatch.chdir(home / "work")
    return home


@pytest.fixture
def service() -> Iterator[CountingService]:
    with CountingService() as service:
        yield service
