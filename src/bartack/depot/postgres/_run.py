"""A run in a database, with a directory on this machine: see ``KeptRun``.

The directory has a copy of the journal (``bartack.journal.mirror``) and the large values that were needed here. Everything that
reads the directory of a run reads these.
"""

from __future__ import annotations

import os
import select
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from bartack.core import typed
from bartack.core.boot import boot_id
from bartack.core.clock import Clock
from bartack.core.disk import RealDisk
from bartack.core.files import replace_file
from bartack.core.ids import claim_run_dir
from bartack.core.watch import Watch
from bartack.depot._archive import PROGRAM, read_program, unpack_program
from bartack.depot._directory import SUMMARY_FILE, FileRun
from bartack.depot.postgres._clock import DatabaseClock
from bartack.depot.postgres._content import download, keep_content, keep_program, upload
from bartack.depot.postgres._database import Database, Session
from bartack.depot.postgres._lease import Page
from bartack.depot.postgres._objects import keep_objects
from bartack.depot.postgres._owner import SEAT_FILE, Ownership, seat_of
from bartack.depot.postgres._requests import RunAnswerer, RunQuestioner
from bartack.depot.postgres._source import RunSource
from bartack.depot.postgres._watch import RowWatch
from bartack.depot.taken import LEASE_S, TEAM, KeyKnownError, Queueing
from bartack.errors import (
    DepotError,
    JournalLockedError,
    JournalLostError,
    JournalNotFoundError,
    NodeLostError,
)
from bartack.journal import BlobRef, Draft, Durability, Entry, Journal, Loss
from bartack.journal.file import JOURNAL_FILE, FileBlobs, check_beginning
from bartack.journal.mirror import End, FetchedBlobs, Mirror, MirrorReader, lines_after
from bartack.journal.shared import SharedJournal, first_commit, lock_directory, open_shared
from bartack.journal.veil import Veil
from bartack.telemetry import NO_TELEMETRY, Telemetry
from bartack.telemetry.catalogue import DepotRewound

FIRST_FENCE = 1
"""That of a run that nothing has owned yet."""
EARLIER_S: Final = 5.0
"""How long a hub of an earlier owner may take to leave its directory."""
LOOK_S: Final = 0.02
ENQUEUE: Final = "SELECT bartack.enqueue(%s, %s, %s, %s, %s)"
"""Gives a run to nodes: see ``in_queue``."""
_ROW = (
    "SELECT r.no, r.team, r.at_least, r.marked, o.state, o.fence, o.alive, n.until > clock_timestamp(), "
    "(extract(epoch FROM CASE WHEN o.alive THEN n.until - n.lease ELSE o.seen END) * 1e6)::bigint "
    "FROM bartack.run r JOIN bartack.owner o ON o.run = r.no LEFT JOIN bartack.node n ON n.id = o.node WHERE r.id = %s"
)


class _Row(NamedTuple):
    """What the database knows of a run, beside its journal."""

    no: int
    team: str
    at_least: int
    marked: int
    state: str
    fence: int
    is_alive: bool
    has_lease: bool | None
    seen_us: int | None


class Marked(msgspec.Struct):
    """What of the summary of a run concerns where it is kept.

    Attributes:
        seq: The last entry of the journal that it is of.
        status: What the run is doing.
    """

    seq: int = 0
    status: str = ""


ENDED: Final = frozenset({"completed", "failed", "cancelled", "aborted"})
"""No node runs a run with this status, unless a person resumes it."""


