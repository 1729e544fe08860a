"""Work that is due for all nodes of a database: each piece is a row, and the node that locks the row does it.

``do_chore`` in ``postgres/schema/0003.sql`` does the work in small pieces, and notes what kept it from being done. A statement that
takes too long, or whose connection is lost, notes nothing. That is done here, so that the next piece has its turn.

Objects of an object store are deleted here, too, after the database has said whose turn it is: no transaction waits for the store.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from bartack.depot.postgres._database import ANSWER_S, Session
from bartack.depot.postgres._objects import delete_orphans
from bartack.errors import DepotError, DepotSchemaError

CHORE_MS: Final = 20_000
"""How long one statement may take."""
OBJECTS: Final = "objects"
"""The piece of work that is done here and not in the database."""
CHORE_ANSWER_S: Final = CHORE_MS / 1000 + ANSWER_S


class Chore(NamedTuple):
    """A piece of work that was due.

    Attributes:
        name: Which one.
        problem: What kept it from being done; empty if nothing did.
    """

    name: str
    problem: str = ""


def do_due(session: Session, node: int, limit_ms: int = CHORE_MS) -> list[Chore]:
    """Do what is due and what no other node does, the oldest first; returns what was done or failed.

    Args:
        session: A connection that nothing else waits for.
        node: The number of this node.
        limit_ms: How long one statement may take.

    Raises:
        DepotError: The database cannot be used.
    """
    due = session.rows("SELECT name FROM bartack.chore WHERE due <= clock_timestamp() ORDER BY due")
    found = [_do(session, node, name, limit_ms) for (name,) in due]
    return [chore for chore in found if chore is not None]


def _do(session: Session, node: int, name: str, limit_ms: int) -> Chore | None:
    try:
        with session.use() as connection, connection.transaction():
            connection.execute(f"SET LOCAL statement_timeout = {limit_ms:d}".encode())
            outcome = connection.execute("SELECT bartack.do_chore(%s, %s)", (node, name)).fetchone()
    except DepotSchemaError:
        raise
    except DepotError as error:
        session.rows("SELECT bartack.note_chore(%s, %s)", name, str(error))
        return Chore(name, str(error))
    if outcome is None or outcome[0] is None:
        return None
    return Chore(name, _delete_objects(session, node) if name == OBJECTS else str(outcome[0]))


def _delete_objects(session: Session, node: int) -> str:
    """Delete objects that nothing names, and note what kept them from being deleted; returns that."""
    problem, has_more = delete_orphans(session, node)
    session.rows("SELECT bartack.note_orphans(%s, %s)", problem, has_more)
    return problem
