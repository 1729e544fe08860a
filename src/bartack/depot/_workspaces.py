"""The workspaces of a user: a small file for each, so that runs are found from any directory.

    workspaces/HASH.json     a ``Workspace``; the name is a hash of what is in it

The files are hints and can be made again. Each new run makes the file of its workspace if there is none, so nothing is synced, and
a file that cannot be written is not an error. A file counts only if it is what this module writes: a regular file of this user with
the content that belongs to its name. Any other file is left alone. A file only names directories: what is in them is checked when
it is read, like everything else in a state directory.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from bartack.core import typed
from bartack.core.files import open_private
from bartack.core.trust import check_private, make_private
from bartack.core.user_home import user_home
from bartack.errors import FileAccessError, UntrustedError

FORMAT: Final = 1
LARGEST_BYTES: Final = 16 * 1024
"""A larger file is not one of ours: paths are shorter."""

_NAME: Final = re.compile(r"[0-9a-f]{32}\.json")


class Workspace(msgspec.Struct, frozen=True, order=True):
    """A workspace, and the directory that has its runs.

    Attributes:
        path: Its real path.
        state_dir: Where its runs are kept; absolute.
    """

    path: str
    state_dir: str


class _Kept(msgspec.Struct, frozen=True):
    """What a file holds: its format first, so that another version recognises it."""

    format: int
    path: str
    state_dir: str


def user_workspaces() -> Workspaces:
    """The workspaces of this user."""
    return Workspaces(user_home() / "workspaces")


class Workspaces:
    """See the module.

    Args:
        directory: Where the files are; made when the first one is written.
    """

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self.directory = Path(directory)

    def add(self, workspace: Workspace) -> None:
        """Keep a workspace; costs one look at a file if it is kept already. It never raises for what the disk refuses."""
        with contextlib.suppress(OSError, UnicodeError, UntrustedError):
            content = msgspec.json.encode(_Kept(FORMAT, workspace.path, workspace.state_dir))
            path = self.directory / _name_of(workspace)
            if _size_of(path) != len(content):
                self._write(path, content)

    def all(self) -> Sequence[Workspace]:
        """All workspaces that are there, by their paths. The files of those that are gone are removed.

        Raises:
            UntrustedError: Another user can change the directory of the files.
            FileAccessError: The directory cannot be read.
        """
        check_private(self.directory)
        try:
            names = [name for name in os.listdir(self.directory) if _NAME.fullmatch(name)]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise FileAccessError(str(self.directory), error.strerror or str(error)) from error
        found = [(name, _load(self.directory / name)) for name in names]
        known = [(name, one) for name, one in found if one is not None and name == _name_of(one)]
        return sorted(one for name, one in known if not self._forget_gone(name, one))

    def _write(self, path: Path, content: bytes) -> None:
        make_private(self.directory)
        check_private(self.directory)
        # Two processes that do this at the same time write the same bytes; half a file has another size, and is written again.
        fd = open_private(path, os.O_WRONLY | os.O_CREAT | os.O_NONBLOCK)
        try:
            os.ftruncate(fd, os.pwrite(fd, content, 0))
        finally:
            os.close(fd)

    def _forget_gone(self, name: str, workspace: Workspace) -> bool:
        """Whether a workspace is gone, or its runs are; then its file goes, too."""
        if not (_is_gone(workspace.path) or _is_gone(workspace.state_dir)):
            return False
        with contextlib.suppress(OSError):
            os.unlink(self.directory / name)
        return True


def _name_of(workspace: Workspace) -> str:
    both = f"{workspace.path}\0{workspace.state_dir}".encode()
    return f"{hashlib.blake2b(both, digest_size=16, person=b'bartack-places').hexdigest()}.json"


def _size_of(path: Path) -> int:
    try:
        return os.lstat(path).st_size
    except FileNotFoundError:
        return -1


def _load(path: Path) -> Workspace | None:
    """The content of a file; ``None`` if it is not one of ours."""
    try:
        # A pipe without a writer must not stop us.
        fd = open_private(path, os.O_RDONLY | os.O_NONBLOCK)
        with open(fd, "rb") as file:
            facts = os.fstat(fd)
            own = stat.S_ISREG(facts.st_mode) and facts.st_uid == os.geteuid()
            if not own or facts.st_size > LARGEST_BYTES:
                return None
            kept = typed.decode(file.read(LARGEST_BYTES), type=_Kept)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None
    if kept.format != FORMAT or not (os.path.isabs(kept.path) and os.path.isabs(kept.state_dir)):
        return None
    return Workspace(kept.path, kept.state_dir)


def _is_gone(path: str) -> bool:
    """Whether a directory does not exist. One that cannot be looked at is not gone."""
    try:
        return not stat.S_ISDIR(os.stat(path).st_mode)
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return True  # a path with a null character names nothing
    except OSError:
        return False
