"""What a journal is, whatever keeps it: the values that go in and come out, and the promises of an engine.

An engine keeps these promises, and ``bartack.testing.JournalContract`` checks each of them on every engine:

- an entry that ``commit`` acknowledged is there, unchanged and in its place, whenever the journal is opened again;
- the entries of one draft list are all there or none;
- there is one owner at a time, and one that lost its ownership acknowledges nothing more;
- a commit that fails leaves an unknown outcome, so it poisons the journal: the owner opens it again and looks.

A commit has two halves, so that an engine may need time for it while its owner works on: ``start_commit`` takes what is staged,
``finish_commit`` acknowledges it. The file engine needs no time in between, and its ``fileno`` is ``None``. ``commit`` is both
halves, with the wait between them.

Read ``_file.py`` next for the engine of a run's directory.
"""

from __future__ import annotations

import select
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Literal, NamedTuple, Protocol, Self, TypeVar

import msgspec

from bartack.core import typed

T = TypeVar("T")

Durability = Literal["power", "process"]
"""``power``: an acknowledged entry survives a power cut. ``process``: it survives the death of every process, no more."""

FORMAT = 1
"""The format this version writes. Older ones are read, newer ones refused."""

INLINE_LIMIT = 64 * 1024
"""Values longer than this are kept as blobs."""

DATA_LIMIT = 1024 * 1024
"""The longest encoded ``data`` of one entry."""


class BlobRef(msgspec.Struct, frozen=True):
    """A large value by its content: 64 hex digits of SHA-256, and its size in bytes."""

    sha256: str
    size: int


class Draft(msgspec.Struct, frozen=True, gc=False):
    """An entry before it has its place.

    ``data`` is the small part that is always in the entry itself. ``value`` is the payload, as encoded JSON: the engine keeps
    it in the entry or, when it is long, as a blob. ``ref`` names a blob that is stored already; it excludes ``value``.
    """

    kind: str
    data: Mapping[str, object] | msgspec.Struct = msgspec.field(default_factory=dict[str, object])
    value: bytes | None = None
    ref: BlobRef | None = None
    sound: bool = False
    """The caller guarantees that all of it is JSON: it was encoded there, or checked when it came in."""


class Entry(msgspec.Struct, frozen=True, gc=False):
    """One entry, as it was acknowledged."""

    seq: int
    """Place in the journal, from 1, without gaps."""
    commit: int
    """``seq`` of the first entry that was made durable together with this one."""
    at: int
    """When it was staged: microseconds since 1970, UTC."""
    kind: str
    raw: msgspec.Raw
    """``data`` as encoded JSON."""
    value: msgspec.Raw | None = None
    """The payload, if it is kept in the entry. ``Journal.load_value`` also finds those that are not."""
    ref: BlobRef | None = None

    @property
    def data(self) -> dict[str, object]:
        """The small part, decoded."""
        return typed.decode(self.raw, type=dict[str, object])

    def decode(self, type_: type[T]) -> T:
        """The small part as a value of ``type_``."""
        return typed.decode(self.raw, type=type_)


class Bookmark(NamedTuple):
    """A place of a journal to begin reading at: before the entry ``seq``.

    Only the engine that made it understands the rest. In a file, the line at ``offset`` begins with that entry, and the CRC of that
    line is seeded with ``crc``.
    """

    seq: int
    offset: int
    crc: int


class Recovery(msgspec.Struct, frozen=True):
    """What opening a journal had to cut off: a line that was being written when its owner died."""

    seq: int
    """The place the cut entry would have had."""
    offset: int
    size_bytes: int
    kept_as: str
    """Where the cut bytes are."""


class Loss(msgspec.Struct, frozen=True):
    """Acknowledged entries that a journal was opened without, because that was accepted."""

    held: int
    """The last entry that is left."""
    acknowledged: int
    """The last entry that is known to have been there."""
    kept_as: str
    """A copy of the journal as it was found."""


