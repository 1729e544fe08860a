"""What the tests with real runs share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.crash.runs import Begin, RealRun


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Begin]:
    """Makes a run of one of the cases."""
    with ExitStack() as stack:

        def create(worker: str, *args: object) -> RealRun:
            return stack.enter_context(RealRun.create(tmp_path, "cases.py", worker, args))

        yield create
