"""The journal contract on a journal that is kept elsewhere, where that is this process: its carrier answers in another thread."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from queue import SimpleQueue
from threading import Lock, Thread

from bartack.core.clock import Clock
from bartack.core.disk import RealDisk
from bartack.core.watch import Watch, open_watch
from bartack.errors import JournalOwnershipLostError, JournalPoisonedError
from bartack.journal import BlobRef, Journal
from bartack.journal.file import collect_blobs
from bartack.journal.mirror import End, FetchedBlobs, Mirror, MirrorReader
from bartack.journal.shared import Commit, SharedJournal, first_commit, lock_directory, open_shared
from bartack.testing import JournalContract, JournalEngine


class Kept:
    """See ``Source``: what is kept of one run, and the number of its last ownership.

    Attributes:
        fence: That number.
        blobs: Large values as they are stored, by their SHA-256.

    Args:
        bell: A directory in which something changes with each commit.
    """

    name = "memory"

    def __init__(self, bell: Path) -> None:
        self.fence = 1
        self.blobs: dict[str, bytes] = {}
        self._commits: list[Commit] = []
        self._bell = bell
        self._mutex = Lock()

    def take(self, commit: Commit, values: FetchedBlobs) -> bool:
        """Keep a commit and its large values, unless its owner has lost the run, or there is a gap before it."""
        with self._mutex:
            if commit.fence != self.fence or commit.seq != self.end().last + 1:
                return False
            self.blobs |= {ref.sha256: values.verify(ref) for ref in commit.blobs}
            self._commits.append(commit)
        (self._bell / "rung").write_text(str(commit.last), encoding="ascii")
        return True

    def claim(self) -> int:
        """Become the owner; whatever owned it has lost it."""
        with self._mutex:
            self.fence += 1
            return self.fence

    def end(self) -> End:
        return End(self._commits[-1].last, self._commits[-1].crc) if self._commits else End()

    def has(self, end: End) -> bool:
        return any((commit.last, commit.crc) == end for commit in self._commits)

    def rows(self, after: int) -> Iterator[bytes]:
        return (commit.lines for commit in [*self._commits] if commit.seq > after)

    def check_size(self, size: int) -> None:
        """Every size is taken."""

    def fetch_blob(self, ref: BlobRef) -> bytes | None:
        return self.blobs.get(ref.sha256)


class MemoryCarrier:
    """See ``Carrier``: commits go to a thread, which keeps them and reports that.

    Attributes:
        breaks: Whether it shall stay unknown what becomes of the next commit.

    Args:
        kept: Where they go.
        values: The large values of the owner.
    """

    def __init__(self, kept: Kept, values: FetchedBlobs) -> None:
        self.fence = kept.claim()
        self.breaks = False
        self._kept = kept
        self._values = values
        self._commits: SimpleQueue[Commit | None] = SimpleQueue()
        self._outcomes: SimpleQueue[bool] = SimpleQueue()
        self._wake_r, self._wake_w = os.pipe()
        self._thread = Thread(target=self._carry, daemon=True)
        self._thread.start()

    def _carry(self) -> None:
        while (commit := self._commits.get()) is not None:
            self._outcomes.put(self._kept.take(commit, self._values))
            os.write(self._wake_w, b"\0")

    def send(self, commit: Commit) -> None:
        self._commits.put(commit)

    def fileno(self) -> int:
        return self._wake_r

    def take(self) -> bool:
        if self._outcomes.empty():
            return False
        os.read(self._wake_r, 1)
        if not self._outcomes.get():
            raise JournalOwnershipLostError("memory", "it has another owner")
        if self.breaks:
            raise JournalPoisonedError("memory", "broken by the test")
        return True

    def close(self) -> None:
        if self._thread.is_alive():
            self._commits.put(None)
            self._thread.join(5)
            os.close(self._wake_r)
            os.close(self._wake_w)


class SharedInMemory:
    """See ``JournalEngine``: each owner has a directory of its own, as on several machines."""

    def __init__(self) -> None:
        self._place = Path(tempfile.mkdtemp(prefix="bartack-contract-"))
        self._bell = self._place / "bell"
        self._bell.mkdir()
        self._kept = Kept(self._bell)
        self._machines = 0
        self._directory = self._place / "machine0"

    def open(self, *, clock: Clock | None = None) -> SharedJournal:
        values = FetchedBlobs(str(self._directory), self._kept, RealDisk())
        lock = lock_directory(self._directory)
        if not self._kept.end().last:
            assert self._kept.take(first_commit((), values, clock), values)
        carrier = MemoryCarrier(self._kept, values)
        return open_shared(self._directory, lock, carrier, self._kept, clock=clock)

    def open_reader(self) -> MirrorReader:
        self._catch_up()
        return MirrorReader(str(self._directory), self._kept, self._catch_up, self._watch)

    def _catch_up(self) -> None:
        with Mirror(str(self._directory)) as mirror:
            if mirror.try_hold():
                mirror.catch_up(self._kept)

    def _watch(self) -> Watch:
        return open_watch(str(self._bell))

    def steal(self) -> SharedJournal:
        self._machines += 1
        self._directory = self._place / f"machine{self._machines}"
        return self.open()

    def break_next_commit(self, journal: Journal) -> None:
        assert isinstance(journal, SharedJournal)
        assert isinstance(journal._carrier, MemoryCarrier)
        journal._carrier.breaks = True

    def collect(self, keep: Iterable[str] = ()) -> int:
        return collect_blobs(self._directory, keep=keep)

    def damage_blob(self, ref: BlobRef) -> None:
        blob = self._blob(ref)
        content = bytearray(blob.read_bytes())
        content[len(content) // 2] ^= 1
        blob.write_bytes(content)

    def remove_blob(self, ref: BlobRef) -> None:
        self._blob(ref).unlink()
        self._kept.blobs.pop(ref.sha256, None)

    def close(self) -> None:
        shutil.rmtree(self._place)

    def _blob(self, ref: BlobRef) -> Path:
        return self._directory / "blobs" / ref.sha256[:2] / ref.sha256[2:]


class TestSharedJournal(JournalContract):
    def make_engine(self) -> JournalEngine:
        return SharedInMemory()
