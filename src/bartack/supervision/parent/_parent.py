"""The program both parents run: it starts children for the hub, watches over their trees, and outlives none of them.

One thread, one loop, nothing that blocks: frames from the hub, deaths from the kernel, deadlines. A child is asked for with a
token and goes through these states:

    running ──stop──▶ stopping ──grace over──▶ killing ──nothing left──▶ gone
       │                  └──────nothing left──────────────────────────────▲
       ├──kill, or it ended and left something──▶ killing                  │
       └──it ended and left nothing────────────────────────────────────────┘

When the hub dies, everything below is killed and the program ends; its lock goes with it. Should it be killed itself, the
guardian above it (``_guardian.py``) does that. ``_spawn.py`` forks, ``process/_membership.py`` says who belongs to whom,
``process/_tree.py`` kills. Where ``process/_cgroup.py`` can make groups, each child has one, and both go further with it.
"""

from __future__ import annotations

import errno
import gc
import os
import resource
import select
import signal
import socket
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from types import FrameType
from typing import Final, Literal, NamedTuple

from bartack.supervision.parent._guardian import EXIT_OWNER_DEAD, NO_LOCK
from bartack.supervision.parent._spawn import (
    FAILURE,
    OWN_SIGNALS,
    SLOT,
    Entry,
    Home,
    StartError,
    Streams,
    check_single_thread,
    fork_entry,
    fork_pipeline,
    open_home,
    plan_pipeline,
)
from bartack.supervision.parent._wire import (
    COMMANDS,
    Bye,
    Channel,
    Command,
    Exec,
    Exited,
    Fork,
    Gone,
    Kill,
    ParentReady,
    Signal,
    Started,
    StartFailed,
    Stop,
    Sweep,
)
from bartack.supervision.process._cgroup import Cgroup, Ground, NoGroundError, open_ground
from bartack.supervision.process._facts import ProcessFacts, ProcessId
from bartack.supervision.process._membership import Census, Kin
from bartack.supervision.process._system import system
from bartack.supervision.process._tree import KILL_TIMEOUT_S, ROUND_S, iter_below_me, strike

_CENSUS_S: Final = 1.0
"""How often to look where orphans do not come to us, so that they are known before they are orphans."""

_WARM_UPS: Final = 12
"""After so many runs Python has learned all that it notes beside the code."""

_DEATH_SIGNAL: Final = signal.SIGHUP
"""What the kernel sends when our parent dies: the guardian above us, or the hub where there is none."""


class Owner(NamedTuple):
    """The hub, and the process between it and us."""

    pidfd: int | None
    """Readable when the hub is dead, should its socket live on in some other process."""
    above: int

    def is_dead(self) -> bool:
        """Whether one of the two is dead. Without a guardian our own parent is the hub."""
        return os.getppid() != self.above or (self.pidfd is not None and is_readable(self.pidfd))


def is_readable(fd: int) -> bool:
    """Whether there is something to read now."""
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(0))


class Child:
    """What the hub asked for under one token: a forked entry, or the commands of a pipeline."""

    def __init__(self, kin: Kin, pids: list[int], pidfds: list[int], cgroup: Cgroup | None) -> None:
        self.kin = kin
        self.cgroup = cgroup
        self.token = kin.token
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
        """Descriptors of members that shall end by themselves."""

    @property
    def ended(self) -> bool:
        """Whether its own processes are all dead and reaped."""
        return not self.kin.roots

    @property
    def ending(self) -> bool:
        """Whether its tree has to become empty."""
        return self.ended or self.state != "running"


