"""One file of a snapshot."""

from __future__ import annotations

from typing import NamedTuple


class FileEntry(NamedTuple):
    """One file of a snapshot: its path as bytes, its mode as git writes it, its size, and the SHA-256 of its content."""

    path: bytes
    mode: str
    size: int
    sha256: str
