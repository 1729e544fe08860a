"""The checksums of files that have not changed, by everything the file system knows about them.

A file is taken for unchanged only if its size, times, inode, device and mode are what they were when it was read, and both times
were at least two seconds in the past then: a change within the grain of the file system's clock would not show. The cache is a
convenience. If it is lost or damaged, files are read again.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from bartack.core.files import open_private, replace_file
from bartack.core.trust import make_private
from bartack.runtime.rundir.snapshots import FileEntry

GRAIN_NS: Final = 2_000_000_000


class StatRecord(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A file or link as it was when it was read."""

    path: bytes
    mode: int
    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int
    device: int
    digest: bytes


class Whole(msgspec.Struct, array_like=True, frozen=True):
    """A snapshot in which every file was sure: the digest of git's listing, its directories, and its id."""

    listed: bytes
    folders: list[bytes]
    id: str


class _Kept(msgspec.Struct, array_like=True):
    records: list[StatRecord]
    whole: Whole | None = None


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Kept).decode


class StatCache:
    """The records of one workspace."""

    def __init__(self, file: Path | None, kept: _Kept) -> None:
        self._file = file
        self._kept = kept
        self._by_path: dict[bytes, StatRecord] | None = None
        self._learned: dict[bytes, StatRecord] = {}
        self._now_ns: int | None = None

    @classmethod
    def open(cls, file: Path | None) -> StatCache:
        """The cache in a file; an empty one if there is none, or nothing that could be one."""
        try:
            kept = _decode(_read(file)) if file is not None else _Kept([])
        except (OSError, msgspec.MsgspecError):
            kept = _Kept([])
        return cls(file, kept)

    # All at once.

    def unchanged(self, root: bytes) -> Whole | None:
        """The last snapshot, if nothing in it has changed; new files are found by git alone."""
        whole = self._kept.whole
        if whole is None:
            return None
        lstat = os.lstat
        try:
            for folder in whole.folders:
                if not stat.S_ISDIR(lstat(root + folder).st_mode):
                    return None
            for record in self._kept.records:
                found = lstat(root + record.path)
                if (
                    record.mtime_ns != found.st_mtime_ns
                    or record.size != found.st_size
                    or record.ctime_ns != found.st_ctime_ns
                    or record.inode != found.st_ino
                    or record.mode != found.st_mode
                    or record.device != found.st_dev
                ):
                    return None
        except OSError:
            return None
        return whole

    def entries(self) -> list[FileEntry]:
        """The entries of everything that is known."""
        return [
            make_entry(record.path, record.mode, record.size, record.digest) for record in self._kept.records
        ]

    # One by one.

    def known(self, path: bytes, found: os.stat_result) -> FileEntry | None:
        """The entry of a file that has not changed since it was read."""
        if self._by_path is None:
            self._by_path = {record.path: record for record in self._kept.records}
        record = self._by_path.get(path)
        if (
            record is None
            or record.mtime_ns != found.st_mtime_ns
            or record.size != found.st_size
            or record.ctime_ns != found.st_ctime_ns
            or record.inode != found.st_ino
            or record.mode != found.st_mode
            or record.device != found.st_dev
        ):
            return None
        return make_entry(path, record.mode, record.size, record.digest)

    def read_clock(self) -> None:
        """Learn what time it is on the file system, before the first file is read."""
        if self._now_ns is not None:
            return
        self._now_ns = 0
        if self._file is not None:
            with suppress(OSError):  # nothing is remembered of what is read now
                self._now_ns = _touch(self._file.with_name("clock"))

    def learn(self, path: bytes, found: os.stat_result, digest: bytes) -> FileEntry:
        """The entry of a file that was just read; remembered, if a later change is sure to show."""
        if max(found.st_mtime_ns, found.st_ctime_ns) + GRAIN_NS <= (self._now_ns or 0):
            self._learned[path] = StatRecord(
                path,
                found.st_mode,
                found.st_size,
                found.st_mtime_ns,
                found.st_ctime_ns,
                found.st_ino,
                found.st_dev,
                digest,
            )
        return make_entry(path, found.st_mode, found.st_size, digest)

    def save(self, files: Sequence[FileEntry], listed: bytes, folders: Iterable[bytes], id_: str) -> None:
        """Keep what was learned, and the snapshot as a whole. Nothing is written if nothing is new."""
        if self._file is None:
            return
        records = (self._by_path or {}) | self._learned
        kept = [records[entry.path] for entry in files if entry.path in records]
        sure = bool(listed) and len(kept) == len(files)
        whole = Whole(listed, sorted(folders), id_) if sure else None
        if not self._learned and whole == self._kept.whole:
            return
        try:
            make_private(self._file.parent)
            replace_file(self._file, _encode(_Kept(kept, whole)), synced=False)
        except OSError:
            return  # the next capture reads them again


def make_entry(path: bytes, mode: int, size: int, digest: bytes) -> FileEntry:
    """The entry of a file or link."""
    if stat.S_ISLNK(mode):
        return FileEntry(path, "120000", size, digest.hex())
    return FileEntry(path, "100755" if mode & stat.S_IXUSR else "100644", size, digest.hex())


def _read(file: Path) -> bytes:
    with open(file, "rb", buffering=0) as stream:
        return stream.read()


def _touch(clock: Path) -> int:
    """What time it is on the file system, by a file that is changed now."""
    flags = os.O_WRONLY | os.O_CREAT
    try:
        fd = open_private(clock, flags)
    except FileNotFoundError:
        make_private(clock.parent)
        fd = open_private(clock, flags)
    try:
        os.utime(fd)
        return os.fstat(fd).st_mtime_ns
    finally:
        os.close(fd)
