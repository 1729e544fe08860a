"""A snapshot as a file: one line a file, so that ``grep`` and ``diff`` work on it. Written once and never again."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Final

import msgspec

from bartack.core.files import replace_file
from bartack.errors import ManifestError
from bartack.runtime.rundir.snapshots import FileEntry, Snapshot, manifest_path, read_manifest, snapshot_id

SCHEMA: Final = 1


def write_manifest(directory: Path, snapshot: Snapshot, captured_at: str) -> Path:
    """Keep a snapshot's manifest, unless it is there already.

    Raises:
        OSError: It cannot be written.
    """
    path = manifest_path(directory, snapshot.id)
    if not path.exists():
        replace_file(path, encode_manifest(snapshot, captured_at), parents=True)
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


def verify_manifest(path: Path) -> str:
    """The id of a manifest, computed anew.

    Raises:
        ManifestError: It cannot be read, or its files have another id than it claims.
    """
    claimed, files = read_manifest(path)
    found = snapshot_id(files)
    if found != claimed:
        raise ManifestError(str(path), f"it says {claimed}, but its files are {found}")
    return found
