"""A PostgreSQL database: how it is named, how it is connected to, and what its refusals mean. It knows nothing of runs.

``psycopg`` is imported here, when the first connection is made, and nowhere else at run time.
"""

from __future__ import annotations

import ipaddress
import os
import re
import threading
import time
import weakref
from collections.abc import Generator
from contextlib import contextmanager, suppress
from functools import cache, cached_property
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from bartack.core.accounts import own_rights
from bartack.core.closing import Closing
from bartack.depot._object_store import open_objects
from bartack.errors import (
    DepotError,
    DepotInsecureError,
    DepotRefusedError,
    DepotSchemaError,
    DepotUnavailableError,
    UsageError,
)

if TYPE_CHECKING:
    from psycopg import Connection as PgConnection

    Connection: TypeAlias = PgConnection[tuple[Any, ...]]

CONNECT_S: Final = 5
STATEMENT_MS: Final = 10_000
"""A statement that takes longer is sent again: something holds it up, and the next attempt may find a way."""
LOCK_MS: Final = 2_000
ANSWER_S: Final = 15.0
"""A connection that is silent for longer while it is waited for is given up: the server hangs, or a machine between is gone."""
CLOSE_S: Final = 0.5
NEWER: Final = "BT001"
"""What the database answers where a run was continued by a newer version (``stamp_owner`` in ``schema/0003.sql``)."""
_SERVICE = re.compile(r"service:([A-Za-z0-9_.-]+)")
_SECRETS: Final = frozenset(
    {"password", "sslpassword", "oauth_client_secret", "scram_client_key", "scram_server_key"}
)
_SETTINGS: Final = {
    "application_name": "bartack",
    "connect_timeout": str(CONNECT_S),
    # A process that is stopped in a transaction must not keep the locks of that: others could not bury it.
    "options": f"-c statement_timeout={STATEMENT_MS} -c lock_timeout={LOCK_MS} "
    f"-c idle_in_transaction_session_timeout={STATEMENT_MS}",
    # With a ticket it would replace TLS, and the name of the server would not be checked.
    "gssencmode": "disable",
    "target_session_attrs": "read-write",
    "keepalives_idle": "5",
    "keepalives_interval": "2",
    "keepalives_count": "3",
    "tcp_user_timeout": "10000",
}


def load_psycopg() -> Any:
    """The library.

    Raises:
        UsageError: It is not installed.
    """
    try:
        import psycopg  # noqa: PLC0415 - only runs in a database need it
    except ImportError as error:
        problem = f"it needs {error.name or 'psycopg'}, which is not installed; install bartack[postgres]"
        raise UsageError("--on", problem) from None
    return psycopg


