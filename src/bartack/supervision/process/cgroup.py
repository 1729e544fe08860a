"""Control groups of Linux (cgroup v2): every tree of a parent program in a group of its own, where the system lets us make one.

    the group we are in
    └── bartack-<8 hex>   the groups of one parent program; a lock on the directory shows that the program lives
        ├── 1             the tree of one child, named by its token; groups below it belong to that tree
        └── 2

What a group adds to lines of parents, sessions and marks: a process cannot leave it by changing these, and the kernel kills all of
it at once, including processes that are being forked. Groups are optional. Where none can be made, or one does not work, trees are
known and killed as ``_membership.py`` and ``tree.py`` do it; these also find a process that was moved out of its group. No
controller is enabled, so nothing is limited or counted.

A process is born in its group (``system.fork_into``). To move it there afterwards takes the kernel ten milliseconds and more.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import select
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Final

SWITCH: Final = "BARTACK_CGROUPS"
"""The variable that switches control groups off."""

OWN: Final = "/proc/self"

_NAME: Final = re.compile(r"bartack-[0-9a-f]{8}")
_MARK: Final = re.compile(rb"/bartack-[0-9a-f]{8}/")
_ESCAPED: Final = re.compile(rb"\\([0-7]{3})")
REMOVAL_S: Final = 0.5
"""How long the kernel may take to see that a group is empty whose processes are dead."""

_ROUND_S: Final = 0.005
_CLAIMS: Final = 3
_PASSING: Final = {errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.EEXIST}
"""Errors of one group that need not concern the next."""


class NoCgroupsError(Exception):
    """No control groups can be made here; the text says why."""


def find_own_group(proc: str = OWN) -> str:
    """The directory of the group we are in.

    Raises:
        NoCgroupsError: There is none, or none that can be seen from here.
    """
    try:
        own = _own_path(proc)
        mounts = list(_iter_mounts(proc))
    except OSError as error:
        raise NoCgroupsError(f"the system does not report control groups: {error.strerror}") from None
    if own is None or not mounts:
        raise NoCgroupsError("the system has no cgroup v2")
    for root, point in mounts:
        above = root.rstrip("/")
        if own == root or own.startswith(above + "/"):
            path = os.path.normpath(f"{point}/{own[len(above) :]}")
            if os.path.isdir(path):
                return path
    raise NoCgroupsError(f"the group {own} of this process cannot be seen from here")


def _own_path(proc: str) -> str | None:
    with open(f"{proc}/cgroup", "rb") as lines:
        for line in lines:
            if line.startswith(b"0::"):
                return os.fsdecode(line[3:].rstrip(b"\n"))
    return None


def _iter_mounts(proc: str) -> Iterator[tuple[str, str]]:
    """Of each place where cgroup v2 is mounted: which part of it, and where."""
    with open(f"{proc}/mountinfo", "rb") as lines:
        for line in lines:
            before, _, after = line.partition(b" - ")
            if after.startswith(b"cgroup2 "):
                field = before.split(b" ")
                yield _unescape(field[3]), _unescape(field[4])


def _unescape(text: bytes) -> str:
    return os.fsdecode(_ESCAPED.sub(lambda found: bytes([int(found[1], 8)]), text))


class Cgroup:
    """The group of one tree."""

    def __init__(self, path: str, fd: int) -> None:
        self.path = path
        self.fd = fd
        """The directory, for processes that are to be forked into it; open until ``CgroupTree.settle``."""
        self.problem = 0
        """The ``errno`` of a child that could not be born in it, and is elsewhere."""

    def iter_pids(self) -> Iterator[int]:
        """Every living process of the group and of groups below it."""
        return _iter_pids(self.path)

    def kill(self) -> None:
        """Have the kernel kill all of it. Callers must check themselves whether it is empty then."""
        _kill(self.path)


class CgroupTree:
    """The groups of one parent program: one for each of its children."""

    def __init__(self, path: str, lock: int) -> None:
        self.path = path
        self._lock = lock
        self._mark = os.fsencode(f"/{os.path.basename(path)}/")
        self._usable = True
        self._stale: list[str] = []

    def make(self, token: int) -> Cgroup | None:
        """A group for the tree of a child, if there can be one."""
        if not self._usable:
            return None
        self._stale = [path for path in self._stale if not remove_group(path)]
        path = f"{self.path}/{token}"
        try:
            os.mkdir(path)
            return Cgroup(path, os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
        except OSError as error:
            self._usable = error.errno in _PASSING
            remove_group(path)
            return None

    def settle(self, group: Cgroup) -> None:
        """The child was forked. Unless it is in the group, or the error may pass, no more groups are made."""
        os.close(group.fd)
        if group.problem and group.problem not in _PASSING:
            self._usable = False

    def drop(self, group: Cgroup) -> None:
        """A tree is gone, and its group with it. The kernel may take a moment longer than we do to see that."""
        if not remove_group(group.path):
            self._stale.append(group.path)

    def token_of(self, pid: int) -> int | None:
        """In the tree of which child a process was born."""
        try:
            text = _read(f"/proc/{pid}/cgroup")
        except OSError:
            return None
        found = re.match(rb"\d+", text.partition(self._mark)[2])
        return int(found[0]) if found else None

    def kill(self) -> None:
        """Have the kernel kill everything in all groups."""
        _kill(self.path)

    def freeze(self) -> None:
        """Have the kernel stop everything in all groups where it stands, now and whatever comes into them; see ``is_frozen``."""
        _write(f"{self.path}/cgroup.freeze", b"1")

    def thaw(self) -> None:
        """Let everything in all groups continue."""
        _write(f"{self.path}/cgroup.freeze", b"0")

    def is_frozen(self) -> bool:
        """Whether everything in all groups stands still."""
        try:
            return b"frozen 1" in _read(f"{self.path}/cgroup.events")
        except OSError:
            return False

    def close(self) -> None:
        """Remove all groups, and those of dead parent programs beside it. All our processes are dead by now."""
        remove_group(self.path, REMOVAL_S)
        os.close(self._lock)
        _kill_dead_beside(self.path, 0.0)


def _iter_pids(path: str) -> Iterator[int]:
    try:
        if b"populated 1" not in _read(f"{path}/cgroup.events"):
            return
    except OSError:
        return
    for place, _, _ in os.walk(path):
        # A group below may go meanwhile, or be one of threads, whose processes are listed above it.
        with suppress(OSError):
            yield from (pid for pid in map(int, _read(f"{place}/cgroup.procs").split()) if pid)


def is_in_ground(pid: int) -> bool:
    """Whether a process is in a group that a parent program made, alive or dead."""
    try:
        return _MARK.search(_read(f"/proc/{pid}/cgroup")) is not None
    except OSError:
        return False


def _is_off(environ: Mapping[str, str]) -> bool:
    return environ.get(SWITCH, "").lower() in {"off", "0", "no", "false"}


def open_cgroup_tree(environ: Mapping[str, str] | None = None, base: str = "") -> CgroupTree:
    """Make a tree of groups for this process in the group it is in; kill those of dead parent programs there.

    Raises:
        NoCgroupsError: There can be none.
    """
    if _is_off(os.environ if environ is None else environ):
        raise NoCgroupsError(f"switched off by {SWITCH}")
    base = base or find_own_group()
    try:
        cgroups = _claim(base)
    except OSError as error:
        raise NoCgroupsError(f"no group can be made in {base}: {error.strerror}") from None
    problem = _find_problem(cgroups.path)
    if problem:
        cgroups.close()
        raise NoCgroupsError(problem)
    _kill_dead_beside(cgroups.path, 0.0)
    return cgroups


def _claim(base: str) -> CgroupTree:
    """Make and lock a directory. Another process may take it for that of a dead program and remove it before: then try again."""
    for _ in range(_CLAIMS):
        path = f"{base}/bartack-{os.urandom(4).hex()}"
        os.mkdir(path)
        with suppress(FileNotFoundError):
            fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            if _lock(fd) and os.path.isdir(path):
                return CgroupTree(path, fd)
            os.close(fd)
    raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))


def _find_problem(path: str) -> str:
    """Why the groups made here cannot be used; empty if they can."""
    try:
        kind = _read(f"{path}/cgroup.type").strip()
    except OSError as error:
        return f"the kind of the group {path} is not known: {error.strerror}"
    if kind != b"domain":
        return f"the group is one of threads ({os.fsdecode(kind)})"
    if not os.access(f"{path}/cgroup.kill", os.W_OK):
        return "the kernel cannot kill a whole group (Linux 5.14 and newer can)"
    return ""


def kill_dead_cgroups(wait_s: float = REMOVAL_S) -> None:
    """Kill what dead parent programs have left in the group we are in."""
    if not _is_off(os.environ):
        with suppress(NoCgroupsError):
            _kill_dead_beside(f"{find_own_group()}/", wait_s)


def _kill_dead_beside(path: str, wait_s: float) -> None:
    base = os.path.dirname(path)
    with suppress(OSError):
        for name in os.listdir(base):
            if _NAME.fullmatch(name):
                kill_dead_tree(f"{base}/{name}", wait_s)


def kill_dead_tree(
    path: str, wait_s: float, *, patient: bool = False, on_kill: Callable[[int], None] | None = None
) -> bool:
    """Kill what a dead parent program left in its groups, and remove these; those of a living one are left alone.

    So are groups that this process is in itself: it may be a shell that the dead program opened and that is still in use.

    Args:
        path: The directory of the groups; one with another kind of name is left alone.
        wait_s: How long the processes may take to die.
        patient: Also wait for another process that may be killing it. The caller must know that its owner is dead.
        on_kill: Called with each process before it is killed.

    Returns:
        Whether nothing of a dead one is left there.
    """
    if _NAME.fullmatch(os.path.basename(path)) is None or _holds_us(path):
        return True
    until = time.monotonic() + wait_s
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return True
    try:
        while not _lock(fd):
            if not patient:
                return True  # its owner lives
            if time.monotonic() >= until:
                return False
            select.select([], [], [], _ROUND_S)
        if on_kill is not None:
            for pid in _iter_pids(path):
                on_kill(pid)
        _kill(path)
        return remove_group(path, until - time.monotonic())
    finally:
        os.close(fd)


def _holds_us(cgroups: str) -> bool:
    try:
        return f"/{os.path.basename(cgroups)}/" in (_own_path(OWN) or "")
    except OSError:
        return True


def remove_group(path: str, wait_s: float = 0.0) -> bool:
    """Remove a group and those below it, as far as they are empty; return whether it is gone."""
    until = time.monotonic() + wait_s
    while True:
        try:
            os.rmdir(path)
        except FileNotFoundError:
            return True
        except OSError:
            for place, _, _ in os.walk(path, topdown=False):
                with suppress(OSError):
                    os.rmdir(place)
        if not os.path.lexists(path):
            return True
        if time.monotonic() >= until:
            return False
        select.select([], [], [], _ROUND_S)


def _lock(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _kill(path: str) -> None:
    _write(f"{path}/cgroup.kill", b"1")


def _write(path: str, text: bytes) -> None:
    """Write to a file of a group; callers check what came of it."""
    with suppress(OSError):
        fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(fd, text)
        finally:
            os.close(fd)


def _read(path: str) -> bytes:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        # The kernel makes the text up while it is read, a page at a time.
        return b"".join(iter(lambda: os.read(fd, 1 << 16), b""))
    finally:
        os.close(fd)
