"""A simulated disk that loses what a real one may lose, and fails as a real one may fail.

It is a full ``Disk``: whatever writes through that seam runs on it unchanged. ``platter.py`` holds the model of what is
durable; this file puts paths, descriptors, locks, the power cut and the faults around it.
"""

from __future__ import annotations

import errno
import os
import posixpath
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from random import Random
from typing import NamedTuple

from bartack.core.closing import Closing
from bartack.core.facts import FileFacts
from bartack.core.watch import WatchKind
from bartack.testing._remainders import CORNERS, Recorder, iter_remainders
from bartack.testing.platter import (
    Choose,
    Directory,
    File,
    Node,
    keep_nothing,
    keep_some,
    survive,
)

FIRST_DESCRIPTOR = 1_000_000
"""Far above those of the operating system, so that none is ever taken for one of them."""


class PowerCut(BaseException):
    """The power went. No ``Exception``, so that nothing which handles errors takes it for one."""


class Operation(NamedTuple):
    """One call on a ``FaultyDisk``, as its log keeps it."""

    name: str
    path: str
    offset: int = 0
    size: int = 0


@dataclass(slots=True)
class _Handle:
    node: Node
    path: str
    writable: bool


@dataclass(slots=True)
class _Fault:
    operation: str
    error: int
    path: str | None
    after: int
    times: int | None

    def strikes(self, operation: str, path: str) -> bool:
        if operation != self.operation or self.path not in {None, path} or self.times == 0:
            return False
        if self.after:
            self.after -= 1
            return False
        self.times = None if self.times is None else self.times - 1
        return True