class Database(Closing):
    """A database, as people name it. Creating this object connects to nothing.

    Attributes:
        name: What messages call it: without a password.
        shared: A connection for everything that takes a moment, one caller at a time.
        objects: The object store with its largest values; ``None`` if this machine knows of none.

    Args:
        where: ``postgresql://…``, or ``service:NAME`` for a section of the connection service file.
        insecure: Also connect where the connection is not protected.
        answer_s: How long the shared connection may be silent while it is waited for.
        blobs: The name of the object store; empty: none.

    Raises:
        UsageError: It or its object store is not named like that, or the library is not installed.
        DepotInsecureError: The connection would not be protected.
    """

    def __init__(
        self, where: str, *, insecure: bool = False, answer_s: float = ANSWER_S, blobs: str = ""
    ) -> None:
        self.objects = open_objects(blobs)
        self._psycopg = load_psycopg()
        self._facts = self._parse(where)
        self.name = _name_of(where, self._facts)
        if not insecure:
            with own_rights():
                self._check_secure()
        self.shared = Session(self, answer_s)

    def close(self) -> None:
        """Close the shared connection; the next use makes a new one."""
        self.shared.close()

    def connect(self, answer_s: float = ANSWER_S) -> Connection:
        """A new connection, which commits every statement.

        Args:
            answer_s: How long it may be silent while it is waited for.

        Raises:
            DepotUnavailableError: It cannot be reached.
        """
        with self.talking():
            settings = {**_SETTINGS, **self._facts}
            made: Connection
            try:
                # A node that acts as the user of its runs connects as itself: only root reads what opens the database.
                with own_rights():
                    made = _impatient_class(self._psycopg).connect(**settings, autocommit=True)
            except OSError as error:  # for example, this process has too many open files
                raise DepotUnavailableError(self.name, _text(error)) from error
            vars(made)["answer_s"] = answer_s
            return made

    def session(self, answer_s: float = ANSWER_S) -> Session:
        """A connection for one thread at a time, which is made when it is first used, and made again when it was cut."""
        return Session(self, answer_s)

    @contextmanager
    def talking(self) -> Generator[None]:
        """Raise an error with a code where the library or the database raises one of its own."""
        errors = self._psycopg.errors
        try:
            yield
        except (
            errors.UndefinedTable,
            errors.InvalidSchemaName,
            errors.UndefinedFunction,
            errors.UndefinedColumn,
        ) as error:
            raise DepotSchemaError(self.name, "it has no tables of this version of Bartack") from error
        except errors.InsufficientPrivilege as error:
            raise DepotRefusedError(self.name, _text(error)) from error
        except self.transient as error:
            raise DepotUnavailableError(self.name, _text(error)) from error
        except self._psycopg.Error as error:
            if error.sqlstate == NEWER:
                raise _newer(self.name, _text(error)) from error
            raise DepotError(self.name, _text(error)) from error

    @cached_property
    def transient(self) -> tuple[type[Exception], ...]:
        """What is raised when it is not known what became of a statement, or when it may succeed later."""
        errors = self._psycopg.errors
        return (
            self._psycopg.OperationalError,  # cut, restarted, full, or too many connections
            self._psycopg.InterfaceError,
            errors.ReadOnlySqlTransaction,  # a standby that is not promoted yet
            errors.SerializationFailure,
            errors.DeadlockDetected,
        )

    def _parse(self, where: str) -> dict[str, str]:
        service = _SERVICE.fullmatch(where)
        if service is not None:
            return {"service": service[1]}
        # No message repeats what was given: it may have a password in it.
        if not where.startswith(("postgresql://", "postgres://")):
            raise UsageError("--on", "the database is named as postgresql://… or service:NAME")
        try:
            found = self._psycopg.conninfo.conninfo_to_dict(where)
        except (self._psycopg.ProgrammingError, UnicodeError):
            raise UsageError(
                "--on", "that is not a valid postgresql://… URL; write special characters as %XX"
            ) from None
        if not _SECRETS.isdisjoint(found):
            problem = "a password in the URL is seen in lists of processes; put it into the file ~/.pgpass (PGPASSFILE)"
            raise UsageError("--on", f"{problem}, or name a service with service:NAME")
        return {name: str(value) for name, value in found.items() if value is not None}

    def _check_secure(self) -> None:
        known = {option.keyword.decode(): option.val for option in self._psycopg.pq.Conninfo.get_defaults()}
        known = {name: value.decode() for name, value in known.items() if value}
        service = self._facts.get("service") or known.get("service")
        section = {} if service is None else service_section(service)
        if section is None:
            if [*self._facts] == ["service"]:
                return  # a section of the whole machine, which belongs to its administrator
            section = {}
        facts = {**known, **section, **self._facts}
        places = _places(facts.get("hostaddr", ""), facts.get("host", ""))
        if facts.get("sslmode") != "verify-full" and not all(map(_is_local, places)):
            problem = f"the connection to {', '.join(places)} would not be checked (sslmode={facts.get('sslmode', 'prefer')})"
            raise DepotInsecureError(self.name, problem)


class _Held:
    """The connection of a session."""

    def __init__(self) -> None:
        self.connection: Connection | None = None

    def drop(self) -> None:
        """Close it."""
        connection, self.connection = self.connection, None
        if connection is not None:
            with suppress(Exception):
                connection.close()


