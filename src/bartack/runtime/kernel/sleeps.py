"""Waits that end by the clock: the step ``sleep``, and blocks with a deadline (``timeout``).

A sleep is due at a moment on the wall, whichever hub is alive then. A block with a deadline counts only the time in which a hub was
alive; its worker enters and leaves it by itself, and learns by ``Fired`` that its time is over. Read ``timers.py`` for the clocks.
"""

from __future__ import annotations

from typing import Final

import msgspec

from bartack.errors import BartackError, UnknownRequestError
from bartack.runtime.kernel.desk import Desk, Shared
from bartack.runtime.kernel.handler import StepHandler
from bartack.runtime.kernel.jobs import StepTimers
from bartack.runtime.kernel.outcome import step_finished
from bartack.runtime.kernel.turn import NULL, Peer
from bartack.runtime.protocol import frames as f
from bartack.runtime.protocol import steps as s
from bartack.runtime.protocol.paths import is_inside
from bartack.runtime.state import entries as e
from bartack.runtime.state.worker_state import FIRED, OpenStep, Value, WorkerState

_FIRED: Final = msgspec.Raw(FIRED)


class SleepDesk(Desk, StepHandler):
    """Lets workers sleep."""

    def __init__(self, shared: Shared, step_timers: StepTimers) -> None:
        super().__init__(shared)
        self._step_timers = step_timers

    def start(self, peer: Peer, worker: WorkerState, step: f.Step) -> None:
        """Wait until a moment on the wall."""
        args = self.decode(step.a, s.SleepArgs)
        now = self.now_us()
        due = args.until if args.until is not None else now + int((args.seconds or 0.0) * 1e6)
        if due <= now:
            self.finish_step_raw(worker, step, Value(NULL))
        else:
            self._watch(worker, args, self.open_step(step, due=due))

    def resume(self, peer: Peer, worker: WorkerState, step: f.Step, opened: OpenStep) -> None:
        """A restarted worker waits for the same moment."""
        self._watch(worker, self.decode(step.a, s.SleepArgs), opened)

    def cancel(self, worker: WorkerState, opened: OpenStep, error: BartackError) -> None:
        """Wake the worker up by an error."""
        self._step_timers.cancel(opened.key)
        self.turn.fail_open(worker, opened, error)

    def _watch(self, worker: WorkerState, args: s.SleepArgs, opened: OpenStep) -> None:
        """Wake the worker at the moment, however often the hub was restarted since.

        A sleep that was given as a duration also ends when a hub was alive for that long: the clock may have been set back.
        """

        def wake() -> None:
            if self.is_open(worker, opened):
                self.turn.end_open(worker, opened, Value(NULL))

        if args.seconds is None:
            timer = self.timers.at(opened.due, wake)
        else:
            left_s = (opened.due - opened.at) / 1e6 - self.waited_s(opened)
            timer = self.timers.at_or_after(opened.due, left_s, wake)
        self._step_timers.set(opened.key, timer)


class ScopeDesk(Desk, StepHandler):
    """Watches the blocks of workers that have a deadline."""

    def __init__(self, shared: Shared, step_timers: StepTimers) -> None:
        super().__init__(shared)
        self._step_timers = step_timers

    def start(self, peer: Peer, worker: WorkerState, step: f.Step) -> None:
        """A block is entered by ``Begin``, not by ``Step``."""
        raise UnknownRequestError(step.step)

    def begin(self, peer: Peer, worker: WorkerState, begin: f.Begin) -> None:
        """A worker entered a block with a deadline, or a restarted worker is in it again."""
        opened = worker.open.get((begin.p, begin.n))
        if opened is None:
            data = e.StepStarted(
                p=begin.p,
                n=begin.n,
                step=begin.step,
                fp=begin.fp,
                timeout_s=begin.timeout_s,
                about=begin.about,
                cleanup=begin.cleanup,
            )
            opened = self.turn.open_step(data)
        scope = opened

        def fire() -> None:
            if not self.is_open(worker, scope):
                return
            self.turn.record((step_finished(scope), Value(_FIRED)))
            current = self.turn.peer_of(worker.path)
            if current is not None:
                self.turn.send(current, f.Fired(p=scope.p, n=scope.n))

        self._step_timers.set(scope.key, self.timers.after(self.left_s(scope) or 0.0, fire))

    def is_left(self, worker: WorkerState, note: f.Note) -> bool:
        """A worker left a block. Returns whether that is its outcome; if it ran out before, that was."""
        self._step_timers.cancel((note.p, note.n))
        return (note.p, note.n) in worker.open

    def cancel(self, worker: WorkerState, opened: OpenStep, error: BartackError) -> None:
        """A block ends by an error."""
        self._step_timers.cancel(opened.key)
        self.turn.fail_open(worker, opened, error)

    def left(self, peer: Peer, worker: WorkerState, step: f.Step) -> None:
        """The step ``left``: seconds left of the innermost deadline around it."""
        limits = [
            self.left_s(opened)
            for opened in worker.scopes()
            if step.p == opened.p or is_inside(step.p, opened.p)
        ]
        self.finish_step(worker, step, min((left for left in limits if left is not None), default=None))
