"""Nodes that are killed, stopped and cut off at random while their runs do everything, and whose database fails, too.

A *witness* outside all nodes, a file, sees every effect: the run, the fence of the owner that began it, the step, and each moment
in which it moves. At the end every run has completed, and the history of each holds:

- its journal has no gap, its checksums are a whole chain, and its fences never fall (``check_history``);
- no effect moves under an old fence after one has begun under a higher one: never were two owners at work;
- no step has begun again under a higher fence than the one that it was finished under;
- each message was received once and each question answered once, or the result would be another;
- no run is owned any more.

``BARTACK_CHAOS_SEED=17`` replays one seed. ``make soak`` goes on for longer.
"""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from random import Random
from threading import Thread
from typing import NamedTuple

import pytest
from tests.history import check_history, rows_of
from tests.postgres import Cluster, own_cluster
from tests.waiting import until

from bartack import Run
from bartack.depot.elsewhere import Elsewhere
from bartack.depot.postgres._database import Database
from bartack.depot.team import Team
from bartack.errors import BartackError, DepotError
from bartack.testing import Cable

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks at processes as Linux shows them")

PROGRAM = Path(__file__).with_name("programs") / "fleet.py"
AGENT = '[agents.writer]\nkind = "ndjson"\ncommand = ["bartack", "agents", "scripted", "--script", "replies.toml"]\n'
REPLIES = 'version = 1\n[[prompts]]\npattern = "Summarise"\ntext = "pieces, summarised"\n'
ROUNDS = 6
EFFECTS = 2 * ROUNDS + 1
RESULT = f"{' '.join(f'cut{number}-stitched' for number in range(ROUNDS))} pieces, summarised True"
LEASE_S = 3.0
PATIENCE_S = 150.0
_SEED = os.environ.get("BARTACK_CHAOS_SEED")
_FINISHED = re.compile(rb'/witness","([^"]+)","[0-9]+"\],"status":0')
"""The name of an effect, in the line that records its step as finished."""


