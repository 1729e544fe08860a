"""Everything below a parent program stands still while its lease is not valid, and so does the clock of its deadlines.

``process/_hold.py`` stops processes one by one. Where there are control groups, the kernel freezes these, and only what is in none
of them is stopped one by one.
"""

from __future__ import annotations

import select
import time
from collections.abc import Iterator
from typing import Final

from bartack.supervision.process._hold import HeldTree, free_tree, hold, hold_round
from bartack.supervision.process.cgroup import CgroupTree
from bartack.supervision.process.facts import ProcessFacts
from bartack.supervision.process.tree import ROUND_S, Find

_FREEZE_S: Final = 0.2
"""How long the kernel may take to freeze control groups, before their processes are stopped one by one, too."""


class HeldTrees:
    """Whether the trees of a parent program stand still.

    Args:
        find: Finds everything below the program.
        cgroups: The control groups of its children, if they have any.
    """

    def __init__(self, find: Find, cgroups: CgroupTree | None) -> None:
        self._find = find
        self._cgroups = cgroups
        self._held: HeldTree | None = None
        self._since = 0.0
        self._stood_s = 0.0

    @property
    def is_on(self) -> bool:
        """Whether everything is to stand still."""
        return self._held is not None

    def now(self) -> float:
        """Seconds of a clock that stands still with the trees."""
        return (time.monotonic() if self._held is None else self._since) - self._stood_s

    def hold(self) -> None:
        """Stop everything where it stands or, if that was done before, whatever moves again."""
        if self._held is not None:
            hold_round(self._held)
            return
        self._since = time.monotonic()
        self._held = HeldTree(self._iter_loose)
        if self._cgroups is not None:
            self._cgroups.freeze()
            _wait_frozen(self._cgroups)
        hold(self._held)

    def free(self) -> None:
        """Let everything continue that stands still."""
        if self._held is None:
            return
        if self._cgroups is not None:
            self._cgroups.thaw()
        free_tree(self._held)
        self._stood_s += time.monotonic() - self._since
        self._held = None

    def _iter_loose(self) -> Iterator[ProcessFacts]:
        """What is not frozen in a control group."""
        cgroups = self._cgroups if self._cgroups is not None and self._cgroups.is_frozen() else None
        for facts in self._find():
            if cgroups is None or cgroups.token_of(facts.pid) is None:
                yield facts


def _wait_frozen(cgroups: CgroupTree) -> None:
    until = time.monotonic() + _FREEZE_S
    while not cgroups.is_frozen() and time.monotonic() < until:
        select.select([], [], [], ROUND_S)
