"""Large values of a database that are objects of an object store: written before a row names them, deleted after no row does.

    orphan ──object is durable──▶ named by a content ──no run holds it──▶ orphan ──a day later: object, then row──▶ gone

A value of more than a piece becomes an object, if the database has an object store on this machine. The name of an object is
random, and used once. So two writers of the same value write two objects, of which one is named and the other one is deleted, and
a value that is kept again while its former object is deleted has another one.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from bartack.depot._object_store import ObjectStore
from bartack.errors import BlobCorruptError, BlobMissingError, BlobTooLargeError, DepotError
from bartack.journal import BlobRef

if TYPE_CHECKING:
    from bartack.depot.postgres._database import Database, Session

PIECE: Final = 1 << 20
"""A value that is not longer than this is always in the database."""
MOST_BYTES: Final = 256 << 20
"""How long a value may be that is kept in the database: one transaction writes it, and one statement deletes it."""
DELETED: Final = 100
"""How many objects are deleted at a time."""


def check_size(database: Database, size: int) -> None:
    """Raise unless a value of this size can be kept.

    Raises:
        BlobTooLargeError: It is too large for a database without an object store.
    """
    if database.objects is None and size > MOST_BYTES:
        raise BlobTooLargeError(size, MOST_BYTES, database.name)


def has_objects(database: Database, refs: Iterable[BlobRef]) -> bool:
    """Whether some of these values are to be objects."""
    return database.objects is not None and any(ref.size > PIECE for ref in refs)


def keep_objects(
    session: Session, team: str, refs: Iterable[BlobRef], read: Callable[[BlobRef], bytes]
) -> None:
    """Keep the values among these that are to be objects, durable when this returns. What is there already is not sent again.

    It comes before the transaction that refers to them, which waits for no other server than the database.

    Args:
        session: A connection outside of a transaction.
        team: Whose values they are.
        refs: The values.
        read: Returns the content of one as it is stored.

    Raises:
        BlobTooLargeError: One does not fit into the database, and that has no object store.
        DepotUnavailableError: The object store or the database does not answer.
    """
    store = session.database.objects
    for ref in refs:
        check_size(session.database, ref.size)
        while store is not None and ref.size > PIECE and not _keep(session, store, team, ref, read):
            pass  # its object was not named within a day, and is being deleted


def _keep(
    session: Session, store: ObjectStore, team: str, ref: BlobRef, read: Callable[[BlobRef], bytes]
) -> bool:
    """Keep a value as an object, or find that it is kept; ``False``: the object came too late."""
    digest, key = bytes.fromhex(ref.sha256), secrets.token_hex(16)
    begin, keep = (
        "SELECT bartack.begin_object(%s, %s, %s)",
        "SELECT bartack.keep_object(%s, %s, %s, %s)",
    )
    if session.rows(begin, team, digest, key) == [("kept",)]:
        return True
    store.put(key, read(ref))
    return session.rows(keep, team, digest, ref.size, key) == [("kept",)]


def load_object(database: Database, key: str, ref: BlobRef) -> bytes | None:
    """The value that is an object; ``None`` if the object is not there.

    Raises:
        BlobCorruptError: The object has another content.
        DepotError: There is no object store on this machine, or it does not answer.
    """
    store = database.objects
    if store is None:
        error = DepotError(
            database.name, f"the value {ref.sha256} is in its object store, which is not known here"
        )
        error.remedy = (
            "Set depot.blobs in your own settings, or BARTACK_DEPOT_BLOBS, as on the nodes of the database."
        )
        raise error
    content = store.get(key, ref.size)
    if content is not None and hashlib.sha256(content).hexdigest() != ref.sha256:
        problem = f"the object {key} of {store.name} does not match the checksum"
        fault = BlobCorruptError(ref.sha256, problem)
        fault.remedy = "Restore the object from a backup of the object store."
        raise fault
    return content


def missing(database: Database, ref: BlobRef) -> BlobMissingError:
    """The error of a value whose object is not there."""
    error = BlobMissingError(ref.sha256, "" if database.objects is None else database.objects.name)
    error.remedy = "Restore the object from a backup of the object store."
    return error


def delete_orphans(session: Session, node: int) -> tuple[str, bool]:
    """Delete objects that nothing has named for a day; returns what kept them from being deleted, and whether there are more."""
    store = session.database.objects
    if store is None:
        ((waiting,),) = session.rows(
            "SELECT count(*) FROM bartack.orphan WHERE since < clock_timestamp() - interval '1 day'"
        )
        return (
            f"{waiting} objects are to be deleted, and depot.blobs names no object store" if waiting else "",
            False,
        )
    keys = [key for (key,) in session.rows("SELECT bartack.take_orphans(%s, %s)", node, DELETED)]
    gone: list[str] = []
    try:
        for key in keys:
            store.delete(key)
            gone.append(key)
    except DepotError as error:
        return str(error), False
    finally:
        if gone:
            session.rows("SELECT bartack.drop_orphans(%s)", gone)
    return "", len(keys) == DELETED