class Member:
    """A node with a seat, a name and a way to the database of its own."""

    def __init__(self, name: str, folder: Path, cable: Cable, environ: dict[str, str]) -> None:
        self.name = name
        self.seat = folder / name
        self.cable = cable
        self._folder = folder
        self._environ = environ
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def is_up(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        if self.is_up:
            return
        url = f"postgresql://bartack@127.0.0.1:{self.cable.port}/postgres"
        words = (
            "--name",
            self.name,
            "--state-dir",
            str(self.seat),
            "--lease",
            f"{LEASE_S:g}",
            "--max-runs",
            "4",
        )
        with (self._folder / f"{self.name}.log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "bartack", "node", "run", "--on", url, *words],
                cwd=self._folder,
                env=self._environ,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def signal(self, number: int) -> None:
        if self._process is not None:
            self._process.send_signal(number)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(30)

    def below(self, word: bytes) -> list[int]:
        """The processes of its runs with a word in their command line."""
        seat, found = os.fsencode(self.seat), list[int]()
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                with suppress(OSError):
                    text = (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes()
                    if seat + b"/runs" in text and word in text:
                        found.append(int(entry.name))
        return found

    def runs(self) -> list[Path]:
        return [*(self.seat / "runs").glob("run-*")]


class Seen(NamedTuple):
    """A line of the witness."""

    run: str
    fence: int
    step: str
    what: str


class Chaos:
    """The database, the nodes and the witness."""

    def __init__(self, folder: Path, stack: ExitStack, dice: Random) -> None:
        self.folder = folder
        self.dice = dice
        self.faults = Counter[str]()
        self.witness = folder / "witness"
        self.cluster: Cluster = stack.enter_context(own_cluster(synced=False))
        self.database = stack.enter_context(Database(self.cluster.url()))
        self.team = Team(Elsewhere(self.cluster.url()))
        socket = str(self.cluster.place / ".s.PGSQL.5432")
        environ = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
        self._environ = environ
        self.members = [
            Member(name, folder, stack.enter_context(Cable(socket)), environ)
            for name in ("one", "two", "three")
        ]
        self._later: list[tuple[float, Callable[[], object]]] = []
        self._threads: list[Thread] = []

    def submit(self, number: int) -> None:
        """Submit runs, each in a workspace of its own."""
        started: list[subprocess.Popen[bytes]] = []
        for each in range(number):
            place = self.folder / f"workspace{each}"
            place.mkdir()
            (place / PROGRAM.name).write_bytes(PROGRAM.read_bytes())
            (place / "bartack.toml").write_text(AGENT, encoding="utf-8")
            (place / "replies.toml").write_text(REPLIES, encoding="utf-8")
            words = (
                "run",
                "--on",
                self.cluster.url(),
                "--detach",
                PROGRAM.name,
                str(self.witness),
                str(ROUNDS),
            )
            started.append(
                subprocess.Popen(
                    [sys.executable, "-m", "bartack", *words],
                    cwd=place,
                    env=self._environ,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                )
            )
        assert [process.wait(60) for process in started] == [0] * number

    def rows(self, statement: str) -> list[tuple[object, ...]]:
        return self.database.shared.rows(statement)

    # Faults.

    def fault(self) -> None:
        """Do one thing that may happen."""
        kinds: dict[str, Callable[[Member], bool]] = {
            "node killed": self._kill_node,
            "hub killed": lambda member: self._kill_below(member, b"bartack.runtime.hub.serve"),
            "parent of commands killed": lambda member: self._kill_below(member, b"parent.py"),
            "node stopped past its lease": self._stop_node,
            "hub stopped past its lease": self._stop_hub,
            "cut before a request": lambda member: self._cut_next(member, "before"),
            "cut after a request": lambda member: self._cut_next(member, "after"),
            "cut": self._cut,
            "silent past the lease": self._silence,
            "backend killed": lambda _: self._kill_backend(),
            "database killed": lambda _: self._kill_database(),
        }
        weights = [3, 4, 3, 1, 1, 6, 6, 4, 1, 3, 1]
        (kind,) = self.dice.choices([*kinds], weights)
        if "past" in kind and self._later:
            return  # two nodes that are away at a time would keep the third from declaring them dead
        if kinds[kind](self.dice.choice(self.members)):
            self.faults[kind] += 1

    def _after(self, seconds: float, do: Callable[[], object]) -> None:
        self._later.append((time.monotonic() + seconds, do))

    def _kill_node(self, member: Member) -> bool:
        was_up = member.is_up
        member.kill()
        self._after(self.dice.choice((0.0, LEASE_S + 2)), member.start)
        return was_up

    def _kill_below(self, member: Member, word: bytes) -> bool:
        found = member.below(word)
        if found:
            with suppress(ProcessLookupError):
                os.kill(self.dice.choice(found), signal.SIGKILL)
        return bool(found)

    def _stop_node(self, member: Member) -> bool:
        if member.is_up:
            member.signal(signal.SIGSTOP)
            self._after(LEASE_S + 1.5, lambda: member.signal(signal.SIGCONT))
        return member.is_up

    def _stop_hub(self, member: Member) -> bool:
        found = member.below(b"bartack.runtime.hub.serve")
        for pid in found[:1]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
            self._after(LEASE_S + 1.5, partial(_continue, pid))
        return bool(found)

    @staticmethod
    def _cut_next(member: Member, when: str) -> bool:
        member.cable.cut_next("before" if when == "before" else "after")
        return True

    @staticmethod
    def _cut(member: Member) -> bool:
        member.cable.cut()
        return True

    def _silence(self, member: Member) -> bool:
        member.cable.go_silent()
        self._after(LEASE_S + 4, member.cable.come_back)
        return True

    def _kill_backend(self) -> bool:
        with suppress(DepotError):
            found = self.rows(
                "SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
            )
            if found:
                os.kill(int(str(self.dice.choice(found)[0])), signal.SIGKILL)
                return True
        return False

    def _kill_database(self) -> bool:
        if any(thread.is_alive() for thread in self._threads):
            return False
        self._threads = [Thread(target=self._restart)]
        self._threads[0].start()
        return True

    def _restart(self) -> None:
        self.cluster.stop("immediate")
        self.cluster.start()

    # What goes on meanwhile.

    def turn(self) -> None:
        """Do what is due: wake what was stopped, start what was killed, answer what is asked, give back what is held."""
        now = time.monotonic()
        due = [do for at, do in self._later if at <= now]
        self._later = [(at, do) for at, do in self._later if at > now]
        for do in due:
            do()
        for member in self.members:
            # A node whose first attempt to join fails ends; what starts nodes starts it again.
            if not member.is_up and not self._later:
                member.start()
        for path in [path for member in self.members for path in member.runs()]:
            with suppress(BartackError, OSError):
                _answer(path)
        with suppress(DepotError):
            for (run_id,) in self.rows(
                "SELECT r.id FROM bartack.owner o JOIN bartack.run r ON r.no = o.run WHERE o.state = 'held'"
            ):
                self.team.enqueue(str(run_id))

    def is_over(self) -> bool:
        with suppress(DepotError):
            return self.rows("SELECT DISTINCT state FROM bartack.owner") == [("over",)]
        return False

    def heal(self) -> None:
        """Nothing fails any more."""
        for thread in self._threads:
            thread.join(60)
        for member in self.members:
            member.cable.come_back()
            member.start()
        for _, do in self._later:
            do()
        self._later = []

    def close(self) -> None:
        for member in self.members:
            member.signal(signal.SIGCONT)
            member.kill()
            member.cable.come_back()
        until(lambda: not any(m.below(b"bartack.runtime.hub") for m in self.members), "the end of all hubs")
        self.team.database.close()

    def state(self) -> str:
        """What is known, for a test that fails."""
        owners = self.rows("SELECT run, state, fence, node, strikes, reason FROM bartack.owner ORDER BY run")
        logs = [path.read_text(errors="replace")[-3000:] for path in self.folder.glob("*.log")]
        return "\n".join([*map(str, owners), *logs])

    # What holds at the end.

    def check(self) -> None:
        seen = self._seen()
        for number, run_id, summary in self.rows("SELECT no, id, summary FROM bartack.run ORDER BY no"):
            assert isinstance(number, int)
            assert isinstance(summary, bytes)
            assert b'"status":"completed"' in summary, summary
            rows = rows_of(self.database.shared, number)
            check_history(rows)
            lines = b"".join(row.lines for row in rows)
            assert RESULT.encode() in lines, "each message once, and each answer"
            mine = [one for one in seen if one.run == run_id]
            check_owners(mine)
            finished = {key.decode(): row.fence for row in rows for key in _FINISHED.findall(row.lines)}
            check_finished(mine, finished)
            assert len(finished) == len({one.step for one in mine}) == EFFECTS
        assert self.rows("SELECT count(*) FROM bartack.owner WHERE node IS NOT NULL") == [(0,)]

    def _seen(self) -> list[Seen]:
        found: list[Seen] = []
        for line in self.witness.read_text(encoding="ascii").splitlines():
            run, fence, step, what = line.split(" ")
            found.append(Seen(run, int(fence), step, what))
        return found


def check_owners(seen: list[Seen]) -> None:
    """Once something has happened under a fence, nothing happens under a lower one."""
    highest = 0
    for one in seen:
        assert one.fence >= highest, f"{one} after something under fence {highest}"
        highest = one.fence


def check_finished(seen: list[Seen], finished: dict[str, int]) -> None:
    """A step that was finished under a fence did not begin under a higher one."""
    for one in seen:
        if one.what == "begin" and one.step in finished:
            assert one.fence <= finished[one.step], f"{one} was finished under fence {finished[one.step]}"


def _answer(path: Path) -> None:
    with Run.open(path) as run:
        for question in run.questions():
            run.answer(question.id, True)


def _continue(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)


@pytest.fixture
def chaos(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Chaos]:
    with ExitStack() as stack:
        made = Chaos(tmp_path, stack, Random(request.param))
        try:
            yield made
        finally:
            made.heal()
            made.close()


def long_ones() -> list[object]:
    """The seeds of ``make soak``."""
    return [pytest.param(seed, 60.0, 12, marks=pytest.mark.soak, id=str(seed)) for seed in range(2, 22)]


@pytest.mark.requirement("fleet-one-owner")
@pytest.mark.parametrize(
    ("chaos", "chaos_s", "runs"),
    [pytest.param(int(_SEED or 1), 15.0, 5, id="1"), *long_ones()],
    indirect=["chaos"],
)
def test_no_two_owners_are_at_work_whatever_fails(
    chaos: Chaos, chaos_s: float, runs: int, record_property: Callable[[str, object], None]
) -> None:
    for member in chaos.members:
        member.start()
    chaos.submit(runs)
    until(chaos.witness.exists, "the first effect")
    ends = time.monotonic() + chaos_s
    while time.monotonic() < ends and not chaos.is_over():
        chaos.fault()
        select.select([], [], [], chaos.dice.uniform(0.05, 0.35))
        chaos.turn()
    chaos.heal()
    patience = time.monotonic() + PATIENCE_S
    while not chaos.is_over():
        assert time.monotonic() < patience, chaos.state()
        chaos.turn()
        select.select([], [], [], 0.2)

    chaos.check()
    record_property("fleet_faults", chaos.faults.total())
    record_property("fleet_kinds", dict(chaos.faults))
