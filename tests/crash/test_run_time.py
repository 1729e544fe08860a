"""The time of a run that goes from one machine to another and back: hubs of real processes, on machines whose clocks differ.

The test is the node of each hub, and the database. So it says how much time passes between two hubs, and when one was last seen.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.waiting import until

from bartack.agents.protocol.ids import parse_moment
from bartack.config.load import load_config
from bartack.depot import Job
from bartack.depot.elsewhere import NODE, Elsewhere, write_elsewhere
from bartack.depot.link import NodeLink
from bartack.depot.taken import HOLD_S, Taken
from bartack.errors import BartackError
from bartack.journal import Entry, open_reader
from bartack.journal.shared import Commit
from bartack.node._hubs import RealHub, RealHubs
from bartack.node._work import spawn_linked
from bartack.runtime.hub.create import RunRequest, create_run
from bartack.runtime.protocol.steps import CallArgs
from bartack.runtime.rundir.layout import RunDir
from bartack.supervision.process.lease import LeasePage
from bartack.supervision.process.lock import take_tree_lock

SECOND_US = 1_000_000
HOUR_S = 3600
PROGRAM = """
from bartack import Context, worker

@worker
async def main(ctx: Context) -> str:
    await ctx.sleep(3600)
    return (await ctx.now()).isoformat()
"""
WRONG_CLOCK = """
import os, time
ahead_s, time_s, time_ns = int(os.environ["WALL_AHEAD_S"]), time.time, time.time_ns
time.time = lambda: time_s() + ahead_s
time.time_ns = lambda: time_ns() + ahead_s * 10**9
"""
"""A machine whose clock on the wall is ahead of that of the database."""


class Machine:
    """A machine with a copy of the run.

    Args:
        folder: Where it is.
        wall_ahead_s: How far its clock on the wall is ahead of the one of the database.
    """

    def __init__(self, folder: Path, wall_ahead_s: int) -> None:
        self.runs = folder / "runs"
        self.runs.mkdir(parents=True)
        (folder / "sitecustomize.py").write_text(WRONG_CLOCK, encoding="utf-8")
        self.environ = {**os.environ, "PYTHONPATH": str(folder), "WALL_AHEAD_S": str(wall_ahead_s)}


class Database:
    """What the nodes of both machines know of the run, and what time it is."""

    def __init__(self, run: RunDir) -> None:
        self.began_us = time.time_ns() // 1000
        self.run = run
        self._fence = 1
        self._page: LeasePage | None = None
        self._lease = -1
        self._link: NodeLink | None = None

    def begin(self, machine: Machine, passed_s: float, seen_s: float | None) -> None:
        """Let a machine own the run, that much time after the beginning; when a hub was seen alive is counted from there, too."""
        self._page, self._lease = LeasePage.create(LeasePage.now_ns() + 600 * 10**9)
        self._page.set_offset(self.began_us + int(passed_s * SECOND_US) - LeasePage.now_ns() // 1000)
        self._fence += 1
        seen_us = None if seen_s is None else self.began_us + int(seen_s * SECOND_US)
        taken = Taken(1, self.run.id, "default", self._fence, 0, seen_us)
        self._link = NodeLink(self._take, self._call)
        self.run = RunDir(machine.runs / self.run.id)
        hubs = RealHubs(
            machine.environ,
            partial(spawn_linked, self._link, taken, self._lease, sys.executable, None, hold_s=HOLD_S),
        )
        workspace = str(self.run.path.parent)
        started = hubs.start(Job(run=self.run.id, path=str(self.run.path), workspace=workspace))
        assert isinstance(started, RealHub), started

    def _take(self, commit: Commit, answer: Callable[[BartackError | None], None]) -> None:
        answer(None)

    def _call(self, what: str, words: Sequence[Any]) -> object:
        return True

    def end(self) -> None:
        """The node is gone, and its hub with it."""
        if self._link is not None and self._page is not None:
            self._link.close()
            os.close(take_tree_lock(str(self.run.tree_lock), 30.0))
            self._page.close()
            os.close(self._lease)
        self._link = None

    def entries(self) -> list[Entry]:
        with open_reader(self.run.path) as reader:
            return list(reader.read())

    def wait_for(self, kind: str, count: int = 1) -> Entry:
        """The entry of a kind that makes it so many."""

        def found() -> list[Entry]:
            return [entry for entry in self.entries() if entry.kind == kind]

        until(lambda: len(found()) >= count, f"{kind}, {count} times")
        return found()[count - 1]


def number(entry: Entry, name: str) -> int:
    """A whole number of an entry."""
    value = entry.data[name]
    assert isinstance(value, int)
    return value


@pytest.fixture
def machines(tmp_path: Path) -> tuple[Machine, Machine]:
    return Machine(tmp_path / "one", 2 * HOUR_S), Machine(tmp_path / "two", -2 * HOUR_S)


@pytest.fixture
def database(tmp_path: Path, machines: tuple[Machine, Machine]) -> Iterator[Database]:
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    (workspace / "program.py").write_text(PROGRAM, encoding="utf-8")
    request = RunRequest(program="program.py", worker="main", call=CallArgs([], {}))
    created = create_run(request, workspace, load_config(workspace))
    for machine in machines:
        shutil.copytree(created.path, machine.runs / created.id)
        write_elsewhere(machine.runs / created.id, Elsewhere(NODE))
    made = Database(RunDir(machines[0].runs / created.id))
    yield made
    made.end()


def bring(database: Database, machine: Machine) -> None:
    """Let a machine have the journal; whatever else it has of the run stays as it left it."""
    source = database.run.path / "journal.ndjson"
    (machine.runs / database.run.id / source.name).write_bytes(source.read_bytes())


@pytest.mark.requirement("fleet-time")
def test_a_run_that_goes_to_another_machine_and_back_keeps_its_time(
    database: Database, machines: tuple[Machine, Machine]
) -> None:
    one, two = machines
    database.begin(one, 0, None)
    opened = database.wait_for("step.started")
    database.end()
    bring(database, two)
    database.begin(two, 1000, 900)
    second = database.wait_for("hub.started", 2)
    database.end()
    bring(database, one)
    database.begin(one, HOUR_S - 1, 3000)
    finished = database.wait_for("step.finished")
    third = database.wait_for("hub.started", 3)
    result = database.wait_for("worker.ended")
    database.end()

    assert number(second, "dead_us") / SECOND_US == pytest.approx(100, abs=20), (
        "the last hub was alive for long"
    )
    assert number(third, "dead_us") / SECOND_US == pytest.approx(600, abs=20), "not since the first was here"
    times = [entry.at for entry in database.entries()]
    assert times == sorted(times)
    assert number(opened, "due") <= finished.at < number(opened, "due") + 20 * SECOND_US
    assert result.value is not None
    ended_us = parse_moment(msgspec.json.decode(result.value, type=str))
    assert ended_us == pytest.approx(finished.at, abs=20 * SECOND_US), "the program has the same time"
