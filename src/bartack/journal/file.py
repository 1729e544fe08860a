"""The file engine: journals in directories. Users of the package find its names in ``bartack.journal``.

In the tree only ``bartack.depot`` imports this door, so that nothing above it depends on where a journal is kept. The few modules
that are about journal files as such are named in the contract of import-linter.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bartack._lazy import lazy

if TYPE_CHECKING:
    from bartack.journal._blobs import FileBlobs
    from bartack.journal._file import FileJournal, open_journal
    from bartack.journal._line_file import JOURNAL_FILE
    from bartack.journal._lock import LOCK_FILE
    from bartack.journal._reader import FileReader, check_beginning, open_reader
    from bartack.journal._shared import BLOBS, DROP, open_blobs
    from bartack.journal._verify import (
        JournalDamage,
        JournalReport,
        check_kept,
        collect_blobs,
        verify_journal,
    )

__all__ = [
    "BLOBS",
    "DROP",
    "JOURNAL_FILE",
    "LOCK_FILE",
    "FileBlobs",
    "FileJournal",
    "FileReader",
    "JournalDamage",
    "JournalReport",
    "check_beginning",
    "check_kept",
    "collect_blobs",
    "open_blobs",
    "open_journal",
    "open_reader",
    "verify_journal",
]

__getattr__, __dir__ = lazy(
    __name__,
    {
        "._blobs": "FileBlobs",
        "._file": "FileJournal open_journal",
        "._line_file": "JOURNAL_FILE",
        "._lock": "LOCK_FILE",
        "._reader": "FileReader check_beginning open_reader",
        "._shared": "BLOBS DROP open_blobs",
        "._verify": "JournalDamage JournalReport check_kept collect_blobs verify_journal",
    },
)
