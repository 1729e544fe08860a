"""What a supervisor decides. It starts nothing and waits for nothing: events in, commands out, and a clock that is given to it.

Whoever drives a core tells it what happened (``ready``, ``ended``, ``tick`` …), does what ``take_commands`` says, and calls
``tick`` when ``next_due_ns`` has come. ``_supervisor.py`` does that with tasks and processes, the tests with neither.

A supervisor starts its children in order, each ready before the next, and stops them in reverse, one after the other. While it
is in the middle of such a sequence, the deaths of others wait for its end. The children of ``one_for_one`` do not wait for each
other once all have started.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, Literal, NamedTuple

import msgspec

from bartack.core import Clock
from bartack.errors import (
    BartackError,
    ChildNotFoundError,
    ChildSpecError,
    ChildStartError,
    ChildStateError,
    SupervisorExhaustedError,
    SupervisorNotRunningError,
)
from bartack.supervision.supervisor._report import ChildEnd, CrashReport, Decision
from bartack.supervision.supervisor._restart import Intensity
from bartack.supervision.supervisor._spec import ChildSpec, SupervisorSpec
from bartack.telemetry import (
    NO_TELEMETRY,
    SupervisorChildEnded,
    SupervisorChildRestarted,
    SupervisorChildStarted,
    SupervisorEscalated,
    Telemetry,
)

_SECOND: Final = 1_000_000_000

ChildState = Literal[
    "idle", "starting", "running", "waiting", "failed", "stopping", "stopped", "ended", "escalated"
]
SupervisorState = Literal["idle", "starting", "running", "restarting", "adding", "stopping", "ended"]

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
"""What may follow on a child's state. A child that is *failed* has not got ready; one that is *waiting* waits out its backoff."""

_ALIVE: Final[frozenset[ChildState]] = frozenset({"starting", "running", "stopping"})
_STOPPABLE: Final[frozenset[ChildState]] = frozenset({"starting", "running", "stopping", "waiting"})


class StartChild(NamedTuple):
    """Start a child; then ``ready`` or ``ended`` is said of this incarnation."""

    spec: ChildSpec
    incarnation: int


class StopChild(NamedTuple):
    """Ask a child to end; then ``ended`` is said. After ``grace_s`` a ``KillChild`` follows by itself."""

    name: str
    incarnation: int
    grace_s: float


class KillChild(NamedTuple):
    """End a child for certain, without asking."""

    name: str
    incarnation: int


class ChildDown(NamedTuple):
    """A child ended for good: it will not be started again, unless somebody asks for it."""

    name: str
    incarnation: int
    reason: str


class Crashed(NamedTuple):
    """A child ended abnormally."""

    report: CrashReport


class Answer(NamedTuple):
    """What became of a request."""

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
    """What a supervisor knows of one child."""

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
        """How it ended, as long as nothing was decided about that."""
        self.request = request
        """Whose request its start or its stop answers."""
        self.pid: int | None = None
        self.last_reason = ""

    def move(self, state: ChildState) -> None:
        """Go over into another state."""
        assert state in TRANSITIONS[self.state], f"{self.spec.name}: {self.state} -> {state}"
        self.state = state
        self.due_ns = None

    def info(self) -> ChildInfo:
        """What others may know of it."""
        spec = self.spec
        return ChildInfo(
            spec.name,
            spec.kind or "",
            self.state,
            self.incarnation,
            self.pid,
            spec.restart,
            self.last_reason,
        )


class _Pending(NamedTuple):
    """Something that waits until a sequence is through."""

    act: Callable[[], None]
    request: int | None = None


