"""To which child a process belongs that was found below a parent program.

By its line of parents first. When a process between it and the child has died, the line is broken: the orphan is below the
parent program itself (or, without a subreaper, below the first process). Then these decide, in this order: what was seen of it
before, its control group where there are any, its process group and session, and the marks in its environment. An orphan that
wiped out all of these belongs to one of the children that were there when it started; it is ended with the last of them.

It only reads; it never signals.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Final

from bartack.supervision.process.facts import ProcessFacts, ProcessId
from bartack.supervision.process.system import system

MARKS: Final = ("BARTACK_WORKER", "BARTACK_STEP")
"""The variables that name the worker and the step a process was started for."""

FIRST_PID: Final = 1

DOUBTS: Final = 3
"""How many looks an orphan without an environment is given to show one."""


def _nowhere(pid: int) -> None:
    """No process is in a group that says whose it is."""
    del pid


class TrackedChild:
    """One child of a parent program: its own processes, and what identifies the others of its tree."""

    def __init__(
        self, token: int, pids: Iterable[int], group: int, started: int, env: Mapping[str, str]
    ) -> None:
        self.token = token
        self.roots = set(pids)
        """Its own processes that are not reaped yet: their numbers cannot be given again."""
        self.group = group
        self.started = started
        self.marks = {name: env[name] for name in MARKS if name in env}
        self.ending = False
        self.seen: set[ProcessId] = set()
        """Processes that were found to belong to it."""
        self.groups = {group}
        """Process groups that it leads."""


class Membership:
    """Which processes belong to which child, now and as far as it was seen before."""

    def __init__(
        self,
        *,
        scan: Callable[[], Iterable[ProcessFacts]] | None = None,
        environment: Callable[[int], Mapping[str, str]] = system.read_environment,
        placed: Callable[[int], int | None] = _nowhere,
        subreaper: bool = system.SUBREAPER,
        me: int | None = None,
    ) -> None:
        self._me = os.getpid() if me is None else me
        self._scan = scan
        self._environment = environment
        self._placed = placed
        self._subreaper = subreaper
        self._adopter = self._me if subreaper else FIRST_PID
        self._children: dict[int, TrackedChild] = {}
        self._seen: dict[ProcessId, int] = {}
        self._groups: dict[int, int] = {}
        self._doubts: dict[ProcessId, int] = {}
        self.certain = True
        """Whether the last look found an owner for every process; an environment may become readable a moment later."""

    def add(self, tracked: TrackedChild) -> None:
        """Track a child from now on."""
        self._children[tracked.token] = tracked
        self._groups[tracked.group] = tracked.token

    def remove(self, token: int) -> None:
        """Forget a child and everything that belonged to it."""
        tracked = self._children.pop(token)
        for group in tracked.groups:
            if self._groups.get(group) == token:
                del self._groups[group]
        for found in tracked.seen:
            if self._seen.get(found) == token:
                del self._seen[found]
        if not self._children:
            self._doubts.clear()

    def iter_members(self, tokens: Collection[int] | None = None) -> Iterator[tuple[int, ProcessFacts]]:
        """Every process that belongs to a child, with the child's token, as soon as it is found; zombies included.

        Args:
            tokens: Only these children are asked for. Nothing below the roots of others belongs to them, so where orphans come to
                us, nothing there is looked at: the end of one child among a thousand costs no more than among ten.
        """
        self.certain = True
        roots = {pid: tracked.token for tracked in self._children.values() for pid in tracked.roots}
        spare = {pid for pid, token in roots.items() if token not in tokens} if tokens is not None else ()
        owners: dict[int, int] = {}
        waiting: list[ProcessFacts] = []
        for facts in self._look(spare):
            token = self._owner(facts, roots, owners)
            if token is None:
                waiting.append(facts)
            else:
                yield self._note(token, facts, owners)
        while late := [facts for facts in waiting if facts.ppid in owners]:
            waiting = [facts for facts in waiting if facts.ppid not in owners]
            for facts in late:
                yield self._note(owners[facts.ppid], facts, owners)

    def _look(self, spare: Collection[int]) -> Iterable[ProcessFacts]:
        if self._scan is not None:
            return self._scan()
        return system.iter_family(self._me, spare=spare if self._subreaper else ())

    def _note(self, token: int, facts: ProcessFacts, owners: dict[int, int]) -> tuple[int, ProcessFacts]:
        owners[facts.pid] = token
        tracked = self._children[token]
        self._seen[facts.id] = token
        tracked.seen.add(facts.id)
        if facts.pid == facts.group:
            self._groups.setdefault(facts.group, token)
            tracked.groups.add(facts.group)
        return token, facts

    def _owner(self, facts: ProcessFacts, roots: Mapping[int, int], owners: Mapping[int, int]) -> int | None:
        token = roots.get(facts.pid)
        if token is None:
            token = owners.get(facts.ppid)
        if token is None:
            token = self._seen.get(facts.id)
        if token is None and facts.ppid == self._adopter and facts.pid != self._me:
            token = self._adopt(facts)
        return token

    def _adopt(self, facts: ProcessFacts) -> int | None:
        token = self._placed(facts.pid)
        if token in self._children:
            return token
        for group in (facts.group, facts.session):
            if group in self._groups:
                return self._groups[group]
        env = self._environment(facts.pid)
        marked = self._marked(env)
        if marked is not None or not self._subreaper:
            return marked
        if not env and not facts.dead:
            self._doubt(facts.id)
        # Only children of ours have descendants here, so it belongs to one that was there when it started.
        able = [tracked for tracked in self._children.values() if tracked.started <= facts.started]
        if able and all(tracked.ending for tracked in able):
            return able[-1].token
        return None

    def _doubt(self, orphan: ProcessId) -> None:
        """The environment of a process is empty for a moment while it becomes a program; or it really is."""
        looks = self._doubts.get(orphan, 0)
        if looks < DOUBTS:
            self._doubts[orphan] = looks + 1
            self.certain = False

    def _marked(self, env: Mapping[str, str]) -> int | None:
        """The one child whose marks are all in ``env``; the one with more marks if there are several."""
        fitting = [
            tracked
            for tracked in self._children.values()
            if tracked.marks and tracked.marks.items() <= env.items()
        ]
        fitting.sort(key=lambda tracked: len(tracked.marks), reverse=True)
        if not fitting or (len(fitting) > 1 and len(fitting[0].marks) == len(fitting[1].marks)):
            return None
        return fitting[0].token
