"""The program of both parents, zygote and keeper: it starts children for the hub, and ends only when their trees are gone.

One thread, one loop, nothing that blocks: frames from the hub, deaths from the kernel, deadlines. The hub asks for a child with a
token, and the child goes through these states:

    running ──stop──▶ stopping ──grace over──▶ killing ──nothing left──▶ gone
       │                  └──────nothing left──────────────────────────────▲
       ├──kill, or it ended and left something──▶ killing                  │
       └──it ended and left nothing────────────────────────────────────────┘

While the lease that the program was given is not valid (``process/lease.py``), everything below stands still: nothing is started,
stopped or given more time, and the hub's commands wait. When the lease is renewed all of it continues; when it is over, all of it
is killed.

When the hub dies, everything below is killed and the program ends; its lock goes with it. If the program is killed itself, the
guardian above it (``guardian.py``) does that. ``_spawn.py`` forks; ``_trees.py``, the next file to read, has the states of the
children. Where ``process/cgroup.py`` can make groups, each child has one.
"""

from __future__ import annotations

import errno
import gc
import os
import select
import signal
import socket
import sys
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack, suppress
from types import FrameType
from typing import Final, NamedTuple

from bartack.supervision.parent._spawn import (
    OWN_SIGNALS,
    SLOT,
    Entry,
    ParentSetup,
    StartError,
    Streams,
    check_single_thread,
    fork_entry,
    fork_pipeline,
    plan_pipeline,
    prepare_parent,
)
from bartack.supervision.parent._trees import StartedChild, Trees
from bartack.supervision.parent.guardian import EXIT_OWNER_DEAD, NO_LOCK
from bartack.supervision.parent.wire import (
    COMMANDS,
    Bye,
    Channel,
    Command,
    Exec,
    Fork,
    Kill,
    ParentReady,
    Received,
    Signal,
    Stop,
    Sweep,
)
from bartack.supervision.process.cgroup import Cgroup, CgroupTree, NoCgroupsError, open_cgroup_tree
from bartack.supervision.process.lease import LeasePage
from bartack.supervision.process.system import system

_LEASE_LOOK_S: Final = 1.0
"""How often to look at the lease: waits for a moment do not count the time in which the machine sleeps, and it does."""

_HELD_LOOK_S: Final = 0.05
"""How often to look at the lease, and for processes that move, while everything stands still."""

_WARM_UPS: Final = 12
"""After this many runs Python has specialised the code and filled its caches."""

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


