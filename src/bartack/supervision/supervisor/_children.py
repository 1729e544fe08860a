"""The children of one supervisor: changes of single ones, the commands these lead to, and what is reported of them.

Decides nothing: which child is started, stopped or given up follows from ``_sequencer.py`` and ``_core.py``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Final

from bartack.core.clock import Clock
from bartack.errors import BartackError, ChildNotFoundError
from bartack.supervision.supervisor._child import (
    Answer,
    Child,
    ChildDown,
    ChildState,
    Command,
    Crashed,
    KillChild,
    StartChild,
    StopChild,
)
from bartack.supervision.supervisor._report import ChildEnd, CrashReport, Decision
from bartack.supervision.supervisor._restart import Intensity
from bartack.supervision.supervisor.spec import ChildSpec, SupervisorSpec
from bartack.telemetry import Telemetry
from bartack.telemetry.catalogue import (
    SupervisorChildEnded,
    SupervisorChildRestarted,
    SupervisorChildStarted,
    SupervisorEscalated,
)

SECOND_NS: Final = 1_000_000_000
_STOPPABLE: Final[frozenset[ChildState]] = frozenset({"starting", "running", "stopping", "waiting"})


class Children:
    """The children of one supervisor, by name, in the order of their start.

    Attributes:
        intensity: Counts the restarts of all of them.
        killing: Whether children are killed at once instead of being asked to end.
    """

    def __init__(self, spec: SupervisorSpec, path: str, clock: Clock, telemetry: Telemetry) -> None:
        self.intensity = Intensity(spec.max_restarts, spec.max_seconds)
        self.killing = False
        self._spec = spec
        self._path = path
        self._clock = clock
        self._telemetry = telemetry
        self._children = {child.name: Child(child) for child in spec.children}
        self._commands: list[Command] = []

    def __iter__(self) -> Iterator[Child]:
        return iter(list(self._children.values()))

    def __contains__(self, name: str) -> bool:
        return name in self._children

    def add(self, spec: ChildSpec, request: int) -> Child:
        """A new child, not started yet."""
        child = self._children[spec.name] = Child(spec, request)
        return child

    def remove(self, name: str) -> None:
        """Forget a child."""
        del self._children[name]

    def find(self, name: str) -> Child:
        """The child of this name.

        Raises:
            ChildNotFoundError: There is none.
        """
        if name not in self._children:
            raise ChildNotFoundError(self._path, name)
        return self._children[name]

    def current(self, name: str, incarnation: int) -> Child | None:
        """The child of this name, unless an earlier incarnation of it is meant."""
        child = self._children.get(name)
        return child if child is not None and child.incarnation == incarnation else None

    # Commands.

    def take_commands(self) -> list[Command]:
        """What has to be done now; each command is given once."""
        commands, self._commands = self._commands, []
        return commands

    def command(self, command: Command) -> None:
        """Give a command."""
        self._commands.append(command)

    def answer(self, child: Child, error: BartackError | None = None) -> None:
        """Answer the request that a child was started or stopped for, if there was one."""
        if child.request is not None:
            self._commands.append(Answer(child.request, error))
            child.request = None

    def begin_start(self, child: Child) -> None:
        """Start the next incarnation of a child."""
        child.move("starting")
        child.incarnation += 1
        child.pid = None
        child.ready_ns = None
        child.late = False
        child.began_ns = self._clock.monotonic_ns()
        child.due_ns = child.began_ns + round(child.spec.start_timeout * SECOND_NS)
        self._commands.append(StartChild(child.spec, child.incarnation))

    def begin_stop(self, child: Child) -> None:
        """Ask a child to end, or kill it where asking makes no sense."""
        child.move("stopping")
        if self.killing or child.late or child.spec.shutdown == "kill":
            self.kill(child)
        else:
            grace_s = child.spec.grace_s
            child.due_ns = self._clock.monotonic_ns() + round(grace_s * SECOND_NS)
            self._commands.append(StopChild(child.spec.name, child.incarnation, grace_s))

    def kill(self, child: Child) -> None:
        """Kill a child that is late or must not be asked."""
        child.due_ns = None
        self._commands.append(KillChild(child.spec.name, child.incarnation))

    def report_down(self, child: Child, reason: str) -> None:
        """A child is not started again by itself."""
        self._commands.append(ChildDown(child.spec.name, child.incarnation, reason))

    def report_crash(self, child: Child, end: ChildEnd, decision: Decision, delay_ns: int | None) -> None:
        """A child ended abnormally, and this was decided."""
        name = child.spec.name
        report = CrashReport(
            supervisor=self._path,
            child=name,
            path=f"{self._path}/{name}",
            incarnation=child.incarnation,
            pid=child.pid,
            reason=end.reason,
            exception=end.exception,
            stack=end.stack,
            last_step="",
            last_message="",
            stderr_tail=end.stderr_tail,
            uptime_s=self._uptime_ns(child) / SECOND_NS,
            peak_memory_bytes=end.peak_memory_bytes,
            restarts_in_window=self.intensity.count(self._clock.monotonic_ns()),
            decision=decision,
            next_start_us=None if delay_ns is None else self._clock.now_us() + delay_ns // 1000,
            metadata=dict(child.spec.metadata),
        )
        self._commands.append(Crashed(report))

    # Telemetry.

    def note_started(self, child: Child, now_ns: int) -> None:
        """A child is ready."""
        if self._telemetry.wanted(SupervisorChildStarted):
            self._telemetry.emit(
                SupervisorChildStarted(
                    duration_ns=now_ns - child.began_ns,
                    supervisor=self._path,
                    child=child.spec.name,
                    incarnation=child.incarnation,
                )
            )

    def note_ended(self, child: Child, end: ChildEnd) -> None:
        """A child is gone."""
        if self._telemetry.wanted(SupervisorChildEnded):
            self._telemetry.emit(
                SupervisorChildEnded(
                    duration_ns=self._uptime_ns(child),
                    supervisor=self._path,
                    child=child.spec.name,
                    incarnation=child.incarnation,
                    reason=child.last_reason,
                    normal=end.normal or child.state == "stopping",
                )
            )

    def note_restarted(self, child: Child, end: ChildEnd, delay_ns: int) -> None:
        """A child will be started again."""
        if self._telemetry.wanted(SupervisorChildRestarted):
            self._telemetry.emit(
                SupervisorChildRestarted(
                    restarts=self.intensity.count(self._clock.monotonic_ns()),
                    delay_ns=delay_ns,
                    supervisor=self._path,
                    child=child.spec.name,
                    incarnation=child.incarnation,
                    reason=end.reason,
                    strategy=self._spec.strategy,
                )
            )

    def note_escalated(self, child: Child, end: ChildEnd) -> None:
        """The supervisor gives up because of a child."""
        if self._telemetry.wanted(SupervisorEscalated):
            self._telemetry.emit(
                SupervisorEscalated(
                    restarts=self.intensity.count(self._clock.monotonic_ns()),
                    supervisor=self._path,
                    child=child.spec.name,
                    reason=end.reason,
                    strategy=self._spec.strategy,
                )
            )

    def _uptime_ns(self, child: Child) -> int:
        return 0 if child.ready_ns is None else self._clock.monotonic_ns() - child.ready_ns


def alive_in_reverse(children: Sequence[Child]) -> deque[Child]:
    """Those that have to be stopped, the last one first."""
    return deque(child for child in reversed(children) if child.state in _STOPPABLE)
