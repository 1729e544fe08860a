"""Nodes as processes, their database, runs that do everything, people who write to them, and faults. ``Chaos`` has all of it.

A *witness* outside all nodes, a file, sees every effect; ``programs/fleet.py`` says what is in it. A person accompanies each run:
sends it messages and answers its question, through the database. ``tests/history.py`` judges what is left.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from random import Random
from threading import Event, Thread
from typing import Final, Literal

import msgspec
from tests.crash.next_cut import NextCut
from tests.history import (
    History,
    Seen,
    acknowledged_by,
    check_standings,
    check_teams,
    problems_of,
    read_history,
)
from tests.postgres import Cluster
from tests.verdict import judging
from tests.waiting import until

from bartack import Run
from bartack.depot.elsewhere import Elsewhere
from bartack.depot.postgres._database import Database
from bartack.depot.team import Team
from bartack.errors import BartackError, DepotError
from bartack.testing import Cable

PROGRAM: Final = Path(__file__).with_name("programs") / "fleet.py"
AGENT: Final = '[agents.writer]\nkind = "ndjson"\ncommand = ["bartack", "agents", "scripted", "--script", "replies.toml"]\n'
WORKSPACE: Final = "[workspace]\nduring_s = 1.0\n"
REPLIES: Final = 'version = 1\n[[prompts]]\npattern = "Summarise"\ntext = "pieces, summarised"\n'
LEASE_S: Final = 3.0
PATIENCE_S: Final = 150.0
FEW: Final = "few"
"""A team of which two runs may be owned at once; every second run belongs to it."""
MOST: Final = 2
MESSAGES: Final = 2
DONE: Final = "done"
ROUNDS: Final = 4
LONG: Final = 320
"""So many moves of an effect take longer than a lease: another node takes the run over meanwhile if its owner is away."""
SHORT: Final = 5

HUB: Final = b"bartack.runtime.hub.serve"
BARTACK: Final = ("-m", "bartack")
KEEPER: Final = b"bartack.supervision.parent.guardian"
"""In the command line of the parents of workers and commands, and of the process above each."""
PAST_THE_LEASE: Final = frozenset({"node stopped", "hub stopped", "cable silent"})
"""Faults that last longer than a lease. Two nodes that are away at a time would keep the third from declaring them dead."""


class Member:
    """A node with a seat, a name and a way to the database of its own.

    Args:
        name: What people call it.
        folder: Where its seat and its log are.
        cable: Its way to the database, if that is to be cut.
        url: The database.
        environ: Its variables.
        program: What ``bartack`` is, as words after the interpreter.
    """

    def __init__(
        self,
        name: str,
        folder: Path,
        cable: Cable | None,
        url: str,
        environ: dict[str, str],
        program: Sequence[str] = BARTACK,
    ) -> None:
        self.name = name
        self.seat = folder / name
        self._program = program
        self._cable = cable
        self._url = url
        self._folder = folder
        self._environ = environ
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def cable(self) -> Cable:
        """Its way to the database."""
        assert self._cable is not None
        return self._cable

    @property
    def is_up(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        if self.is_up:
            return
        url = self._url
        words = (
            "--name",
            self.name,
            "--state-dir",
            str(self.seat),
            "--lease",
            f"{LEASE_S:g}",
            "--max-runs",
            "4",
            "--rest-after",
            f"{PATIENCE_S:g}",
        )
        with (self._folder / f"{self.name}.log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, *self._program, "node", "run", "--on", url, *words],
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
                    words = (entry / "cmdline").read_bytes()
                    if word in words and seat + b"/runs" in words + (entry / "environ").read_bytes():
                        found.append(int(entry.name))
        return found

    def parents(self) -> list[int]:
        """The parents of workers and commands, and the process above each.

        A command has the command line of its parent until it becomes its own program. It is none of them: a command that is killed
        has failed, and its run with it.
        """
        hubs = {*self.below(HUB)}
        return [pid for pid in self.below(KEEPER) if hubs & {parent_of(pid), parent_of(parent_of(pid))}]

    def runs(self) -> list[Path]:
        return [*(self.seat / "runs").glob("run-*")]


def parent_of(pid: int) -> int:
    """The number of its parent; 0: it is gone."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[1])
    except OSError:
        return 0


