"""The children of a parent program and their trees, from the start of a child until nothing of it is left.

Adopts what was forked, reaps, stops, kills, and reports each of these to the hub. When to look is decided by the loop in
``parent.py``; ``process/_membership.py`` says which process belongs to which child, ``process/tree.py`` kills.
"""

from __future__ import annotations

import errno
import os
import resource
import signal
import sys
import time
from collections.abc import Collection, Iterable, Iterator
from typing import Final, Literal

from bartack.supervision.parent._holding import HeldTrees
from bartack.supervision.parent._relay import Relays
from bartack.supervision.parent._spawn import FAILURE, StartError
from bartack.supervision.parent.wire import Channel, Command, Exited, Gone, Started, StartFailed
from bartack.supervision.process._membership import Membership, TrackedChild
from bartack.supervision.process.cgroup import Cgroup, CgroupTree
from bartack.supervision.process.facts import ProcessFacts, ProcessId
from bartack.supervision.process.system import system
from bartack.supervision.process.tree import KILL_TIMEOUT_S, ROUND_S, iter_below_me, kill_round

_LOOK_S: Final = 1.0
"""How often to look where orphans are not reparented to us, so that they are known before they are orphans."""


class StartedChild:
    """What the hub asked for under one token: a forked entry, or the commands of a pipeline."""

    def __init__(
        self, tracked: TrackedChild, pids: list[int], pidfds: list[int], cgroup: Cgroup | None
    ) -> None:
        self.tracked = tracked
        self.cgroup = cgroup
        self.token = tracked.token
        self.pids = pids
        self.pidfds = pidfds
        self.state: Literal["running", "stopping", "killing"] = "running"
        self.until = 0.0
        self.report: int | None = None
        """Where its processes say that they could not become their programs; open until they have."""
        self.failure: StartError | None = None
        self.statuses: dict[int, int] = {}
        self.max_rss_kb = 0
        self.cpu_s = 0.0
        self.leftovers: list[str] = []
        self.watched: dict[int, ProcessId] = {}
        """Descriptors of members that are given time to end by themselves."""

    @property
    def ended(self) -> bool:
        """Whether its own processes are all dead and reaped."""
        return not self.tracked.roots

    @property
    def ending(self) -> bool:
        """Whether its tree has to become empty."""
        return self.ended or self.state != "running"

    def close_pidfds(self) -> None:
        """Close the descriptors that the hub has got, or will not need."""
        for pidfd in self.pidfds:
            os.close(pidfd)
        self.pidfds = []