# Long because it is the whole contract of a kept run, and what moves a run in and out needs the same connection and ownership.
class PostgresRun(FileRun):
    """See ``KeptRun``, and the module.

    Attributes:
        page: Shows the processes of the run how long they may continue, while this process owns it.
        team: Whose run it is, when it is created.
        key: By what the team knows it, when it is created: there is one run of a key.
        queueing: How it is queued for nodes when it is created. It is there and queued, or not there at all.

    Args:
        path: Its directory on this machine.
        database: Where it is kept.
        page: See above.
        lease_s: How long they may continue without an answer of the database.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        database: Database,
        page: Page | None = None,
        lease_s: float = LEASE_S,
    ) -> None:
        super().__init__(path)
        self.database = database
        self.page = page
        self.team = TEAM
        self.key = ""
        self.queueing: Queueing | None = None
        self._lease_s = lease_s
        self._ownership: Ownership | None = None

    @property
    def name(self) -> str:
        """What errors call it."""
        return f"{self.database.name}: {self.id}"

    @property
    def _session(self) -> Session:
        return self.database.shared

    def _row(self) -> _Row | None:
        rows = self._session.rows(_ROW, self.id)
        return _Row(*rows[0]) if rows else None

    def _found(self) -> _Row:
        row = self._row()
        if row is None:
            raise JournalNotFoundError(self.name)
        return row

    def find_team(self) -> str:
        """Whose run it is."""
        return self._found().team

    def _source(self, row: _Row) -> RunSource:
        return self.source_of(row.no, row.team)

    def source_of(self, number: int, team: str) -> RunSource:
        """Its journal and large values, by its number."""
        return RunSource(self._session, number, self.name, team)

    # Reading.

    def exists(self) -> bool:
        """See ``KeptRun.exists``."""
        return self._row() is not None

    def check_readable(self) -> None:
        """See ``KeptRun.check_readable``. The journal of a run that is only listed does not come here."""
        self._found()
        if (self.path / JOURNAL_FILE).exists():
            check_beginning(self.path)

    def catch_up(self) -> None:
        """Bring the copy of the journal in the directory up to date, unless the owner of the run does that here.

        Raises:
            JournalNotFoundError: The run is not there.
            DepotError: The database cannot be read.
        """
        source = self._source(self._found())
        with Mirror(str(self.path)) as mirror:
            if mirror.try_hold():
                mirror.catch_up(source)

    def open_reader(self, *, veil: Veil | None = None) -> MirrorReader:
        """See ``KeptRun.open_reader``."""
        self.catch_up()
        return MirrorReader(str(self.path), self._source(self._found()), self.catch_up, self.watch, veil)

    def open_blobs(self, *, veil: Veil | None = None) -> FileBlobs:
        """See ``KeptRun.open_blobs``. Those of a run that is not there yet are kept here until it is."""
        row = self._row()
        source = RunSource(self._session, 0, self.name, TEAM) if row is None else self._source(row)
        return FetchedBlobs(str(self.path), source, veil=veil)

    def summary(self) -> bytes | None:
        """See ``KeptRun.summary``."""
        rows = self._session.rows("SELECT summary FROM bartack.run WHERE id = %s", self.id)
        return bytes(rows[0][0]) if rows and rows[0][0] is not None else None

    def watch(self) -> Watch:
        """See ``KeptRun.watch``."""
        row = self._row()
        return RowWatch(self.database.session(), self.id, 0 if row is None else row.no)

    # Requests.

    def questioner(self) -> RunQuestioner:
        """For requests to it from here.

        Raises:
            JournalNotFoundError: It is not there.
        """
        return RunQuestioner(self._session, self._found().no, self.watch)

    def role(self) -> str:
        """The role with which this process is connected, as the database has checked it."""
        ((role,),) = self._session.rows("SELECT session_user")
        return str(role)

    def answerer(self) -> RunAnswerer | None:
        """For the hub that runs it in this process; ``None`` if this process does not own it."""
        if self._ownership is None:
            return None
        return RunAnswerer(self._session, self._found().no, self._ownership.fence)

    def on_request(self, asked: Callable[[], object]) -> None:
        """Have a function called in another thread when there may be a request to the run that this process owns."""
        assert self._ownership is not None, "it is not owned"
        self._ownership.on_request(asked)

    # Its owner.

    def is_active(self) -> bool:
        """See ``KeptRun.is_active``: a hub runs it under a lease that is not over."""
        row = self._row()
        return row is not None and row.state == "owned" and row.is_alive and bool(row.has_lease)

    def node_name(self) -> str:
        """The name of the node that owns it; empty if none does."""
        rows = self._session.rows(
            "SELECT n.name FROM bartack.run r JOIN bartack.owner o ON o.run = r.no JOIN bartack.node n ON n.id = o.node "
            "WHERE r.id = %s",
            self.id,
        )
        return str(rows[0][0]) if rows else ""

    def is_for_nodes(self) -> bool:
        """Whether nodes continue it by themselves."""
        statement = "SELECT 1 FROM bartack.run r JOIN bartack.owner o ON o.run = r.no WHERE r.id = %s AND o.pool IS NOT NULL"
        return bool(self._session.rows(statement, self.id))

    def is_wakeable(self) -> bool:
        """Whether a request lets a node continue it: it rests, or waits for its turn."""
        rows = self._session.rows(
            "SELECT 1 FROM bartack.run r JOIN bartack.owner o ON o.run = r.no WHERE r.id = %s AND o.pool IS NOT NULL "
            "AND o.state IN ('queued', 'resting')",
            self.id,
        )
        return bool(rows)

    def is_awaited(self) -> bool:
        """Whether a node is going to run it, or is about to: it waits for its turn, or for a time."""
        rows = self._session.rows(
            "SELECT 1 FROM bartack.run r JOIN bartack.owner o ON o.run = r.no WHERE r.id = %s AND o.pool IS NOT NULL "
            "AND (o.state IN ('queued', 'owned') OR o.state = 'resting' AND o.due IS NOT NULL)",
            self.id,
        )
        return bool(rows)

    def last_sign_of_life_us(self) -> int | None:
        """See ``KeptRun.last_sign_of_life_us``."""
        if self._ownership is not None:
            self._ownership.errands.flush()
        row = self._row()
        return None if row is None else row.seen_us

    # Owning.

    def create(
        self,
        first: Iterable[Sequence[Draft]],
        *,
        durability: Durability = "power",
        clock: Clock | None = None,
        veil: Veil | None = None,
        alive_us: int | None = None,
        program: bytes = b"",
    ) -> None:
        """See ``KeptRun.create``. The database decides what an entry survives.

        Args:
            first: See there.
            durability: See there.
            clock: See there.
            veil: See there.
            alive_us: See there.
            program: The files that another machine needs to continue the run, as one archive.

        Raises:
            KeyKnownError: There is a run of its key.
        """
        del durability
        source = RunSource(self._session, 0, self.name, self.team)
        blobs = FetchedBlobs(str(self.path), source, RealDisk(), veil=veil)
        commit = first_commit(first, blobs, clock or DatabaseClock(self._session), veil)
        keep_objects(self._session, self.team, commit.blobs, blobs.verify)
        keep_content(self._session, self.team, program)
        with self._session.use() as connection, connection.transaction():
            found = connection.execute(
                "SELECT made, known FROM bartack.submit(%s, %s, %s, %s, %s, %s, %s)",
                (self.id, self.team, commit.last, commit.crc, commit.lines, alive_us, self.key or None),
            ).fetchone()
            made, known = found or (None, "")
            if known:
                raise KeyKnownError(known)
            if made is None:
                raise DepotError(self.database.name, f"there is a run {self.id} already")
            upload(connection, self.name, made, FIRST_FENCE, commit.blobs, blobs.verify)
            keep_program(connection, self.name, made, FIRST_FENCE, program)
            if self.queueing is not None:
                connection.execute(ENQUEUE, in_queue(made, self.queueing))

    def keep_program(self, program: bytes) -> None:
        """Keep these files instead, if they are others. Only the owner of the run may.

        Raises:
            NodeLostError: This process has lost it.
        """
        assert self._ownership is not None, "it is not owned"
        row = self._found()
        keep_content(self._session, row.team, program)
        with self._session.use() as connection:
            keep_program(connection, self.name, row.no, self._ownership.fence, program)

    def hold_for_pull(self) -> None:
        """When this process does not own the run any more, only its directory can."""
        assert self._ownership is not None, "it is not owned"
        self._ownership.hold_for(self.path)

    def is_pulled_here(self) -> bool:
        """Whether it was being pulled into its directory when that was interrupted."""
        rows = self._session.rows(
            "SELECT o.state, o.reason FROM bartack.owner o JOIN bartack.run r ON r.no = o.run WHERE r.id = %s",
            self.id,
        )
        seat = self.path / SEAT_FILE
        return seat.exists() and rows == [("held", f"pulled to {seat_of(self.path)}")]

    def load_program(self) -> bytes | None:
        """The files that another machine needs to continue the run; ``None`` if they are not kept."""
        row = self._found()
        ((digest, size),) = self._session.rows(
            "SELECT program, program_size FROM bartack.run WHERE no = %s", row.no
        )
        return (
            None if digest is None else download(self._session, row.team, BlobRef(bytes(digest).hex(), size))
        )

    def program_files(self) -> dict[str, bytes]:
        """The files that another machine needs to continue the run, by their names; empty if they are not kept.

        Raises:
            DepotError: They cannot be read.
        """
        archive = self.load_program()
        return {} if archive is None else read_program(self.path, archive, PROGRAM)

    def bring_here(self, *, is_owner: bool = False) -> None:
        """Bring its directory up to date, with everything that is needed to continue it on this machine.

        Args:
            is_owner: This process owns it, and continues it from what the directory has then.

        Raises:
            DepotError: Its program is not kept.
            JournalLockedError: A hub of an earlier owner still has the directory. Only an owner is refused.
            JournalLostError: The database has lost acknowledged entries, of which this machine may have a copy. Likewise.
        """
        if is_owner:
            self._catch_up_as_owner()
        else:
            self.catch_up()
        program = self.load_program()
        if program is None:
            raise DepotError(self.database.name, f"the program of {self.id} is not kept with it")
        unpack_program(self.path, program, PROGRAM)
        for folder in ("work", "inbox"):
            (self.path / folder).mkdir(mode=0o700, exist_ok=True)
        summary = self.summary()
        if summary is not None:
            replace_file(self.path / SUMMARY_FILE, summary, synced=False)

    def _catch_up_as_owner(self) -> None:
        """Bring the copy up to date; the next hub continues it as it is then."""
        row = self._found()
        source = self._source(row)
        self._check_loss(source, row, None)
        limit = time.monotonic() + EARLIER_S
        with Mirror(str(self.path)) as mirror:
            while not mirror.try_hold():
                if time.monotonic() > limit:
                    raise JournalLockedError(self.name, None, "an earlier hub on this machine")
                select.select([], [], [], LOOK_S)
            mirror.catch_up(source, is_owner=True)

    def adopt(
        self,
        lines: bytes,
        end: End,
        fence: int,
        refs: Sequence[BlobRef],
        program: bytes,
        alive_us: int | None,
        summary: bytes | None,
    ) -> None:
        """Keep a run whose journal is in files so far: all its lines, its large values and its program.

        An earlier attempt may have been interrupted after the database had the run: then the rest of the lines is added.

        Args:
            lines: Its journal.
            end: Where that ends.
            fence: The number of the last ownership; the next one has a higher one.
            refs: Its large values.
            program: The files that another machine needs to continue the run, as one archive.
            alive_us: When a hub was last seen.
            summary: What lists show of it.

        Raises:
            DepotError: There is another run of this id.
        """
        before = self._row()
        team = self.team if before is None else before.team
        blobs = FetchedBlobs(str(self.path), RunSource(self._session, 0, self.name, team))
        keep_objects(self._session, team, refs, blobs.verify)
        keep_content(self._session, team, program)
        with self._session.use() as connection, connection.transaction():
            made = connection.execute(
                "SELECT bartack.submit(%s, %s, %s, %s, %s, %s)",
                (self.id, team, end.last, end.crc, lines, alive_us),
            ).fetchone()
            row, known = self._found(), end
            rest: bytes | None = b""
            if made == (None,):
                known = self._source(row).end()
                rest = lines_after(lines, known)
            adopted = None
            if rest is not None:
                adopted = connection.execute(
                    "SELECT bartack.adopt(%s, %s, %s, %s, %s, %s, %s, %s)",
                    (row.no, row.fence, fence, known.last, end.last, end.crc, rest or None, summary),
                ).fetchone()
            if adopted is None or adopted[0] is None:
                raise DepotError(self.database.name, f"there is another run {self.id}")
            upload(connection, self.name, row.no, adopted[0], refs, blobs.verify)
            keep_program(connection, self.name, row.no, adopted[0], program)

    def open_journal(
        self,
        *,
        durability: Durability = "power",
        telemetry: Telemetry = NO_TELEMETRY,
        each: Callable[[Entry], None] | None = None,
        veil: Veil | None = None,
        accept_loss: bool = False,
        clock: Clock | None = None,
    ) -> SharedJournal:
        """See ``KeptRun.open_journal``."""
        del durability
        return self._open(telemetry, each, veil, clock, accept_loss=accept_loss, check_blobs=True)

    @contextmanager
    def own(self) -> Generator[Journal]:
        """See ``KeptRun.own``."""
        clock = DatabaseClock(self._session)
        with self._open(
            NO_TELEMETRY, clock.note, None, clock, accept_loss=False, check_blobs=False
        ) as journal:
            before, ownership = journal.synced_seq, self._ownership
            yield journal
            assert ownership is not None
            if journal.synced_seq > before:
                ownership.note_changed()

    def _open(
        self,
        telemetry: Telemetry,
        each: Callable[[Entry], None] | None,
        veil: Veil | None,
        clock: Clock | None,
        *,
        accept_loss: bool,
        check_blobs: bool,
    ) -> SharedJournal:
        row = self._found()
        source = self._source(row)
        lock = lock_directory(self.path)
        try:
            ownership = Ownership.claim(
                self.database,
                self._session,
                row.no,
                self.name,
                self.path,
                boot_id(),
                self.page,
                self._lease_s,
                rewound=partial(_note_rewound, telemetry),
            )
        except BaseException:
            lock.close()
            raise
        blobs = FetchedBlobs(str(self.path), source)
        carrier = ownership.carrier(self.name, self.path, blobs.verify)
        try:
            loss = self._check_loss(source, self._found(), ownership.fence if accept_loss else None)
        except BaseException:
            carrier.close()
            lock.close()
            raise
        journal = open_shared(
            self.path,
            lock,
            carrier,
            source,
            clock=clock,
            telemetry=telemetry,
            each=each,
            veil=veil,
            loss=loss,
            check_blobs=check_blobs,
        )
        self._ownership = ownership
        return journal

    def _check_loss(self, source: RunSource, row: _Row, accepting: int | None = None) -> Loss | None:
        """Raise if the journal ends before an entry that is known to have been acknowledged, unless the owner accepts that.

        Args:
            source: The journal.
            row: The run.
            accepting: The number of the ownership that accepts it.
        """
        end = source.end()
        if end.last >= row.at_least:
            return None
        if accepting is None:
            raise JournalLostError(self.name, 0, end.last, row.at_least)
        accepted = self._session.rows("SELECT bartack.accept_loss(%s, %s, %s)", row.no, accepting, end.last)
        if accepted != [(True,)]:
            raise NodeLostError(self.name, "it has another owner")
        return Loss(end.last, row.at_least, str(self.path))

    def check_kept(self) -> None:
        """See ``KeptRun.check_kept``."""
        row = self._found()
        self._check_loss(self._source(row), row)

    def mark(self, summary: bytes) -> None:
        """See ``KeptRun.mark``: kept here at once, and in the database soon."""
        super().mark(summary)
        if self._ownership is not None:
            marked = typed.decode(summary, type=Marked)
            self._ownership.mark(summary, marked.seq)
            self._ownership.note_status(over=marked.status in ENDED)

    def beat(self) -> None:
        """See ``KeptRun.beat``: the beats of the lease are its signs of life from the first call on."""
        super().beat()
        if self._ownership is not None:
            self._ownership.show_alive()

    def delete(self) -> None:
        """See ``KeptRun.delete``."""
        self.forget()
        if self.path.exists():
            super().delete()

    def forget(self) -> None:
        """Delete it in the database, and leave its directory as it is.

        Raises:
            OSError: It is owned.
        """
        row = self._row()
        if row is None:
            return  # the answer to an earlier attempt was lost
        if self._session.rows("SELECT bartack.remove(%s)", row.no) == [(False,)]:
            raise OSError(f"{self.name} is owned")
        drop_journals(self._session)


def in_queue(no: int, queueing: Queueing) -> tuple[object, ...]:
    """The values of ``ENQUEUE`` for a run, by its number."""
    needs = None if queueing.needs is None else list(queueing.needs)
    return no, queueing.pool, queueing.priority, needs, queueing.begins


def drop_journals(session: Session) -> None:
    """Delete the journals of runs that are gone, a part of one with each statement."""
    while session.rows("SELECT bartack.drop_journal()") == [(True,)]:
        pass


def _note_rewound(telemetry: Telemetry, run: str, entries: int) -> None:
    if telemetry.wanted(DepotRewound):
        telemetry.emit(DepotRewound(entries=entries, run=run))


class PostgresRuns:
    """The runs of a database, with their directories on this machine. See ``RunStore``.

    Args:
        database: Where they are kept.
        directory: Where their directories are.
        page: See ``PostgresRun``.
        lease_s: See ``PostgresRun``.
    """

    def __init__(
        self, database: Database, directory: Path, page: Page | None = None, lease_s: float = LEASE_S
    ) -> None:
        self.database = database
        self.directory = directory
        self._page = page
        self._lease_s = lease_s

    def runs(self) -> list[PostgresRun]:
        """See ``RunStore.runs``."""
        rows = self.database.shared.rows("SELECT id FROM bartack.run ORDER BY no DESC")
        return [self.run(row[0]) for row in rows]

    def run(self, run_id: str) -> PostgresRun:
        """See ``RunStore.run``."""
        return PostgresRun(self.directory / run_id, self.database, self._page, self._lease_s)

    def new_run(self) -> PostgresRun:
        """See ``RunStore.new_run``. Its id is given here, and the database refuses one that it has already."""
        _, path = claim_run_dir(self.directory)
        return PostgresRun(path, self.database, self._page, self._lease_s)
