"""What a node of a database decides, without I/O: facts and times in, statements for the database and actions out.

Facts are answers of the database, ends of hubs and signals. ``fleet.py`` carries the statements and actions out, in their order. A
statement that the database does not answer is reported by ``no_answer``, and the next ``look`` asks for what is needed then. Every
statement bears that its answer was lost. A claim whose answer was lost has left a run that the node owns and does not know: the
next claim is answered with everything that the node owns. A node without room asks for that list alone.

**A run that is missing in the list is lost**: a server that has taken over might lack the claim, and another node may begin the
same step at any moment. So its hub is killed at once, with its tree, and nothing is given back: the fence may be that of another
owner by now. What notices the loss sooner (``depot/fleet.py``) reports it by ``lost``.

``LOCAL_CHANGES`` is the table of what the node is to itself. *Holding* is not its decision: the processes of its runs stand still
by themselves when the lease is over. The node takes nothing meanwhile, and stops the processes when that lasts too long.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, NamedTuple, TypeAlias

from msgspec.structs import replace

from bartack.depot import Job, Standing, Verdict
from bartack.depot.taken import HOLD_S, Change, Taken
from bartack.node._core import STOPPED, Ending, Policy, judge
from bartack.node._node import describe

AGAIN_US: Final = 5_000_000
"""How long a run that this node could not begin waits for another one."""
DRAIN_S: Final = 600.0
"""How long a node that ends waits for the steps that are in flight."""
END_S: Final = 30.0
"""How long the runs of a node that is dead, or that ends at once, may take to be gone."""
STUCK_S: Final = 10.0
"""How long a run that is to stop now may take while the database is away. Its hub may wait for the end of a commit."""

LocalState = Literal["joining", "live", "holding", "waiting", "draining", "killing", "ending", "ended"]
LocalEvent = Literal["joined", "late", "renewed", "held too long", "stop", "stop again", "dead", "empty"]

_CHANGES: Final[dict[tuple[LocalState, LocalEvent], LocalState]] = {
    ("joining", "joined"): "live",
    ("joining", "stop"): "ended",
    ("live", "late"): "holding",
    ("live", "stop"): "draining",
    ("live", "dead"): "ending",
    ("holding", "renewed"): "live",
    ("holding", "held too long"): "waiting",
    ("holding", "stop"): "draining",
    ("holding", "dead"): "ending",
    ("waiting", "renewed"): "live",
    ("waiting", "stop"): "draining",
    ("waiting", "dead"): "ending",
    ("draining", "empty"): "ended",
    ("draining", "stop again"): "killing",
    ("draining", "dead"): "ending",
    ("killing", "empty"): "ended",
    ("killing", "dead"): "ending",
    ("ending", "empty"): "joining",
}
"""``late``: the lease was not renewed in time. ``stop``: a signal, or the database says that the node is to drain."""

LOCAL_CHANGES: Final = tuple(Change(start, event, end) for (start, event), end in _CHANGES.items())
"""A node, as its own process sees it."""
_TAKING: Final = frozenset({"live", "holding", "waiting"})


class Moment(NamedTuple):
    """What time it is.

    Attributes:
        s: Seconds, on a clock that is never set.
        us: Microseconds since 1970.
    """

    s: float
    us: int


class LeaseView(NamedTuple):
    """The lease of the node, as its last beat has left it.

    Attributes:
        state: What the database has answered: ``live``, ``draining``, ``left`` or ``dead``.
        is_valid: Whether the runs may continue.
        is_hurried: A person does not want to wait for steps in flight.
    """

    state: str
    is_valid: bool
    is_hurried: bool = False


# What becomes of the work on a run, as its thread reports it.


class HubEnded(NamedTuple):
    """A hub was there, or could not be started, and nothing of the run is left on this machine."""

    job: Job
    before: int
    ending: Ending
    note: str = ""
    """What became of its branches, if it is completed."""


class Postponed(NamedTuple):
    """The run could not begin now: the database did not answer, or the node stops."""

    why: str


class CannotRun(NamedTuple):
    """This node cannot run it; another one may."""

    why: str


class Rewound(NamedTuple):
    """The database has lost acknowledged entries of it: a person decides."""

    why: str


class Damaged(NamedTuple):
    """Its journal is damaged in the database, where every node reads the same: likewise."""

    why: str


WorkEnd: TypeAlias = HubEnded | Postponed | CannotRun | Rewound | Damaged


# Statements for the database.


class Join(NamedTuple):
    """Become a node; ``joined`` or ``no_answer`` must follow."""


class ClaimRuns(NamedTuple):
    """Claim up to ``most`` runs; ``owns`` must follow, with everything that the node owns then."""

    most: int


class ListRuns(NamedTuple):
    """Ask what the node owns; ``owns`` must follow."""


class GiveBack(NamedTuple):
    """End the ownership of a run; ``given_back`` must follow."""

    run: Taken
    verdict: Verdict
    refuses: bool = False


# Actions.


class BeginRun(NamedTuple):
    """Begin the work on a run; ``work_ended`` must follow."""

    run: Taken


class StopRun(NamedTuple):
    """Ask the hub of a run to stop when no step is in flight, such that another node can continue it."""

    run: Taken


class HurryRun(NamedTuple):
    """Ask the hub of a run to stop now. Its steps in flight are interrupted, and another node executes them again."""

    run: Taken


class KillRun(NamedTuple):
    """End the hub of a run at once."""

    run: Taken


class ForgetRun(NamedTuple):
    """Nothing of a run that was lost is left on this machine."""

    run: Taken


class EndLife(NamedTuple):
    """The node is dead, and its runs are gone: close what belongs to this life. The next one begins with ``Join``."""


class Note(NamedTuple):
    """A line about what the node does."""

    text: str


Statement: TypeAlias = Join | ClaimRuns | ListRuns | GiveBack
Action: TypeAlias = BeginRun | StopRun | HurryRun | KillRun | ForgetRun | EndLife | Note
Output: TypeAlias = Statement | Action


class _Owned:
    """A run that the node owns.

    Attributes:
        run: Which.
        end: What becomes of it, once the work on it has ended.
        is_held: The node has stopped it because it had stood still for too long.
        is_lost: The database does not have this node as its owner any more.
    """

    def __init__(self, run: Taken) -> None:
        self.run = run
        self.end: GiveBack | None = None
        self.is_held = False
        self.is_lost = False


class FleetCore:
    """See the module.

    Attributes:
        state: What it is now.

    Args:
        slots: How many runs it runs at a time.
        policy: How patient it is with runs that die.
        hold_s: How long runs stand still before it ends them.
        drain_s: How long it waits for steps in flight before it ends.
    """

    def __init__(
        self, slots: int, policy: Policy | None = None, hold_s: float = HOLD_S, drain_s: float = DRAIN_S
    ) -> None:
        self.state: LocalState = "joining"
        self._slots = slots
        self._policy = policy or Policy()
        self._hold_s = hold_s
        self._owned: dict[int, _Owned] = {}
        self._waits: dict[int, int] = {}
        """How often in a row this machine has lacked something that a run needs."""
        self._late_since: float | None = None
        self._drain_s = drain_s
        self._drains_since: float | None = None
        self._is_hurried = False
        self._hurried_at: float | None = None
        self._ends_since = 0.0
        self._is_away = False
        self._is_joining = False
        self._out: list[Output] = []

    def take(self) -> list[Output]:
        """What is to be done next, in its order; each is returned once."""
        out, self._out = self._out, []
        return out

    @property
    def owned(self) -> Sequence[Taken]:
        """The runs that it owns, as far as it knows."""
        return [owned.run for owned in self._owned.values()]

    # What happens.

    def look(self, now: Moment, lease: LeaseView, stops: int = 0) -> None:
        """Decide what is due. To be called whenever something has happened, and every second.

        Args:
            now: What time it is.
            lease: The lease; of no meaning while it joins.
            stops: How many signals to stop there were.
        """
        if self.state == "joining":
            if stops:
                self._out = [output for output in self._out if not isinstance(output, Join)]
                self._change("stop")
            else:
                self._join()
        elif self.state != "ended":
            self._follow_lease(now, lease)
            self._follow_stops(now, stops, lease)
            self._kill_stuck(now)
            self._give_up_waiting(now)
            self._ask()
            self._settle()

    def joined(self) -> None:
        """The database has answered: this is a node."""
        self._late_since = None
        self._is_joining = False
        self._answered()
        self._change("joined")
        self._out.append(ClaimRuns(self._slots))

    def owns(self, runs: Sequence[Taken]) -> None:
        """All that the node owns. What an earlier claim has left, whose answer was lost, is begun; what is missing is lost."""
        self._answered()
        there = {(run.no, run.fence) for run in runs}
        for owned in [*self._owned.values()]:
            if owned.end is None and (owned.run.no, owned.run.fence) not in there:
                self.lost(owned.run.no, owned.run.fence, "the database has another owner of it, or none")
        for run in runs:
            if run.no in self._owned or self.state == "ending":
                continue
            self._owned[run.no] = owned = _Owned(run)
            if self.state in _TAKING:
                self._out += [Note(f"{run.id} begins here"), BeginRun(run)]
            else:
                owned.end = GiveBack(run, _queued(run, "its node stops"))

    def lost(self, run: int, fence: int, why: str) -> None:
        """This ownership of a run is gone, though the node is not dead: end what is left of it here, and forget the run."""
        owned = self._owned.get(run)
        if owned is None or owned.run.fence != fence or owned.is_lost or owned.end is not None:
            return
        if self.state != "ending":
            owned.is_lost = True
            self._out += [
                Note(f"{owned.run.id} is lost, and its processes are killed: {why}"),
                KillRun(owned.run),
            ]

    def given_back(self, run: Taken, outcome: str | None) -> None:
        """The answer to a ``GiveBack``: the state of the run, or ``None`` if it had another owner already."""
        self._answered()
        owned = self._owned.pop(run.no, None)
        if outcome is None:
            self._note(f"{run.id} has another owner by now")
        elif outcome == "held" and owned is not None and owned.end is not None:
            self._note(f"{run.id} is held: {owned.end.verdict.reason}")
        self._settle()

    def no_answer(self, problem: str) -> None:
        """The database did not answer a statement, so it is not known whether it was carried out."""
        is_joining, self._is_joining = self.state == "joining", False
        if not self._is_away:
            self._is_away = True
            self._note(
                f"it cannot join yet: {problem}" if is_joining else f"the database does not answer: {problem}"
            )

    def work_ended(self, run: Taken, end: WorkEnd, now: Moment) -> None:
        """The work on a run has ended, and nothing of it is left on this machine."""
        owned = self._owned.get(run.no)
        if owned is None or owned.run.fence != run.fence:
            return
        if self.state == "ending" or owned.is_lost:
            del self._owned[run.no]
            if self.state != "ending":
                self._out.append(ForgetRun(run))
            self._settle()
        else:
            owned.end = self._decide(owned, end, now)

    # What becomes of a run.

    def _decide(self, owned: _Owned, end: WorkEnd, now: Moment) -> GiveBack:
        run = owned.run
        match end:
            case Postponed(why):
                return GiveBack(run, _queued(run, why, now.us + AGAIN_US))
            case CannotRun(why):
                self._note(f"{run.id} cannot run here: {why}")
                return GiveBack(run, _queued(run, why), refuses=True)
            case Rewound(why) | Damaged(why):
                return GiveBack(run, Verdict(state="held", strikes=run.strikes, reason=why))
            case HubEnded(_, _, ending, _) if ending.problem:
                return self._decide(owned, CannotRun(ending.problem), now)
            case HubEnded():
                verdict = self._judge(owned, end, now)
                if end.note and verdict.state == "over":
                    verdict = replace(verdict, reason=end.note)
                self._note(describe(end.job, verdict, now.us))
                return GiveBack(run, verdict)

    def _judge(self, owned: _Owned, end: HubEnded, now: Moment) -> Verdict:
        ending = end.ending
        strikes = 0 if ending.progress > end.before else owned.run.strikes
        has_recorded = bool(ending.stop) or ending.status != "interrupted"
        if not has_recorded and self.state == "killing":
            return Verdict(state="queued", strikes=strikes, reason="its node has ended at once")
        if not has_recorded and (owned.is_held or self._late_since is not None):
            # Its hub has ended because the lease was gone, which is not the fault of the run.
            return Verdict(state="queued", strikes=strikes, reason="the database was away for too long")
        number, waits = owned.run.no, self._waits.pop(owned.run.no, 0)
        standing = Standing(job=end.job, state="owned", strikes=strikes, waits=waits, progress=end.before)
        verdict = judge(standing, ending, now.us, self._policy)
        if verdict.waits:
            self._waits[number] = verdict.waits
        # Only a finished step clears the strikes: a run may take hosts down with a clean stop in between.
        return replace(verdict, strikes=strikes) if ending.stop in STOPPED else verdict

    # What the node does.

    def _follow_lease(self, now: Moment, lease: LeaseView) -> None:
        if lease.state not in {"live", "draining"}:
            if self.state != "ending":
                self._change("dead")
                self._note("this node was declared dead")
                self._kill_all(now)
        elif lease.is_valid:
            self._late_since = None
            if self.state in {"holding", "waiting"}:
                self._hurried_at = None
                self._change("renewed")
        elif self._late_since is None:
            self._late_since = now.s
            if self.state == "live":
                self._change("late")
        elif self.state == "holding" and now.s - self._late_since >= self._hold_s:
            self._change("held too long")
            self._note(f"its runs have stood still for {self._hold_s:g} s, and are stopped")
            self._stop_all(HurryRun, is_held=True)
            self._hurried_at = now.s

    def _follow_stops(self, now: Moment, stops: int, lease: LeaseView) -> None:
        if (stops or lease.state == "draining") and self.state in _TAKING:
            self._change("stop")
            self._drains_since = now.s
            self._note(
                f"takes no more runs; those that it has end their steps in flight first, for {self._drain_s:g} s at most"
                if self._owned
                else "takes no more runs"
            )
            self._stop_all(StopRun)
        if stops > 1 and self.state == "draining":
            self._change("stop again")
            self._kill_all(now)
        if self.state == "draining" and not self._is_hurried and self._is_out_of_time(now, lease):
            self._is_hurried = True
            self._note("interrupts the steps that are in flight")
            self._stop_all(HurryRun)
            self._hurried_at = now.s

    def _is_out_of_time(self, now: Moment, lease: LeaseView) -> bool:
        """Whether a node that drains interrupts the steps in flight: steps that stand still for too long do not end either."""
        stands_still_s = 0.0 if self._late_since is None else now.s - self._late_since
        waits_s = 0.0 if self._drains_since is None else now.s - self._drains_since
        return lease.is_hurried or waits_s >= self._drain_s or stands_still_s >= self._hold_s

    def _stop_all(self, how: type[StopRun | HurryRun], *, is_held: bool = False) -> None:
        for owned in self._owned.values():
            owned.is_held = owned.is_held or is_held
            if owned.end is None and not owned.is_lost:
                self._out.append(how(owned.run))

    def _kill_all(self, now: Moment) -> None:
        self._ends_since = now.s
        for number, owned in list(self._owned.items()):
            if owned.end is None:
                self._out.append(KillRun(owned.run))
            elif self.state == "ending":
                del self._owned[number]

    def _kill_stuck(self, now: Moment) -> None:
        """Kill what cannot stop in order, because the database does not answer: its processes would stand still for ever."""
        if self._late_since is None or self._hurried_at is None:
            return
        if now.s - max(self._late_since, self._hurried_at) < STUCK_S:
            return
        self._hurried_at = None
        for owned in self._owned.values():
            if owned.end is None and not owned.is_lost:
                owned.is_held = True
                self._out.append(KillRun(owned.run))

    def _give_up_waiting(self, now: Moment) -> None:
        """What cannot be ended keeps the lock of its tree: no hub on this machine begins the run before it is gone."""
        if self.state in {"ending", "killing"} and now.s - self._ends_since >= END_S:
            self._owned.clear()

    def _ask(self) -> None:
        if self.state == "ending":
            return
        self._out += [owned.end for owned in self._owned.values() if owned.end is not None]
        free = self._slots - len(self._owned)
        if self.state == "live" and free > 0:
            self._out.append(ClaimRuns(free))
        elif self.state in {"live", "draining"} and self._late_since is None and self._is_at_work():
            self._out.append(ListRuns())

    def _is_at_work(self) -> bool:
        return any(owned.end is None and not owned.is_lost for owned in self._owned.values())

    def _settle(self) -> None:
        """Take the step that waits for the last run to be gone."""
        if self._owned or self.state not in {"draining", "killing", "ending"}:
            return
        if self._change("empty") == "joining":
            self._out += [EndLife(), Note("it joins anew")]
            self._join()

    def _join(self) -> None:
        """Ask for it, unless that was asked already and is not answered."""
        if not self._is_joining:
            self._is_joining = True
            self._out.append(Join())

    def _answered(self) -> None:
        if self._is_away:
            self._is_away = False
            self._note("the database answers again")

    def _change(self, event: LocalEvent) -> LocalState:
        self.state = state = _CHANGES[self.state, event]
        return state

    def _note(self, text: str) -> None:
        self._out.append(Note(text))


def _queued(run: Taken, why: str, due_us: int = 0) -> Verdict:
    return Verdict(state="queued", due_us=due_us, strikes=run.strikes, reason=why)
