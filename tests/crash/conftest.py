"""What the tests with real runs share."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.crash.asking import BeginAsking
from tests.crash.asking import create as create_asking
from tests.crash.runs import Begin, RealRun
from tests.crash.trees import HERE, Crew, Hire, Perform, Reports, StandIn

from bartack.supervision.parent.client import ParentClient


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Begin]:
    """Makes a run of one of the cases."""
    with ExitStack() as stack:

        def create(worker: str, *args: object) -> RealRun:
            return stack.enter_context(RealRun.create(tmp_path, "cases.py", worker, args))

        yield create


@pytest.fixture
def begin_asking(tmp_path: Path) -> Iterator[BeginAsking]:
    """Makes a run whose agent is a program with a script."""
    with ExitStack() as stack:

        def create(worker: str, script: dict[str, object], config: str = "") -> RealRun:
            return stack.enter_context(create_asking(tmp_path, worker, script, config))

        yield create


@pytest.fixture
def reports() -> Iterator[Reports]:
    """What the processes of a shape write their numbers to."""
    opened = Reports()
    yield opened
    opened.close()


@pytest.fixture
def hire(tmp_path: Path) -> Iterator[Hire]:
    """Starts parent programs."""
    with ExitStack() as stack:

        def start(module: str) -> Crew:
            env = {**os.environ, "PYTHONPATH": str(HERE)}
            crew = Crew(ParentClient.start(module, str(tmp_path / "lock.tree"), env, str(tmp_path)))
            stack.callback(crew.close)
            return crew

        yield start


@pytest.fixture
def perform(tmp_path: Path) -> Iterator[Perform]:
    """Starts stand-ins for hubs."""
    with ExitStack() as stack:

        def start(
            reports: Reports,
            shape: str,
            count: int,
            base: str = "",
            *,
            watched: bool = False,
            forks: int = 1,
        ) -> StandIn:
            stand_in = StandIn(tmp_path, reports, shape, count, base, watched=watched, forks=forks)
            stack.callback(stand_in.close)
            return stand_in

        yield start
