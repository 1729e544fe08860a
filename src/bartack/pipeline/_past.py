"""What a task that failed has done so far, for the worker that goes on with it: nothing of it is done, or paid for, again.

A task whose failure does not stop the run comes to an end, and is gone on with by another worker when the run is resumed. That one
takes the same way: each outcome that its predecessor has noted stands for the step, until there are none left, or the way is
another one because the settings are.
"""

from __future__ import annotations

from collections import deque
from typing import TypeVar

import msgspec

from bartack.pipeline._records import Noted

T = TypeVar("T")


class Past:
    """The outcomes that a task had before, and those that it has.

    Args:
        notes: What the worker before this one has noted; ``None``: nobody goes on with this task, and nothing is noted.
    """

    def __init__(self, notes: list[Noted] | None) -> None:
        self._left = deque(notes or ())
        self._keeps = notes is not None
        self._notes: list[Noted] = []

    @property
    def notes(self) -> list[Noted]:
        """What whoever goes on has to know: what was taken of the past, and what came since.

        A snapshot on which nothing was done is none of it: the other tasks go on, and change the files.
        """
        last = next(
            (n for n, known in enumerate(reversed(self._notes)) if known.kind != "snapshot"), len(self._notes)
        )
        return self._notes[: len(self._notes) - last]

    def recall(self, kind: str, about: str, type_: type[T]) -> T | None:
        """The outcome of the next step, if it is of the past. If that was another step, nothing behind it counts any more."""
        if not self._left:
            return None
        known = self._left.popleft()
        if (known.kind, known.about) != (kind, about):
            self._left.clear()
            return None
        self._notes.append(known)
        return msgspec.convert(known.value, type=type_)

    def note(self, kind: str, about: str, value: object) -> None:
        """A step has an outcome."""
        if self._keeps:
            self._notes.append(Noted(kind=kind, about=about, value=msgspec.to_builtins(value)))
