"""In which order the children of a supervisor are started and stopped, and what waits until such a sequence is finished.

Each child is ready before the next is started; children are stopped in reverse, one after the other. Why a sequence begins is
decided in ``_core.py``; what is done to a single child is in ``_children.py``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Literal, NamedTuple

from bartack.core.clock import Clock
from bartack.errors import SupervisorNotRunningError
from bartack.supervision.supervisor._child import Answer, Child, SupervisorEnded, SupervisorStarted
from bartack.supervision.supervisor._children import Children, alive_in_reverse
from bartack.supervision.supervisor.spec import Strategy

SupervisorState = Literal["idle", "starting", "running", "restarting", "adding", "stopping", "ended"]


class _Pending(NamedTuple):
    """An action that waits until a sequence is finished."""

    act: Callable[[], None]
    request: int | None


class Sequencer:
    """The state of a supervisor, and the children that are still to be stopped and started.

    Attributes:
        state: Which sequence is in progress; ``running`` between two of them.
    """

    def __init__(self, children: Children, path: str, clock: Clock) -> None:
        self.state: SupervisorState = "idle"
        self._children = children
        self._path = path
        self._clock = clock
        self._to_stop: deque[Child] = deque()
        self._to_start: deque[Child] = deque()
        self._resume_ns = 0
        """Before this nothing of ``_to_start`` is started."""
        self._pending: deque[_Pending] = deque()
        self._ending = SupervisorEnded("shutdown", None)

    def next_due_ns(self) -> int | None:
        """When there is something to do, by the monotonic clock; ``None`` if never."""
        dues = [
            child.due_ns
            for child in self._children
            if child.due_ns is not None and (child.state != "waiting" or self.state == "running")
        ]
        if self.state == "restarting" and not self._to_stop and self._clock.monotonic_ns() < self._resume_ns:
            dues.append(self._resume_ns)
        return min(dues, default=None)

    def will_stop(self, child: Child) -> bool:
        """Whether a child is still to be stopped in this sequence."""
        return child in self._to_stop

    # How a sequence begins.

    def begin_start(self) -> None:
        """Start all children in order."""
        assert self.state == "idle"
        self.state = "starting"
        self._to_start.extend(self._children)

    def begin_add(self, child: Child) -> None:
        """Start one child, and let everything else wait for it."""
        self.state = "adding"
        self._resume_ns = 0
        self._to_start.append(child)

    def cancel_add(self) -> None:
        """The child that was added did not become ready."""
        if self.state == "adding":
            self._to_start.clear()

    def begin_restart(self, child: Child, strategy: Strategy, resume_ns: int) -> None:
        """Stop what a strategy restarts together with a child, and start it all again when ``resume_ns`` has come."""
        children = list(self._children)
        group = children if strategy == "one_for_all" else children[children.index(child) :]
        self.state = "restarting"
        self._resume_ns = resume_ns
        self._to_stop = alive_in_reverse([other for other in group if other is not child])
        self._to_start = deque(other for other in group if other.spec.restart != "temporary")

    def begin_end(self, ending: SupervisorEnded) -> None:
        """Stop all children in reverse; whatever waits is refused."""
        self.state = "stopping"
        self._ending = ending
        self._to_start.clear()
        self._to_stop = alive_in_reverse(list(self._children))
        while self._pending:
            request = self._pending.popleft().request
            if request is not None:
                self._children.command(Answer(request, SupervisorNotRunningError(self._path)))

    def finish(self) -> None:
        """No child is left."""
        self.state = "ended"
        self._children.command(self._ending)

    def postpone(self, act: Callable[[], None], request: int | None = None) -> None:
        """Do something when the sequence is finished."""
        self._pending.append(_Pending(act, request))

    # How it continues.

    def advance(self) -> None:
        """Continue the sequence as far as possible now."""
        while self.state not in {"idle", "running", "ended"}:
            if self._to_stop:
                if not self._stop_next():
                    return
            elif self.state == "stopping":
                self.finish()
            elif self._clock.monotonic_ns() < self._resume_ns:
                return
            elif self._to_start:
                if not self._start_next():
                    return
            else:
                self._settle()
        if self.state == "running":
            self._start_due()

    def stopped(self, child: Child) -> None:
        """A child of this sequence is stopped."""
        if self.state == "stopping" or child.spec.restart == "temporary":
            self._children.report_down(child, "shutdown")
        self._children.answer(child, SupervisorNotRunningError(self._path))

    def _stop_next(self) -> bool:
        """Stop the first of those to be stopped; return whether it is stopped already."""
        child = self._to_stop[0]
        if child.dead is not None:
            child.dead = None
            child.move("stopped")
            self.stopped(child)
        elif child.state in {"starting", "running"}:
            self._children.begin_stop(child)
            return False
        elif child.state == "stopping":
            return False
        elif child.state == "waiting":
            child.move("stopped")
            self.stopped(child)
        self._to_stop.popleft()
        return True

    def _start_next(self) -> bool:
        """Start the first of those to be started; return whether it is ready already."""
        child = self._to_start[0]
        if child.state == "starting":
            return False
        if child.state != "running":
            self._children.begin_start(child)
            return False
        self._to_start.popleft()
        return True

    def _settle(self) -> None:
        """The sequence is finished: whatever waited for that is done now."""
        if self.state == "starting":
            self._children.command(SupervisorStarted())
        self.state = "running"
        while self._pending and self.state == "running":
            self._pending.popleft().act()

    def _start_due(self) -> None:
        now = self._clock.monotonic_ns()
        for child in self._children:
            if child.state == "waiting" and child.due_ns is not None and child.due_ns <= now:
                self._children.begin_start(child)
