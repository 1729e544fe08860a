"""A control group around parent programs that run as another user than their hub.

Such a parent program cannot make groups itself, and what it starts may change its environment or become the program of yet another
user. Each starts in a group made by the hub, which a process of another user cannot leave. Where the groups are is written in the
file of the tree lock, as for those of a parent program, so that the next hub finds them.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager

from bartack.core.files import open_private
from bartack.supervision.process.cgroup import (
    Cgroup,
    CgroupTree,
    NoCgroupsError,
    find_own_group,
    open_cgroup_tree,
)


class Fence:
    """The groups of the parent programs of one hub; without an effect where the system has no groups."""

    def __init__(self, cgroups: CgroupTree | None, home: str) -> None:
        self._cgroups = cgroups
        self._home = home
        self._groups: dict[str, Cgroup] = {}
        self._made = 0

    @classmethod
    def open(cls, lock_tree: str) -> Fence:
        """Make the tree of groups, and write its place into the lock file."""
        try:
            home = find_own_group()
            cgroups = open_cgroup_tree()
        except NoCgroupsError:
            return cls(None, "")
        fd = open_private(lock_tree, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        try:
            os.write(fd, os.fsencode(cgroups.path) + b"\n")
        finally:
            os.close(fd)
        return cls(cgroups, home)

    @contextmanager
    def around(self, name: str) -> Generator[None]:
        """Processes that are started inside of this are born in a group, with all that they will start."""
        self.kill(name)
        self._made += 1
        group = None if self._cgroups is None else self._cgroups.make(self._made)
        if self._cgroups is None or group is None:
            yield
            return
        self._cgroups.settle(group)
        self._groups[name] = group
        # Only a process that is in a group has children there from the first moment: the hub goes there, and comes back.
        try:
            _enter(group.path)
            yield
        finally:
            if not _enter(self._home):
                self._cgroups = None  # what it kills would include this process

    def kill(self, name: str) -> None:
        """Kill what is left of a parent program that has ended."""
        group = self._groups.pop(name, None)
        if group is not None and self._cgroups is not None:
            group.kill()
            self._cgroups.drop(group)

    def close(self) -> None:
        """Kill everything inside."""
        if self._cgroups is not None:
            self._cgroups.kill()
            self._cgroups.close()


def _enter(group: str) -> bool:
    """Put this process into a group; whether it is there."""
    try:
        with open(f"{group}/cgroup.procs", "w", encoding="ascii") as members:
            members.write(str(os.getpid()))
    except OSError:
        return False
    return True
