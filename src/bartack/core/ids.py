"""Names for runs, and tokens that cannot be guessed.

A run id is ``run-YYYYMMDD-HHMMSS-<8 hex>`` in UTC. Five of the hex digits are the microsecond within the
second and three are random, so ids sort by time, also inside a second. Two processes may still draw the same
id: ``claim_run_dir`` lets the file system decide who has it.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import NewType

from bartack.core.batch import Batch
from bartack.core.clock import Clock, SystemClock
from bartack.errors import RunIdError

RunId = NewType("RunId", str)
"""``run-YYYYMMDD-HHMMSS-<8 hex>``"""

_FORM = re.compile(
    r"run-[0-9]{4}(0[1-9]|1[0-2])(0[1-9]|[12][0-9]|3[01])-([01][0-9]|2[0-3])[0-5][0-9][0-5][0-9]-[0-9a-f]{8}"
)


def _random_bytes() -> bytes:
    return os.urandom(2)


def new_run_id(clock: Clock | None = None, *, random: Callable[[], bytes] = _random_bytes) -> RunId:
    """A run id for this moment. It may be taken: ``claim_run_dir`` is the way to one that is not.

    Args:
        clock: Says what time it is.
        random: Returns two random bytes.
    """
    return _run_id((clock or SystemClock()).now_us(), random)


def _run_id(now_us: int, random: Callable[[], bytes]) -> RunId:
    seconds, microseconds = divmod(now_us, 1_000_000)
    moment = time.strftime("%Y%m%d-%H%M%S", time.gmtime(seconds))
    return RunId(f"run-{moment}-{microseconds:05x}{random().hex()[:3]}")


def parse_run_id(text: str) -> RunId:
    """Return ``text`` as a run id.

    Raises:
        RunIdError: It does not have the form of one.
    """
    if _FORM.fullmatch(text) is None:
        raise RunIdError(text)
    return RunId(text)


def moment_of(run_id: RunId) -> int:
    """When a run id was made, in microseconds since 1970."""
    import calendar  # noqa: PLC0415 - only who doubts an id needs it

    _, day, second, rest = run_id.split("-")
    seconds = calendar.timegm(time.strptime(f"{day}{second}", "%Y%m%d%H%M%S"))
    return seconds * 1_000_000 + int(rest[:5], 16)


def claim_run_dir(
    parent: str | Path,
    clock: Clock | None = None,
    *,
    random: Callable[[], bytes] = _random_bytes,
    batch: Batch | None = None,
) -> tuple[RunId, Path]:
    """Make the directory of a run below ``parent``, under an id that no other process has or will get there.

    A taken id is tried again one microsecond later, so that this ends even if the clock stands still.

    Args:
        parent: Where the directories of runs are.
        clock: The time that is part of the id.
        random: The random part of the id.
        batch: What the directory becomes durable with; otherwise that is left to the caller.

    Returns:
        The id and the directory, which only its owner may read.
    """
    clock = clock or SystemClock()
    batch = batch or Batch()
    attempt = 0
    while True:
        run_id = _run_id(clock.now_us() + attempt, random)
        path = Path(parent, run_id)
        try:
            batch.make_dir(str(path), exclusive=True)
        except FileExistsError:
            attempt += 1
        else:
            return run_id, path


def new_token() -> str:
    """A secret that cannot be guessed: 32 random bytes as 64 hex digits."""
    return os.urandom(32).hex()
