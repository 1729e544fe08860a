"""The schedules of a database: what each of them makes, and when. Any node starts what is due, each time once.

A schedule that is due is locked, its run is made under the key ``name@time``, and its next time is set, all in one transaction. A
node that is killed in between has done nothing, and while it does it no other node sees the schedule.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final, NamedTuple

from bartack.core.ids import claim_run_dir
from bartack.depot.postgres._content import keep_content, keep_value
from bartack.depot.postgres._run import PostgresRun
from bartack.depot.taken import KeyKnownError
from bartack.errors import BartackError, DepotUnavailableError, ScheduleError, ScheduleNotFoundError
from bartack.journal import Draft

if TYPE_CHECKING:
    from bartack.depot.postgres._database import Connection
    from bartack.depot.team import Team

STUCK: Final = timedelta(hours=1)
"""How soon a schedule is looked at again whose next time cannot be computed."""
_FACTS: Final = (
    "name, team, cron, zone, words, pool, priority, needs, overlap, "
    "(extract(epoch FROM next) * 1e6)::bigint, last_run, coalesce((extract(epoch FROM last_at) * 1e6)::bigint, 0), problem"
)


class FleetSchedule(NamedTuple):
    """A schedule of a database.

    Attributes:
        name: Its name, once in a database.
        team: Whose runs it makes.
        cron: When: minute, hour, day of the month, month, day of the week.
        zone: In which time zone.
        words: What ``bartack run`` would be called with.
        pool: Which nodes take its runs.
        priority: How soon.
        needs: The labels that a node must have.
        overlaps: Whether a time is used although the last run of the schedule has not ended.
        next_us: Its next time.
        last_run: The last run that it has made.
        last_us: When.
        problem: Why its last time was not used.
    """

    name: str
    team: str
    cron: str
    zone: str
    words: Sequence[str]
    pool: str = "default"
    priority: int = 0
    needs: Sequence[str] = ()
    overlaps: bool = False
    next_us: int = 0
    last_run: str = ""
    last_us: int = 0
    problem: str = ""


class Started(NamedTuple):
    """What became of a time of a schedule.

    Attributes:
        name: The schedule.
        run: The run that was made; empty if none was.
        problem: Why none was made, or why the schedule has no next time.
    """

    name: str
    run: str
    problem: str


Following = Callable[[FleetSchedule, int], int]
"""The first time of a schedule after another one, in microseconds since 1970; raises ``ScheduleError``."""
First = Callable[[bytes, str], Sequence[Draft]]
"""The first entries of a run, from the job of a schedule and the id of the run."""


class Timetable:
    """The schedules of a database.

    Args:
        team: The database.
    """

    def __init__(self, team: Team) -> None:
        self._team = team
        self._database = team.database
        self._session = team.database.shared
        self._unanswered = set[str]()

    def add(self, schedule: FleetSchedule, job: bytes, program: bytes, copy: bytes = b"") -> None:
        """Add a schedule.

        Args:
            schedule: When it makes runs, and for whom.
            job: What their first entries are made of.
            program: Their program and settings.
            copy: A large value that these entries refer to.

        Raises:
            ScheduleError: There is one of this name.
        """
        self._team.check()
        keep_content(self._session, schedule.team, copy)
        with self._session.use() as connection, connection.transaction():
            digest = keep_value(connection, schedule.team, copy) if copy else None
            values = _values(schedule, job, program, digest)
            # Once: a second time it would answer that there is one.
            statement = f"SELECT bartack.add_schedule({', '.join(['%s'] * len(values))})"
            is_added = connection.execute(statement.encode(), values).fetchone() == (True,)
        if not is_added:
            raise ScheduleError(schedule.name, "there is one of this name; remove it first")

    def schedules(self) -> list[FleetSchedule]:
        """All schedules, by name."""
        self._team.check()
        rows = self._session.rows(f"SELECT {_FACTS} FROM bartack.schedule ORDER BY name")  # noqa: S608 - of constants
        return [FleetSchedule._make(row) for row in rows]

    def remove(self, name: str) -> None:
        """Remove a schedule. Runs that it has made stay.

        Raises:
            ScheduleNotFoundError: There is none of this name.
        """
        self._team.check()
        with (
            self._session.use() as connection
        ):  # once: a second time it would answer that there is nothing to do
            found = connection.execute("SELECT bartack.remove_schedule(%s)", (name,)).fetchone()
        if found != (True,):
            raise ScheduleNotFoundError(name)

    def start_next(self, following: Following, first: First) -> Started | None:
        """Make the run of a schedule that is due and that no other node has; ``None`` if there is none.

        One whose statements are not answered is passed over until all others have had their turn: the database may be away, or the
        schedule may be too much for it.
        """
        name = ""
        try:
            with self._session.use() as connection, connection.transaction():
                row = connection.execute(
                    "SELECT (extract(epoch FROM clock_timestamp()) * 1e6)::bigint, job, program, "  # noqa: S608 - of constants
                    f"{_FACTS} FROM bartack.take_schedule(%s)",
                    ([*self._unanswered],),
                ).fetchone()
                if row is None:
                    self._unanswered.clear()
                    return None
                now_us, job, program, *facts = row
                schedule = FleetSchedule._make(facts)
                name = schedule.name
                started, next_at = self._decide(
                    connection, schedule, now_us, following, (job, program), first
                )
                connection.execute(
                    "SELECT bartack.note_schedule(%s, %s, %s, %s)",
                    (schedule.name, next_at, started.problem, started.run),
                )
                return started
        except DepotUnavailableError as error:
            if not name:
                raise
            self._unanswered.add(name)
            return Started(name, "", str(error))

    def _decide(
        self,
        connection: Connection,
        schedule: FleetSchedule,
        now_us: int,
        following: Following,
        packed: tuple[bytes, bytes],
        first: First,
    ) -> tuple[Started, datetime]:
        """Use the time of a schedule; returns what became of it, and its next time."""
        try:
            next_at = _moment(following(schedule, now_us))
        except ScheduleError as error:
            return Started(schedule.name, "", error.problem), _moment(now_us) + STUCK
        job, program = packed
        try:
            with connection.transaction():
                return self._start(schedule, bytes(job), bytes(program), first), next_at
        except (DepotUnavailableError, OSError):
            raise
        except BartackError as error:
            return Started(schedule.name, "", str(error)), next_at
        except Exception as error:  # noqa: BLE001 - the boundary of what a schedule keeps: a damaged one must not hold up others
            return Started(schedule.name, "", f"what it keeps cannot be used: {error}"), next_at

    def _start(self, schedule: FleetSchedule, job: bytes, program: bytes, first: First) -> Started:
        due = f"{_moment(schedule.next_us):%Y-%m-%dT%H:%MZ}"
        if not schedule.overlaps and self._is_unfinished(schedule.last_run):
            return Started(schedule.name, "", f"{due} was skipped: {schedule.last_run} has not ended")
        with tempfile.TemporaryDirectory(prefix="bartack-run-") as folder:
            run_id, path = claim_run_dir(folder)
            run = PostgresRun(path, self._database)
            run.team, run.key = schedule.team, f"{schedule.name}@{due}"
            try:
                run.create([first(job, run_id)], program=program)
            except KeyKnownError as known:
                return Started(schedule.name, known.run, "")
        self._team.enqueue(run_id, schedule.pool, schedule.priority, schedule.needs)
        return Started(schedule.name, run_id, "")

    def _is_unfinished(self, run_id: str) -> bool:
        return bool(
            self._session.rows(
                "SELECT 1 FROM bartack.owner o JOIN bartack.run r ON r.no = o.run "
                "WHERE r.id = %s AND o.state NOT IN ('over', 'held')",
                run_id,
            )
        )


def _values(schedule: FleetSchedule, job: bytes, program: bytes, copy: bytes | None) -> tuple[object, ...]:
    """What the database keeps of a schedule, in its order."""
    return (
        schedule.name,
        schedule.team,
        schedule.cron,
        schedule.zone,
        list(schedule.words),
        schedule.pool,
        schedule.priority,
        list(schedule.needs),
        schedule.overlaps,
        job,
        program,
        copy,
        _moment(schedule.next_us),
    )


def _moment(time_us: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=time_us)
