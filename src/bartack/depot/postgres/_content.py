"""Large values of a database: each once for a team, in pieces, or as an object of its object store (``_objects.py``)."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from bartack.depot.postgres._objects import PIECE, keep_objects, load_object, missing
from bartack.errors import JournalOwnershipLostError
from bartack.journal import BlobRef

if TYPE_CHECKING:
    from bartack.depot.postgres._database import Connection, Session


def upload(
    connection: Connection,
    name: str,
    run: int,
    fence: int,
    refs: Iterable[BlobRef],
    read: Callable[[BlobRef], bytes],
) -> None:
    """Keep large values, so that a commit of the run can refer to them. What is there already is not sent again.

    Those that are to be objects are there already (``keep_objects``). One that is not goes to the database all the same.

    Args:
        connection: Commits every statement.
        name: What errors call the run.
        run: The number of the run.
        fence: The number of its ownership, or of the last one if nothing owns it.
        refs: The values.
        read: Returns the content of one as it is stored.

    Raises:
        JournalOwnershipLostError: The run has another owner.
    """
    for ref in refs:
        with connection.transaction():
            of_value = run, fence, bytes.fromhex(ref.sha256)
            outcome = connection.execute(
                "SELECT bartack.keep_content(%s, %s, %s, %s)", (*of_value, ref.size)
            ).fetchone()
            if outcome == ("lost",):
                raise JournalOwnershipLostError(name, "it has another owner")
            if outcome == ("send",):
                content = read(ref)
                for number, start in enumerate(range(0, len(content), PIECE)):
                    piece = content[start : start + PIECE]
                    kept = connection.execute(
                        "SELECT bartack.keep_part(%s, %s, %s, %s, %s)", (*of_value, number, piece)
                    )
                    if kept.fetchone() != (True,):
                        raise JournalOwnershipLostError(name, "it has another owner")


def keep_value(connection: Connection, team: str, content: bytes) -> bytes:
    """Keep a large value for a schedule of a team, in a transaction of the caller; returns its digest."""
    digest = hashlib.sha256(content).digest()
    outcome = connection.execute(
        "SELECT bartack.keep_value(%s, %s, %s)", (team, digest, len(content))
    ).fetchone()
    for number, start in enumerate(range(0, len(content), PIECE) if outcome == ("send",) else ()):
        piece = content[start : start + PIECE]
        connection.execute("SELECT bartack.keep_value_part(%s, %s, %s, %s)", (team, digest, number, piece))
    return digest


def keep_content(session: Session, team: str, content: bytes) -> BlobRef:
    """Keep a value that is to be an object, before the transaction that refers to it; see ``keep_objects``."""
    ref = BlobRef(hashlib.sha256(content).hexdigest(), len(content))
    keep_objects(session, team, [ref], lambda _: content)
    return ref


def keep_program(connection: Connection, name: str, run: int, fence: int, program: bytes) -> None:
    """Keep the program of a run, if it is another one than before. See ``upload``."""
    ref = BlobRef(hashlib.sha256(program).hexdigest(), len(program))
    upload(connection, name, run, fence, [ref], lambda _: program)
    kept = connection.execute(
        "SELECT bartack.keep_program(%s, %s, %s, %s)", (run, fence, bytes.fromhex(ref.sha256), ref.size)
    )
    if kept.fetchone() != (True,):
        raise JournalOwnershipLostError(name, "it has another owner")


def download(session: Session, team: str, ref: BlobRef) -> bytes | None:
    """A large value of a team; ``None`` if it is not there.

    Raises:
        BlobMissingError: It is an object, which is not there.
        BlobCorruptError: It is an object with another content.
    """
    digest = bytes.fromhex(ref.sha256)
    last = ""
    while rows := session.rows(
        "SELECT key FROM bartack.content WHERE team = %s AND sha256 = %s", team, digest
    ):
        ((key,),) = rows
        if key is None:
            return _download_pieces(session, team, digest)
        if key == last:
            raise missing(session.database, ref)
        content = load_object(session.database, key, ref)
        if content is not None:
            return content
        last = key  # it may have been deleted and kept again meanwhile
    return None


def _download_pieces(session: Session, team: str, digest: bytes) -> bytes:
    pieces: list[bytes] = []
    while found := session.rows(
        "SELECT bytes FROM bartack.part WHERE team = %s AND sha256 = %s AND no = %s",
        team,
        digest,
        len(pieces),
    ):
        pieces.append(bytes(found[0][0]))
    return b"".join(pieces)