class Person(Thread):
    """Accompanies a run until it is over: sends messages, answers its question, and then ends what it waits for.

    What becomes of an attempt may never be known, so each has a text of its own.

    Attributes:
        sent: The messages that are known to be in the mailbox.

    Args:
        run: The run.
        url: The database.
        ends: The person has to leave.
        may_end: The run may come to its end.
    """

    def __init__(self, run: str, url: str, ends: Event, may_end: Event) -> None:
        super().__init__(name=f"person of {run}", daemon=True)
        self.sent: list[str] = []
        self._run_id = run
        self._url = url
        self._ends = ends
        self._may_end = may_end
        self._attempts = 0
        self._has_answered = False

    def run(self) -> None:
        """Begin."""
        for number in range(MESSAGES):
            self._repeat(partial(self._send, f"message {number}"))
        self._repeat(self._answer)
        self._may_end.wait()
        self._repeat(self._end)

    def _repeat(self, attempt: Callable[[Run], bool]) -> None:
        while not self._ends.is_set():
            with suppress(BartackError, OSError), Run.open(self._run_id, on=self._url) as run:
                if attempt(run):
                    return
            self._ends.wait(0.3)

    def _send(self, text: str, run: Run) -> bool:
        self._attempts += 1
        text = f"{text}, attempt {self._attempts}"
        run.send("outside", text)
        self.sent.append(text)
        return True

    def _answer(self, run: Run) -> bool:
        questions = run.state().questions
        for question in questions:
            self._has_answered = True
            run.answer(question.id, True)
        return self._has_answered

    def _end(self, run: Run) -> bool:
        if run.state().status != "completed":
            run.send("outside", DONE)
        return True


_WAITING: Final = (
    "SELECT r.id FROM bartack.owner o JOIN bartack.run r ON r.no = o.run "
    "WHERE o.state = 'held' OR o.state = 'queued' AND o.due > clock_timestamp() + interval '4 s'"
)


class Result(msgspec.Struct):
    """What a run returns."""

    pieces: list[str]
    summary: str
    shipped: bool
    heard: list[str]


class Fleet:
    """A database, nodes, runs with their persons, and the witness.

    Attributes:
        members: The nodes.
        problems: What was wrong at any moment.
        copies_during: How many copies were made while a step was executed, as ``check`` has found.
        may_end: Runs may come to their end.

    Args:
        folder: Where everything is.
        url: The database, as it is reached without any cable.
        rounds: How many pieces each run makes.
        long: How many moves the longest step of every second run has.
        program: What submits runs: what ``bartack`` is, as words after the interpreter.
    """

    def __init__(
        self, folder: Path, url: str, *, rounds: int, long: int, program: Sequence[str] = BARTACK
    ) -> None:
        self.folder = folder
        self.may_end = Event()
        self.may_end.set()
        self._program = program
        self.url = url
        self.members: list[Member] = []
        self.problems: list[str] = []
        self.copies_during = 0
        self.witness = folder / "witness"
        self.database = Database(url)
        self.team = Team(Elsewhere(url))
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        self._environ = {**os.environ, "PATH": path}
        self._rounds = rounds
        self._long = long
        self._persons: dict[str, Person] = {}
        self._ends = Event()
        self._submitted = 0
        self.rows("SELECT bartack.set_team(%s, %s)", FEW, MOST)

    def add(
        self, name: str, url: str, cable: Cable | None = None, program: Sequence[str] = BARTACK
    ) -> Member:
        """Start a node."""
        made = Member(name, self.folder, cable, url, self._environ, program)
        self.members.append(made)
        made.start()
        return made

    def submit(self, number: int) -> None:
        """Submit runs, each in a workspace of its own."""
        started: list[subprocess.Popen[bytes]] = []
        for each in range(self._submitted, self._submitted + number):
            place = self.folder / f"workspace{each}"
            place.mkdir()
            (place / PROGRAM.name).write_bytes(PROGRAM.read_bytes())
            (place / "bartack.toml").write_text(WORKSPACE + AGENT, encoding="utf-8")
            (place / "replies.toml").write_text(REPLIES, encoding="utf-8")
            team = ("--team", FEW) if each % 2 else ()
            moves = self._long if each % 2 else SHORT
            call = PROGRAM.name, str(self.witness), str(self._rounds), str(moves)
            words = ("run", "--on", self.url, "--detach", *team, *call)
            started.append(
                subprocess.Popen(
                    [sys.executable, *self._program, *words],
                    cwd=place,
                    env=self._environ,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                )
            )
        self._submitted += number
        assert [process.wait(PATIENCE_S) for process in started] == [0] * number
        self._accompany()

    def _accompany(self) -> None:
        for (run,) in self.rows("SELECT id FROM bartack.run"):
            if run not in self._persons:
                self._persons[str(run)] = made = Person(str(run), self.url, self._ends, self.may_end)
                made.start()

    def rows(self, statement: str, *values: object) -> list[tuple[object, ...]]:
        """What the database has."""
        return self.database.shared.rows(statement, *values)

    def turn(self) -> None:
        """Do what is due: look whether all is right now, and give runs back that are held, or that wait since their hub died."""
        with suppress(DepotError):
            history = read_history(self.database.shared, with_journals=False)
            self.problems += [*check_standings(history), *check_teams(history)]
            for (run,) in self.rows(_WAITING):
                self.team.enqueue(str(run))

    def active(self) -> int:
        """How many runs are not over; all, if that cannot be known now."""
        with suppress(DepotError):
            return len(self.rows("SELECT 1 FROM bartack.owner WHERE state <> 'over'"))
        return self._submitted

    def finish(self) -> None:
        """Let all runs come to their end."""
        limit = time.monotonic() + PATIENCE_S
        while self.active():
            assert time.monotonic() < limit, self.state()
            self.turn()
            select.select([], [], [], 0.2)
        for person in self._persons.values():
            person.join(PATIENCE_S)

    def close(self) -> None:
        """End everything."""
        self._ends.set()
        self.may_end.set()
        for member in self.members:
            member.signal(signal.SIGCONT)
            member.kill()
        until(lambda: not any(m.below(b"bartack.runtime.hub") for m in self.members), "the end of all hubs")
        for person in self._persons.values():
            person.join(PATIENCE_S)
        self.team.database.close()
        self.database.close()

    def state(self) -> str:
        """What is known, for a test that fails."""
        owners = self.rows("SELECT run, state, fence, node, strikes, reason FROM bartack.owner ORDER BY run")
        logs = [path.read_text(errors="replace")[-3000:] for path in self.folder.glob("*.log")]
        return "\n".join([*map(str, owners), *logs])

    # What holds at the end.

    @judging()
    def check(self) -> None:
        """Everything holds, and each run has the result that it would have without faults."""
        mirrors = [path for member in self.members for path in member.runs()]
        history = read_history(self.database.shared, self._seen(), acknowledged_by(mirrors))
        problems = [*self.problems, *problems_of(history)]
        assert problems == [], "\n".join([*problems, self.state()])
        assert {run.state for run in history.runs} == {"over"}
        assert len(history.acknowledged) >= len(history.runs)
        facts = [fact for run in history.runs for fact in history.facts[run.id]]
        self.copies_during = sum((fact.what, fact.name) == ("copied", "during") for fact in facts)
        for run in history.runs:
            self._check_result(run.id)
            self._check_effects(history, run.id)

    def _seen(self) -> list[Seen]:
        lines = self.witness.read_text(encoding="ascii").splitlines()
        return [_seen(line.split(" ")) for line in lines]

    def _check_result(self, run_id: str) -> None:
        with Run.open(run_id, on=self.url) as run:
            result = msgspec.convert(run.result(), Result)
        pieces = [f"cut{number}-stitched" for number in range(self._rounds)]
        assert result == Result(pieces, "pieces, summarised", shipped=True, heard=result.heard)
        sent = self._persons[run_id].sent
        assert [text for text in result.heard if text in sent] == sent, "each message once, in order"
        assert len({*result.heard}) == len(result.heard)

    def _check_effects(self, history: History, run_id: str) -> None:
        """The witness has seen every effect, and each has edited its file once as far as the steps go that were finished."""
        steps = {one.step for one in history.seen if one.run == run_id}
        finished = [
            fact.name for fact in history.facts[run_id] if fact.what == "finished" and fact.name in steps
        ]
        assert len(steps) == len(finished) == 2 * self._rounds + 1


