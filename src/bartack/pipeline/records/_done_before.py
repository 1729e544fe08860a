"""What a failed task has done so far, for the worker that continues it: nothing of it is done, or paid for, again.

A task whose failure does not stop the run ends, and another worker continues it when the run is resumed. That worker takes the same
steps: each outcome that its predecessor has noted stands for the step, until none is left, or the steps differ because the settings
do.

A worker that fails returns its notes. One that is killed too often cannot, so each note is written to a file as well.
"""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import msgspec

from bartack.core import typed
from bartack.core.files import open_private
from bartack.core.trust import make_private
from bartack.pipeline.records.records import Left, Noted, Spent

T = TypeVar("T")


class Notebook:
    """The file in which a worker leaves its notes. It is not synced: it is read while the machine still runs.

    Args:
        run_dir: The directory of the run.
        worker: The path of the worker.
        spent: Returns what was used so far.
    """

    def __init__(self, run_dir: str, worker: str, spent: Callable[[], Spent] = Spent) -> None:
        self._file = Path(run_dir, "work", "past", f"{worker.replace('/', '%')}.ndjson")
        self._spent = spent
        self._next = -1
        """The number of the first note that is not there; not known yet if less than 0."""

    def leave(self, number: int, noted: Noted) -> None:
        """Write a note, unless it is there: a replay of the journal makes the same notes again."""
        if self._next < 0:
            self._next = max((left.number + 1 for left in self.read()), default=0)
        if number < self._next:
            return
        try:
            self._append(msgspec.json.encode(Left(number=number, noted=noted, spent=self._spent(), own=True)))
            self._next = number + 1
        except OSError:
            # A full disk interrupts the run when the journal is written. The notes until here count all the same.
            self._next = sys.maxsize

    def _append(self, line: bytes) -> None:
        make_private(self._file.parent)
        fd = open_private(self._file, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        with open(fd, "wb") as file:
            # The line before may have been cut by a kill.
            file.write(b"\n" + line + b"\n")

    def read(self) -> list[Left]:
        """The notes that are there and whole."""
        try:
            lines = self._file.read_bytes().splitlines()
        except FileNotFoundError:
            return []
        found: list[Left] = []
        for line in filter(None, lines):
            try:
                found.append(typed.decode(line, type=Left))
            except msgspec.MsgspecError:
                continue
        return found


def join_notes(past: list[Noted], left: list[Left]) -> list[Noted]:
    """What a worker has noted that began with a past and left notes in its file."""
    if not left:
        return past
    return _without_last_look([*past[: left[0].number], *(one.noted for one in left)])


def _without_last_look(notes: list[Noted]) -> list[Noted]:
    """Without snapshots on which nothing was done: other tasks continue, and change the files."""
    end = len(notes)
    while end and notes[end - 1].kind == "snapshot":
        end -= 1
    return notes[:end]


class Past:
    """The outcomes that a task had before, and those that it has.

    Args:
        notes: The notes of the worker before this one; ``None``: this task is never continued, and nothing is noted.
        book: Where notes are left as well.
    """

    def __init__(self, notes: list[Noted] | None, book: Notebook | None = None) -> None:
        self._left = deque(notes or ())
        self._keeps = notes is not None
        self._book = book
        self._notes: list[Noted] = []

    @property
    def notes(self) -> list[Noted]:
        """What the next worker has to know: the past, as far as it counts, and what came since."""
        return _without_last_look([*self._notes, *self._left])

    def recall(self, kind: str, about: str, type_: type[T]) -> T | None:
        """The outcome of the next step, if it was noted. If another step was noted there, nothing after it counts any more."""
        if not self._left:
            return None
        known = self._left.popleft()
        if (known.kind, known.about) != (kind, about):
            self._left.clear()
            return None
        self._notes.append(known)
        return typed.convert(known.value, type=type_)

    def note(self, kind: str, about: str, value: object) -> None:
        """A step has an outcome."""
        if not self._keeps:
            return
        noted = Noted(kind=kind, about=about, value=msgspec.to_builtins(value))
        if self._book is not None:
            self._book.leave(len(self._notes), noted)
        self._notes.append(noted)
