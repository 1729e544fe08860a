"""Paths from outside that have to stay below a directory.

``safe_join`` checks a path by name: right for messages, for configuration and for files that only this program touches
meanwhile. ``open_below`` checks while it opens, so that a symbolic link made between check and use leads
nowhere either.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from pathlib import Path

from bartack.core.disk import FILE_MODE
from bartack.errors import UnsafePathError

_DRIVE = re.compile(r"[A-Za-z]:")


def safe_join(root: str | Path, relative: str) -> Path:
    """Join a relative path to ``root`` and promise that it stays below it, whatever symbolic links say now.

    Symbolic links that end below ``root`` are fine. Nothing has to exist yet.

    Raises:
        UnsafePathError: The path is empty, absolute, has ``..``, a backslash, a drive or a NUL in it, or a
            symbolic link leads out of ``root`` or in a circle.
    """
    joined = Path(root, *_parts(relative))
    _refuse_circle(joined, relative)
    real_root = os.path.realpath(root)
    real = os.path.realpath(joined)
    if os.path.commonpath([real_root, real]) != real_root:
        raise UnsafePathError(relative, "a symbolic link leads out of its directory")
    return joined


def _parts(relative: str) -> list[str]:
    """The components of a path that is safe by its words alone."""
    if not relative:
        raise UnsafePathError(relative, "it is empty")
    if relative.startswith("/"):
        raise UnsafePathError(relative, "it is absolute")
    _check_characters(relative)
    parts = [part for part in relative.split("/") if part not in {"", "."}]
    if not parts:
        raise UnsafePathError(relative, "it names the directory itself")
    if ".." in parts:
        raise UnsafePathError(relative, "it has '..' in it")
    if any(map(_DRIVE.match, parts)):
        raise UnsafePathError(relative, "it has a drive in it")
    return parts


def _check_characters(relative: str) -> None:
    if "\0" in relative:
        raise UnsafePathError(relative, "it has a NUL character in it")
    if "\\" in relative:
        raise UnsafePathError(relative, "it has a backslash in it; names are separated by '/'")
    try:
        os.fsencode(relative)
    except UnicodeEncodeError:
        raise UnsafePathError(relative, "it has a character in it that no file name can have") from None


def _refuse_circle(path: Path, relative: str) -> None:
    try:
        os.stat(path)
    except OSError as error:
        # Every other failure says that the path is not there, or not readable, which is harmless.
        if error.errno == errno.ELOOP:
            raise UnsafePathError(relative, "a symbolic link leads in a circle") from None


def open_below(root: str | Path, relative: str, flags: int = os.O_RDONLY, mode: int = FILE_MODE) -> int:
    """Open a file below ``root``, following no symbolic link below it, and return the descriptor.

    Each directory on the way is opened from the one before, so nothing that happens meanwhile can lead out of
    ``root``.

    Args:
        root: The directory; it may itself be reached through symbolic links.
        relative: The file, by the rules of ``safe_join``.
        flags: As for ``os.open``. The descriptor is never inherited.
        mode: Permissions of a file that is created.

    Raises:
        UnsafePathError: The path is unsafe by its words, or a symbolic link is on the way.
        OSError: The operating system refused for any other reason.
    """
    *parents, name = _parts(relative)
    directory = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for parent in parents:
            below = _open_at(directory, parent, os.O_RDONLY | os.O_DIRECTORY, 0, relative)
            os.close(directory)
            directory = below
        return _open_at(directory, name, flags, mode, relative)
    finally:
        os.close(directory)


def _open_at(directory: int, name: str, flags: int, mode: int, relative: str) -> int:
    try:
        return os.open(name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, mode, dir_fd=directory)
    except OSError as error:
        # A link gives ELOOP (EMLINK on FreeBSD), but ENOTDIR where a directory was asked for and EEXIST with
        # O_EXCL.
        if _is_link(directory, name):
            raise UnsafePathError(relative, f"{name!r} is a symbolic link") from error
        raise


def _is_link(directory: int, name: str) -> bool:
    try:
        return stat.S_ISLNK(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode)
    except OSError:
        return False
