"""A snapshot as a file: one line a file, so that ``grep`` and ``diff`` work on it. Written once and never again."""

from __future__ import annotations

import base64
import binascii
from pathlib import Path
from typing import Final

import msgspec

from bartack.core import DIR_MODE, replace_file
from bartack.errors import ManifestError
from bartack.pipeline._entry import FileEntry
from bartack.pipeline._snapshot import Snapshot, snapshot_id

SCHEMA: Final = 1
SUFFIX: Final = ".manifest.json"


class ManifestFile(msgspec.Struct, omit_defaults=True):
    """One file of a manifest. A path that is no text is in ``path_b64``."""

    mode: str
    size: int
    sha256: str
    path: str | None = None
    path_b64: str | None = None


class Manifest(msgspec.Struct):
    """What the file says."""

    schema: int
    snapshot_id: str
    source: str
    captured_at: str
    count: int
    bytes: int
    files: list[ManifestFile]


def manifest_path(directory: Path, id_: str) -> Path:
    """Where the manifest of a snapshot is kept."""
    return directory / f"{id_}{SUFFIX}"


def write_manifest(directory: Path, snapshot: Snapshot, captured_at: str) -> Path:
    """Keep a snapshot's manifest, unless it is there already.

    Raises:
        OSError: It cannot be written.
    """
    path = manifest_path(directory, snapshot.id)
    if not path.exists():
        directory.mkdir(mode=DIR_MODE, parents=True, exist_ok=True)
        replace_file(path, encode_manifest(snapshot, captured_at))
    return path


def encode_manifest(snapshot: Snapshot, captured_at: str) -> bytes:
    """A manifest as it is written."""
    head = msgspec.json.encode(
        {
            "schema": SCHEMA,
            "snapshot_id": snapshot.id,
            "source": snapshot.source,
            "captured_at": captured_at,
            "count": snapshot.count,
            "bytes": snapshot.size_bytes,
        }
    )
    lines = b",\n".join(_encode_file(entry) for entry in snapshot.files)
    return head[:-1] + (b',"files":[\n' + lines + b"\n]}\n" if lines else b',"files":[]}\n')


def _encode_file(entry: FileEntry) -> bytes:
    try:
        path = {"path": entry.path.decode()}
    except UnicodeDecodeError:
        path = {"path_b64": base64.b64encode(entry.path).decode()}
    facts = {"mode": entry.mode, "size": entry.size, "sha256": f"sha256:{entry.sha256}"}
    return msgspec.json.encode({**path, **facts})


def read_manifest(path: Path) -> tuple[str, list[FileEntry]]:
    """The id that a manifest claims, and its files.

    Raises:
        ManifestError: It cannot be read, or is none.
    """
    try:
        manifest = msgspec.json.decode(path.read_bytes(), type=Manifest)
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


def verify_manifest(path: Path) -> str:
    """The id of a manifest, computed anew.

    Raises:
        ManifestError: It cannot be read, or its files have another id than it says.
    """
    claimed, files = read_manifest(path)
    found = snapshot_id(files)
    if found != claimed:
        raise ManifestError(str(path), f"it says {claimed}, but its files are {found}")
    return found
