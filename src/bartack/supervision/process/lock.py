"""The lock of a run's process tree: an old attempt and a new one never overlap.

Every parent program and its guardian hold a shared lock on one file as long as anything below them lives
(``parent/guardian.py``). A new hub takes the exclusive one before it executes anything, releases it, and starts its own
parents.
"""

from __future__ import annotations

import fcntl
import os
import select
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Final

from bartack.core.files import open_private
from bartack.errors import TreeLockedError
from bartack.supervision.process.cgroup import kill_dead_tree
from bartack.supervision.process.tree import KILL_TIMEOUT_S

_GROUNDS_BYTES: Final = 64 * 1024

_WAITER: Final = (
    "import fcntl, signal, sys; signal.alarm(int(sys.argv[2])); fcntl.flock(int(sys.argv[1]), fcntl.LOCK_EX)"
)


def take_tree_lock(path: str, timeout_s: float, on_kill: Callable[[int], None] | None = None) -> int:
    """Take the lock exclusively: nothing of the tree of an earlier hub is left. Close the descriptor to release it.

    What is left in control groups of parent programs that were killed is killed first, after ``on_kill`` was called with each.

    The lock is waited for by a process of its own, on the same open file: the lock it gets is ours. It can be ended at the
    deadline, and ends itself should we be killed; a blocked thread or an alarm in our own process could do neither. It is
    started only if the lock is held.

    Raises:
        TreeLockedError: It was not free within ``timeout_s`` seconds, or something in those groups cannot be ended.
    """
    until = time.monotonic() + timeout_s
    while True:
        fd = open_private(path, os.O_RDWR | os.O_CREAT)
        try:
            _lock(fd, path, until)
        except BaseException:
            os.close(fd)
            raise
        if _names(path, fd):
            _end_grounds(fd, path, until, on_kill)
            return fd
        # The file was removed or replaced meanwhile: what was locked is not what others will lock.
        os.close(fd)


def _end_grounds(fd: int, path: str, until: float, on_kill: Callable[[int], None] | None) -> None:
    """Parent programs that were killed could not end what was in their groups; they have written down where these are."""
    text = os.pread(fd, _GROUNDS_BYTES, 0)
    if not text:
        return
    left_s = max(KILL_TIMEOUT_S, until - time.monotonic())
    cgroup_trees = [os.fsdecode(line) for line in text.splitlines()]
    kill = partial(kill_dead_tree, wait_s=left_s, patient=True, on_kill=on_kill)
    if False in [kill(tree) for tree in cgroup_trees]:
        os.close(fd)
        raise TreeLockedError(path)
    os.ftruncate(fd, 0)


def _lock(fd: int, path: str, until: float) -> None:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        left = until - time.monotonic()
        if left <= 0 or not _wait(fd, left):
            raise TreeLockedError(path) from None


def _wait(fd: int, timeout_s: float) -> bool:
    import subprocess  # noqa: PLC0415 - only who has to wait needs it, and a parent program never does

    command = [sys.executable, "-I", "-S", "-c", _WAITER, str(fd), str(int(timeout_s) + 2)]
    ended, ending = os.pipe()
    waiter = subprocess.Popen(  # bartack: allow[unsupervised_process] killed below  # noqa: S603 - our own interpreter
        command, pass_fds=[fd], stdin=subprocess.DEVNULL, stdout=ending
    )
    os.close(ending)
    # Its output ends when it does; to wait for the process itself with a limit would be to look again and again.
    poll = select.poll()
    poll.register(ended, select.POLLIN)
    if not poll.poll(timeout_s * 1000):
        waiter.kill()
    os.close(ended)
    return waiter.wait() == 0  # bartack: allow[wait_without_deadline] it has ended, or was killed


def _names(path: str, fd: int) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(fd))
    except FileNotFoundError:
        return False
