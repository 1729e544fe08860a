"""One child as a supervisor sees it: its states, and the commands that a supervisor gives.

Only data; the changes of single children are in ``_children.py``, the decisions in ``_core.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Literal, NamedTuple

from bartack.errors import BartackError
from bartack.supervision.supervisor._report import ChildEnd, CrashReport
from bartack.supervision.supervisor.spec import ChildSpec

ChildState = Literal[
    "idle", "starting", "running", "waiting", "failed", "stopping", "stopped", "ended", "escalated"
]

TRANSITIONS: Final[Mapping[ChildState, frozenset[ChildState]]] = MappingProxyType(
    {
        "idle": frozenset({"starting"}),
        "starting": frozenset({"running", "failed", "stopping"}),
        "running": frozenset({"waiting", "ended", "escalated", "stopping", "stopped"}),
        "waiting": frozenset({"starting", "stopped"}),
        "failed": frozenset({"waiting", "escalated", "stopped"}),
        "stopping": frozenset({"stopped"}),
        "stopped": frozenset({"starting"}),
        "ended": frozenset({"starting"}),
        "escalated": frozenset(),
    }
)
"""The allowed changes of a child's state. A *failed* child did not become ready; a *waiting* one waits out its backoff."""

ALIVE: Final[frozenset[ChildState]] = frozenset({"starting", "running", "stopping"})


class StartChild(NamedTuple):
    """Start a child; ``ready`` or ``ended`` must follow for this incarnation."""

    spec: ChildSpec
    incarnation: int


class StopChild(NamedTuple):
    """Ask a child to end; ``ended`` must follow. After ``grace_s`` the core commands ``KillChild``."""

    name: str
    incarnation: int
    grace_s: float


class KillChild(NamedTuple):
    """Kill a child."""

    name: str
    incarnation: int


class ChildDown(NamedTuple):
    """A child ended for good: it is started again only on request."""

    name: str
    incarnation: int
    reason: str


class Crashed(NamedTuple):
    """A child ended abnormally."""

    report: CrashReport


class Answer(NamedTuple):
    """The result of a request."""

    request: int
    error: BartackError | None = None


class SupervisorStarted(NamedTuple):
    """All children are ready."""


class SupervisorEnded(NamedTuple):
    """No child is left. ``error`` is why, unless the supervisor was asked to stop."""

    reason: Literal["shutdown", "intensity_exceeded", "start_failed"]
    error: BartackError | None


Command = (
    StartChild | StopChild | KillChild | ChildDown | Crashed | Answer | SupervisorStarted | SupervisorEnded
)


class ChildInfo(NamedTuple):
    """One child as it is now."""

    name: str
    kind: str
    state: ChildState
    incarnation: int
    pid: int | None
    restart: str
    last_reason: str


class Child:
    """The state of one child."""

    def __init__(self, spec: ChildSpec, request: int | None = None) -> None:
        self.spec = spec
        self.state: ChildState = "idle"
        self.incarnation = 0
        self.began_ns = 0
        self.ready_ns: int | None = None
        self.failures = 0
        self.due_ns: int | None = None
        """When it is too late to get ready or to end, or time to start again."""
        self.late = False
        self.dead: ChildEnd | None = None
        """How it ended, until that is decided upon."""
        self.request = request
        """The request that its start or its stop answers."""
        self.pid: int | None = None
        self.last_reason = ""

    def move(self, state: ChildState) -> None:
        """Change the state."""
        assert state in TRANSITIONS[self.state], f"{self.spec.name}: {self.state} -> {state}"
        self.state = state
        self.due_ns = None

    def info(self) -> ChildInfo:
        """The child as others see it."""
        spec = self.spec
        kind = spec.kind or ""
        return ChildInfo(
            spec.name, kind, self.state, self.incarnation, self.pid, spec.restart, self.last_reason
        )
