"""A disk that fills up under the files of a run: at its nth operation and at every one behind it, until it is mended."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT


class FullDisk:
    """Counts what is written below a directory, and refuses it when the disk is full. Nothing else is disturbed."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.operations: list[str] = []
        """What was written so far."""
        self.fills_at: int | None = None
        self.number = errno.ENOSPC
        self._folder = str(folder)
        self._open_files: set[int] = set()
        self._real_open = os.open
        patch.setattr(os, "open", self._open)
        patch.setattr(os, "close", self._wrap_close(os.close))
        for name in ("mkdir", "replace", "rename"):
            patch.setattr(os, name, self._wrap_path(name, getattr(os, name)))
        for name in ("write", "pwrite", "fsync", "fdatasync"):
            patch.setattr(os, name, self._wrap_file(name, getattr(os, name)))

    def mend(self) -> None:
        """There is room again."""
        self.fills_at = None

    def _come(self, operation: str, path: str | None) -> None:
        self.operations.append(operation)
        if self.fills_at is not None and len(self.operations) >= self.fills_at:
            raise OSError(self.number, os.strerror(self.number), path)

    def _is_mine(self, path: object) -> bool:
        text = str(path)
        # What an agent remembers is its own affair.
        return text.startswith(self._folder) and "memory-" not in text

    def _open(self, path: str, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        mine = self._is_mine(path) and bool(flags & WRITES)
        if mine:
            self._come(f"open {Path(path).name}", str(path))
        fd = self._real_open(path, flags, mode, dir_fd=dir_fd)
        if mine:
            self._open_files.add(fd)
        return fd

    def _wrap_close(self, real: Callable[[int], None]) -> Callable[[int], None]:
        def close(fd: int) -> None:
            self._open_files.discard(fd)
            real(fd)

        return close

    def _wrap_path(self, name: str, real: Callable[..., object]) -> Callable[..., object]:
        def act(path: str, *args: object, **more: object) -> object:
            if self._is_mine(path):
                self._come(f"{name} {Path(path).name}", str(path))
            return real(path, *args, **more)

        return act

    def _wrap_file(self, name: str, real: Callable[..., object]) -> Callable[..., object]:
        def act(fd: int, *args: object) -> object:
            if fd in self._open_files:
                self._come(name, None)
            return real(fd, *args)

        return act