class Parent:
    """The loop of a parent program."""

    def __init__(
        self,
        channel: Channel[Command],
        owner: Owner,
        entry: Entry,
        home: Home,
        wakeup: int,
        ground: Ground | None,
        warm_up: Callable[[], None] | None = None,
        *,
        lock: int | None = None,
    ) -> None:
        self._lock = lock
        self._channel = channel
        self._owner = owner
        self._entry = entry
        self._home = home
        self._wakeup = wakeup
        self._ground = ground
        self._warm_up = warm_up
        self._warm_ups_left = 0 if warm_up is None else _WARM_UPS
        self._census = Census() if ground is None else Census(placed=ground.token_of)
        self._children: dict[int, Child] = {}
        self._ending: dict[int, Child] = {}
        """Those whose trees have to become empty."""
        self._roots: dict[int, Child] = {}
        self._watches: dict[int, Child] = {}
        self._reports: dict[int, Child] = {}
        self._look_at = 0.0
        """When to look after the ending trees next; deaths bring it forward."""
        self._leaving: int | None = None

    def run(self) -> int:
        """Serve until the hub is gone or says so; nothing is left below when this returns."""
        try:
            self._channel.send(ParentReady(self._home.pid))
            while self._leaving is None:
                self._turn()
            return self._leaving
        finally:
            self._end_everything()
            if self._ground is not None:
                self._ground.close()

    def _turn(self) -> None:
        ready = self._wait()
        if not ready and self._warm_ups_left:
            self._use_idle_time()
            return
        if self._wakeup in ready:
            self._take_signals()
        self._take_commands()
        if self._owner.pidfd in ready and self._leaving is None:
            self._leaving = EXIT_OWNER_DEAD
        if self._leaving is not None:
            return
        for fd in ready & self._reports.keys():
            self._resolve_start(self._reports[fd])
        for fd in ready & self._watches.keys():
            self._unwatch(fd)
            self._look_at = 0.0
        if self._reap():
            self._look_at = 0.0
        next_look = self._next_look()
        if next_look is not None and time.monotonic() >= next_look:
            self._look_after_trees()
        self._channel.flush()

    def _wait(self) -> set[int]:
        poll = select.poll()
        wanted = select.POLLIN | (select.POLLOUT if self._channel.wants_write else 0)
        poll.register(self._channel.fileno(), wanted)
        hub = () if self._owner.pidfd is None else (self._owner.pidfd,)
        for fd in (*hub, self._wakeup, *self._reports, *self._watches):
            poll.register(fd, select.POLLIN)
        return {fd for fd, _ in poll.poll(0 if self._warm_ups_left else self._patience_ms())}

    def _use_idle_time(self) -> None:
        """Let the children that are still to come find the code they run in the best state."""
        assert self._warm_up is not None
        try:
            self._warm_up()
        except Exception as error:  # noqa: BLE001 - children can do without it
            with suppress(OSError):  # nobody has to read it
                sys.stderr.write(f"a warm-up failed: {error!r}\n")
            self._warm_ups_left = 1
        self._warm_ups_left -= 1
        if not self._warm_ups_left:
            gc.freeze()

    def _patience_ms(self) -> float | None:
        next_look = self._next_look()
        return None if next_look is None else max(0.0, (next_look - time.monotonic()) * 1000)

    def _next_look(self) -> float | None:
        """When to look after the trees, if there is any to look after."""
        ending = self._ending.values()
        if not ending and (system.SUBREAPER or not self._children):
            return None
        return min([self._look_at, *(child.until for child in ending if child.state == "stopping")])

    def _take_signals(self) -> None:
        numbers = os.read(self._wakeup, 4096)
        if not {_DEATH_SIGNAL, signal.SIGTERM}.isdisjoint(numbers) and self._owner.is_dead():
            # The guardian terminates us, too, when it sees the hub die.
            self._owner_died()
        elif signal.SIGTERM in numbers:
            self._leaving = 0

    def _owner_died(self) -> None:
        """Leave, and date the lock of the tree: how long the hub lived is counted up to here, not to its last heartbeat."""
        if self._leaving is None and self._lock is not None and os.utime in os.supports_fd:
            with suppress(OSError):
                os.utime(self._lock)
        self._leaving = EXIT_OWNER_DEAD

    def _take_commands(self) -> None:
        received = self._channel.receive()
        if not self._channel.alive and self._leaving is None:
            # What a dead hub has said last is not begun any more: its successor may have begun it.
            goodbye = bool(received) and isinstance(received[-1].message, Bye)
            if goodbye:
                self._leaving = 0
            else:
                self._owner_died()
        for command, fds in received:
            try:
                if self._leaving is None:
                    self._obey(command, fds)
            finally:
                for fd in fds:
                    os.close(fd)

    def _obey(self, command: Command, fds: list[int]) -> None:
        match command:
            case Fork() | Exec():
                self._start(command, fds)
            case Bye():
                self._leaving = 0
            case Signal() | Stop() | Kill() | Sweep():
                child = self._children.get(command.token)
                # A child that is gone meanwhile has been reported; there is nothing left to do for it.
                if child is not None:
                    self._control(child, command)

    def _control(self, child: Child, command: Signal | Stop | Kill | Sweep) -> None:
        match command:
            case Signal():
                for pid in child.kin.roots:
                    _signal_root(pid, command.number)
            case Stop():
                self._stop(child, command.grace_s)
            case Kill():
                self._doom(child)
            case Sweep():
                strike(lambda: self._iter_orphans(child))

    # -- starting ---------------------------------------------------------------------------------------------------

    def _start(self, command: Fork | Exec, fds: list[int]) -> None:
        pids: list[int] = []
        cgroup: Cgroup | None = None
        env = {os.fsdecode(name): os.fsdecode(value) for name, value in command.env}
        try:
            if self._owner.is_dead():
                self._owner_died()
                return
            self._check_token(command.token)
            check_single_thread()
            cgroup = None if self._ground is None else self._ground.make(command.token)
            report = self._exec(command, fds, pids, cgroup) if isinstance(command, Exec) else None
            if isinstance(command, Fork):
                pids.append(fork_entry(self._home, self._entry, command.payload, fds, env, cgroup))
        except (StartError, OSError) as error:
            self._fail_start(command.token, env, pids, cgroup, error)
            return
        child = self._adopt(command.token, env, pids, cgroup)
        if report is None:
            self._tell_started(child)
        else:
            child.report = report
            self._reports[report] = child

    def _check_token(self, token: int) -> None:
        if token in self._children:
            raise StartError(errno.EEXIST, f"token {token} is in use")

    def _exec(self, command: Exec, fds: list[int], pids: list[int], cgroup: Cgroup | None) -> int:
        env = dict(command.env)
        plans = plan_pipeline(command.pipeline, command.cwd, env)
        null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        try:
            streams = Streams(*(null if place < 0 else fds[place] for place in command.stdio))
            return fork_pipeline(self._home, plans, command.cwd, env, streams, pids, cgroup)
        finally:
            os.close(null)

    def _adopt(self, token: int, env: dict[str, str], pids: list[int], cgroup: Cgroup | None) -> Child:
        if self._ground is not None and cgroup is not None:
            self._ground.settle(cgroup)
        facts = system.read_facts(pids[0])
        kin = Kin(token, pids, pids[0], facts.started if facts else 0, env)
        pidfds = [pidfd for pid in pids if (pidfd := system.open_pidfd(pid)) is not None]
        child = Child(kin, pids, pidfds, cgroup)
        self._census.add(kin)
        self._children[token] = child
        self._roots.update(dict.fromkeys(pids, child))
        return child

    def _fail_start(
        self,
        token: int,
        env: dict[str, str],
        pids: list[int],
        cgroup: Cgroup | None,
        error: StartError | OSError,
    ) -> None:
        failure = error if isinstance(error, StartError) else StartError(error.errno or errno.EIO, str(error))
        if not pids:
            if self._ground is not None and cgroup is not None:
                self._ground.settle(cgroup)
                self._ground.drop(cgroup)
            self._channel.send(StartFailed(token, failure.errno, failure.problem, failure.index))
            return
        child = self._adopt(token, env, pids, cgroup)
        child.failure = failure
        self._doom(child)

    def _tell_started(self, child: Child) -> None:
        self._channel.send(Started(child.token, child.pids), child.pidfds)
        self._close_pidfds(child)

    def _close_pidfds(self, child: Child) -> None:
        for pidfd in child.pidfds:
            os.close(pidfd)
        child.pidfds = []

    def _resolve_start(self, child: Child) -> None:
        """Learn whether the processes of a pipeline became their programs."""
        if child.report is None:
            return
        try:
            text = os.read(child.report, FAILURE.size)
        except BlockingIOError:
            return
        self._close_report(child)
        if not text:
            self._tell_started(child)
            return
        index, number = FAILURE.unpack(text)
        child.failure = StartError(number, os.strerror(number), index)
        self._close_pidfds(child)
        self._doom(child)

    def _close_report(self, child: Child) -> None:
        if child.report is not None:
            del self._reports[child.report]
            os.close(child.report)
            child.report = None

    # -- deaths -----------------------------------------------------------------------------------------------------

    def _reap(self) -> bool:
        """Reap whatever has died, orphans that came to us included; tell whether there was anything."""
        found = False
        for pid, status, usage in _iter_dead():
            found = True
            child = self._roots.pop(pid, None)
            if child is None:
                continue
            child.kin.roots.discard(pid)
            child.statuses[pid] = os.waitstatus_to_exitcode(status)
            child.max_rss_kb = max(child.max_rss_kb, usage.ru_maxrss * system.RSS_UNIT_BYTES // 1024)
            child.cpu_s += usage.ru_utime + usage.ru_stime
            if child.ended:
                self._tell_exited(child)
        return found

    def _tell_exited(self, child: Child) -> None:
        self._resolve_start(child)
        self._begin_end(child)
        if child.failure is None:
            statuses = [child.statuses[pid] for pid in child.pids]
            stopped = child.state in {"stopping", "killing"}
            self._channel.send(
                Exited(child.token, statuses, child.max_rss_kb, round(child.cpu_s, 6), stopped=stopped)
            )

    # -- ending trees -----------------------------------------------------------------------------------------------

    def _begin_end(self, child: Child) -> None:
        child.kin.ending = True
        self._ending[child.token] = child

    def _stop(self, child: Child, grace_s: float) -> None:
        self._reap()  # whatever has ended by now was not stopped
        until = time.monotonic() + grace_s
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

    def _end_grace(self, child: Child) -> None:
        if child.ended:
            child.leftovers = _names(self._members([child])[child.token])
        self._doom(child)

    def _doom(self, child: Child) -> None:
        if child.state != "killing":
            child.state = "killing"
            self._begin_end(child)
            child.until = time.monotonic() + KILL_TIMEOUT_S
            self._look_at = 0.0

    def _watch(self, child: Child, facts: ProcessFacts) -> None:
        if facts.id not in child.watched.values():
            pidfd = system.open_pidfd(facts.pid)
            if pidfd is not None:
                child.watched[pidfd] = facts.id
                self._watches[pidfd] = child

    def _unwatch(self, pidfd: int) -> None:
        del self._watches.pop(pidfd).watched[pidfd]
        os.close(pidfd)

    def _members(self, children: Collection[Child]) -> dict[int, list[ProcessFacts]]:
        """The living members of each child's tree."""
        found: dict[int, list[ProcessFacts]] = {child.token: [] for child in children}
        for token, facts in self._census.iter_members(found):
            if token in found and not facts.dead:
                found[token].append(facts)
        for child in children:
            if child.cgroup is not None:
                found[child.token] += _missed(child.cgroup, found[child.token])
        return found

    def _look_after_trees(self) -> None:
        """Bring every tree that has to end one round further, and report those that are empty."""
        now = time.monotonic()
        self._look_at = now + _CENSUS_S
        if not system.SUBREAPER:
            self._members(self._children.values())
        for child in list(self._ending.values()):
            if child.state == "stopping" and now >= child.until:
                self._end_grace(child)
        self._strike([child for child in self._ending.values() if child.state == "killing"])
        self._reap()
        ending = list(self._ending.values())
        if not ending:
            return
        members = self._members(ending)
        # Somebody who died during the look may have forked behind it: what seems empty then may not be.
        certain = not self._reap() and self._census.certain
        for child in ending:
            self._judge(child, members[child.token], now, certain=certain)

    def _strike(self, doomed: list[Child]) -> None:
        if doomed:
            tokens = {child.token for child in doomed}
            groups = [child.kin.group for child in doomed]
            for child in doomed:
                if child.cgroup is not None:
                    child.cgroup.kill()
            strike(lambda: self._iter_living(tokens), groups)

    def _iter_living(self, tokens: set[int]) -> Iterator[ProcessFacts]:
        return (facts for token, facts in self._census.iter_members(tokens) if token in tokens)

    def _iter_orphans(self, child: Child) -> Iterator[ProcessFacts]:
        """Members that came to us when their parents died, and what is below them."""
        if not system.SUBREAPER or child.ending:
            return
        members = {facts.pid: facts for facts in self._iter_living({child.token})}
        me = os.getpid()
        for facts in members.values():
            head = facts
            while head.ppid in members:
                head = members[head.ppid]
            if head.ppid == me and head.pid not in child.kin.roots:
                yield facts

    def _judge(self, child: Child, living: list[ProcessFacts], now: float, *, certain: bool) -> None:
        if child.ended and not living:
            if certain:
                self._let_go(child, [])
            else:
                self._look_at = min(self._look_at, now + ROUND_S)
        elif child.state == "killing":
            if now >= child.until:
                self._let_go(child, living)
            else:
                self._look_at = min(self._look_at, now + ROUND_S)
        elif child.state == "stopping":
            for facts in living:
                self._watch(child, facts)
            if not child.watched:
                self._look_at = min(self._look_at, now + ROUND_S)
        else:
            child.leftovers = _names(living)
            self._doom(child)

    def _let_go(self, child: Child, survivors: list[ProcessFacts]) -> None:
        """The last word on a child."""
        for pidfd in tuple(child.watched):
            self._unwatch(pidfd)
        for pid in child.kin.roots:
            self._roots.pop(pid, None)
        self._close_report(child)
        self._close_pidfds(child)
        self._census.remove(child.token)
        del self._children[child.token]
        self._ending.pop(child.token, None)
        if self._ground is not None and child.cgroup is not None:
            self._ground.drop(child.cgroup)
        if child.failure is not None:
            failure = child.failure
            self._channel.send(StartFailed(child.token, failure.errno, failure.problem, failure.index))
        else:
            self._channel.send(Gone(child.token, child.leftovers, _names(survivors)))

    def _end_everything(self) -> None:
        """Kill all that is below us, and come back only when nothing is left.

        What cannot be killed is named once; as long as it lives we live too, and so does our lock.
        """
        until = time.monotonic() + KILL_TIMEOUT_S
        named = False
        while True:
            if self._ground is not None:
                self._ground.kill()
            strike(self._iter_all, [child.kin.group for child in self._children.values()])
            childless = _reap_everything()
            # A subreaper without children has no descendants at all: the kernel's own word, and no scan can miss any.
            if childless and system.SUBREAPER:
                return
            living = [facts for facts in self._iter_all() if not facts.dead]
            if childless and not living:
                return
            if not named and time.monotonic() > until:
                named = True
                _complain(living)
            system.wait_deaths(living, _CENSUS_S if named else ROUND_S)

    def _iter_all(self) -> Iterator[ProcessFacts]:
        if not system.SUBREAPER:
            yield from (facts for _, facts in self._census.iter_members())
        yield from iter_below_me()


def _missed(cgroup: Cgroup, found: list[ProcessFacts]) -> list[ProcessFacts]:
    """Who is in a group and was not found by way of his parents, because one of these died meanwhile."""
    known = {facts.pid for facts in found}
    facts = (system.read_facts(pid) for pid in cgroup.iter_pids() if pid not in known)
    return [one for one in facts if one is not None and not one.dead]


def _open_ground(lock: int) -> Ground | None:
    """A ground for the groups of our children, written down where a successor finds it should we be killed."""
    try:
        ground = open_ground()
    except NoGroundError:
        return None
    if lock != NO_LOCK:
        try:
            os.write(lock, os.fsencode(ground.path) + b"\n")
        except OSError as error:
            if error.errno != errno.EBADF:
                raise
            ground.close()
            return None  # only the hub, which is another user's, may write there
    return ground


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
    """Reap whatever has died; tell whether we have no child any more."""
    while True:
        try:
            if not os.waitpid(-1, os.WNOHANG)[0]:
                return False
        except ChildProcessError:
            return True


def _signal_root(pid: int, number: int) -> None:
    # It may have ended, be not ours to signal any more, or there is no such signal.
    with suppress(OSError):
        os.kill(pid, number)


def _names(found: Iterable[ProcessFacts]) -> list[str]:
    return sorted({facts.name for facts in found})


def _complain(living: list[ProcessFacts]) -> None:
    # Nobody reads our socket any more; where our errors go, somebody may look.
    print(f"bartack: cannot end {_names(living)}; waiting for it", file=sys.stderr)  # noqa: T201 - see above


def _catch_signals() -> int:
    """Have every signal of ours written to a descriptor that the loop waits for; return that."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.setblocking(False)
    for number in OWN_SIGNALS:
        signal.signal(number, signal.SIG_IGN if number == signal.SIGINT else _ignore)
    signal.set_wakeup_fd(theirs.detach(), warn_on_full_buffer=False)
    return ours.detach()


def _ignore(number: int, frame: FrameType | None) -> None:
    """The number is in the wake-up descriptor already."""


def run_parent(entry: Entry, warm_up: Callable[[], None] | None = None) -> int:
    """Be the parent program that ``ParentClient.start`` has started; return the exit code.

    Args:
        entry: What a forked child does.
        warm_up: Does without effect what children do first. Called some times while there is nothing else to do.
    """
    hub, above, lock, socket_fd = map(int, sys.argv[1:5])
    os.set_inheritable(socket_fd, False)
    system.set_death_signal(_DEATH_SIGNAL)
    system.set_subreaper()
    wakeup = _catch_signals()
    owner = Owner(system.open_pidfd(hub), above)
    if owner.is_dead():
        return EXIT_OWNER_DEAD
    home = open_home()
    if not os.environ.get(SLOT, "-").strip():
        del os.environ[SLOT]
    channel = Channel(socket.socket(fileno=socket_fd), COMMANDS)
    parent = Parent(channel, owner, entry, home, wakeup, _open_ground(lock), warm_up, lock=lock)
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        return parent.run()
    finally:
        channel.close()
