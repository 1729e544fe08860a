"""Every test of a newcomer runs twice: in the root of a clone with the editable install, and with the wheel, away from any sources.

Take ``newcomer``, run ``newcomer.bartack("run", "team.pw")``, and look at the outcome. ``clone`` and ``wheel`` are for what makes
sense only there.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.newcomer.install import (
    KINDS,
    Newcomer,
    copy_clone,
    made_once,
    make_clone,
    make_wheel_environment,
)


@pytest.fixture(scope="session")
def installs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory that all processes of the tests have together."""
    base = tmp_path_factory.getbasetemp()
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base


@pytest.fixture(scope="session")
def wheel_environment(installs: Path) -> Path:
    """An environment with the wheel in it."""
    return made_once(installs / "wheel", make_wheel_environment)


@pytest.fixture(scope="session")
def postgres_environment(installs: Path) -> Path:
    """An environment with the wheel and what it needs for runs in a database."""
    return made_once(installs / "postgres", lambda folder: make_wheel_environment(folder, "postgres"))


@pytest.fixture(scope="session")
def first_clone(installs: Path) -> Path:
    """The clone that those of the tests are copies of."""
    return made_once(installs / "clone", make_clone)


@pytest.fixture
def clone(first_clone: Path, tmp_path: Path) -> Newcomer:
    """A person in the root of a clone, where ``make`` has set up the environment."""
    place = tmp_path / "bartack"
    copy_clone(first_clone, place)
    return Newcomer("clone", place, place / ".venv/bin", _home(tmp_path))


@pytest.fixture
def wheel(wheel_environment: Path, tmp_path: Path) -> Newcomer:
    """A person in an empty directory, who has installed the wheel elsewhere."""
    place = tmp_path / "project"
    place.mkdir()
    return Newcomer("wheel", place, wheel_environment / "bin", _home(tmp_path))


@pytest.fixture
def fleet_owner(postgres_environment: Path, tmp_path: Path) -> Newcomer:
    """Like ``wheel``, a person who has installed ``bartack[postgres]``."""
    place = tmp_path / "project"
    place.mkdir()
    return Newcomer("wheel", place, postgres_environment / "bin", _home(tmp_path))


@pytest.fixture(params=KINDS)
def newcomer(request: pytest.FixtureRequest) -> Newcomer:
    """The one and the other."""
    found = request.getfixturevalue(str(request.param))
    assert isinstance(found, Newcomer)
    return found


def _home(tmp_path: Path) -> Path:
    home = tmp_path / "home"
    home.mkdir()
    return home
