"""The statement that appends commits, sent to the server without the conversions of the library.

``psycopg`` finds out the type of each item of each list anew, which takes longer than the statement itself. The values here have
the same types each time, so they are written in the binary form of the server, and a connection prepares the statement once.
"""

from __future__ import annotations

import select
import struct
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from psycopg.pq.abc import PGconn, PGresult

    from bartack.depot.postgres._database import Connection
    from bartack.journal.shared import Commit

NAME: Final = b"bartack_append"
STATEMENT: Final = b"SELECT run, outcome FROM bartack.append($1, $2, $3, $4, $5, $6)"
BYTEA: Final = 17
INT8: Final = 20
INT4: Final = 23
BINARY: Final = 1

_HEAD: Final = struct.Struct("!iiIii")
"""Of an array: dimensions, whether there are NULLs, type, length, first index."""
_INT8: Final = struct.Struct("!iq")
_INT4: Final = struct.Struct("!ii")
_SIZE: Final = struct.Struct("!i")


class Append:
    """See the module. It belongs to one thread.

    Args:
        psycopg: The library.
    """

    def __init__(self, psycopg: Any) -> None:
        self._psycopg = psycopg
        self._prepared: Connection | None = None

    def send(self, connection: Connection, runs: Sequence[int], commits: Sequence[Commit]) -> dict[int, str]:
        """Append a commit to each of these runs; returns the outcomes that the server reports.

        Raises:
            psycopg.Error: It is not known what became of them, or the server refuses them.
        """
        pgconn = connection.pgconn
        if self._prepared is not connection:
            self._exchange(connection, lambda: pgconn.send_prepare(NAME, STATEMENT))
            self._prepared = connection
        values = [
            _array(INT8, _INT8, runs),
            _array(INT4, _INT4, [one.fence for one in commits]),
            _array(INT8, _INT8, [one.seq for one in commits]),
            _array(INT8, _INT8, [one.last for one in commits]),
            _array(INT8, _INT8, [one.crc for one in commits]),
            _texts([one.lines for one in commits]),
        ]
        formats = [BINARY] * len(values)
        rows = self._exchange(connection, lambda: pgconn.send_query_prepared(NAME, values, formats, BINARY))
        return {
            int.from_bytes(rows.get_value(row, 0) or b"", "big"): (rows.get_value(row, 1) or b"").decode()
            for row in range(rows.ntuples)
        }

    def _exchange(self, connection: Connection, send: Callable[[], None]) -> PGresult:
        """Send something, and wait for its answer."""
        pgconn = connection.pgconn
        send()
        while pgconn.flush():
            self._wait(connection, select.POLLIN | select.POLLOUT)
            pgconn.consume_input()
        found: PGresult | None = None
        while True:
            while pgconn.is_busy():
                self._wait(connection, select.POLLIN)
                pgconn.consume_input()
            result = pgconn.get_result()
            if result is None:
                break
            found = result
        return self._checked(found, pgconn)

    def _checked(self, found: PGresult | None, pgconn: PGconn) -> PGresult:
        status = self._psycopg.pq.ExecStatus
        if found is None:  # the connection ended
            raise self._psycopg.OperationalError(pgconn.get_error_message())
        if found.status not in {status.COMMAND_OK, status.TUPLES_OK}:
            raise self._psycopg.errors.error_from_result(found)
        return found

    def _wait(self, connection: Connection, events: int) -> None:
        """Wait for the socket, but not for ever: timeouts of the server end nothing if the server is gone."""
        answer_s: float = vars(connection)["answer_s"]
        poll = select.poll()
        poll.register(connection.pgconn.socket, events)
        if not poll.poll(answer_s * 1000):
            connection.pgconn.finish()
            raise self._psycopg.OperationalError(f"no answer within {answer_s:g} s")


def _array(kind: int, item: struct.Struct, values: Sequence[int]) -> bytes:
    return _HEAD.pack(1, 0, kind, len(values), 1) + b"".join(
        [item.pack(item.size - _SIZE.size, value) for value in values]
    )


def _texts(values: Sequence[bytes]) -> bytes:
    pieces = [_HEAD.pack(1, 0, BYTEA, len(values), 1)]
    for value in values:
        pieces += _SIZE.pack(len(value)), value
    return b"".join(pieces)
