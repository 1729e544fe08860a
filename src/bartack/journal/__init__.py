"""The append-only truth of a run: what is acknowledged is never lost, and never changed.

``open_journal`` owns the journal in a directory, ``open_reader`` reads or follows one that another process may own.
``Journal`` is their contract; ``bartack.testing.JournalContract`` checks it on any engine.

Read ``contract.py`` (what is promised), ``_format.py`` (what a line is, and how torn is distinguished from damaged), then
``_file.py`` (the order of writes and syncs that everything rests on). In the tree, the file engine is imported from ``file.py``,
which only the depot may do; its names are here for users of the package.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bartack._lazy import lazy

if TYPE_CHECKING:
    from bartack.journal.contract import (
        FORMAT,
        BlobRef,
        Blobs,
        Bookmark,
        Draft,
        Durability,
        Entry,
        Journal,
        JournalReader,
        Loss,
        Recovery,
        wait_for_commit,
    )
    from bartack.journal.file import (
        FileJournal,
        FileReader,
        JournalDamage,
        JournalReport,
        open_blobs,
        open_journal,
        open_reader,
        verify_journal,
    )
    from bartack.journal.memory import MemoryJournal

__all__ = [
    "FORMAT",
    "BlobRef",
    "Blobs",
    "Bookmark",
    "Draft",
    "Durability",
    "Entry",
    "FileJournal",
    "FileReader",
    "Journal",
    "JournalDamage",
    "JournalReader",
    "JournalReport",
    "Loss",
    "MemoryJournal",
    "Recovery",
    "open_blobs",
    "open_journal",
    "open_reader",
    "verify_journal",
    "wait_for_commit",
]

__getattr__, __dir__ = lazy(
    __name__,
    {
        "contract": "BlobRef Blobs Bookmark Draft Durability Entry FORMAT Journal JournalReader Loss Recovery wait_for_commit",
        "file": "FileJournal FileReader JournalDamage JournalReport open_blobs open_journal open_reader verify_journal",
        "memory": "MemoryJournal",
    },
)
