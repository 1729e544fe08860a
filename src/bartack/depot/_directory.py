"""A run in a directory of this machine: its journal with its lock and large values, its summary, and the socket of its hub.

    journal.ndjson  lock  reserve  blobs/  drop/    what ``bartack.journal.file`` keeps
    run.json                                        the summary
    hub.sock                                        the hub listens here
    lock.tree                                       held by the processes of the run; ``bartack.supervision`` has more on it

The owner is the process that holds the lock. The time of a sign of life is the time that ``lock`` and ``lock.tree`` were changed.
The other files of a run are those of the runtime: ``runtime/rundir/layout.py``. ``folder.py`` has many runs.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar, Final

import msgspec

from bartack.core import typed
from bartack.core.clock import Clock
from bartack.core.disk import Disk
from bartack.core.files import open_private, replace_file
from bartack.core.share import SHARED_FILE, share, share_tree
from bartack.core.trust import check_private
from bartack.core.watch import Watch, open_watch
from bartack.depot._socket import SOCKET_FILE, HubSocket
from bartack.journal import Draft, Durability, Entry, Journal
from bartack.journal.file import (
    BLOBS,
    DROP,
    JOURNAL_FILE,
    LOCK_FILE,
    FileBlobs,
    FileReader,
    check_beginning,
    check_kept,
    open_blobs,
    open_journal,
    open_reader,
)
from bartack.journal.veil import Veil
from bartack.telemetry import NO_TELEMETRY, Telemetry

SUMMARY_FILE: Final = "run.json"
TREE_LOCK_FILE: Final = "lock.tree"
DELETED: Final = ".deleted-"
"""How the name of a run's directory begins while it is being deleted."""
_DROP_MODE: Final = 0o770


class _Marked(msgspec.Struct):
    seq: int = 0


