"""Objects that are made here: the tree, the description and the commit of a copy, written without a process for each."""

from __future__ import annotations

import hashlib
import os
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

from bartack.core.files import replace_file

TREE: Final = "40000"
FILE: Final = "100644"
EMPTY_TREE: Final = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"
_AUTHOR: Final = b"Bartack <bartack@localhost> 0 +0000"
"""Neither a person nor a time: the name of a copy is made of its content alone."""


class Item(NamedTuple):
    """One name in a tree."""

    name: str
    mode: str
    id: str


class ObjectWriter:
    """Writes objects into a repository.

    Args:
        repository: The directory of the repository.
    """

    def __init__(self, repository: Path) -> None:
        self._objects = repository / "objects"

    def blob(self, data: bytes) -> str:
        """Write a file."""
        return self._write(b"blob", data)

    def tree(self, items: Iterable[Item]) -> str:
        """Write a tree; git wants the names of trees sorted as if a slash were at their end."""
        ordered = sorted(
            items, key=lambda item: os.fsencode(item.name) + (b"/" if item.mode == TREE else b"")
        )
        parts = [
            f"{item.mode} ".encode() + os.fsencode(item.name) + b"\0" + bytes.fromhex(item.id)
            for item in ordered
        ]
        return self._write(b"tree", b"".join(parts))

    def commit(self, tree: str, message: str, parents: Iterable[str] = ()) -> str:
        """Write a commit."""
        lines = [f"tree {tree}".encode(), *(f"parent {parent}".encode() for parent in parents)]
        lines += [b"author " + _AUTHOR, b"committer " + _AUTHOR, b"", message.encode() + b"\n"]
        return self._write(b"commit", b"\n".join(lines))

    def _write(self, kind: bytes, data: bytes) -> str:
        content = kind + b" %d\0" % len(data) + data
        name = hashlib.sha1(content, usedforsecurity=False).hexdigest()
        path = self._objects / name[:2] / name[2:]
        if not path.exists():
            path.parent.mkdir(mode=0o700, exist_ok=True)
            replace_file(path, zlib.compress(content, 1), mode=0o444, synced=False)
        return name
