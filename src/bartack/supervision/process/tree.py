"""Process trees: which process is below which, and how a tree is killed for certain.

A tree is killed in rounds. A round stops whatever it finds until it finds nothing new, so that no process is left that could fork,
and then kills all of it. Rounds repeat until nothing is left. Every signal goes to a process that was compared with the one
that was found: a reused number is never hit.

``_membership.py`` says to which child of a parent program a process belongs.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from typing import Final

from bartack.supervision.process.cgroup import kill_dead_cgroups
from bartack.supervision.process.facts import ProcessFacts, ProcessId
from bartack.supervision.process.system import system

KILL_TIMEOUT_S: Final = 5.0
"""How long a tree may resist before what is left of it is named instead."""

ROUND_S: Final = 0.005
"""How long to wait for deaths before the next round."""

_STOP_BUDGET_S: Final = 0.05
"""How long one round may take to stop processes, so that the caller can do other things between rounds."""

Find = Callable[[], Iterable[ProcessFacts]]
"""Finds the members of a tree as they are now. Those it yields early are stopped early."""


def descendants(*roots: int, spare: Collection[int] = ()) -> list[ProcessFacts]:
    """Everything below the processes ``roots``, without them and without the trees of ``spare``; zombies included."""
    return list(_iter_below(system.iter_processes(), set(roots), spare))


def _iter_below(
    found: Iterable[ProcessFacts], above: set[int], spare: Collection[int]
) -> Iterator[ProcessFacts]:
    """Those of ``found`` that are below one of ``above``; ``above`` grows by them."""
    waiting: list[ProcessFacts] = []
    for facts in found:
        if facts.pid in spare or facts.pid in above:
            continue
        if facts.ppid in above:
            above.add(facts.pid)
            yield facts
        else:
            waiting.append(facts)
    # Numbers start again from below, so a child may have been listed before its parent.
    while late := [facts for facts in waiting if facts.ppid in above]:
        above.update(facts.pid for facts in late)
        waiting = [facts for facts in waiting if facts.pid not in above]
        yield from late


def iter_below_me(spare: Collection[int] = ()) -> Iterator[ProcessFacts]:
    """Everything below this process without the trees of ``spare``, each as soon as it is found; zombies included."""
    me = os.getpid()
    return _iter_below(system.iter_family(me), {me}, spare)


def find_by_environment(name: str, value: str) -> list[ProcessFacts]:
    """Every living process but this one that was started with ``name`` set to ``value`` in its environment."""
    found: list[ProcessFacts] = []
    empty: list[ProcessFacts] = []
    for facts in system.iter_processes():
        env = system.read_environment(facts.pid)
        if env.get(name) == value:
            found.append(facts)
        elif not env:
            empty.append(facts)
    # While a process becomes a program, its environment is empty for a moment; that is over by now.
    found += [facts for facts in empty if system.read_environment(facts.pid).get(name) == value]
    return [facts for facts in found if facts.pid != os.getpid() and not facts.dead]


def kill_round(find: Find, groups: Collection[int] = ()) -> list[ProcessFacts]:
    """One round: stop what ``find`` finds until it finds nothing new, then kill all of it; return what was found.

    Args:
        find: Finds the members of the tree.
        groups: Process groups that belong to the tree alone. A signal to a group also reaches a member that is being forked.
    """
    until = time.monotonic() + _STOP_BUDGET_S
    stopped: dict[ProcessId, ProcessFacts] = {}
    while True:
        before = len(stopped)
        for facts in find():
            if not facts.dead and facts.id not in stopped:
                system.send_signal(facts, signal.SIGSTOP)
                stopped[facts.id] = facts
        if len(stopped) == before or time.monotonic() > until:
            break
    # A stopped member keeps the number of its group, also as a zombie: who would reap it is stopped, or is us.
    for group in {facts.group for facts in stopped.values()}.intersection(groups):
        _kill_group(group)
    # Children first: the kernel continues a stopped group when the death of a parent cuts it off from its session.
    for facts in reversed(stopped.values()):
        system.send_signal(facts, signal.SIGKILL)
    return list(stopped.values())


def _kill_group(group: int) -> None:
    # Processes that cannot be signalled together are signalled one by one.
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)


def kill_tree(*roots: ProcessId, timeout_s: float = KILL_TIMEOUT_S) -> list[ProcessFacts]:
    """Kill the processes ``roots`` and everything below them; return what is still alive after ``timeout_s`` seconds.

    A root that is no longer there, or whose number was given again, is left alone. The process that started a root reaps it.
    """
    return _kill_all(find_trees(roots), {root.pid for root in roots}, timeout_s)


def find_trees(roots: Iterable[ProcessId]) -> Find:
    """Finds the processes ``roots`` and everything below them; what was found once is found again when its parent is dead."""
    known: set[ProcessId] = set(roots)

    def find() -> Iterator[ProcessFacts]:
        present = [facts for root in known if (facts := system.read_facts(root.pid)) and facts.id == root]
        yield from present
        above = {facts.pid for facts in present}
        for facts in _iter_below(system.iter_processes(), above, ()):
            known.add(facts.id)
            yield facts

    return find


def kill_descendants(keep: Collection[int] = (), timeout_s: float = KILL_TIMEOUT_S) -> list[ProcessFacts]:
    """Kill everything below this process but the children ``keep`` and their trees; return what is still alive.

    This is how a subreaper ends what a dead child of it has left, and the control groups of a dead parent program. Zombies among
    its own children are reaped, so ``keep`` has to name every child that another part of the program waits for.
    """
    left = _kill_all(lambda: iter_below_me(keep), keep, timeout_s)
    kill_dead_cgroups()
    return left


def _kill_all(find: Find, keep: Collection[int], timeout_s: float) -> list[ProcessFacts]:
    until = time.monotonic() + timeout_s
    while True:
        kill_round(find)
        # A process that is named was alive when the time was over: on a busy machine the last look may have been long ago.
        late = time.monotonic() >= until
        _reap(find(), keep)
        left = [facts for facts in find() if not facts.dead]
        if not left or late:
            return left
        system.wait_deaths(left, ROUND_S)


def _reap(found: Iterable[ProcessFacts], keep: Collection[int]) -> None:
    me = os.getpid()
    for facts in found:
        if facts.ppid == me and facts.pid not in keep:
            with suppress(ChildProcessError):
                os.waitpid(facts.pid, os.WNOHANG)
