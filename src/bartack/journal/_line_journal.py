"""What the journals of lines have in common, wherever a commit of them goes: reading them, and how an entry is appended.

``_file.py`` syncs its lines on a disk; ``shared.py`` has them carried away and keeps a copy.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping

import msgspec

from bartack.core.closing import Closing
from bartack.errors import JournalPoisonedError
from bartack.journal._line_file import LineFile
from bartack.journal._stage import Stage
from bartack.journal.contract import BlobRef, BlobStore, Draft, Entry, load_value


class LineJournal(Closing):
    """A journal whose lines are in a file of this machine.

    Attributes:
        synced_seq: Place of the last acknowledged entry.
    """

    synced_seq: int
    _file: LineFile
    _stage: Stage
    _poison: JournalPoisonedError | None

    @property
    @abstractmethod
    def _stored(self) -> BlobStore:
        """Where its large values are."""

    @abstractmethod
    def stage(self, *drafts: Draft, join: bool = False) -> int:
        """See ``Journal.stage``."""

    @abstractmethod
    def commit(self) -> int:
        """See ``Journal.commit``."""

    @property
    def size_bytes(self) -> int:
        """Length of the acknowledged part of the file; blank lines may follow."""
        return self._file.size_bytes

    @property
    def last_seq(self) -> int:
        """Place of the last staged entry."""
        return self._stage.last_seq

    def append(
        self, kind: str, data: Mapping[str, object] | msgspec.Struct | None = None, value: bytes | None = None
    ) -> int:
        """Stage one entry and commit; return its place."""
        seq = self.stage(Draft(kind, {} if data is None else data, value))
        self.commit()
        return seq

    def read(self, from_seq: int = 1) -> Iterator[Entry]:
        """The acknowledged entries from ``from_seq`` on, in order; a copy of what is there at the first step."""
        self._file.check_open()
        yield from self._file.read(from_seq)

    def fetch(self, places: Iterable[int]) -> Iterator[Entry]:
        """The acknowledged entries at these places, which must rise; reads only the parts of the file they are in."""
        self._file.check_open()
        yield from self._file.fetch(places, self.synced_seq)

    def load_value(self, entry: Entry) -> bytes | None:
        """The payload of an entry as encoded JSON, wherever it is kept; ``None`` if it has none."""
        return load_value(self._stored, entry)

    def get_blob(self, ref: BlobRef) -> bytes:
        """A large value, checked against its checksum."""
        self._file.check_open()
        return self._stored.get(ref)

    def _check_usable(self) -> None:
        self._file.check_open()
        if self._poison is not None:
            raise self._poison.again(self._poison)


def also_refs(each: Callable[[Entry], None] | None, refs: dict[BlobRef, None]) -> Callable[[Entry], None]:
    """Note the large values that entries refer to, on their way to ``each``."""

    def take(entry: Entry) -> None:
        if entry.ref is not None:
            refs[entry.ref] = None
        if each is not None:
            each(entry)

    return take
