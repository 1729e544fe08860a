"""A team of real processes, and somebody who kills them: whatever dies, the run ends as if nothing had happened.

Every kill is noted with the places of the journal it may have fallen between. From that follows, for each step, how often its
effect may be there: once, and once more for each kill that can have hit it while it was under way. A step is under way when the one
before it in its branch has an outcome, and it has none.

``BARTACK_CHAOS_SEED=17 pytest tests/crash/test_chaos.py`` replays one seed; ``BARTACK_CHAOS_KILLS=10000`` goes on for that long,
``BARTACK_CHAOS_FIRST=301`` begins with another seed. ``make soak`` does.
"""

from __future__ import annotations

import os
import re
import select
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

import msgspec
import pytest
from tests.crash.doomed_hub import LAST_POINTS, POINTS
from tests.crash.runs import PATIENCE_S, Parts, RealRun, kill, spin

from bartack.core.trust import add_trusted
from bartack.core.watch import open_watch
from bartack.journal import Entry, open_reader
from bartack.runtime.hub.parents import PARENT_RESTARTS
from bartack.runtime.kernel.workers import WORKER_RESTARTS
from bartack.runtime.protocol.step_key import step_key
from bartack.runtime.rundir.transcript import read_texts

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the bounds are those of Linux")

Record = Callable[[str, object], None]

