"""The piece of work everybody does: keep that one step of a worker has finished, with a small outcome.

And the floor under it: what any program has to pay for the same promise.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager
from time import perf_counter
from typing import Final

from bench._disk import sync

KIND: Final = "step.finished"
APPENDERS: Final = 64
"""How many work at once in the concurrent race."""

_KEY: Final = "ik:" + "0123456789abcdef" * 4


def outcome(number: int) -> dict[str, object]:
    """What a step gave."""
    return {"exit": 0, "stdout": f"built target {number:08d} of the project in 0.25 s", "warnings": []}


def entry_data(number: int) -> dict[str, object]:
    """What is kept of a step: whose it is, which one, its key and its outcome."""
    return {"worker": "main", "step": number, "key": _KEY, "outcome": outcome(number)}


def write_and_sync(directory: str, data: bytes, count: int) -> float:
    """Writes per second to the end of a file, each synced before the next."""
    with appending(directory) as fd:
        began = perf_counter()
        for _ in range(count):
            os.write(fd, data)
            sync(fd)
        return count / (perf_counter() - began)


@contextmanager
def appending(directory: str) -> Generator[int]:
    """A file of the floor, open to be written at its end."""
    fd = os.open(os.path.join(directory, "floor"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        yield fd
    finally:
        os.close(fd)