# Long because it implements every operation of ``Disk``, each in a few lines, and the faults and power cuts of all of them.
class FaultyDisk:
    """A disk in memory that keeps apart what is durable and what is only in the cache.

    Use it wherever a ``Disk`` is taken. ``crash_after`` cuts the power at a chosen operation; ``after_power_cut`` and
    ``survivors`` build the disks that may be found afterwards. The ``fail_*`` methods make operations fail the way the
    operating system does. It may be shared by threads.

    Args:
        capacity: Bytes that fit on the disk; ``None`` for no limit.

    Attributes:
        log: Every operation in its order, also those that failed.
        mutations: How many operations have changed, or synced, something.
        read_only: While true, whatever would change the disk fails with ``EROFS``.
    """

    def __init__(self, *, capacity: int | None = None) -> None:
        self.log: list[Operation] = []
        self.mutations = 0
        self.read_only = False
        self.capacity = capacity
        self._root = Directory(1)
        self._numbers = 1
        self._handles: dict[int, _Handle] = {}
        self._descriptors = FIRST_DESCRIPTOR
        self._guard = threading.RLock()
        self._changed = threading.Condition(self._guard)
        self._off = False
        self._left: int | None = None
        self._faults: list[_Fault] = []
        self._longest_write: int | None = None
        self._write_fault: tuple[int, int] | None = None

    # The Disk contract.

    def open(self, path: str, *, write: bool = False, create: bool = False, exclusive: bool = False) -> int:
        """See ``Disk.open``."""
        with self._operation("open", path):
            parent, name = self._parent(path)
            node = parent.names.get(name) if name else parent
            if node is not None and exclusive:
                raise _error(errno.EEXIST, path)
            if isinstance(node, Directory) and (write or create):
                raise _error(errno.EISDIR, path)
            if write and self.read_only:
                raise _error(errno.EROFS, path)
            if node is None:
                if not (create or exclusive):
                    raise _error(errno.ENOENT, path)
                node = self._create(parent, name, path)
            return self._handle(node, path, writable=write)

    def close(self, fd: int) -> None:
        """See ``Disk.close``."""
        handle = self._look_up(fd)
        with self._operation("close", handle.path):
            del self._handles[fd]
            if isinstance(handle.node, File) and handle.node.locked_by == fd:
                handle.node.locked_by = None

    def read(self, fd: int, size: int, offset: int) -> bytes:
        """See ``Disk.read``."""
        handle = self._look_up(fd)
        with self._operation("read", handle.path, offset, size), memoryview(_file(handle).content) as content:
            return bytes(content[offset : offset + size])

    def write(self, fd: int, data: bytes, offset: int) -> int:
        """See ``Disk.write``."""
        handle = self._look_up(fd)
        with self._mutation("write", handle.path, offset, len(data)):
            file = _writable(handle)
            taken = self._taken(file, handle.path, offset, len(data))
            file.write(offset, data[:taken])
            return taken

    def truncate(self, fd: int, size: int) -> None:
        """See ``Disk.truncate``."""
        handle = self._look_up(fd)
        with self._mutation("truncate", handle.path, 0, size):
            _writable(handle).truncate(size)

    def sync(self, fd: int) -> None:
        """See ``Disk.sync``."""
        handle = self._look_up(fd)
        file = _file(handle)
        try:
            with self._mutation("sync", handle.path):
                file.sync()
        except OSError:
            file.drop_unsynced()
            raise

    def facts(self, fd: int) -> FileFacts:
        """See ``Disk.facts``."""
        handle = self._look_up(fd)
        with self._operation("facts", handle.path):
            node = handle.node
            if isinstance(node, File):
                return FileFacts(len(node.content), node.links, node.number)
            return FileFacts(0, 1, node.number)

    def all_named(self, *fds: int) -> bool:
        """See ``Disk.all_named``."""
        return all(self.facts(fd).links for fd in fds)

    def lock(self, fd: int) -> bool:
        """See ``Disk.lock``."""
        handle = self._look_up(fd)
        with self._operation("lock", handle.path):
            file = _file(handle)
            if file.locked_by is None:
                file.locked_by = fd
            return file.locked_by == fd

    def rename(self, source: str, target: str) -> None:
        """See ``Disk.rename``."""
        with self._mutation("rename", target):
            old_parent, old_name = self._parent(source)
            new_parent, new_name = self._parent(target)
            node = _found(old_parent, old_name, source)
            replaced = new_parent.names.get(new_name)
            if replaced is node:
                return
            _check_replaceable(node, replaced, target)
            if old_parent is new_parent:
                old_parent.change(remove=old_name, add=new_name, node=node)
            else:
                new_parent.change(add=new_name, node=node)
                old_parent.change(remove=old_name)
            if isinstance(replaced, File):
                replaced.links -= 1

    def unlink(self, path: str) -> None:
        """See ``Disk.unlink``."""
        with self._mutation("unlink", path):
            parent, name = self._parent(path)
            node = _found(parent, name, path)
            if isinstance(node, Directory):
                raise _error(errno.EISDIR, path)
            parent.change(remove=name)
            node.links -= 1

    def mkdir(self, path: str, *, exclusive: bool = False) -> None:
        """See ``Disk.mkdir``."""
        with self._guard:
            found = self._find(path)
            if isinstance(found, File) or (exclusive and found is not None):
                raise _error(errno.EEXIST, path)
            if found is None:
                self._make_directory(path)

    def remove_tree(self, path: str) -> None:
        """See ``Disk.remove_tree``. One operation: what is below a name that is gone is not looked at by anyone."""
        with self._guard:
            if self._find(path) is not None:
                with self._mutation("remove_tree", path):
                    self._directory(path)
                    parent, name = self._parent(path)
                    parent.change(remove=name)

    def sync_dir(self, path: str) -> None:
        """See ``Disk.sync_dir``."""
        with self._mutation("sync_dir", path):
            self._directory(path).sync()

    def exists(self, path: str) -> bool:
        """See ``Disk.exists``."""
        with self._operation("exists", path):
            return self._find(path) is not None

    def names(self, path: str) -> list[str]:
        """See ``Disk.names``."""
        with self._operation("names", path):
            return sorted(self._directory(path).names)

    def open_watch(self, path: str) -> FaultyWatch:
        """A ``bartack.core.watch.Watch`` on this disk: wakes at every change, wherever it happens."""
        with self._operation("open_watch", path):
            self._directory(path)
            return FaultyWatch(self._wait_for_change, self.mutations)

    # The power cut.

    def crash_after(self, mutations: int) -> None:
        """Let this many more operations change the disk; the last of them happens and does not return.

        That call, and every call after it, raises ``PowerCut``. Reading and closing are not counted.
        """
        self._left = mutations

    def kill_users(self) -> None:
        """Be as after ``kill -9`` of all processes that used the disk: nothing is open or locked, the cache is as they left it.

        Also ends what ``crash_after`` began, which then was the moment of the kill and no power cut.
        """
        with self._guard:
            self._off = False
            self._left = None
            for handle in self._handles.values():
                if isinstance(handle.node, File):
                    handle.node.locked_by = None
            self._handles.clear()

    def after_power_cut(self, choose: Choose = keep_nothing) -> FaultyDisk:
        """The disk that is found when the power goes now: whole, nothing open, nothing locked, no faults.

        Args:
            choose: Decides, for everything that was not synced, which version is found.
        """
        with self._guard:
            found = FaultyDisk(capacity=self.capacity)
            found._root = survive(self._root, choose)
            found._numbers = self._numbers
            return found

    def survivors(self, *, samples: int = 0, seed: int = 0) -> Iterator[FaultyDisk]:
        """The disks that may be found when the power goes now, no choice of versions twice.

        First those with nothing and everything kept and with only some kinds of changes kept (names without data, sizes
        without data, …), then ``samples`` random ones, the same for the same ``seed``.
        """
        seen: set[tuple[int, ...]] = set()
        for number in range(len(CORNERS) + samples):
            in_corner = number < len(CORNERS)
            choose = CORNERS[number] if in_corner else keep_some(Random(f"{seed}/{number}"))
            recorder = Recorder(choose)
            disk = self.after_power_cut(recorder)
            picks = tuple(recorder.picks)
            if picks not in seen:
                seen.add(picks)
                yield disk

    def remainders(self, *, limit: int = 256, samples: int = 40, seed: int = 0) -> Iterator[FaultyDisk]:
        """The disks that may be found when the power goes now: every one, if there are at most ``limit``.

        Of more than that: what ``survivors`` gives, and those with one single change omitted, and with one single change kept.
        """
        return iter_remainders(self.after_power_cut, limit=limit, samples=samples, seed=seed)

    # The faults.

    def fail(
        self, operation: str, error: int, *, path: str | None = None, after: int = 0, times: int | None = 1
    ) -> None:
        """Make an operation fail with ``error`` and change nothing.

        Args:
            operation: Name of the ``Disk`` method.
            error: An ``errno`` value.
            path: Only on this path; for ``rename``, the target.
            after: How many of them succeed before.
            times: How many fail; ``None`` for all from then on.
        """
        self._faults.append(_Fault(operation, error, path and _plain(path), after, times))

    def fail_sync(self, error: int = errno.EIO, *, path: str | None = None, after: int = 0) -> None:
        """Make one sync fail the way a disk's write error does.

        What was unsynced in the file is dropped: still read, not written by any later sync, perhaps gone after a power cut.
        """
        self.fail("sync", error, path=path, after=after)

    def fail_write(self, error: int, *, after_bytes: int = 0) -> None:
        """Let ``after_bytes`` more bytes be written, the last of them by a short write, then fail.

        ``ENOSPC`` is a full disk: it lasts until something is removed, and bytes count where they take more space. Any
        other error lasts until ``mend``.
        """
        if error == errno.ENOSPC:
            self.capacity = self.used + after_bytes
        else:
            self._write_fault = (error, after_bytes)

    def shorten_writes(self, longest: int | None) -> None:
        """Let every write take at most this many bytes."""
        self._longest_write = longest

    def mend(self) -> None:
        """End all faults; a full disk has room again."""
        self._faults.clear()
        self._write_fault = None
        self._longest_write = None
        self.capacity = None
        self.read_only = False

    # For tests to prepare and to look; none of it is logged, counted or refused.

    @property
    def used(self) -> int:
        """Bytes of space that all files take, with those that are removed and still open."""
        files = {file.number: file for _, file in _walk(self._root, "")}
        held = (handle.node for handle in self._handles.values())
        files.update((node.number, node) for node in held if isinstance(node, File))
        return sum(file.backed for file in files.values())

    def folders(self) -> set[str]:
        """The path of every directory."""
        with self._guard:
            return set(_walk_folders(self._root, ""))

    def tree(self) -> dict[str, bytes]:
        """The content of every file by its path, as readers see it."""
        with self._guard:
            return {path: bytes(file.content) for path, file in _walk(self._root, "")}

    def put(self, path: str, content: bytes) -> None:
        """Put a durable file there, in place of the one of this name; its directories are made."""
        with self._guard:
            parent = self._root
            *directories, name = _plain(path).strip("/").split("/")
            for part in directories:
                parent = self._enter(parent, part, path)
            before = parent.names.get(name)
            if isinstance(before, File):
                before.links -= 1
            file = File(self._number(), content)
            file.links = 1
            parent.change(add=name, node=file)
            parent.sync()

    # Inside.

    @contextmanager
    def _operation(self, name: str, path: str, offset: int = 0, size: int = 0) -> Generator[None]:
        with self._guard:
            if self._off:
                raise PowerCut
            path = _plain(path)
            self.log.append(Operation(name, path, offset, size))
            for fault in self._faults:
                if fault.strikes(name, path):
                    raise _error(fault.error, path)
            yield

    @contextmanager
    def _mutation(self, name: str, path: str, offset: int = 0, size: int = 0) -> Generator[None]:
        with self._operation(name, path, offset, size), self._change(path):
            yield

    @contextmanager
    def _change(self, path: str) -> Generator[None]:
        if self.read_only:
            raise _error(errno.EROFS, path)
        if self._left == 0:
            self._off = True
            raise PowerCut
        yield
        self.mutations += 1
        self._changed.notify_all()
        if self._left is not None:
            self._left -= 1
            if self._left == 0:
                self._off = True
                raise PowerCut

    def _wait_for_change(self, seen: int, timeout_s: float | None) -> int:
        with self._changed:
            self._changed.wait_for(lambda: self.mutations != seen, timeout_s)
            return self.mutations

    def _taken(self, file: File, path: str, offset: int, size: int) -> int:
        taken = size if self._longest_write is None else min(size, self._longest_write)
        if self._write_fault is not None:
            error, left = self._write_fault
            if not left and size:
                raise _error(error, path)
            taken = min(taken, left)
            self._write_fault = (error, left - taken)
        if self.capacity is not None:
            room = max(0, self.capacity - self.used)
            while (excess := file.cost(offset, taken) - room) > 0:
                taken -= excess
            if size and taken <= 0:
                raise _error(errno.ENOSPC, path)
        return taken

    def _create(self, parent: Directory, name: str, path: str) -> File:
        with self._change(path):
            file = File(self._number())
            file.links = 1
            parent.change(add=name, node=file)
        return file

    def _make_directory(self, path: str) -> None:
        with self._mutation("mkdir", path):
            parent, name = self._parent(path)
            parent.change(add=name, node=Directory(self._number()))

    def _enter(self, parent: Directory, name: str, path: str) -> Directory:
        node = parent.names.get(name)
        if node is None:
            node = Directory(self._number())
            parent.change(add=name, node=node)
            parent.sync()
        if isinstance(node, File):
            raise _error(errno.ENOTDIR, path)
        return node

    def _handle(self, node: Node, path: str, *, writable: bool) -> int:
        self._descriptors += 1
        self._handles[self._descriptors] = _Handle(node, _plain(path), writable)
        return self._descriptors

    def _look_up(self, fd: int) -> _Handle:
        with self._guard:
            if self._off:
                raise PowerCut
            if fd not in self._handles:
                raise OSError(errno.EBADF, os.strerror(errno.EBADF))
            return self._handles[fd]

    def _number(self) -> int:
        self._numbers += 1
        return self._numbers

    def _find(self, path: str) -> Node | None:
        node: Node | None = self._root
        for part in _plain(path).strip("/").split("/"):
            if not isinstance(node, Directory):
                return None
            node = node.names.get(part) if part else node
        return node

    def _parent(self, path: str) -> tuple[Directory, str]:
        parent, name = posixpath.split(_plain(path))
        return self._directory(parent), name

    def _directory(self, path: str) -> Directory:
        node = self._find(path)
        if node is None:
            raise _error(errno.ENOENT, path)
        if isinstance(node, File):
            raise _error(errno.ENOTDIR, path)
        return node


