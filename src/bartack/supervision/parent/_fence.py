"""A control group around parent programs that run as another user than their hub.

Such a parent program cannot make groups itself, and what it starts may change its environment or become the program of yet another
user. Each is born in a group that the hub made, which a process of another user cannot leave. The ground is written down in the
file of the tree lock, like that of a parent program: the next hub finds it.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager

from bartack.core import open_private
from bartack.supervision.process._cgroup import Cgroup, Ground, NoGroundError, find_own_group, open_ground


class Fence:
    """The groups of the parent programs of one hub; without an effect where the system has no groups."""

    def __init__(self, ground: Ground | None, home: str) -> None:
        self._ground = ground
        self._home = home
        self._groups: dict[str, Cgroup] = {}
        self._made = 0

    @classmethod
    def open(cls, lock_tree: str) -> Fence:
        """Make the ground, and write down where it is."""
        try:
            home = find_own_group()
            ground = open_ground()
        except NoGroundError:
            return cls(None, "")
        fd = open_private(lock_tree, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        try:
            os.write(fd, os.fsencode(ground.path) + b"\n")
        finally:
            os.close(fd)
        return cls(ground, home)

    @contextmanager
    def around(self, name: str) -> Generator[None]:
        """Processes that are started inside of this are born in a group, with all that they will start."""
        self.kill(name)
        self._made += 1
        group = None if self._ground is None else self._ground.make(self._made)
        if self._ground is None or group is None:
            yield
            return
        self._ground.settle(group)
        self._groups[name] = group
        # Only a process that is in a group has children there from the first moment: the hub goes there, and comes back.
        try:
            _enter(group.path)
            yield
        finally:
            if not _enter(self._home):
                self._ground = None  # what it kills would include this process

    def kill(self, name: str) -> None:
        """Kill what is left of a parent program that has ended."""
        group = self._groups.pop(name, None)
        if group is not None and self._ground is not None:
            group.kill()
            self._ground.drop(group)

    def close(self) -> None:
        """Kill everything inside."""
        if self._ground is not None:
            self._ground.kill()
            self._ground.close()


def _enter(group: str) -> bool:
    """Put this process into a group; whether it is there."""
    try:
        with open(f"{group}/cgroup.procs", "w", encoding="ascii") as members:
            members.write(str(os.getpid()))
    except OSError:
        return False
    return True