def _seen(words: Sequence[str]) -> Seen:
    run, fence, step, what, *files = words
    found = tuple(filter(None, files[0].split(","))) if files else None
    return msgspec.convert((run, int(fence), step, what, found), Seen)


class Chaos(Fleet):
    """A fleet with faults.

    Attributes:
        faults: How many there were of each kind, each of which has hit something.

    Args:
        folder: Where everything is.
        stack: Closes what is opened.
        cluster: The server, which may be killed.
        dice: Decides what happens.
        plan: How many faults of each kind there are to be.
    """

    def __init__(
        self, folder: Path, stack: ExitStack, cluster: Cluster, dice: Random, plan: Mapping[str, int]
    ) -> None:
        super().__init__(folder, cluster.url(), rounds=ROUNDS, long=LONG)
        self.faults = Counter[str]()
        self._cluster = cluster
        self._dice = dice
        self._deck = [*Counter(plan).elements()]
        dice.shuffle(self._deck)
        self._kinds: dict[str, Callable[[Member], bool]] = {
            "node killed": self._kill_node,
            "hub killed": lambda member: self._kill_one(member.below(HUB)),
            "keeper killed": lambda member: self._kill_one(member.parents()),
            "node stopped": self._stop_node,
            "hub stopped": self._stop_hub,
            "cable cut": self._cut,
            "cable cut before a request": lambda member: self._cut_next(member, "before"),
            "cable cut after a request": lambda member: self._cut_next(member, "after"),
            "cable silent": self._silence,
            "backend killed": lambda _: self._kill_backend(),
            "database killed": lambda _: self._kill_database(),
        }
        self._later: list[tuple[float, Callable[[], object]]] = []
        self._cuts: dict[Member, NextCut] = {}
        self._restarts: list[Thread] = []
        for name in ("one", "two", "three"):
            cable = stack.enter_context(Cable(str(cluster.place / ".s.PGSQL.5432")))
            self.add(name, f"postgresql://bartack@127.0.0.1:{cable.port}/postgres", cable)

    def drive(self, at_once: int) -> None:
        """Let every fault of the plan happen while at least some runs are active."""
        self.submit(at_once)
        until(self.witness.exists, "the first effect")
        while self._deck or self._cuts:
            self._fault()
            select.select([], [], [], self._dice.uniform(0.02, 0.2))
            self.turn()
            if self._deck and self.active() <= at_once // 2:
                self._wait_for_database()
                self.submit(at_once // 2)

    def _fault(self) -> None:
        """Do the next fault of the plan. One that can hit nothing now comes later."""
        kind = self._deck.pop() if self._deck else ""
        if not kind:
            return
        is_early = kind in PAST_THE_LEASE and bool(self._later)
        if is_early or not self._kinds[kind](self._dice.choice(self.members)):
            self._deck.insert(self._dice.randrange(len(self._deck) + 1), kind)
        elif not kind.endswith("request"):
            self.faults[kind] += 1

    def _after(self, seconds: float, do: Callable[[], object]) -> None:
        self._later.append((time.monotonic() + seconds, do))

    def _kill_node(self, member: Member) -> bool:
        was_up = member.is_up
        if was_up:
            member.kill()
            self._after(self._dice.choice((0.0, LEASE_S + 2)), member.start)
        return was_up

    def _kill_one(self, found: Sequence[int]) -> bool:
        return bool(found) and _send_signal(self._dice.choice(found), signal.SIGKILL)

    def _stop_node(self, member: Member) -> bool:
        if member.is_up:
            member.signal(signal.SIGSTOP)
            self._after(LEASE_S + 1.5, lambda: member.signal(signal.SIGCONT))
        return member.is_up

    def _stop_hub(self, member: Member) -> bool:
        found = member.below(HUB)
        if found and _send_signal(found[0], signal.SIGSTOP):
            self._after(LEASE_S + 1.5, partial(_send_signal, found[0], signal.SIGCONT))
            return True
        return False

    def _cut_next(self, member: Member, when: Literal["before", "after"]) -> bool:
        """Cut the connection of the next request; that counts when it has come."""
        if not member.is_up or member in self._cuts:
            return False
        self._cuts[member] = NextCut(member.cable, when)
        return True

    @staticmethod
    def _cut(member: Member) -> bool:
        return bool(member.cable.cut())

    def _silence(self, member: Member) -> bool:
        member.cable.go_silent()
        self._after(LEASE_S + 4, member.cable.come_back)
        return member.is_up

    def _kill_backend(self) -> bool:
        with suppress(DepotError):
            found = self.rows(
                "SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
            )
            return bool(found) and _send_signal(int(str(self._dice.choice(found)[0])), signal.SIGKILL)
        return False

    def _kill_database(self) -> bool:
        if any(thread.is_alive() for thread in self._restarts):
            return False
        self._restarts = [Thread(target=self._restart)]
        self._restarts[0].start()
        return True

    def _restart(self) -> None:
        self._cluster.kill()
        self._cluster.start()

    # What happens meanwhile.

    def turn(self) -> None:
        """Also wake what was stopped, and start what was killed."""
        now = time.monotonic()
        due = [do for at, do in self._later if at <= now]
        self._later = [(at, do) for at, do in self._later if at > now]
        for do in due:
            do()
        for member, cut in [*self._cuts.items()]:
            if cut.has_happened or cut.is_lost:
                kind = f"cable cut {cut.when} a request"
                self.faults[kind] += cut.has_happened
                self._deck += [] if cut.has_happened else [kind]
                del self._cuts[member]
        for member in self.members:
            # A node whose first attempt to join fails ends; what starts nodes starts it again.
            if not member.is_up and not self._later:
                member.start()
        super().turn()

    def _wait_for_database(self) -> None:
        for thread in self._restarts:
            thread.join(PATIENCE_S)
        until(self._answers, "the database to answer")

    def _answers(self) -> bool:
        with suppress(DepotError):
            return bool(self.rows("SELECT 1"))
        return False

    def heal(self) -> None:
        """Nothing fails any more."""
        for _, do in self._later:
            do()
        self._later = []
        for member in self.members:
            member.cable.come_back()
            member.start()
        self._wait_for_database()

    def close(self) -> None:
        """End everything."""
        self.heal()
        super().close()


def _send_signal(pid: int, number: int) -> bool:
    """Whether the process was there."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True
