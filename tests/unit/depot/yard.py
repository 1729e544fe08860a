"""A database with runs and nodes for tests: beats come when a test calls for them."""

from __future__ import annotations

import os
from collections.abc import Callable
from itertools import count
from pathlib import Path
from uuid import uuid4

from tests.postgres import new_database
from tests.waiting import until

from bartack.depot.elsewhere import Elsewhere
from bartack.depot.fleet import Fleet
from bartack.depot.postgres._database import Database
from bartack.depot.postgres._run import PostgresRun
from bartack.depot.taken import HOLD_S, FleetFacts, Taken
from bartack.depot.team import Team
from bartack.errors import BartackError
from bartack.journal.shared import Commit
from bartack.supervision.process.lease import LeasePage

LEASE_S = 60.0
"""So that no beat comes by itself: tests call for them."""
_numbers = count()


class Yard:
    """A database, its runs and its nodes.

    Args:
        folder: Where the directories of runs are.
        blobs: Its object store.
    """

    def __init__(self, folder: Path, blobs: str = "") -> None:
        self.folder = folder
        self.team = Team(Elsewhere(new_database(), blobs=blobs))
        self.database = Database(self.team.where.on, blobs=blobs)
        self._fleets: list[tuple[Fleet, int]] = []

    def submit(
        self,
        pool: str = "default",
        priority: int = 0,
        needs: tuple[str, ...] = (),
        team: str = "default",
        key: str = "",
    ) -> str:
        run_id = f"run-20260101-000000-{next(_numbers):08x}"
        run = PostgresRun(self.folder / run_id, self.database)
        run.team, run.key = team, key
        run.path.mkdir()
        run.create((), program=bytes(10_240))  # an empty archive
        self.team.enqueue(run_id, pool, priority, needs)
        return run_id

    def node(
        self,
        name: str = "one",
        pools: tuple[str, ...] = ("default",),
        labels: tuple[str, ...] = (),
        reads: int = 1,
        slots: int = 24,
        hold_s: float = HOLD_S,
        say: Callable[[str], object] = lambda _: None,
    ) -> Fleet:
        page, fd = LeasePage.create()
        seat = self.folder / f"seat-{uuid4()}"
        seat.mkdir()
        facts = FleetFacts(name, seat, "boot", slots, pools, labels, LEASE_S, reads)
        made = Fleet(self.database, facts, page, lambda: None, hold_s=hold_s, say=say)
        self._fleets.append((made, fd))
        return made

    def beat(self, fleet: Fleet) -> None:
        self.rows("SELECT * FROM bartack.beat_fleet(%s)", fleet.node.id)

    def make_late(self, fleet: Fleet) -> None:
        self.rows("UPDATE bartack.node SET until = until - interval '1 day' WHERE id = %s", fleet.node.id)

    def make_steady(self, fleet: Fleet) -> None:
        self.rows("UPDATE bartack.node SET steady = steady - interval '1 day' WHERE id = %s", fleet.node.id)
        self.rows("TRUNCATE bartack.awake")
        self.rows("INSERT INTO bartack.awake VALUES (clock_timestamp() - interval '1 day')")

    def rows(self, statement: str, *values: object) -> list[tuple[object, ...]]:
        return self.database.shared.rows(statement, *values)

    def state(self, run_id: str) -> str:
        place = self.team.queue_place(run_id)
        assert place is not None
        return place.state

    def close(self) -> None:
        for fleet, fd in self._fleets:
            fleet.close()
            os.close(fd)
        self.database.close()
        self.team.database.close()


def append(fleet: Fleet, run: Taken, folder: Path) -> BartackError | None:
    """Append a commit with the fence that a node was given; returns what became of it."""
    outcome: list[BartackError | None] = []
    commit = Commit(2, 2, run.fence, 1, b'{"kind":"step.finished"}\n')
    fleet.take(run, folder, commit, outcome.append)
    until(lambda: bool(outcome), "the outcome of the append")
    return outcome[0]
