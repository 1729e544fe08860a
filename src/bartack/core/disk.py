"""The disk as the journal sees it: the few operations whose order and failure decide what survives.

``RealDisk`` forwards to the operating system. ``bartack.testing.FaultyDisk`` is the same contract on a simulated disk that can
crash after every operation. Whatever has to survive a power cut goes through this seam; nothing else needs to.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import sys
from functools import cache
from typing import Protocol

from bartack.core.facts import WITH_TIMES, FileFacts, StatMethod

FILE_MODE = 0o600
DIR_MODE = 0o700
_TROUBLE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO})


def is_disk_trouble(error: BaseException | None) -> bool:
    """Whether the disk is full, read-only or broken: doing the same again would not help."""
    return isinstance(error, OSError) and error.errno in _TROUBLE


class Disk(Protocol):
    """Files by path, open files by descriptor. Every method raises ``OSError`` as the operating system would."""

    def open(self, path: str, *, write: bool = False, create: bool = False, exclusive: bool = False) -> int:
        """Open a file for reading, or for reading and writing; ``exclusive`` refuses one that exists.

        A symbolic link in its place is refused, not followed.
        """
        ...

    def close(self, fd: int) -> None:
        """Close an open file; its locks go with it."""
        ...

    def read(self, fd: int, size: int, offset: int) -> bytes:
        """Up to ``size`` bytes at ``offset``; empty at the end of the file."""
        ...

    def write(self, fd: int, data: bytes, offset: int) -> int:
        """Write at ``offset`` and return how many bytes were taken, which may be fewer."""
        ...

    def truncate(self, fd: int, size: int) -> None:
        """Cut the file at ``size``."""
        ...

    def sync(self, fd: int) -> None:
        """Return when the file's data and size would survive a power cut."""
        ...

    def facts(self, fd: int) -> FileFacts:
        """Size, number of links and inode of an open file."""
        ...

    def all_named(self, *fds: int) -> bool:
        """Whether each of these open files still has a name."""
        ...

    def lock(self, fd: int) -> bool:
        """Try to take the file's exclusive lock; never waits."""
        ...

    def rename(self, source: str, target: str) -> None:
        """Replace ``target`` by ``source`` atomically."""
        ...

    def unlink(self, path: str) -> None:
        """Remove a file's name."""
        ...

    def mkdir(self, path: str, *, exclusive: bool = False) -> None:
        """Make a directory; one that exists is left alone, or with ``exclusive`` refused."""
        ...

    def remove_tree(self, path: str) -> None:
        """Remove a directory with everything in it; one that does not exist is left alone."""
        ...

    def sync_dir(self, path: str) -> None:
        """Return when names made, changed and removed in this directory would survive a power cut."""
        ...

    def exists(self, path: str) -> bool:
        """Whether a file or directory has this name."""
        ...

    def names(self, path: str) -> list[str]:
        """The names in a directory, sorted."""
        ...


def refuse_special(path: str) -> None:
    """Refuse to rename over a device, a pipe or a socket: as root, that would replace it for the whole machine.

    Raises:
        OSError: There is such a file at ``path``.
    """
    try:
        mode = os.lstat(path).st_mode
    except OSError:
        return
    if not (stat.S_ISREG(mode) or stat.S_ISLNK(mode) or stat.S_ISDIR(mode)):
        raise OSError(errno.EINVAL, "Not a regular file", path)