class FileRun:
    """See ``KeptRun``, and the module for the files.

    Attributes:
        path: The directory.
        tree_lock: The file that the processes of the run hold a lock of.
        socket: Where the hub listens.

    Args:
        path: The directory.
        disk: Where its journal is kept; the operating system's files by default.
    """

    KEPT_FOLDERS: ClassVar = (BLOBS,)
    """The directories that are kept here."""

    def __init__(self, path: str | os.PathLike[str], disk: Disk | None = None) -> None:
        self.path = Path(path).absolute()
        self.tree_lock = self.path / TREE_LOCK_FILE
        self.socket = HubSocket(self.path / SOCKET_FILE)
        self._lock = self.path / LOCK_FILE
        self._summary = self.path / SUMMARY_FILE
        self._disk = disk

    @property
    def id(self) -> str:
        """The run's id."""
        return self.path.name

    # Reading.

    def exists(self) -> bool:
        """See ``KeptRun.exists``."""
        file = os.path.join(self.path, JOURNAL_FILE)
        return os.path.exists(file) if self._disk is None else self._disk.exists(file)

    def check_readable(self) -> None:
        """See ``KeptRun.check_readable``."""
        check_private(self.path)
        check_beginning(self.path, disk=self._disk)

    def open_reader(self, *, veil: Veil | None = None) -> FileReader:
        """See ``KeptRun.open_reader``."""
        return open_reader(self.path, disk=self._disk, veil=veil)

    def open_blobs(self, *, veil: Veil | None = None) -> FileBlobs:
        """See ``KeptRun.open_blobs``."""
        return open_blobs(str(self.path), self._disk, veil=veil)

    def blob_port(self) -> str:
        """See ``KeptRun.blob_port``: its directory."""
        return str(self.path)

    def summary(self) -> bytes | None:
        """See ``KeptRun.summary``."""
        try:
            return self._summary.read_bytes()
        except OSError:
            return None

    def watch(self) -> Watch:
        """See ``KeptRun.watch``: every file of the run counts."""
        return open_watch(str(self.path))

    # Its owner.

    def is_active(self) -> bool:
        """See ``KeptRun.is_active``."""
        return self.socket.has_listener()

    def owner_pid(self) -> int:
        """See ``KeptRun.owner_pid``: the process is named in the first line of the lock."""
        try:
            with self._lock.open("rb") as file:
                return int(file.readline() or b"0")
        except (OSError, ValueError):
            return 0

    def last_sign_of_life_us(self) -> int | None:
        """See ``KeptRun.last_sign_of_life_us``: of the hub itself, or of the parent programs that saw it die."""
        signs: list[int] = []
        for path in (self._lock, self.tree_lock):
            with contextlib.suppress(OSError):
                signs.append(os.lstat(path).st_mtime_ns // 1000)
        return max(signs, default=None)

    # Owning.

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
        open_journal(
            self.path, durability=durability, disk=self._disk, clock=clock, first=first, veil=veil
        ).close()
        self._keep_sign_of_life(alive_us)

    def open_journal(
        self,
        *,
        durability: Durability = "power",
        telemetry: Telemetry = NO_TELEMETRY,
        each: Callable[[Entry], None] | None = None,
        veil: Veil | None = None,
        accept_loss: bool = False,
        clock: Clock | None = None,
    ) -> Journal:
        """See ``KeptRun.open_journal``."""
        alive_us = self.last_sign_of_life_us()
        journal = open_journal(
            self.path,
            durability=durability,
            at_least=self._at_least(),
            disk=self._disk,
            clock=clock,
            telemetry=telemetry,
            each=each,
            veil=veil,
            accept_loss=accept_loss,
            check_blobs=True,
        )
        # Opening has changed the lock.
        self._keep_sign_of_life(alive_us)
        return journal

    @contextmanager
    def own(self) -> Generator[Journal]:
        """See ``KeptRun.own``."""
        alive_us = self.last_sign_of_life_us()
        with open_journal(self.path, at_least=self._at_least(), disk=self._disk) as journal:
            try:
                yield journal
            finally:
                self._keep_sign_of_life(alive_us)

    def check_kept(self) -> None:
        """See ``KeptRun.check_kept``."""
        check_kept(self.path, at_least=self._at_least(), disk=self._disk)

    def mark(self, summary: bytes) -> None:
        """See ``KeptRun.mark``."""
        replace_file(self._summary, summary)

    def beat(self) -> None:
        """See ``KeptRun.beat``. It is handed to the disk without waiting for it, with how many entries the journal has."""
        with contextlib.suppress(OSError):
            fd = open_private(self._lock, os.O_RDONLY)
            try:
                os.utime(fd)
                if hasattr(os, "posix_fadvise"):
                    # On Linux this begins to write the file's changed pages; a sync would hold up the hub.
                    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(fd)

    def delete(self) -> None:
        """See ``KeptRun.delete``."""
        import shutil  # noqa: PLC0415 - slow to load

        # Renamed before it is deleted: no other command ever finds half a run.
        doomed = self.path.with_name(f"{DELETED}{self.id}")
        os.rename(self.path, doomed)
        shutil.rmtree(doomed)
        # Those that were killed or refused have left something.
        for name in os.listdir(self.path.parent):
            if name.startswith(DELETED):
                shutil.rmtree(self.path.parent / name, ignore_errors=True)

    def share(self, group: int) -> None:
        """Let a group read the journal and its large values, and leave large values for its owner."""
        drop = self.path / DROP
        drop.mkdir(mode=0o700, exist_ok=True)
        share(str(drop), group, _DROP_MODE)
        share_tree(self.path / BLOBS, group)
        journal = self.path / JOURNAL_FILE
        if journal.exists():
            share(str(journal), group, SHARED_FILE)

    def _at_least(self) -> int:
        """The last entry that the summary knows to be acknowledged; 0 if it knows none."""
        try:
            return typed.decode(self._summary.read_bytes(), type=_Marked).seq
        except (OSError, msgspec.DecodeError):
            return 0

    def _keep_sign_of_life(self, at_us: int | None) -> None:
        """Restore when the last hub was seen alive: owning the journal for a moment is not running the run."""
        with contextlib.suppress(OSError):
            if at_us is not None:
                os.utime(self._lock, ns=(at_us * 1000, at_us * 1000), follow_symlinks=False)
