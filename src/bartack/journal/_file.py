"""The journal in a directory: one append-only file, its owner's lock, its blobs, and some space kept in reserve.

Owns the order of writes and syncs, the lock, recovery and poison. The lines themselves are in ``_format.py``; how drafts become
lines in ``_stage.py``; judging what is there in ``_survey.py``; reading without ownership in ``_reader.py``.

The order that everything rests on:

- *commit*: write all staged lines, sync, check that the file and its lock still have their names, note in the lock file how far
  the journal has got, only then acknowledge.
  The next commit is written only after this one is synced. One that does not come to its end, for whatever reason, is
  poison. A commit for which the file has to grow also fills it with blank lines, so that those after it overwrite these:
  a sync that has no new size to record is a third faster.
- *open*: lock, read and judge everything, change nothing unless all of it is judged sound; then keep and cut a torn tail,
  rewrite the last commit, sync file and directory; only then serve. What an earlier owner left in the page cache after a
  failed sync looks written but is not: rewriting it makes it so.
- *poison*: after a failed write or sync nobody knows what is on the disk. Nothing is retried; the journal refuses everything
  until it is opened again.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import groupby
from threading import Lock
from types import TracebackType
from typing import Final, NamedTuple, NoReturn, Self

import msgspec

from bartack._version import __version__
from bartack.core import Clock, Disk, RealDisk, SystemClock, write_all
from bartack.errors import (
    JournalClosedError,
    JournalCorruptError,
    JournalFullError,
    JournalLostError,
    JournalOwnershipLostError,
    JournalPoisonedError,
    JournalSyncError,
)
from bartack.journal._access import FULL, access
from bartack.journal._blobs import FileBlobs
from bartack.journal._contract import FORMAT, BlobRef, Draft, Durability, Entry, Loss, Recovery, check_place
from bartack.journal._format import (
    CHUNK,
    INTERRUPTED,
    OPENED,
    Damage,
    Opened,
    Scanner,
    encode_line,
    place_of,
)
from bartack.journal._lock import FileLock, take_lock
from bartack.journal._shared import open_blobs
from bartack.journal._stage import Group, Stage
from bartack.journal._survey import (
    Mark,
    Survey,
    decode_at,
    find_end,
    find_loss,
    iter_entries,
    read_chunks,
    survey,
)
from bartack.journal._veil import Veil
from bartack.telemetry import (
    NO_TELEMETRY,
    JournalCommitted,
    JournalOpened,
    JournalPoisoned,
    JournalRecovered,
    Telemetry,
)

NAME: Final = "journal.ndjson"
RESERVE: Final = "reserve"
RESERVE_SIZE: Final = 64 * 1024
FILLING: Final = 128 * 1024
"""Where every commit is synced, the file grows to multiples of this size."""


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


class _Kept(NamedTuple):
    path: str
    size_bytes: int


def _also_refs(each: Callable[[Entry], None] | None, refs: dict[BlobRef, None]) -> Callable[[Entry], None]:
    def take(entry: Entry) -> None:
        if entry.ref is not None:
            refs[entry.ref] = None
        if each is not None:
            each(entry)

    return take


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
        clock: Tells the time of entries.
        telemetry: Told of openings, commits, recovery and poison.
        each: Gets every entry that is there, in order, while the journal is judged: who needs them all reads the file only once.
            If opening fails, what it got is worth nothing.
        veil: Hides the secrets in what is written, and puts them back into what is read.
        first: Groups that a new journal begins with: it is never there without them. One that exists does not get them.
        accept_loss: Open a journal that has lost acknowledged entries with those that are left. It is copied first.
        check_blobs: Read every large value that an entry refers to before anything is changed.

    Raises:
        JournalLockedError: Somebody else owns it.
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


def _create(disk: Disk, root: str, first: list[Group]) -> None:
    """Make the journal with its first commit in place, so that a file without one is never a journal."""
    temporary = os.path.join(root, f".{NAME}.tmp")
    lines: list[bytes] = []
    crc = 0
    for group in first:
        line, crc = encode_line(group.bodies, group.seq, first[0].seq, group.at, crc)
        lines.append(line)
    fd = disk.open(temporary, write=True, create=True)
    try:
        disk.truncate(fd, 0)
        write_all(disk, fd, b"".join(lines), 0)
        disk.sync(fd)
    finally:
        disk.close(fd)
    disk.rename(temporary, os.path.join(root, NAME))
    _sync_names(disk, root)


def _sync_names(disk: Disk, root: str) -> None:
    """Make the names in a directory durable, and its own: whoever made it may have been killed before it did."""
    disk.sync_dir(root)
    with suppress(PermissionError):  # not readable, so it cannot be synced; most likely it is not ours either
        disk.sync_dir(os.path.dirname(os.path.abspath(root)))


def _opened(fence: int) -> Opened:
    return Opened(format=FORMAT, fence=fence, pid=os.getpid(), by=f"bartack {__version__}")


class FileJournal:
    """A journal file and its ownership; made by ``open_journal``. See ``Journal`` for what it promises.

    Attributes:
        fence: Number of this ownership.
        synced_seq: Place of the last acknowledged entry.
        lost: Whether the ownership is known to be gone.
        recovery: What had to be cut off when it was opened, if anything.
        loss: The acknowledged entries that it was opened without, if any are missing and that was accepted.
        size_bytes: Length of the acknowledged part of the file; blank lines may stand behind it.
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
        self.path = os.path.join(directory, NAME)
        self.fence = 0
        self.synced_seq = 0
        self.size_bytes = 0
        self.lost = False
        self.recovery: Recovery | None = None
        self.loss: Loss | None = None
        self._disk = disk
        self._clock = clock
        self._telemetry = telemetry
        self._lock = lock
        self._sync = sync
        self._fd = -1
        self._filled = 0
        """Up to here the file is known to be written; as far as it is not history, with blank lines."""
        self._crc = 0
        self._marks: list[Mark] = []
        self._veil = veil
        self._blobs = blobs
        self._stage = Stage(self._blobs, clock, 0, veil)
        self._poison: JournalPoisonedError | None = None
        self._pid = os.getpid()
        self._writing = Lock()
        """Held while the end of the file is written: by a commit, or for the last entry when there is no room."""

    @property
    def last_seq(self) -> int:
        """Place of the last staged entry."""
        return self._stage.last_seq

    def stage(self, *drafts: Draft) -> int:
        """Give drafts their places as one atomic group; return the place of the first. See ``Journal.stage``."""
        self._check_usable()
        try:
            return self._stage.add(drafts)
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

    def append(
        self, kind: str, data: Mapping[str, object] | msgspec.Struct | None = None, value: bytes | None = None
    ) -> int:
        """Stage one entry and commit; return its place."""
        seq = self.stage(Draft(kind, {} if data is None else data, value))
        self.commit()
        return seq

    def read(self, from_seq: int = 1) -> Iterator[Entry]:
        """The acknowledged entries from ``from_seq`` on, in order; a copy of what is there at the first step."""
        self._check_open()
        for texts, end in self._read_lines(self._section(from_seq), self.size_bytes):
            yield from iter_entries(self.path, texts, end, from_seq, self._veil)

    def fetch(self, places: Iterable[int]) -> Iterator[Entry]:
        """The acknowledged entries at these places, which must rise; reads only the parts of the file they are in."""
        self._check_open()
        last, size = self.synced_seq, self.size_bytes
        for section, group in groupby(places, self._section):
            end = self._marks[section + 1].offset if section + 1 < len(self._marks) else size
            texts = [text for lines, _ in self._read_lines(section, end) for text in lines]
            entries: list[Entry] = []
            for place in group:
                check_place(place, last)
                if not entries or not entries[0].seq <= place <= entries[-1].seq:
                    index = bisect_right(texts, place, key=place_of) - 1
                    entries = decode_at(self.path, texts, index, end, self._veil)
                yield entries[place - entries[0].seq]

    def _section(self, place: int) -> int:
        """The mark from which on an acknowledged place is found."""
        return max(bisect_right(self._marks, (place, 1 << 62, 0)) - 1, 0)

    def _read_lines(self, section: int, end: int) -> Iterator[tuple[list[bytes], int]]:
        """The lines between a mark and ``end``, some at a time, and where these end."""
        mark = self._marks[section]
        scanner = Scanner(mark.offset, mark.seq, mark.crc)
        with access(self.path):
            for chunk in read_chunks(self._disk, self._fd, mark.offset, end):
                yield scanner.feed(chunk), scanner.offset
                # Closed meanwhile, its descriptor may be another file by now.
                self._check_open()
                if scanner.problem:
                    raise JournalCorruptError(self.path, scanner.offset, scanner.problem)
        if scanner.offset < end:
            raise JournalCorruptError(self.path, scanner.offset, "the file ends before what was acknowledged")

    def load_value(self, entry: Entry) -> bytes | None:
        """The payload of an entry as encoded JSON, wherever it is kept; ``None`` if it has none."""
        return load_value(self._blobs, entry)

    def put_blob(self, content: bytes) -> BlobRef:
        """Keep a large value; durable when it returns."""
        self._check_usable()
        try:
            return self._blobs.put(content)
        except OSError as error:
            self._fail_outside(error)

    def get_blob(self, ref: BlobRef) -> bytes:
        """A large value, checked against its checksum."""
        self._check_open()
        return self._blobs.get(ref)

    def close(self) -> None:
        """Let go of the ownership. What is staged and not committed is dropped."""
        if self._fd >= 0:
            self._cut_filling()
            self._disk.close(self._fd)
            self._fd = -1
        self._lock.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # Opening.

    def _open(self, how: Opening) -> None:
        fresh = not self._disk.exists(self.path)
        if fresh:
            self._check_never_there(how)
            self._stage.add_own(OPENED, _opened(fence=1))
            for drafts in how.first:
                self._stage.add(tuple(drafts))
            _create(self._disk, self.directory, self._stage.take())
        self._fd = self._disk.open(self.path, write=True)
        refs: dict[BlobRef, None] = {}
        each = _also_refs(how.each, refs) if how.check_blobs else how.each
        found = survey(self._disk, self._fd, self.path, each, self._veil)
        self._check_survey(found, how)
        for ref in refs:
            self._blobs.verify(ref)
        self._adopt(found)
        if not fresh:
            self._repair(found)
            self.fence += 1
            self._stage.add_own(OPENED, _opened(self.fence))
            self.commit()
        self._keep_reserve()

    def _check_never_there(self, how: Opening) -> None:
        """Raise if there was a journal: a new one in its place would begin everything anew."""
        known = max(how.at_least, self._lock.mark.seq if self._lock.mark else 0)
        if known:
            raise JournalLostError(self.path, 0, 0, known)

    def _check_survey(self, found: Survey, how: Opening) -> None:
        damage = found.damage
        if damage is not None and not damage.torn:
            raise JournalCorruptError(self.path, damage.offset, damage.problem)
        known = find_loss(self._disk, self._fd, found, self._lock.mark, how.at_least)
        if not known:
            return
        held = found.scanner.next_seq - 1
        lost = JournalLostError(self.path, found.scanner.offset, held, known)
        if not how.accept_loss:
            raise lost
        self.loss = Loss(held, known, self._keep_aside(f"journal.lost-{held + 1}", 0).path)
        self._lock.forget_mark()

    def _adopt(self, found: Survey) -> None:
        self.fence = found.fence
        self.synced_seq = found.scanner.next_seq - 1
        self._stage = Stage(self._blobs, self._clock, self.synced_seq, self._veil)
        self.size_bytes = found.scanner.offset
        self._crc = found.scanner.crc
        self._marks = found.marks

    def _repair(self, found: Survey) -> None:
        """Cut what is torn, after keeping it, and make sure that what will be served is on the disk."""
        if found.damage is not None:
            self._keep_torn(found.damage)
        start = found.scanner.last_commit
        last = b"".join(read_chunks(self._disk, self._fd, start, self.size_bytes))
        write_all(self._disk, self._fd, last, start)
        self._disk.truncate(self._fd, self.size_bytes)
        self._disk.sync(self._fd)
        _sync_names(self._disk, self.directory)

    def _keep_torn(self, damage: Damage) -> None:
        kept = self._keep_aside(f"journal.torn-{damage.seq}", damage.offset)
        self.recovery = Recovery(damage.seq, damage.offset, kept.size_bytes, kept.path)
        if self._telemetry.wanted(JournalRecovered):
            self._telemetry.emit(
                JournalRecovered(size_bytes=kept.size_bytes, seq=damage.seq, kept_as=kept.path)
            )

    def _keep_aside(self, name: str, offset: int) -> _Kept:
        """Copy the file from ``offset`` on, without the blank lines at its end, to a new file beside it."""
        end = find_end(self._disk, self._fd)
        path, fd = self._free_name(name)
        size = offset
        try:
            for chunk in read_chunks(self._disk, self._fd, offset, end):
                write_all(self._disk, fd, chunk, size - offset)
                size += len(chunk)
            self._disk.sync(fd)
        finally:
            self._disk.close(fd)
        self._disk.sync_dir(self.directory)
        return _Kept(path, size - offset)

    def _free_name(self, name: str) -> tuple[str, int]:
        """A new file for what is kept: the same place may be torn more than once."""
        stem = os.path.join(self.directory, name)
        tries = 1
        while True:
            path = stem if tries == 1 else f"{stem}.{tries}"
            try:
                return path, self._disk.open(path, write=True, exclusive=True)
            except FileExistsError:
                tries += 1

    def _keep_reserve(self) -> None:
        """Hold some space, to be freed when the disk is full. Best effort: a disk that is full now has none to hold."""
        try:
            fd = self._disk.open(os.path.join(self.directory, RESERVE), write=True, create=True)
        except OSError:
            return
        try:
            if self._disk.facts(fd).size < RESERVE_SIZE:
                write_all(self._disk, fd, bytes(RESERVE_SIZE), 0)
        except OSError:
            pass
        finally:
            self._disk.close(fd)

    # Committing.

    def _write(self, groups: list[Group]) -> int:
        lines, crc, marks = self._encode(groups)
        try:
            if self._sync and self.size_bytes + len(lines) > self._filled:
                self._grow(lines)
            else:
                write_all(self._disk, self._fd, lines, self.size_bytes)
            if self._sync:
                self._disk.sync(self._fd)
            kept = self._disk.all_named(self._fd, self._lock.fd)
        except OSError as error:
            self._fail(error)
        if not kept:
            self.lost = True
            self._give_up(
                JournalOwnershipLostError(self.path, "it or its lock was deleted or replaced under its owner")
            )
        self._marks += marks
        self._crc = crc
        self.size_bytes += len(lines)
        last = groups[-1]
        self.synced_seq = last.seq + len(last.bodies) - 1
        self._lock.note(self.synced_seq, crc)
        return len(lines)

    def _grow(self, lines: bytes) -> None:
        """Write lines that the file has to grow for, and the blank lines behind them that those to come are written over."""
        filled = -(-(self.size_bytes + len(lines)) // FILLING) * FILLING
        try:
            write_all(self._disk, self._fd, lines.ljust(filled - self.size_bytes, b"\n"), self.size_bytes)
            self._filled = filled
        except OSError as error:
            if error.errno not in FULL:
                raise
            # There may still be room for the lines alone. Nothing is synced yet, so they can be written again.
            write_all(self._disk, self._fd, lines, self.size_bytes)

    def _cut_filling(self) -> None:
        """Leave a file that ends with its last entry. Best effort, for people: the next owner cuts what is left."""
        if self._filled <= self.size_bytes or self._poison is not None or os.getpid() != self._pid:
            return
        if not self._writing.acquire(blocking=False):
            return
        try:
            # Without its name the lock no longer keeps others away, and their entries would be cut.
            if self._lock.is_named:
                self._disk.truncate(self._fd, self.size_bytes)
        except OSError:
            pass
        finally:
            self._writing.release()

    def _encode(self, groups: list[Group]) -> tuple[bytes, int, list[Mark]]:
        lines: list[bytes] = []
        marks: list[Mark] = []
        crc, offset = self._crc, self.size_bytes
        next_mark = self._marks[-1].offset + CHUNK
        place = commit = self.synced_seq + 1
        for group in groups:
            if group.seq != place:
                # An interrupted ``stage`` may leave a place taken twice, and this would be no history.
                self._give_up(JournalPoisonedError(self.path, "staging an entry was interrupted"))
            if offset >= next_mark:
                marks.append(Mark(place, offset, crc))
                next_mark = offset + CHUNK
            bodies = group.bodies
            line, crc = encode_line(bodies, place, commit, group.at, crc)
            lines.append(line)
            offset += len(line)
            place += len(bodies)
        return b"".join(lines), crc, marks

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
        last = stage.take()
        line, _ = encode_line(last[0].bodies, last[0].seq, last[0].seq, last[0].at, self._crc)
        try:
            with suppress(FileNotFoundError):
                self._disk.unlink(os.path.join(self.directory, RESERVE))
            self._disk.truncate(self._fd, self.size_bytes)
            write_all(self._disk, self._fd, line, self.size_bytes)
            self._disk.sync(self._fd)
        except OSError:
            # It was worth a try; opening again judges whatever reached the disk.
            return

    # Guards.

    def _check_open(self) -> None:
        if self._fd < 0:
            raise JournalClosedError(self.path)

    def _check_usable(self) -> None:
        self._check_open()
        if self._poison is not None:
            raise self._poison.again(self._poison)


def load_value(blobs: FileBlobs, entry: Entry) -> bytes | None:
    """The payload of an entry as encoded JSON, wherever it is kept; ``None`` if it has none."""
    if entry.value is not None:
        return bytes(entry.value)
    return None if entry.ref is None else blobs.get(entry.ref)
