"""Checksums, always written with the name of their method: ``sha256:<64 hex>``."""

from __future__ import annotations

import hashlib
from pathlib import Path


def checksum(data: bytes) -> str:
    """The checksum of some bytes."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def checksum_file(path: str | Path) -> str:
    """The checksum of a file's content, read piece by piece.

    Raises:
        OSError: The file cannot be read.
    """
    with open(path, "rb") as file:
        return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"
