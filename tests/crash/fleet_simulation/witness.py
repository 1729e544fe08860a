"""A witness outside of all nodes, to which effects report; ``tests/history.py`` has what has to hold of that and of the tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from zlib import crc32

from tests.crash.fleet_simulation.nodes import Host
from tests.crash.fleet_simulation.world import Tables, World
from tests.history import Fact, History, Place, RequestRow, RunRow, Seen, problems_of

from bartack.depot.taken import Taken
from bartack.journal.shared import Commit


class Witness:
    """What effects have reported.

    Attributes:
        problems: What was found to be wrong, when it happened.
        take_down: Called with the host of a step that takes its host down.
        taken_over: How long each expected takeover has taken.
    """

    def __init__(self, world: World, tables: Tables, take_down: Callable[[Host], object]) -> None:
        self.problems: list[str] = []
        self.take_down = take_down
        self.taken_over: list[float] = []
        self._world = world
        self._tables = tables
        self._acknowledged: list[tuple[int, Commit]] = []
        self._died: dict[int, float] = {}

    def begin(self, run: Taken, step: int, files: int) -> None:
        """The effect of a step begins, or continues, in a workspace with the changes of the first steps."""
        found = (*map(str, range(files)),)
        self._tables.seen.append(Seen(run.id, run.fence, str(step), "begin", found))
        if run.no in self._died:
            self.taken_over.append(self._world.now - self._died.pop(run.no))

    def end(self, run: Taken, step: int) -> None:
        """It has ended, or stands still."""
        self._tables.seen.append(Seen(run.id, run.fence, str(step), "end"))

    def expect_takeover(self, run: int) -> None:
        """The host of a run has died now."""
        if self._tables.standing(run).state == "owned":
            self._died[run] = self._world.now

    def acknowledge(self, run: Taken, commit: Commit) -> None:
        """A hub knows that its commit is kept."""
        self._acknowledged.append((run.no, commit))

    def check(self) -> list[str]:
        """Everything that is wrong."""
        history = self._history()
        found = [*self.problems, *self._tables.problems, *problems_of(history)]
        return [*found, *_check_ends(history.runs)]

    def _history(self) -> History:
        """Without what the database has lost: its owner may have got that acknowledged, and acted on it."""
        tables = self._tables
        lost = {run for run, _ in tables.lost}
        rows = [*tables.rows()]
        ids = {row.no: row.id for row in rows}
        return History(
            runs=rows,
            live=tables.live(),
            requests=[
                RequestRow(str(number), run, "send", "done" if is_settled else "open")
                for number, (run, is_settled) in tables.requests.items()
                if run not in lost
            ],
            seen=tables.seen,
            acknowledged=[
                Place(ids[run], commit.last, commit.crc)
                for run, commit in self._acknowledged
                if (run, commit.seq) not in tables.lost
            ],
            form=ModelForm(),
        )


def _check_ends(runs: Iterable[RunRow]) -> Iterator[str]:
    """Nothing has failed for long, so every run is over, unless it has taken three nodes down."""
    for run in runs:
        if run.state not in {"over", "held"}:
            yield f"H7: {run.id} is {run.state} at the end: {run.reason}"
        if run.state == "held" and "in a row" not in run.reason and "third" not in run.reason:
            yield f"H7: {run.id} is held: {run.reason}"


class ModelForm:
    """See ``Form``: the lines of runs here have a word each, and a number. One commit is together what one line is in a journal."""

    def ends(self, commits: Iterable[Commit]) -> Iterator[tuple[int, int]]:
        """See ``Form.ends``."""
        crc = 0
        for commit in commits:
            crc = crc32(commit.lines, crc)
            yield commit.last, crc

    def facts(self, run: RunRow) -> Iterator[Fact]:
        """See ``Form.facts``."""
        step = 0
        for number, commit in enumerate(run.commits):
            for text in commit.lines.decode().splitlines():
                match text.split():
                    case ["finished", *_]:
                        yield Fact("finished", str(step), commit.fence, number)
                        step += 1
                    case ["kept", *_]:
                        yield Fact("copied", "", commit.fence, number)
                    case ["taken", request, *_]:
                        yield Fact("taken", request, commit.fence, number)
                    case _:
                        pass
