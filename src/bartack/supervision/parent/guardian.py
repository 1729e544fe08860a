"""The guardian: a process between an owner and a program of ours. Whichever two of the three are killed, nothing is left.

    owner ──▶ guardian ──▶ program ──▶ whatever the program starts

The owner is the hub, a supervisor, or a command that looks at a program before it runs. The guardian does nothing as long as both
live. It is a subreaper: what the program leaves when it is killed comes to the guardian, in whatever session, group or environment,
and is killed. When the owner dies, the program is terminated. A parent program watches its guardian in turn. A program that runs
code of the user cannot do that: it has two guardians, one above the other, which watch each other.

Started as ``python -m bartack.supervision.parent.guardian OWNER KIND LOCK MODULE WORD…``. It forks before the module is
imported, so that it stays as small as the interpreter. It holds the lock of the tree together with the program. Where orphans
do not come to a subreaper, parent programs have no guardian: it could find no more than they do.
"""

from __future__ import annotations

import fcntl
import gc
import os
import resource
import runpy
import select
import signal
import sys
import time
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Final, Literal, NamedTuple, NoReturn

from bartack.supervision.process.system import system
from bartack.supervision.process.tree import kill_descendants

GUARDIAN: Final = "bartack.supervision.parent.guardian"
"""The module to start."""

Kind = Literal["parent", "plain"]
"""A parent program ends its own tree on request; a plain program knows nothing of its tree."""

EXIT_OWNER_DEAD: Final = 3
EXIT_RUN_GONE: Final = 4
EXIT_EXHAUSTED: Final = 5
"""The system has no process left."""

NO_LOCK: Final = -1

SHARED_WAIT_S: Final = 10
"""How long to wait for a process that holds the lock of the tree exclusively."""

GRACE_S: Final = 2.0
"""How long a child may take to end its own tree, before its guardian does that."""

_LOOK_S: Final = 0.2
"""How often to look for the owner where the system does not report its death."""

_SIGNALS: Final = (signal.SIGCHLD, signal.SIGHUP, signal.SIGTERM, signal.SIGINT)
_LOCK_MODE: Final = 0o600
_DESCRIPTORS: Final = 1 << 16
"""More than a process that has just started can have open."""


def guarded(kind: Kind, lock: str, module: str, *words: str) -> list[str]:
    """The command that runs a module of ours below a guardian; the calling process is the owner."""
    return [sys.executable, "-P", "-s", "-m", GUARDIAN, str(os.getpid()), kind, lock, module, *words]


class Guarded(NamedTuple):
    """What a process runs that is a guardian, or was forked by one and never became another program."""

    module: str
    lock: str


def parse_guarded(words: Sequence[str]) -> Guarded | None:
    """What a command of ``guarded`` runs; ``None`` for any other command."""
    if GUARDIAN not in words:
        return None
    rest = words[words.index(GUARDIAN) + 1 :]
    return Guarded(module=rest[3], lock=rest[2]) if len(rest) > 3 else None


class Guardian:
    """Waits for the end of the owner or the child, then sees to it that nothing is left.

    Args:
        owner: The parent of this process.
        child: The process below this one.
        grace_s: How long the child may take to end its own tree on request.
    """

    def __init__(self, owner: int, child: int, grace_s: float) -> None:
        self._owner = owner
        self._child = child
        self._grace_s = grace_s
        self._terminated = False
        self._until: float | None = None
        self._awake = _catch_signals(self._note)

    def watch(self) -> int:
        """Return the exit code of the child, when nothing is left below this process."""
        status: int | None = None
        while status is None and not self._is_late():
            select.select([self._awake], [], [], self._patience_s())
            _drain(self._awake)
            status = _reap(self._child)
            if status is None and self._until is None and (self._terminated or os.getppid() != self._owner):
                self._end_child()
        _end_everything()
        return -signal.SIGKILL if status is None else os.waitstatus_to_exitcode(status)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._terminated = self._terminated or number == signal.SIGTERM

    def _end_child(self) -> None:
        """It is not reaped yet, so its number is its own. One that was stopped has to continue to end anything."""
        self._until = time.monotonic() + self._grace_s
        if self._grace_s:
            os.kill(self._child, signal.SIGTERM)
            os.kill(self._child, signal.SIGCONT)

    def _is_late(self) -> bool:
        return self._until is not None and time.monotonic() >= self._until

    def _patience_s(self) -> float | None:
        if self._until is not None:
            return max(0.0, self._until - time.monotonic())
        return None if system.SUBREAPER else _LOOK_S


