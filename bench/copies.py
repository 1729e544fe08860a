"""What the copy of a workspace costs that is made after a step, against ``git status``.

Run with ``python -m bench.copies [--json] [--quick] [--rounds N] [--check]``.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Final

from bartack.runtime.copies.copies import Copies, open_copies
from bartack.runtime.copies.values import Sources
from bench._harness import OURS, Bench, Contestant, Race, main
from bench._report import Goal
from bench._runner import Sample
from bench.snapshot import make_tree

FILES: Final = 5_000
CHANGED: Final = 10
TIMES: Final = 5
"""How many copies one measurement makes; it is their median."""


class _Tree:
    """A repository, and the directory of a run that has copies of it.

    Attributes:
        place: The repository.
        latest: The commit that is the latest copy.

    Args:
        directory: Where both are; ``make_tree`` has filled it.
    """

    def __init__(self, directory: str) -> None:
        self.place = Path(directory)
        run = self.place.parent / f"{self.place.name}-run"
        run.mkdir(exist_ok=True)
        self._sources = Sources(self.place, run)
        self._copies: Copies = open_copies(run / "copies.git")
        self.latest = self._copies.take(self._sources, "").commit
        self._written = 0

    def change(self, count: int) -> None:
        """Write some of the files anew."""
        for number in range(count):
            self._written += 1
            file = self.place / f"package{number}" / "module0.py"
            file.write_bytes(b"VALUE = %d\n" % self._written * 20)

    def copy(self) -> float:
        """Copy it, as a hub does after a step; returns the milliseconds."""
        began = perf_counter()
        copy = self._copies.take(self._sources, self.latest)
        if not copy.is_same:
            list(self._copies.pack(copy.commit, self.latest))
            self.latest = copy.commit
        return (perf_counter() - began) * 1e3

    def status(self) -> float:
        """Ask git what has changed; returns the milliseconds."""
        began = perf_counter()
        subprocess.run(["git", "status", "--porcelain"], cwd=self.place, check=True, capture_output=True)
        return (perf_counter() - began) * 1e3


_trees: Final[dict[str, _Tree]] = {}


def _tree(directory: str) -> _Tree:
    """The tree of a directory. A hub has its copies open as long as it lives, and so has the process of a contestant."""
    if directory not in _trees:
        _trees[directory] = _Tree(directory)
        _trees[directory].copy()
    return _trees[directory]


def measure(directory: str, size: int, *, look: Callable[[_Tree], float], changed: int) -> Sample:
    """Milliseconds to look at the tree after some files have changed."""
    tree, times = _tree(directory), list[float]()
    for _ in range(TIMES):
        tree.change(changed)
        times.append(look(tree))
    return Sample(value=median(times), facts={"files": f"{size:,}", "changed": str(changed)})


def _contestant(key: str, label: str, look: Callable[[_Tree], float], changed: int) -> Contestant:
    return Contestant(
        key=key,
        label=label,
        measure=partial(measure, look=look, changed=changed),
        size=FILES,
        prepare=make_tree,
        programs=("git",),
    )


def _race(key: str, title: str, changed: int) -> Race:
    contestants = (
        _contestant(OURS, "bartack", _Tree.copy, changed),
        _contestant("git", "git status", _Tree.status, changed),
    )
    return Race(key=key, title=title, unit="ms", better="lower", contestants=contestants)


def _at_most(race: str, title: str, target: float, stretch: float) -> Goal:
    return Goal(race=race, title=title, bound="at most", target=target, stretch=stretch, against="git")


RACES: Final = (
    _race("unchanged", f"copy of {FILES:,} files of which none has changed", 0),
    _race("changed", f"copy of {FILES:,} files of which {CHANGED} have changed, with its pack", CHANGED),
)

BENCH: Final = Bench(
    name="copies",
    title="Copies of a workspace",
    races=RACES,
    goals=(
        _at_most("unchanged", "copy of an unchanged workspace to git status", 1.5, 1.0),
        _at_most("changed", f"copy after {CHANGED} changes to git status", 3.0, 2.0),
    ),
    notes=("Storing the pack in the database comes to it, and is not measured here.",),
)

if __name__ == "__main__":
    sys.exit(main(BENCH))
