from __future__ import annotations

import os
import tempfile

import pytest
from tests.pipeline.real import Shop

MEMORY = "/dev/shm"


@pytest.fixture(autouse=True)
def runs_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a run in memory keeps on the disk is kept in memory, too, where the machine has such a place."""
    if os.path.isdir(MEMORY) and os.access(MEMORY, os.W_OK):
        monkeypatch.setattr(tempfile, "tempdir", MEMORY)


@pytest.fixture(scope="session")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Shop:
    """A workspace whose run has come to its end in processes of its own; it is looked at, and copied, and never changed."""
    made = Shop(tmp_path_factory.mktemp("shop"))
    assert made.run() == 0, made.story()
    return made
