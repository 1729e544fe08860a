"""Control groups of Linux (cgroup v2): every tree of a parent program in a group of its own, where the system lets us make one.

    the group we are in
    └── bartack-<8 hex>   the ground of one parent program; a lock on the directory says that the program lives
        ├── 1             the tree of one child, named by its token; groups below it are that tree's own affair
        └── 2

What a group adds to lines of parents, sessions and marks: nobody leaves it by forgetting where he comes from, and the kernel
ends all of it at once, what is being forked included. Nobody needs it. Where no group can be made, or one does not do what it
should, trees are known and ended as ``_membership.py`` and ``_tree.py`` do it; and what has left its group by its own will,
they still find. No controller is enabled, so nothing is limited and nothing is counted.

A process is born in its group (``system.fork_into``). To move it there afterwards takes the kernel ten milliseconds and more.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import select
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Final

SWITCH: Final = "BARTACK_CGROUPS"
"""The variable that has no groups made, if it says so."""

OWN: Final = "/proc/self"

_NAME: Final = re.compile(r"bartack-[0-9a-f]{8}")
_MARK: Final = re.compile(rb"/bartack-[0-9a-f]{8}/")
_ESCAPED: Final = re.compile(rb"\\([0-7]{3})")
REMOVAL_S: Final = 0.5
"""How long the kernel may take to see that a group is empty whose processes are dead."""

_ROUND_S: Final = 0.005
_CLAIMS: Final = 3
_PASSING: Final = {errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.EEXIST}
"""What goes wrong with one group and need not with the next."""


class NoGroundError(Exception):
    """No groups can be made here; it says why."""


def find_own_group(proc: str = OWN) -> str:
    """The directory of the group we are in.

    Raises:
        NoGroundError: There is none, or none that can be seen from here.
    """
    try:
        own = _own_path(proc)
        mounts = list(_iter_mounts(proc))
    except OSError as error:
        raise NoGroundError(f"the system does not report control groups: {error.strerror}") from None
    if own is None or not mounts:
        raise NoGroundError("the system has no cgroup v2")
    for root, point in mounts:
        above = root.rstrip("/")
        if own == root or own.startswith(above + "/"):
            path = os.path.normpath(f"{point}/{own[len(above) :]}")
            if os.path.isdir(path):
                return path
    raise NoGroundError(f"the group {own} of this process cannot be seen from here")


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
        """The directory, for those who are to be born in it; open until ``Ground.settle``."""
        self.problem = 0
        """The ``errno`` of a child that could not be born in it, and is elsewhere."""

    def iter_pids(self) -> Iterator[int]:
        """Every living process of the group and of groups below it."""
        try:
            if b"populated 1" not in _read(f"{self.path}/cgroup.events"):
                return
        except OSError:
            return
        for place, _, _ in os.walk(self.path):
            # A group below may go meanwhile, or be one of threads, whose processes are listed above it.
            with suppress(OSError):
                yield from (pid for pid in map(int, _read(f"{place}/cgroup.procs").split()) if pid)

    def kill(self) -> None:
        """Have the kernel kill all of it. Whether it is empty then is for others to find out."""
        _kill(self.path)


class Ground:
    """Where one parent program makes the groups of its children."""

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
        """The child is born. If it could not be born there, that is the last try, unless there is hope."""
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

    def close(self) -> None:
        """Remove all groups, and those of dead parent programs beside it. Everybody of ours is dead by now."""
        remove_group(self.path, REMOVAL_S)
        os.close(self._lock)
        _end_beside(self.path, 0.0)


def is_in_ground(pid: int) -> bool:
    """Whether a process is in a group that a parent program made, alive or dead."""
    try:
        return _MARK.search(_read(f"/proc/{pid}/cgroup")) is not None
    except OSError:
        return False


def _is_off(environ: Mapping[str, str]) -> bool:
    return environ.get(SWITCH, "").lower() in {"off", "0", "no", "false"}


def open_ground(environ: Mapping[str, str] | None = None, base: str = "") -> Ground:
    """Make a ground for this process in the group it is in; end those of dead parent programs there.

    Raises:
        NoGroundError: There can be none.
    """
    if _is_off(os.environ if environ is None else environ):
        raise NoGroundError(f"switched off by {SWITCH}")
    base = base or find_own_group()
    try:
        ground = _claim(base)
    except OSError as error:
        raise NoGroundError(f"no group can be made in {base}: {error.strerror}") from None
    problem = _unfit(ground.path)
    if problem:
        ground.close()
        raise NoGroundError(problem)
    _end_beside(ground.path, 0.0)
    return ground


def _claim(base: str) -> Ground:
    """Whoever looks for grounds of the dead may find ours before we have locked it, and remove it: then we make another."""
    for _ in range(_CLAIMS):
        path = f"{base}/bartack-{os.urandom(4).hex()}"
        os.mkdir(path)
        with suppress(FileNotFoundError):
            fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            if _lock(fd) and os.path.isdir(path):
                return Ground(path, fd)
            os.close(fd)
    raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))


def _unfit(path: str) -> str:
    """Why the groups made here are of no use, if they are not."""
    try:
        kind = _read(f"{path}/cgroup.type").strip()
    except OSError as error:
        return f"the kind of the group {path} is not known: {error.strerror}"
    if kind != b"domain":
        return f"the group is one of threads ({os.fsdecode(kind)})"
    if not os.access(f"{path}/cgroup.kill", os.W_OK):
        return "the kernel cannot kill a whole group (Linux 5.14 and newer can)"
    return ""


def end_dead_grounds(wait_s: float = REMOVAL_S) -> None:
    """End what dead parent programs have left in the group we are in, wherever their trees went from there."""
    if not _is_off(os.environ):
        with suppress(NoGroundError):
            _end_beside(f"{find_own_group()}/", wait_s)


def _end_beside(path: str, wait_s: float) -> None:
    base = os.path.dirname(path)
    with suppress(OSError):
        for name in os.listdir(base):
            if _NAME.fullmatch(name):
                end_ground(f"{base}/{name}", wait_s)


def end_ground(path: str, wait_s: float, *, patient: bool = False) -> bool:
    """End what a dead parent program left in its ground, and remove that; the ground of one that lives is left alone.

    So is one that this process is in itself: it may be a shell that the dead one once opened, in which somebody goes on.

    Args:
        path: The ground; what has no name of one is left alone.
        wait_s: How long the dying may take.
        patient: Also wait for somebody else who may be about to end it. Whoever says so knows that its owner is dead.

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
        _kill(path)
        return remove_group(path, until - time.monotonic())
    finally:
        os.close(fd)


def _holds_us(ground: str) -> bool:
    try:
        return f"/{os.path.basename(ground)}/" in (_own_path(OWN) or "")
    except OSError:
        return True


def remove_group(path: str, wait_s: float = 0.0) -> bool:
    """Remove a group and those below it, as far as nobody is in them; tell whether it is gone."""
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
    with suppress(OSError):
        fd = os.open(f"{path}/cgroup.kill", os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(fd, b"1")
        finally:
            os.close(fd)


def _read(path: str) -> bytes:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        # The kernel makes the text up while it is read, a page at a time.
        return b"".join(iter(lambda: os.read(fd, 1 << 16), b""))
    finally:
        os.close(fd)
