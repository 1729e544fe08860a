"""Requests to one run in a database; see ``depot/asking.py``. ``schema/0004.sql`` decides."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal
from uuid import UUID

from bartack.core.watch import Watch
from bartack.depot.asking import Answered, RequestState, StoredRequest
from bartack.depot.postgres._database import Session


class RunQuestioner:
    """See ``Questioner``.

    Args:
        session: The connection.
        run: The number of the run.
        watch: Opens a watch on the run.
    """

    def __init__(self, session: Session, run: int, watch: Callable[[], Watch]) -> None:
        self._session = session
        self._run = run
        self._watch = watch

    def ask(self, request: StoredRequest, late_s: float | None = None) -> Answered:
        """See ``Questioner.ask``. It is sent again if its answer was lost: the id makes that one request."""
        found = self._session.rows(
            "SELECT state, answer FROM bartack.ask(%s, %s, %s, %s, %s, %s, %s, %s)",
            UUID(request.id),
            self._run,
            request.asks,
            request.args,
            request.value,
            request.client,
            request.number,
            late_s,
        )
        return _answered(*found[0]) if found else Answered("gone")

    def look(self, requests: Sequence[str]) -> dict[str, Answered]:
        """See ``Questioner.look``."""
        rows = self._session.rows(
            "SELECT id, CASE WHEN state = 'open' AND late_at <= clock_timestamp() THEN 'late' ELSE state END, answer "
            "FROM bartack.request WHERE id = ANY (%s)",
            [UUID(request) for request in requests],
        )
        return {found.hex: _answered(state, answer) for found, state, answer in rows}

    def withdraw(self, request: str) -> None:
        """See ``Questioner.withdraw``."""
        self._session.rows("SELECT bartack.withdraw(%s)", UUID(request))

    def standing(self) -> Literal["owned", "queued", ""]:
        """See ``Questioner.standing``: a hub runs it, a node owns it, or one is going to."""
        rows = self._session.rows(
            "SELECT CASE WHEN o.state = 'queued' THEN 'queued' "
            "WHEN o.state = 'owned' AND n.until > clock_timestamp() AND (o.alive OR n.slots > 0) THEN 'owned' "
            "WHEN o.state = 'owned' AND o.pool IS NOT NULL THEN 'queued' ELSE '' END "
            "FROM bartack.owner o LEFT JOIN bartack.node n ON n.id = o.node WHERE o.run = %s",
            self._run,
        )
        return rows[0][0] if rows else ""

    def watch(self) -> Watch:
        """See ``Questioner.watch``."""
        return self._watch()


class RunAnswerer:
    """See ``Answerer``.

    Args:
        session: The connection.
        run: The number of the run.
        fence: The number of the ownership.
    """

    def __init__(self, session: Session, run: int, fence: int) -> None:
        self._session = session
        self._run = run
        self._fence = fence

    def open(self) -> list[StoredRequest]:
        """See ``Answerer.open``."""
        rows = self._session.rows(
            "SELECT id, asks, args, value, client, number, asked_by FROM bartack.request "
            "WHERE run = %s AND state = 'open' AND (late_at IS NULL OR late_at > clock_timestamp()) ORDER BY no",
            self._run,
        )
        return [
            StoredRequest(found.hex, asks, bytes(args), None if value is None else bytes(value), *rest)
            for found, asks, args, value, *rest in rows
        ]

    def settle(self, request: str, state: RequestState, answer: bytes) -> bool:
        """See ``Answerer.settle``."""
        statement = "SELECT bartack.settle(%s, %s, %s, %s, %s)"
        values = UUID(request), self._run, self._fence, state, answer
        ((is_settled,),) = self._session.rows(statement, *values)
        return bool(is_settled)


def _answered(state: RequestState, answer: bytes | None) -> Answered:
    return Answered(state, b"" if answer is None else bytes(answer))
