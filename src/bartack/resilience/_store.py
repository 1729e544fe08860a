"""The state database: one SQLite file that all processes of a user share.

Owns opening, migrating, transactions, and what happens when the file is damaged, replaced or cannot be written. What is in the
tables is decided by those who use it (``outbox/outbox.py``, ``_breaker.py``, ``_health.py``); how a damaged file is replaced is in
``_salvage.py``.

Every transaction looks, before and after, whether the file it works on still has its name: a database that another process has
put aside meanwhile would swallow what is written to it. The work is then done again on the database that replaced it.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sqlite3
import threading
import weakref
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Final, TypeVar

from bartack.core.boot import boot_id
from bartack.core.clock import Clock, SystemClock
from bartack.core.closing import Closing
from bartack.core.disk import FILE_MODE
from bartack.core.files import make_file
from bartack.core.flock import lock_within
from bartack.core.trust import make_private
from bartack.errors import StoreTooNewError, StoreUnavailableError
from bartack.resilience._salvage import put_aside, save_rows
from bartack.resilience._schema import MIGRATIONS, VERSION
from bartack.resilience.home import DATABASE
from bartack.telemetry import NO_TELEMETRY, Telemetry
from bartack.telemetry.catalogue import OutboxQuarantined

_log = logging.getLogger("bartack.resilience")
T = TypeVar("T")
Work = Callable[[sqlite3.Connection], T]

LOCK: Final = "store.lock"
LOCK_WAIT_S: Final = 5.0
BUSY_S: Final = 5.0
INGEST_BUSY_S: Final = 0.1
"""How long an ingest inside the event loop of a caller may wait for other writers; then the event goes to the spool."""

_DAMAGED: Final = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
_UNUSABLE: Final = {
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_AUTH,
    sqlite3.SQLITE_PROTOCOL,
}
_NETWORK: Final = {"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "fuse.sshfs", "lustre"}
_TRIES: Final = 4


class _Open:
    """One open connection, and which file it is open on. It is closed when nothing refers to this object any more.

    The thread that opened it has the only lasting reference, so it ends with the thread, with the store or with the process,
    whichever is first. Programs of the older API have no place where they could close anything.
    """

    def __init__(self, connection: sqlite3.Connection, inode: int) -> None:
        self.connection = connection
        self.inode = inode
        self.pid = os.getpid()
        self.busy_s = -1.0
        self.durable = True
        self.close = weakref.finalize(self, _close, connection, self.pid)

    @property
    def is_usable(self) -> bool:
        """Whether it is open, and in this process: one must not be used in a process forked from the one that opened it."""
        return self.close.alive and self.pid == os.getpid()


def _close(connection: sqlite3.Connection, pid: int) -> None:
    if pid == os.getpid():
        connection.close()


class StateStore(Closing):
    """The state of one state home. Opened by its first use; may be used by several threads.

    Args:
        directory: The state home; made when it is missing.
        clock: What time it is.
        telemetry: Receives damage of the database.
        boot: Which start of the machine this is; readings of the monotonic clock compare within one only.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        *,
        clock: Clock | None = None,
        telemetry: Telemetry = NO_TELEMETRY,
        boot: str | None = None,
    ) -> None:
        self.directory = Path(directory)
        self.path = self.directory / DATABASE
        self.clock = clock or SystemClock()
        self.telemetry = telemetry
        self._boot = boot
        self._local = threading.local()
        self._opened: weakref.WeakSet[_Open] = weakref.WeakSet()
        self._counting = threading.Lock()

    def rehome(self, directory: str | os.PathLike[str]) -> None:
        """Continue in another state home."""
        self.close()
        self.directory = Path(directory)
        self.path = self.directory / DATABASE

    @property
    def boot(self) -> str:
        """Which start of the machine this is."""
        return self._boot or boot_id()

    def now(self) -> float:
        """Seconds on the clock that only goes forward."""
        return self.clock.monotonic_ns() / 1e9

    def wall(self) -> float:
        """Seconds since 1970, for people and for days."""
        return self.clock.now_us() / 1e6

    def write(self, work: Work[T], *, busy_s: float = BUSY_S, durable: bool = True) -> T:
        """Do ``work`` in one transaction that excludes other writers; its changes are durable when this returns.

        ``work`` may be called again, on another connection, and must have no other effects. ``durable=False`` leaves the sync
        to the next durable transaction: for what may be forgotten in a power cut.

        Raises:
            StoreUnavailableError: The database is busy, its disk is full, or it is not writable.
            StoreTooNewError: It was made by a newer version.
        """
        return self._guarded(lambda opened: _in_transaction(opened.connection, work), busy_s, durable=durable)

    def read(self, work: Work[T]) -> T:
        """Do ``work`` on one consistent state, without waiting for writers.

        Raises:
            StoreUnavailableError: See ``write``.
            StoreTooNewError: See ``write``.
        """
        return self._guarded(lambda opened: _in_snapshot(opened.connection, work), BUSY_S, durable=True)

    def check(self) -> None:
        """Look through the whole database, and replace it if it is damaged."""

        def look(connection: sqlite3.Connection) -> None:
            found = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
            if found != "ok":
                raise _DamagedError(found)

        self.read(look)

    def checkpoint(self) -> None:
        """Bring everything into the main file, so that it can be copied alone."""
        with contextlib.suppress(StoreUnavailableError):
            self._guarded(
                lambda opened: opened.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)"),
                BUSY_S,
                durable=True,
            )

    def close(self) -> None:
        """Close the connections of this process. The next use opens it again."""
        with self._counting:
            opened, self._opened = list(self._opened), weakref.WeakSet()
        self._local = threading.local()
        for one in opened:
            one.close()

    def _guarded(self, work: Callable[[_Open], T], busy_s: float, *, durable: bool) -> T:
        for _ in range(_TRIES):
            try:
                opened = self._connection()
                _prepare(opened, busy_s, durable=durable)
                result = work(opened)
            except _DamagedError as error:
                self._replace_damaged(str(error))
                continue
            except sqlite3.DatabaseError as error:
                if _primary(error) in _DAMAGED:
                    self._replace_damaged(str(error))
                    continue
                raise self._unavailable(error) from error
            if self._inode() == opened.inode:
                return result
            self._forget(opened)
        raise StoreUnavailableError(str(self.path), "it keeps being damaged or replaced")

    def _unavailable(self, error: sqlite3.DatabaseError) -> Exception:
        if _primary(error) in _UNUSABLE:
            return StoreUnavailableError(str(self.path), str(error))
        return error

    def _connection(self) -> _Open:
        opened: _Open | None = getattr(self._local, "opened", None)
        if opened is not None and opened.is_usable:
            if self._inode() == opened.inode:
                return opened
            self._forget(opened)
        try:
            make_private(self.directory)
            with self._locked():
                opened = self._open()
        except OSError as error:
            raise StoreUnavailableError(str(self.path), error.strerror or str(error)) from error
        self._local.opened = opened
        with self._counting:
            self._opened.add(opened)
        return opened

    def _forget(self, opened: _Open) -> None:
        self._local.opened = None
        opened.close()

    def _inode(self) -> int:
        try:
            return os.stat(self.path).st_ino
        except OSError:
            return -1

    def _open(self) -> _Open:
        make_file(self.path)  # SQLite gives its other files the permissions of this one
        connection = sqlite3.connect(self.path, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
        try:
            mode = "DELETE" if _on_network(self.directory) else "WAL"
            self._migrate(connection)
            connection.execute(f"PRAGMA journal_mode={mode}")
            connection.execute("PRAGMA synchronous=FULL")
            connection.execute("PRAGMA foreign_keys=ON")
        except BaseException:
            connection.close()
            raise
        return _Open(connection, self._inode())

    def _migrate(self, connection: sqlite3.Connection) -> None:
        found: int = connection.execute("PRAGMA user_version").fetchone()[0]
        if found > VERSION:
            raise StoreTooNewError(str(self.path), found, VERSION)
        if found == VERSION:
            return
        script = "".join(MIGRATIONS[found:])
        connection.executescript(f"BEGIN IMMEDIATE;{script}PRAGMA user_version={VERSION};COMMIT;")

    @contextlib.contextmanager
    def _locked(self) -> Generator[None]:
        """Keep others from opening or replacing the database meanwhile."""
        fd = os.open(self.directory / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
        try:
            if not lock_within(fd, LOCK_WAIT_S):
                raise StoreUnavailableError(str(self.path), f"{LOCK} is held by another process")
            yield
        finally:
            os.close(fd)

    def _replace_damaged(self, problem: str) -> None:
        mine: _Open | None = getattr(self._local, "opened", None)
        if mine is not None:
            self._forget(mine)
        try:
            with self._locked():
                if self._is_sound(mine):
                    return
                aside = put_aside(self.directory)
                fresh = self._open()
                saved = save_rows(aside / DATABASE, fresh.connection)
                fresh.close()
        except OSError as error:
            raise StoreUnavailableError(str(self.path), error.strerror or str(error)) from error
        _log.warning(
            "%s was damaged (%s): moved aside to %s, %d events recovered from it",
            self.path,
            problem,
            aside,
            saved,
        )
        if self.telemetry.wanted(OutboxQuarantined):
            self.telemetry.emit(OutboxQuarantined(events=saved, path=str(self.path), kept_as=str(aside)))

    def _is_sound(self, mine: _Open | None) -> bool:
        """Whether another process has replaced the database since ``mine`` was opened, or it is not damaged after all."""
        if mine is not None and self._inode() != mine.inode:
            return True
        try:
            fresh = self._open()
        except sqlite3.DatabaseError:
            return False
        try:
            return bool(fresh.connection.execute("PRAGMA quick_check(1)").fetchone()[0] == "ok")
        except sqlite3.DatabaseError:
            return False
        finally:
            fresh.close()


class _DamagedError(Exception):
    """A look through the database found damage that no statement has stumbled over yet."""


def _in_transaction(connection: sqlite3.Connection, work: Work[T]) -> T:
    connection.execute("BEGIN IMMEDIATE")
    try:
        result = work(connection)
        connection.execute("COMMIT")
    except BaseException:
        _roll_back(connection)
        raise
    return result


def _in_snapshot(connection: sqlite3.Connection, work: Work[T]) -> T:
    connection.execute("BEGIN")
    try:
        return work(connection)
    finally:
        _roll_back(connection)


def _roll_back(connection: sqlite3.Connection) -> None:
    # A full disk makes SQLite roll back by itself.
    with contextlib.suppress(sqlite3.Error):
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def _prepare(opened: _Open, busy_s: float, *, durable: bool) -> None:
    if opened.busy_s != busy_s:
        opened.connection.execute(f"PRAGMA busy_timeout={int(busy_s * 1000)}")
        opened.busy_s = busy_s
    if opened.durable != durable:
        opened.connection.execute(f"PRAGMA synchronous={'FULL' if durable else 'NORMAL'}")
        opened.durable = durable


def _primary(error: sqlite3.DatabaseError) -> int:
    code: int = getattr(error, "sqlite_errorcode", 0)
    return code & 0xFF


def _on_network(directory: Path) -> bool:
    """Whether the directory is on a file system of another machine, where WAL is not safe."""
    try:
        mounts = Path("/proc/self/mounts").read_text(encoding="utf-8", errors="replace").splitlines()
        real = os.path.realpath(directory)
    except OSError:
        return False
    kinds = {fields[1]: fields[2] for fields in map(str.split, mounts) if len(fields) > 2}
    above = [point for point in kinds if real == point or real.startswith(point.rstrip("/") + "/")]
    return bool(above) and kinds[max(above, key=len)] in _NETWORK
