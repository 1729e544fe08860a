"""A run by its directory on this machine, wherever it is kept: in the directory, or in a database that the directory names.

Reading a run in a database brings the copy in the directory up to date first, unless its hub runs on this machine and does that.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING

from bartack.core.clock import Clock
from bartack.core.watch import Watch
from bartack.depot._directory import FileRun
from bartack.depot.elsewhere import NODE, Elsewhere, open_elsewhere, read_elsewhere
from bartack.depot.taken import TEAM, Queueing
from bartack.errors import JournalLockedError, UntrustedError
from bartack.journal import Draft, Durability, Entry, Journal
from bartack.journal.file import FileBlobs, FileReader
from bartack.journal.veil import Veil
from bartack.telemetry import NO_TELEMETRY, Telemetry

if TYPE_CHECKING:
    from bartack.depot.asking import Answerer, Questioner
    from bartack.depot.link import HubLink
    from bartack.depot.postgres._lease import Page
    from bartack.depot.postgres._run import PostgresRun


# Long because it has all of ``KeptRun``, for a run that is kept in either place.
class PlacedRun(FileRun):
    """See ``KeptRun``, and the module.

    Attributes:
        page: Shows the processes of the run how long they may continue; set before the run is owned.
        link: To the node that owns the run, in its hub; set before the run is owned.
        team: Whose run it is in a database,
        key: by what the team knows it, and
        queueing: how it is queued for the nodes there; set before the run is created.
    """

    page: Page | None = None
    link: HubLink | None = None
    team = TEAM
    key = ""
    queueing: Queueing | None = None

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
        try:
            return self.where is not None
        except UntrustedError:
            return False

    @property
    def is_of_node(self) -> bool:
        """Whether the directory is the working copy of a node. It is read as it is, and only the node owns the run."""
        return self.where is not None and self.where.on == NODE

    @cached_property
    def _kept(self) -> PostgresRun | None:
        """The run as it is kept in a database."""
        if self.where is None or self.is_of_node:
            return None
        return open_elsewhere(self.path, self.where)

    def _to_own(self) -> PostgresRun | None:
        """The run as this process may own it; ``None``: in its directory."""
        if self.is_of_node:
            raise JournalLockedError(str(self.path), None, "the node of this machine that it belongs to")
        return self._kept

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
        if kept is None:
            super().check_readable()
        else:
            kept.check_readable()

    def open_reader(self, *, veil: Veil | None = None) -> FileReader:
        """See ``KeptRun.open_reader``."""
        kept = self._read_fresh()
        return super().open_reader(veil=veil) if kept is None else kept.open_reader(veil=veil)

    def open_blobs(self, *, veil: Veil | None = None) -> FileBlobs:
        """See ``KeptRun.open_blobs``."""
        if self.link is not None:
            return self.link.blobs(self.path, veil)
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

    def is_awaited(self) -> bool:
        """Whether it is kept in a database, and a node of that is going to run it."""
        kept = self._read_from()
        return kept is not None and kept.is_awaited()

    def is_wakeable(self) -> bool:
        """Whether it is kept in a database whose nodes let it rest, or have it in their queue: a request lets them continue it."""
        kept = self._read_from()
        return kept is not None and kept.is_wakeable()

    def node_name(self) -> str:
        """The name of the node on another machine that runs it; empty if none does, or a process of this machine."""
        kept = self._read_fresh()
        return "" if kept is None else kept.node_name()

    def is_for_nodes(self) -> bool:
        """Whether it is kept in a database whose nodes continue it by themselves."""
        kept = self._read_from()
        return kept is not None and kept.is_for_nodes()

    def last_sign_of_life_us(self) -> int | None:
        """See ``KeptRun.last_sign_of_life_us``; of a run in a database by the clock of that."""
        if self.link is not None:
            return self.link.seen_us
        kept = self._read_from()
        return super().last_sign_of_life_us() if kept is None else kept.last_sign_of_life_us()

    # Requests.

    def questioner(self) -> Questioner | None:
        """For requests that go through its database; ``None`` if it is kept here, or its hub can be reached here."""
        kept = self._read_fresh()
        return None if kept is None else kept.questioner()

    def role(self) -> str:
        """The role of its database for which this process asks something of it; empty if it is kept here."""
        return "" if self._kept is None else self._kept.role()

    def answerer(self) -> Answerer | None:
        """For the requests in its database, in the process that owns it; ``None`` if it is kept here."""
        return None if self._kept is None else self._kept.answerer()

    def bring_here(self) -> None:
        """Bring the program and the journal of a run that is kept in a database here; others are here."""
        if self._kept is not None:
            self._kept.bring_here()

    def is_written_elsewhere(self) -> bool:
        """Whether it is kept in a database and no hub of this machine runs it: then the files beside its journal are elsewhere."""
        return not self.is_of_node and self._read_fresh() is not None

    def program_files(self) -> dict[str, bytes]:
        """The program and the settings as its database keeps them, by their names; empty if it is kept here.

        Raises:
            DepotError: They cannot be read.
        """
        kept = self._read_from()
        return {} if kept is None else kept.program_files()

    def on_request(self, asked: Callable[[], object]) -> None:
        """Have a function called when there may be a request in its database, while this process owns it."""
        if self._kept is not None:
            self._kept.on_request(asked)

    def find_team(self) -> str:
        """Whose run it is in its database."""
        kept = self._read_from()
        return TEAM if kept is None else kept.find_team()

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
        kept = self._to_own()
        if kept is None:
            super().create(first, durability=durability, clock=clock, veil=veil, alive_us=alive_us)
        else:
            kept.team, kept.key, kept.queueing = self.team, self.key, self.queueing
            kept.create(first, clock=clock, veil=veil, alive_us=alive_us, program=self.pack())

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
        if self.link is not None:
            return self.link.open_journal(self.path, telemetry, each, veil, clock)
        kept = self._to_own()
        if kept is not None:
            kept.page = self.page
            return kept.open_journal(
                telemetry=telemetry, each=each, veil=veil, accept_loss=accept_loss, clock=clock
            )
        return super().open_journal(
            durability=durability,
            telemetry=telemetry,
            each=each,
            veil=veil,
            accept_loss=accept_loss,
            clock=clock,
        )

    @contextmanager
    def own(self) -> Generator[Journal]:
        """See ``KeptRun.own``."""
        kept = self._to_own()
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
            if self.link is not None:
                self.link.mark(summary)
        else:
            kept.mark(summary)

    def beat(self) -> None:
        """See ``KeptRun.beat``."""
        kept = self._kept
        if kept is None:
            super().beat()
            if self.link is not None:
                self.link.show_alive()
        else:
            kept.beat()

    def delete(self) -> None:
        """See ``KeptRun.delete``."""
        kept = self._to_own()
        if kept is None:
            super().delete()
        else:
            kept.delete()

    def pack(self) -> bytes:
        """Its program and the settings that were given for it, as one archive."""
        from bartack.depot._archive import PROGRAM, pack_program  # noqa: PLC0415 - only runs in a database need it

        return pack_program(self.path, PROGRAM)

    def keep_program(self) -> None:
        """Let other machines continue it with the program that is in its directory now."""
        if self.link is not None:
            self.link.keep_program(self.pack())
        elif self._kept is not None:
            self._kept.keep_program(self.pack())
