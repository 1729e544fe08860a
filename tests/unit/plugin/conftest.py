"""Every test has a home of its own, with the shim installed in it and no daemon that starts by itself."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Protocol

import pytest

from bartack.plugin.hooks import install_shim


class Tune(Protocol):
    """Changes constants of the installed shim."""

    def __call__(self, **seconds: float) -> None: ...


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
def tune(impatient: Path) -> Tune:
    shim = impatient / "bin" / "bartack-hook.py"

    def change(**seconds: float) -> None:
        text = shim.read_text(encoding="utf-8")
        for name, value in seconds.items():
            text, found = re.subn(rf"^{name} = .*$", f"{name} = {value}", text, count=1, flags=re.MULTILINE)
            assert found
        shim.write_text(text, encoding="utf-8")

    return change


@pytest.fixture
def impatient(home: Path) -> Path:
    """The user's state home, with the shim in it."""
    install_shim()
    place = home / "state" / "bartack"
    (place / "autostart-off").touch()
    return place


@pytest.fixture
def state(impatient: Path, tune: Tune) -> Path:
    """The same; the shim has as much time as a busy machine may need."""
    tune(LIMIT_S=60.0)
    return impatient
