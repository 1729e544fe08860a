"""Since when transactions of a database are open, as far as the role that asks may see that."""

from __future__ import annotations

from typing import NamedTuple

from bartack.depot.postgres._database import Session


class OpenTransactions(NamedTuple):
    """The transactions of a database.

    Attributes:
        oldest_s: How long the oldest of those is open that the role sees.
        sees_all: Whether it sees since when those of other roles are open.
        hidden: How many of other roles are open, if it does not. A transaction that has read nothing yet does not count.
        hidden_age: How many transactions have begun since the oldest of these.
    """

    oldest_s: float
    sees_all: bool
    hidden: int
    hidden_age: int


def look_at_transactions(session: Session) -> OpenTransactions:
    """Look at the transactions that are open now, beside that of the caller.

    The server shows of other roles no times, but which transaction is the first that each of them must still see.
    """
    ((oldest_s, sees_all, hidden, age),) = session.rows(
        "SELECT coalesce(extract(epoch FROM max(clock_timestamp() - xact_start)), 0)::float8, "
        "pg_has_role('pg_read_all_stats', 'USAGE'), "
        "count(*) FILTER (WHERE NOT pg_has_role('pg_read_all_stats', 'USAGE') AND NOT pg_has_role(usesysid, 'USAGE') "
        "AND (backend_xmin IS NOT NULL OR backend_xid IS NOT NULL)), "
        "coalesce(max(age(coalesce(backend_xmin, backend_xid))) FILTER (WHERE NOT pg_has_role(usesysid, 'USAGE')), 0) "
        "FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() AND usesysid IS NOT NULL"
    )
    return OpenTransactions(oldest_s, sees_all, hidden, age)
