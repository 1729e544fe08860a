"""Holding still: every process of a tree is stopped where it stands, and continues there later.

``hold`` stops in rounds, as ``tree.py`` does before it kills. It is done when two rounds in a row have found no process that
moves, and no member that the round before them had not found, alive or dead. A process that starts another and ends while a round
reads the list can hide both from that round. But it was alive when the list was made, or its parent was: the dead one stays below
its stopped parent or subreaper, so the next round finds a member that is new, and does not count. So before the second of these
rounds began all processes of the tree were stopped, none of them can have started another since, and a process that was
started before is in the list that this round reads.
Only a process that the kernel keeps waiting in the middle of a system call (state ``D``) may still come out of it with a child. It
runs nothing of its own program, since it stops when it comes out, and the next ``hold_round`` finds the child.

``free_tree`` lets exactly those continue that were stopped here. A process that others had stopped before stays stopped. Children
continue before their parents, so that no parent finds a child of it stopped.

The processes of a control group are frozen by the kernel instead (``Cgroup.freeze``), which no process notices.
"""

from __future__ import annotations

import select
import signal
import time
from collections.abc import Iterator
from typing import Final

from bartack.supervision.process.facts import ProcessFacts, ProcessId
from bartack.supervision.process.system import system
from bartack.supervision.process.tree import ROUND_S, Find

HOLD_TIMEOUT_S: Final = 0.5
"""How long a tree may take to stand still before what still moves of it is named instead."""

_QUIET_ROUNDS: Final = 2
_STOPPED: Final = "Tt"
_IN_KERNEL: Final = "D"


class HeldTree:
    """A tree that is to stand still.

    Args:
        find: Finds its members as they are now.
    """

    def __init__(self, find: Find) -> None:
        self.find = find
        self.stopped: dict[ProcessId, ProcessFacts] = {}
        """Those that were stopped here, each after its parent as far as that was found so."""
        self.spared: set[ProcessId] = set()
        """Those that others had stopped before."""
        self.moving: list[ProcessFacts] = []
        """Those that did not stand still in the last round."""
        self.members: frozenset[ProcessId] = frozenset()
        """All that the last round has found, also the dead."""
        self._waiting: set[ProcessId] = set()
        """Those that the kernel kept waiting in the last round."""

    def is_still(self, facts: ProcessFacts) -> bool:
        """Whether a process runs nothing, and will not: it is stopped, or will be as soon as the kernel lets it go."""
        known = facts.id in self.stopped or facts.id in self.spared
        return known and (
            facts.state in _STOPPED or (facts.id in self._waiting and facts.state in _IN_KERNEL)
        )

    def note_waiting(self, found: list[ProcessFacts]) -> None:
        """Remember which processes of a round the kernel keeps waiting."""
        self._waiting = {facts.id for facts in found if facts.state in _IN_KERNEL}


def hold(held: HeldTree, timeout_s: float = HOLD_TIMEOUT_S) -> None:
    """Stop every process of a tree where it stands; ``free_tree`` lets them continue.

    What leaves the tree because its parent dies just then is found only below a subreaper that is a root. ``HeldTree.moving`` has
    what does not stand still after ``timeout_s`` seconds: this process cannot signal it, or the kernel keeps it waiting.
    """
    until = time.monotonic() + timeout_s
    quiet = 0
    while quiet < _QUIET_ROUNDS:
        known, members = len(held.stopped), held.members
        quiet = 0 if hold_round(held) or held.members != members else quiet + 1
        if time.monotonic() >= until:
            return
        if len(held.stopped) == known:
            select.select([], [], [], ROUND_S)  # they were signalled, and need a moment


def hold_round(held: HeldTree) -> list[ProcessFacts]:
    """Stop what moves in a tree: what is new, and what another process has let continue; return it."""
    found, members = list[ProcessFacts](), set[ProcessId]()
    for facts in _iter_signalled(held):
        members.add(facts.id)
        if not facts.dead:
            found.append(facts)
    held.members = frozenset(members)
    held.moving = [facts for facts in found if not held.is_still(facts)]
    held.note_waiting(found)
    return held.moving


def _iter_signalled(held: HeldTree) -> Iterator[ProcessFacts]:
    """The members, each signalled as soon as it is found if it has to be."""
    for facts in held.find():
        if facts.dead:
            yield facts
            continue
        if facts.id not in held.stopped and facts.state in _STOPPED:
            held.spared.add(facts.id)
        elif not held.is_still(facts) and system.send_signal(facts, signal.SIGSTOP):
            held.spared.discard(facts.id)
            held.stopped[facts.id] = facts
        yield facts


def free_tree(held: HeldTree) -> None:
    """Let a tree continue that ``hold`` has stopped. What others have stopped before that stays stopped."""
    for facts in reversed(held.stopped.values()):
        system.send_signal(facts, signal.SIGCONT)
    held.stopped.clear()
    held.spared.clear()