ROUNDS = 12
KILLS_PER_RUN = 16
WANTED = int(os.environ.get("BARTACK_CHAOS_KILLS", "80"))
_SEED = os.environ.get("BARTACK_CHAOS_SEED")
FIRST = int(_SEED or os.environ.get("BARTACK_CHAOS_FIRST", "1"))
SEEDS = range(FIRST, FIRST + (1 if _SEED else -(-WANTED // KILLS_PER_RUN)))

PREFIX_PARTS = 4
FIRST_LINES = 2
"""A run that was made has these: that the journal was opened, and that the run was created with its first worker."""

ENDS = frozenset({"step.finished", "step.failed", "message.sent", "message.taken", "output"})
VICTIMS = ("hub", "hub", "everything", "worker", "worker", "zygote", "keeper")


@dataclass(frozen=True)
class Kill:
    """A kill, and the places of the journal it fell between."""

    victim: str
    worker: str
    before: int
    after: int


class Chaos:
    """Kills at random places until it has killed often enough, and lets the run come to its end."""

    def __init__(self, run: RealRun, random: Random, kills: int) -> None:
        self.run = run
        self.kills: list[Kill] = []
        self._random = random
        self._wanted = kills
        self._target = random.randrange(1, 9)
        self._hits: dict[str, list[int]] = {}
        self._parents = Counter[str]()
        """How often each parent program of this hub was killed."""

    def drive(self) -> None:
        self.run.start()
        with open_reader(self.run.run.path) as reader:
            for entry in reader.follow(timeout_s=PATIENCE_S):
                if entry.kind == "run.ended":
                    return
                self._see_progress(entry)
                if entry.data.get("question"):
                    answer(self.run, str(entry.data["question"]))
                if entry.seq >= self._target and len(self.kills) < self._wanted:
                    spin(self._random.choice((0, 0, 100, 1000, 5000)) * self._random.random())
                    self._strike(entry.seq)
        raise AssertionError(f"the run does not go on, after {self.kills}\n{self.run.story()}")

    def _see_progress(self, entry: Entry) -> None:
        """A worker that finished a step after it was hit may be hit again."""
        p = entry.data.get("p")
        if isinstance(p, str) and entry.kind in ENDS:
            owner = owner_of(p)
            self._hits[owner] = [after for after in self._hits.get(owner, []) if after >= entry.seq]

    def _may_hit(self, worker: str) -> bool:
        """A third death of a worker that gets nowhere is given up, rightly: that is another test's matter."""
        return len(self._hits.get(worker, [])) < WORKER_RESTARTS.limit - 1

    def _strike(self, before: int) -> None:
        # A parent program that dies again and again is given up, rightly: that is another test's matter.
        victim = self._random.choice([v for v in VICTIMS if self._parents[v] < PARENT_RESTARTS[0]])
        parts = self.run.parts()
        exposed = sorted(filter(self._may_hit, parts.workers))
        worker = self._random.choice(exposed) if exposed else ""
        if victim == "zygote" and len(exposed) < len(parts.workers):
            victim = "hub"
        pids = {
            "hub": [parts.hub],
            "everything": [parts.hub, *(facts.pid for facts in parts.all)],
            "worker": [parts.workers.get(worker, 0)],
            "zygote": [parts.zygote],
            "keeper": [parts.keeper],
        }[victim]
        dying = [pid for pid in pids if pid]
        if dying:
            kill(*dying)
            self._parents[victim] += victim in {"zygote", "keeper"}
            self._wait_children(victim, parts)
            after = self.run.last_seq()
            for hit in {"worker": [worker], "zygote": list(parts.workers)}.get(victim, []):
                self._hits.setdefault(hit, []).append(after)
            self.kills.append(Kill(victim, worker, before, after))
            self._target = after + self._random.randrange(1, 9)
        if victim in {"hub", "everything"}:
            self.run.wait_hub()
            self._parents.clear()
            if self._random.random() < 0.3:
                self.run.wait_nothing_left()
            # Whoever strikes may be late, on a busy machine: what has come to its end meanwhile is not resumed.
            if not self.run.count("run.ended"):
                self.run.start()

    def _wait_children(self, victim: str, parts: Parts) -> None:
        """What dies with its parent is dead: nothing of it is done any more."""
        if victim == "zygote":
            kill(*parts.workers.values())
        elif victim == "keeper":
            kill(*parts.commands.values())


def answer(run: RealRun, question: str) -> None:
    """Answer, unless somebody did so before the last kill."""
    try:
        run.api.answer(question, value=True)
    except Exception as error:
        if type(error).__name__ not in {"QuestionAnsweredError", "QuestionNotFoundError"}:
            raise


def owner_of(p: str) -> str:
    """The worker a branch belongs to."""
    return re.sub(r"(\.\d+\.\d+)+$", "", p)


class Model:
    """What the journal of a finished run says about every step."""

    def __init__(self, run: RealRun) -> None:
        self.entries = run.entries()
        self.run_id = run.run.id
        self.ends: dict[tuple[str, int], list[int]] = {}
        self.spawned: dict[str, int] = {}
        self.kinds: dict[tuple[str, int], str] = {}
        for entry in self.entries:
            self._note(entry)

    def _note(self, entry: Entry) -> None:
        if entry.kind == "worker.spawned":
            self.spawned[str(entry.data["path"])] = entry.seq
        p, n = entry.data.get("p"), entry.data.get("n")
        if not isinstance(p, str) or not isinstance(n, int) or not n:
            return
        if entry.kind in ENDS:
            self.ends.setdefault((p, n), []).append(entry.seq)
            self.kinds[p, n] = str(entry.data.get("step", entry.kind))

    def ready_at(self, p: str, n: int) -> int:
        """The place from which on a step may be under way."""
        if n > 1:
            return self.ends[p, n - 1][0]
        if p in self.spawned:
            return self.spawned[p]
        branch = re.fullmatch(r"(.*)\.(\d+)\.\d+", p)
        assert branch is not None
        return self.ready_at(branch[1], int(branch[2]))

    def may_hit(self, hit: Kill, p: str, n: int) -> bool:
        kind = self.kinds[p, n]
        owner = owner_of(p)
        exposed = {
            "hub": True,
            "everything": True,
            "worker": kind == "body" and owner == hit.worker,
            "zygote": kind == "body",
            "keeper": kind == "shell",
        }[hit.victim]
        return exposed and self.ready_at(p, n) <= hit.after and self.ends[p, n][0] > hit.before


def executions(run: RealRun) -> Counter[str]:
    """How often the effect of each key is there."""
    lines = (run.workspace / "effects.txt").read_text().splitlines()
    return Counter(line.split()[0] for line in lines)


def check_effects(run: RealRun, kills: list[Kill]) -> None:
    model = Model(run)
    executed = executions(run)
    assert all(len(ends) == 1 for ends in model.ends.values()), "a step has two outcomes"
    counted = 0
    for (p, n), kind in model.kinds.items():
        if kind not in {"shell", "body"}:
            continue
        times = executed[step_key(model.run_id, p, n, 0)]
        allowed = 1 + sum(model.may_hit(hit, p, n) for hit in kills)
        assert 1 <= times <= allowed, f"{p}:{n} was executed {times} times, at most {allowed} would do"
        counted += 1
    assert counted == 2 * rounds_of(run) + 4
    assert len(executed) == counted, "something was executed that is no step"


def check_messages(run: RealRun) -> None:
    sent: dict[str, list[str]] = {"pieces": [], "stitched": []}
    taken: dict[str, list[str]] = {"pieces": [], "stitched": []}
    for entry in run.entries():
        if entry.kind in {"message.sent", "message.taken"}:
            place = sent if entry.kind == "message.sent" else taken
            place[str(entry.data["mailbox"])].append(str(entry.data["id"]))
    assert sent == taken
    assert [len(ids) for ids in sent.values()] == [rounds_of(run) + 1, rounds_of(run)]


def check_end(run: RealRun, kills: list[Kill], record: Record) -> None:
    """Everything that has to hold of a run of the team that came to its end."""
    assert run.wait_hub() in {0, -signal.SIGKILL}, run.story()
    run.wait_nothing_left()
    assert run.lock_is_free()
    check_result(run)
    printed = [entry for entry in run.entries() if entry.kind == "output"]
    assert len(printed) == 1
    # Who was killed last, perhaps behind the end of the run, may not have come to write it down.
    transcript = run.run.transcript.read_text() + "".join(read_texts(run.run).lost(run.run.transcript))
    assert transcript.count("shipped") == 1
    check_messages(run)
    check_effects(run, kills)
    record("chaos_kills", len(kills))


def check_result(run: RealRun) -> None:
    rounds = rounds_of(run)
    back = [f"cut{number}{number}" for number in range(rounds)]
    assert run.api.result() == {
        "back": back,
        "count": rounds,
        "pressed": ["press-a", "press-b", "left1", "right2"],
        "answer": True,
        "file": "result.txt",
    }
    assert (run.workspace / "result.txt").read_text() == ",".join(back)


def rounds_of(run: RealRun) -> int:
    """How many pieces the team was told to make."""
    first = next(entry for entry in run.entries() if entry.kind == "worker.spawned")
    rounds: int = msgspec.json.decode(first.value or b"")["args"][0]
    return rounds


@pytest.fixture
def team(tmp_path: Path) -> Iterator[RealRun]:
    with RealRun.create(tmp_path, "team.py", args=[ROUNDS]) as run:
        yield run


@pytest.fixture
def small_team(tmp_path: Path) -> Iterator[RealRun]:
    with RealRun.create(tmp_path, "team.py", args=[2]) as run:
        yield run


@pytest.mark.parametrize("seed", SEEDS)
def test_whatever_is_killed_wherever_the_team_ends_as_if_nothing_had_happened(
    seed: int, team: RealRun, record_property: Record
) -> None:
    sys.stdout.write(f"BARTACK_CHAOS_SEED={seed}\n")
    chaos = Chaos(team, Random(seed), KILLS_PER_RUN)

    chaos.drive()

    check_end(team, chaos.kills, record_property)


class Doomed:
    """Runs one hub after the other, each of which kills itself at another point."""

    def __init__(self, run: RealRun) -> None:
        self.run = run
        self.kills: list[Kill] = []
        self.missed: list[str] = []

    def go_through(self, point: str) -> None:
        """Whoever comes to its end without getting there has nothing left to do."""
        times = 2 if point.endswith(("stage", "commit", "Say", "frame")) else 1
        hub = self.run.start_doomed(point, times)
        self._attend(hub)
        if self.run.wait_hub() == -signal.SIGKILL:
            place = self.run.last_seq()
            self.kills.append(Kill("hub", "", place, place))
        else:
            self.missed.append(point)

    def _attend(self, hub: subprocess.Popen[bytes]) -> None:
        """Answer what the hub asks until it has ended."""
        pidfd = os.pidfd_open(hub.pid)
        with open_watch(str(self.run.run.path)) as watch:
            changes = watch.fileno()
            assert changes is not None
            while hub.poll() is None:
                for question in self.run.api.questions():
                    answer(self.run, question.id)
                ready, _, _ = select.select([pidfd, changes], [], [], PATIENCE_S)
                assert ready, self.run.story()
                watch.wait(0)
        os.close(pidfd)


@pytest.mark.parametrize("part", range(4))
def test_a_hub_that_dies_at_a_named_point_is_missed_by_nobody(
    part: int, team: RealRun, record_property: Record
) -> None:
    doomed = Doomed(team)

    for point in POINTS[part::4]:
        doomed.go_through(point)
    doomed.go_through("never:commit")

    assert doomed.missed == ["never:commit"]
    check_end(team, doomed.kills, record_property)


@pytest.mark.parametrize("point", LAST_POINTS)
def test_a_hub_that_dies_at_its_end_has_still_done_everything(
    point: str, small_team: RealRun, record_property: Record
) -> None:
    doomed = Doomed(small_team)

    doomed.go_through(point)
    if small_team.api.state().status != "completed":
        doomed.go_through("never:commit")

    assert doomed.kills
    check_end(small_team, doomed.kills, record_property)


@pytest.mark.parametrize("part", range(PREFIX_PARTS))
def test_every_prefix_of_a_journal_leads_to_the_same_end(part: int, small_team: RealRun) -> None:
    attend_to_the_end(small_team)
    directory, record = small_team.run.path, small_team.workspace / "record"
    directory.rename(record)
    lines = (record / "journal.ndjson").read_bytes().splitlines(keepends=True)

    # Every fourth one; the others, too, if there is time. Runs in memory are killed behind every line (tests/unit/testing).
    every = 1 if "SOAK" in os.environ else 4
    for place in range(FIRST_LINES + every * part, len(lines), every * PREFIX_PARTS):
        shutil.copytree(record, directory)
        add_trusted(directory)
        (directory / "journal.ndjson").write_bytes(b"".join(lines[:place]))
        for projection in ("run.json", "transcript.txt", "lock"):
            (directory / projection).unlink()
        (small_team.workspace / "effects.txt").write_text("")
        done = {step for step, kind in Model(small_team).kinds.items() if kind in {"shell", "body"}}
        attend_to_the_end(small_team)

        check_result(small_team)
        check_messages(small_team)
        model = Model(small_team)
        assert executions(small_team) == {
            step_key(model.run_id, *step, 0): 1
            for step, kind in model.kinds.items()
            if kind in {"shell", "body"} and step not in done
        }
        shutil.rmtree(directory)


def attend_to_the_end(run: RealRun) -> None:
    doomed = Doomed(run)
    doomed.go_through("never:commit")
    assert run.wait_hub() == 0, run.story()
