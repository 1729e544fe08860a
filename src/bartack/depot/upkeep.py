"""What people need who operate a database of runs: teams and their limits, what keeps runs waiting, retention, restored backups.

``postgres/schema/0003.sql`` decides. What is due for all is done by nodes (``chores.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Final, NamedTuple

from bartack.depot.postgres._run import drop_journals
from bartack.depot.postgres._schema import migrate
from bartack.depot.team import SERVES, Team
from bartack.errors import DepotError, NoNodeError, RunHeldError

NO_NODE_S: Final = 60.0
"""So long no node fits a run before that is reported: one may be about to start."""
BATCH: Final = 100
_HAS: Final = "x.slots > 0 AND o.pool = ANY (x.pools) AND o.needs <@ x.labels AND o.reads <= x.reads"
_FITS: Final = f"{_HAS} AND {SERVES}"
_LIVE: Final = "x.slots > 0 AND x.state = 'live' AND x.until > clock_timestamp()"

_WAIT: Final = (
    "SELECT r.id, o.state, o.reason, coalesce(o.pool, ''), o.needs, t.name, t.running, t.max_running, "  # noqa: S608 - of constants
    "coalesce(extract(epoch FROM clock_timestamp() - coalesce(o.queued, o.seen)), 0)::float8, "
    f"EXISTS (SELECT 1 FROM bartack.node x WHERE {_LIVE} AND {_FITS}), "
    f"EXISTS (SELECT 1 FROM bartack.node x WHERE {_FITS} AND x.until > clock_timestamp() - make_interval(secs => %s)), "
    f"EXISTS (SELECT 1 FROM bartack.node x WHERE {_LIVE} AND o.pool = ANY (x.pools)), "
    "ARRAY(SELECT unnest(o.needs) EXCEPT "
    f"SELECT unnest(x.labels) FROM bartack.node x WHERE {_LIVE} AND o.pool = ANY (x.pools) ORDER BY 1), "
    f"ARRAY(SELECT DISTINCT quote_ident(x.role) FROM bartack.node x WHERE {_LIVE} AND {_HAS} ORDER BY 1), "
    "CASE WHEN EXISTS (SELECT 1 FROM pg_roles p WHERE p.rolname = t.name) THEN '' ELSE 'CREATE ROLE ' || quote_ident(t.name) END, "
    "quote_ident(t.name), "
    "coalesce(n.name, ''), coalesce(n.until > clock_timestamp(), false), "
    "CASE WHEN o.due > clock_timestamp() THEN o.due END "
    "FROM bartack.run r JOIN bartack.owner o ON o.run = r.no JOIN bartack.team t ON t.name = r.team "
    "LEFT JOIN bartack.node n ON n.id = o.node "
    "WHERE r.id = ANY (%s) AND (o.pool IS NOT NULL OR o.state = 'resting' AND o.fence = 1 AND r.summary IS NULL)"
)
_NO_SUMMARY: Final = (
    "convert_to(json_build_object('status', 'interrupted', 'updated_at', "
    "to_char(r.created AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"'))::text, 'UTF8')"
)
"""What lists show of a run that no hub has begun."""
_ACTIVITY: Final = (
    "SELECT (SELECT count(*) FROM bartack.owner WHERE state = 'queued'), "  # noqa: S608 - of constants
    "coalesce((SELECT extract(epoch FROM clock_timestamp() - min(coalesce(queued, seen))) FROM bartack.owner "
    "WHERE state = 'queued' AND (due IS NULL OR due <= clock_timestamp())), 0)::float8, "
    "coalesce(max(x.beat_us), 0), coalesce(sum(x.appends), 0)::bigint, coalesce(sum(x.statements), 0)::bigint "
    f"FROM bartack.node x WHERE {_LIVE}"
)


class ListedTeam(NamedTuple):
    """A team, for lists.

    Attributes:
        name: Its name.
        max_running: How many of its runs have an owner at once; ``None``: any number.
        running: How many have one now.
        queued: How many wait for a node.
    """

    name: str
    max_running: int | None
    running: int
    queued: int


class Activity(NamedTuple):
    """How a database and its nodes keep up.

    Attributes:
        queued: How many runs wait for a node.
        queue_age_s: How long the oldest of them has waited.
        beat_ms: How long the slowest of the last beats of live nodes took.
        appends_per_statement: How many commits the live nodes have sent with one statement, on average.
    """

    queued: int
    queue_age_s: float
    beat_ms: float
    appends_per_statement: float


class Ended(NamedTuple):
    """A run that no process owns, for retention.

    Attributes:
        id: Its id.
        summary: What lists show of it, as JSON.
        size_bytes: How long its journal is.
    """

    id: str
    summary: bytes
    size_bytes: int


class Wait(NamedTuple):
    """Why a run of nodes is not active.

    Attributes:
        state: ``queued``, ``resting``, ``held``, ``over`` or ``owned``.
        text: The reason, in words; empty if there is none to report.
        problem: What a person has to do something about.
        is_given: Nodes have been given it.
    """

    state: str
    text: str
    problem: NoNodeError | RunHeldError | None = None
    is_given: bool = True


class _Queued(NamedTuple):
    """What the database knows of a run that waits for a node."""

    state: str
    reason: str
    pool: str
    needs: list[str]
    team: str
    running: int
    max_running: int | None
    waited_s: float
    has_node: bool
    had_node: bool
    has_pool: bool
    lacks: list[str]
    roles: list[str]
    make_role: str
    team_role: str
    node: str
    has_lease: bool
    due: datetime | None

    @property
    def missing(self) -> str:
        """What no node has, in words."""
        if not self.has_pool:
            return f"no node takes runs of pool {self.pool!r}"
        if self.lacks:
            return f"no node of pool {self.pool!r} has the label {', '.join(map(repr, self.lacks))}"
        if self.needs:
            return f"no node of pool {self.pool!r} has {' and '.join(map(repr, self.needs))} together"
        return f"no node of pool {self.pool!r} is of the version that has continued it"

    @property
    def problem(self) -> str:
        """Why no node can take it, in words."""
        if self.roles:
            return f"no role of a node of pool {self.pool!r} is a member of the team {self.team!r}"
        return self.missing

    @property
    def grant(self) -> str:
        """What makes the role of a node that fits a member of its team."""
        granted = f"GRANT {self.team_role} TO {self.roles[0]}"
        return f"{self.make_role}; {granted}" if self.make_role else granted


class Upkeep:
    """A database of runs, for those who operate it.

    Args:
        team: The database.
    """

    def __init__(self, team: Team) -> None:
        self._team = team
        self._session = team.database.shared

    def migrate(self, older: Callable[[Sequence[str]], object] | None = None) -> tuple[int, int]:
        """See ``depot/postgres/_schema.py``."""
        return migrate(self._team.database, older)

    # Teams.

    def teams(self) -> list[ListedTeam]:
        """All teams."""
        self._team.check()
        rows = self._session.rows(
            "SELECT t.name, t.max_running, count(*) FILTER (WHERE o.state = 'owned'), "
            "count(*) FILTER (WHERE o.state = 'queued') FROM bartack.team t LEFT JOIN bartack.run r ON r.team = t.name "
            "LEFT JOIN bartack.owner o ON o.run = r.no AND o.state IN ('owned', 'queued') GROUP BY t.name ORDER BY t.name"
        )
        return [ListedTeam(*row) for row in rows]

    def set_team(self, name: str, max_running: int | None) -> None:
        """Make a team, or change how many of its runs have an owner at once; ``None``: any number."""
        self._team.check()
        self._session.rows("SELECT bartack.set_team(%s, %s)", name, max_running)

    # What keeps a run waiting.

    def wait_of(self, run_id: str) -> Wait | None:
        """Why a run is not active; ``None`` if it is not one of nodes."""
        return self.waits_of([run_id]).get(run_id)

    def waits_of(self, ids: Sequence[str]) -> dict[str, Wait]:
        """The same for several runs; those that are not for nodes are left out."""
        rows = self._session.rows(_WAIT, NO_NODE_S, list(ids)) if ids else []
        return {run_id: _describe(run_id, _Queued._make(found)) for run_id, *found in rows}

    # Retention.

    def iter_unowned(self) -> Iterator[Ended]:
        """All runs that no process owns, the oldest first."""
        self._team.check()
        last = 0
        while True:
            rows = self._session.rows(
                f"SELECT r.no, r.id, coalesce(r.summary, {_NO_SUMMARY}), "  # noqa: S608 - of constants
                "(SELECT coalesce(sum(octet_length(j.lines)), 0)::bigint FROM bartack.journal j WHERE j.run = r.no) "
                "FROM bartack.run r JOIN bartack.owner o ON o.run = r.no WHERE r.no > %s "
                "AND o.state <> 'owned' ORDER BY r.no LIMIT %s",
                last,
                BATCH,
            )
            for _, run_id, summary, size_bytes in rows:
                yield Ended(run_id, bytes(summary), size_bytes)
            if len(rows) < BATCH:
                return
            last = rows[-1][0]

    def remove(self, ids: Sequence[str]) -> set[str]:
        """Delete runs; returns those that are gone. One that is owned by now stays.

        Nodes delete what is left of their journals if that is interrupted.
        """
        statement = "SELECT bartack.remove(no) FROM bartack.run WHERE id = %s"
        gone = {run_id for run_id in ids if self._session.rows(statement, run_id) != [(False,)]}
        drop_journals(self._session)
        return gone

    # The database as a whole.

    def problems(self) -> list[str]:
        """What is wrong beside the journals, in words."""
        self._team.check()
        found = [
            f"the team {name!r} counts {running} running runs, and has {owned}"
            for name, running, owned in self._session.rows(
                "SELECT t.name, t.running, c.owned FROM bartack.team t CROSS JOIN LATERAL (SELECT count(*)::int AS owned "
                "FROM bartack.run r JOIN bartack.owner o ON o.run = r.no WHERE r.team = t.name AND o.state = 'owned') c "
                "WHERE t.max_running IS NOT NULL AND t.running <> c.owned ORDER BY t.name"
            )
        ]
        found += [
            f"the chore {name!r} failed: {problem}"
            for name, problem in self._session.rows(
                "SELECT name, problem FROM bartack.chore WHERE problem <> '' ORDER BY name"
            )
        ]
        return found

    def restored(self) -> int:
        """After a backup was restored: hold what nodes would continue by themselves; returns how many runs that are.

        Raises:
            DepotError: Nodes are running.
        """
        self._team.check()
        live = self._session.rows(
            "SELECT name FROM bartack.node WHERE state IN ('live', 'draining') AND until > clock_timestamp() ORDER BY name"
        )
        if live:
            names = ", ".join(row[0] for row in live)
            error = DepotError(self._team.name, f"processes own runs of it: {names}")
            error.remedy = "Stop all nodes, wait until their leases are over, and try again."
            raise error
        with self._session.use() as connection, connection.transaction():
            connection.execute("SET LOCAL statement_timeout = 0")
            found = connection.execute("SELECT bartack.restored()").fetchone()
        assert found is not None
        return int(found[0])

    def activity(self) -> Activity:
        """How the database and its nodes keep up."""
        ((queued, age_s, beat_us, appends, statements),) = self._session.rows(_ACTIVITY)
        return Activity(queued, age_s, beat_us / 1000, appends / statements if statements else 0.0)


def _describe(run_id: str, found: _Queued) -> Wait:
    match found.state:
        case "held":
            return Wait("held", f"held: {found.reason}", RunHeldError(run_id, found.reason))
        case "owned":
            does = (
                "begins or continues it" if found.has_lease else "does not answer; another one continues it"
            )
            return Wait("owned", f"owned: node {found.node!r} {does}")
        case "queued" if found.due is None and not found.has_node:
            return Wait("queued", f"queued: {found.problem}", _no_node(run_id, found))
        case "queued":
            return Wait("queued", f"queued: {_why_queued(found)}")
        case state if found.pool:
            return Wait(state, found.reason)
        case state:
            then = f"bartack resume {run_id} --on DATABASE"
            return Wait(state, f"no node was given it; give it to them: {then}", is_given=False)


def _no_node(run_id: str, found: _Queued) -> NoNodeError | None:
    """What to report of a run that no node can take; ``None`` while one may be about to start."""
    if found.waited_s < NO_NODE_S or found.had_node:
        return None
    problem = NoNodeError(run_id, found.problem)
    if found.roles:
        problem.remedy = f"Make the role of such a node a member of the team, in the database: {found.grant}."
    return problem


def _why_queued(found: _Queued) -> str:
    """Why a run waits that nodes could take."""
    if found.due is not None:
        return found.reason or f"it begins at {found.due.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
    if found.max_running is not None and found.running >= found.max_running:
        of = f"{found.max_running} runs" if found.max_running != 1 else "1 run"
        return f"the team {found.team!r} has {of} at once, and that many now"
    return found.reason or "it waits for a free node"
