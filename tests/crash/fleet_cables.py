"""Nodes of a database in this process, each with a cable of its own, so that hundreds of connections can be cut in seconds.

Everything between a hub and the database is real: the loop of a node with its decisions, its lease and beats, claims, the commits
of its runs with their journals and copies, requests and their answers. In place of the process of a hub there is a thread
(``Work``) that executes steps: each has an effect that a witness sees, and a commit. A hub may die after any of them, and then
whichever node claims the run continues it.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from random import Random
from threading import Event, Thread
from typing import Final, Literal
from uuid import UUID

from tests.crash.next_cut import NextCut
from tests.history import (
    Seen,
    acknowledged_by,
    check_standings,
    check_teams,
    problems_of,
    read_history,
)
from tests.verdict import judging
from tests.waiting import PATIENCE_S

from bartack.depot import Job
from bartack.depot._archive import pack_program
from bartack.depot.elsewhere import Elsewhere
from bartack.depot.fleet import Fleet
from bartack.depot.postgres._carrier import PostgresCarrier
from bartack.depot.postgres._database import Database
from bartack.depot.postgres._run import PostgresRun
from bartack.depot.taken import TEAM, Taken
from bartack.depot.team import Team
from bartack.errors import BartackError, DepotUnavailableError, JournalPoisonedError
from bartack.journal import Draft, Entry
from bartack.journal.shared import SharedJournal, lock_directory, open_shared
from bartack.node._core import Ending, Policy
from bartack.node._environments import Environments
from bartack.node._fleet_core import CannotRun, HubEnded, Postponed, WorkEnd
from bartack.node.fleet import FleetLoop, FleetSettings
from bartack.runtime.protocol.step_key import step_key
from bartack.supervision.process.lease import LeasePage
from bartack.testing import Cable

STEPS: Final = 12
LEASE_S: Final = 10.0
SLOTS: Final = 3
EFFECT_S: Final = 0.005
DEATHS: Final = 0.15
"""How often a hub dies after a step."""
FEW: Final = "few"
MOST: Final = 2
"""How many runs of the team may be owned at once."""

Fault = Literal["before", "after", "cut", "silent"]


class Work:
    """The work on a run; see ``RunWork``. Its hub is a thread."""

    def __init__(
        self,
        seen: list[Seen],
        taken: Taken,
        fleet: Fleet,
        runs: Path,
        lease: int,
        *,
        environments: Environments,
        rest_after_s: float,
        say: Callable[[str], object],
        ended: Callable[[Taken, WorkEnd], object],
        restored: Callable[[Taken, float], object],
        hold_s: float,
    ) -> None:
        self.taken = taken
        self._seen = seen
        self._fleet = fleet
        self._runs = runs
        self._page = LeasePage.open(lease)
        self._ended = ended
        self._dice = Random(f"{taken.no} {taken.fence}")
        self._is_asked = Event()
        self._stops = Event()
        self._steps = 0
        self._before = 0
        self._requests = set[str]()
        self._is_asked.set()
        self._thread = Thread(target=self._work, name=f"work on {taken.id}", daemon=True)
        self._thread.start()

    def note_request(self) -> None:
        """There may be a request to the run."""
        self._is_asked.set()

    def stop(self) -> None:
        """Stop after the step in flight."""
        self._stops.set()

    hurry = kill = cut = stop

    def join(self, timeout_s: float) -> bool:
        """See ``RunWork.join``."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _work(self) -> None:
        end: WorkEnd
        try:
            end = self._end(self._run())
        except DepotUnavailableError as error:
            end = Postponed(str(error))
        except JournalPoisonedError:
            end = self._end("interrupted")
        except BartackError as error:
            end = CannotRun(str(error))
        self._page.close()
        self._ended(self.taken, end)

    def _end(self, status: str) -> WorkEnd:
        job = Job(run=self.taken.id, path=str(self._runs / self.taken.id), workspace="")
        return HubEnded(job, self._before, Ending(status=status, progress=self._steps))

    def _run(self) -> str:
        """Execute what is left of the run; returns its status then."""
        taken, fleet = self.taken, self._fleet
        path = fleet.prepare(taken, self._runs)
        read = partial(fleet.load_blob, taken, path)
        carrier = PostgresCarrier(fleet._courier, taken.no, taken.id, path, taken.fence, read, lambda: None)
        source = PostgresRun(path, fleet.database).source_of(taken.no, taken.team)
        with open_shared(path, lock_directory(path), carrier, source, each=self._read) as journal:
            self._before = self._steps
            fleet.call(taken, "alive", ())
            while self._steps < STEPS and not self._stops.is_set():
                self._take_requests(journal)
                self._execute(journal)
                if self._dice.random() < DEATHS:
                    return "interrupted"
            if self._steps < STEPS:
                return "interrupted"
            self._take_requests(journal)
            _commit(journal, Draft("run.ended", {"status": "completed"}))
        return "completed"

    def _read(self, entry: Entry) -> None:
        self._steps += entry.kind == "step.finished"
        if entry.kind == "request.taken":
            self._requests.add(str(entry.data["id"]))

    def _execute(self, journal: SharedJournal) -> None:
        key = step_key(self.taken.id, "main", self._steps, 0)
        self._report(key, "begin")
        _commit(journal, Draft("step.started", {"p": "main", "n": self._steps, "step": "shell", "fp": ""}))
        for _ in range(2):
            self._stops.wait(EFFECT_S)
            self._report(key, "moves")
        self._report(key, "end")
        _commit(journal, Draft("step.finished", {"p": "main", "n": self._steps, "step": "shell", "fp": ""}))
        self._seen.append(Seen(self.taken.id, self.taken.fence, key, "finished"))
        self._steps += 1

    def _report(self, key: str, what: Literal["begin", "moves", "end"]) -> None:
        """Report to the witness, when the lease allows it: what is stopped reports nothing."""
        while self._page.left_s() <= 0:
            if self._page.is_over:
                raise JournalPoisonedError(self.taken.id, "its node is dead")
            self._stops.wait(EFFECT_S)
        self._seen.append(Seen(self.taken.id, self.taken.fence, key, what))

    def _take_requests(self, journal: SharedJournal) -> None:
        if not self._is_asked.is_set():
            return
        self._is_asked.clear()
        answerer = self._fleet.answerer(self.taken)
        try:
            for request in answerer.open():
                if request.id not in self._requests:
                    _commit(journal, Draft("request.taken", {"id": request.id, "do": request.asks}))
                    self._requests.add(request.id)
                answerer.settle(request.id, "done", b"{}")
        except DepotUnavailableError:
            self._is_asked.set()


