"""What the tests with real runs share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.crash.asking import BeginAsking
from tests.crash.asking import create as create_asking
from tests.crash.runs import Begin, RealRun


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
