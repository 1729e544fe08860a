"""The tables and functions of Bartack in a database: numbered migrations, each applied once, in one transaction.

Migrations only add. ``works_from`` says which version of the schema a version of Bartack needs at least, so that first the
database is migrated, then the programs are replaced.
"""

from __future__ import annotations

from importlib.resources import files
from typing import Final

from bartack.depot.postgres._database import Database, Session
from bartack.errors import DepotSchemaError

MIGRATIONS: Final = ("0001", "0002")
VERSION: Final = len(MIGRATIONS)
WORKS_FROM: Final = {1: 1, 2: 1}
"""For each version of the schema, the oldest that its users may know."""
OLDEST_SERVER: Final = 150000


def read_migration(number: int) -> str:
    """The statements that lead to a version."""
    return (files("bartack.depot.postgres") / "schema" / f"{MIGRATIONS[number - 1]}.sql").read_text(
        encoding="utf-8"
    )


def version_of(session: Session) -> int:
    """The version of the schema in a database; 0 if there is none."""
    (found,) = session.rows("SELECT to_regclass('bartack.level') IS NOT NULL")
    if not found[0]:
        return 0
    ((version,),) = session.rows("SELECT coalesce(max(version), 0) FROM bartack.level")
    return int(version)


def migrate(database: Database) -> tuple[int, int]:
    """Bring the schema of a database up to date; returns the version before and after. Two at once do it once.

    Raises:
        DepotSchemaError: The server is too old, or a newer Bartack has migrated it.
        DepotRefusedError: This user has no right to make the tables.
    """
    with database.session() as session, session.use() as connection:
        (server,) = session.rows("SELECT current_setting('server_version_num')::int")
        if server[0] < OLDEST_SERVER:
            raise DepotSchemaError(database.name, f"PostgreSQL {server[0] // 10000} is too old; it needs 15")
        with connection.transaction():
            connection.execute("SELECT pg_advisory_xact_lock(hashtext('bartack.schema'))")
            connection.execute("CREATE SCHEMA IF NOT EXISTS bartack")
            before = version_of(session)
            if before > VERSION:
                raise DepotSchemaError(database.name, f"a newer Bartack has migrated it to version {before}")
            for number in range(before + 1, VERSION + 1):
                connection.execute(read_migration(number).encode())
                connection.execute(
                    "INSERT INTO bartack.level (version, works_from) VALUES (%s, %s)",
                    (number, WORKS_FROM[number]),
                )
    return before, VERSION


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
