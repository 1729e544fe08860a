"""Writing a tree that may be hostile: nothing is ever written, linked or removed outside of the directory that it belongs into.

A copy comes from a machine where agents work. Its trees may have names that lead elsewhere (``..``), that git would execute
something from (``.git``), or a name below a symbolic link. So names are checked before anything is written, and every directory is
opened from the one above it, without following links: what is in the way is replaced.

A file appears with its whole content, by a rename. So whatever is killed can be repeated.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import unicodedata
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from bartack.errors import UnsafePathError

LINK: Final = b"120000"
FILE: Final = b"100644"
PROGRAM: Final = b"100755"
MODULE: Final = b"160000"
_TEMPORARY: Final = b".bartack-restoring"
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_PRIVATE: Final = frozenset({".git", ".bartack"})


def check_path(path: bytes, modes: bytes = FILE) -> None:
    """Refuse a path that a copy never has.

    Raises:
        UnsafePathError: It leads elsewhere, is where git or Bartack keep their own files, or is not a kind of file that is copied.
    """
    shown = os.fsdecode(path)
    if modes not in {FILE, PROGRAM, LINK, MODULE}:
        raise UnsafePathError(shown, f"the mode {os.fsdecode(modes)} is not one of a file")
    for name in path.split(b"/"):
        if name in {b"", b".", b".."} or b"\0" in name:
            raise UnsafePathError(shown, "it leads out of its directory")
        if _plain(name) in _PRIVATE:
            raise UnsafePathError(shown, f"{os.fsdecode(name)!r} is never copied")


def has_private_name(path: bytes) -> bool:
    """Whether a path leads through what git or Bartack keep for themselves, on any file system."""
    return any(_plain(name) in _PRIVATE for name in path.split(b"/"))


def _plain(name: bytes) -> str:
    """A name as a file system sees it that ignores case and characters without a shape."""
    if name.isascii():
        return name.decode().lower()
    text = os.fsdecode(name)
    return "".join(char for char in text if unicodedata.category(char) != "Cf").casefold()


class TreeWriter:
    """Writes below one directory. A context manager: it keeps directories open.

    Args:
        root: The directory, which is made if it is missing.
        is_private: Whether what it makes is for its owner only.
    """

    def __init__(self, root: Path, *, is_private: bool = False) -> None:
        self._root = root
        self._mask = 0o700 if is_private else 0o777
        self._open: list[tuple[bytes, int]] = []
        self._made_empty: set[bytes] = set()

    def __enter__(self) -> Self:
        self._root.mkdir(mode=self._mask, parents=True, exist_ok=True)
        self._top = os.open(self._root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leave(0)
        os.close(self._top)

    def write(self, path: bytes, mode: bytes, data: bytes) -> None:
        """Make a file, a program, or a symbolic link with this target. Whatever has its name is replaced."""
        folder, name = self._enter(path)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(_TEMPORARY, dir_fd=folder)
        if mode == LINK:
            os.symlink(data, _TEMPORARY, dir_fd=folder)
        else:
            self._fill(folder, data, (0o777 if mode == PROGRAM else 0o666) & self._mask)
        try:
            os.rename(_TEMPORARY, name, src_dir_fd=folder, dst_dir_fd=folder)
        except OSError:  # a directory has the name: of ignored files, or of what an earlier attempt has left
            shutil.rmtree(name, dir_fd=folder)
            os.rename(_TEMPORARY, name, src_dir_fd=folder, dst_dir_fd=folder)

    def make_folder(self, path: bytes) -> None:
        """Make a directory; one that is there stays as it is."""
        self._enter(path + b"/.")

    def open_folders(self, paths: Iterable[bytes]) -> None:
        """Permit the owner of directories that are there to do everything in them."""
        for path in paths:
            with contextlib.suppress(OSError):
                self._find(path + b"/.")

    def remove(self, path: bytes) -> None:
        """Remove a file or a link, if it is there; a directory stays."""
        with contextlib.suppress(FileNotFoundError, NotADirectoryError, IsADirectoryError, PermissionError):
            folder, name = self._find(path)
            os.unlink(name, dir_fd=folder)
        self._made_empty.add(os.path.dirname(path))

    def remove_folders(self, also: Iterable[bytes] = ()) -> None:
        """Remove the directories that were emptied, and these, and those above them, as far as they are empty."""
        self._leave(0)
        pending = {*self._made_empty, *also} - {b""}
        while pending:
            path = max(pending, key=lambda path: path.count(b"/"))
            pending.remove(path)
            with contextlib.suppress(OSError):
                folder, name = self._find(path)
                os.rmdir(name, dir_fd=folder)
                pending |= {os.path.dirname(path)} - {b""}
            self._leave(0)
        self._made_empty.clear()

    def _fill(self, folder: int, data: bytes, mode: int) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open(_TEMPORARY, flags, mode, dir_fd=folder)
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(fd, view) :]
        finally:
            os.close(fd)

    # Directories on the way.

    def _enter(self, path: bytes) -> tuple[int, bytes]:
        """The directory of a path, made if it is missing, and the last name."""
        *parents, name = path.split(b"/")
        folder = self._shared(parents)
        for parent in parents[len(self._open) :]:
            folder = self._step(folder, parent)
            self._open.append((parent, folder))
        return folder, name

    def _find(self, path: bytes) -> tuple[int, bytes]:
        """The same for a directory that has to be there.

        Raises:
            FileNotFoundError: It is not there.
            NotADirectoryError: A file or a link is in its place.
        """
        *parents, name = path.split(b"/")
        folder = self._shared(parents)
        for parent in parents[len(self._open) :]:
            folder = _open_folder(parent, folder)
            self._open.append((parent, folder))
        return folder, name

    def _shared(self, parents: list[bytes]) -> int:
        """Close what is open beside the way, and return the last directory of it that is open."""
        same = 0
        while same < min(len(parents), len(self._open)) and self._open[same][0] == parents[same]:
            same += 1
        self._leave(same)
        return self._open[-1][1] if self._open else self._top

    def _step(self, folder: int, name: bytes) -> int:
        try:
            return _open_folder(name, folder)
        except FileNotFoundError:
            pass
        except OSError:  # a file or a link; no link is followed, wherever it leads
            os.unlink(name, dir_fd=folder)
        os.mkdir(name, self._mask, dir_fd=folder)
        return os.open(name, _FOLDER, dir_fd=folder)

    def _leave(self, count: int) -> None:
        while len(self._open) > count:
            os.close(self._open.pop()[1])


def _open_folder(name: bytes, above: int) -> int:
    """Open a directory, and permit its owner to do everything in it: a program may have closed it."""
    if stat.S_ISDIR(mode := os.lstat(name, dir_fd=above).st_mode) and mode & stat.S_IRWXU != stat.S_IRWXU:
        os.chmod(name, stat.S_IMODE(mode) | stat.S_IRWXU, dir_fd=above)
    return os.open(name, _FOLDER, dir_fd=above)
