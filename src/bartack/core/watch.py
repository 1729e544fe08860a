"""Waiting for a change in a directory, by the best means the operating system has.

inotify on Linux, kqueue on macOS and the BSDs, otherwise a look ten times a second. A watch reports *that*
something changed and never what: the waiter has to look. Open the watch first, then look, then wait,
and no change is missed.

None of these means sees what another machine does on a network file system, except the look ten times a
second.
"""

from __future__ import annotations

import errno
import os
import select
import struct
import sys
import time
from types import TracebackType
from typing import Literal, Protocol, Self

from bartack.core.closing import Closing

WatchKind = Literal["inotify", "kqueue", "poll"]

POLL_S = 0.1
"""How long to wait between two looks where nothing better is there."""


class Watch(Protocol):
    """An open watch on one directory."""

    @property
    def kind(self) -> WatchKind:
        """By which means it watches."""
        ...

    def wait(self, timeout_s: float | None) -> bool:
        """Wait until an entry, or a file's content, changed; ``False`` if none did in ``timeout_s`` seconds.

        Changes since the last call, or since the watch was opened, count. Removing the directory is a change,
        too.

        Raises:
            FileNotFoundError: The directory is gone, and an earlier call has reported it.
        """
        ...

    def fileno(self) -> int | None:
        """A descriptor that is readable when ``wait`` would return at once, if there is one."""
        ...

    def close(self) -> None:
        """End the watch."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


def open_watch(path: str, *, kind: WatchKind | None = None) -> Watch:
    """Watch a directory.

    Args:
        path: The directory.
        kind: By which means; the best one that works here, if not given.

    Raises:
        OSError: There is no such directory, or the means asked for does not work here.
    """
    if kind is not None:
        return _open_kind(path, kind)
    try:
        return _open_kind(path, _best_kind())
    except OSError:
        # A system that has inotify allows a limited number: then it is better to look than to fail. Looking fails
        # by itself where there is no directory to look at.
        return _PollWatch(path)


def _best_kind() -> WatchKind:
    if hasattr(select, "kqueue"):
        return "kqueue"
    return "inotify" if sys.platform.startswith("linux") else "poll"


def _open_kind(path: str, kind: WatchKind) -> Watch:
    if kind == "inotify":
        return _InotifyWatch(path)
    if kind == "kqueue":
        return _open_kqueue(path)
    return _PollWatch(path)


def _gone(path: str) -> FileNotFoundError:
    return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)


class _PollWatch(Closing):
    """Looks at the directory again and again, and compares."""

    kind: WatchKind = "poll"

    def __init__(self, path: str) -> None:
        self._path = path
        self._seen = _look(path)
        if self._seen is None:
            raise _gone(path)

    def wait(self, timeout_s: float | None) -> bool:
        if self._seen is None:
            raise _gone(self._path)
        end = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            now = _look(self._path)
            if now != self._seen:
                self._seen = now
                return True
            left = POLL_S if end is None else min(POLL_S, end - time.monotonic())
            if left <= 0:
                return False
            select.select([], [], [], left)

    def fileno(self) -> int | None:
        return None

    def close(self) -> None:
        self._seen = None


_Look = dict[str, tuple[int, int, int, int]]


def _look(path: str) -> _Look | None:
    """Distinguishes one state of a directory from the next; ``None`` if the directory is gone."""
    found: _Look = {}
    try:
        for name in os.listdir(path):
            facts = _facts(os.path.join(path, name))
            if facts is not None:
                found[name] = facts
    except FileNotFoundError:
        return None
    return found


def _facts(path: str) -> tuple[int, int, int, int] | None:
    try:
        facts = os.lstat(path)
    except FileNotFoundError:
        return None
    return facts.st_ino, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns


# From <sys/inotify.h>; the numbers are the same on every machine.
_IN_MODIFY = 0x2
_IN_ATTRIB = 0x4
_IN_MOVED_FROM = 0x40
_IN_MOVED_TO = 0x80
_IN_CREATE = 0x100
_IN_DELETE = 0x200
_IN_DELETE_SELF = 0x400
_IN_MOVE_SELF = 0x800
_IN_IGNORED = 0x8000
_IN_ONLYDIR = 0x0100_0000
_IN_ALL = (
    _IN_MODIFY
    | _IN_ATTRIB
    | _IN_MOVED_FROM
    | _IN_MOVED_TO
    | _IN_CREATE
    | _IN_DELETE
    | _IN_DELETE_SELF
    | _IN_MOVE_SELF
    | _IN_ONLYDIR
)
_EVENT = struct.Struct("iIII")


class _InotifyWatch(Closing):
    """Notified by the Linux kernel."""

    kind: WatchKind = "inotify"

    def __init__(self, path: str) -> None:
        self._path = path
        self._ended = False
        self._fd = _open_inotify(path)

    def wait(self, timeout_s: float | None) -> bool:
        if self._ended:
            raise _gone(self._path)
        poll = select.poll()
        poll.register(self._fd, select.POLLIN)
        if not poll.poll(None if timeout_s is None else max(0.0, timeout_s) * 1000):
            return False
        self._drain()
        return True

    def _drain(self) -> None:
        while True:
            try:
                events = os.read(self._fd, 65536)
            except BlockingIOError:
                return
            self._ended = self._ended or any(mask & _IN_IGNORED for mask in _masks(events))

    def fileno(self) -> int | None:
        return self._fd

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


def _masks(events: bytes) -> list[int]:
    masks: list[int] = []
    place = 0
    while place < len(events):
        _, mask, _, name_size = _EVENT.unpack_from(events, place)
        masks.append(mask)
        place += _EVENT.size + name_size
    return masks


def _open_inotify(path: str) -> int:
    import ctypes  # noqa: PLC0415 - slow to import, and only who watches needs it

    library = ctypes.CDLL(None, use_errno=True)
    if not hasattr(library, "inotify_init1"):
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    fd: int = library.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK)
    if fd < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    if library.inotify_add_watch(fd, os.fsencode(path), ctypes.c_uint32(_IN_ALL)) < 0:
        problem = ctypes.get_errno()
        os.close(fd)
        raise OSError(problem, os.strerror(problem), path)
    return fd


if sys.platform != "linux" and sys.platform != "win32":

    def _open_kqueue(path: str) -> Watch:
        return _KqueueWatch(path)

    class _KqueueWatch(Closing):
        """Notified by the BSD kernel, which needs a descriptor of the directory and of each file in it."""

        kind: WatchKind = "kqueue"

        def __init__(self, path: str) -> None:
            self._path = path
            self._ended = False
            self._files: dict[str, int] = {}
            self._directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            self._queue = select.kqueue()
            self._register(self._directory)
            self._follow_files()

        def wait(self, timeout_s: float | None) -> bool:
            if self._ended:
                raise _gone(self._path)
            changed = self._queue.control(None, 64, None if timeout_s is None else max(0.0, timeout_s))
            for event in changed:
                if event.ident == self._directory:
                    self._ended = self._ended or bool(event.fflags & select.KQ_NOTE_DELETE)
            if changed and not self._ended:
                self._follow_files()
            return bool(changed)

        def _register(self, fd: int) -> None:
            what = select.KQ_NOTE_WRITE | select.KQ_NOTE_EXTEND | select.KQ_NOTE_ATTRIB
            what |= select.KQ_NOTE_RENAME | select.KQ_NOTE_DELETE
            flags = select.KQ_EV_ADD | select.KQ_EV_CLEAR
            self._queue.control([select.kevent(fd, select.KQ_FILTER_VNODE, flags, what)], 0)

        def _follow_files(self) -> None:
            """Have one descriptor for each file that is there now, whatever file had its name before."""
            try:
                names = set(os.listdir(self._path))
            except FileNotFoundError:
                return
            for name, fd in list(self._files.items()):
                if name not in names or not self._is_same(name, fd):
                    os.close(self._files.pop(name))
            for name in names - self._files.keys():
                self._follow_file(name)

        def _is_same(self, name: str, fd: int) -> bool:
            try:
                return os.path.samestat(os.stat(os.path.join(self._path, name)), os.fstat(fd))
            except OSError:
                return False

        def _follow_file(self, name: str) -> None:
            try:
                fd = os.open(os.path.join(self._path, name), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            except OSError:
                return  # gone again, or not ours to read: the directory still reports when its name changes
            self._files[name] = fd
            self._register(fd)

        def fileno(self) -> int | None:
            return self._queue.fileno()

        def close(self) -> None:
            self._ended = True
            self._queue.close()
            while self._files:
                os.close(self._files.popitem()[1])
            if self._directory >= 0:
                os.close(self._directory)
                self._directory = -1

else:

    def _open_kqueue(path: str) -> Watch:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS), path)