def _commit(journal: SharedJournal, draft: Draft) -> None:
    journal.stage(draft)
    journal.commit()


class Node(FleetLoop):
    """A node in a thread, with a cable of its own; it gets no signals."""

    def __init__(self, name: str, seat: Path, cable: Cable, database: str) -> None:
        self.cable = cable
        self.seat = seat
        self.team = Team(Elsewhere(f"postgresql://bartack@127.0.0.1:{cable.port}/{database}"))
        self.said: list[str] = []
        super().__init__(
            FleetSettings(
                team=self.team,
                name=name,
                seat=seat,
                slots=SLOTS,
                pools=("default",),
                labels=(),
                lease_s=LEASE_S,
                boot="boot",
                say=self.said.append,
                environ={},
                policy=Policy(strikes=1_000_000, first_s=0.0, longest_s=0.0),
            )
        )
        self._thread = Thread(target=self.run, name=name, daemon=True)
        self._thread.start()

    @contextmanager
    def _catching(self) -> Generator[None]:
        self._wakes, self._waker = os.pipe()
        for fd in (self._wakes, self._waker):
            os.set_blocking(fd, False)
        try:
            yield
        finally:
            self._close_pipe()

    def end(self) -> None:
        """Drain it, and wait for its end."""
        self._signals += 1
        self._wake()
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive(), self.said
        self.team.database.close()


class Asker(Thread):
    """Asks runs over a cable of its own, and repeats what was not answered.

    Attributes:
        answered: How many requests were.
    """

    def __init__(self, url: str, wanted: Callable[[Random], int], seed: int) -> None:
        super().__init__(name="asker", daemon=True)
        self.answered = 0
        self._database = Database(url)
        self._wanted = wanted
        self._dice = Random(seed)
        self._ends = Event()

    def run(self) -> None:
        """Begin."""
        while not self._ends.is_set():
            request, run = UUID(int=self._dice.getrandbits(128)), self._wanted(self._dice)
            state = "open"
            while run and state == "open" and not self._ends.is_set():
                with suppress(DepotUnavailableError):
                    state = self._ask(request, run)
                self._ends.wait(0.02)
            self.answered += state == "done"

    def _ask(self, request: UUID, run: int) -> str:
        statement = "SELECT state FROM bartack.ask(%s, %s, 'send', %s, NULL, '', 0, NULL)"
        ((state,),) = self._database.shared.rows(statement, request, run, b"{}")
        return str(state)

    def end(self) -> None:
        """End."""
        self._ends.set()
        self.join(PATIENCE_S)
        self._database.close()


