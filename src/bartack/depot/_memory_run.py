"""A run that is gone with its process, for tests and simulations. See ``KeptRun`` for what it promises."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager

import msgspec

from bartack.core import typed
from bartack.core.clock import Clock, SystemClock
from bartack.core.closing import Closing
from bartack.core.watch import Watch, WatchKind
from bartack.errors import JournalLostError, JournalNotFoundError
from bartack.journal import Draft, Durability, Entry, Loss, MemoryJournal
from bartack.journal.memory import MemoryBlobs, MemoryReader, MemoryStore
from bartack.journal.veil import Veil
from bartack.telemetry import NO_TELEMETRY, Telemetry


class MemoryWatch(Closing):
    """Waits until it is woken."""

    kind: WatchKind = "poll"

    def __init__(self) -> None:
        self.changed = threading.Event()

    def wait(self, timeout_s: float | None) -> bool:
        """See ``Watch.wait``."""
        found = self.changed.wait(timeout_s)
        self.changed.clear()
        return found

    def fileno(self) -> int | None:
        """There is none."""
        return None

    def close(self) -> None:
        """End the watch."""
        self.changed.set()


class _Marked(msgspec.Struct):
    seq: int = 0


class _WatchedJournal(MemoryJournal):
    """Wakes those that watch the run after each commit."""

    def __init__(self, run: MemoryRun, clock: Clock | None = None, veil: Veil | None = None) -> None:
        self._run = run
        super().__init__(run.store, clock=clock, veil=veil)

    def commit(self) -> int:
        """See ``Journal.commit``."""
        done = super().commit()
        self._run.wake()
        return done


class MemoryRun:
    """See ``KeptRun``. A test that stands in for a hub sets ``has_hub``.

    Attributes:
        id: Its id.
        store: Its journal and its large values.
        has_hub: Whether a hub runs it.
    """

    def __init__(self, run_id: str) -> None:
        self.id = run_id
        self.store = MemoryStore()
        self.has_hub = False
        self._summary: bytes | None = None
        self._alive_us: int | None = None
        self._watches: list[MemoryWatch] = []

    def exists(self) -> bool:
        """See ``KeptRun.exists``."""
        return bool(self.store.entries)

    def check_readable(self) -> None:
        """See ``KeptRun.check_readable``."""
        if not self.exists():
            raise JournalNotFoundError(self.id)

    def open_reader(self, *, veil: Veil | None = None) -> MemoryReader:
        """See ``KeptRun.open_reader``."""
        self.check_readable()
        return MemoryReader(self.store, veil)

    def open_blobs(self, *, veil: Veil | None = None) -> MemoryBlobs:
        """See ``KeptRun.open_blobs``."""
        return MemoryBlobs(self.store, veil)

    def blob_port(self) -> str:
        """See ``KeptRun.blob_port``: a run in memory has no other processes."""
        return ""

    def summary(self) -> bytes | None:
        """See ``KeptRun.summary``."""
        return self._summary

    def watch(self) -> Watch:
        """See ``KeptRun.watch``."""
        watch = MemoryWatch()
        self._watches.append(watch)
        return watch

    def is_active(self) -> bool:
        """See ``KeptRun.is_active``."""
        return self.has_hub

    def owner_pid(self) -> int:
        """See ``KeptRun.owner_pid``: the owner is not a process of its own."""
        return 0

    def last_sign_of_life_us(self) -> int | None:
        """See ``KeptRun.last_sign_of_life_us``."""
        return self._alive_us

    def create(
        self,
        first: Iterable[Sequence[Draft]],
        *,
        durability: Durability = "power",
        clock: Clock | None = None,
        veil: Veil | None = None,
        alive_us: int | None = None,
    ) -> None:
        """See ``KeptRun.create``."""
        with _WatchedJournal(self, clock, veil) as journal:
            for group in first:
                journal.stage(*group)
            journal.commit()
        self._alive_us = SystemClock().now_us() if alive_us is None else alive_us

    def open_journal(
        self,
        *,
        durability: Durability = "power",
        telemetry: Telemetry = NO_TELEMETRY,
        each: Callable[[Entry], None] | None = None,
        veil: Veil | None = None,
        accept_loss: bool = False,
        clock: Clock | None = None,
    ) -> MemoryJournal:
        """See ``KeptRun.open_journal``."""
        loss = self._find_loss()
        if loss is not None and not accept_loss:
            raise JournalLostError(self.id, 0, loss.held, loss.acknowledged)
        for entry in self.store.entries:
            if entry.ref is not None:
                self.store.get(entry.ref)
        journal = _WatchedJournal(self, clock, veil)
        journal.loss = loss
        if each is not None:
            for entry in journal.read():
                if entry.seq < journal.synced_seq:  # the last one says that it was opened
                    each(entry)
        return journal

    @contextmanager
    def own(self) -> Generator[MemoryJournal]:
        """See ``KeptRun.own``."""
        self.check_kept()
        with _WatchedJournal(self) as journal:
            yield journal

    def check_kept(self) -> None:
        """See ``KeptRun.check_kept``."""
        loss = self._find_loss()
        if loss is not None:
            raise JournalLostError(self.id, 0, loss.held, loss.acknowledged)

    def mark(self, summary: bytes) -> None:
        """See ``KeptRun.mark``."""
        self._summary = summary
        self.wake()

    def beat(self) -> None:
        """See ``KeptRun.beat``."""
        self._alive_us = SystemClock().now_us()
        self.wake()

    def delete(self) -> None:
        """See ``KeptRun.delete``."""
        self.store = MemoryStore()
        self._summary = self._alive_us = None
        self.wake()

    def wake(self) -> None:
        """Something has changed."""
        for watch in self._watches:
            watch.changed.set()

    def _find_loss(self) -> Loss | None:
        known = typed.decode(self._summary, type=_Marked).seq if self._summary is not None else 0
        held = len(self.store.entries)
        return Loss(held, known, "") if held < known else None
