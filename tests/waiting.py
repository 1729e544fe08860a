"""Waiting for what other processes do."""

from __future__ import annotations

import select
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from bartack.core.watch import open_watch

PATIENCE_S = 30.0
LOOK_S = 0.02


def until(found: Callable[[], object], what: str, watched: Path | None = None) -> None:
    """Wait until something is so, for at most half a minute.

    Args:
        found: Whether it is so.
        what: What is waited for, in words.
        watched: A directory in which something changes when it becomes so. Without one nothing reports it, as
            with the end of a process that is not ours, and it is looked at again and again.
    """
    limit = time.monotonic() + PATIENCE_S
    with ExitStack() as stack:
        watch = stack.enter_context(open_watch(str(watched))) if watched else None
        while not found():
            left = limit - time.monotonic()
            assert left > 0, f"{what}: not within {PATIENCE_S:g} s"
            if watch is None:
                select.select([], [], [], LOOK_S)
            else:
                watch.wait(left)