class Cables:
    """Nodes, their runs, and the faults of their cables.

    Attributes:
        faults: How many there were of each kind.

    Args:
        folder: Where the seats are.
        database: A connection without a cable.
        nodes: The nodes.
        dice: Decides what happens.
        seen: What the witness has seen.
    """

    def __init__(
        self, folder: Path, database: Database, nodes: list[Node], dice: Random, seen: list[Seen]
    ) -> None:
        self.faults = Counter[str]()
        self._folder = folder
        self._database = database
        self._nodes = nodes
        self._dice = dice
        self._seen = seen
        self._submitted = 0
        self._problems: list[str] = []
        self._waits = Event()
        self._rows("SELECT bartack.set_team(%s, %s)", FEW, MOST)

    def _rows(self, statement: str, *values: object) -> list[tuple[object, ...]]:
        return self._database.shared.rows(statement, *values)

    def submit(self, number: int) -> None:
        """Submit runs; every second one belongs to the team with a limit."""
        for _ in range(number):
            self._submitted += 1
            run = PostgresRun(self._folder / f"run-20260101-000000-{self._submitted:08x}", self._database)
            run.team = FEW if self._submitted % 2 else TEAM
            run.create((), program=pack_program(self._folder, ()))
            self._rows(
                "SELECT bartack.enqueue(no, 'default', 0, NULL) FROM bartack.run WHERE id = %s", run.id
            )

    def drive(self, plan: Mapping[Fault, int], at_once: int) -> None:
        """Damage the cables while at least so many runs are active, as often as the plan says."""
        deck: list[Fault] = [*Counter[Fault](plan).elements()]
        self._dice.shuffle(deck)
        limit = time.monotonic() + len(deck) * 0.2 + PATIENCE_S
        cuts: dict[Node, NextCut] = {}
        while deck or cuts:
            assert time.monotonic() < limit, self.state()
            for node in self._nodes:
                cut = cuts.get(node)
                if cut is not None and (cut.has_happened or cut.is_lost):
                    del cuts[node]
                    self.faults[cut.when] += cut.has_happened
                    if cut.is_lost:
                        deck.append(cut.when)
                elif cut is None and deck:
                    self._damage(node, deck, cuts)
            self._waits.wait(0.002)
            if self._dice.random() < 0.02:
                self._look(at_once)

    def _damage(self, node: Node, deck: list[Fault], cuts: dict[Node, NextCut]) -> None:
        match deck[-1]:
            case "before" | "after" as when:
                cuts[node] = NextCut(node.cable, when)
                deck.pop()
                return
            case "cut" if not node.cable.cut():
                return
            case "silent":
                node.cable.go_silent()
                self._waits.wait(0.02)
                node.cable.come_back()
            case _:
                pass
        self.faults[deck.pop()] += 1

    def _look(self, at_once: int) -> None:
        """Submit more if few are left, and see whether all is right now."""
        history = read_history(self._database.shared, with_journals=False)
        self._problems += [*check_standings(history), *check_teams(history)]
        self.submit(at_once - sum(run.state != "over" for run in history.runs))

    def any_run(self, dice: Random) -> int:
        """The number of a run that is not over; 0: there is none."""
        found = [number for number, _ in self._active()]
        return dice.choice(found) if found else 0

    def _active(self) -> list[tuple[int, str]]:
        with self._database.session() as session:
            return session.rows("SELECT run, state FROM bartack.owner WHERE state <> 'over'")

    def finish(self) -> None:
        """Let all runs come to their end, unless something is wrong with one: ``check`` says what."""
        limit = time.monotonic() + PATIENCE_S
        while any(state != "held" for _, state in self._active()) and time.monotonic() < limit:
            self._waits.wait(0.05)

    def check(self) -> None:
        """Everything holds, and all runs have executed all their steps."""
        mirrors = [path for node in self._nodes for path in (node.seat / "runs").glob("run-*")]
        history = read_history(self._database.shared, self._seen, acknowledged_by(mirrors))
        problems = [*self._problems, *problems_of(history)]
        with judging():
            assert problems == [], problems
        assert {run.state for run in history.runs} == {"over"}, self.state()
        finished = Counter(run for run, facts in history.facts.items() for f in facts if f.what == "finished")
        assert set(finished.values()) == {STEPS}
        assert len(finished) == self._submitted

    def state(self) -> str:
        """What is known, for a test that fails."""
        rows: Iterable[object] = self._rows("SELECT run, state, fence, node, reason FROM bartack.owner")
        return "\n".join(
            [str(self.faults), *map(str, rows), *(line for node in self._nodes for line in node.said)]
        )