class Session(Closing):
    """See ``Database.session``.

    Attributes:
        connections: How many it has made.
    """

    def __init__(self, database: Database, answer_s: float = ANSWER_S) -> None:
        self.database = database
        self.connections = 0
        self._answer_s = answer_s
        self._held = _Held()
        # Held from outside: what is collected together with this object would be reported as left open.
        weakref.finalize(self, self._held.drop).atexit = False
        self._mutex = threading.RLock()

    @contextmanager
    def use(self) -> Generator[Connection]:
        """The connection, for one caller at a time. One that fails is dropped.

        Raises:
            DepotError: See ``Database.talking``.
        """
        with self._mutex, self.database.talking():
            connection = self._held.connection
            if connection is None or connection.closed:
                connection = self._held.connection = self.database.connect(self._answer_s)
                self.connections += 1
            try:
                yield connection
            except self.database.transient:
                self.drop()
                raise

    def rows(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        """Execute one statement; returns its rows. A query is tried again on a new connection, so functions must bear that."""
        try:
            return self._rows(statement, values)
        except DepotUnavailableError:
            if not statement.lstrip().upper().startswith("SELECT "):
                raise
            return self._rows(statement, values)

    def _rows(self, statement: str, values: tuple[object, ...]) -> list[tuple[Any, ...]]:
        with self.use() as connection:
            cursor = connection.execute(statement.encode(), values)
            return [] if cursor.description is None else cursor.fetchall()

    def drop(self) -> None:
        """Close the connection; the next use makes a new one."""
        self._held.drop()

    def close(self) -> None:
        """Close it. If another thread waits for an answer, it is left to that."""
        if self._mutex.acquire(timeout=CLOSE_S):
            try:
                self.drop()
            finally:
                self._mutex.release()


@cache
def _impatient_class(psycopg: Any) -> Any:
    """The connections of the library, but with an end to every wait. Timeouts of the server end nothing if the server is gone."""

    class Impatient(psycopg.Connection):  # type: ignore[misc]  # - the library is loaded on first use, and has no type here
        answer_s = ANSWER_S

        def wait(self, gen: Generator[Any, Any, Any], *values: Any, **options: Any) -> Any:
            above: Any = super()
            try:
                return above.wait(self._limited(gen), *values, **options)
            except OSError as error:  # the wait itself failed: what was asked is not known to be answered
                self.pgconn.finish()
                raise psycopg.OperationalError(f"no answer: {error}") from error

        def _limited(self, gen: Generator[Any, Any, Any]) -> Generator[Any, Any, Any]:
            since = time.monotonic()
            try:
                wanted = next(gen)
                while True:
                    ready = yield wanted
                    now = time.monotonic()
                    if ready:
                        since = now
                    elif now - since > self.answer_s:
                        self.pgconn.finish()
                        raise psycopg.OperationalError(f"no answer within {self.answer_s:g} s")
                    wanted = gen.send(ready)
            except StopIteration as end:
                return end.value

    return Impatient


def _name_of(where: str, facts: dict[str, str]) -> str:
    if "service" in facts:
        return where
    host = facts.get("host") or facts.get("hostaddr") or "localhost"
    port = f":{facts['port']}" if "port" in facts else ""
    return f"postgresql://{host}{port}/{facts.get('dbname', '')}"


def service_section(name: str) -> dict[str, str] | None:
    """What a section of the connection service file of this user says; ``None`` if there is no such section in it."""
    files = [Path(os.environ.get("PGSERVICEFILE") or Path("~/.pg_service.conf").expanduser())]
    if os.environ.get("PGSYSCONFDIR"):
        files.append(Path(os.environ["PGSYSCONFDIR"]) / "pg_service.conf")
    for path in files:
        try:
            lines = path.read_text("utf-8", "replace").split("\n")
        except OSError:
            continue
        found = _section_of(lines, name)
        if found is not None:
            return found
    return None


def _section_of(lines: list[str], name: str) -> dict[str, str] | None:
    """A section as the library reads it: the first of its name, and of each key the first value."""
    found: dict[str, str] | None = None
    for line in map(str.strip, lines):
        if line.startswith("["):
            if found is not None:
                return found
            found = {} if line.startswith(f"[{name}]") else None
        elif found is not None and line.startswith("ldap"):
            found.setdefault("host", line)  # a directory service names the server, and not this file
        elif found is not None and not line.startswith("#"):
            key, _, value = line.partition("=")
            found.setdefault(key, value)
    return found


def _places(addresses: str, hosts: str) -> list[str]:
    """Where a connection may lead to: of each server its address, or its name if it has no address."""
    pairs = zip_longest(addresses.split(","), hosts.split(","), fillvalue="")
    return [place for place in (address or host for address, host in pairs) if place]


def _is_local(host: str) -> bool:
    if host.startswith(("/", "@")) or host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _newer(name: str, problem: str) -> DepotSchemaError:
    error = DepotSchemaError(name, problem)
    error.remedy = "Use the version of Bartack that has continued the run, or a newer one."
    return error


def _text(error: Exception) -> str:
    """What an error of the library says, on one line."""
    return " ".join(str(error).split()) or type(error).__name__
