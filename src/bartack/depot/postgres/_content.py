"""Large values in a database: each once for a team, in pieces."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from bartack.journal import BlobRef

if TYPE_CHECKING:
    from bartack.depot.postgres._database import Connection, Session

PIECE: Final = 1 << 20


def upload(
    connection: Connection, run: int, team: str, refs: Iterable[BlobRef], read: Callable[[BlobRef], bytes]
) -> None:
    """Keep large values, so that a commit of the run can refer to them. What is there already is not sent again.

    Args:
        connection: Commits every statement.
        run: The number of the run.
        team: Its team.
        refs: The values.
        read: Returns the content of one as it is stored.
    """
    for ref in refs:
        with connection.transaction():
            digest = bytes.fromhex(ref.sha256)
            made = connection.execute(
                "INSERT INTO bartack.content (team, sha256, size) VALUES (%s, %s, %s) "
                "ON CONFLICT (team, sha256) DO UPDATE SET touched = clock_timestamp() RETURNING xmax = 0",
                (team, digest, ref.size),
            ).fetchone()
            if made is not None and made[0]:
                content = read(ref)
                for number, start in enumerate(range(0, len(content), PIECE)):
                    connection.execute(
                        "INSERT INTO bartack.part VALUES (%s, %s, %s, %s)",
                        (team, digest, number, content[start : start + PIECE]),
                    )
            connection.execute(
                "INSERT INTO bartack.blob VALUES (%s, %s, %s) ON CONFLICT DO NOTHING", (run, team, digest)
            )


def download(session: Session, team: str, ref: BlobRef) -> bytes | None:
    """A large value of a team; ``None`` if it is not there."""
    digest = bytes.fromhex(ref.sha256)
    if not session.rows("SELECT 1 FROM bartack.content WHERE team = %s AND sha256 = %s", team, digest):
        return None
    pieces: list[bytes] = []
    while found := session.rows(
        "SELECT bytes FROM bartack.part WHERE team = %s AND sha256 = %s AND no = %s",
        team,
        digest,
        len(pieces),
    ):
        pieces.append(bytes(found[0][0]))
    return b"".join(pieces)
