"""What the workspace holds, as one id: the same tree has the same id, for every user, everywhere.

An id is made of the mode, the size, the checksum and the path of each file, sorted by path. No time, owner or absolute path is
part of it. A capture reads only files that changed since the last one (``_statcache.py``), and none at all if none did.
"""

from __future__ import annotations

import os
import stat
import sys
from hashlib import sha256
from pathlib import Path
from typing import Final

from bartack.errors import SnapshotReadError, SnapshotUnstableError
from bartack.pipeline.snapshot._paths import path_text
from bartack.pipeline.snapshot._statcache import StatCache
from bartack.pipeline.snapshot.listing import Lister, Listing, SnapshotOptions, to_portable
from bartack.runtime.rundir.snapshots import FileEntry, Snapshot, snapshot_id

BLOCK: Final = 1024 * 1024
TRIES: Final = 3
MAX_THREADS: Final = 8
FEW: Final = 64
"""Fewer files than this are read by one."""


def capture(root: str | Path, options: SnapshotOptions | None = None, cache: Path | None = None) -> Snapshot:
    """The snapshot of a directory, as it is now.

    Args:
        root: The workspace.
        options: What belongs to it.
        cache: The file in which to keep what was found out about unchanged files.

    Raises:
        SnapshotReadError: Something cannot be read: a snapshot is complete or it is not made.
        SnapshotUnstableError: A file is being written all the time.
    """
    options = options or SnapshotOptions()
    place = os.path.realpath(root)
    known = StatCache.open(cache)
    lister = Lister(place, options)
    try:
        whole = known.unchanged(os.fsencode(place) + b"/")
        raw = lister.raw()
    finally:
        lister.close()
    listed = _digest(raw, options)
    if whole is not None and listed == whole.listed:
        return Snapshot(whole.id, "git", known.entries)
    listing = lister.parse(raw)
    made = _Capture(os.fsencode(place), listing, known)
    files = made.run(options.threads)
    id_ = snapshot_id(files)
    known.save(files, listed, made.folders, id_)
    return Snapshot(id_, listing.source, lambda: files, listing.notes)


def _digest(raw: bytes | None, options: SnapshotOptions) -> bytes:
    """What a listing is made of; nothing if it has to be made anew each time."""
    if raw is None or options.include:
        return b""
    return sha256(b"%b\0%b" % (repr(options).encode(), raw)).digest()


class _Capture:
    """One walk over the files of a listing."""

    def __init__(self, root: bytes, listing: Listing, cache: StatCache) -> None:
        self._root = root + b"/"
        self._listing = listing
        self._cache = cache
        self._folders: dict[bytes, bool] = {b"": True}
        self._notes = listing.notes

    @property
    def folders(self) -> list[bytes]:
        """The directories that files were found in."""
        return [folder for folder, real in self._folders.items() if folder and real]

    def run(self, threads: int) -> list[FileEntry]:
        """The entries, sorted by path."""
        files, changed = self._look()
        if changed:
            self._cache.read_clock()
            files += self._read_all(changed, threads)
        files += [_link_entry(path, commit) for path, commit in self._listing.links.items()]
        if sys.platform == "darwin":
            files = _compose(files)
        files.sort()
        return files

    def _look(self) -> tuple[list[FileEntry], list[bytes]]:
        """What is known already, and the paths that have to be read."""
        files: list[FileEntry] = []
        changed: list[bytes] = []
        root, lstat, known = self._root, os.lstat, self._cache.known
        regular, is_real = stat.S_IFREG, self._is_real
        for path in self._listing.paths:
            try:
                found = lstat(root + path)
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError as error:
                raise _unreadable(path, error) from None
            if stat.S_IFMT(found.st_mode) != regular:
                self._look_at_other(path, found, files)
                continue
            entry = known(path, found)
            if not is_real(path):
                continue
            if entry is None:
                changed.append(path)
            else:
                files.append(entry)
        return files, changed

    def _look_at_other(self, path: bytes, found: os.stat_result, files: list[FileEntry]) -> None:
        if not self._is_real(path):
            return
        if stat.S_ISLNK(found.st_mode):
            files.append(self._cache.known(path, found) or self._link(path, found))
        elif not stat.S_ISDIR(found.st_mode):
            self._notes.append(f"{path_text(path)}: neither a file nor a link, left out")

    def _is_real(self, path: bytes) -> bool:
        """Whether a path is where it seems to be: below a link it is another tree's."""
        folder = path.rpartition(b"/")[0]
        known = self._folders.get(folder)
        if known is None:
            known = self._is_real(folder) and stat.S_ISDIR(os.lstat(self._root + folder).st_mode)
            self._folders[folder] = known
        return known

    def _link(self, path: bytes, found: os.stat_result) -> FileEntry:
        self._cache.read_clock()
        try:
            target = os.readlink(self._root + path)
        except OSError as error:
            raise _unreadable(path, error) from None
        return self._cache.learn(path, found, sha256(target).digest())

    def _read_all(self, paths: list[bytes], threads: int) -> list[FileEntry]:
        count = 1 if len(paths) < FEW else threads or min(MAX_THREADS, os.cpu_count() or 1)
        if count == 1:
            return self._read_some(paths)
        from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415 - only who reads many files pays for it

        parts = [paths[start : start + 256] for start in range(0, len(paths), 256)]
        with ThreadPoolExecutor(count) as pool:
            found = list(pool.map(self._read_some, parts))
        return [entry for part in found for entry in part]

    def _read_some(self, paths: list[bytes]) -> list[FileEntry]:
        return [entry for path in paths if (entry := self._read(path)) is not None]

    def _read(self, path: bytes) -> FileEntry | None:
        """A file's entry, from its content; ``None`` if it is gone."""
        for _ in range(TRIES):
            try:
                found, digest = _hash(self._root + path)
            except (FileNotFoundError, NotADirectoryError):
                return None
            except OSError as error:
                raise _unreadable(path, error) from None
            if digest:
                return self._cache.learn(path, found, digest)
        raise SnapshotUnstableError(path_text(path))


def _hash(path: bytes) -> tuple[os.stat_result, bytes]:
    """What a file is and its digest; no digest if it changed meanwhile."""
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        before = os.fstat(fd)
        data = os.read(fd, BLOCK)
        digest = sha256(data)
        read = len(data)
        while len(data) == BLOCK or (data and read < before.st_size):
            data = os.read(fd, BLOCK)
            digest.update(data)
            read += len(data)
        after = os.fstat(fd)
    finally:
        os.close(fd)
    same = _signature(before) == _signature(after) and read == after.st_size
    return after, digest.digest() if same else b""


def _signature(found: os.stat_result) -> tuple[int, ...]:
    return (found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_mode)


def _link_entry(path: bytes, commit: str) -> FileEntry:
    return FileEntry(path, "160000", len(commit), sha256(commit.encode()).hexdigest())


def _compose(files: list[FileEntry]) -> list[FileEntry]:
    seen: dict[bytes, bytes] = {}
    composed: list[FileEntry] = []
    for entry in files:
        path = to_portable(entry.path)
        if path in seen:
            raise SnapshotReadError(path_text(path), "two names are the same name, written differently")
        seen[path] = entry.path
        composed.append(entry._replace(path=path))
    return composed


def _unreadable(path: bytes, error: OSError) -> SnapshotReadError:
    return SnapshotReadError(path_text(path), error.strerror or str(error))
