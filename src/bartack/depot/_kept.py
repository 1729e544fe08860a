"""What it means to keep runs, whatever keeps them: how a run is found, read, owned and watched, and what is known of its owner.

Nothing here knows what the entries of a journal mean. These promises are checked on every engine by
``bartack.testing.DepotContract``:

- a run is there from the moment its journal is created, with the first entries that were given, or not at all;
- it has one owner at a time, and an owner that lost it acknowledges nothing more (see ``Journal``);
- its summary is kept apart from its journal, and a journal that ends before the entry that it names has lost entries: it is
  opened only by an owner that accepts that;
- only a hub gives signs of life. A process that owns a run for a moment to change something leaves the last one as it was;
- reading takes no ownership and changes nothing, and a change wakes up every process that watches.

``_directory.py`` keeps a run in a directory of this machine, ``_memory_run.py`` in this process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from bartack.core.clock import Clock
from bartack.core.watch import Watch
from bartack.journal import Blobs, Draft, Durability, Entry, Journal, JournalReader
from bartack.journal.veil import Veil
from bartack.telemetry import NO_TELEMETRY, Telemetry


class KeptRun(Protocol):
    """One run. Making this object reads and makes nothing; the run need not be there.

    Attributes:
        id: Its id.
    """

    @property
    def id(self) -> str: ...

    # Reading.

    def exists(self) -> bool:
        """Whether it is there: whether it has a journal."""
        ...

    def check_readable(self) -> None:
        """Raise unless it may be read by this user and this version. How far its journal is intact is found by reading it.

        Raises:
            UntrustedError: Another user can change it.
            JournalError: Its journal is missing, or a newer version wrote it.
            FileAccessError: The operating system refused.
        """
        ...

    def open_reader(self, *, veil: Veil | None = None) -> JournalReader:
        """Read its journal without owning it.

        Args:
            veil: Puts the secrets back into what is read; without it their markers are seen.

        Raises:
            JournalNotFoundError: There is none.
            FileAccessError: The operating system refused.
        """
        ...

    def open_blobs(self, *, veil: Veil | None = None) -> Blobs:
        """The large values of its journal, as this process may use them.

        Args:
            veil: Hides the secrets in what is put, and puts them back into what is got.
        """
        ...

    def blob_port(self) -> str:
        """What a process of the run opens the large values with: see ``open_blob_port``. Its order carries it."""
        ...

    def summary(self) -> bytes | None:
        """What the last call of ``mark`` has kept; ``None`` if there is nothing."""
        ...

    def watch(self) -> Watch:
        """Wait for a change: of its journal, of its summary, of its owner.

        Raises:
            OSError: It cannot be watched, for example because it is gone.
        """
        ...

    # Its owner.

    def is_active(self) -> bool:
        """Whether a hub runs it now; a stopped one counts. Never waits."""
        ...

    def owner_pid(self) -> int:
        """The process of this machine that owns it, as far as it has named itself; 0 if none has."""
        ...

    def last_sign_of_life_us(self) -> int | None:
        """When its last hub was seen alive, in microseconds since 1970; ``None`` if it never was."""
        ...

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
        """Make its journal, which begins with these groups, and leave it to the first owner.

        Args:
            first: The groups of entries.
            durability: What they survive.
            clock: The time of the entries.
            veil: Hides the secrets in them.
            alive_us: When a hub of it counts as seen alive; now by default.

        Raises:
            JournalLockedError: Another process owns it.
            FileAccessError: The operating system refused.
        """
        ...

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
        """Own it, to be its hub. This is not yet a sign of life.

        Args:
            durability: What an acknowledged entry survives.
            telemetry: Receives openings, commits, recovery and poison.
            each: Gets every entry that is there, in order. If opening fails, what it got is worth nothing.
            veil: Hides the secrets in what is written, and puts them back into what is read.
            accept_loss: Own it although acknowledged entries are missing at the end of its journal.
            clock: The time of the entries.

        Raises:
            JournalLockedError: Another process owns it.
            JournalCorruptError: It is damaged where it was acknowledged already; nothing was changed.
            JournalLostError: Acknowledged entries at its end are missing; nothing was changed.
            BlobMissingError: A large value is not there; nothing was changed.
            BlobCorruptError: A large value was changed; nothing was changed by this.
            JournalFormatError: A newer version wrote it; nothing was changed.
            FileAccessError: The operating system refused.
        """
        ...

    def own(self) -> AbstractContextManager[Journal]:
        """Own it for a moment, to change something while no hub runs it. The last sign of life stays as it is.

        Raises:
            JournalLockedError: Another process owns it.
            JournalCorruptError: It is damaged where it was acknowledged already; nothing was changed.
            JournalLostError: Acknowledged entries at its end are missing; nothing was changed.
        """
        ...

    def check_kept(self) -> None:
        """Raise unless its journal still holds every entry that is known to have been acknowledged. Takes no ownership.

        Raises:
            JournalLostError: Entries are missing.
            JournalCorruptError: It is not a journal at all.
        """
        ...

    def mark(self, summary: bytes) -> None:
        """Keep what lists show of it. Only for its owner.

        Args:
            summary: A JSON object. Its ``seq`` is an acknowledged entry, and nothing in it is from a later one.

        Raises:
            OSError: They could not be kept.
        """
        ...

    def beat(self) -> None:
        """Give a sign of life. Only for its hub. It never raises for what a disk refuses."""
        ...

    def delete(self) -> None:
        """Delete it with everything that is kept of it. It is never found in part. Only for a run that nothing owns.

        Raises:
            OSError: It could not be deleted.
        """
        ...


class RunStore(Protocol):
    """Runs that are kept in one place."""

    def runs(self) -> Sequence[KeptRun]:
        """The runs that are there, the newest first; also those that cannot be read.

        Raises:
            FileAccessError: The operating system refused.
        """
        ...

    def run(self, run_id: str) -> KeptRun:
        """The run of this id, also if it is not there."""
        ...

    def new_run(self) -> KeptRun:
        """A run with an id that no other one has, which counts as the newest. It is there when its journal is created."""
        ...