class RealDisk:
    """The operating system's files."""

    def open(self, path: str, *, write: bool = False, create: bool = False, exclusive: bool = False) -> int:
        """See ``Disk.open``."""
        # Without O_NONBLOCK, reading a named pipe would wait for a writer; on files the flag has no effect.
        flags = os.O_CLOEXEC | os.O_NOFOLLOW | (os.O_RDWR if write else os.O_RDONLY | os.O_NONBLOCK)
        if create or exclusive:
            flags |= os.O_CREAT
        if exclusive:
            flags |= os.O_EXCL
        return os.open(path, flags, FILE_MODE)

    def close(self, fd: int) -> None:
        """See ``Disk.close``."""
        os.close(fd)

    def read(self, fd: int, size: int, offset: int) -> bytes:
        """See ``Disk.read``."""
        return os.pread(fd, size, offset)

    def write(self, fd: int, data: bytes, offset: int) -> int:
        """See ``Disk.write``."""
        return os.pwrite(fd, data, offset)

    def truncate(self, fd: int, size: int) -> None:
        """See ``Disk.truncate``."""
        os.ftruncate(fd, size)

    def sync(self, fd: int) -> None:
        """See ``Disk.sync``."""
        _sync(fd)

    def facts(self, fd: int) -> FileFacts:
        """See ``Disk.facts``."""
        return _best_way_to_ask().facts(fd)

    def all_named(self, *fds: int) -> bool:
        """See ``Disk.all_named``."""
        return _best_way_to_ask().all_named(fds)

    def lock(self, fd: int) -> bool:
        """See ``Disk.lock``."""
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def rename(self, source: str, target: str) -> None:
        """See ``Disk.rename``."""
        refuse_special(target)
        os.rename(source, target)

    def unlink(self, path: str) -> None:
        """See ``Disk.unlink``."""
        os.unlink(path)

    def mkdir(self, path: str, *, exclusive: bool = False) -> None:
        """See ``Disk.mkdir``."""
        try:
            os.mkdir(path, DIR_MODE)
        except FileExistsError:
            if exclusive or not stat.S_ISDIR(os.lstat(path).st_mode):
                raise

    def remove_tree(self, path: str) -> None:
        """See ``Disk.remove_tree``."""
        import shutil  # noqa: PLC0415 - slow to import, and seldom needed

        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(path)

    def sync_dir(self, path: str) -> None:
        """See ``Disk.sync_dir``."""
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        except OSError as error:
            # Some network file systems have no sync for directories; their renames are durable by themselves.
            if error.errno not in {errno.EINVAL, errno.ENOTSUP}:
                raise
        finally:
            os.close(fd)

    def exists(self, path: str) -> bool:
        """See ``Disk.exists``."""
        return os.path.lexists(path)

    def names(self, path: str) -> list[str]:
        """See ``Disk.names``."""
        return sorted(os.listdir(path))


if sys.platform == "darwin":

    def _sync(fd: int) -> None:
        # fsync on macOS stops at the drive's cache; only F_FULLFSYNC survives a power cut.
        fcntl.fcntl(fd, fcntl.F_FULLFSYNC)

else:
    _sync = os.fdatasync


@cache
def _best_way_to_ask() -> StatMethod:
    try:
        from bartack.core._statx import WITHOUT_TIMES  # noqa: PLC0415 - ctypes is slow to import
    except (ImportError, AttributeError):
        # Not Linux, an old C library, or an interpreter without ctypes.
        return WITH_TIMES
    return WITHOUT_TIMES


def birth_of(path: str | os.PathLike[str]) -> int | None:
    """When a file or directory was made, in microseconds since 1970; ``None`` where that is not known.

    Unlike all its other times, it cannot be set.
    """
    try:
        from bartack.core._statx import ask_birth  # noqa: PLC0415 - ctypes is slow to import
    except (ImportError, AttributeError):
        # Not Linux, or an old C library. macOS reports it with every stat.
        born = getattr(os.lstat(path), "st_birthtime", None)
        return None if born is None else int(born * 1_000_000)
    return ask_birth(os.fsencode(path))


def write_all(disk: Disk, fd: int, data: bytes, offset: int) -> None:
    """Write all of ``data`` at ``offset``, continuing after short writes."""
    view = data
    while view:
        taken = disk.write(fd, view, offset)
        if taken == len(view):
            return
        if taken <= 0:
            raise OSError(errno.EIO, "the disk took no bytes")
        offset += taken
        view = view[taken:]