class Trees:
    """All children of one parent program.

    Args:
        channel: Takes the reports of starts and ends to the hub.
        cgroups: Makes a control group for each child; ``None`` where there are none.
    """

    def __init__(self, channel: Channel[Command], cgroups: CgroupTree | None) -> None:
        self._channel = channel
        self._cgroups = cgroups
        self._membership = Membership() if cgroups is None else Membership(placed=cgroups.token_of)
        self._children: dict[int, StartedChild] = {}
        self._ending: dict[int, StartedChild] = {}
        """Those whose trees have to become empty."""
        self._roots: dict[int, StartedChild] = {}
        self._watches: dict[int, StartedChild] = {}
        self._reports: dict[int, StartedChild] = {}
        self._look_at = 0.0
        """When to look after the ending trees next; deaths bring it forward."""
        self.holding = HeldTrees(self._iter_all, cgroups)
        self.relays = Relays()
        """Copies what children write whose output is relayed."""

    def find(self, token: int) -> StartedChild | None:
        """The child with this token, if it is not gone."""
        return self._children.get(token)

    def check_free(self, token: int) -> None:
        """Raise if a child has this token.

        Raises:
            StartError: One has.
        """
        if token in self._children:
            raise StartError(errno.EEXIST, f"token {token} is in use")

    def descriptors(self) -> Iterator[int]:
        """What the loop has to wait for, to be readable, besides signals."""
        yield from self._reports
        yield from self._watches
        yield from self.relays.descriptors()

    def next_look(self) -> float | None:
        """When to look after the trees, by the clock of ``holding``; ``None`` if there is none to look after."""
        ending = self._ending.values()
        if not ending and (system.SUBREAPER or not self._children):
            return None
        return min([self._look_at, *(child.until for child in ending if child.state == "stopping")])

    def look(self, ready: set[int]) -> None:
        """Take note of starts and deaths, and look after the trees when it is time. ``ready`` are readable descriptors."""
        self.relays.copy(ready)
        for fd in ready & self._reports.keys():
            self._resolve_start(self._reports[fd])
        for fd in ready & self._watches.keys():
            self._unwatch(fd)
            self._look_at = 0.0
        if self._reap():
            self._look_at = 0.0
        next_look = self.next_look()
        if next_look is not None and self.holding.now() >= next_look:
            self._look_after_trees()

    # Starting.

    def started(
        self, token: int, env: dict[str, str], pids: list[int], cgroup: Cgroup | None, report: int | None
    ) -> None:
        """Processes were forked. ``report`` is where a pipeline says that it could not become its programs."""
        child = self._adopt(token, env, pids, cgroup)
        if report is None:
            self._report_started(child)
        else:
            child.report = report
            self._reports[report] = child

    def sweep(self, child: StartedChild) -> None:
        """Kill what the child's own processes have orphaned; they continue themselves."""
        kill_round(lambda: self._iter_orphans(child))

    def _adopt(self, token: int, env: dict[str, str], pids: list[int], cgroup: Cgroup | None) -> StartedChild:
        if self._cgroups is not None and cgroup is not None:
            self._cgroups.settle(cgroup)
        facts = system.read_facts(pids[0])
        tracked = TrackedChild(token, pids, pids[0], facts.started if facts else 0, env)
        pidfds = [pidfd for pid in pids if (pidfd := system.open_pidfd(pid)) is not None]
        child = StartedChild(tracked, pids, pidfds, cgroup)
        self._membership.add(tracked)
        self._children[token] = child
        self._roots.update(dict.fromkeys(pids, child))
        return child

    def fail_start(
        self,
        token: int,
        env: dict[str, str],
        pids: list[int],
        cgroup: Cgroup | None,
        error: StartError | OSError,
    ) -> None:
        """A start failed; what was forked before is killed, and the hub gets the reason when all of it is gone."""
        failure = error if isinstance(error, StartError) else StartError(error.errno or errno.EIO, str(error))
        if not pids:
            self.relays.finish(token)
            if self._cgroups is not None and cgroup is not None:
                self._cgroups.settle(cgroup)
                self._cgroups.drop(cgroup)
            self._channel.send(StartFailed(token, failure.errno, failure.problem, failure.index))
            return
        child = self._adopt(token, env, pids, cgroup)
        child.failure = failure
        self.kill(child)

    def _report_started(self, child: StartedChild) -> None:
        self._channel.send(Started(child.token, child.pids), child.pidfds)
        child.close_pidfds()

    def _resolve_start(self, child: StartedChild) -> None:
        """Learn whether the processes of a pipeline became their programs."""
        if child.report is None:
            return
        try:
            text = os.read(child.report, FAILURE.size)
        except BlockingIOError:
            return
        self._close_report(child)
        if not text:
            self._report_started(child)
            return
        index, number = FAILURE.unpack(text)
        child.failure = StartError(number, os.strerror(number), index)
        child.close_pidfds()
        self.kill(child)

    def _close_report(self, child: StartedChild) -> None:
        if child.report is not None:
            del self._reports[child.report]
            os.close(child.report)
            child.report = None

    # Deaths.

    def _reap(self) -> bool:
        """Reap whatever has died, orphans that came to us included; return whether there was anything."""
        found = False
        for pid, status, usage in _iter_dead():
            found = True
            child = self._roots.pop(pid, None)
            if child is None:
                continue
            child.tracked.roots.discard(pid)
            child.statuses[pid] = os.waitstatus_to_exitcode(status)
            child.max_rss_kb = max(child.max_rss_kb, usage.ru_maxrss * system.RSS_UNIT_BYTES // 1024)
            child.cpu_s += usage.ru_utime + usage.ru_stime
            if child.ended:
                self._report_exited(child)
        return found

    def _report_exited(self, child: StartedChild) -> None:
        self._resolve_start(child)
        self._begin_end(child)
        if child.failure is None:
            statuses = [child.statuses[pid] for pid in child.pids]
            stopped = child.state in {"stopping", "killing"}
            self._channel.send(
                Exited(child.token, statuses, child.max_rss_kb, round(child.cpu_s, 6), stopped=stopped)
            )

    # Ending trees.

    def _begin_end(self, child: StartedChild) -> None:
        child.tracked.ending = True
        self._ending[child.token] = child

    def stop(self, child: StartedChild, grace_s: float) -> None:
        """Terminate a tree, and kill what is left of it after ``grace_s`` seconds."""
        self._reap()  # a process that has ended by now was not stopped by us
        until = self.holding.now() + grace_s
        if child.state == "running":
            child.state = "stopping"
            self._begin_end(child)
            child.until = until
            for facts in self._members([child])[child.token]:
                system.send_signal(facts, signal.SIGTERM)
                system.send_signal(facts, signal.SIGCONT)
                self._watch(child, facts)
            self._look_at = 0.0
        elif child.state == "stopping":
            child.until = min(child.until, until)

    def _end_grace(self, child: StartedChild) -> None:
        if child.ended:
            child.leftovers = _names(self._members([child])[child.token])
        self.kill(child)

    def kill(self, child: StartedChild) -> None:
        """Kill a tree."""
        if child.state != "killing":
            child.state = "killing"
            self._begin_end(child)
            child.until = self.holding.now() + KILL_TIMEOUT_S
            self._look_at = 0.0

    def _watch(self, child: StartedChild, facts: ProcessFacts) -> None:
        if facts.id not in child.watched.values():
            pidfd = system.open_pidfd(facts.pid)
            if pidfd is not None:
                child.watched[pidfd] = facts.id
                self._watches[pidfd] = child

    def _unwatch(self, pidfd: int) -> None:
        del self._watches.pop(pidfd).watched[pidfd]
        os.close(pidfd)

    def _members(self, children: Collection[StartedChild]) -> dict[int, list[ProcessFacts]]:
        """The living members of each child's tree."""
        found: dict[int, list[ProcessFacts]] = {child.token: [] for child in children}
        for token, facts in self._membership.iter_members(found):
            if token in found and not facts.dead:
                found[token].append(facts)
        for child in children:
            if child.cgroup is not None:
                found[child.token] += _missed(child.cgroup, found[child.token])
        return found

    def _look_after_trees(self) -> None:
        """Bring every tree that has to end one round further, and report those that are empty."""
        now = self.holding.now()
        self._look_at = now + _LOOK_S
        if not system.SUBREAPER:
            self._members(self._children.values())
        for child in list(self._ending.values()):
            if child.state == "stopping" and now >= child.until:
                self._end_grace(child)
        self._kill_round([child for child in self._ending.values() if child.state == "killing"])
        self._reap()
        ending = list(self._ending.values())
        if not ending:
            return
        members = self._members(ending)
        # A process that died during the look may have forked after it was seen: a tree that seems empty might not be.
        certain = not self._reap() and self._membership.certain
        for child in ending:
            self._judge(child, members[child.token], now, certain=certain)

    def _kill_round(self, killed: list[StartedChild]) -> None:
        if killed:
            tokens = {child.token for child in killed}
            groups = [child.tracked.group for child in killed]
            for child in killed:
                if child.cgroup is not None:
                    child.cgroup.kill()
            kill_round(lambda: self._iter_living(tokens), groups)

    def _iter_living(self, tokens: set[int]) -> Iterator[ProcessFacts]:
        return (facts for token, facts in self._membership.iter_members(tokens) if token in tokens)

    def _iter_orphans(self, child: StartedChild) -> Iterator[ProcessFacts]:
        """Members that came to us when their parents died, and what is below them."""
        if not system.SUBREAPER or child.ending:
            return
        members = {facts.pid: facts for facts in self._iter_living({child.token})}
        me = os.getpid()
        for facts in members.values():
            head = facts
            while head.ppid in members:
                head = members[head.ppid]
            if head.ppid == me and head.pid not in child.tracked.roots:
                yield facts

    def _judge(self, child: StartedChild, living: list[ProcessFacts], now: float, *, certain: bool) -> None:
        if child.ended and not living:
            if certain:
                self._finish(child, [])
            else:
                self._look_at = min(self._look_at, now + ROUND_S)
        elif child.state == "killing":
            if now >= child.until:
                self._finish(child, living)
            else:
                self._look_at = min(self._look_at, now + ROUND_S)
        elif child.state == "stopping":
            for facts in living:
                self._watch(child, facts)
            if not child.watched:
                self._look_at = min(self._look_at, now + ROUND_S)
        else:
            child.leftovers = _names(living)
            self.kill(child)

    def _finish(self, child: StartedChild, survivors: list[ProcessFacts]) -> None:
        """Forget a child and send its last report."""
        for pidfd in tuple(child.watched):
            self._unwatch(pidfd)
        for pid in child.tracked.roots:
            self._roots.pop(pid, None)
        self._close_report(child)
        child.close_pidfds()
        self.relays.finish(child.token)
        self._membership.remove(child.token)
        del self._children[child.token]
        self._ending.pop(child.token, None)
        if self._cgroups is not None and child.cgroup is not None:
            self._cgroups.drop(child.cgroup)
        if child.failure is not None:
            failure = child.failure
            self._channel.send(StartFailed(child.token, failure.errno, failure.problem, failure.index))
        else:
            self._channel.send(Gone(child.token, child.leftovers, _names(survivors)))

    def end_everything(self) -> None:
        """Kill all that is below us, and come back only when nothing is left.

        What cannot be killed is named once; as long as it lives we live too, and so does our lock.
        """
        until = time.monotonic() + KILL_TIMEOUT_S
        named = False
        while True:
            if self._cgroups is not None:
                self._cgroups.kill()
            kill_round(self._iter_all, [child.tracked.group for child in self._children.values()])
            childless = _reap_everything()
            # A subreaper without children has no descendants at all: the kernel guarantees it, and no scan can miss any.
            if childless and system.SUBREAPER:
                return
            living = [facts for facts in self._iter_all() if not facts.dead]
            if childless and not living:
                return
            if not named and time.monotonic() > until:
                named = True
                _complain(living)
            system.wait_deaths(living, _LOOK_S if named else ROUND_S)

    def _iter_all(self) -> Iterator[ProcessFacts]:
        if not system.SUBREAPER:
            yield from (facts for _, facts in self._membership.iter_members())
        yield from iter_below_me()


def _missed(cgroup: Cgroup, found: list[ProcessFacts]) -> list[ProcessFacts]:
    """The processes of a group that were not found through their parents, because one of these died meanwhile."""
    known = {facts.pid for facts in found}
    facts = (system.read_facts(pid) for pid in cgroup.iter_pids() if pid not in known)
    return [one for one in facts if one is not None and not one.dead]


def _iter_dead() -> Iterator[tuple[int, int, resource.struct_rusage]]:
    while True:
        try:
            pid, status, usage = os.wait4(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not pid:
            return
        yield pid, status, usage


def _reap_everything() -> bool:
    """Reap whatever has died; return whether no child is left."""
    while True:
        try:
            if not os.waitpid(-1, os.WNOHANG)[0]:
                return False
        except ChildProcessError:
            return True


def _names(found: Iterable[ProcessFacts]) -> list[str]:
    return sorted({facts.name for facts in found})


def _complain(living: list[ProcessFacts]) -> None:
    # The hub no longer reads our socket; the standard error stream may still be read.
    print(f"bartack: cannot kill {_names(living)}; waiting for it", file=sys.stderr)  # noqa: T201 - see above
