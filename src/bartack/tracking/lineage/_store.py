"""The lineage database: who may write when, and what becomes of an error of SQLite.

``LineageStore`` may be used by several threads, and the file by several processes. One connection writes, each reader has one
of its own and sees one moment. What an event does is in ``_write.py``, what can be asked in ``_graph.py`` and
``_search.py``; the service in front of it is ``_service.py``.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Final, Self, TypeVar

from bartack.core.clock import Clock, SystemClock
from bartack.errors import LineageError, StoreUnavailableError
from bartack.tracking.lineage._graph import (
    LineagePicture,
    find_code,
    find_evolution,
    find_lineage,
    find_orphans,
    find_picture,
)
from bartack.tracking.lineage._schema import open_for_reading, open_for_writing
from bartack.tracking.lineage._search import find_cycles, search_patterns, validate
from bartack.tracking.lineage._write import record_event
from bartack.tracking.lineage.wire import (
    CyclesAnswer,
    Event,
    EvolutionAnswer,
    LineageAnswer,
    LineageQuery,
    OrphansAnswer,
    PageQuery,
    QueryType,
    SearchAnswer,
    SearchRequest,
    Stats,
    Tracked,
    ValidateAnswer,
    ValidateRequest,
    parse_event,
    try_event,
)

T = TypeVar("T")

READERS_KEPT: Final = 4
"""The most idle connections that are kept for the next reader; more of them are closed after use."""


class LineageStore:
    """Patterns, their versions and how they came from each other, in one SQLite file.

    What ``track`` has returned for is on the disk. An event that comes again changes nothing.

    Args:
        path: The database. ``open`` makes it if it is not there; only its owner may read it.
        read_only: Open what exists and never write.
        clock: Says when an event was received.

    Attributes:
        path: The database.
        write_failed: Whether the last write did.
    """

    def __init__(self, path: str | Path, *, read_only: bool = False, clock: Clock | None = None) -> None:
        self.path = Path(path)
        self._read_only = read_only
        self._clock = clock or SystemClock()
        self._writer: sqlite3.Connection | None = None
        self._writing = threading.Lock()
        self._readers: list[sqlite3.Connection] = []
        self._is_open = False
        self.write_failed = False

    def open(self) -> Self:
        """Open the database.

        Raises:
            StoreTooNewError: A newer version of Bartack wrote it.
            StoreUnavailableError: It cannot be opened, or is not a lineage database.
        """
        if self._read_only:
            self._readers.append(open_for_reading(self.path))
        else:
            self._writer = open_for_writing(self.path)
        self._is_open = True
        return self

    def close(self) -> None:
        """Close the database."""
        self._is_open = False
        while self._readers:
            self._readers.pop().close()
        with self._writing:
            if self._writer is not None:
                self._writer.close()
                self._writer = None

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def track(self, body: Mapping[str, object]) -> Tracked:
        """Record one event, given as the members of a request to the service; durable when it returns.

        Raises:
            EventInvalidError: A member is missing or wrong.
            EventConflictError: Another event has its id.
            LineageCycleError: A parent comes from the pattern itself.
            StoreUnavailableError: It could not be written; nothing was recorded.
        """
        (result,) = self.track_many([parse_event(dict(body))])
        if isinstance(result, LineageError):
            raise result
        return result

    def track_all(self, bodies: Iterable[Mapping[str, object]]) -> list[Tracked | LineageError]:
        """Record several events with one sync; what became of each, in their order. One that is wrong stops no other.

        Raises:
            StoreUnavailableError: They could not be written; none was recorded.
        """
        parsed = [try_event(dict(body)) for body in bodies]
        written = iter(self.track_many([one for one in parsed if isinstance(one, Event)]))
        return [next(written) if isinstance(one, Event) else one for one in parsed]

    def track_many(self, events: Sequence[Event]) -> list[Tracked | LineageError]:
        """Record checked events with one sync; each of them is recorded whole or refused on its own.

        Raises:
            StoreUnavailableError: They could not be written; none was recorded.
        """
        with self._transaction() as db:
            return [self._record(db, event) for event in events]

    def _record(self, db: sqlite3.Connection, event: Event) -> Tracked | LineageError:
        db.execute("SAVEPOINT event")
        try:
            tracked = record_event(db, event, self._now())
        except LineageError as refusal:
            db.execute("ROLLBACK TO event")
            return refusal
        finally:
            db.execute("RELEASE event")
        return tracked

    def _now(self) -> str:
        seconds, microseconds = divmod(self._clock.now_us(), 1_000_000)
        moment = datetime.fromtimestamp(seconds, UTC).replace(microsecond=microseconds)
        return moment.isoformat(timespec="microseconds")

    def lineage(self, pattern_id: str, query: LineageQuery | None = None) -> LineageAnswer:
        """What a pattern came from, what came from it, or both."""
        return self._read(lambda db: find_lineage(db, pattern_id, query or LineageQuery()))

    def evolution(self, pattern_id: str, query: PageQuery | None = None) -> EvolutionAnswer:
        """The versions that are connected with a pattern by modification and replacement."""
        return self._read(lambda db: find_evolution(db, pattern_id, query or PageQuery()))

    def orphans(self, query: PageQuery | None = None) -> OrphansAnswer:
        """Nodes that are only a name, and nodes all of whose parents are."""
        return self._read(lambda db: find_orphans(db, query or PageQuery()))

    def cycles(self, query: PageQuery | None = None) -> CyclesAnswer:
        """The cycles of the graph, each once."""
        return self._read(lambda db: find_cycles(db, query or PageQuery()))

    def search(self, request: SearchRequest) -> SearchAnswer:
        """The patterns in which all the words occur."""
        return self._read(lambda db: search_patterns(db, request))

    def validate(self, request: ValidateRequest | None = None) -> ValidateAnswer:
        """Check the graph for what should not be there."""
        return self._read(lambda db: validate(db, request or ValidateRequest()))

    def picture(
        self, pattern_id: str, version: str | None = None, *, query_type: QueryType = "both", depth: int = 10
    ) -> LineagePicture:
        """The part of the graph around a pattern, to be drawn."""
        return self._read(lambda db: find_picture(db, pattern_id, version, query_type, depth))

    def code(self, pattern_id: str, version: str | None = None) -> str:
        """The code of a version of a pattern, the newest if none is named; empty if none was recorded."""
        return self._read(lambda db: find_code(db, pattern_id, version))

    def stats(self) -> Stats:
        """What the database holds."""
        return self._read(_count)

    def check_readable(self) -> None:
        """Read a little.

        Raises:
            StoreUnavailableError: That was not possible.
        """
        self._read(lambda db: db.execute("SELECT seq FROM nodes, search LIMIT 1").fetchone())

    def _read(self, question: Callable[[sqlite3.Connection], T]) -> T:
        if not self._is_open:
            raise StoreUnavailableError(str(self.path), "it is not open")
        try:
            db = self._readers.pop()
        except IndexError:
            db = open_for_reading(self.path)
        try:
            with _translated(self.path):
                db.execute("BEGIN")
                try:
                    return question(db)
                finally:
                    db.execute("ROLLBACK")
        finally:
            self._keep(db)

    def _keep(self, db: sqlite3.Connection) -> None:
        if self._is_open and len(self._readers) < READERS_KEPT:
            self._readers.append(db)
        else:
            db.close()

    @contextmanager
    def _transaction(self) -> Generator[sqlite3.Connection]:
        with self._writing, _translated(self.path):
            if self._writer is None:
                raise StoreUnavailableError(str(self.path), "it is not open for writing")
            try:
                self._writer.execute("BEGIN IMMEDIATE")
                yield self._writer
                self._writer.execute("COMMIT")
                self.write_failed = False
            except BaseException as error:
                self.write_failed = isinstance(error, sqlite3.Error)
                # A full disk may have ended the transaction already.
                with suppress(sqlite3.Error):
                    self._writer.execute("ROLLBACK")
                raise


@contextmanager
def _translated(path: Path) -> Generator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise StoreUnavailableError(str(path), str(error)) from error


def _count(db: sqlite3.Connection) -> Stats:
    def grouped(column: str, table: str) -> dict[str, int]:
        found = db.execute(f"SELECT {column}, count(*) FROM {table} GROUP BY 1 ORDER BY 2 DESC, 1")  # noqa: S608 - our own words
        return dict(found.fetchall())

    patterns, nodes, stubs, deprecated, deepest = db.execute(
        "SELECT count(DISTINCT pattern_id), count(*), coalesce(sum(stub), 0), coalesce(sum(deprecated), 0),"
        " coalesce(max(generation), 0) FROM nodes"
    ).fetchone()
    (last_event_at,) = db.execute("SELECT max(coalesce(occurred_at, received_at)) FROM events").fetchone()
    (size,) = db.execute("SELECT page_count * page_size FROM pragma_page_count, pragma_page_size").fetchone()
    return Stats(
        patterns=patterns,
        nodes=nodes,
        stubs=stubs,
        deprecated=deprecated,
        edges=grouped("edge_type", "edges"),
        events=grouped("event_type", "events"),
        languages=grouped("language", "nodes WHERE NOT stub"),
        deepest_generation=deepest,
        last_event_at=last_event_at,
        size_bytes=size,
    )
