"""Two hosts: a copy is made on the one and restored on the other."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.runtime.copies.places import Host


@pytest.fixture
def here(tmp_path: Path) -> Host:
    """The host that a run was submitted from."""
    return Host(tmp_path / "here")


@pytest.fixture
def there(tmp_path: Path) -> Host:
    """The host that takes it over."""
    return Host(tmp_path / "there")