class SupervisorCore:
    """The decisions of one supervisor. A supervisor below it is a child like any other, with a core of its own.

    Args:
        spec: What to supervise, and how.
        path: The supervisor's own name, with those above it.
        clock: Tells the time; nothing here waits for it.
        telemetry: Told what happens to the children.
    """

    def __init__(
        self, spec: SupervisorSpec, path: str, clock: Clock, telemetry: Telemetry = NO_TELEMETRY
    ) -> None:
        self.spec = spec
        self.path = path
        self.state: SupervisorState = "idle"
        self._clock = clock
        self._telemetry = telemetry
        self._intensity = Intensity(spec.max_restarts, spec.max_seconds)
        self._children = {child.name: Child(child) for child in spec.children}
        self._commands: list[Command] = []
        self._to_stop: deque[Child] = deque()
        self._to_start: deque[Child] = deque()
        self._resume_ns = 0
        """Before this nothing of ``_to_start`` is started."""
        self._pending: deque[_Pending] = deque()
        self._killing = False
        self._ending = SupervisorEnded("shutdown", None)

    # What is known.

    def children(self) -> list[ChildInfo]:
        """Every child, in the order of their start."""
        return [child.info() for child in self._children.values()]

    def take_commands(self) -> list[Command]:
        """What has to be done now; each command is given once."""
        commands, self._commands = self._commands, []
        return commands

    def next_due_ns(self) -> int | None:
        """When ``tick`` has something to do, by the monotonic clock; ``None`` if never."""
        dues = [
            child.due_ns
            for child in self._children.values()
            if child.due_ns is not None and (child.state != "waiting" or self.state == "running")
        ]
        if self.state == "restarting" and not self._to_stop and self._clock.monotonic_ns() < self._resume_ns:
            dues.append(self._resume_ns)
        return min(dues, default=None)

    # What happens.

    def start(self) -> None:
        """Start all children in order."""
        assert self.state == "idle"
        self.state = "starting"
        self._to_start.extend(self._children.values())
        self._advance()

    def ready(self, name: str, incarnation: int, pid: int | None = None) -> None:
        """A child is ready."""
        child = self._current(name, incarnation)
        if child is None or child.state != "starting" or child.late:
            return
        child.move("running")
        child.ready_ns = now = self._clock.monotonic_ns()
        child.pid = pid
        if self._telemetry.wanted(SupervisorChildStarted):
            self._telemetry.emit(
                SupervisorChildStarted(
                    duration_ns=now - child.began_ns,
                    supervisor=self.path,
                    child=name,
                    incarnation=incarnation,
                )
            )
        self._answer(child)
        self._advance()

    def ended(self, name: str, incarnation: int, end: ChildEnd) -> None:
        """A child is gone, with everything that belonged to it."""
        child = self._current(name, incarnation)
        if child is None or child.state not in _ALIVE or child.dead is not None:
            return
        child.pid = end.pid if child.pid is None else child.pid
        child.last_reason = "start_timeout" if child.late else end.reason
        self._tell_ended(child, end)
        if child.state == "stopping":
            self._stopped(child)
        elif child.state == "starting":
            self._failed(child, msgspec.structs.replace(end, reason=child.last_reason, normal=False))
        else:
            self._died(child, end)
        self._advance()

    def tick(self) -> None:
        """Time has passed."""
        now = self._clock.monotonic_ns()
        for child in self._children.values():
            if child.due_ns is None or now < child.due_ns or child.state == "waiting":
                continue
            child.due_ns = None
            child.late = child.state == "starting"
            self._commands.append(KillChild(child.spec.name, child.incarnation))
        self._advance()

    def stop(self, *, kill: bool = False) -> None:
        """Stop all children in reverse and end. With ``kill`` they are not asked."""
        if self.state == "idle":
            self._finish()
            return
        if self.state not in {"stopping", "ended"}:
            self._begin_end(SupervisorEnded("shutdown", None))
        if kill and not self._killing:
            self._killing = True
            stopping = [child for child in self._children.values() if child.state == "stopping"]
            for child in stopping:
                child.due_ns = None
                self._commands.append(KillChild(child.spec.name, child.incarnation))
        self._advance()

    # What is asked for. Each request is answered by one ``Answer``.

    def start_child(self, spec: ChildSpec, request: int) -> None:
        """Add a child and start it."""
        self._order(request, lambda: self._add(spec, request))

    def terminate_child(self, name: str, request: int) -> None:
        """Stop a child; it stays known and can be started again."""
        self._order(request, lambda: self._terminate(name, request))

    def restart_child(self, name: str, request: int) -> None:
        """Start a child that does not run. It is not counted as a restart."""
        self._order(request, lambda: self._start_again(name, request))

    def delete_child(self, name: str, request: int) -> None:
        """Forget a child that does not run."""
        self._order(request, lambda: self._delete(name, request))

    def _order(self, request: int, act: Callable[[], None]) -> None:
        if self.state in {"idle", "stopping", "ended"}:
            self._commands.append(Answer(request, SupervisorNotRunningError(self.path)))
        elif self.state == "running":
            self._obey(request, act)
            self._advance()
        else:
            self._pending.append(_Pending(lambda: self._obey(request, act), request))

    def _obey(self, request: int, act: Callable[[], None]) -> None:
        try:
            act()
        except BartackError as error:
            self._commands.append(Answer(request, error))

    def _add(self, spec: ChildSpec, request: int) -> None:
        if spec.name in self._children:
            raise ChildSpecError(f"child {spec.name!r}", "name", f"{self.path} has a child of that name")
        self.spec.check_patience(spec)
        child = Child(spec, request)
        self._children[spec.name] = child
        self._start_alone(child)

    def _start_alone(self, child: Child) -> None:
        if self.spec.strategy == "one_for_one":
            self._begin_start(child)
        else:
            self.state = "adding"
            self._resume_ns = 0
            self._to_start.append(child)

    def _terminate(self, name: str, request: int) -> None:
        child = self._find(name)
        if child.state == "stopping":
            raise ChildStateError(name, child.state, "terminated")
        if child.dead is not None:
            self._bury(child, child.dead)
            self._commands.append(Answer(request))
        elif child.state in {"starting", "running"}:
            self._answer(child, ChildStartError(f"{self.path}/{name}", "shutdown", "it was terminated"))
            child.request = request
            self._begin_stop(child)
        else:
            if child.state == "waiting":
                child.move("stopped")
                self._down(child, "shutdown")
            self._commands.append(Answer(request))

    def _bury(self, child: Child, end: ChildEnd) -> None:
        """A child that is to be stopped ended by itself while nothing could be decided: it stays where it is."""
        child.dead = None
        if not end.normal:
            self._report(child, end, "none", None)
        child.move("stopped")
        self._down(child, end.reason)

    def _start_again(self, name: str, request: int) -> None:
        child = self._find(name)
        if child.state not in {"stopped", "ended"}:
            raise ChildStateError(name, child.state, "started again")
        child.request = request
        child.failures = 0
        self._start_alone(child)

    def _delete(self, name: str, request: int) -> None:
        child = self._find(name)
        if child.state not in {"stopped", "ended"}:
            raise ChildStateError(name, child.state, "taken off the list")
        del self._children[name]
        self._commands.append(Answer(request))

    def _find(self, name: str) -> Child:
        if name not in self._children:
            raise ChildNotFoundError(self.path, name)
        return self._children[name]

    def _answer(self, child: Child, error: BartackError | None = None) -> None:
        if child.request is not None:
            self._commands.append(Answer(child.request, error))
            child.request = None

    # Sequences.

    def _advance(self) -> None:
        """Go on with whatever is under way, as far as possible now."""
        while self.state not in {"idle", "running", "ended"}:
            if self._to_stop:
                if not self._stop_next():
                    return
            elif self.state == "stopping":
                self._finish()
            elif self._clock.monotonic_ns() < self._resume_ns:
                return
            elif self._to_start:
                if not self._start_next():
                    return
            else:
                self._settle()
        if self.state == "running":
            self._start_due()

    def _stop_next(self) -> bool:
        """Bring the first of those to be stopped to its end; tell whether it is there."""
        child = self._to_stop[0]
        if child.dead is not None:
            child.dead = None
            child.move("stopped")
            self._stopped_in_sequence(child)
        elif child.state in {"starting", "running"}:
            self._begin_stop(child)
            return False
        elif child.state == "stopping":
            return False
        elif child.state == "waiting":
            child.move("stopped")
            self._stopped_in_sequence(child)
        self._to_stop.popleft()
        return True

    def _start_next(self) -> bool:
        child = self._to_start[0]
        if child.state == "starting":
            return False
        if child.state != "running":
            self._begin_start(child)
            return False
        self._to_start.popleft()
        return True

    def _settle(self) -> None:
        """A sequence is through: what waited for that is due."""
        if self.state == "starting":
            self._commands.append(SupervisorStarted())
        self.state = "running"
        while self._pending and self.state == "running":
            self._pending.popleft().act()

    def _start_due(self) -> None:
        now = self._clock.monotonic_ns()
        for child in list(self._children.values()):
            if child.state == "waiting" and child.due_ns is not None and child.due_ns <= now:
                self._begin_start(child)

    def _begin_start(self, child: Child) -> None:
        child.move("starting")
        child.incarnation += 1
        child.pid = None
        child.ready_ns = None
        child.late = False
        child.began_ns = self._clock.monotonic_ns()
        child.due_ns = child.began_ns + round(child.spec.start_timeout * _SECOND)
        self._commands.append(StartChild(child.spec, child.incarnation))

    def _begin_stop(self, child: Child) -> None:
        child.move("stopping")
        name, grace_s = child.spec.name, child.spec.grace_s
        if self._killing or child.late or child.spec.shutdown == "kill":
            self._commands.append(KillChild(name, child.incarnation))
        else:
            child.due_ns = self._clock.monotonic_ns() + round(grace_s * _SECOND)
            self._commands.append(StopChild(name, child.incarnation, grace_s))

    def _begin_end(self, ending: SupervisorEnded) -> None:
        self.state = "stopping"
        self._ending = ending
        self._to_start.clear()
        self._to_stop = self._alive_in_reverse(list(self._children.values()))
        while self._pending:
            request = self._pending.popleft().request
            if request is not None:
                self._commands.append(Answer(request, SupervisorNotRunningError(self.path)))

    def _alive_in_reverse(self, children: list[Child]) -> deque[Child]:
        return deque(child for child in reversed(children) if child.state in _STOPPABLE)

    def _finish(self) -> None:
        self.state = "ended"
        self._commands.append(self._ending)

    # Ends.

    def _stopped(self, child: Child) -> None:
        child.move("stopped")
        if child.request is not None:
            self._down(child, "shutdown")
            self._answer(child)
        elif child in self._to_stop:
            self._stopped_in_sequence(child)

    def _stopped_in_sequence(self, child: Child) -> None:
        if self.state == "stopping" or child.spec.restart == "temporary":
            self._down(child, "shutdown")
        self._answer(child, SupervisorNotRunningError(self.path))

    def _failed(self, child: Child, end: ChildEnd) -> None:
        """A child did not get ready."""
        child.move("failed")
        if child.request is not None:
            self._refuse(child, end)
        elif self.state == "starting":
            self._report(child, end, "escalate", None)
            child.move("escalated")
            error = ChildStartError(f"{self.path}/{child.spec.name}", end.reason, end.exception)
            self._begin_end(SupervisorEnded("start_failed", error))
        elif self.state == "stopping":
            child.move("stopped")
        else:
            self._restart(child, end)

    def _refuse(self, child: Child, end: ChildEnd) -> None:
        """A child that somebody asked for did not get ready: nothing is tried again."""
        name = child.spec.name
        self._answer(child, ChildStartError(f"{self.path}/{name}", end.reason, end.exception))
        child.move("stopped")
        if child.incarnation == 1:
            del self._children[name]
        if self.state == "adding":
            self._to_start.clear()

    def _died(self, child: Child, end: ChildEnd) -> None:
        """A child that was running is not any more."""
        child.dead = end
        if self.state == "running":
            self._judge(child, child.incarnation)
        elif child in self._to_stop:
            # It would have been stopped a moment later; what is decided for the others holds for it.
            if not end.normal:
                self._report(child, end, "none" if self.state == "stopping" else "restart", None)
        else:
            incarnation = child.incarnation
            self._pending.append(_Pending(lambda: self._judge(child, incarnation)))

    def _judge(self, child: Child, incarnation: int) -> None:
        """Decide what becomes of a child that ended by itself."""
        end = child.dead
        if end is None or child.incarnation != incarnation:
            return
        child.dead = None
        restart = child.spec.restart
        if restart == "permanent" or (restart == "transient" and not end.normal):
            self._restart(child, end)
            return
        if not end.normal:
            self._report(child, end, "none", None)
        child.move("ended")
        self._down(child, end.reason)

    def _restart(self, child: Child, end: ChildEnd) -> None:
        """Start a child again, with those that its strategy says, unless that was done too often."""
        now = self._clock.monotonic_ns()
        delay_ns = 0
        if end.counted:
            if child.ready_ns is not None and now - child.ready_ns >= self.spec.max_seconds * _SECOND:
                child.failures = 0
            child.failures += 1
            if not self._intensity.admit(now):
                self._escalate(child, end)
                return
            backoff = child.spec.backoff
            delay_ns = round(backoff.wait_s(child.failures) * _SECOND) if backoff is not None else 0
        if not end.normal:
            self._report(child, end, "restart", delay_ns)
        self._tell_restarted(child, end, delay_ns)
        child.move("waiting")
        child.due_ns = now + delay_ns
        if self.spec.strategy != "one_for_one":
            self._begin_group(child, child.due_ns)

    def _begin_group(self, child: Child, resume_ns: int) -> None:
        children = list(self._children.values())
        group = children if self.spec.strategy == "one_for_all" else children[children.index(child) :]
        self.state = "restarting"
        self._resume_ns = resume_ns
        self._to_stop = self._alive_in_reverse([other for other in group if other is not child])
        self._to_start = deque(other for other in group if other.spec.restart != "temporary")

    def _escalate(self, child: Child, end: ChildEnd) -> None:
        self._report(child, end, "escalate", None)
        child.move("escalated")
        self._down(child, end.reason)
        spec = self.spec
        if self._telemetry.wanted(SupervisorEscalated):
            self._telemetry.emit(
                SupervisorEscalated(
                    restarts=self._intensity.count(self._clock.monotonic_ns()),
                    supervisor=self.path,
                    child=child.spec.name,
                    reason=end.reason,
                    strategy=spec.strategy,
                )
            )
        error = SupervisorExhaustedError(
            self.path, child.spec.name, end.reason, spec.max_restarts, spec.max_seconds
        )
        self._begin_end(SupervisorEnded("intensity_exceeded", error))

    # Telling.

    def _current(self, name: str, incarnation: int) -> Child | None:
        """The child, unless what is said is about an earlier process of it."""
        child = self._children.get(name)
        return child if child is not None and child.incarnation == incarnation else None

    def _down(self, child: Child, reason: str) -> None:
        self._commands.append(ChildDown(child.spec.name, child.incarnation, reason))

    def _uptime_ns(self, child: Child) -> int:
        return 0 if child.ready_ns is None else self._clock.monotonic_ns() - child.ready_ns

    def _tell_ended(self, child: Child, end: ChildEnd) -> None:
        if self._telemetry.wanted(SupervisorChildEnded):
            self._telemetry.emit(
                SupervisorChildEnded(
                    duration_ns=self._uptime_ns(child),
                    supervisor=self.path,
                    child=child.spec.name,
                    incarnation=child.incarnation,
                    reason=child.last_reason,
                    normal=end.normal or child.state == "stopping",
                )
            )

    def _tell_restarted(self, child: Child, end: ChildEnd, delay_ns: int) -> None:
        if self._telemetry.wanted(SupervisorChildRestarted):
            self._telemetry.emit(
                SupervisorChildRestarted(
                    restarts=self._intensity.count(self._clock.monotonic_ns()),
                    delay_ns=delay_ns,
                    supervisor=self.path,
                    child=child.spec.name,
                    incarnation=child.incarnation,
                    reason=end.reason,
                    strategy=self.spec.strategy,
                )
            )

    def _report(self, child: Child, end: ChildEnd, decision: Decision, delay_ns: int | None) -> None:
        name = child.spec.name
        report = CrashReport(
            supervisor=self.path,
            child=name,
            path=f"{self.path}/{name}",
            incarnation=child.incarnation,
            pid=child.pid,
            reason=end.reason,
            exception=end.exception,
            stack=end.stack,
            last_step="",
            last_message="",
            stderr_tail=end.stderr_tail,
            uptime_s=self._uptime_ns(child) / _SECOND,
            peak_memory_bytes=end.peak_memory_bytes,
            restarts_in_window=self._intensity.count(self._clock.monotonic_ns()),
            decision=decision,
            next_start_us=None if delay_ns is None else self._clock.now_us() + delay_ns // 1000,
            metadata=dict(child.spec.metadata),
        )
        self._commands.append(Crashed(report))
