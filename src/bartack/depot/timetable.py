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
from bartack.depot.postgres._run import PostgresRun
from bartack.depot.taken import KeyKnownError
from bartack.errors import BartackError, DepotUnavailableError, ScheduleError, ScheduleNotFoundError
from bartack.journal import Draft

if TYPE_CHECKING:
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

    def add(self, schedule: FleetSchedule, job: bytes, program: bytes) -> None:
        """Add a schedule.

        Raises:
            ScheduleError: There is one of this name.
        """
        self._team.check()
        made = self._session.rows(
            "INSERT INTO bartack.schedule (name, team, cron, zone, words, pool, priority, needs, overlap, job, program, next) "
            "VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s) ON CONFLICT DO NOTHING RETURNING name",
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
            _moment(schedule.next_us),
        )
        if not made:
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
        if not self._session.rows("DELETE FROM bartack.schedule WHERE name = %s RETURNING name", name):
            raise ScheduleNotFoundError(name)

    def start_next(self, following: Following, first: First) -> Started | None:
        """Make the run of a schedule that is due and that no other node has; ``None`` if there is none."""
        with self._session.use() as connection, connection.transaction():
            row = connection.execute(
                "SELECT (extract(epoch FROM clock_timestamp()) * 1e6)::bigint, job, program, "  # noqa: S608 - of constants
                f"{_FACTS} FROM bartack.schedule WHERE next <= clock_timestamp() ORDER BY next LIMIT 1 FOR UPDATE SKIP LOCKED"
            ).fetchone()
            if row is None:
                return None
            now_us, job, program, *facts = row
            schedule = FleetSchedule._make(facts)
            try:
                next_at = _moment(following(schedule, now_us))
            except ScheduleError as error:
                started = Started(schedule.name, "", error.problem)
                next_at = _moment(now_us) + STUCK
            else:
                try:
                    with connection.transaction():
                        started = self._start(schedule, bytes(job), bytes(program), first)
                except DepotUnavailableError:
                    raise
                except BartackError as error:
                    started = Started(schedule.name, "", str(error))
            connection.execute(
                "UPDATE bartack.schedule SET next = %s, problem = %s, "
                "last_run = CASE WHEN %s = '' THEN last_run ELSE %s END, "
                "last_at = CASE WHEN %s = '' THEN last_at ELSE clock_timestamp() END WHERE name = %s",
                (next_at, started.problem, started.run, started.run, started.run, schedule.name),
            )
            return started

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


def _moment(time_us: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=time_us)
