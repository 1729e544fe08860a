"""Follows a run from outside: reads its journal in slices, keeps its spans, and notices what becomes of the file.

There is no thread and no event loop in it. A caller with a loop registers ``fileno`` and, when it is readable, calls ``wait(0)``
and ``read``. A caller without one calls ``wait`` and ``read``. Both call ``read`` again as long as it returns ``True``. The spans
themselves are in ``state/spans/spans.py``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final, Literal

import msgspec

from bartack.core.closing import Closing
from bartack.core.watch import Watch
from bartack.depot import KeptRun
from bartack.errors import (
    BartackError,
    FileAccessError,
    JournalCorruptError,
    JournalError,
    JournalFormatError,
    JournalLostError,
    JournalNotFoundError,
    JournalOwnershipLostError,
)
from bartack.journal import Entry, JournalReader
from bartack.runtime.state.spans.spans import Spans

SLICE_S: Final = 0.010
"""How long one call of ``read`` takes, about."""
LOOKED: Final = 64
"""After this many entries the clock is looked at."""
TAIL: Final = 200
"""How many of the last entries are shown while a journal is being read."""

FollowState = Literal["building", "current", "damaged", "newer", "deleted"]
"""How far a follower is.

``building``: it has not read all yet. ``current``: it has read all that there is. ``damaged``: the journal cannot be read after
some place; the entries before it are in the spans. ``newer``: a newer version wrote it. ``deleted``: it is gone, and the spans hold
what was read before.
"""


class RunFollower(Closing):
    """One run that is watched; made without reading anything.

    Attributes:
        run: The run.
        spans: What its journal adds up to, as far as it was read.
        state: How far that is.
        problem: Why it cannot read further, if it cannot.
        generation: How often it started anew, because a power cut or another program took entries back that it had read. Rows of
            ``spans`` mean nothing across generations.

    Args:
        run: The run.
        each: Is called with each entry after the spans have it.
        anew: Is called when a new generation begins: all entries come again.
        watch: Opens the watch on it; that of the run by default.
        clock: The time that slices are measured with.
    """

    def __init__(
        self,
        run: KeptRun,
        *,
        each: Callable[[Entry], None] | None = None,
        anew: Callable[[], None] | None = None,
        watch: Callable[[], Watch] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.run = run
        self.spans = Spans()
        self.state: FollowState = "building"
        self.problem: BartackError | None = None
        self.generation = 0
        self._each = each
        self._anew = anew
        self._open_watch = run.watch if watch is None else watch
        self._clock = clock
        self._watch: Watch | None = None
        self._reader: JournalReader | None = None
        self._entries: Iterator[Entry] | None = None
        self._is_stuck = False
        """Whether an entry could not be added: then nothing that follows it can be."""

    # Following.

    def read(self, slice_s: float = SLICE_S) -> bool:
        """Read what is new, for about this long; returns whether there is more to read now.

        It raises for no state of the journal: ``state`` and ``problem`` say what was found.
        """
        end = self._clock() + slice_s
        try:
            while self._read_some():
                if self._clock() >= end:
                    return True
        except (JournalLostError, JournalOwnershipLostError) as problem:
            return self._start_anew(problem)
        except (JournalError, FileAccessError) as problem:
            self._stop(problem)
        return False

    def read_all(self) -> None:
        """Read all that there is now."""
        while self.read():
            pass

    def check(self) -> None:
        """Raise if the journal cannot be read further.

        Raises:
            JournalError: It is damaged, gone, or of a newer version.
            FileAccessError: The operating system refused.
        """
        if self.problem is not None and self.state not in {"building", "current"}:
            raise self.problem

    def wait(self, timeout_s: float | None) -> bool:
        """Wait until something of the run changes; ``False`` if nothing does in this time.

        Changes since the first call of ``read``, or since the last call of this method, count. It does not wait for a run that is
        gone.
        """
        watch = self._watching()
        try:
            return False if watch is None else watch.wait(timeout_s)
        except FileNotFoundError:
            self._close_watch()
            return False

    def fileno(self) -> int | None:
        """A descriptor that is readable when ``wait`` would return at once, if there is one; ``wait(0)`` resets it."""
        watch = self._watching()
        return None if watch is None else watch.fileno()

    @property
    def built(self) -> float:
        """Which part of the journal was read, from 0 to 1."""
        if self.state != "building":
            return 1.0
        if self._reader is None:
            return 0.0
        try:
            size = self._reader.size_bytes
        except (BartackError, OSError):
            return 0.0
        return min(self._reader.read_bytes / size, 1.0) if size else 0.0

    @property
    def unread_bytes(self) -> int:
        """About how much of the journal is still to be read; 0 before it was opened."""
        if self.state != "building" or self._reader is None:
            return 0
        try:
            return max(self._reader.size_bytes - self._reader.read_bytes, 0)
        except (BartackError, OSError):
            return 0

    # Entries and values.

    def entries(self, from_seq: int, most: int) -> list[Entry]:
        """The entries from a place on, at most this many, as far as the spans have them; read from the bookmark before it.

        Raises:
            JournalError: The journal cannot be read there any longer.
        """
        last = min(from_seq + most - 1, self.spans.last_seq)
        if self._reader is None or last < from_seq:
            return []
        place = self.spans.bookmark(max(from_seq, 1))
        found = self._reader.read_from(place, max(from_seq, 1))
        return list(islice(found, last - max(from_seq, 1) + 1))

    def entry(self, seq: int) -> Entry | None:
        """The entry at a place, if the spans have it."""
        return next(iter(self.entries(seq, 1)), None) if seq >= 1 else None

    def value(self, seq: int) -> bytes | None:
        """The value of an entry as encoded JSON, wherever it is kept; ``None`` if it has none.

        Raises:
            JournalError: The journal cannot be read there any longer, or the file of the value is missing or damaged.
        """
        entry = self.entry(seq)
        return None if entry is None or self._reader is None else self._reader.load_value(entry)

    def load(self, entry: Entry) -> bytes | None:
        """The value of an entry that was read, as encoded JSON, wherever it is kept; ``None`` if it has none.

        Raises:
            JournalError: The file of the value is missing or damaged.
        """
        return None if self._reader is None else self._reader.load_value(entry)

    def tail(self, most: int = TAIL) -> list[Entry]:
        """The last entries of the journal, also while the rest is still being read.

        Raises:
            JournalError: The end of the journal cannot be read.
        """
        return [] if self._reader is None else self._reader.read_last(most)

    def close(self) -> None:
        """Close the journal and the watch."""
        self._entries = None
        if self._reader is not None:
            self._reader.close()
            self._reader = None
        self._close_watch()

    # Inside.

    def _read_some(self) -> bool:
        """Read a few entries; returns whether there may be more."""
        reader = self._reader
        if reader is not None and self._is_stuck:
            reader.check_read()
            return False
        if reader is None:
            # The watch comes first: whatever is written after the journal was read is a change.
            self._watching()
            reader = self._reader = self.run.open_reader()
            if self.spans.last_seq:
                self._forget()
        if self._entries is None:
            self._entries = reader.read_on()
        count = 0
        for entry in islice(self._entries, LOOKED):
            self._add(reader, entry)
            count += 1
            if self._each is not None:
                self._each(entry)
        self.spans.keep(reader.bookmark())
        if count == LOOKED:
            return True
        self._entries = None
        reader.check_read()
        self.state, self.problem = "current", None
        return False

    def _add(self, reader: JournalReader, entry: Entry) -> None:
        try:
            self.spans.add(entry)
        except (msgspec.DecodeError, LookupError, ValueError, AssertionError) as error:
            # Whatever the checksums say, no hub wrote this: nothing after it means anything.
            self._is_stuck = True
            problem = f"entry {entry.seq} ({entry.kind}) does not fit those before it: {error}"
            raise JournalCorruptError(reader.name, reader.bookmark().offset, problem) from error

    def _start_anew(self, problem: JournalError) -> bool:
        """Entries that were read are not there any longer: read the journal that is there now, if one is."""
        if self._reader is not None:
            self._reader.close()
        self._reader = self._entries = None
        try:
            self.run.open_reader().close()
        except (JournalError, FileAccessError) as gone:
            self._stop(gone)
            return False
        self._forget()
        self.problem = problem
        return True

    def _forget(self) -> None:
        """Begin a new generation: the journal is not the one that was read."""
        self.spans = Spans()
        self.state, self.problem = "building", None
        self.generation += 1
        self._is_stuck = False
        if self._anew is not None:
            self._anew()

    def _stop(self, problem: BartackError) -> None:
        self._entries = None
        self.problem = problem
        if isinstance(problem, JournalFormatError):
            self.state = "newer"
            if self._reader is not None:
                # Its lines mean nothing to this version: the next look begins with the first one again.
                self._reader.close()
                self._reader = None
        elif isinstance(problem, JournalNotFoundError):
            self.state = "deleted"
        else:
            self.state = "damaged"

    def _close_watch(self) -> None:
        if self._watch is not None:
            self._watch.close()
            self._watch = None

    def _watching(self) -> Watch | None:
        if self._watch is None:
            try:
                self._watch = self._open_watch()
            except OSError:
                return None  # the run is gone: reading shows that
        return self._watch
