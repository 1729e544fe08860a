"""The journal in memory: the same promises for as long as its store lives. For tests, and for programs that need no disk.

A ``MemoryStore`` is what a directory is to the file engine: it outlives its owners, and one can be opened after the other.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from bartack.core.clock import Clock, SystemClock
from bartack.core.closing import Closing
from bartack.errors import (
    BlobCorruptError,
    BlobMissingError,
    JournalClosedError,
    JournalLockedError,
    JournalOwnershipLostError,
    JournalPoisonedError,
)
from bartack.journal._format import OPENED, Opened, decode_line, encode_line
from bartack.journal._immediate import ImmediateCommits
from bartack.journal._stage import Group, Stage
from bartack.journal.contract import (
    FORMAT,
    BlobRef,
    Bookmark,
    Draft,
    Entry,
    Loss,
    Recovery,
    check_place,
    load_value,
)
from bartack.journal.veil import Veil


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


class MemoryBlobs:
    """The blobs of a ``MemoryStore``. With a veil the secrets in them are hidden, and given back."""

    def __init__(self, store: MemoryStore, veil: Veil | None = None) -> None:
        self._store = store
        self._veil = veil
        self.check = store.check
        self.collect = store.collect

    def put(self, content: bytes) -> BlobRef:
        """Keep ``content``."""
        return self._store.put(content if self._veil is None else self._veil.hide(content))

    def get(self, ref: BlobRef) -> bytes:
        """The content, checked."""
        content = self._store.get(ref)
        return content if self._veil is None else self._veil.restore(content)


class MemoryJournal(ImmediateCommits, Closing):
    """A journal in memory and its ownership. See ``Journal`` for what it promises.

    Args:
        store: What an earlier owner left; a new one by default.
        take_over: Become the owner even if there is one, which then has lost the journal.
        clock: The time of entries.
        veil: Hides the secrets in what is written, and puts them back into what is read.

    Raises:
        JournalLockedError: The store has an owner.
    """

    def __init__(
        self,
        store: MemoryStore | None = None,
        *,
        take_over: bool = False,
        clock: Clock | None = None,
        veil: Veil | None = None,
    ) -> None:
        self.store = store or MemoryStore()
        self._veil = veil
        self._blobs = MemoryBlobs(self.store, veil)
        with self.store.changed:  # a commit of the owner before this one may be under way
            if self.store.owned and not take_over:
                raise JournalLockedError("memory", os.getpid())
            self.store.owned = True
            self.store.fence += 1
            self.fence = self.store.fence
            self._stage = Stage(self._blobs, clock or SystemClock(), len(self.store.entries), veil)
        self.loss: Loss | None = None
        self._poison: JournalPoisonedError | None = None
        self._closed = False
        self._stage.add_own(OPENED, Opened(format=FORMAT, fence=self.fence, pid=os.getpid(), by="memory"))
        self._keep(self._stage.take())

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

    def stage(self, *drafts: Draft, join: bool = False) -> int:
        """Give drafts their places as one atomic group; return the place of the first. See ``Journal.stage``."""
        self._check_usable()
        return self._stage.add(drafts, join=join)

    def commit(self) -> int:
        """Acknowledge everything staged. See ``Journal.commit``."""
        self._check_usable()
        try:
            self._keep(self._stage.take())
        except JournalOwnershipLostError as error:
            self._poison = error
            raise
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
        entries = self.store.entries[max(from_seq, 1) - 1 : self.synced_seq]
        yield from _restored(entries, self._veil)

    def fetch(self, places: Iterable[int]) -> Iterator[Entry]:
        """The acknowledged entries at these places, which must rise."""
        self._check_open()
        for place in places:
            check_place(place, self.synced_seq)
            yield from _restored([self.store.entries[place - 1]], self._veil)

    def load_value(self, entry: Entry) -> bytes | None:
        """The payload of an entry as encoded JSON, wherever it is kept; ``None`` if it has none."""
        return load_value(self._blobs, entry)

    def put_blob(self, content: bytes) -> BlobRef:
        """Keep a large value."""
        self._check_usable()
        return self._blobs.put(content)

    def get_blob(self, ref: BlobRef) -> bytes:
        """A large value, checked against its checksum."""
        self._check_open()
        return self._blobs.get(ref)

    def close(self) -> None:
        """Release the ownership. What is staged and not committed is dropped."""
        if not self._closed and not self.lost:
            self.store.owned = False
        self._closed = True

    def _keep(self, groups: list[Group]) -> None:
        """Add the entries of one commit to the store.

        Raises:
            JournalOwnershipLostError: It has another owner; nothing is added.
        """
        with self.store.changed:
            if self.lost:
                raise JournalOwnershipLostError("memory", "another owner has taken over")
            for group in groups:
                line, _ = encode_line(group.bodies, group.seq, groups[0].seq, group.at, 0)
                self.store.entries.extend(decode_line(line))
            self.store.changed.notify_all()

    def _check_open(self) -> None:
        if self._closed:
            raise JournalClosedError("memory")

    def _check_usable(self) -> None:
        self._check_open()
        if self._poison is not None:
            raise self._poison.again(self._poison)


class MemoryReader(Closing):
    """Reads a ``MemoryStore`` without owning it. See ``JournalReader`` for what it promises."""

    name = "memory"

    def __init__(self, store: MemoryStore, veil: Veil | None = None) -> None:
        self._store = store
        self._veil = veil
        self._blobs = MemoryBlobs(store, veil)
        self._next = 1
        """How far ``read_on`` has come."""

    def read(self, from_seq: int = 1) -> Iterator[Entry]:
        """The entries that are there now, from ``from_seq`` on, in order."""
        yield from _restored(self._store.entries[max(from_seq, 1) - 1 :], self._veil)

    def read_on(self) -> Iterator[Entry]:
        """The entries that came since the last call of this method; the first time, all of them."""
        for entry in _restored(self._store.entries[self._next - 1 :], self._veil):
            self._next = entry.seq + 1
            yield entry

    def bookmark(self) -> Bookmark:
        """How far ``read_on`` has read."""
        return Bookmark(self._next, 0, 0)

    def read_from(self, bookmark: Bookmark, from_seq: int = 1) -> Iterator[Entry]:
        """The entries after a bookmark that are there now, from ``from_seq`` on, in order."""
        return self.read(max(bookmark.seq, from_seq))

    def check_read(self) -> None:
        """Nothing is ever taken back in memory."""

    def follow(self, from_seq: int = 1, *, timeout_s: float | None = None) -> Iterator[Entry]:
        """Like ``read``, then wait for more; ends when none came for ``timeout_s`` seconds."""
        seen = max(from_seq, 1) - 1

        def has_more() -> bool:
            return len(self._store.entries) > seen

        while True:
            with self._store.changed:
                if not self._store.changed.wait_for(has_more, timeout_s):
                    return
            for entry in _restored(self._store.entries[seen:], self._veil):
                seen = entry.seq
                yield entry

    @property
    def size_bytes(self) -> int:
        """How long its entries are, together."""
        return sum(len(_text_of(entry)) for entry in self._store.entries)

    @property
    def read_bytes(self) -> int:
        """How long the entries are that ``read_on`` has returned."""
        return sum(len(_text_of(entry)) for entry in self._store.entries[: self._next - 1])

    def read_last(self, most: int) -> list[Entry]:
        """The last entries, at most this many, in order."""
        return list(_restored(self._store.entries[-most:] if most else [], self._veil))

    def search(self, texts: Sequence[bytes], found: list[Bookmark] | None = None) -> Iterator[Entry]:
        """The entries that hold one of these texts. See ``JournalReader.search``."""
        for entry in list(self._store.entries):
            line = _text_of(entry)
            if any(text in line for text in texts):
                if found is not None:
                    found.append(Bookmark(entry.seq, 0, 0))
                yield from _restored([entry], self._veil)

    def load_value(self, entry: Entry) -> bytes | None:
        """The payload of an entry as encoded JSON, wherever it is kept; ``None`` if it has none."""
        return load_value(self._blobs, entry)

    def close(self) -> None:
        """Nothing is held."""


def _text_of(entry: Entry) -> bytes:
    """An entry as a line has it; a line ends with a checksum, so that something follows."""
    head = b'"kind":"%b","data":%b' % (entry.kind.encode(), bytes(entry.raw))
    return head + (b"," if entry.value is None else b',"value":%b,' % bytes(entry.value))


def _restored(entries: Iterable[Entry], veil: Veil | None) -> Iterator[Entry]:
    """Entries with the secrets that were hidden in them."""
    if veil is None:
        yield from entries
        return
    for entry in entries:
        value = None if entry.value is None else msgspec.Raw(veil.restore(bytes(entry.value)))
        yield msgspec.structs.replace(entry, raw=msgspec.Raw(veil.restore(bytes(entry.raw))), value=value)
