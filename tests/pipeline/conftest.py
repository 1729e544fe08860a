from __future__ import annotations

import os
import tempfile

import pytest

MEMORY = "/dev/shm"


@pytest.fixture(autouse=True)
def runs_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a run in memory keeps on the disk is kept in memory, too, where the machine has such a place."""
    if os.path.isdir(MEMORY) and os.access(MEMORY, os.W_OK):
        monkeypatch.setattr(tempfile, "tempdir", MEMORY)
