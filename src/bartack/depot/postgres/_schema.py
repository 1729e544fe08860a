"""The tables and functions of Bartack in a database: numbered migrations, each applied once, in one transaction.

Migrations only add, so first the database is migrated, then the programs are replaced. ``works_from`` says which version of the
schema a program must know at least. A migration that removes something raises it, and waits until no node that knows less is live.

A database of one user has no roles: that user owns everything. ``migrate(roles=True)`` makes them (``schema/roles.sql``). From then
on each migration also gives the roles their rights to what it has added (``schema/rights.sql``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.resources import files
from typing import TYPE_CHECKING, Final

from bartack.depot.postgres._database import Database, Session
from bartack.errors import DepotSchemaError, DepotUnavailableError

if TYPE_CHECKING:
    from bartack.depot.postgres._database import Connection

MIGRATIONS: Final = ("0001", "0002", "0003", "0004", "0005", "0006", "0007", "0008", "0009")
VERSION: Final = len(MIGRATIONS)
WORKS_FROM: Final = dict.fromkeys(range(1, VERSION + 1), 1)
"""For each version of the schema, the oldest that its users may know."""
OLDEST_SERVER: Final = 150000
OWNER: Final = "bartack_owner"
TRIES: Final = 20
"""How often a migration that does not get its locks is tried. An attempt holds others up for a lock timeout at most."""
BUSY: Final = frozenset({"55P03", "40P01"})
"""What the database answers where a lock is not to be had."""

Older = Callable[[Sequence[str]], object]
"""Takes the names of live nodes that a migration waits for, and waits a while."""


def read_migration(number: int) -> str:
    """The statements that lead to a version."""
    return _read(MIGRATIONS[number - 1])


def _read(name: str) -> str:
    return (files("bartack.depot.postgres") / "schema" / f"{name}.sql").read_text(encoding="utf-8")


def version_of(session: Session) -> int:
    """The version of the schema in a database; 0 if there is none."""
    (found,) = session.rows("SELECT to_regclass('bartack.level') IS NOT NULL")
    if not found[0]:
        return 0
    ((version,),) = session.rows("SELECT coalesce(max(version), 0) FROM bartack.level")
    return int(version)


def has_roles(session: Session) -> bool:
    """Whether the tables belong to the role that is made for them."""
    statement = "SELECT pg_get_userbyid(relowner) FROM pg_class WHERE oid = to_regclass('bartack.level')"
    return [tuple(row) for row in session.rows(statement)] == [(OWNER,)]


def migrate(database: Database, older: Older | None = None, *, roles: bool = False) -> tuple[int, int]:
    """Bring the schema of a database up to date; returns the version before and after. Two at once do it once.

    Args:
        database: The database. It may be in use: what others do meanwhile waits for a moment, and nothing is lost.
        older: Called again and again while nodes are live that would not work any more.
        roles: Also make the roles, unless they are there.

    Raises:
        DepotSchemaError: The server is too old, or a newer Bartack has migrated it, or there are nodes that would not work any more
            and nothing waits for them.
        DepotUnavailableError: It is so busy that the tables cannot be changed.
        DepotRefusedError: This user has no right to make the tables or the roles.
    """
    tries, first = 0, None
    with database.session() as session:
        while True:
            try:
                before, names = _migrate_once(session, roles=roles)
            except DepotUnavailableError as error:
                tries += 1
                if tries == TRIES or getattr(error.__cause__, "sqlstate", None) not in BUSY:
                    raise
                continue
            first = before if first is None else first
            if not names:
                return first, VERSION
            if older is None:
                raise DepotSchemaError(
                    database.name, f"these nodes would not work any more: {', '.join(names)}"
                )
            older(names)


def _migrate_once(session: Session, *, roles: bool) -> tuple[int, Sequence[str]]:
    """Apply what is missing; returns the version before, and the nodes because of which nothing more was applied."""
    database = session.database
    with session.use() as connection:
        (server,) = session.rows("SELECT current_setting('server_version_num')::int")
        if server[0] < OLDEST_SERVER:
            raise DepotSchemaError(database.name, f"PostgreSQL {server[0] // 10000} is too old; it needs 15")
        with connection.transaction():
            connection.execute("SELECT pg_advisory_xact_lock(hashtext('bartack.schema'))")
            connection.execute("SET LOCAL statement_timeout = 0")
            if session.rows("SELECT to_regnamespace('bartack') IS NULL") == [(True,)]:
                connection.execute("CREATE SCHEMA bartack")
            if has_roles(session):
                _become_owner(connection)
            before = version_of(session)
            if before > VERSION:
                raise DepotSchemaError(database.name, f"a newer Bartack has migrated it to version {before}")
            for number in range(before + 1, VERSION + 1):
                names = _older_nodes(session, number)
                if names:
                    return before, names
                _apply(connection, number)
            if roles and not has_roles(session):
                connection.execute(_read("roles").encode())
            if has_roles(session):
                _become_owner(connection)
                connection.execute(_read("rights").encode())
    return before, ()


def _become_owner(connection: Connection) -> None:
    """Own what this transaction makes as the role that owns everything else."""
    connection.execute(f"SET LOCAL ROLE {OWNER}".encode())


def _older_nodes(session: Session, number: int) -> Sequence[str]:
    """The live nodes that do not work any more after a migration."""
    if WORKS_FROM[number] == 1:
        return ()
    rows = session.rows(
        "SELECT name, version FROM bartack.node WHERE state IN ('live', 'draining') AND until > clock_timestamp() "
        "AND knows < %s ORDER BY name",
        WORKS_FROM[number],
    )
    return [f"{name} (version {version})" for name, version in rows]


def _apply(connection: Connection, number: int) -> None:
    connection.execute(read_migration(number).encode())
    connection.execute(
        "INSERT INTO bartack.level (version, works_from) VALUES (%s, %s)", (number, WORKS_FROM[number])
    )


def check_version(session: Session) -> None:
    """Raise unless this version of Bartack works with the schema.

    Raises:
        DepotSchemaError: It does not.
    """
    found = session.rows("SELECT version, works_from FROM bartack.level ORDER BY version DESC LIMIT 1")
    if not found or found[0][0] < VERSION:
        raise DepotSchemaError(session.database.name, "its tables are those of an older version")
    if found[0][1] > VERSION:
        raise DepotSchemaError(session.database.name, "its tables are those of a newer version")
