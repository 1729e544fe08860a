"""Nodes and hubs without processes: the real decisions (``FleetCore``) in virtual time, on hosts that die, stop or are cut off."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple
from zlib import crc32

from tests.crash.fleet_simulation.world import START_US, Link, Network, Tables, World

from bartack.depot import Job
from bartack.depot.postgres._carrier import what_became
from bartack.depot.postgres._lease import BEATS, MARGIN_S
from bartack.depot.taken import LEASE_S, Taken
from bartack.journal.shared import Commit
from bartack.node._core import Ending
from bartack.node._fleet_core import (
    Action,
    BeginRun,
    CannotRun,
    ClaimRuns,
    EndLife,
    FleetCore,
    ForgetRun,
    GiveBack,
    HubEnded,
    HurryRun,
    Join,
    KillRun,
    LeaseView,
    ListRuns,
    Moment,
    Note,
    Output,
    Postponed,
    StopRun,
    WorkEnd,
)
from bartack.testing.fleet import KeptPlace, NodeForm

if TYPE_CHECKING:
    from tests.crash.fleet_simulation.witness import Witness

LOOK_S: Final = 1.0
HOLD_S: Final = 15.0
"""Shorter than that of a real node, so that it happens."""
STOP_S: Final = 0.5
"""A tree stands still at the latest so long after its lease is over."""
ANSWER_S: Final = 15.0
CLOCK_RATES: Final = (0.9, 0.9, 1.1)
"""How fast the clocks of hosts run."""


def nothing(*_: object) -> None:
    """An answer that nothing waits for."""


class Program(NamedTuple):
    """A run, as its program is: what each step takes.

    Attributes:
        steps: How many seconds each takes.
        poison: The step that takes its host down; -1: none.
    """

    steps: tuple[float, ...]
    poison: int = -1


class Parcel(NamedTuple):
    """A commit on its way."""

    hub: Hub
    commit: Commit
    done: Callable[[], object]


class Fleet:
    """All nodes, and what they share.

    Attributes:
        programs: What each run does.
        flaws: Mistakes that were planted.
    """

    def __init__(
        self, world: World, tables: Tables, network: Network, witness: Witness, flaws: frozenset[str]
    ) -> None:
        self.world = world
        self.tables = tables
        self.network = network
        self.witness = witness
        self.flaws = flaws
        self.programs: dict[int, Program] = {}
        self.jobs: dict[int, Job] = {}

    def job(self, run: Taken) -> Job:
        """The run, as those see it that judge its end."""
        if run.no not in self.jobs:
            self.jobs[run.no] = Job(run=run.id, path=run.id, workspace="w")
        return self.jobs[run.no]


class Host:
    """A machine with a node.

    Attributes:
        link: Its way to the database.
        rate: How fast its clock runs.
        node: The process that is its node; ``None``: it is not running.
    """

    def __init__(self, fleet: Fleet, name: str, slots: int) -> None:
        self.fleet = fleet
        self.link = Link()
        self.name = name
        self.slots = slots
        self.rate = fleet.world.random.choice(CLOCK_RATES)
        self.skew_s = fleet.world.random.uniform(-2, 2)
        self.seat = fleet.world.id()
        self.boots = 0
        self.node: Process | None = None

    def local(self) -> float:
        """What the clock of the machine shows that is never set."""
        return self.fleet.world.now * self.rate

    def start(self) -> None:
        """Start the node, unless it runs."""
        if self.node is None:
            self.node = Process(self)

    def kill(self, *, power: bool = False) -> None:
        """Kill the node; its hubs end with it. Without power they end at once, and the machine boots anew."""
        node, self.node = self.node, None
        self.boots += power
        if node is not None:
            node.die(at_once=power)


# Long because it is a whole process: its loop, its beats, its commits.
class Process:
    """The process of a node: it carries out what its core decides.

    Attributes:
        is_stopped: It was stopped (SIGSTOP): its hubs are not.
        after_beat: Called once, right after the next beat.
    """

    def __init__(self, host: Host) -> None:
        self.host, self.fleet, self.world = host, host.fleet, host.fleet.world
        self.core = FleetCore(host.slots, None, HOLD_S)
        self.is_stopped = False
        self.signals = 0
        self.id = 0
        self.state = "live"
        self.until = 0.0
        self.is_over = False
        self.hubs: dict[tuple[int, int], Hub] = {}
        self.after_beat: Callable[[], object] | None = None
        self._is_dead = False
        self._later: list[Callable[[], object]] = []
        self._outputs: deque[Output] = deque()
        self._is_asking = False
        self._is_away = False
        self._wants_look = False
        self._life = 0
        self._watches_page = False
        self._parcels: list[Parcel] = []
        self._is_sending = False
        self._tick()

    # Being a process.

    def die(self, *, at_once: bool = False) -> None:
        """End without a word."""
        self._is_dead = True
        for hub in self.hubs.values():
            self.world.after(0.0 if at_once else 0.05 * self.world.random.random(), hub.die)

    def stop(self) -> None:
        """SIGSTOP."""
        self.is_stopped = True

    def wake(self) -> None:
        """SIGCONT: what was to happen meanwhile happens now."""
        self.is_stopped = False
        later, self._later = self._later, []
        for call in later:
            self.mine(call)()

    def mine(self, call: Callable[..., object]) -> Callable[..., None]:
        """A function of this process: it is called when the process runs, and never if that is dead."""

        def called(*values: object) -> None:
            if self._is_dead:
                return
            if self.is_stopped:
                self._later.append(partial(call, *values))
            else:
                call(*values)

        return called

    def after(self, local_s: float, call: Callable[[], object]) -> None:
        """Call this later, by the clock of the machine."""
        self.world.after(local_s / self.host.rate, self.mine(call))

    def ask(
        self,
        function: Callable[[], object],
        done: Callable[..., object],
        failed: Callable[[], object],
        timeout_s: float = ANSWER_S,
    ) -> None:
        """Send a statement to the database."""
        network = self.fleet.network
        network.call(self.host.link, function, self.mine(done), self.mine(failed), timeout_s)

    # The loop.

    def _tick(self) -> None:
        self.look()
        if self.core.state != "ended":
            self.after(LOOK_S, self._tick)

    def look(self) -> None:
        """Let the core decide, unless a statement is under way."""
        if self._is_asking:
            self._wants_look = True
            return
        self._wants_look = False
        lease = LeaseView(self.state, is_valid=self.is_valid())
        self.core.look(self.now(), lease, self.signals)
        self._carry_out()

    def now(self) -> Moment:
        """What time it is on this machine."""
        us = START_US + int((self.world.now + self.host.skew_s) * 1e6)
        return Moment(self.host.local(), us)

    def _carry_out(self) -> None:
        while True:
            self._outputs.extend(self.core.take())
            if not self._outputs:
                break
            output = self._outputs.popleft()
            if isinstance(output, Join | ClaimRuns | ListRuns | GiveBack):
                if self._is_away:
                    continue
                self._ask_for(output)
                return
            self._act(output)
        self._is_away = False
        if self.core.state == "ended":
            self._end()
        elif self._wants_look:
            self.look()

    def _end(self) -> None:
        if self.host.node is self:
            self.host.node = None
            self._end_life()

    def _ask_for(self, statement: Join | ClaimRuns | ListRuns | GiveBack) -> None:
        self._is_asking = True
        tables, node = self.fleet.tables, self.id
        if isinstance(statement, Join):
            host = self.host
            sent = host.local()
            form = NodeForm(host.name, host.seat, f"{host.boots}/{int(sent * 1e9)}", host.slots)
            self.ask(lambda: tables.join(form), partial(self._joined, sent), self._no_answer, LEASE_S)
        elif isinstance(statement, ClaimRuns | ListRuns):

            def claim() -> list[Taken]:
                if isinstance(statement, ClaimRuns):
                    tables.claim(node, statement.most)
                return tables.owned(node)

            self.ask(claim, partial(self._answered, self.core.owns), self._no_answer)
        else:
            run, verdict = statement.run, statement.verdict
            give_back = partial(
                tables.give_back,
                run.no,
                run.fence,
                verdict.state,
                verdict.due_us,
                verdict.reason,
                verdict.strikes,
                refuses=statement.refuses,
            )
            self.ask(give_back, partial(self._answered, partial(self.core.given_back, run)), self._no_answer)

    def _answered(self, take: Callable[..., object], found: object) -> None:
        self._is_asking = False
        take(found)
        self._carry_out()

    def _no_answer(self) -> None:
        self._is_asking = False
        self._is_away = True
        self.core.no_answer("no answer")
        self._carry_out()

    def _act(self, action: Action) -> None:
        match action:
            case BeginRun(run):
                self.hubs[run.no, run.fence] = Hub(self, run)
            case StopRun(run) | HurryRun(run):
                self.hubs[run.no, run.fence].stop()
            case KillRun(run):
                self.hubs[run.no, run.fence].die()
            case EndLife():
                self._end_life()
            case Note() | ForgetRun():
                pass

    def work_ended(self, run: Taken, end: WorkEnd) -> None:
        """The work on a run is over."""
        self.hubs.pop((run.no, run.fence), None)
        self.core.work_ended(run, end, self.now())
        self.look()

    # The lease.

    def is_valid(self) -> bool:
        """Whether the runs may continue."""
        return not self.is_over and self.host.local() < self.until

    def _joined(self, sent: float, number: int) -> None:
        self._is_asking = False
        self.id, self.state, self.is_over = number, "live", False
        self._life += 1
        self._renew(sent)
        self.core.joined()
        self._carry_out()
        self.after(LEASE_S / BEATS, partial(self._beat, self._life))

    def _end_life(self) -> None:
        self._life += 1
        self.is_over = True
        for hub in [*self.hubs.values()]:
            hub.die()
        self.hubs.clear()
        self._parcels.clear()
        if self.id and self.state in {"live", "draining"}:
            node = self.id
            self.ask(lambda: self.fleet.tables.leave(node), nothing, nothing)

    def _beat(self, life: int, *, is_second: bool = False, sent: float | None = None) -> None:
        if life != self._life:
            return
        sent = self.host.local() if sent is None else sent
        failed = partial(self._beat_failed, life, sent, is_second=is_second)
        node, tables = self.id, self.fleet.tables

        def beat() -> tuple[str, bool, list[int]]:
            found = tables.beat(node)
            asked = [run.no for run in tables.owned(node) if tables.asked(run.no)] if tables.requests else []
            return found.state, found.is_queued, asked

        self.ask(beat, partial(self._beaten, life, sent), failed, LEASE_S - MARGIN_S)

    def _beat_failed(self, life: int, sent: float, *, is_second: bool) -> None:
        if is_second:
            self.after(LEASE_S / BEATS, partial(self._beat, life))
        else:
            self._beat(life, is_second=True, sent=sent)

    def _beaten(self, life: int, sent: float, found: tuple[str, bool, list[int]]) -> None:
        if life != self._life:
            return
        state, is_queued, asked = found
        has_changed, self.state = state != self.state, state
        if state in {"live", "draining"}:
            self._renew(sent)
            self.after(LEASE_S / BEATS, partial(self._beat, life))
            if self.after_beat is not None:
                self.after_beat()
                self.after_beat = None
        else:
            self.is_over = True
            for hub in self.hubs.values():
                hub.hold()
        for hub in self.hubs.values():
            if hub.run.no in asked:
                hub.ask()
        if is_queued or has_changed:
            self.look()

    def _renew(self, sent: float) -> None:
        margin = 0.0 if "hold at the end of the lease" in self.fleet.flaws else MARGIN_S
        self.until = sent + LEASE_S - margin
        if (
            self.is_valid()
        ):  # the answer may be an old one, which a stopped process has read when it was woken
            for hub in self.hubs.values():
                hub.go_on()
            if not self._watches_page:
                self._watch_page()

    def _watch_page(self) -> None:
        """Hubs look at the page by themselves: also if the process of the node is stopped."""
        left = (self.until - self.host.local()) / self.host.rate
        self._watches_page = left > 0 and not self.is_over and not self._is_dead
        if self._watches_page:
            self.world.after(left + 1e-6, self._watch_page)
            return
        for hub in self.hubs.values():
            self.world.after(STOP_S * self.world.random.random() ** 0.1, hub.hold_if_late)

    # Commits.

    def send(self, parcel: Parcel) -> None:
        """Take a commit along with the next statement."""
        self._parcels.append(parcel)
        if not self._is_sending:
            self._send()

    def _send(self) -> None:
        batch, self._parcels = self._parcels, []
        self._is_sending = bool(batch)
        if batch:
            self._deliver(batch)

    def _deliver(self, batch: list[Parcel]) -> None:
        if "resend with new bytes" in self.fleet.flaws:
            batch = [parcel._replace(commit=parcel.hub.encode_anew(parcel.commit)) for parcel in batch]
        commits = [(parcel.hub.run.no, parcel.commit) for parcel in batch]
        tables = self.fleet.tables
        again = partial(self.after, self.world.random.random(), partial(self._deliver, batch))

        def append() -> list[tuple[str, KeptPlace]]:
            outcomes = tables.append(commits)
            return [(outcomes[run], tables.look(run, commit.seq)) for run, commit in commits]

        self.ask(append, partial(self._delivered, batch), again)

    def _delivered(self, batch: list[Parcel], outcomes: list[tuple[str, KeptPlace]]) -> None:
        again = list[Parcel]()
        for parcel, (outcome, place) in zip(batch, outcomes, strict=True):
            became = outcome if outcome != "look" else _what_became(parcel.commit, place)
            if became == "again":
                again.append(parcel)
            else:
                parcel.hub.learn(parcel, became)
        if again:
            self._deliver(again)
        else:
            self._send()


def _what_became(commit: Commit, place: KeptPlace) -> str:
    at = place.found
    facts = (None, None, None) if at is None else (at.fence, at.last, at.crc)
    return what_became(commit, place.owner_fence, facts, place.ends)


# Long because it is a whole hub: what it does next, standing still, and its end.
class Hub:
    """A hub that runs a run: it executes steps, which change files, and records that they are finished with a copy of the files."""

    def __init__(self, process: Process, run: Taken) -> None:
        self.process, self.run = process, run
        self.fleet, self.world = process.fleet, process.world
        self._is_asked = False
        self._is_committing = False
        self._program = self.fleet.programs[run.no]
        self._step = 0
        self._progress = 0
        self._before = 0
        self._files = 0
        self._seq: int = 0
        self._crc: int = 0
        self._requests = set[int]()
        self._is_gone = False
        self._is_stopping = False
        self._is_held = False
        self._is_working = False
        self._has_started = False
        self._left = 0.0
        self._since = 0.0
        self._turn = 0
        self._waiting: list[Callable[[], object]] = []
        tables = self.fleet.tables
        process.ask(
            lambda: tables.commits(run.no),
            self._start,
            lambda: self._end(Postponed("the database did not answer")),
        )

    # Beginning.

    def _start(self, commits: list[Commit]) -> None:
        if self._is_gone:
            return
        if self._is_stopping:
            self._end(Postponed("its node stops"))
            return
        for commit in commits:
            self._read(commit)
        self._before = self._progress
        self.world.after(self.world.random.uniform(0.02, 0.2), self._begin)

    def _read(self, commit: Commit) -> None:
        if commit.seq != self._seq + 1 or commit.crc != crc32(commit.lines, self._crc):
            self.fleet.witness.problems.append(f"H2: the journal of run {self.run.no} is not a history")
        self._seq, self._crc = commit.last, commit.crc
        for line in commit.lines.decode().splitlines():
            kind, value = (*line.split(), "")[:2]
            if kind == "finished":
                self._step += 1
                self._progress += 1
            elif kind == "kept":
                self._files = int(value)
            elif kind == "taken":
                self._requests.add(int(value))

    def _begin(self) -> None:
        if self._is_gone:
            return
        if not self.process.is_valid():
            self._is_held = True
            self._waiting.append(self._begin)
            return
        self._has_started = True
        self._commit("opened\n", self._opened)

    def _opened(self) -> None:
        run, tables = self.run, self.fleet.tables
        self._errand(lambda: tables.alive(run.no, run.fence))
        self._next()

    def _errand(self, function: Callable[[], object]) -> None:
        """A statement that is repeated until it is answered."""

        def again() -> None:
            if not self._is_gone:
                self._errand(function)

        self.process.ask(function, nothing, again)

    # Working.

    def _next(self) -> None:
        if self._is_asked and self._answer_requests(self._next):
            return
        if self._is_stopping:
            self._commit("stopped\n", partial(self._leave, "interrupted", "terminated"))
        elif self._step == len(self._program.steps):
            self._commit("ended\n", partial(self._leave, "completed", ""))
        else:
            self._left = self._program.steps[self._step]
            self._execute()

    def ask(self) -> None:
        """A request for the run is open: it is taken now, or with the next turn."""
        self._is_asked = True
        if self._is_working and not self._is_committing:
            self._answer_requests(nothing)

    def _answer_requests(self, then: Callable[[], object]) -> bool:
        self._is_asked = False
        new = [number for number in self.fleet.tables.asked(self.run.no) if number not in self._requests]
        known = [number for number in self.fleet.tables.asked(self.run.no) if number in self._requests]
        early = "settle before the commit" in self.fleet.flaws
        for number in [*known, *(new if early else ())]:
            self._settle(number)
        if not new:
            return False

        def taken() -> None:
            self._requests.update(new)
            for number in () if early else new:
                self._settle(number)
            then()

        self._commit("".join(f"taken {number}\n" for number in new), taken)
        return True

    def _settle(self, number: int) -> None:
        run, tables = self.run, self.fleet.tables
        self._errand(lambda: tables.settle(number, run.no, run.fence))

    def _execute(self) -> None:
        """Begin or continue the effect of a step."""
        self.fleet.witness.begin(self.run, self._step, self._files)
        self._is_working, self._since = True, self.world.now
        self._turn += 1
        if self._step == self._program.poison:
            self.world.after(0.1, partial(self._poison, self._turn))
        self.world.after(self._left, partial(self._executed, self._turn))

    def _poison(self, turn: int) -> None:
        if turn == self._turn and self._is_working:
            self.fleet.witness.take_down(self.process.host)

    def _rest(self) -> None:
        """Stop executing, where it is."""
        if self._is_working:
            self._is_working = False
            self._left -= self.world.now - self._since
            self.fleet.witness.end(self.run, self._step)
        self._turn += 1

    def _executed(self, turn: int) -> None:
        if turn != self._turn or self._is_gone:
            return
        if self._is_committing:
            self.world.after(0.01, partial(self._executed, turn))
            return
        self._is_working = False
        self.fleet.witness.end(self.run, self._step)
        self._files += 1
        self._step += 1
        if "copy after the finish" in self.fleet.flaws:
            copy = partial(self._commit, f"kept {self._files}\n", self._next)
            self._commit("finished\n", copy)
        else:
            self._commit(f"finished\nkept {self._files}\n", self._finished)

    def _finished(self) -> None:
        run, tables = self.run, self.fleet.tables
        if run.strikes:
            self._errand(lambda: tables.progressed(run.no, run.fence))
        self._next()

    def _commit(self, lines: str, done: Callable[[], object]) -> None:
        self._is_committing = True
        text = lines.encode()
        seq, last = self._seq + 1, self._seq + lines.count("\n")
        commit = Commit(seq, last, self.run.fence, crc32(text, self._crc), text)
        self.process.mine(self.process.send)(Parcel(self, commit, done))

    def encode_anew(self, commit: Commit) -> Commit:
        """The same entries with the time of now."""
        text = commit.lines.replace(b"\n", f" at {self.world.now}\n".encode())
        return commit._replace(lines=text, crc=crc32(text, self._crc))

    def learn(self, parcel: Parcel, outcome: str) -> None:
        """What became of a commit."""
        if self._is_gone:
            return
        if self._is_held:
            self._waiting.append(partial(self.learn, parcel, outcome))
            return
        if outcome in {"written", "kept"}:
            self._is_committing = False
            self._seq, self._crc = parcel.commit.last, parcel.commit.crc
            self._progress += b"finished" in parcel.commit.lines
            self.fleet.witness.acknowledge(self.run, parcel.commit)
            parcel.done()
            return
        if outcome == "corrupt":
            self.fleet.witness.problems.append(f"H1: run {self.run.no} was taken for damaged")
        self.die()

    # Standing still.

    def hold_if_late(self) -> None:
        """The lease may have been renewed meanwhile."""
        if not self.process.is_valid():
            self.hold()

    def hold(self) -> None:
        """Stand still."""
        if not self._is_held and not self._is_gone and self._has_started:
            self._is_held = True
            if self._is_working:
                self._rest()
                self._waiting.append(self._execute)
        if self._is_stopping and self._is_held:
            self.die()

    def go_on(self) -> None:
        """The lease was renewed."""
        if self._is_held:
            self._is_held = False
            waiting, self._waiting = self._waiting, []
            for call in waiting:
                call()

    # Ending.

    def stop(self) -> None:
        """SIGTERM: end at once, in order. One that stands still records nothing."""
        self._is_stopping = True
        if self._is_held:
            self.die()
        elif self._is_working and not self._is_committing:
            self._rest()
            self._next()

    def die(self) -> None:
        """SIGKILL, or the end of its link."""
        if not self._is_gone:
            self._rest()
            self._leave("interrupted", "")

    def _leave(self, status: str, stop: str) -> None:
        ending = Ending(status=status, stop=stop, progress=self._progress)
        self._end(HubEnded(self.fleet.job(self.run), self._before, ending))

    def _end(self, end: WorkEnd | CannotRun) -> None:
        if not self._is_gone:
            self._is_gone = True
            report = self.process.mine(self.process.work_ended)
            self.world.after(0.1 * self.world.random.random(), partial(report, self.run, end))
