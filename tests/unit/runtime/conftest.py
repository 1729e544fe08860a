"""Hubs for tests of the worker's side."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.runtime.fake_hub import FakeHub


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[FakeHub]:
    """A hub for one worker, whose workspace is empty."""
    made = FakeHub(str(tmp_path))
    yield made
    made.close()
