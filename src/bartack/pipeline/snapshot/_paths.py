"""Paths for people: as text, and the first of many."""

from __future__ import annotations

from collections.abc import Sequence


def path_text(path: bytes) -> str:
    """A path as text, whatever its bytes are."""
    return path.decode("utf-8", "backslashreplace")


def first_paths(paths: Sequence[str], most: int = 10) -> str:
    """The first of some paths, and how many more there are."""
    more = f" and {len(paths) - most} more" if len(paths) > most else ""
    return ", ".join(paths[:most]) + more
