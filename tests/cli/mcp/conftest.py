"""Projects with runs that outlive the servers which started them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from tests.cli.mcp.peer import Peer, make_project

from bartack import Run
from bartack.errors import BartackError


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Path]:
    """A project; its runs end with the test."""
    made = make_project(tmp_path)
    yield made
    for run in Run.list(made):
        with suppress(BartackError):
            run.cancel()


@pytest.fixture
def peer(project: Path) -> Iterator[Peer]:
    """A client of a server of the project."""
    with Peer(project) as made:
        yield made
