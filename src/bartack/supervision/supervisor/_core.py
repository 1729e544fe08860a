"""What a supervisor decides. It starts nothing and waits for nothing: events in, commands out, and a clock that is given to it.

The driver of a core reports what happened (``ready``, ``ended``, ``tick`` …), does what ``take_commands`` returns, and calls
``tick`` when ``next_due_ns`` has come. ``_supervisor.py`` does that with tasks and processes, the tests with neither.

While a sequence of starts and stops is in progress (``_sequencer.py``), decisions about the deaths of other children wait for its
end. The children of ``one_for_one`` do not wait for each other once all have started.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from bartack.core.clock import Clock
from bartack.errors import (
    BartackError,
    ChildSpecError,
    ChildStartError,
    ChildStateError,
    SupervisorExhaustedError,
    SupervisorNotRunningError,
)
from bartack.supervision.supervisor._child import ALIVE, Answer, Child, ChildInfo, Command, SupervisorEnded
from bartack.supervision.supervisor._children import SECOND_NS, Children
from bartack.supervision.supervisor._report import ChildEnd
from bartack.supervision.supervisor._sequencer import Sequencer, SupervisorState
from bartack.supervision.supervisor.spec import ChildSpec, SupervisorSpec
from bartack.telemetry import NO_TELEMETRY, Telemetry


class SupervisorCore:
    """The decisions of one supervisor. A supervisor below it is a child like any other, with a core of its own.

    Args:
        spec: What to supervise, and how.
        path: The supervisor's own name, with those above it.
        clock: The time; nothing here waits for it.
        telemetry: Receives what happens to the children.
    """

    def __init__(
        self, spec: SupervisorSpec, path: str, clock: Clock, telemetry: Telemetry = NO_TELEMETRY
    ) -> None:
        self.spec = spec
        self.path = path
        self._clock = clock
        self._children = Children(spec, path, clock, telemetry)
        self._sequencer = Sequencer(self._children, path, clock)

    @property
    def state(self) -> SupervisorState:
        """Which sequence is in progress; ``running`` between two of them."""
        return self._sequencer.state

    def children(self) -> list[ChildInfo]:
        """Every child, in the order of their start."""
        return [child.info() for child in self._children]

    def take_commands(self) -> list[Command]:
        """What has to be done now; each command is given once."""
        return self._children.take_commands()

    def next_due_ns(self) -> int | None:
        """When ``tick`` has something to do, by the monotonic clock; ``None`` if never."""
        return self._sequencer.next_due_ns()

    # Events.

    def start(self) -> None:
        """Start all children in order."""
        self._sequencer.begin_start()
        self._sequencer.advance()

    def ready(self, name: str, incarnation: int, pid: int | None = None) -> None:
        """A child is ready."""
        child = self._children.current(name, incarnation)
        if child is None or child.state != "starting" or child.late:
            return
        child.move("running")
        child.ready_ns = now = self._clock.monotonic_ns()
        child.pid = pid
        self._children.note_started(child, now)
        self._children.answer(child)
        self._sequencer.advance()

    def ended(self, name: str, incarnation: int, end: ChildEnd) -> None:
        """A child is gone, with everything that belonged to it."""
        child = self._children.current(name, incarnation)
        if child is None or child.state not in ALIVE or child.dead is not None:
            return
        child.pid = end.pid if child.pid is None else child.pid
        child.last_reason = "start_timeout" if child.late else end.reason
        self._children.note_ended(child, end)
        if child.state == "stopping":
            self._stopped(child)
        elif child.state == "starting":
            self._failed(child, msgspec.structs.replace(end, reason=child.last_reason, normal=False))
        else:
            self._died(child, end)
        self._sequencer.advance()

    def tick(self) -> None:
        """Time has passed."""
        now = self._clock.monotonic_ns()
        for child in self._children:
            if child.due_ns is None or now < child.due_ns or child.state == "waiting":
                continue
            child.late = child.state == "starting"
            self._children.kill(child)
        self._sequencer.advance()

    def stop(self, *, kill: bool = False) -> None:
        """Stop all children in reverse and end. With ``kill`` they are not asked."""
        if self.state == "idle":
            self._sequencer.finish()
            return
        if self.state not in {"stopping", "ended"}:
            self._sequencer.begin_end(SupervisorEnded("shutdown", None))
        if kill and not self._children.killing:
            self._children.killing = True
            for child in self._children:
                if child.state == "stopping":
                    self._children.kill(child)
        self._sequencer.advance()

    # Requests. Each is answered by one ``Answer``.

    def start_child(self, spec: ChildSpec, request: int) -> None:
        """Add a child and start it."""
        self._request(request, lambda: self._add(spec, request))

    def terminate_child(self, name: str, request: int) -> None:
        """Stop a child; it stays known and can be started again."""
        self._request(request, lambda: self._terminate(name, request))

    def restart_child(self, name: str, request: int) -> None:
        """Start a child that does not run. It is not counted as a restart."""
        self._request(request, lambda: self._start_again(name, request))

    def delete_child(self, name: str, request: int) -> None:
        """Forget a child that does not run."""
        self._request(request, lambda: self._delete(name, request))

    def _request(self, request: int, act: Callable[[], None]) -> None:
        if self.state in {"idle", "stopping", "ended"}:
            self._children.command(Answer(request, SupervisorNotRunningError(self.path)))
        elif self.state == "running":
            self._perform(request, act)
            self._sequencer.advance()
        else:
            self._sequencer.postpone(lambda: self._perform(request, act), request)

    def _perform(self, request: int, act: Callable[[], None]) -> None:
        try:
            act()
        except BartackError as error:
            self._children.command(Answer(request, error))

    def _add(self, spec: ChildSpec, request: int) -> None:
        if spec.name in self._children:
            raise ChildSpecError(f"child {spec.name!r}", "name", f"{self.path} has a child of that name")
        self.spec.check_patience(spec)
        self._start_alone(self._children.add(spec, request))

    def _terminate(self, name: str, request: int) -> None:
        child = self._children.find(name)
        if child.state == "stopping":
            raise ChildStateError(name, child.state, "terminated")
        if child.dead is not None:
            self._stay_stopped(child, child.dead)
            self._children.command(Answer(request))
        elif child.state in {"starting", "running"}:
            self._children.answer(
                child, ChildStartError(f"{self.path}/{name}", "shutdown", "it was terminated")
            )
            child.request = request
            self._children.begin_stop(child)
        else:
            if child.state == "waiting":
                child.move("stopped")
                self._children.report_down(child, "shutdown")
            self._children.command(Answer(request))

    def _stay_stopped(self, child: Child, end: ChildEnd) -> None:
        """A child that is to be terminated has ended by itself during a sequence: it is not started again."""
        child.dead = None
        if not end.normal:
            self._children.report_crash(child, end, "none", None)
        child.move("stopped")
        self._children.report_down(child, end.reason)

    def _start_again(self, name: str, request: int) -> None:
        child = self._children.find(name)
        if child.state not in {"stopped", "ended"}:
            raise ChildStateError(name, child.state, "started again")
        child.request = request
        child.failures = 0
        self._start_alone(child)

    def _delete(self, name: str, request: int) -> None:
        child = self._children.find(name)
        if child.state not in {"stopped", "ended"}:
            raise ChildStateError(name, child.state, "deleted")
        self._children.remove(name)
        self._children.command(Answer(request))

    def _start_alone(self, child: Child) -> None:
        if self.spec.strategy == "one_for_one":
            self._children.begin_start(child)
        else:
            self._sequencer.begin_add(child)

    # Ends.

    def _stopped(self, child: Child) -> None:
        child.move("stopped")
        if child.request is not None:
            self._children.report_down(child, "shutdown")
            self._children.answer(child)
        elif self._sequencer.will_stop(child):
            self._sequencer.stopped(child)

    def _failed(self, child: Child, end: ChildEnd) -> None:
        """A child did not become ready."""
        child.move("failed")
        if child.request is not None:
            self._refuse(child, end)
        elif self.state == "starting":
            self._children.report_crash(child, end, "escalate", None)
            child.move("escalated")
            error = ChildStartError(f"{self.path}/{child.spec.name}", end.reason, end.exception)
            self._sequencer.begin_end(SupervisorEnded("start_failed", error))
        elif self.state == "stopping":
            child.move("stopped")
        else:
            self._restart(child, end)

    def _refuse(self, child: Child, end: ChildEnd) -> None:
        """A child that was requested did not become ready: it is not tried again."""
        name = child.spec.name
        self._children.answer(child, ChildStartError(f"{self.path}/{name}", end.reason, end.exception))
        child.move("stopped")
        if child.incarnation == 1:
            self._children.remove(name)
        self._sequencer.cancel_add()

    def _died(self, child: Child, end: ChildEnd) -> None:
        """A running child has ended."""
        child.dead = end
        if self.state == "running":
            self._judge(child, child.incarnation)
        elif self._sequencer.will_stop(child):
            # It would have been stopped a moment later; what is decided for the others holds for it.
            if not end.normal:
                self._children.report_crash(
                    child, end, "none" if self.state == "stopping" else "restart", None
                )
        else:
            incarnation = child.incarnation
            self._sequencer.postpone(lambda: self._judge(child, incarnation))

    def _judge(self, child: Child, incarnation: int) -> None:
        """Decide whether a child that ended by itself is started again."""
        end = child.dead
        if end is None or child.incarnation != incarnation:
            return
        child.dead = None
        restart = child.spec.restart
        if restart == "permanent" or (restart == "transient" and not end.normal):
            self._restart(child, end)
            return
        if not end.normal:
            self._children.report_crash(child, end, "none", None)
        child.move("ended")
        self._children.report_down(child, end.reason)

    def _restart(self, child: Child, end: ChildEnd) -> None:
        """Start a child again, with those that the strategy restarts with it, unless that happened too often."""
        now = self._clock.monotonic_ns()
        delay_ns = 0
        if end.counted:
            if child.ready_ns is not None and now - child.ready_ns >= self.spec.max_seconds * SECOND_NS:
                child.failures = 0
            child.failures += 1
            if not self._children.intensity.admit(now):
                self._escalate(child, end)
                return
            backoff = child.spec.backoff
            delay_ns = round(backoff.wait_s(child.failures) * SECOND_NS) if backoff is not None else 0
        if not end.normal:
            self._children.report_crash(child, end, "restart", delay_ns)
        self._children.note_restarted(child, end, delay_ns)
        child.move("waiting")
        child.due_ns = now + delay_ns
        if self.spec.strategy != "one_for_one":
            self._sequencer.begin_restart(child, self.spec.strategy, child.due_ns)

    def _escalate(self, child: Child, end: ChildEnd) -> None:
        self._children.report_crash(child, end, "escalate", None)
        child.move("escalated")
        self._children.report_down(child, end.reason)
        self._children.note_escalated(child, end)
        spec = self.spec
        error = SupervisorExhaustedError(
            self.path, child.spec.name, end.reason, spec.max_restarts, spec.max_seconds
        )
        self._sequencer.begin_end(SupervisorEnded("intensity_exceeded", error))
