"""The bookkeeping of a replay: outcomes from the journal that are ahead, and steps of the program that they have not confirmed yet.

It decides nothing. ``requests.py`` adds to it what a replaying worker would otherwise send; ``replay.py`` compares the two sides.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final

import msgspec

from bartack.runtime.protocol import frames as f
from bartack.runtime.scheduler.operations import Counted, Deadline

Key = tuple[str, int]
"""Path and number of a step."""

Pending = Counted[object] | Deadline | f.Out | f.Note | f.Returned | f.VersionChosen
"""Something the program did that has a place in the history; the choice of a version has none and is only sent in its turn."""

FIRED: Final = msgspec.Raw(b'"fired"')
"""The outcome of a deadline that ran out."""


class ReplayLog:
    """The history as far as it has arrived, and the pending steps in the order in which the program did them."""

    def __init__(self) -> None:
        self.replaying = True
        """Whether the next outcome comes from the history. Until then the worker sends nothing."""
        self.complete = False
        """Whether the whole history has arrived and the worker is to continue after it."""
        self.whole = False
        """Whether the whole history has arrived."""
        self.open: list[f.Past] = []
        """Steps that have begun, without their outcome; known when the whole history is."""
        self.ended = False
        """Whether the worker has come to its end; only a rehearsal has such a worker."""
        self.ahead: deque[f.Past] = deque()
        """The outcomes that were not taken yet, in the order of the journal."""
        self._pending: dict[Key, Pending] = {}

    def extend(self, past: Iterable[f.Past]) -> None:
        """Add outcomes that have arrived."""
        self.ahead.extend(past)

    def end(self, steps: list[f.Past]) -> None:
        """The whole history has arrived; these steps have begun and have no outcome in it."""
        self.whole = True
        self.open = steps

    def __bool__(self) -> bool:
        """Whether outcomes are ahead."""
        return bool(self.ahead)

    def next(self) -> f.Past:
        """Take the next outcome, in the order of the journal."""
        return self.ahead.popleft()

    def find(self, p: str, n: int) -> f.Past | None:
        """Take the outcome of one step, wherever it is ahead."""
        for place, past in enumerate(self.ahead):
            if past.n == n and past.p == p:
                del self.ahead[place]
                return past
        return None

    def add(self, step: Key, pending: Pending) -> None:
        """Add something the program did.

        The number of the note that a block with a deadline was left is that of the block, negated: the note comes after
        everything that was done inside the block.
        """
        self._pending[step] = pending

    def get(self, p: str, n: int) -> Pending | None:
        """What the program did at a place, if no outcome has confirmed it."""
        return self._pending.get((p, n))

    def confirm(self, p: str, n: int) -> Pending | None:
        """Take what the program did at the place of an outcome, if it did anything there."""
        return self._pending.pop((p, n), None)

    def drain(self) -> list[Pending]:
        """Take what no outcome has confirmed, in the order in which it was done."""
        pending, self._pending = list(self._pending.values()), {}
        return pending


def has_fired(past: f.Past) -> bool:
    """Whether the outcome of a block with a deadline is that its time was over; otherwise the program left it."""
    return past.e is not None or (past.v is not None and bytes(past.v) == bytes(FIRED))
