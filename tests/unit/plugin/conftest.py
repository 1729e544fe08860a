"""Every test has a home of its own, with the shim installed in it and no daemon that starts by itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from bartack.plugin import install_shim


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in (
        "PATTERN_TRACKING_ENABLED",
        "PATTERN_CACHE_DIR",
        "INTELLIGENCE_SERVICE_URL",
        "CLAUDE_CONFIG_DIR",
    ):
        monkeypatch.delenv(name, raising=False)
    home = tmp_path / "home"
    (home / "work").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("XDG_STATE_HOME", str(home / "state"))
    monkeypatch.chdir(home / "work")
    return home


@pytest.fixture
def state(home: Path) -> Path:
    """The user's state home, with the shim in it."""
    install_shim()
    place = home / "state" / "bartack"
    (place / "autostart-off").touch()
    return place
