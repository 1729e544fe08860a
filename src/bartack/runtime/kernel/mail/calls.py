"""Calls: a message that is sent with an address for its reply, and the wait for the reply.

A caller that stops waiting takes the message back if no receiver has it, so that work whose result is not awaited is not begun.
Calls of processes outside are in ``foreign.py``.
"""

from __future__ import annotations

from typing import assert_never

from bartack.errors import BartackError, DeadlineExceededError, MailboxClosedError
from bartack.messaging.mailboxes import check_name
from bartack.runtime.kernel.actions import Show
from bartack.runtime.kernel.desk import Desk, Shared
from bartack.runtime.kernel.handler import StepHandler
from bartack.runtime.kernel.mail.enqueue import (
    Enqueue,
    Enqueued,
    Items,
    MustWait,
    Outgoing,
    Refused,
    size_of,
)
from bartack.runtime.kernel.mail.foreign import OutsideMail
from bartack.runtime.kernel.mail.room import Room, RoomWaiter
from bartack.runtime.kernel.outcome import step_failed, step_finished
from bartack.runtime.kernel.turn import NULL, Peer
from bartack.runtime.protocol import frames as f
from bartack.runtime.protocol import steps as s
from bartack.runtime.state import entries as e
from bartack.runtime.state.requests import request_of
from bartack.runtime.state.worker_state import NO_VALUE, OpenStep, Value, WorkerState


class CallStep(Desk, StepHandler):
    """Handles the steps ``call`` and ``reply``."""

    def __init__(self, shared: Shared, enqueue: Enqueue, room: Room, outside: OutsideMail) -> None:
        super().__init__(shared)
        self._enqueue = enqueue
        self._room = room
        self._outside = outside

    def start(self, peer: Peer, worker: WorkerState, step: f.Step) -> None:
        """Send a message and wait for the reply."""
        args = self.decode(step.a, s.CallMailboxArgs)
        check_name(args.mailbox)
        limit, source = self.limit("call", args.timeout_s)
        started = e.StepStarted(
            p=step.p, n=step.n, step="call", fp=step.fp, about=step.about, timeout_s=limit
        )
        if not self._send(worker, step, args.mailbox, [(started, NO_VALUE)]):
            self.turn.record((started, NO_VALUE), sync=False)
            self._wait_for_room(worker, step, args.mailbox)
        self._watch(worker, worker.open[step.p, step.n], source)

    def resume(self, peer: Peer, worker: WorkerState, step: f.Step, opened: OpenStep) -> None:
        """Wait again: for the reply or, if there was no room for the message, for room."""
        args = self.decode(step.a, s.CallMailboxArgs)
        if opened.sent is None and not self._send(worker, step, args.mailbox):
            self._wait_for_room(worker, step, args.mailbox)
        self._watch(worker, opened, self.limit("call", args.timeout_s)[1])

    def cancel(self, worker: WorkerState, opened: OpenStep, error: BartackError) -> None:
        """Stop waiting for the reply. The line of the failure also takes the message back, if no receiver has it."""
        self._room.forget_step(worker, (opened.p, opened.n))
        failure = step_failed(opened, error, worker.path, about=opened.about)
        moved = self._enqueue.withdrawal(*opened.sent, worker.path) if opened.sent is not None else None
        if moved is None:
            self.turn.fail(worker, failure)
            return
        self.turn.record((failure, NO_VALUE), (moved, NO_VALUE))
        self.turn.report(worker, failure, NO_VALUE)
        self._enqueue.left(moved.mailbox)

    def reply(self, peer: Peer, worker: WorkerState, step: f.Step) -> None:
        """Reply to a held message that was sent by a call."""
        args = self.decode(step.a, s.ReplyArgs)
        done = step_finished(step)
        is_awaited = self.answer(args.mailbox, args.id, Value(step.v, step.ref), [(done, Value(NULL))])
        if not is_awaited:
            text = f"its reply to {args.id} of {args.mailbox} is no longer awaited"
            self.turn.with_next_commit(Show("note", worker.path, text))
        self.turn.answer(worker, step.p, step.n, Value(NULL))

    def answer(self, name: str, message_id: str, value: Value, items: Items = ()) -> bool:
        """Reply to a held message: one line has the outcome of the call, and ``items``. The first reply counts.

        Returns:
            Whether the reply is awaited.
        """
        message = self.state.mailbox(name).holding(message_id)
        address = message.reply_to if message else ""
        p, _, n = address.rpartition(" ")
        caller = self.state.worker_of(p) if p and not request_of(address) else None
        opened = caller.open.get((p, int(n))) if caller is not None else None
        if caller is not None and opened is not None:
            answered = step_finished(opened)
            self.turn.record((answered, value), *items)
            self.turn.report(caller, answered, value)
            return True
        with self.turn.one_line():
            if items:
                self.turn.record(*items)
            return self._outside.replied(address, value)

    # Inside.

    def _message(self, worker: WorkerState, step: f.Step, name: str) -> Outgoing:
        value = Value(step.v, step.ref)
        return Outgoing(name, worker.path, value, size_of(value), step=step, reply_to=f"{step.p} {step.n}")

    def _send(self, worker: WorkerState, step: f.Step, name: str, before: Items = ()) -> bool:
        """Enqueue the message; returns whether there was room, and otherwise the call may wait for it.

        Raises:
            BartackError: The mailbox does not take the message.
        """
        outcome = self._enqueue.enqueue(self._message(worker, step, name), before=before)
        match outcome:
            case Enqueued():
                return True
            case MustWait():
                return False
            case Refused():
                raise outcome.error
            case _:
                assert_never(outcome)

    def _wait_for_room(self, worker: WorkerState, step: f.Step, name: str) -> None:
        opened = worker.open[step.p, step.n]
        message = self._message(worker, step, name)

        def enter() -> None:
            self._enqueue.enter(message)

        def closed() -> None:
            self.turn.fail_open(worker, opened, MailboxClosedError(name))

        waiter = RoomWaiter(message.size, enter, closed, worker=worker.path, step=(step.p, step.n))
        self._room.wait(name, waiter)

    def _watch(self, worker: WorkerState, opened: OpenStep, source: str) -> None:
        """A call has a deadline."""
        left = self.left_s(opened)

        def late() -> None:
            self.cancel(worker, opened, DeadlineExceededError("call", opened.timeout_s or 0.0, source))

        self.timers.after(left or 0.0, late, lambda: self.is_open(worker, opened))
