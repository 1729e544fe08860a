"""Files and directories that are made one after the other and become durable together.

A sync for each file as soon as it is written would have the disk wait for each of them; a batch writes everything first, and then
syncs each file and each directory once. Nothing that refers to its files may be acknowledged before ``settle`` has returned.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection

from bartack.core.disk import Disk, RealDisk, write_all


class Batch:
    """What was written since the last ``settle``.

    Args:
        disk: Where the files are.
        synced: ``False`` if nothing has to survive a power cut: nothing is synced then.
    """

    def __init__(self, disk: Disk | None = None, *, synced: bool = True) -> None:
        self.disk: Disk = disk or RealDisk()
        self._synced = synced
        self._files: dict[str, None] = {}
        self._folders: dict[str, None] = {}

    def make_dir(self, path: str, *, exclusive: bool = False) -> None:
        """Make a directory whose parent exists. See ``Disk.mkdir``."""
        self.disk.mkdir(path, exclusive=exclusive)
        self._folders[os.path.dirname(path)] = None

    def make_dirs(self, path: str) -> None:
        """Make a directory and the missing ones above it."""
        missing: list[str] = []
        while not self.disk.exists(path):
            missing.append(path)
            path = os.path.dirname(path)
        for folder in reversed(missing):
            self.make_dir(folder)

    def write(self, path: str, content: bytes) -> None:
        """Write a new file into a directory that exists."""
        fd = self.disk.open(path, write=True, exclusive=True)
        try:
            write_all(self.disk, fd, content, 0)
        finally:
            self.disk.close(fd)
        self._files[path] = None
        self._folders[os.path.dirname(path)] = None

    def include_dir(self, path: str) -> None:
        """Sync this directory, too: another process may have been killed between a change of it and its sync."""
        self._folders[path] = None

    def include_tree(self, path: str) -> None:
        """Sync everything in a directory of the real disk, too. Links are not followed."""
        self._folders[path] = None
        with os.scandir(path) as found:
            for entry in found:
                if entry.is_dir(follow_symlinks=False):
                    self.include_tree(entry.path)
                elif entry.is_file(follow_symlinks=False):
                    self._files[entry.path] = None

    def settle(self, *, leaving: Collection[str] = ()) -> None:
        """Return when everything would survive a power cut.

        Args:
            leaving: Directories that the caller syncs later, before it acknowledges anything.
        """
        files, self._files = self._files, {}
        folders, self._folders = self._folders, {}
        if not self._synced:
            return
        for path in files:
            self._sync_file(path)
        for path in folders:
            if path not in leaving:
                # One that cannot be read cannot be synced; most likely it is not ours either.
                with contextlib.suppress(PermissionError):
                    self.disk.sync_dir(path)

    def _sync_file(self, path: str) -> None:
        fd = self.disk.open(path)
        try:
            self.disk.sync(fd)
        finally:
            self.disk.close(fd)
