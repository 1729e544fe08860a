"""The journal in a directory: one append-only file, its owner's lock, its blobs, and some space kept in reserve.

Owns the order of commits, the lock, recovery and poison. The bytes of the file are in ``_line_file.py``, the format of a line in
``_format.py``, how drafts become lines in ``_stage.py``, judging a file in ``_survey.py``, reading without ownership in
``_reader.py``.

The order that everything rests on:

- *commit*: write all staged lines, sync, check that the file and its lock still have their names, note in the lock file how far
  the journal has got, only then acknowledge.
  The next commit is written only after this one is synced. One that does not come to its end, for whatever reason, is
  poison. A commit for which the file has to grow also fills it with blank lines, so that those after it overwrite these:
  a sync that has no new size to record is a third faster.
- *open*: lock, read and judge everything, change nothing unless all of it is judged sound; then keep and cut a torn tail,
  rewrite the last commit, sync file and directory; only then serve. What an earlier owner left in the page cache after a
  failed sync looks written but is not: rewriting it makes it so.
- *poison*: after a failed write or sync the content of the disk is unknown. Nothing is retried; the journal refuses everything
  until it is opened again.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from threading import Lock
from typing import Final, NamedTuple, NoReturn

import msgspec

from bartack._version import __version__
from bartack.core.clock import Clock, SystemClock
from bartack.core.disk import Disk, RealDisk, write_all
from bartack.errors import (
    JournalCorruptError,
    JournalFullError,
    JournalLostError,
    JournalOwnershipLostError,
    JournalPoisonedError,
    JournalSyncError,
)
from bartack.journal._access import FULL, access
from bartack.journal._blobs import FileBlobs
from bartack.journal._format import (
    INTERRUPTED,
    OPENED,
    Damage,
    Opened,
)
from bartack.journal._immediate import ImmediateCommits
from bartack.journal._line_file import JOURNAL_FILE, LineFile, create_file, sync_names
from bartack.journal._line_journal import LineJournal, also_refs
from bartack.journal._lock import FileLock, take_lock
from bartack.journal._shared import open_blobs
from bartack.journal._stage import Group, Stage
from bartack.journal._survey import (
    Survey,
    find_loss,
    survey,
)
from bartack.journal.contract import FORMAT, BlobRef, Draft, Durability, Entry, Loss, Recovery
from bartack.journal.veil import Veil
from bartack.telemetry import NO_TELEMETRY, Telemetry
from bartack.telemetry.catalogue import (
    JournalCommitted,
    JournalOpened,
    JournalPoisoned,
    JournalRecovered,
)

RESERVE: Final = "reserve"
RESERVE_SIZE: Final = 64 * 1024


class Interrupted(msgspec.Struct, frozen=True):
    """Data of the last entry before the journal had to stop."""

    reason: str


class Opening(NamedTuple):
    """How a journal is to be opened; see ``open_journal``."""

    at_least: int = 0
    each: Callable[[Entry], None] | None = None
    accept_loss: bool = False
    check_blobs: bool = False
    first: Iterable[Sequence[Draft]] = ()


# Long because every argument is explained; it only opens.
def open_journal(
    directory: str | os.PathLike[str],
    *,
    durability: Durability = "power",
    at_least: int = 0,
    disk: Disk | None = None,
    clock: Clock | None = None,
    telemetry: Telemetry = NO_TELEMETRY,
    each: Callable[[Entry], None] | None = None,
    veil: Veil | None = None,
    first: Iterable[Sequence[Draft]] = (),
    accept_loss: bool = False,
    check_blobs: bool = False,
) -> FileJournal:
    """Own the journal in ``directory``; make it, and the directory, if there is none.

    The name of a new journal, and that of its directory, are durable when this returns.

    Args:
        directory: Holds the journal and everything that belongs to it.
        durability: What an acknowledged entry survives.
        at_least: A place known to have been acknowledged; a journal that ends before it has lost entries.
        disk: Where it is kept; the operating system's files by default.
        clock: The time of entries.
        telemetry: Receives openings, commits, recovery and poison.
        each: Gets every entry that is there, in order, while the journal is judged: who needs them all reads the file only once.
            If opening fails, what it got is worth nothing.
        veil: Hides the secrets in what is written, and puts them back into what is read.
        first: Groups that a new journal begins with: it is never there without them. One that exists does not get them.
        accept_loss: Open a journal that has lost acknowledged entries with those that are left. It is copied first.
        check_blobs: Read every large value that an entry refers to before anything is changed.

    Raises:
        JournalLockedError: Another process owns it.
        JournalCorruptError: It is damaged where it was acknowledged already; nothing was changed.
        JournalLostError: Acknowledged entries at its end are missing; nothing was changed.
        BlobMissingError: A large value is not there; nothing was changed. Only with ``check_blobs``.
        BlobCorruptError: A large value was changed; nothing was changed by this. Only with ``check_blobs``.
        JournalFormatError: A newer Bartack wrote it; nothing was changed.
        FileAccessError: The operating system refused.
    """
    disk = disk or RealDisk()
    clock = clock or SystemClock()
    started = clock.monotonic_ns()
    root = os.fspath(directory)
    with access(root):
        disk.mkdir(root)
        lock = take_lock(disk, root)
    blobs = open_blobs(root, disk, telemetry, veil)
    journal = FileJournal(root, disk, clock, telemetry, lock, blobs, veil, sync=durability == "power")
    try:
        with access(journal.path):
            journal._open(Opening(at_least, each, accept_loss, check_blobs, first))  # noqa: SLF001 - the constructor does no I/O; this function is its other half
    except BaseException:
        journal.close()
        raise
    if telemetry.wanted(JournalOpened):
        telemetry.emit(
            JournalOpened(
                entries=journal.synced_seq,
                size_bytes=journal.size_bytes,
                duration_ns=clock.monotonic_ns() - started,
                path=root,
                fence=journal.fence,
            )
        )
    return journal


def _keep_reserve(disk: Disk, directory: str) -> None:
    """Hold some space, to be freed when the disk is full. Best effort: a disk that is full now has none to hold."""
    try:
        fd = disk.open(os.path.join(directory, RESERVE), write=True, create=True)
    except OSError:
        return
    try:
        if disk.facts(fd).size < RESERVE_SIZE:
            write_all(disk, fd, bytes(RESERVE_SIZE), 0)
    except OSError:
        pass
    finally:
        disk.close(fd)


def _opened(fence: int) -> Opened:
    return Opened(format=FORMAT, fence=fence, pid=os.getpid(), by=f"bartack {__version__}")


class FileJournal(LineJournal, ImmediateCommits):
    """A journal file and its ownership; made by ``open_journal``. See ``Journal`` for what it promises.

    Attributes:
        fence: Number of this ownership.
        synced_seq: Place of the last acknowledged entry.
        lost: Whether the ownership is known to be gone.
        recovery: What had to be cut off when it was opened, if anything.
        loss: The acknowledged entries that it was opened without, if any are missing and that was accepted.
    """

    def __init__(
        self,
        directory: str,
        disk: Disk,
        clock: Clock,
        telemetry: Telemetry,
        lock: FileLock,
        blobs: FileBlobs,
        veil: Veil | None = None,
        *,
        sync: bool,
    ) -> None:
        self.directory = directory
        self.path = os.path.join(directory, JOURNAL_FILE)
        self.fence = 0
        self.synced_seq = 0
        self.lost = False
        self.recovery: Recovery | None = None
        self.loss: Loss | None = None
        self._disk = disk
        self._clock = clock
        self._telemetry = telemetry
        self._lock = lock
        self._file = LineFile(self.path, disk, veil, sync=sync)
        self._veil = veil
        self._blobs = blobs
        self._stage = Stage(self._blobs, clock, 0, veil)
        self._poison: JournalPoisonedError | None = None
        self._pid = os.getpid()
        self._writing = Lock()
        """Held while the end of the file is written: by a commit, or for the last entry when there is no room."""

    @property
    def _stored(self) -> FileBlobs:
        return self._blobs

    def stage(self, *drafts: Draft, join: bool = False) -> int:
        """Give drafts their places as one atomic group; return the place of the first. See ``Journal.stage``."""
        self._check_usable()
        try:
            return self._stage.add(drafts, join=join)
        except OSError as error:
            self._fail_outside(error)

    def commit(self) -> int:
        """Make everything staged durable, with one write and one sync. See ``Journal.commit``."""
        with self._writing:
            self._check_usable()
            if os.getpid() != self._pid:
                # The lock is shared with a forked child, so it does not keep the child from writing.
                problem = f"process {self._pid} owns it, and this one was forked from that"
                raise JournalOwnershipLostError(self.path, problem)
            wanted = self._telemetry.wanted(JournalCommitted)
            started = self._clock.monotonic_ns() if wanted else 0
            try:
                groups = self._stage.take()
                if not groups:
                    return self.synced_seq
                size = self._write(groups)
            except BaseException as error:
                self._note_interruption(error)
                raise
        if wanted:
            duration = self._clock.monotonic_ns() - started
            entries = self.synced_seq - groups[0].seq + 1
            self._telemetry.emit(JournalCommitted(entries=entries, size_bytes=size, duration_ns=duration))
        return self.synced_seq

    def put_blob(self, content: bytes) -> BlobRef:
        """Keep a large value; durable when it returns."""
        self._check_usable()
        try:
            return self._blobs.put(content)
        except OSError as error:
            self._fail_outside(error)

    def close(self) -> None:
        """Release the ownership. What is staged and not committed is dropped."""
        if self._file.fd >= 0:
            self._cut_filling()
            self._file.close()
        self._lock.close()

    # Opening.

    def _open(self, how: Opening) -> None:
        fresh = not self._disk.exists(self.path)
        if fresh:
            self._check_never_there(how)
            self._stage.add_own(OPENED, _opened(fence=1))
            for drafts in how.first:
                self._stage.add(tuple(drafts))
            create_file(self._disk, self.directory, self._stage.take())
        self._file.open()
        refs: dict[BlobRef, None] = {}
        each = also_refs(how.each, refs) if how.check_blobs else how.each
        found = survey(self._disk, self._file.fd, self.path, each, self._veil)
        self._check_survey(found, how)
        for ref in refs:
            self._blobs.verify(ref)
        self._adopt(found)
        if not fresh:
            self._repair(found)
            self.fence += 1
            self._stage.add_own(OPENED, _opened(self.fence))
            self.commit()
        _keep_reserve(self._disk, self.directory)

    def _check_never_there(self, how: Opening) -> None:
        """Raise if there was a journal: a new one in its place would start everything again."""
        known = max(how.at_least, self._lock.mark.seq if self._lock.mark else 0)
        if known:
            raise JournalLostError(self.path, 0, 0, known)

    def _check_survey(self, found: Survey, how: Opening) -> None:
        damage = found.damage
        if damage is not None and not damage.torn:
            raise JournalCorruptError(self.path, damage.offset, damage.problem)
        known = find_loss(self._disk, self._file.fd, found, self._lock.mark, how.at_least)
        if not known:
            return
        held = found.scanner.next_seq - 1
        lost = JournalLostError(self.path, found.scanner.offset, held, known)
        if not how.accept_loss:
            raise lost
        self.loss = Loss(held, known, self._file.copy_aside(f"journal.lost-{held + 1}", 0).path)
        self._lock.forget_mark()

    def _adopt(self, found: Survey) -> None:
        self.fence = found.fence
        self.synced_seq = found.scanner.next_seq - 1
        self._stage = Stage(self._blobs, self._clock, self.synced_seq, self._veil)
        self._file.adopt(found)

    def _repair(self, found: Survey) -> None:
        """Cut what is torn, after keeping it, and make sure that what will be served is on the disk."""
        if found.damage is not None:
            self._keep_torn(found.damage)
        self._file.rewrite_from(found.scanner.last_commit)
        sync_names(self._disk, self.directory)

    def _keep_torn(self, damage: Damage) -> None:
        kept = self._file.copy_aside(f"journal.torn-{damage.seq}", damage.offset)
        self.recovery = Recovery(damage.seq, damage.offset, kept.size_bytes, kept.path)
        if self._telemetry.wanted(JournalRecovered):
            self._telemetry.emit(
                JournalRecovered(size_bytes=kept.size_bytes, seq=damage.seq, kept_as=kept.path)
            )

    # Committing.

    def _write(self, groups: list[Group]) -> int:
        lines = self._file.encode(groups, self.synced_seq + 1)
        if lines is None:
            # An interrupted ``stage`` may leave a place taken twice, and this would not be a history.
            self._give_up(JournalPoisonedError(self.path, "staging an entry was interrupted"))
        try:
            self._file.append(lines)
            kept = self._disk.all_named(self._file.fd, self._lock.fd)
        except OSError as error:
            self._fail(error)
        if not kept:
            self.lost = True
            problem = "it or its lock was deleted or replaced under its owner"
            self._give_up(JournalOwnershipLostError(self.path, problem))
        self._file.accept(lines)
        last = groups[-1]
        self.synced_seq = last.seq + len(last.bodies) - 1
        self._lock.note(self.synced_seq, lines.crc)
        return len(lines.text)

    def _cut_filling(self) -> None:
        """Leave a file that ends with its last entry. Best effort, for people: the next owner cuts what is left."""
        if not self._file.has_filling or self._poison is not None or os.getpid() != self._pid:
            return
        if not self._writing.acquire(blocking=False):
            return
        try:
            # Without its name the lock no longer keeps others away, and their entries would be cut.
            if self._lock.is_named:
                self._file.cut_filling()
        except OSError:
            pass
        finally:
            self._writing.release()

    def _fail(self, error: OSError) -> NoReturn:
        if error.errno in FULL:
            self._write_last_words(error)
        self._give_up(self._poison_for(error))

    def _fail_outside(self, error: OSError) -> NoReturn:
        """A large value could not be kept. Another thread may be committing: then the end of the file is not ours."""
        if not self._writing.acquire(blocking=False):
            self._give_up(self._poison_for(error))
        try:
            self._fail(error)
        finally:
            self._writing.release()

    def _poison_for(self, error: OSError) -> JournalPoisonedError:
        if error.errno in FULL:
            return JournalFullError(self.path, f"no space left ({error.strerror})")
        return JournalSyncError(self.path, error.strerror or str(error))

    def _give_up(self, poison: JournalPoisonedError) -> NoReturn:
        self._set_poison(poison)
        raise poison

    def _set_poison(self, poison: JournalPoisonedError) -> None:
        self._poison = poison
        if self._telemetry.wanted(JournalPoisoned):
            self._telemetry.emit(JournalPoisoned(reason=poison.problem))

    def _note_interruption(self, error: BaseException) -> None:
        """Ctrl-C, or whatever else a signal's handler raises, in the middle of a commit: what is on the disk is unknown."""
        if self._poison is None:
            problem = f"a commit was interrupted ({type(error).__name__})"
            self._set_poison(JournalPoisonedError(self.path, problem))

    def _write_last_words(self, error: OSError) -> None:
        """Free the reserve and say why the journal ends here. The commit that did not fit was never acknowledged."""
        stage = Stage(self._blobs, self._clock, self.synced_seq)
        stage.add_own(INTERRUPTED, Interrupted(reason=error.strerror or "disk full"))
        (last,) = stage.take()
        try:
            with suppress(FileNotFoundError):
                self._disk.unlink(os.path.join(self.directory, RESERVE))
            self._file.end_with(last)
        except OSError:
            # It was worth a try; opening again judges whatever reached the disk.
            return