class JournalReader(Protocol):
    """Reads a journal that another process may own. Takes no lock and changes nothing.

    Attributes:
        name: What errors call the journal.
        size_bytes: About how long it is now.
        read_bytes: How much of that ``read_on`` has read.
    """

    @property
    def name(self) -> str:
        """See above."""
        ...

    @property
    def size_bytes(self) -> int:
        """See above."""
        ...

    @property
    def read_bytes(self) -> int:
        """See above."""
        ...

    def read(self, from_seq: int = 1) -> Iterator[Entry]:
        """The entries that are there now, from ``from_seq`` on, in order."""
        ...

    def follow(self, from_seq: int = 1, *, timeout_s: float | None = None) -> Iterator[Entry]:
        """Like ``read``, then wait for more; ends when none came for ``timeout_s`` seconds.

        A follower sees entries as soon as they are written. A power cut may take back those that were not yet synced; a
        follower that has seen such an entry ends with ``JournalOwnershipLostError``.
        """
        ...

    def read_on(self) -> Iterator[Entry]:
        """The entries that came since the last call of this method; the first time, all of them."""
        ...

    def bookmark(self) -> Bookmark:
        """How far ``read_on`` has read: every entry before this place was read from the journal, if not yet returned."""
        ...

    def read_from(self, bookmark: Bookmark, from_seq: int = 1) -> Iterator[Entry]:
        """The entries after a bookmark that are there now, from ``from_seq`` on, in order. What is before it is not read.

        The checks that connect each entry with the one before continue from the bookmark. So only entries of the history that the
        bookmark was made in are returned.

        Raises:
            JournalOwnershipLostError: The journal does not hold the entry before the bookmark any longer.
        """
        ...

    def check_read(self) -> None:
        """Raise unless the last entry that ``read_on`` has returned is still in the journal.

        Raises:
            JournalOwnershipLostError: It was taken back, or the journal was deleted or replaced.
        """
        ...

    def read_last(self, most: int) -> list[Entry]:
        """The last entries, at most this many, in order; what is before them is not read."""
        ...

    def search(self, texts: Sequence[bytes], found: list[Bookmark] | None = None) -> Iterator[Entry]:
        """The entries that hold one of these texts, byte for byte as they are stored, in order. Others may be among them.

        It is for finding a few entries of a long journal: entries without such a text need not be decoded or checked.

        Args:
            texts: The texts. None of them spans two entries.
            found: Gets bookmarks, so that the last one before an entry that is returned is not far from it.

        Raises:
            JournalCorruptError: An entry that holds one of the texts is damaged.
        """
        ...

    def load_value(self, entry: Entry) -> bytes | None:
        """The payload of an entry as encoded JSON, wherever it is kept; ``None`` if it has none."""
        ...

    def close(self) -> None:
        """Release the journal."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class Journal(Protocol):
    """An open journal and its ownership. One thread stages; one thread at a time commits, and one commit is under way at a time.

    Attributes:
        fence: Number of this ownership, from 1. Appends of an earlier owner are refused.
        last_seq: Place of the last staged entry.
        synced_seq: Place of the last acknowledged entry.
        lost: Whether the ownership is known to be gone.
        recovery: What had to be cut off when it was opened, if anything.
        loss: The acknowledged entries that it was opened without, if any are missing and that was accepted.
    """

    @property
    def fence(self) -> int:
        """See above."""
        ...

    @property
    def last_seq(self) -> int:
        """See above."""
        ...

    @property
    def synced_seq(self) -> int:
        """See above."""
        ...

    @property
    def lost(self) -> bool:
        """See above."""
        ...

    @property
    def recovery(self) -> Recovery | None:
        """See above."""
        ...

    @property
    def loss(self) -> Loss | None:
        """See above."""
        ...

    def stage(self, *drafts: Draft, join: bool = False) -> int:
        """Give drafts their places, one after the other, as one atomic group; return the place of the first.

        Nothing is durable before the next ``commit``. With ``join`` they belong to the group that was staged last, for which no
        commit has begun: that group is there with them, or not at all.

        Raises:
            EntryError: A draft cannot be kept, or no group is staged that these could join. Nothing was staged.
        """
        ...

    def commit(self) -> int:
        """Make everything staged durable, with one write and one sync; return the place of the last entry.

        A commit that is under way is finished first.

        Raises:
            JournalPoisonedError: It is unknown whether the staged entries are durable. The journal takes no more.
        """
        ...

    def start_commit(self) -> None:
        """Begin to make everything staged so far durable. What is staged from here on belongs to the next commit.

        The caller finishes this commit before it starts the next one.

        Raises:
            JournalPoisonedError: See ``commit``.
        """
        ...

    def fileno(self) -> int | None:
        """A descriptor that can be read when a started commit can be finished; ``None``: it can be finished at once, always."""
        ...

    def finish_commit(self) -> bool:
        """Acknowledge the entries of the started commit, without waiting; ``False`` if it is not known yet what became of them.

        Raises:
            JournalPoisonedError: See ``commit``. What was staged after the start of the commit is lost, too.
        """
        ...

    def append(
        self, kind: str, data: Mapping[str, object] | msgspec.Struct | None = None, value: bytes | None = None
    ) -> int:
        """Stage one entry and commit."""
        ...

    def read(self, from_seq: int = 1) -> Iterator[Entry]:
        """The acknowledged entries from ``from_seq`` on, in order."""
        ...

    def fetch(self, places: Iterable[int]) -> Iterator[Entry]:
        """The acknowledged entries at these places, which must rise.

        Raises:
            ValueError: No entry is acknowledged at such a place.
        """
        ...

    def load_value(self, entry: Entry) -> bytes | None:
        """The payload of an entry as encoded JSON, wherever it is kept; ``None`` if it has none."""
        ...

    def put_blob(self, content: bytes) -> BlobRef:
        """Keep a large value; durable when it returns. The same content is kept once."""
        ...

    def get_blob(self, ref: BlobRef) -> bytes:
        """A large value, checked against its checksum."""
        ...

    def close(self) -> None:
        """Release the ownership. What is staged and not committed is dropped; a commit under way is there whole or not at all."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class Blobs(Protocol):
    """The large values of one run, for processes that do not own its journal: its workers and its clients."""

    def put(self, content: bytes) -> BlobRef:
        """Keep ``content``, so that an entry can refer to it. It is durable at the latest when such an entry is."""
        ...

    def get(self, ref: BlobRef) -> bytes:
        """The content, checked."""
        ...


