"""The order in which the runs of a directory were created: a file beside the directory to which each new run adds its name.

The names of runs come from a clock that may be set, or with a clone from another machine; this order does not. A run that the file
does not name (made by an earlier version, unpacked or cloned) counts as older than all that it names.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from bartack.core.disk import FILE_MODE
from bartack.core.files import replace_file

NAME: Final = "order"
"""Beside the directory of the runs: whatever is in that directory is a run."""


def note_newest(runs: Path, run_id: str) -> None:
    """Note that this run is the newest."""
    with contextlib.suppress(OSError):
        # Without its line a run counts as old. A disk that is full refuses the run's own files next.
        _note(runs, run_id)


def _note(runs: Path, run_id: str) -> None:
    fd = os.open(
        runs.parent / NAME, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, FILE_MODE
    )
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        size = os.fstat(fd).st_size
        # The first line goes after the names of all runs that are there already; a torn one is ended first.
        before = _older(runs, run_id) if not size else [""] if os.pread(fd, 1, size - 1) != b"\n" else []
        os.write(fd, "\n".join([*before, run_id, ""]).encode())
        os.fsync(fd)
    finally:
        os.close(fd)


def _older(runs: Path, run_id: str) -> list[str]:
    return sorted(name for name in os.listdir(runs) if name.startswith("run-") and name != run_id)


def note_all(runs: Path, newest_first: Sequence[str]) -> None:
    """Note the order of all runs of a directory, as a database knows it."""
    text = "\n".join([*reversed(newest_first), ""]).encode()
    place = runs.parent / NAME
    with contextlib.suppress(OSError):
        if not place.exists() or place.read_bytes() != text:
            replace_file(place, text, synced=False)


def newest_first(runs: Path, names: Iterable[str]) -> list[str]:
    """These runs in the order of their creation, the newest first; those of unknown age last, by name."""
    try:
        listed = (runs.parent / NAME).read_text(encoding="utf-8", errors="replace").split("\n")
    except OSError:
        listed = []
    places = {name: place for place, name in enumerate(listed)}
    return sorted(names, key=lambda name: (places.get(name, -1), name), reverse=True)
