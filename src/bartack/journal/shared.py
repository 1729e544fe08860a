"""The journal of a run that is kept elsewhere, for the process that owns the run: a *carrier* takes each commit there.

    stage ──▶ lines of one commit ──carrier──▶ where it is kept ──acknowledged──▶ mirror ──▶ ``finish_commit`` is true

The lines are those of the file engine, and their places and checksums are given here, before they leave: a commit that is sent
twice is the same bytes twice. The place where they are kept proves, in the statement that writes them, that this process still
owns the run, and that no entry is missing before them. So three things can become of a commit:

- it was *written*, now or by an earlier attempt whose answer was lost: it is added to the copy in the directory of the run
  (``mirror.py``), and acknowledged;
- the run has another owner: nothing was written. The journal is lost for this process and refuses everything;
- it is not known yet: the carrier sends it again until it is. Meanwhile ``finish_commit`` is false, nothing that rests on the
  commit leaves the process, and the owner's lease decides how long its processes may continue.

A commit of more than ``COMMIT_BYTES`` leaves in parts, one after the other: a statement has only so long. Each part is a commit of
its own, of whole lines, and the journal may end with any of them if this process ends in between. That is what a crash may leave of
a commit on a disk, too. It is acknowledged as a whole.

Only when the carrier gives up, because this process has to end, is the outcome unknown: that is poison, as on a disk, and the
next owner reads what is there.

**Why an entry can be read here only after it is acknowledged.** The mirror is written in ``finish_commit``, when the carrier has
the answer. Readers in the directory of the run thus see less than what is kept, never more. A process that is killed between the
answer and the mirror leaves a copy that ends too early, and the next one fetches the rest.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from threading import Lock
from typing import Final, NamedTuple, NoReturn, Protocol

from bartack._version import __version__
from bartack.core.clock import Clock, SystemClock
from bartack.core.disk import Disk, RealDisk
from bartack.errors import BartackError, JournalOwnershipLostError, JournalPoisonedError
from bartack.journal._access import access
from bartack.journal._format import OPENED, Opened, encode_line
from bartack.journal._line_file import LineFile, Lines
from bartack.journal._line_journal import LineJournal, also_refs
from bartack.journal._lock import FileLock, take_lock
from bartack.journal._stage import Group, Stage
from bartack.journal._survey import survey
from bartack.journal.contract import (
    FORMAT,
    BlobRef,
    Draft,
    Entry,
    Loss,
    Recovery,
    wait_for_commit,
)
from bartack.journal.mirror import FetchedBlobs, Mirror, Source
from bartack.journal.veil import Veil
from bartack.telemetry import NO_TELEMETRY, Telemetry
from bartack.telemetry.catalogue import JournalCommitted, JournalOpened, JournalPoisoned

COMMIT_BYTES: Final = 8 << 20
"""More lines than this go as several commits. A line is never divided."""
_AROUND: Final = 128
"""No line has more bytes around its entries, nor between two of them."""


class Commit(NamedTuple):
    """One commit on its way.

    Attributes:
        seq: Its first entry.
        last: Its last entry.
        fence: The ownership that it is made under.
        crc: The CRC of its last line.
        lines: Its lines, each with its newline.
        blobs: Large values that have to be kept before it is.
    """

    seq: int
    last: int
    fence: int
    crc: int
    lines: bytes
    blobs: tuple[BlobRef, ...] = ()


class Carrier(Protocol):
    """Takes the commits of one run to where it is kept, one at a time. It has the ownership of the run.

    Attributes:
        fence: The number of that ownership.
    """

    @property
    def fence(self) -> int:
        """See above."""
        ...

    def send(self, commit: Commit) -> None:
        """Take a commit away. The one before has been acknowledged."""
        ...

    def fileno(self) -> int:
        """A descriptor that can be read when ``take`` has something to report."""
        ...

    def take(self) -> bool:
        """Whether the commit is kept, without waiting.

        Raises:
            JournalOwnershipLostError: The run has another owner; nothing was written.
            BartackError: It cannot be found out what became of it.
        """
        ...

    def close(self) -> None:
        """Release the ownership. A commit that is under way is kept whole or not at all."""
        ...


def lock_directory(directory: str | os.PathLike[str], disk: Disk | None = None) -> FileLock:
    """Take the directory of a run for this process; made if it is not there.

    Raises:
        JournalLockedError: Another process of this machine has it.
        FileAccessError: The operating system refused.
    """
    disk, root = disk or RealDisk(), os.fspath(directory)
    with access(root):
        disk.mkdir(root)
        return take_lock(disk, root)


def first_commit(
    first: Iterable[Sequence[Draft]],
    blobs: FetchedBlobs,
    clock: Clock | None = None,
    veil: Veil | None = None,
) -> Commit:
    """The first commit of a journal, which begins with these groups. It has no owner then."""
    noted = _NotedBlobs(blobs)
    stage = Stage(noted, clock or SystemClock(), 0, veil)
    stage.add_own(OPENED, Opened(FORMAT, 1, os.getpid(), f"bartack {__version__}"))
    for drafts in first:
        stage.add(tuple(drafts))
    lines: list[bytes] = []
    crc = 0
    for group in stage.take():
        line, crc = encode_line(group.bodies, group.seq, 1, group.at, crc)
        lines.append(line)
    return Commit(1, stage.last_seq, 1, crc, b"".join(lines), noted.take())


# Long because every argument is explained; it only opens.
def open_shared(
    directory: str | os.PathLike[str],
    lock: FileLock,
    carrier: Carrier,
    source: Source,
    *,
    clock: Clock | None = None,
    telemetry: Telemetry = NO_TELEMETRY,
    each: Callable[[Entry], None] | None = None,
    veil: Veil | None = None,
    loss: Loss | None = None,
    check_blobs: bool = False,
    disk: Disk | None = None,
) -> SharedJournal:
    """Own a journal that is kept elsewhere, with a copy in ``directory``. Lock and carrier are closed with it, also if this fails.

    Args:
        directory: The directory of the run on this machine.
        lock: Its lock: see ``lock_directory``.
        carrier: Has the ownership, and takes commits away.
        source: Where the journal is kept.
        clock: The time of entries.
        telemetry: Receives openings, commits and poison.
        each: Gets every entry that is there, in order. If opening fails, what it got is worth nothing.
        veil: Hides the secrets in what is written, and puts them back into what is read.
        loss: The acknowledged entries that it is opened without, if that was accepted.
        check_blobs: Read every large value that an entry refers to before anything is written.
        disk: The operating system's files by default.

    Raises:
        JournalCorruptError: What is kept is not a history.
        JournalLostError: Acknowledged entries are missing where it is kept.
        BlobMissingError: A large value is not there. Only with ``check_blobs``.
        BlobCorruptError: A large value was changed. Only with ``check_blobs``.
        JournalFormatError: A newer Bartack wrote it.
        FileAccessError: The operating system refused.
    """
    disk, clock, root = disk or RealDisk(), clock or SystemClock(), os.fspath(directory)
    started = clock.monotonic_ns()
    blobs = _NotedBlobs(FetchedBlobs(root, source, disk, telemetry, veil))
    mirror = Mirror(root, disk)
    journal = SharedJournal(mirror, carrier, lock, disk, blobs, clock, veil)
    journal.loss = loss
    try:
        mirror.hold()
        mirror.catch_up(source, is_owner=loss is None)
        journal._begin(each, telemetry, check_blobs=check_blobs)  # noqa: SLF001 - the constructor does no I/O; this function is its other half
    except BaseException:
        journal.close()
        raise
    if telemetry.wanted(JournalOpened):
        duration = clock.monotonic_ns() - started
        telemetry.emit(
            JournalOpened(
                entries=journal.synced_seq,
                size_bytes=journal.size_bytes,
                duration_ns=duration,
                path=root,
                fence=journal.fence,
            )
        )
    return journal


class _NotedBlobs:
    """The large values of a journal, and which of them the next commit refers to."""

    def __init__(self, blobs: FetchedBlobs) -> None:
        self.stored = blobs
        self.get = blobs.get
        self.collect = blobs.collect
        self._noted: dict[BlobRef, None] = {}
        self._mutex = Lock()

    def put(self, content: bytes) -> BlobRef:
        """See ``BlobStore.put``. It is durable where the journal is kept when an entry that refers to it is."""
        ref = self.stored.put(content)
        with self._mutex:
            self._noted[ref] = None
        return ref

    def check(self, ref: BlobRef) -> None:
        """See ``BlobStore.check``."""
        self.stored.check(ref)
        with self._mutex:
            self._noted[ref] = None

    def take(self) -> tuple[BlobRef, ...]:
        """Those that were noted since the last call. Each was noted before the entry that refers to it was staged."""
        with self._mutex:
            noted, self._noted = tuple(self._noted), {}
        return noted


class _UnderWay(NamedTuple):
    lines: Lines
    last: int
    entries: int
    started_ns: int


class SharedJournal(LineJournal):
    """A journal that is kept elsewhere, and its ownership; made by ``open_shared``. See ``Journal`` for what it promises.

    Attributes:
        path: Its copy on this machine.
        fence: Number of this ownership.
        synced_seq: Place of the last acknowledged entry.
        lost: Whether the ownership is known to be gone.
        recovery: Nothing is ever torn where a commit is kept whole or not at all.
        loss: The acknowledged entries that it was opened without, if any are missing and that was accepted.
    """

    recovery: Recovery | None = None

    def __init__(
        self,
        mirror: Mirror,
        carrier: Carrier,
        lock: FileLock,
        disk: Disk,
        blobs: _NotedBlobs,
        clock: Clock,
        veil: Veil | None = None,
    ) -> None:
        self.path = path = mirror.path
        self.synced_seq = 0
        self.lost = False
        self.loss: Loss | None = None
        self._mirror = mirror
        self._carrier = carrier
        self._lock = lock
        self._disk = disk
        self._file = LineFile(path, disk, veil, sync=False)
        self._veil = veil
        self._blobs = blobs
        self._clock = clock
        self._telemetry = NO_TELEMETRY
        self._stage = Stage(blobs, clock, 0)
        self._poison: JournalPoisonedError | None = None
        self._under_way: _UnderWay | None = None
        self._later: list[Group] = []
        """What of the commit that is under way is sent after the part that is."""
        self._pid = os.getpid()
        self._committing = Lock()

    @property
    def fence(self) -> int:
        """Number of this ownership."""
        return self._carrier.fence

    @property
    def _stored(self) -> _NotedBlobs:
        return self._blobs

    # Writing.

    def stage(self, *drafts: Draft, join: bool = False) -> int:
        """Give drafts their places as one atomic group; return the place of the first. See ``Journal.stage``."""
        self._check_usable()
        with access(self.path):
            return self._stage.add(drafts, join=join)

    def commit(self) -> int:
        """Have everything staged kept, and wait for it. See ``Journal.commit``."""
        with self._committing:
            if self._under_way is not None:
                wait_for_commit(self)
            self.start_commit()
            wait_for_commit(self)
            return self.synced_seq

    def start_commit(self) -> None:
        """Send everything staged so far. See ``Journal.start_commit``."""
        self._check_usable()
        assert self._under_way is None, "a commit is under way"
        if os.getpid() != self._pid:
            problem = f"process {self._pid} owns it, and this one was forked from that"
            raise JournalOwnershipLostError(self.path, problem)
        groups = self._stage.take()
        if groups:
            self._send(groups)

    def fileno(self) -> int:
        """See ``Journal.fileno``."""
        return self._carrier.fileno()

    def finish_commit(self) -> bool:
        """Acknowledge the commit that was started, if it is known to be kept. See ``Journal.finish_commit``."""
        self._check_usable()
        if self._under_way is None:
            return True
        try:
            if not self._carrier.take():
                return False
        except JournalPoisonedError as error:
            self.lost = isinstance(error, JournalOwnershipLostError)
            self._give_up(error)
        except BartackError as error:
            self._give_up(JournalPoisonedError(self.path, str(error)))
        self._accept(self._under_way)
        self._under_way = None
        if self._later:
            self._send(self._later)
        return self._under_way is None

    def put_blob(self, content: bytes) -> BlobRef:
        """Keep a large value. It is durable at the latest when an entry that refers to it is."""
        self._check_usable()
        with access(self.path):
            return self._blobs.put(content)

    def close(self) -> None:
        """Release the ownership. What is staged and not committed is dropped."""
        self._carrier.close()
        if self._file.fd >= 0:
            self._file.close()
        self._mirror.close()
        self._lock.close()

    # Inside.

    def _begin(
        self, each: Callable[[Entry], None] | None, telemetry: Telemetry, *, check_blobs: bool
    ) -> None:
        """Read the copy, and write the first entry of this owner."""
        refs: dict[BlobRef, None] = {}
        with access(self.path):
            self._file.open()
            found = survey(self._disk, self._file.fd, self.path, also_refs(each, refs), self._veil)
        if check_blobs:
            for ref in refs:
                self._blobs.stored.verify(ref)
        self._file.adopt(found)
        self.synced_seq = found.scanner.next_seq - 1
        self._telemetry = telemetry
        self._stage = Stage(self._blobs, self._clock, self.synced_seq, self._veil)
        self._stage.add_own(OPENED, Opened(FORMAT, self.fence, os.getpid(), f"bartack {__version__}"))
        self.commit()

    def _send(self, groups: list[Group]) -> None:
        groups, self._later = _divide(groups)
        first = self.synced_seq + 1
        lines = self._file.encode(groups, first)
        if lines is None:
            # An interrupted ``stage`` may leave a place taken twice, and this would not be a history.
            self._give_up(JournalPoisonedError(self.path, "staging an entry was interrupted"))
        last = groups[-1].seq + len(groups[-1].bodies) - 1
        self._under_way = _UnderWay(lines, last, last - first + 1, self._clock.monotonic_ns())
        self._carrier.send(Commit(first, last, self.fence, lines.crc, lines.text, self._blobs.take()))

    def _accept(self, commit: _UnderWay) -> None:
        with access(self.path):
            self._file.append(commit.lines)
        self._file.accept(commit.lines)
        self.synced_seq = commit.last
        if self._telemetry.wanted(JournalCommitted):
            duration = self._clock.monotonic_ns() - commit.started_ns
            size = len(commit.lines.text)
            self._telemetry.emit(
                JournalCommitted(entries=commit.entries, size_bytes=size, duration_ns=duration)
            )

    def _give_up(self, poison: JournalPoisonedError) -> NoReturn:
        self._poison = poison
        if self._telemetry.wanted(JournalPoisoned):
            self._telemetry.emit(JournalPoisoned(reason=poison.problem))
        raise poison


def _divide(groups: list[Group]) -> tuple[list[Group], list[Group]]:
    """As many groups as one commit may have, at least one, and those after them."""
    size = 0
    for number, group in enumerate(groups):
        size += sum(len(body) + _AROUND for body in group.bodies)
        if number and size > COMMIT_BYTES:
            return groups[:number], groups[number:]
    return groups, []
