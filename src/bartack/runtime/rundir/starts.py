"""Starts that can be repeated: a run keeps the key of its start, and starts with one key wait for each other."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from bartack.core.files import open_private
from bartack.core.trust import make_private
from bartack.depot import KeptRun
from bartack.errors import BartackError
from bartack.runtime.state import entries as e

LOCK: Final = "start.lock"


def has_key(run: KeptRun, key: str) -> bool:
    """Whether the start with this key made the run. Only the beginning of its journal is read."""
    if not key:
        return False
    with suppress(BartackError, OSError), run.open_reader() as reader:
        for entry in reader.read():
            if entry.kind == e.RunCreated.kind:
                return entry.decode(e.RunCreated).start_key == key
    return False


@contextmanager
def one_start(state_dir: Path, key: str) -> Generator[None]:
    """Wait for other starts with the same key; starts with other keys are not held up.

    Args:
        state_dir: Where the runs are kept.
        key: A digest in hexadecimal digits.
    """
    make_private(state_dir)
    with open(open_private(state_dir / LOCK, os.O_RDWR | os.O_CREAT), "r+b") as file:
        # The lock of one byte for each key. It ends with this process.
        fcntl.lockf(file, fcntl.LOCK_EX, 1, int(key[:15] or "0", 16))
        yield