class BlobStore(Blobs, Protocol):
    """Where an engine keeps large values. Here they are durable when ``put`` returns."""

    def check(self, ref: BlobRef) -> None:
        """Raise unless a blob of this checksum and size is stored."""
        ...

    def collect(self, keep: Iterable[str]) -> int:
        """Remove every blob whose checksum is not in ``keep``; return how many."""
        ...


Group = Sequence[Draft]


def check_place(place: int, last: int) -> None:
    """Raise unless an acknowledged entry has this place."""
    if not 1 <= place <= last:
        raise ValueError(f"no entry {place} is acknowledged; the last one is {last}")


def wait_for_commit(journal: Journal) -> None:
    """Wait for the end of the commit that is under way, and finish it. An engine that gives up raises, and ends the wait."""
    fd = journal.fileno()
    poll = select.poll()
    if fd is not None:
        poll.register(fd, select.POLLIN)
    while not journal.finish_commit():
        poll.poll()  # bartack: allow[wait_without_deadline] what it waits for is one commit


def load_value(blobs: BlobStore, entry: Entry) -> bytes | None:
    """The payload of an entry as encoded JSON, in the entry or among the blobs; ``None`` if it has none."""
    if entry.value is not None:
        return bytes(entry.value)
    return None if entry.ref is None else blobs.get(entry.ref)
