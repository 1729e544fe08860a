"""What is good and what is not about a database that keeps runs, for ``bartack doctor``. It changes nothing there.

In its object store it writes an object, and deletes it.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Final, Literal, NamedTuple

from bartack.depot._object_store import check_objects
from bartack.depot.postgres._database import Database, Session
from bartack.depot.postgres._open import look_at_transactions
from bartack.depot.postgres._schema import OLDEST_SERVER, check_version
from bartack.errors import DepotError

ROUNDS: Final = 10
SLOW_MS: Final = 50.0
CLOCK_S: Final = 2.0
LISTEN_S: Final = 2.0
OPEN_S: Final = 3600.0
_CHANNEL: Final = "bartack_doctor"


class Remark(NamedTuple):
    """The result of one check.

    Attributes:
        check: What was checked.
        level: How good it is.
        sentence: What was found.
        remedy: What to do.
    """

    check: str
    level: Literal["ok", "warn", "fail"]
    sentence: str
    remedy: str = ""


def examine_database(database: Database) -> list[Remark]:
    """Check a database; the first check that fails is the last one, as the others need what it has not found."""
    remarks: list[Remark] = []
    with database.session() as session:
        for check in _CHECKS:
            try:
                remark = check(session)
            except DepotError as error:
                remark = Remark(_NAMES[check], "fail", error.problem, error.remedy or "")
            remarks.append(remark)
            if remark.level == "fail":
                break
    return remarks


def _check_server(session: Session) -> Remark:
    ((number, version, standby),) = session.rows(
        "SELECT current_setting('server_version_num')::int, current_setting('server_version'), pg_is_in_recovery()"
    )
    found = f"PostgreSQL {version}"
    if number < OLDEST_SERVER:
        return Remark("server", "fail", f"{found} is too old", "Use PostgreSQL 15 or newer.")
    if standby:
        remedy = "Name the primary, or all servers with target_session_attrs=read-write."
        return Remark("server", "fail", f"{found}, a standby that takes no runs", remedy)
    return Remark("server", "ok", found)


def _check_schema(session: Session) -> Remark:
    check_version(session)
    return Remark("schema", "ok", "the tables are those of this version")


def _check_rights(session: Session) -> Remark:
    ((role, lacks),) = session.rows(
        "SELECT current_user, ARRAY(SELECT p.oid::regprocedure::text FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace "
        "WHERE n.nspname = 'bartack' AND p.proname IN ('append', 'claim_run', 'submit', 'mark', 'release') "
        "AND NOT has_function_privilege(p.oid, 'EXECUTE') ORDER BY 1)"
    )
    if lacks:
        remedy = "Ask the administrator of the database for the rights, or connect as another user."
        return Remark("rights", "fail", f"{role} has no right to execute {', '.join(lacks)}", remedy)
    return Remark("rights", "ok", f"{role} may run runs")


def _check_latency(session: Session) -> Remark:
    times: list[float] = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        session.rows("SELECT 1")
        times.append((time.perf_counter() - began) * 1e3)
    middle = statistics.median(times)
    sentence = f"an answer takes {middle:.1f} ms; every step waits for two or three"
    if middle > SLOW_MS:
        return Remark("latency", "warn", sentence, "Use a database that is nearer to the nodes.")
    return Remark("latency", "ok", sentence)


def _check_clock(session: Session) -> Remark:
    began = time.time()
    ((there,),) = session.rows("SELECT extract(epoch FROM clock_timestamp())::float8")
    off = there - (began + time.time()) / 2
    if abs(off) > CLOCK_S:
        sentence = f"the clocks of database and machine differ by {abs(off):.0f} s"
        remedy = "Synchronise both clocks: runs go by that of the database, and commands here by that of the machine."
        return Remark("clock", "warn", sentence, remedy)
    return Remark("clock", "ok", "the clocks of database and machine agree")


def _check_listen(session: Session) -> Remark:
    with session.use() as connection:
        connection.execute(f"LISTEN {_CHANNEL}")
        connection.execute(f"NOTIFY {_CHANNEL}")
        received = next(connection.notifies(timeout=LISTEN_S, stop_after=1), None)
        connection.execute(f"UNLISTEN {_CHANNEL}")
    if received is None:
        remedy = "Connect without a pooler, or with one that keeps sessions; otherwise news is seen a second later."
        return Remark("notifications", "warn", "LISTEN receives nothing", remedy)
    return Remark("notifications", "ok", "LISTEN receives what NOTIFY sends")


def _check_standbys(session: Session) -> Remark:
    ((standbys, names, commit),) = session.rows(
        "SELECT (SELECT count(*) FROM pg_stat_replication), current_setting('synchronous_standby_names'), "
        "current_setting('synchronous_commit')"
    )
    if commit in {"off", "local"} and (names or commit == "off"):
        sentence = f"synchronous_commit is {commit}: what is acknowledged may be lost"
        return Remark("durability", "warn", sentence, "Set synchronous_commit = on for the database.")
    if standbys and not names:
        sentence = (
            f"{standbys} standbys, and none is synchronous: one that takes over may lack acknowledged entries"
        )
        remedy = (
            "Set synchronous_standby_names. Otherwise nodes send again what is missing, if they still live."
        )
        return Remark("durability", "warn", sentence, remedy)
    return Remark(
        "durability",
        "ok",
        "synchronous standbys" if names else "no standby that may lack entries is connected",
    )


def _check_transactions(session: Session) -> Remark:
    found = look_at_transactions(session)
    if found.oldest_s > OPEN_S:
        hours = f"{found.oldest_s / 3600:.0f} h"
        sentence = f"a transaction has been open for {hours}, and keeps dead rows from being removed"
        return Remark("transactions", "warn", sentence, "End it: see pg_stat_activity.")
    if found.hidden:
        sentence = (
            f"{found.hidden} of other roles are open, the oldest for {found.hidden_age} transactions; "
            "since when is not visible for this role"
        )
        remedy = "Grant it pg_read_all_stats, or look at pg_stat_activity as an administrator."
        return Remark("transactions", "warn", sentence, remedy)
    if not found.sees_all:
        return Remark(
            "transactions", "ok", "none is open for long; times of other roles are not visible for this role"
        )
    return Remark("transactions", "ok", "none is open for long")


def _check_objects(session: Session) -> Remark:
    store = session.database.objects
    ((objects,),) = session.rows("SELECT count(*) FROM bartack.content WHERE key IS NOT NULL")
    if store is None and objects:
        remedy = (
            "Set depot.blobs in your own settings, or BARTACK_DEPOT_BLOBS, as on the nodes of the database."
        )
        return Remark(
            "large values", "fail", f"{objects} are in an object store, and none is set here", remedy
        )
    if store is None:
        return Remark("large values", "ok", "in the database; depot.blobs names no object store")
    check_objects(store)
    return Remark("large values", "ok", f"those of more than 1 MiB are in {store.name}, which answers")


_NAMES: Final[dict[Callable[[Session], Remark], str]] = {
    _check_server: "server",
    _check_schema: "schema",
    _check_rights: "rights",
    _check_latency: "latency",
    _check_clock: "clock",
    _check_listen: "notifications",
    _check_standbys: "durability",
    _check_transactions: "transactions",
    _check_objects: "large values",
}
_CHECKS: Final = tuple(_NAMES)
