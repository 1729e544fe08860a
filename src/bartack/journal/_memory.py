"""The journal in memory: the same promises for as long as its store lives. For tests, and for programs that need no disk.

A ``MemoryStore`` is what a directory is to the file engine: it outlives its owners, and one can be opened after the other.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from bartack.core import Clock, Closing, SystemClock
from bartack.errors import (
    BlobCorruptError,
    BlobMissingError,
    JournalClosedError,
    JournalLockedError,
    JournalOwnershipLostError,
    JournalPoisonedError,
)
from bartack.journal._contract import FORMAT, BlobRef, Draft, Entry, Recovery, check_place, load_value
from bartack.journal._format import OPENED, Opened, decode_line, encode_line
from bartack.journal._stage import Stage


class MemoryStore:
    """What a memory journal leaves when it is closed."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.blobs: dict[str, bytes] = {}
        self.fence = 0
        self.owned = False
        self.changed = threading.Condition()

    def put(self, content: bytes) -> BlobRef:
        """Keep ``content``."""
        ref = BlobRef(hashlib.sha256(content).hexdigest(), len(content))
        self.blobs.setdefault(ref.sha256, content)
        return ref

    def get(self, ref: BlobRef) -> bytes:
        """The content, checked."""
        self.check(ref)
        content = self.blobs[ref.sha256]
        if hashlib.sha256(content).hexdigest() != ref.sha256:
            raise BlobCorruptError(ref.sha256, "the content does not match its checksum")
        return content

    def check(self, ref: BlobRef) -> None:
        """Raise unless a blob of this checksum and size is stored."""
        content = self.blobs.get(ref.sha256)
        if content is None:
            raise BlobMissingError(ref.sha256, "memory")
        if len(content) != ref.size:
            raise BlobCorruptError(ref.sha256, f"{len(content)} bytes, expected {ref.size}")

    def collect(self, keep: Iterable[str] = ()) -> int:
        """Remove every blob that no entry refers to and that is not in ``keep``; return how many."""
        if self.owned:
            raise JournalLockedError("memory", os.getpid())
        kept = {entry.ref.sha256 for entry in self.entries if entry.ref is not None} | set(keep)
        gone = [sha256 for sha256 in self.blobs if sha256 not in kept]
        for sha256 in gone:
            del self.blobs[sha256]
        return len(gone)


class MemoryJournal(Closing):
    """A journal in memory and its ownership. See ``Journal`` for what it promises.

    Args:
        store: What an earlier owner left; a new one by default.
        take_over: Become the owner even if there is one, which then has lost the journal.
        clock: The time of entries.

    Raises:
        JournalLockedError: The store has an owner.
    """

    def __init__(
        self, store: MemoryStore | None = None, *, take_over: bool = False, clock: Clock | None = None
    ) -> None:
        self.store = store or MemoryStore()
        if self.store.owned and not take_over:
            raise JournalLockedError("memory", os.getpid())
        self.store.owned = True
        self.store.fence += 1
        self.fence = self.store.fence
        self._stage = Stage(self.store, clock or SystemClock(), len(self.store.entries))
        self._poison: JournalPoisonedError | None = None
        self._closed = False
        self._stage.add_own(OPENED, Opened(format=FORMAT, fence=self.fence, pid=os.getpid(), by="memory"))
        self.commit()

    @property
    def last_seq(self) -> int:
        """Place of the last staged entry."""
        return self._stage.last_seq

    @property
    def synced_seq(self) -> int:
        """Place of the last acknowledged entry."""
        return len(self.store.entries)

    @property
    def lost(self) -> bool:
        """Whether another owner has taken over."""
        return self.store.fence != self.fence

    @property
    def recovery(self) -> Recovery | None:
        """Nothing is ever torn in memory."""
        return None

    def stage(self, *drafts: Draft) -> int:
        """Give drafts their places as one atomic group; return the place of the first. See ``Journal.stage``."""
        self._check_usable()
        return self._stage.add(drafts)

    def commit(self) -> int:
        """Acknowledge everything staged. See ``Journal.commit``."""
        self._check_usable()
        groups = self._stage.take()
        with self.store.changed:
            if self.lost:
                self._poison = JournalOwnershipLostError("memory", "another owner has taken over")
                raise self._poison
            for group in groups:
                line, _ = encode_line(group.bodies, group.seq, groups[0].seq, group.at, 0)
                self.store.entries.extend(decode_line(line))
            self.store.changed.notify_all()
        return self.synced_seq

    def append(
        self, kind: str, data: Mapping[str, object] | msgspec.Struct | None = None, value: bytes | None = None
    ) -> int:
        """Stage one entry and commit; return its place."""
        seq = self.stage(Draft(kind, {} if data is None else data, value))
        self.commit()
        return seq

    def poison(self, problem: str) -> None:
        """Behave as after a commit with an unknown outcome: what is staged may be gone, and nothing more is taken."""
        self._stage.take()
        self._poison = JournalPoisonedError("memory", problem)

    def read(self, from_seq: int = 1) -> Iterator[Entry]:
        """The acknowledged entries from ``from_seq`` on, in order; a copy of what is there at the first step."""
        self._check_open()
        yield from self.store.entries[max(from_seq, 1) - 1 :]

    def fetch(self, places: Iterable[int]) -> Iterator[Entry]:
        """The acknowledged entries at these places, which must rise."""
        self._check_open()
        for place in places:
            check_place(place, self.synced_seq)
            yield self.store.entries[place - 1]

    def load_value(self, entry: Entry) -> bytes | None:
        """The payload of an entry as encoded JSON, wherever it is kept; ``None`` if it has none."""
        return load_value(self.store, entry)

    def put_blob(self, content: bytes) -> BlobRef:
        """Keep a large value."""
        self._check_usable()
        return self.store.put(content)

    def get_blob(self, ref: BlobRef) -> bytes:
        """A large value, checked against its checksum."""
        self._check_open()
        return self.store.get(ref)

    def close(self) -> None:
        """Release the ownership. What is staged and not committed is dropped."""
        if not self._closed and not self.lost:
            self.store.owned = False
        self._closed = True

    def _check_open(self) -> None:
        if self._closed:
            raise JournalClosedError("memory")

    def _check_usable(self) -> None:
        self._check_open()
        if self._poison is not None:
            raise self._poison.again(self._poison)


class MemoryReader(Closing):
    """Reads a ``MemoryStore`` without owning it. See ``JournalReader`` for what it promises."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store

    def read(self, from_seq: int = 1) -> Iterator[Entry]:
        """The entries that are there now, from ``from_seq`` on, in order."""
        yield from self._store.entries[max(from_seq, 1) - 1 :]

    def follow(self, from_seq: int = 1, *, timeout_s: float | None = None) -> Iterator[Entry]:
        """Like ``read``, then wait for more; ends when none came for ``timeout_s`` seconds."""
        seen = max(from_seq, 1) - 1

        def has_more() -> bool:
            return len(self._store.entries) > seen

        while True:
            with self._store.changed:
                if not self._store.changed.wait_for(has_more, timeout_s):
                    return
            for entry in self._store.entries[seen:]:
                seen = entry.seq
                yield entry

    def load_value(self, entry: Entry) -> bytes | None:
        """The payload of an entry as encoded JSON, wherever it is kept; ``None`` if it has none."""
        return load_value(self._store, entry)

    def close(self) -> None:
        """Nothing is held."""
