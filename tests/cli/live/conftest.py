"""Terminals and runs for the tests of views."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.cli.live.screens import BreakingScreen, CuttingScreen, ScreenStream
from tests.cli.live.terminal import Terminal
from tests.cli.runs.conftest import asking as asking  # noqa: PLC0414 - the same fixtures
from tests.cli.runs.conftest import bartack as bartack  # noqa: PLC0414 - likewise
from tests.cli.runs.conftest import call as call  # noqa: PLC0414 - likewise
from tests.cli.runs.conftest import completed as completed  # noqa: PLC0414 - likewise
from tests.cli.runs.conftest import delegated as delegated  # noqa: PLC0414 - likewise
from tests.cli.runs.conftest import failed as failed  # noqa: PLC0414 - likewise
from tests.cli.runs.conftest import ordinary_environment as ordinary_environment  # noqa: PLC0414 - likewise
from tests.cli.runs.conftest import start as start  # noqa: PLC0414 - likewise
from tests.cli.runs.conftest import story as story  # noqa: PLC0414 - likewise

from bartack.cli.live._board import Board, Size


@pytest.fixture
def terminals() -> Iterator[list[Terminal]]:
    """Terminals that are closed after the test."""
    opened: list[Terminal] = []
    yield opened
    for terminal in opened:
        terminal.close()


@pytest.fixture(params=[CuttingScreen, BreakingScreen])
def stream(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> ScreenStream:
    """A terminal in memory, with 80 columns and 24 rows."""
    screen: CuttingScreen = request.param(80, 24)
    monkeypatch.setattr(Board, "size", property(lambda _: Size(screen.columns, screen.lines)))
    monkeypatch.setenv("NO_COLOR", "1")
    return ScreenStream(screen)