class FaultyWatch(Closing):
    """Waits for a change of a ``FaultyDisk``; made by its ``open_watch``."""

    kind: WatchKind = "poll"

    def __init__(self, wait_for_change: Callable[[int, float | None], int], seen: int) -> None:
        self._wait_for_change = wait_for_change
        self._seen = seen

    def wait(self, timeout_s: float | None) -> bool:
        """See ``bartack.core.watch.Watch.wait``."""
        before, self._seen = self._seen, self._wait_for_change(self._seen, timeout_s)
        return self._seen != before

    def fileno(self) -> int | None:
        """There is no descriptor to wait for."""
        return None

    def close(self) -> None:
        """Nothing is held."""


@lru_cache(maxsize=1024)
def _plain(path: str) -> str:
    return posixpath.normpath(posixpath.join("/", path))


def _error(number: int, path: str) -> OSError:
    return OSError(number, os.strerror(number), path)


def _file(handle: _Handle) -> File:
    if isinstance(handle.node, Directory):
        raise _error(errno.EISDIR, handle.path)
    return handle.node


def _writable(handle: _Handle) -> File:
    if not handle.writable:
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))
    return _file(handle)


def _found(parent: Directory, name: str, path: str) -> Node:
    node = parent.names.get(name)
    if node is None:
        raise _error(errno.ENOENT, path)
    return node


def _check_replaceable(node: Node, replaced: Node | None, path: str) -> None:
    if isinstance(replaced, Directory):
        if isinstance(node, File):
            raise _error(errno.EISDIR, path)
        if replaced.names:
            raise _error(errno.ENOTEMPTY, path)
    elif replaced is not None and isinstance(node, Directory):
        raise _error(errno.ENOTDIR, path)


def _walk(directory: Directory, path: str) -> Iterator[tuple[str, File]]:
    for name, node in sorted(directory.names.items()):
        below = f"{path}/{name}"
        if isinstance(node, File):
            yield below, node
        else:
            yield from _walk(node, below)


def _walk_folders(directory: Directory, path: str) -> Iterator[str]:
    for name, node in sorted(directory.names.items()):
        if isinstance(node, Directory):
            yield f"{path}/{name}"
            yield from _walk_folders(node, f"{path}/{name}")
