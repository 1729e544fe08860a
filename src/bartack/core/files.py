"""Replacing a file: every reader, and every crash, finds the old content or the new one, nothing between.

``replace_file`` is for files of our own; ``write_file`` for whatever a person or a program names, which may be a device.
``make_file`` makes an empty one for a library that opens it itself, as SQLite does.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Generator
from pathlib import Path

from bartack.core.batch import Batch
from bartack.core.disk import FILE_MODE, Disk, RealDisk, write_all


def replace_file(
    path: str | Path,
    data: bytes,
    *,
    disk: Disk | None = None,
    mode: int = FILE_MODE,
    synced: bool = True,
    parents: bool = False,
) -> None:
    """Give a file new content atomically; durable when it returns.

    Several processes may replace one file at the same time: the last one wins, and none sees half of
    another's content. On any failure the file is as it was and nothing is left beside it; only a failing sync
    of the directory, which comes last, leaves it open whether the new content survives a power cut. A
    symbolic link at ``path`` is replaced, not followed.

    Args:
        path: The file; its directory has to exist, unless ``parents`` is given.
        data: The whole new content.
        disk: Where the file is.
        mode: Permissions of the file. Anything but the default needs the real disk.
        synced: ``False`` for what can be made again: it outlives every process, but a power cut may leave nothing of it.
        parents: Make its directory and the missing ones above it, as durable as the file.

    Raises:
        OSError: The operating system refused one of the operations.
    """
    disk = disk or RealDisk()
    target = Path(path)
    directory, name = str(target.parent), target.name
    if parents:
        _make_parents(disk, os.path.abspath(directory), synced=synced)
    temporary = os.path.join(directory, _temporary_name(name))
    try:
        with naming(target):
            _write(disk, temporary, data, mode, synced=synced)
            disk.rename(temporary, str(target))
    except BaseException:
        with contextlib.suppress(OSError):
            disk.unlink(temporary)
        raise
    if synced:
        disk.sync_dir(directory)


def _make_parents(disk: Disk, directory: str, *, synced: bool) -> None:
    batch = Batch(disk, synced=synced)
    batch.make_dirs(directory)
    # Also if it is there: the process that made it may have been killed before it was durable.
    batch.include_dir(os.path.dirname(directory))
    batch.settle()


def write_file(path: str | Path, data: bytes, *, mode: int = FILE_MODE, synced: bool = True) -> None:
    """Write a file that a person or a program names. Links are followed.

    A regular file is replaced atomically and keeps its permissions; ``mode`` is for a new one. A device or a pipe is
    written to as it is: replacing it would take it away from every other program.

    Raises:
        OSError: The operating system refused one of the operations; a pipe that no process reads is one of these.
    """
    target = os.path.realpath(path)
    try:
        found = os.stat(target).st_mode
    except FileNotFoundError:
        replace_file(target, data, mode=mode, synced=synced)
        return
    if stat.S_ISREG(found):
        replace_file(target, data, mode=stat.S_IMODE(found), synced=synced)
    else:
        write_in_place(target, data)


def write_in_place(path: str, data: bytes) -> None:
    """Write to a device or a pipe. A pipe that no process reads is refused instead of waited for."""
    fd = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        os.set_blocking(fd, True)
        view = memoryview(data)
        while view:
            view = view[os.write(fd, view) :]
    finally:
        os.close(fd)


def open_private(path: str | Path, flags: int) -> int:
    """Open a file of a run or of the state directory: made for its owner only, and never through a symbolic link.

    Also serves as the ``opener`` of the built-in ``open``.
    """
    return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, FILE_MODE)


def make_file(path: str | Path) -> None:
    """Make an empty file for its owner only, unless there is a file, which has to be writable then. Links are followed.

    A file that exists is never opened. Closing a descriptor releases all locks that this process has on the file, also those
    taken through other descriptors, and SQLite locks its databases in this way: another process that finds no lock deletes
    the log that this process still uses.

    Raises:
        OSError: The file cannot be made, or not be written.
    """
    target = os.path.realpath(path)
    try:
        os.close(open_private(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        if not os.access(target, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path)) from None


@contextlib.contextmanager
def naming(path: str | Path) -> Generator[None]:
    """Errors of the operating system name this file, not the temporary one that is to become it."""
    try:
        yield
    except OSError as error:
        if isinstance(error.filename, str | bytes):
            error.filename, error.filename2 = str(path), None
        raise


def _temporary_name(name: str) -> str:
    # Cut, so that a name of the greatest legal length still leaves room for the rest.
    return f".{name[:48]}.{os.getpid()}.{os.urandom(4).hex()}.tmp"


def _write(disk: Disk, path: str, data: bytes, mode: int, *, synced: bool) -> None:
    fd = disk.open(path, write=True, exclusive=True)
    try:
        if mode != FILE_MODE:
            os.chmod(path, mode)
        write_all(disk, fd, data, 0)
        if synced:
            disk.sync(fd)
    finally:
        disk.close(fd)
