"""Which remainders of a power cut to look at: all of them where they are few, otherwise those that are known to break things."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from random import Random
from typing import TypeVar

from bartack.testing.platter import Choose, Doubt, keep_everything, keep_nothing, keep_only, keep_some

D = TypeVar("D")
Survive = Callable[[Choose], D]
"""Builds the disk that is found if every doubt is decided like this."""

CORNERS: tuple[Choose, ...] = (
    keep_nothing,
    keep_everything,
    keep_only("name"),
    keep_only("size"),
    keep_only("sector"),
    keep_only("name", "size"),
    keep_only("name", "sector"),
    keep_only("size", "sector"),
)


class Recorder:
    """Decides as another one does, and remembers how it decided what."""

    def __init__(self, choose: Choose) -> None:
        self.doubts: list[Doubt] = []
        self.picks: list[int] = []
        self._choose = choose

    def __call__(self, doubt: Doubt) -> int:
        """See ``Choose``."""
        self.doubts.append(doubt)
        self.picks.append(self._choose(doubt))
        return self.picks[-1]


def iter_remainders(survive: Survive[D], *, limit: int, samples: int, seed: int) -> Iterator[D]:
    """Every disk that may be found, if there are at most ``limit`` of them, otherwise a choice of them.

    That choice has the corners (nothing, everything, only some kinds of changes), each change omitted alone, each change kept
    alone, each change kept alone beside all names, and random parts. No choice of versions comes twice.
    """
    whole = Recorder(keep_everything)
    survive(whole)
    if math.prod(doubt.versions for doubt in whole.doubts) <= limit:
        yield from _every(survive)
        return
    seen: set[tuple[int, ...]] = set()
    for choose in _some(whole.doubts, samples, seed):
        recorder = Recorder(choose)
        found = survive(recorder)
        picks = tuple(recorder.picks)
        if picks not in seen:
            seen.add(picks)
            yield found


def _every(survive: Survive[D]) -> Iterator[D]:
    """Counts through all choices; which doubts there are depends on those that were decided before."""
    script: list[int] = []
    while True:
        recorder = Recorder(_follow(script))
        yield survive(recorder)
        left = list(zip(recorder.picks, recorder.doubts, strict=True))
        while left and left[-1][0] + 1 == left[-1][1].versions:
            left.pop()
        if not left:
            return
        script = [pick for pick, _ in left]
        script[-1] += 1


def _follow(script: list[int]) -> Choose:
    picks = iter(script)
    return lambda doubt: next(picks, 0)


def _some(doubts: list[Doubt], samples: int, seed: int) -> Iterator[Choose]:
    yield from CORNERS
    for doubt in doubts:
        yield _except(doubt, 0, keep_everything)
        yield _except(doubt, doubt.versions - 1, keep_nothing)
        yield _except(doubt, doubt.versions - 1, keep_only("name"))
    for number in range(samples):
        yield keep_some(Random(f"{seed}/{number}"))


def _except(one: Doubt, version: int, others: Choose) -> Choose:
    return lambda doubt: version if doubt == one else others(doubt)
