"""The steps ``send`` and ``withdraw``: plain sends of workers, which wait for room as long as the limit of sends allows."""

from __future__ import annotations

from collections.abc import Callable
from typing import assert_never

from bartack.errors import BartackError, MailboxClosedError, MailboxFullError
from bartack.messaging.mailboxes import check_name
from bartack.runtime.kernel.desk import Desk, Shared
from bartack.runtime.kernel.handler import StepHandler
from bartack.runtime.kernel.mail.enqueue import Enqueue, Enqueued, MustWait, Outgoing, Refused, size_of
from bartack.runtime.kernel.mail.room import Room, RoomWaiter
from bartack.runtime.kernel.outcome import step_finished
from bartack.runtime.kernel.turn import Peer
from bartack.runtime.protocol import frames as f
from bartack.runtime.protocol import steps as s
from bartack.runtime.state.worker_state import NO_VALUE, OpenStep, Value, WorkerState


class SendStep(Desk, StepHandler):
    """Handles the step ``send``."""

    def __init__(self, shared: Shared, enqueue: Enqueue, room: Room) -> None:
        super().__init__(shared)
        self._enqueue = enqueue
        self._room = room

    def start(self, peer: Peer, worker: WorkerState, step: f.Step) -> None:
        """Enqueue the message, whose entry is the outcome of the step, or wait for room."""
        args = self.decode(step.a, s.SendArgs)
        check_name(args.mailbox)
        value = Value(step.v, step.ref)
        message = Outgoing(
            args.mailbox,
            worker.path,
            value,
            size_of(value),
            args.key,
            args.metadata,
            args.not_before or 0,
            step=step,
        )
        outcome = self._enqueue.enqueue(message, self._answerer(worker, step))
        match outcome:
            case Enqueued(known=True):
                self.finish_step(worker, step, outcome.id)
            case Enqueued():
                pass
            case MustWait():
                self._wait(worker, step, message)
            case Refused():
                self.fail_step(worker, step, outcome.error)
            case _:
                assert_never(outcome)

    def cancel(self, worker: WorkerState, opened: OpenStep, error: BartackError) -> None:
        """Stop waiting for room."""
        self._room.forget_step(worker, (opened.p, opened.n))
        self.turn.fail_open(worker, opened, error)

    def withdraw(self, peer: Peer, worker: WorkerState, step: f.Step) -> None:
        """Take back a message of the worker's own, if no receiver has it."""
        args = self.decode(step.a, s.WithdrawArgs)
        moved = self._enqueue.withdrawal(args.mailbox, args.id, worker.path)
        done = step_finished(step, about=step.about)
        value = self.turn.pack(moved is not None)
        if moved is None:
            self.turn.finish(worker, done, value)
            return
        self.turn.record((moved, NO_VALUE), (done, value))
        self.turn.answer(worker, step.p, step.n, value)
        self._enqueue.left(args.mailbox)

    def _answerer(self, worker: WorkerState, step: f.Step) -> Callable[[str], None]:
        """Answers the step with the id of its message, whose entry is its outcome."""
        turn = self.turn
        return lambda message_id: turn.answer(worker, step.p, step.n, turn.pack(message_id))

    def _wait(self, worker: WorkerState, step: f.Step, message: Outgoing) -> None:
        known = worker.open.get((step.p, step.n))
        opened = known or self.open_step(step, timeout_s=self.timeouts.limit("send"))
        name = message.mailbox

        def late() -> None:
            self._room.stop_waiting(name, waiter)
            self.turn.fail_open(worker, opened, MailboxFullError(name, len(self.state.mailbox(name))))

        def closed() -> None:
            self.turn.fail_open(worker, opened, MailboxClosedError(name))

        def enter() -> None:
            entered = self._enqueue.enter(message, self._answerer(worker, step))
            if entered.known:
                self.turn.end_open(worker, opened, self.turn.pack(entered.id))

        timer = self.timers.after(self.left_s(opened) or 0.0, late)
        waiter = RoomWaiter(message.size, enter, closed, timer, worker.path, (step.p, step.n))
        self._room.wait(name, waiter)
