"""Workspaces with runs, which end with their test, and a browser."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.waiting import PATIENCE_S
from tests.web.browsers import find_chromium, open_browser
from tests.web.showcase import Showcase

from bartack import Run
from bartack.errors import BartackError

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext

ASKING = """
from bartack import Context, worker

@worker
async def main(ctx: Context) -> str:
    a = await ctx.now()
    sure = await ctx.ask("Deploy?", type=bool)
    return f"deployed: {sure}"
"""


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A state home of the test's own."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "bartack"


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Path]:
    """A workspace with a program that asks a question."""
    place = tmp_path / "work"
    place.mkdir()
    (place / "asking.py").write_text(ASKING, encoding="utf-8")
    yield place
    for run in Run.list(place):
        with suppress(BartackError):
            run.cancel()


@pytest.fixture
def asking(workspace: Path) -> Run:
    """A run that waits for an answer."""
    run = Run.start(workspace / "asking.py", workspace=workspace)
    run.wait(60, until="waiting")
    return run


@pytest.fixture(scope="module")
def showcase(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Showcase]:
    """A workspace for tests that only look: every page has something to show."""
    with Showcase(tmp_path_factory.mktemp("showcase")) as made:
        yield made


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip tests that need a browser where there is none: all in one place, so that the summary has one line for them."""
    if item.get_closest_marker("browser"):
        find_chromium()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A browser for the tests of a module."""
    with open_browser() as opened:
        yield opened


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    """The browser, without cookies."""
    made = browser.new_context()
    made.set_default_timeout(PATIENCE_S * 1000)
    yield made
    made.close()
