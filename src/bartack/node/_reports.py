"""What a node of a database reports to telemetry, from what its loop sees: states of the node, answers of the database."""

from __future__ import annotations

from bartack.depot import Verdict
from bartack.depot.taken import Taken
from bartack.node._fleet_core import LocalState
from bartack.telemetry import Telemetry
from bartack.telemetry.catalogue import (
    CopyRestored,
    DepotAway,
    DepotBack,
    DepotRewound,
    NodeDead,
    NodeFreed,
    NodeHeld,
    NodeJoined,
    NodeLeft,
    RunClaimed,
    RunHeld,
    RunReleased,
    RunTakenOver,
)

_STILL = frozenset({"holding", "waiting"})


class FleetEvents:
    """See the module.

    Args:
        telemetry: Takes the events.
        node: What people call the node.
        slots: How many runs it runs at a time.
    """

    def __init__(self, telemetry: Telemetry, node: str, slots: int) -> None:
        self._telemetry = telemetry
        self._node = node
        self._slots = slots
        self._state: LocalState = "joining"
        self._held_since: float | None = None
        self._away_since: float | None = None
        self._begun: dict[int, float] = {}

    def joined(self, number: int) -> None:
        """The database has answered: this is a node."""
        self._begun.clear()
        self._held_since = None
        self._telemetry.emit(NodeJoined(slots=self._slots, node=self._node, number=number))

    def look(self, state: LocalState, runs: int, now_s: float) -> None:
        """The node has decided what is due, and is in this state."""
        before, self._state = self._state, state
        if before == state:
            return
        if state in _STILL and self._held_since is None:
            self._held_since = now_s
            self._telemetry.emit(NodeHeld(runs=runs, node=self._node))
        elif state == "live" and self._held_since is not None:
            took_ns, self._held_since = _ns(now_s - self._held_since), None
            self._telemetry.emit(NodeFreed(runs=runs, duration_ns=took_ns, node=self._node))
        elif state == "ending":
            self._telemetry.emit(NodeDead(runs=runs, node=self._node))
        elif state == "ended":
            self._telemetry.emit(NodeLeft(node=self._node))

    def begun(self, run: Taken, now_s: float) -> None:
        """The node owns a run, and begins it."""
        self._begun[run.no] = now_s
        event = (
            RunTakenOver(strikes=run.strikes, node=self._node, run=run.id, fence=run.fence)
            if run.strikes
            else RunClaimed(node=self._node, run=run.id, fence=run.fence)
        )
        self._telemetry.emit(event)

    def given_back(self, run: Taken, verdict: Verdict, state: str | None, now_s: float) -> None:
        """The node owns a run no longer; ``None`` as its state: it had another owner already."""
        took_ns = _ns(now_s - self._begun.pop(run.no, now_s))
        if state == "held":
            held = RunHeld(duration_ns=took_ns, node=self._node, run=run.id, reason=verdict.reason)
            self._telemetry.emit(held)
        elif state is not None:
            released = RunReleased(
                duration_ns=took_ns, node=self._node, run=run.id, state=state, reason=verdict.reason
            )
            self._telemetry.emit(released)

    def lost(self, run: Taken) -> None:
        """The node does not own a run any more, and did not give it back."""
        self._begun.pop(run.no, None)

    def restored(self, run: Taken, took_s: float) -> None:
        """The workspace of a run is here as its latest copy has it; called in the thread of its work."""
        event = CopyRestored(duration_ns=_ns(took_s), node=self._node, run=run.id)
        self._telemetry.emit(event)

    def rewound(self, run: str, entries: int) -> None:
        """The database had lost entries of a run, which were sent again; called in the thread that sends them."""
        self._telemetry.emit(DepotRewound(entries=entries, run=run))

    def away(self, problem: str, now_s: float) -> None:
        """The database did not answer."""
        if self._away_since is None:
            self._away_since = now_s
            self._telemetry.emit(DepotAway(node=self._node, problem=problem))

    def answered(self, now_s: float) -> None:
        """The database has answered."""
        if self._away_since is not None:
            took_ns, self._away_since = _ns(now_s - self._away_since), None
            self._telemetry.emit(DepotBack(duration_ns=took_ns, node=self._node))


def _ns(seconds: float) -> int:
    return int(seconds * 1e9)
