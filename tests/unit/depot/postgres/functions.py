"""``FleetFunctions`` of a real PostgreSQL: each is one statement."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, get_args

from bartack.depot.fleet import _CLAIM
from bartack.depot.postgres._database import Database, Session
from bartack.depot.taken import NodeState, OwnerState, Taken
from bartack.journal.shared import Commit
from bartack.testing.fleet import Beat, KeptPlace, NodeForm, RunStanding

LOG_CHANGES = (
    "CREATE TABLE public.change (before text, after text, UNIQUE (before, after))",
    "CREATE FUNCTION public.log_change() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
    "INSERT INTO public.change VALUES (OLD.state, NEW.state) ON CONFLICT DO NOTHING; RETURN NULL; END $$",
    "CREATE TRIGGER log_change AFTER UPDATE ON bartack.owner FOR EACH ROW "
    "WHEN (OLD.state <> NEW.state AND OLD.pool IS NOT NULL) EXECUTE FUNCTION public.log_change()",
)


class PostgresFunctions:
    """See ``FleetFunctions``."""

    def __init__(self, database: Database) -> None:
        self._session: Session = database.shared
        for statement in LOG_CHANGES:
            self._session.rows(statement)

    def _one(self, statement: str, *values: object) -> Any:
        ((found,),) = self._session.rows(statement, *values)
        return found

    # Runs.

    def submit(self, run_id: str, first: Commit) -> int:
        statement = "SELECT bartack.submit(%s, 'default', %s, %s, %s, NULL)"
        return int(self._one(statement, run_id, first.last, first.crc, first.lines))

    def enqueue(
        self,
        run: int,
        pool: str | None = None,
        priority: int | None = None,
        needs: Sequence[str] | None = None,
    ) -> str:
        given = None if needs is None else list(needs)
        return str(self._one("SELECT bartack.enqueue(%s, %s, %s, %s)", run, pool, priority, given))

    def standing(self, run: int) -> RunStanding:
        ((state, *facts),) = self._session.rows(
            "SELECT state, fence, coalesce(node, 0), strikes, reason FROM bartack.owner WHERE run = %s", run
        )
        return RunStanding(_owner_state(state), *facts)

    def commits(self, run: int) -> list[Commit]:
        rows = self._session.rows(
            "SELECT seq, last, fence, crc, lines FROM bartack.journal WHERE run = %s ORDER BY seq", run
        )
        return [Commit(*row) for row in rows]

    # Nodes.

    def join(self, form: NodeForm) -> int:
        statement = "SELECT bartack.join_fleet(%s, %s, %s, 'test', %s, %s, %s, %s)"
        facts = form.name, form.seat, form.boot, form.slots, form.lease_s, [*form.pools], [*form.labels]
        return int(self._one(statement, *facts))

    def beat(self, node: int) -> Beat:
        ((state, buried, is_queued),) = self._session.rows(
            "SELECT state, buried, queued FROM bartack.beat_fleet(%s)", node
        )
        return Beat(_node_state(state), tuple(buried or ()), bool(is_queued))

    def drain(self, name: str) -> int:
        return int(self._one("SELECT bartack.drain(%s)", name))

    def leave(self, node: int) -> None:
        self._one("SELECT bartack.leave(%s)", node)

    def node_state(self, node: int) -> NodeState:
        return _node_state(self._one("SELECT state FROM bartack.node WHERE id = %s", node))

    # Owning.

    def claim(self, node: int, most: int) -> list[Taken]:
        return [Taken(*row) for row in self._session.rows(_CLAIM, node, most)]

    def claim_run(self, node: int, run: int, grace_s: float) -> tuple[str, int]:
        statement = "SELECT outcome, fence FROM bartack.claim_run(%s, %s, %s)"
        ((outcome, fence),) = self._session.rows(statement, node, run, grace_s)
        return str(outcome), int(fence)

    def owned(self, node: int) -> list[Taken]:
        rows = self._session.rows(
            "SELECT o.run, r.id, r.team, o.fence, o.strikes, (extract(epoch FROM o.seen) * 1e6)::bigint "
            "FROM bartack.owner o JOIN bartack.run r ON r.no = o.run WHERE o.node = %s ORDER BY o.run",
            node,
        )
        return [Taken(*row) for row in rows]

    def alive(self, run: int, fence: int) -> bool:
        return bool(self._one("SELECT bartack.alive(%s, %s)", run, fence))

    def begun(self, run: int, fence: int) -> bool:
        return bool(self._one("SELECT bartack.begun(%s, %s)", run, fence))

    def progressed(self, run: int, fence: int) -> None:
        self._one("SELECT bartack.progressed(%s, %s)", run, fence)

    def give_back(
        self, run: int, fence: int, state: OwnerState, due_us: int, why: str, strikes: int, *, refuses: bool
    ) -> str | None:
        statement = "SELECT bartack.give_back(%s, %s, %s, %s, %s, %s, %s)"
        found: str | None = self._one(statement, run, fence, state, due_us, why, strikes, refuses)
        return found

    def release(self, run: int, fence: int, state: OwnerState, why: str) -> bool:
        return bool(self._one("SELECT bartack.release(%s, %s, %s, %s)", run, fence, state, why))

    def restored(self) -> int:
        return int(self._one("SELECT bartack.restored()"))

    # Writing.

    def append(self, commits: Sequence[tuple[int, Commit]]) -> dict[int, str]:
        columns = (
            [run for run, _ in commits],
            [one.fence for _, one in commits],
            [one.seq for _, one in commits],
            [one.last for _, one in commits],
            [one.crc for _, one in commits],
            [one.lines for _, one in commits],
        )
        rows = self._session.rows(
            "SELECT run, outcome "
            "FROM bartack.append(%s::bigint[], %s::int[], %s::bigint[], %s::bigint[], %s::bigint[], %s::bytea[])",
            *columns,
        )
        return {int(run): str(outcome) for run, outcome in rows}

    def look(self, run: int, seq: int) -> KeptPlace:
        ((owner_fence, ends),) = self._session.rows(
            "SELECT owner_fence, ends FROM bartack.look(%s::bigint[], %s::bigint[])", [run], [seq]
        )
        found = next((commit for commit in self.commits(run) if commit.seq == seq), None)
        return KeptPlace(int(owner_fence), found, int(ends))

    # For tests.

    def now_us(self) -> int:
        return int(self._one("SELECT (extract(epoch FROM clock_timestamp()) * 1e6)::bigint"))

    def pass_time(self, seconds: float) -> None:
        """Everything was that much longer ago."""
        self._session.rows(
            "UPDATE bartack.node SET until = until - make_interval(secs => %s), steady = steady - make_interval(secs => %s)",
            seconds,
            seconds,
        )
        self._session.rows(
            "UPDATE bartack.owner SET due = due - make_interval(secs => %s), seen = seen - make_interval(secs => %s)",
            seconds,
            seconds,
        )
        self._session.rows("UPDATE bartack.awake SET since = since - make_interval(secs => %s)", seconds)

    def crash(self) -> None:
        """What a crash does to a table that is not logged."""
        self._session.rows("TRUNCATE bartack.awake")

    def changes(self) -> set[tuple[str, str]]:
        return {
            (before, after) for before, after in self._session.rows("SELECT before, after FROM public.change")
        }


def _owner_state(text: str) -> OwnerState:
    return next(state for state in get_args(OwnerState) if state == text)


def _node_state(text: str) -> NodeState:
    return next(state for state in get_args(NodeState) if state == text)