class Parent:
    """The loop of a parent program."""

    def __init__(
        self,
        channel: Channel[Command],
        owner: Owner,
        entry: Entry,
        setup: ParentSetup,
        wakeup: int,
        cgroups: CgroupTree | None,
        warm_up: Callable[[], None] | None = None,
        *,
        lock: int | None = None,
        lease: LeasePage | None = None,
    ) -> None:
        self._lock = lock
        self._lease = lease
        self._waiting: deque[Received[Command]] = deque()
        """Commands that wait until the lease is valid again."""
        self._channel = channel
        self._owner = owner
        self._entry = entry
        self._setup = setup
        self._wakeup = wakeup
        self._cgroups = cgroups
        self._warm_up = warm_up
        self._warm_ups_left = 0 if warm_up is None else _WARM_UPS
        self._trees = Trees(channel, cgroups)
        self._leaving: int | None = None

    def run(self) -> int:
        """Serve until the hub is gone or says so; nothing is left below when this returns."""
        try:
            self._channel.send(ParentReady(self._setup.pid))
            while self._leaving is None:
                self._turn()
            return self._leaving
        finally:
            self._trees.end_everything()
            self._trees.relays.finish_all()
            if self._cgroups is not None:
                self._cgroups.close()

    def _turn(self) -> None:
        ready = self._wait()
        if self._lease is not None:
            self._heed(self._lease)
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
        self._trees.look(ready)
        self._channel.flush()

    def _wait(self) -> set[int]:
        poll = select.poll()
        wanted = select.POLLIN | (select.POLLOUT if self._channel.wants_write else 0)
        poll.register(self._channel.fileno(), wanted)
        hub = () if self._owner.pidfd is None else (self._owner.pidfd,)
        for fd in (*hub, self._wakeup, *self._trees.descriptors()):
            poll.register(fd, select.POLLIN)
        return {fd for fd, _ in poll.poll(0 if self._warm_ups_left else self._patience_ms())}

    def _use_idle_time(self) -> None:
        """Let the children that are still to come find the code they run in the best state."""
        assert self._warm_up is not None
        try:
            self._warm_up()
        except Exception as error:  # noqa: BLE001 - children can do without it
            with suppress(OSError):  # the stream may be closed
                sys.stderr.write(f"a warm-up failed: {error!r}\n")
            self._warm_ups_left = 1
        self._warm_ups_left -= 1
        if not self._warm_ups_left:
            gc.freeze()

    def _patience_ms(self) -> float | None:
        next_look = self._trees.next_look()
        wait_s = None if next_look is None else max(0.0, next_look - self._trees.holding.now())
        if self._lease is not None:
            left_s = _HELD_LOOK_S if self._trees.holding.is_on else max(0.0, self._lease.left_s())
            wait_s = min(_LEASE_LOOK_S if wait_s is None else wait_s, left_s, _LEASE_LOOK_S)
        return None if wait_s is None else wait_s * 1000

    def _heed(self, lease: LeasePage) -> None:
        """Hold everything below still while the lease is not valid."""
        if lease.is_over:
            self._leaving = EXIT_OWNER_DEAD
        elif lease.left_s() <= 0:
            self._trees.holding.hold()
        elif self._trees.holding.is_on:
            self._trees.holding.free()
            while self._waiting and self._leaving is None:
                self._obey_one(self._waiting.popleft())

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
        for one in received:
            if self._must_wait(one.message):
                self._waiting.append(one)
            else:
                self._obey_one(one)

    def _must_wait(self, command: Command) -> bool:
        """Whether a command has to wait because everything stands still."""
        if self._lease is None or isinstance(command, Bye):
            return False
        return bool(self._waiting) or self._trees.holding.is_on or self._lease.left_s() <= 0

    def _obey_one(self, received: Received[Command]) -> None:
        try:
            if self._leaving is None:
                self._obey(received.message, received.fds)
        finally:
            for fd in received.fds:
                os.close(fd)

    def _obey(self, command: Command, fds: list[int]) -> None:
        match command:
            case Fork() | Exec():
                self._start(command, fds)
            case Bye():
                self._leaving = 0
            case Signal() | Stop() | Kill() | Sweep():
                child = self._trees.find(command.token)
                # A child that is gone meanwhile has been reported; there is nothing left to do for it.
                if child is not None:
                    self._control(child, command)

    def _control(self, child: StartedChild, command: Signal | Stop | Kill | Sweep) -> None:
        match command:
            case Signal():
                for pid in child.tracked.roots:
                    _signal_root(pid, command.number)
            case Stop():
                self._trees.stop(child, command.grace_s)
            case Kill():
                self._trees.kill(child)
            case Sweep():
                self._trees.sweep(child)

    def _start(self, command: Fork | Exec, fds: list[int]) -> None:
        pids: list[int] = []
        cgroup: Cgroup | None = None
        env = {os.fsdecode(name): os.fsdecode(value) for name, value in command.env}
        try:
            if self._owner.is_dead():
                self._owner_died()
                return
            self._trees.check_free(command.token)
            check_single_thread()
            cgroup = None if self._cgroups is None else self._cgroups.make(command.token)
            report = self._exec(command, fds, pids, cgroup) if isinstance(command, Exec) else None
            if isinstance(command, Fork):
                pids.append(fork_entry(self._setup, self._entry, command.payload, fds, env, cgroup))
        except (StartError, OSError) as error:
            self._trees.fail_start(command.token, env, pids, cgroup, error)
            return
        self._trees.started(command.token, env, pids, cgroup, report)

    def _exec(self, command: Exec, fds: list[int], pids: list[int], cgroup: Cgroup | None) -> int:
        env = dict(command.env)
        plans = plan_pipeline(command.pipeline, command.cwd, env)
        with ExitStack() as opened:
            null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
            opened.callback(os.close, null)
            streams = Streams(*(null if place < 0 else fds[place] for place in command.stdio))
            if command.relayed:
                pipe = self._trees.relays.open(command.token, streams.stdout)
                opened.callback(os.close, pipe)
                streams = streams._replace(stdout=pipe)
            return fork_pipeline(self._setup, plans, command.cwd, env, streams, pids, cgroup)


def _signal_root(pid: int, number: int) -> None:
    # It may have ended, belong to another user by now, or there is no such signal.
    with suppress(OSError):
        os.kill(pid, number)


def _open_cgroup_tree(lock: int) -> CgroupTree | None:
    """The tree of groups of our children; its place is written where a successor finds it should we be killed."""
    try:
        cgroups = open_cgroup_tree()
    except NoCgroupsError:
        return None
    if lock != NO_LOCK:
        try:
            os.write(lock, os.fsencode(cgroups.path) + b"\n")
        except OSError as error:
            if error.errno != errno.EBADF:
                raise
            cgroups.close()
            return None  # only the hub, which is another user's, may write there
    return cgroups


def _open_lease(fd: int) -> LeasePage:
    lease = LeasePage.open(fd)
    os.close(fd)
    return lease


def _catch_signals() -> int:
    """Have the signals of this program written to a descriptor that the loop waits for; return it."""
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
    lease = _open_lease(int(sys.argv[5])) if len(sys.argv) > 5 else None
    system.set_death_signal(_DEATH_SIGNAL)
    system.set_subreaper()
    wakeup = _catch_signals()
    owner = Owner(system.open_pidfd(hub), above)
    if owner.is_dead():
        return EXIT_OWNER_DEAD
    setup = prepare_parent()
    if not os.environ.get(SLOT, "-").strip():
        del os.environ[SLOT]
    channel = Channel(socket.socket(fileno=socket_fd), COMMANDS)
    cgroups = _open_cgroup_tree(lock)
    parent = Parent(channel, owner, entry, setup, wakeup, cgroups, warm_up, lock=lock, lease=lease)
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        return parent.run()
    finally:
        channel.close()
