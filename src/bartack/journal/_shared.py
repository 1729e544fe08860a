"""Blobs of a journal whose owner does not share a user id with the processes that make large values.

Beside ``blobs`` there is then a directory ``drop``, which one group can write to. A guest leaves a large value there,
under its checksum; ``blobs`` is the owner's alone, and the group can read it. The owner takes a value over when an entry refers to
it: without following links, and only if the content is what its name says. So a guest can neither change what was acknowledged nor
have the owner read another file.
"""

from __future__ import annotations

import hashlib
import os
import stat
from contextlib import suppress
from typing import Final

from bartack.core.disk import Disk, RealDisk
from bartack.core.files import replace_file
from bartack.core.share import RUN_GROUPS, SHARED_DIR, SHARED_FILE, share
from bartack.errors import BlobMissingError
from bartack.journal._blobs import FileBlobs
from bartack.journal.contract import BlobRef
from bartack.journal.veil import Veil
from bartack.telemetry import NO_TELEMETRY, Telemetry

BLOBS: Final = "blobs"
DROP: Final = "drop"
"""The directory for guests, beside ``blobs``."""

LARGEST: Final = 64 * 1024 * 1024
"""A larger value is not taken over; no value of a program is as large."""

_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def open_blobs(
    directory: str,
    disk: Disk | None = None,
    telemetry: Telemetry = NO_TELEMETRY,
    veil: Veil | None = None,
) -> FileBlobs:
    """The blobs of the journal in a directory, as this process may use them."""
    disk = disk or RealDisk()
    blobs, drop = os.path.join(directory, BLOBS), os.path.join(directory, DROP)
    if not disk.exists(drop):
        return FileBlobs(blobs, disk, telemetry, veil)
    facts = os.lstat(drop)
    if facts.st_gid not in RUN_GROUPS:
        return FileBlobs(blobs, disk, telemetry, veil)
    kind = OwnerBlobs if facts.st_uid == os.geteuid() else GuestBlobs
    return kind(blobs, disk, telemetry, veil, drop=drop, group=facts.st_gid)


class _Shared(FileBlobs):
    def __init__(
        self,
        directory: str,
        disk: Disk,
        telemetry: Telemetry,
        veil: Veil | None,
        *,
        drop: str,
        group: int,
    ) -> None:
        super().__init__(directory, disk, telemetry, veil)
        self._drop = drop
        self._group = group


class GuestBlobs(_Shared):
    """For processes of another user: they read what is acknowledged, and leave what is not."""

    def put(self, content: bytes) -> BlobRef:
        """Leave ``content`` for the owner of the journal, who makes it durable before it is acknowledged."""
        if self._veil is not None:
            content = self._veil.hide(content)
        ref = BlobRef(hashlib.sha256(content).hexdigest(), len(content))
        replace_file(os.path.join(self._drop, ref.sha256), content, disk=self._disk, synced=False)
        return ref


class OwnerBlobs(_Shared):
    """For the owner of the journal."""

    def _settle(self, path: str, ref: BlobRef, content: bytes) -> bool:
        known = super()._settle(path, ref, content)
        share(path, self._group, SHARED_FILE)
        return known

    def _settle_folder(self, folder: str) -> None:
        if folder not in self._settled:
            super()._settle_folder(folder)
            share(folder, self._group, SHARED_DIR)

    def _open(self, ref: BlobRef) -> int:
        try:
            return super()._open(ref)
        except BlobMissingError:
            if not self._take_over(ref):
                raise
        return super()._open(ref)

    def _take_over(self, ref: BlobRef) -> bool:
        """Take over a value that a guest left; whether there is one."""
        content = self._left(ref)
        if content is None:
            return False
        path = self._path(ref)
        for folder in (self.directory, os.path.dirname(path)):
            self._settle_folder(folder)
        replace_file(path, content, disk=self._disk)
        share(path, self._group, SHARED_FILE)
        with suppress(FileNotFoundError):
            os.unlink(os.path.join(self._drop, ref.sha256))
        return True

    def _left(self, ref: BlobRef) -> bytes | None:
        """What a guest left under a name, if it is that. The name is checked by ``_path``; the drop itself is in our directory."""
        self._path(ref)
        try:
            fd = os.open(os.path.join(self._drop, ref.sha256), _READ)
        except OSError:
            return None
        try:
            facts = os.fstat(fd)
            if not stat.S_ISREG(facts.st_mode) or facts.st_size != ref.size or ref.size > LARGEST:
                return None
            with open(fd, "rb", closefd=False) as file:
                content = file.read(ref.size)
        finally:
            os.close(fd)
        return content if hashlib.sha256(content).hexdigest() == ref.sha256 else None
