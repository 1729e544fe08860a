"""``bartack run --on DATABASE --here``, killed, cut off from its database and taken over: real commands on several machines.

A machine is a directory with a workspace and the files of a user: its runs have a seat of their own.
"""

from __future__ import annotations

import os
import random
import select
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.history import check_history, rows_of
from tests.postgres import cluster, new_database
from tests.waiting import until

from bartack.depot.postgres._database import Database
from bartack.testing import Cable

PROGRAM = Path(__file__).with_name("programs") / "kept.py"
STEPS = 6
LIMIT_S = 60


class Machine:
    """A workspace of its own, from which commands are started."""

    def __init__(self, place: Path, on: str, effects: Path) -> None:
        self.place = place
        self.on = on
        self.effects = effects
        self._started: list[subprocess.Popen[bytes]] = []
        place.mkdir(parents=True)
        (place / PROGRAM.name).write_bytes(PROGRAM.read_bytes())
        self._env = {
            **os.environ,
            "XDG_STATE_HOME": str(place / "state"),
            "XDG_CONFIG_HOME": str(place / "config"),
        }

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        """Start a command; its output goes to a file."""
        with (self.place / "output").open("ab") as output:
            started = subprocess.Popen(
                [sys.executable, "-m", "bartack", *words],
                cwd=self.place,
                env=self._env,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        self._started.append(started)
        return started

    def close(self) -> None:
        for started in self._started:
            started.kill()
            started.wait(LIMIT_S)

    def run(self, steps: int = STEPS) -> subprocess.Popen[bytes]:
        return self.start("run", "--on", self.on, "--here", PROGRAM.name, str(self.effects), str(steps))

    def resume(self, *words: str) -> int:
        return self.start("resume", "latest", "--on", self.on, "--here", *words).wait(LIMIT_S)

    def output(self) -> str:
        return (self.place / "output").read_text(encoding="utf-8", errors="replace")


class Stage:
    """A database, its machines, and what the program did."""

    def __init__(self, folder: Path) -> None:
        self.url = new_database()
        self.database = Database(self.url)
        self.effects = folder / "effects"
        self._folder = folder
        self._machines: list[Machine] = []

    def machine(self, name: str, on: str = "") -> Machine:
        made = Machine(self._folder / name, on or self.url, self.effects)
        self._machines.append(made)
        return made

    def close(self) -> None:
        for machine in self._machines:
            machine.close()
        self.database.close()

    def done(self) -> list[str]:
        return self.effects.read_text(encoding="utf-8").split() if self.effects.exists() else []

    def rows(self, statement: str) -> list[tuple[object, ...]]:
        return self.database.shared.rows(statement)

    def steps(self) -> int:
        """How many steps have finished, as the journal has it."""
        found = self.rows("SELECT run, lines FROM bartack.journal ORDER BY run, seq")
        return sum(bytes(lines).count(b'"step.finished"') for _, lines in found if isinstance(lines, bytes))

    def let_leases_end(self) -> None:
        self.rows("UPDATE bartack.node SET until = until - interval '1 day'")

    def check_journal(self) -> None:
        ((number,),) = self.database.shared.rows("SELECT no FROM bartack.run")
        check_history(rows_of(self.database.shared, number))


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    made = Stage(tmp_path)
    yield made
    made.close()


def kill_everything(hub: subprocess.Popen[bytes]) -> None:
    """``kill -9`` of the command, as its machine would do it: whatever belongs to it dies with it."""
    hub.kill()
    hub.wait(LIMIT_S)


def check_once_each(stage: Stage, kills: int) -> None:
    """Every effect happened, and only the step in flight at a kill happened again."""
    counts = Counter(stage.done())
    assert sorted(counts) == [str(number) for number in range(STEPS)]
    assert sum(counts.values()) - STEPS <= kills
    stage.check_journal()


@pytest.mark.parametrize("seed", range(10))
def test_a_killed_run_is_resumed_here_or_on_another_machine(
    stage: Stage, seed: int, record_property: Callable[[str, object], None]
) -> None:
    dice = random.Random(seed)
    one = stage.machine("one")
    hub = one.run()
    wanted = dice.randrange(1, STEPS + 1)
    until(lambda: stage.steps() >= wanted or hub.poll() is not None, "the steps before the kill")
    kill_everything(hub)

    if seed % 2:
        stage.let_leases_end()
        next_one = stage.machine("two")
    else:
        next_one = one
    code = next_one.resume()

    assert code == 0, next_one.output()
    assert next_one.output().splitlines().count("100000") == 1, "the large value survived"
    check_once_each(stage, 1)
    record_property("database_kills", 1)


def test_a_killed_run_is_not_taken_by_another_machine_while_its_lease_lasts(stage: Stage) -> None:
    one, two = stage.machine("one"), stage.machine("two")
    hub = one.run()
    until(lambda: stage.steps() >= 1, "a step")
    kill_everything(hub)
    before = stage.rows("SELECT count(*), max(fence) FROM bartack.journal")

    assert two.resume() != 0
    assert "BT202" in two.output()
    assert stage.rows("SELECT count(*), max(fence) FROM bartack.journal") == before
    assert one.resume() == 0, one.output()


def test_a_program_that_was_updated_comes_from_the_database(stage: Stage) -> None:
    one, two = stage.machine("one"), stage.machine("two")
    (one.place / "extra.py").write_text("WORD = 'first'\n", encoding="utf-8")
    source = one.place / PROGRAM.name
    source.write_text(
        f"import extra\n{source.read_text(encoding='utf-8')}    # {{}}\n".replace("    # {}\n", ""),
        encoding="utf-8",
    )
    hub = one.run()
    until(lambda: stage.steps() >= 1, "a step")
    kill_everything(hub)
    text = PROGRAM.read_text(encoding="utf-8").replace("return len", "ctx.print('edited')\n    return len")
    source.write_text(text, encoding="utf-8")
    hub = one.start("resume", "latest", "--update", "--on", stage.url, "--here")
    until(lambda: stage.steps() >= 3 or hub.poll() is not None, "more steps")
    kill_everything(hub)
    stage.let_leases_end()
    (two.place / PROGRAM.name).unlink()

    assert two.resume() == 0, two.output()
    assert "edited" in one.output() + two.output()
    ((path,),) = [[*two.place.glob(".bartack/runs/run-*/program")]]
    assert [found.name for found in path.rglob("*.py")] == [PROGRAM.name]
    check_once_each(stage, 2)


@pytest.fixture
def cut_off(stage: Stage) -> Iterator[tuple[Stage, Cable, Machine]]:
    """A machine behind a cable."""
    with Cable(str(cluster().place / ".s.PGSQL.5432")) as cable:
        name = stage.url.partition("@/")[2].partition("?")[0]
        yield stage, cable, stage.machine("one", f"postgresql://bartack@127.0.0.1:{cable.port}/{name}")


LONG = """\
from bartack import Context, worker

@worker
async def main(ctx: Context, effects: str, steps: int = 0) -> int:
    loop = f"while test ! -e {effects}.go; do echo >> {effects}.ticks; sleep 0.02; done"
    await ctx.shell("sh", "-c", f"echo begin >> {effects}; {loop}")
    await ctx.shell("sh", "-c", f"echo end >> {effects}")
    return 7
"""
STILL_S = 0.7


def begin_long(stage: Stage, machine: Machine) -> subprocess.Popen[bytes]:
    """Start a run that is in the middle of a step which shows that it moves."""
    (machine.place / PROGRAM.name).write_text(LONG, encoding="utf-8")
    hub = machine.run()
    until(lambda: ticks(stage) > 3, "the step moves")
    return hub


def ticks(stage: Stage) -> int:
    path = Path(f"{stage.effects}.ticks")
    return path.stat().st_size if path.exists() else 0


def wait_still(stage: Stage) -> None:
    """Until nothing has moved for a while."""

    def is_still() -> bool:
        before = ticks(stage)
        select.select([], [], [], STILL_S)
        return ticks(stage) == before

    until(is_still, "everything stands still")


def let_go(stage: Stage) -> None:
    """The step ends when it moves."""
    Path(f"{stage.effects}.go").touch()


@pytest.mark.skipif(sys.platform != "linux", reason="looks at processes as Linux shows them")
def test_a_run_without_its_database_stands_still_and_continues(
    cut_off: tuple[Stage, Cable, Machine],
) -> None:
    stage, cable, one = cut_off
    hub = begin_long(stage, one)
    cable.go_silent()
    wait_still(stage)
    let_go(stage)
    before = stage.rows("SELECT max(last) FROM bartack.journal")
    assert stage.done() == ["begin"]

    cable.come_back()

    assert hub.wait(LIMIT_S) == 0, one.output()
    assert stage.done() == ["begin", "end"]
    assert stage.rows("SELECT max(last) FROM bartack.journal") > before
    assert "stood still" in one.output()
    stage.check_journal()


@pytest.mark.skipif(sys.platform != "linux", reason="looks at processes as Linux shows them")
def test_a_run_that_was_taken_over_ends_on_the_machine_that_lost_it(
    cut_off: tuple[Stage, Cable, Machine],
) -> None:
    stage, cable, one = cut_off
    two = stage.machine("two")
    hub = begin_long(stage, one)
    cable.go_silent()
    wait_still(stage)
    stage.let_leases_end()
    let_go(stage)
    assert two.resume() == 0, two.output()
    before = stage.rows("SELECT seq, fence, crc FROM bartack.journal ORDER BY seq")

    cable.come_back()

    assert hub.wait(LIMIT_S) != 0
    assert stage.done() == ["begin", "begin", "end"]
    assert stage.rows("SELECT seq, fence, crc FROM bartack.journal ORDER BY seq") == before
    stage.check_journal()


@pytest.mark.skipif(sys.platform != "linux", reason="looks at processes as Linux shows them")
def test_a_stopped_hub_that_lost_its_run_writes_nothing_when_it_wakes_up(stage: Stage) -> None:
    one, two = stage.machine("one"), stage.machine("two")
    hub = begin_long(stage, one)
    os.kill(hub.pid, signal.SIGSTOP)
    wait_still(stage)
    stage.let_leases_end()
    let_go(stage)
    assert two.resume() == 0, two.output()
    before = stage.rows("SELECT seq, fence, crc FROM bartack.journal ORDER BY seq")

    os.kill(hub.pid, signal.SIGCONT)

    assert hub.wait(LIMIT_S) != 0
    assert stage.done() == ["begin", "begin", "end"]
    assert stage.rows("SELECT seq, fence, crc FROM bartack.journal ORDER BY seq") == before
