"""Tracked patterns and where they came from, from the lineage database of the user. It is read in a thread."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from bartack.core.user_home import user_home
from bartack.errors import LineageMissingError
from bartack.tracking import LineageStore
from bartack.web._threads import in_thread

T = TypeVar("T")


def lineage_path() -> Path:
    """Where the lineage database is."""
    return user_home() / "lineage.db"


async def ask_lineage(question: Callable[[LineageStore], T]) -> T:
    """Ask the lineage database.

    Raises:
        LineageMissingError: There is none.
        LineageError: It cannot answer.
    """

    def ask() -> T:
        path = lineage_path()
        if not path.exists():
            raise LineageMissingError(str(path))
        with LineageStore(path, read_only=True) as store:
            return question(store)

    return await in_thread(ask)