def _catch_signals(note: Callable[[int, FrameType | None], None]) -> int:
    """Have signals wake up the process that waits for the returned descriptor."""
    awake, waking = os.pipe()
    os.set_blocking(awake, False)
    os.set_blocking(waking, False)
    # What happened before the signals are let through has to be looked at, too.
    os.write(waking, b"\0")
    for number in _SIGNALS:
        signal.signal(number, note)
    signal.set_wakeup_fd(waking, warn_on_full_buffer=False)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
    return awake


def _drain(fd: int) -> None:
    try:
        os.read(fd, 4096)
    except BlockingIOError:
        return


def _reap(child: int) -> int | None:
    """Reap whatever has died; the status of the child, if it has."""
    status: int | None = None
    while True:
        try:
            pid, found = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return status
        if not pid:
            return status
        if pid == child:
            status = found


def _has_child() -> bool:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _end_everything() -> None:
    """Kill all that is below us. What cannot be killed keeps us, and the lock of the tree with us."""
    # A subreaper without children has no descendants at all: the kernel's own word.
    while _has_child():
        if kill_descendants():
            select.select([], [], [], _LOOK_S)


def hold_tree_lock(path: str) -> int:
    """Take the shared lock of the tree; an alarm ends this process when it is not to be had.

    What is written to the descriptor is added to the file: where the control groups of the program are.
    """
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_APPEND, _LOCK_MODE)
    except PermissionError:
        # The hub is another user's, and writes down where our groups are. To hold the lock it is enough to read the file.
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    signal.alarm(SHARED_WAIT_S)
    fcntl.flock(fd, fcntl.LOCK_SH)
    signal.alarm(0)
    return fd


def _guard(owner: int, lock: int, grace_s: float) -> int:
    """Fork. This process becomes the guardian and never returns from here; in the child, return the guardian's number."""
    guardian = os.getpid()
    system.set_subreaper()
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    try:
        child = os.fork()  # bartack: allow[unsupervised_process] this process guards it
    except OSError as error:
        sys.stderr.write(f"bartack: no process can be forked: {error.strerror}\n")
        sys.exit(EXIT_EXHAUSTED)
    if child:
        # Only the program's own end of its descriptors counts for the processes that wait for their closing.
        for first, last in ((3, lock), (max(lock + 1, 3), _DESCRIPTORS)):
            os.closerange(first, last)
        _exit_like(Guardian(owner, child, grace_s).watch())
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    system.set_death_signal(signal.SIGHUP)
    return guardian


def _exit_like(code: int) -> NoReturn:
    """End as the program has ended, so that its owner sees how that was."""
    if code < 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if -code not in {signal.SIGKILL, signal.SIGSTOP}:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


def main() -> None:
    """Put guardians above a program, and run it."""
    owner, kind, lock_path, module = int(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4]
    system.set_death_signal(signal.SIGHUP)
    try:
        lock = hold_tree_lock(lock_path) if lock_path else NO_LOCK
    except FileNotFoundError:
        # The directory of the run was deleted while we started; the hub will find out by itself.
        sys.exit(EXIT_RUN_GONE)
    if os.getppid() != owner:
        sys.exit(EXIT_OWNER_DEAD)
    above = owner
    if kind == "plain":
        _guard(_guard(owner, lock, GRACE_S), lock, 0.0)
        sys.argv[1:] = sys.argv[5:]
        gc.set_threshold(
            50_000, 20, 50
        )  # imports make no garbage, and looking for it is a tenth of their time
    else:
        gc.disable()  # for the same reason; a parent program does without it later, too, and the children that it forks enable it
        if system.SUBREAPER:
            above = _guard(owner, lock, GRACE_S)
        sys.argv[1:] = [str(owner), str(above), str(lock), *sys.argv[5:]]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
