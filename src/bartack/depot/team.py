"""Runs between a database and the directories of this machine: finding one there, fetching it, moving it in and out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Final, NamedTuple

from bartack.core.files import replace_file
from bartack.core.ids import parse_run_id
from bartack.depot._directory import SUMMARY_FILE, FileRun
from bartack.depot._object_store import PROBE
from bartack.depot._order import note_all
from bartack.depot.elsewhere import KEPT_FILE, Elsewhere, read_elsewhere, write_elsewhere
from bartack.depot.placed import PlacedRun
from bartack.depot.postgres._check import RunCheck
from bartack.depot.postgres._database import ANSWER_S, Database, Session
from bartack.depot.postgres._examine import Remark, examine_database
from bartack.depot.postgres._open import look_at_transactions
from bartack.depot.postgres._run import ENQUEUE, PostgresRun, in_queue
from bartack.depot.postgres._schema import check_version, migrate, version_of
from bartack.depot.taken import TEAM, Queueing
from bartack.errors import (
    DepotError,
    DepotUnavailableError,
    JournalCorruptError,
    RunIdError,
    RunNotFoundError,
    UsageError,
)
from bartack.journal import BlobRef, Entry, JournalReport
from bartack.journal.file import JOURNAL_FILE
from bartack.journal.mirror import End

MOST_LISTED: Final = 1000
SERVES: Final = (
    "(t.name = 'default' OR EXISTS (SELECT 1 FROM pg_roles y WHERE y.rolname = x.role AND ("
    "pg_has_role(y.oid, (SELECT relowner FROM pg_class WHERE oid = 'bartack.team'::regclass), 'MEMBER') OR EXISTS "
    "(SELECT 1 FROM pg_roles p WHERE p.rolname = t.name AND pg_has_role(y.oid, p.oid, 'MEMBER')))))"
)
"""Whether the node ``x`` takes runs of the team ``t``: the teams of its role are what ``my_teams`` in the database says."""


class Stats(NamedTuple):
    """What a database holds.

    Attributes:
        version: Of its tables.
        runs: How many there are.
        owned: How many of them are owned now.
        nodes: How many processes have a lease now.
        journal_bytes: How long their journals are.
        content_bytes: How long their large values are, of those that are in the database.
        store: The object store with the largest ones; empty: this machine knows of none.
        store_problem: Why that does not answer; empty if it does.
        objects: How many large values are objects in it.
        object_bytes: How long these are.
        orphans: How many objects are being written or are to be deleted.
        oldest_transaction_s: Since when the oldest transaction is open, of those that the role sees.
        sees_all_transactions: Whether the role sees since when transactions of other roles are open.
        hidden_transactions: How many of other roles are open if it does not.
    """

    version: int
    runs: int
    owned: int
    nodes: int
    journal_bytes: int
    content_bytes: int
    store: str
    store_problem: str
    objects: int
    object_bytes: int
    orphans: int
    oldest_transaction_s: float
    sees_all_transactions: bool
    hidden_transactions: int


class QueuePlace(NamedTuple):
    """Where a run is in the queue of the nodes.

    Attributes:
        state: ``queued``, ``owned``, ``resting``, ``held`` or ``over``.
        reason: Why, in words.
        pool: Its queue.
        node: The node that owns it.
        has_nodes: Whether there is a node now that may take it.
        needs: The labels that a node must have.
        team: Whose run it is.
    """

    state: str
    reason: str
    pool: str
    node: str
    has_nodes: bool
    needs: Sequence[str]
    team: str


class ListedNode(NamedTuple):
    """A node, for lists.

    Attributes:
        name: Its name.
        state: ``live``, ``draining``, ``late``, ``left`` or ``dead``.
        version: Of Bartack.
        slots: How many runs it runs at a time.
        pools: The queues that it takes runs from.
        labels: What runs may need.
        runs: How many it has now.
        seen_s: How long ago its last beat was.
    """

    name: str
    state: str
    version: str
    slots: int
    pools: tuple[str, ...]
    labels: tuple[str, ...]
    runs: int
    seen_s: float


# Long because it is what commands ask of a database, and most methods are one statement over the same connection.
class Team:
    """The runs of a database, for the commands of a person.

    Args:
        where: The database.
        answer_s: How long the connection may be silent while it is waited for.
    """

    def __init__(self, where: Elsewhere, answer_s: float = ANSWER_S) -> None:
        self.where = where
        self.database = Database(where.on, insecure=where.insecure, answer_s=answer_s, blobs=where.blobs)

    @property
    def name(self) -> str:
        """What messages call the database."""
        return self.database.name

    @property
    def _session(self) -> Session:
        return self.database.shared

    def prepare(self, *, roles: bool = False) -> tuple[int, int]:
        """Make or update the tables, and the roles if they are wanted; returns the version before and after."""
        return migrate(self.database, roles=roles)

    def examine(self) -> list[Remark]:
        """What is good and what is not about it. See ``examine_database``."""
        return examine_database(self.database)

    def check(self) -> None:
        """Raise unless runs can be kept there now.

        Raises:
            DepotError: They cannot.
        """
        check_version(self._session)

    def ids(self, most: int = 0) -> list[str]:
        """The ids of the newest runs, the newest first: of 1,000 if ``most`` is not more."""
        self.check()
        rows = self._session.rows(
            "SELECT id FROM bartack.run ORDER BY no DESC LIMIT %s", max(most, MOST_LISTED)
        )
        return [self._checked(row[0]) for row in rows]

    def ids_that_ask(self) -> list[str]:
        """The ids of all runs that have a question open, the newest first."""
        rows = self._session.rows(
            "SELECT r.id FROM bartack.run r JOIN bartack.owner o ON o.run = r.no "
            "WHERE o.state <> 'over' AND position(%s::bytea IN r.summary) > 0 ORDER BY r.no DESC",
            b'"questions":["',
        )
        return [self._checked(row[0]) for row in rows]

    def count(self) -> int:
        """How many runs there are."""
        self.check()
        ((found,),) = self._session.rows("SELECT count(*) FROM bartack.run")
        return int(found)

    def iter_ids(self) -> Iterator[str]:
        """The ids of all runs, the newest first."""
        self.check()
        before: int | None = None
        while rows := self._session.rows(
            "SELECT no, id FROM bartack.run WHERE no < %s OR %s::bigint IS NULL ORDER BY no DESC LIMIT %s",
            before,
            before,
            MOST_LISTED,
        ):
            before = rows[-1][0]
            yield from (self._checked(run_id) for _, run_id in rows)

    def sample(self, most: int) -> list[str]:
        """The ids of some runs, chosen at random."""
        self.check()
        rows = self._session.rows("SELECT id FROM bartack.run ORDER BY random() LIMIT %s", most)
        return [self._checked(row[0]) for row in rows]

    def _checked(self, run_id: str) -> str:
        """An id from the database, which becomes the name of a directory."""
        try:
            return parse_run_id(run_id)
        except RunIdError:
            raise DepotError(self.name, f"{run_id!r} is not the id of a run") from None

    def find(self, asked: str) -> str:
        """The id of the run that is meant: an id, a unique beginning of one, or ``latest``.

        Raises:
            RunNotFoundError: There is none, or more than one.
        """
        self.check()
        if asked == "latest":
            rows = self._session.rows("SELECT id FROM bartack.run ORDER BY no DESC LIMIT 1")
        else:
            statement = (
                "SELECT id FROM bartack.run WHERE starts_with(id, %s) OR starts_with(id, %s) "
                "ORDER BY id = %s DESC, no DESC LIMIT 6"
            )
            rows = self._session.rows(statement, asked, f"run-{asked}", asked) if asked else []
        found = [self._checked(row[0]) for row in rows]
        if not found or (found[0] != asked and len(found) > 1):
            error = RunNotFoundError(asked, tuple(found[:5]))
            if not found:
                error.remedy = (
                    f"'bartack status --on DATABASE' lists the runs of {self.name}, as far as you may see them; "
                    "a unique prefix of an id is enough."
                )
            raise error
        return found[0]

    def find_key(self, team: str, key: str) -> str | None:
        """The id of the run of a key; ``None`` if the team has none.

        Raises:
            UsageError: There is no such team.
        """
        self.check()
        self.check_team(team)
        rows = self._session.rows("SELECT id FROM bartack.run WHERE team = %s AND key = %s", team, key)
        return self._checked(rows[0][0]) if rows else None

    def check_team(self, team: str) -> None:
        """Raise unless there is a team of this name.

        Raises:
            UsageError: There is none.
        """
        if not self._session.rows("SELECT 1 FROM bartack.team WHERE name = %s", team):
            raise UsageError(
                "--team", f"{self.name} has no team {team!r}; make it with: bartack teams set {team}"
            )

    def place(self, run_id: str, runs: Path, *, synced: bool = True) -> Path:
        """The directory of a run below ``runs``, which names this database; made if it is not there.

        Raises:
            DepotError: There is a directory of this id that is kept somewhere else.
        """
        path = runs / run_id
        if path.exists():
            found = read_elsewhere(path)
            if found is None or found.on != self.where.on:
                kept = "" if found is None else f", kept in {found.on},"
                raise DepotError(self.name, f"{path} is another run of this id{kept} and stays as it is")
            if self.where.blobs and found.blobs != self.where.blobs:
                write_elsewhere(path, self.where, synced=synced)
            return path
        path.mkdir(mode=0o700, parents=True)
        write_elsewhere(path, self.where, synced=synced)
        return path

    def show(self, run_id: str, runs: Path) -> Path:
        """The directory of a run below ``runs``, so that lists find it. Its journal comes when it is read, or if lists need it."""
        (path,) = self.show_all([run_id], runs)
        return path

    def show_all(self, ids: Sequence[str], runs: Path) -> list[Path]:
        """The directories of runs below ``runs``; see ``show``."""
        paths = [self.place(run_id, runs, synced=False) for run_id in ids]
        missing = [
            path.name
            for path in paths
            if not (path / SUMMARY_FILE).exists() and not (path / JOURNAL_FILE).exists()
        ]
        statement = "SELECT id, summary FROM bartack.run WHERE id = ANY (%s)"
        for run_id, summary in self._session.rows(statement, missing) if missing else ():
            if summary is None:  # no hub has run it yet
                with suppress(JournalCorruptError):  # lists show it as unreadable
                    PostgresRun(runs / run_id, self.database).catch_up()
            else:
                replace_file(runs / run_id / SUMMARY_FILE, bytes(summary), synced=False)
        return paths

    def read(self, directory: Path) -> Iterator[Entry]:
        """The entries of a run, whose id is the name of ``directory``, which becomes its copy here."""
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        with PostgresRun(directory, self.database).open_reader() as reader:
            yield from reader.read()

    def fetch(self, run_id: str, runs: Path) -> Path:
        """The directory of a run below ``runs``, with its journal and everything that is needed to continue it here.

        Raises:
            DepotError: Its program is not kept there.
        """
        path = self.place(run_id, runs)
        PostgresRun(path, self.database).bring_here()
        return path

    def enqueue(
        self,
        run_id: str,
        pool: str | None = None,
        priority: int | None = None,
        needs: Sequence[str] | None = None,
        begins: datetime | None = None,
    ) -> str:
        """Give a run to the nodes of a pool, or back to them; returns ``queued``, or ``owned`` if it is active.

        Args:
            run_id: The run.
            pool: Which nodes; by default those that it was for before.
            priority: Runs with a higher one are taken first; by default as before.
            needs: The labels that a node must have; by default as before.
            begins: No node takes it before this time; by default, at once.

        Raises:
            RunNotFoundError: It is not there.
            DepotError: It is being taken out of the database.
        """
        self.check()
        rows = self._session.rows("SELECT no FROM bartack.run WHERE id = %s", run_id)
        if not rows:
            raise RunNotFoundError(run_id)
        queueing = Queueing(pool, priority, needs, begins)
        ((state,),) = self._session.rows(ENQUEUE, *in_queue(rows[0][0], queueing))
        if state in {"gone", "pulled"}:
            raise DepotError(self.name, f"{run_id} is being taken out of the database")
        return str(state)

    def finish_submission(self, run_id: str, queueing: Queueing) -> bool:
        """Queue a run that is kept here and that no node was ever given, unless a process owns it; returns whether that was so.

        Two that do that at once do it once.
        """
        with self._session.use() as connection, connection.transaction():
            connection.execute("SELECT pg_advisory_xact_lock(hashtext('bartack.submission'))")
            found = connection.execute(
                "SELECT r.no FROM bartack.run r JOIN bartack.owner o ON o.run = r.no "
                "WHERE r.id = %s AND o.pool IS NULL AND o.state = 'resting'",
                (run_id,),
            ).fetchone()
            if found is None:
                return False
            connection.execute(ENQUEUE, in_queue(found[0], queueing))
            return True

    def queueing(self, run_id: str) -> Queueing | None:
        """How a run was given to nodes, but for its time; ``None`` if that was never done, or the run is not there."""
        rows = self._session.rows(
            "SELECT o.pool, o.priority, o.needs FROM bartack.run r JOIN bartack.owner o ON o.run = r.no "
            "WHERE r.id = %s AND o.pool IS NOT NULL",
            run_id,
        )
        return Queueing(*rows[0]) if rows else None

    def queue_place(self, run_id: str) -> QueuePlace | None:
        """Where a run is in the queue of the nodes; ``None`` if it is not for nodes."""
        rows = self._session.rows(
            "SELECT o.state, o.reason, o.pool, coalesce(n.name, ''), "  # noqa: S608 - of constants
            "EXISTS (SELECT 1 FROM bartack.node x WHERE x.state = 'live' AND x.slots > 0 AND x.until > clock_timestamp() "
            f"AND o.pool = ANY (x.pools) AND o.needs <@ x.labels AND {SERVES}), o.needs, t.name "
            "FROM bartack.run r JOIN bartack.owner o ON o.run = r.no JOIN bartack.team t ON t.name = r.team "
            "LEFT JOIN bartack.node n ON n.id = o.node "
            "WHERE r.id = %s AND o.pool IS NOT NULL",
            run_id,
        )
        return QueuePlace._make(rows[0]) if rows else None

    def nodes(self) -> list[ListedNode]:
        """The nodes that take runs, those with a lease and those that have lost one in the last day."""
        self.check()
        rows = self._session.rows(
            "SELECT n.name, CASE WHEN n.state IN ('live', 'draining') AND n.until < clock_timestamp() THEN 'late' "
            "ELSE n.state END, n.version, n.slots, n.pools, n.labels, "
            "(SELECT count(*) FROM bartack.owner o WHERE o.node = n.id), "
            "extract(epoch FROM clock_timestamp() - (n.until - n.lease))::float8 FROM bartack.node n WHERE n.slots > 0 "
            "AND (n.state IN ('live', 'draining') OR n.until > clock_timestamp() - interval '1 day') "
            "ORDER BY n.state NOT IN ('live', 'draining'), n.name, n.id DESC"
        )
        return [
            ListedNode(name, state, version, slots, tuple(pools), tuple(labels), runs, seen_s)
            for name, state, version, slots, pools, labels, runs, seen_s in rows
        ]

    def drain(self, name: str, *, now: bool = False) -> bool:
        """Let the nodes of a name take no more runs, and end when no step of theirs is in flight; whether there is one.

        ``now``: steps in flight are interrupted, also if such a node drains already.
        """
        self.check()
        ((drained,),) = self._session.rows("SELECT bartack.drain(%s, %s)", name, now)
        return bool(drained)

    def move_in(self, run: PlacedRun, team: str = TEAM) -> None:
        """Keep a run here that was kept in its directory. The directory stays its working copy.

        Args:
            run: The run.
            team: Whose run it is from now on.

        Raises:
            UsageError: There is no such team.
            JournalLockedError: It is active.
            DepotError: There is another run of this id, or the database cannot be used.
        """
        self.check()
        self.check_team(team)
        files = FileRun(run.path)
        alive_us = files.last_sign_of_life_us()
        refs: dict[BlobRef, None] = {}
        with files.own() as journal:
            refs.update((entry.ref, None) for entry in journal.read() if entry.ref is not None)
            lines = (run.path / JOURNAL_FILE).read_bytes().rstrip(b"\n") + b"\n"
            crc = int(lines[-11:-3], 16)
            kept = PostgresRun(run.path, self.database)
            kept.team = team
            end = End(journal.synced_seq, crc)
            kept.adopt(lines, end, journal.fence, [*refs], run.pack(), alive_us, files.summary())
            write_elsewhere(run.path, self.where)

    def move_out(self, run_id: str, runs: Path) -> Path:
        """Keep a run in its directory below ``runs`` from now on, and no longer here.

        Raises:
            JournalLockedError: It is active.
        """
        path = runs / run_id
        kept = PostgresRun(path, self.database)
        if (path / KEPT_FILE).exists() or not path.exists() or not kept.is_pulled_here():
            self.fetch(run_id, runs)
            with kept.open_journal() as journal:  # everything is here when it is open, with all large values
                last = journal.synced_seq
                # From here on no other machine can own it, so that it never has two homes.
                kept.hold_for_pull()
            if not kept.is_pulled_here():
                raise DepotUnavailableError(self.name, f"it is not known whether {run_id} is free")
            self._check_complete(path, last)
            (path / KEPT_FILE).unlink()
        with FileRun(path).own():
            pass  # this syncs it
        kept.forget()
        return path

    def _check_complete(self, path: Path, last: int) -> None:
        with FileRun(path).open_reader() as reader:
            found = reader.read_last(1)
        if not found or found[-1].seq < last:
            raise DepotError(self.name, f"the copy of {path.name} in {path} is not complete")

    def stats(self) -> Stats:
        """What the database holds."""
        version = version_of(self._session)
        ((runs, owned, nodes, journal_bytes, content_bytes),) = self._session.rows(
            "SELECT (SELECT count(*) FROM bartack.run), (SELECT count(*) FROM bartack.owner WHERE state = 'owned'), "
            "(SELECT count(*) FROM bartack.node WHERE state = 'live' AND until > clock_timestamp()), "
            "(SELECT coalesce(sum(pg_total_relation_size(inhrelid)), 0)::bigint FROM pg_inherits "
            "WHERE inhparent = 'bartack.journal'::regclass), "
            "pg_total_relation_size('bartack.part')"
        )
        ((objects, object_bytes, orphans),) = self._session.rows(
            "SELECT count(*), coalesce(sum(size), 0)::bigint, (SELECT count(*) FROM bartack.orphan) "
            "FROM bartack.content WHERE key IS NOT NULL"
        )
        store, problem = self._look_at_store()
        transactions = look_at_transactions(self._session)
        return Stats(
            version,
            runs,
            owned,
            nodes,
            journal_bytes,
            content_bytes,
            store,
            problem,
            objects,
            object_bytes,
            orphans,
            transactions.oldest_s,
            transactions.sees_all,
            transactions.hidden,
        )

    def _look_at_store(self) -> tuple[str, str]:
        """The name of the object store, and why it does not answer."""
        store = self.database.objects
        if store is None:
            return "", ""
        try:
            store.get(PROBE)
        except DepotError as error:
            return store.name, error.problem
        return store.name, ""

    def verify(self, run_id: str) -> JournalReport:
        """Read the whole journal of a run with all its large values in the database. Nothing of it is kept here.

        Raises:
            JournalNotFoundError: The run is not there, or it was deleted meanwhile.
            JournalFormatError: A newer Bartack wrote it.
            DepotError: The database cannot be read.
        """
        return self.open_check().check(run_id)

    def open_check(self) -> RunCheck:
        """Checks runs one after the other. What runs share is read once."""
        return RunCheck(self._session)


def listed(team: Team, runs: Path, most: int = 0) -> Sequence[Path]:
    """Directories for the runs of a database below ``runs``, so that they can be listed and read. What is gone there goes here.

    These are the newest ones, see ``Team.ids``, and all older ones that have a question open.
    """
    ids = [*dict.fromkeys((*team.ids(most), *team.ids_that_ask()))]
    known = set(ids)
    for path in runs.iterdir() if runs.is_dir() else ():
        if path.name not in known and path.name.startswith("run-"):
            import shutil  # noqa: PLC0415 - slow to load

            shutil.rmtree(path, ignore_errors=True)
    note_all(runs, ids)
    return team.show_all(ids, runs)
