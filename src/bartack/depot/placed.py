"""A run by its directory on this machine, wherever it is kept: in the directory, or in a database that the directory names.

Reading a run in a database brings the copy in the directory up to date first, unless its hub runs on this machine and does that.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Final

from bartack.core.clock import Clock
from bartack.core.watch import Watch
from bartack.depot._directory import FileRun
from bartack.depot.elsewhere import Elsewhere, open_elsewhere, read_elsewhere
from bartack.errors import UntrustedError
from bartack.journal import Draft, Durability, Entry, Journal
from bartack.journal.file import FileBlobs, FileReader
from bartack.journal.veil import Veil
from bartack.telemetry import NO_TELEMETRY, Telemetry

if TYPE_CHECKING:
    from bartack.depot.postgres._lease import Page
    from bartack.depot.postgres._run import PostgresRun

PROGRAM: Final = ("program", "program.next-*", "sets.json")
"""What another machine needs to continue a run, beside what is in its journal. The second is what an update puts in place."""


class PlacedRun(FileRun):
    """See ``KeptRun``, and the module.

    Attributes:
        page: Shows the processes of the run how long they may continue; set before the run is owned.
    """

    page: Page | None = None

    @cached_property
    def where(self) -> Elsewhere | None:
        """Where it is kept; ``None`` if that is its directory.

        Raises:
            UntrustedError: The directory names a database, and this user has not written that.
        """
        return read_elsewhere(self.path) if self._disk is None else None

    @property
    def is_kept_elsewhere(self) -> bool:
        """Whether it is kept in a database, as far as this user has said so."""
        return self._read_from() is not None

    @cached_property
    def _kept(self) -> PostgresRun | None:
        """The run as it is kept in a database."""
        return None if self.where is None else open_elsewhere(self.path, self.where)

    def _read_from(self) -> PostgresRun | None:
        """Where it is read from. A directory that another user has made is read as it is."""
        try:
            return self._kept
        except UntrustedError:
            return None

    def _read_fresh(self) -> PostgresRun | None:
        """Where it is read from, unless the copy in its directory is up to date."""
        kept = self._read_from()
        return None if kept is None or self.socket.has_listener() else kept

    # Reading.

    def exists(self) -> bool:
        """See ``KeptRun.exists``."""
        return super().exists() or ((kept := self._read_from()) is not None and kept.exists())

    def check_readable(self) -> None:
        """See ``KeptRun.check_readable``."""
        kept = self._read_fresh()
        if kept is not None:
            kept.catch_up()
        super().check_readable()

    def open_reader(self, *, veil: Veil | None = None) -> FileReader:
        """See ``KeptRun.open_reader``."""
        kept = self._read_fresh()
        return super().open_reader(veil=veil) if kept is None else kept.open_reader(veil=veil)

    def open_blobs(self, *, veil: Veil | None = None) -> FileBlobs:
        """See ``KeptRun.open_blobs``."""
        kept = self._read_from()
        return super().open_blobs(veil=veil) if kept is None else kept.open_blobs(veil=veil)

    def summary(self) -> bytes | None:
        """See ``KeptRun.summary``."""
        kept = self._read_fresh()
        return super().summary() if kept is None else kept.summary()

    def watch(self) -> Watch:
        """See ``KeptRun.watch``."""
        kept = self._read_fresh()
        return super().watch() if kept is None else kept.watch()

    # Its owner.

    def is_active(self) -> bool:
        """See ``KeptRun.is_active``: on this machine, or on another one."""
        return super().is_active() or ((kept := self._read_from()) is not None and kept.is_active())

    def last_sign_of_life_us(self) -> int | None:
        """See ``KeptRun.last_sign_of_life_us``."""
        kept = self._read_from()
        return super().last_sign_of_life_us() if kept is None else kept.last_sign_of_life_us()

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
        kept = self._kept
        if kept is None:
            super().create(first, durability=durability, clock=clock, veil=veil, alive_us=alive_us)
        else:
            kept.create(first, clock=clock, veil=veil, alive_us=alive_us, program=self.pack())

    def open_journal(
        self,
        *,
        durability: Durability = "power",
        telemetry: Telemetry = NO_TELEMETRY,
        each: Callable[[Entry], None] | None = None,
        veil: Veil | None = None,
        accept_loss: bool = False,
    ) -> Journal:
        """See ``KeptRun.open_journal``."""
        kept = self._kept
        if kept is not None:
            kept.page = self.page
            return kept.open_journal(telemetry=telemetry, each=each, veil=veil, accept_loss=accept_loss)
        return super().open_journal(
            durability=durability, telemetry=telemetry, each=each, veil=veil, accept_loss=accept_loss
        )

    @contextmanager
    def own(self) -> Generator[Journal]:
        """See ``KeptRun.own``."""
        kept = self._kept
        with super().own() if kept is None else kept.own() as journal:
            yield journal

    def check_kept(self) -> None:
        """See ``KeptRun.check_kept``."""
        kept = self._read_from()
        if kept is None:
            super().check_kept()
        else:
            kept.check_kept()

    def mark(self, summary: bytes) -> None:
        """See ``KeptRun.mark``."""
        kept = self._kept
        if kept is None:
            super().mark(summary)
        else:
            kept.mark(summary)

    def beat(self) -> None:
        """See ``KeptRun.beat``."""
        kept = self._kept
        if kept is None:
            super().beat()
        else:
            kept.beat()

    def delete(self) -> None:
        """See ``KeptRun.delete``."""
        kept = self._kept
        if kept is None:
            super().delete()
        else:
            kept.delete()

    def pack(self) -> bytes:
        """Its program and the settings that were given for it, as one archive."""
        from bartack.depot._archive import pack_program  # noqa: PLC0415 - only runs in a database need it

        return pack_program(self.path, PROGRAM)

    def keep_program(self) -> None:
        """Let other machines continue it with the program that is in its directory now."""
        if self._kept is not None:
            self._kept.keep_program(self.pack())
