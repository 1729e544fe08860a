"""Snapshots as they are read: which files a workspace held, from a manifest in the directory of a run. No hub is needed.

The pipeline takes them; their form is here, so that programs can read them without the pipeline.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property, partial
from hashlib import sha256
from pathlib import Path
from typing import Final, Literal, NamedTuple

import msgspec

from bartack.core import typed
from bartack.errors import ManifestError

Source = Literal["git", "roots"]
SUFFIX: Final = ".manifest.json"
_HEADER: Final = b"bartack-snapshot-1\n"
_MODES: Final = {"100644": b"100644", "100755": b"100755", "120000": b"120000", "160000": b"160000"}


class FileEntry(NamedTuple):
    """One file of a snapshot: its path as bytes, its mode as git writes it, its size, and the SHA-256 of its content."""

    path: bytes
    mode: str
    size: int
    sha256: str


class Snapshot:
    """A captured tree."""

    def __init__(
        self, id_: str, source: Source, files: Callable[[], Sequence[FileEntry]], notes: Sequence[str] = ()
    ) -> None:
        self.id = id_
        self.source: Source = source
        self.notes = tuple(notes)
        self._files = files

    def __repr__(self) -> str:
        # Printing a snapshot must not read its files from the disk, which their first use does.
        known = f", count={self.count}, size_bytes={self.size_bytes}" if "files" in self.__dict__ else ""
        return f"Snapshot({self.id!r}, source={self.source!r}{known})"

    @cached_property
    def files(self) -> tuple[FileEntry, ...]:
        """Its files, sorted by path."""
        return tuple(self._files())

    @property
    def count(self) -> int:
        """How many files it holds."""
        return len(self.files)

    @property
    def size_bytes(self) -> int:
        """How many bytes they have together."""
        return sum(entry.size for entry in self.files)

    def diff(self, other: Snapshot) -> list[Change]:
        """What changed from this snapshot to another one, sorted by path."""
        return [] if self.id == other.id else compare(self.files, other.files)


class Change(NamedTuple):
    """A path in which two snapshots differ: added, deleted, modified, or mode (only its mode differs)."""

    path: bytes
    change: str
    entry: FileEntry | None
    """The file as it is in the second snapshot."""


def snapshot_id(files: Iterable[FileEntry]) -> str:
    """The id of some files, whatever their order."""
    digest = sha256(_HEADER)
    lines = [
        b"%b %d %b %b\0" % (_MODES[mode], size, checksum.encode(), path)
        for path, mode, size, checksum in sorted(files)
    ]
    digest.update(b"".join(lines))
    return f"snap-{digest.hexdigest()[:12]}"


def compare(before: Iterable[FileEntry], after: Iterable[FileEntry]) -> list[Change]:
    """What changed between two snapshots, sorted by path."""
    old = {entry.path: entry for entry in before}
    changes: list[Change] = []
    for entry in after:
        known = old.pop(entry.path, None)
        if known is None:
            changes.append(Change(entry.path, "added", entry))
        elif known != entry:
            same = (known.size, known.sha256) == (entry.size, entry.sha256)
            changes.append(Change(entry.path, "mode" if same else "modified", entry))
    changes += [Change(path, "deleted", None) for path in old]
    return sorted(changes, key=lambda change: change.path)


class ManifestFile(msgspec.Struct, omit_defaults=True):
    """One file of a manifest. A path that is not text is in ``path_b64``."""

    mode: str
    size: int
    sha256: str
    path: str | None = None
    path_b64: str | None = None


class Manifest(msgspec.Struct):
    """The content of the file."""

    schema: int
    snapshot_id: str
    source: Source
    captured_at: str
    count: int
    bytes: int
    files: list[ManifestFile]


def manifest_path(directory: Path, id_: str) -> Path:
    """Where the manifest of a snapshot is kept."""
    return directory / f"{id_}{SUFFIX}"


def read_manifest(path: Path) -> tuple[str, list[FileEntry]]:
    """The id that a manifest claims, and its files.

    Raises:
        ManifestError: It cannot be read, or is none.
    """
    try:
        manifest = typed.decode(path.read_bytes(), type=Manifest)
        return manifest.snapshot_id, [_decode_file(file) for file in manifest.files]
    except (OSError, msgspec.MsgspecError, ValueError) as error:
        raise ManifestError(str(path), str(error)) from None


def _decode_file(file: ManifestFile) -> FileEntry:
    if file.path is not None:
        path = file.path.encode()
    else:
        try:
            path = base64.b64decode(file.path_b64 or "", validate=True)
        except binascii.Error as error:
            raise ValueError(f"path_b64: {error}") from None
    method, _, digest = file.sha256.partition(":")
    if (
        not path
        or method != "sha256"
        or len(digest) != 64
        or file.mode not in {"100644", "100755", "120000", "160000"}
    ):
        raise ValueError("a file without a path, a mode or a checksum")
    return FileEntry(path, file.mode, file.size, digest)


class _Head(msgspec.Struct):
    """What a manifest has beside its files."""

    snapshot_id: str
    source: Source
    captured_at: str


def iter_snapshots(run_dir: Path) -> Iterator[Snapshot]:
    """The snapshots of a run, in the order in which they were taken first. The files of each are read when they are asked for.

    Raises:
        ManifestError: One cannot be read.
    """
    found = [(_read_head(path), path) for path in (run_dir / "snapshots").glob(f"*{SUFFIX}")]
    for head, path in sorted(found, key=lambda each: (each[0].captured_at, each[0].snapshot_id)):
        yield Snapshot(head.snapshot_id, head.source, partial(_read_files, path))


def _read_head(path: Path) -> _Head:
    try:
        return typed.decode(path.read_bytes(), type=_Head)
    except (OSError, msgspec.MsgspecError) as error:
        raise ManifestError(str(path), str(error)) from None


def _read_files(path: Path) -> list[FileEntry]:
    return read_manifest(path)[1]
