"""Checksums of bytes and files."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from bartack.core.checksum import checksum, checksum_file

EMPTY = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


def test_a_checksum_names_its_method() -> None:
    assert checksum(b"") == EMPTY
    assert checksum(b"bartack") == f"sha256:{hashlib.sha256(b'bartack').hexdigest()}"


@pytest.mark.parametrize("size", [0, 1, 262_143, 262_144, 3_000_001])
def test_a_file_has_the_checksum_of_its_bytes(tmp_path: Path, size: int) -> None:
    content = bytes(number % 251 for number in range(size))
    path = tmp_path / "file"
    path.write_bytes(content)

    assert checksum_file(path) == checksum(content)
    assert checksum_file(str(path)) == checksum(content)


def test_a_file_that_is_not_there_has_no_checksum(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        checksum_file(tmp_path / "none")
