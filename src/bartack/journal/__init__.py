"""The append-only truth of a run: what is acknowledged is never lost, and never changed.

``open_journal`` owns the journal in a directory, ``open_reader`` reads or follows one that another process may own.
``Journal`` is their contract; ``bartack.testing.JournalContract`` checks it on any engine.

Read ``_contract.py`` (what is promised), ``_format.py`` (what a line is, and how torn is distinguished from damaged), then
``_file.py`` (the order of writes and syncs that everything rests on).
"""

from bartack.journal._blobs import FileBlobs
from bartack.journal._contract import (
    FORMAT,
    INLINE_LIMIT,
    BlobRef,
    Draft,
    Durability,
    Entry,
    Journal,
    JournalReader,
    Loss,
    Recovery,
)
from bartack.journal._file import FileJournal, open_journal
from bartack.journal._group import AsyncAppender, GroupCommit
from bartack.journal._memory import MemoryJournal, MemoryReader, MemoryStore
from bartack.journal._reader import FileReader, check_beginning, open_reader
from bartack.journal._shared import DROP, RUN_GROUPS, SHARED_DIR, SHARED_FILE, open_blobs, share
from bartack.journal._veil import Secrets, Veil, find_secrets, is_veiled
from bartack.journal._verify import JournalDamage, JournalReport, check_kept, collect_blobs, verify_journal

__all__ = [
    "DROP",
    "FORMAT",
    "INLINE_LIMIT",
    "RUN_GROUPS",
    "SHARED_DIR",
    "SHARED_FILE",
    "AsyncAppender",
    "BlobRef",
    "Draft",
    "Durability",
    "Entry",
    "FileBlobs",
    "FileJournal",
    "FileReader",
    "GroupCommit",
    "Journal",
    "JournalDamage",
    "JournalReader",
    "JournalReport",
    "Loss",
    "MemoryJournal",
    "MemoryReader",
    "MemoryStore",
    "Recovery",
    "Secrets",
    "Veil",
    "check_beginning",
    "check_kept",
    "collect_blobs",
    "find_secrets",
    "is_veiled",
    "open_blobs",
    "open_journal",
    "open_reader",
    "share",
    "verify_journal",
]
