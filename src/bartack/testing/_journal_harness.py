"""What the journal contract needs around an engine: the engine as seen from outside, and tools for its tests."""

from __future__ import annotations

import asyncio
import select
import threading
from collections.abc import Callable, Iterable
from contextlib import closing
from queue import SimpleQueue
from typing import Protocol, TypeVar

import msgspec

from bartack.core.clock import Clock
from bartack.errors import JournalError
from bartack.journal import BlobRef, Draft, Entry, Journal, JournalReader
from bartack.journal.group import AsyncAppender, GroupCommit
from bartack.testing._clock import VirtualClock

E = TypeVar("E", bound=BaseException)

PATIENCE_S = 60.0
"""How long a test waits for what must happen at once; a busy machine may be slow at it."""


class JournalEngine(Protocol):
    """One journal, as a test sees it from outside: every call means the same journal."""

    def open(self, *, clock: Clock | None = None) -> Journal:
        """Own the journal; the first call makes it."""
        ...

    def open_reader(self) -> JournalReader:
        """Read the journal without owning it."""
        ...

    def steal(self) -> Journal:
        """Own the journal although another owner does, which has lost it from then on."""
        ...

    def break_next_commit(self, journal: Journal) -> None:
        """Make the next commit of this owner fail with an unknown outcome; ``open`` works again afterwards."""
        ...

    def collect(self, keep: Iterable[str] = ()) -> int:
        """Remove the blobs that no entry refers to and that are not in ``keep``; return how many."""
        ...

    def damage_blob(self, ref: BlobRef) -> None:
        """Change a stored blob without the engine."""
        ...

    def remove_blob(self, ref: BlobRef) -> None:
        """Remove a stored blob without the engine."""
        ...

    def close(self) -> None:
        """Remove everything; owners and readers are closed already."""
        ...


class Order(msgspec.Struct):
    """Data of an entry, as a program might define it."""

    table: int
    dish: str


class Pair(msgspec.Struct, array_like=True):
    """A struct that is encoded as an array, which an entry's data must not be."""

    left: int
    right: int


class InterruptingClock:
    """Does something in the middle of the staging that asks it for the time, once."""

    def __init__(self) -> None:
        self.interruption: Callable[[], None] | None = None
        self._clock = VirtualClock()

    def now_us(self) -> int:
        """See ``bartack.core.clock.Clock.now_us``."""
        interruption, self.interruption = self.interruption, None
        if interruption is not None:
            interruption()
        return self._clock.now_us()

    def monotonic_ns(self) -> int:
        """See ``bartack.core.clock.Clock.monotonic_ns``."""
        return self._clock.monotonic_ns()


class Following:
    """A follower in a thread of its own.

    Attributes:
        seen: The entries that came up to the one last waited for.
    """

    def __init__(self, reader: JournalReader, from_seq: int = 1) -> None:
        self.seen: list[Entry] = []
        self._arrived: SimpleQueue[Entry | None] = SimpleQueue()
        self._reader = reader
        self._from_seq = from_seq
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Following:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive(), "the follower did not end"

    def wait_for(self, kind: str) -> None:
        """Wait until an entry of this kind has come."""
        while not self.seen or self.seen[-1].kind != kind:
            entry = self._arrived.get(timeout=PATIENCE_S)
            assert entry is not None, f"the follower ended before {kind!r} came"
            self.seen.append(entry)

    def _run(self) -> None:
        next_seq = self._from_seq
        while not self._ending.is_set():
            for entry in self._reader.follow(next_seq, timeout_s=0.05):
                next_seq = entry.seq + 1
                self._arrived.put(entry)
        self._arrived.put(None)


class Notices:
    """The notifications of the appenders of a ``GroupCommit``, in their order."""

    def __init__(self) -> None:
        self.answers: list[tuple[int, JournalError | None]] = []

    def note(self, number: int, error: JournalError | None) -> None:
        """Appender ``number`` is notified."""
        self.answers.append((number, error))

    def drain(self, group: GroupCommit, wanted: int) -> None:
        """Collect until this number of appenders is notified."""
        while len(self.answers) < wanted:
            ready, _, _ = select.select([group], [], [], PATIENCE_S)
            assert ready, "the writer thread did not finish"
            group.collect()


async def append_from_many_tasks(journal: Journal, tasks: int, times: int) -> dict[tuple[int, int], int]:
    """Append from many tasks at once; return the place of each entry by task and time."""
    appender = AsyncAppender(journal, asyncio.get_running_loop())
    places: dict[tuple[int, int], int] = {}

    async def work(task: int) -> None:
        for time in range(times):
            places[task, time] = await appender.append(Draft("task", {"task": task, "time": time}))

    with closing(appender):
        async with asyncio.TaskGroup() as group:
            for task in range(tasks):
                group.create_task(work(task))
    return places


def start_and_let_run(thread: threading.Thread) -> None:
    """Start a thread and let it finish, or go as far as it gets while the caller stands still."""
    thread.start()
    thread.join(0.05)


def own_kinds(entries: Iterable[Entry]) -> list[str]:
    """The kinds of the entries that are not the engine's own."""
    return [entry.kind for entry in entries if not entry.kind.startswith("journal.")]


def raised(expected: type[E], call: Callable[[], object]) -> E:
    """The error of this type that the call must raise."""
    try:
        call()
    except expected as error:
        return error
    raise AssertionError(f"{expected.__name__} was not raised")
