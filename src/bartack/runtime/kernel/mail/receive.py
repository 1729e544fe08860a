"""Receiving: which receiver gets which message, and how it is handed over.

A receiver is served only while its worker is connected, so that no message is handed to a process that is gone. Receivers that
wait live here and die with the hub; messages live in the journal. How a message comes into its mailbox is in ``enqueue.py``, what
becomes of a message that has to be acknowledged is in ``held.py``.
"""

from __future__ import annotations

from typing import Final

import msgspec

from bartack.errors import (
    BartackError,
    MailboxClosedError,
    MailboxNameError,
    ReceiveTimeoutError,
    SessionFailedError,
)
from bartack.messaging import Mailbox, Message
from bartack.messaging.mailboxes import check_name
from bartack.runtime.kernel.desk import Desk, Shared
from bartack.runtime.kernel.handler import StepHandler
from bartack.runtime.kernel.mail.observer import MailObserver, MailObservers
from bartack.runtime.kernel.mail.waiters import Receiver, Waiter, Waiters
from bartack.runtime.kernel.turn import Peer
from bartack.runtime.protocol import frames as f
from bartack.runtime.protocol import steps as s
from bartack.runtime.state import entries as e
from bartack.runtime.state.run_state import State
from bartack.runtime.state.worker_state import OpenStep, WorkerState

PULSE_S: Final = 1.0
"""How often the default limit of a receive checks whether it stands still."""

LONG_WAITS: Final = frozenset({"think", "ask", "delegate"})
"""Steps that may take long for a good reason: while one is open, default limits of receivers stand still."""


class Receive(Desk, MailObserver):
    """Hands messages to receivers."""

    def __init__(self, shared: Shared, observers: MailObservers) -> None:
        super().__init__(shared)
        self._observers = observers
        self._waiters = Waiters()

    # Taking a message, or waiting for one.

    def take(self, waiter: Waiter) -> bool:
        """Hand over the oldest message of a mailbox; returns whether there was one that no other receiver waits for."""
        mailbox = self.state.mailbox(waiter.mailbox)
        message = None if self._waiters.count(waiter.mailbox) else mailbox.oldest()
        if message is None:
            return False
        self._hand_over(mailbox, message, waiter)
        return True

    def is_finished(self, name: str) -> bool:
        """Whether no message will ever come: the mailbox is closed, and holds and schedules none."""
        mailbox = self.state.mailbox(name)
        return self.state.is_closed(name) and not len(mailbox) and not mailbox.scheduled

    def wait(self, waiter: Waiter) -> None:
        """Let a receiver wait, after those that do already."""
        self._waiters.add(waiter)

    def time_out(self, waiter: Waiter, error: BartackError) -> None:
        """The time of a receiver is over, if it still waits."""
        if self._waiters.remove(waiter):
            waiter.give_up(error)

    def count(self, name: str) -> int:
        """How many receivers wait for a message from a mailbox."""
        return self._waiters.count(name)

    # Serving those that wait.

    def serve(self, mailbox: Mailbox) -> None:
        """Hand queued messages to the receivers that wait for them."""
        while self._waiters.count(mailbox.name) and (message := mailbox.oldest()) is not None:
            self._hand_over(mailbox, message, self._waiters.take_first(mailbox.name))

    def first(self, mailbox: Mailbox) -> Waiter | None:
        """The receiver that gets the next message of a mailbox, if one waits."""
        return self._waiters.first(mailbox.name)

    def handed_over(self, mailbox: Mailbox) -> None:
        """The first receiver that waits was given a message that was never queued: it no longer waits."""
        self._waiters.take_first(mailbox.name)

    def room_made(self, mailbox: Mailbox) -> None:
        """If no message will ever come, receivers that wait for one learn that."""
        if self._waiters.count(mailbox.name) and self.is_finished(mailbox.name):
            self._refuse(mailbox.name, MailboxClosedError(mailbox.name))

    waits_changed = room_made

    def owned(self, name: str, owner: str) -> None:
        """A mailbox belongs to a worker now: no other receiver waits for its messages any longer."""
        self._refuse(name, not_yours(name, owner), but=owner)

    def drain(self, peer: Peer, worker: WorkerState, step: f.Step) -> None:
        """Take all messages that are queued now."""
        args = self.decode(step.a, s.DrainArgs)
        self.check_reader(args.mailbox, worker.path)
        mailbox = self.state.mailbox(args.mailbox)
        messages = mailbox.queued()[: args.max]
        value = self.turn.pack([msgspec.Raw(self.turn.load(one.value, one.ref)) for one in messages])
        data = e.MessagesDrained(
            mailbox=args.mailbox, ids=[message.id for message in messages], p=step.p, n=step.n, fp=step.fp
        )
        self.turn.record((data, value))
        self.turn.answer(worker, step.p, step.n, value)
        for message in messages:
            if message.track:
                self._observers.message_moved(message.id, message.track)
        self._observers.room_made(mailbox)

    # Receivers that wait no longer.

    def forget_step(self, worker: WorkerState, step: tuple[str, int]) -> None:
        """A step of a worker no longer waits for a message."""
        self._waiters.remove_party(worker.path, step)

    def forget_request(self, peer: Peer, number: int) -> None:
        """A process outside no longer waits for the message that it asked for."""
        self._waiters.remove_party(peer.number, ("", number))

    def session_failed(self, error: SessionFailedError) -> None:
        """No receiver waits any longer. Workers learn of the failure as such, processes outside as their answer."""
        for waiter in self._waiters.all():
            self._waiters.remove(waiter)
            if not waiter.worker:
                waiter.give_up(error)

    def process_ended(self, worker: WorkerState) -> None:
        """The steps of a worker whose process has ended wait for nothing."""
        self._waiters.remove_party(worker.path)

    def peer_gone(self, peer: Peer) -> None:
        """A process outside that is gone waits for nothing."""
        self._waiters.remove_party(peer.number)

    # Inside.

    def check_reader(self, name: str, path: str = "") -> None:
        """Raise unless a worker, or without a path a process outside, may receive from a mailbox of this name.

        Raises:
            MailboxNameError: The name is malformed, or it belongs to another worker.
        """
        check_reader(name, path)
        mailbox = self.state.mailboxes.get(name)
        if mailbox is not None and mailbox.owner and mailbox.owner != path:
            owner = self.state.owner_of(mailbox)
            if owner:
                raise not_yours(name, owner)

    def _hand_over(self, mailbox: Mailbox, message: Message, waiter: Waiter) -> None:
        handing = waiter.entry(message)
        self.turn.record(handing)
        waiter.given(message, handing[1])
        if message.track:
            self._observers.message_moved(message.id, message.track)
        self._observers.room_made(mailbox)

    def _refuse(self, name: str, error: BartackError, but: str | None = None) -> None:
        for waiter in self._waiters.of(name):
            if waiter.worker != but:
                self._waiters.remove(waiter)
                waiter.give_up(error)


class ReceiveStep(Desk, StepHandler):
    """Handles the step ``receive``."""

    def __init__(self, shared: Shared, receive: Receive) -> None:
        super().__init__(shared)
        self._receive = receive

    def start(self, peer: Peer, worker: WorkerState, step: f.Step) -> None:
        """Take the oldest message, or wait for one."""
        args = self.decode(step.a, s.ReceiveArgs)
        self._receive.check_reader(args.mailbox, worker.path)
        receiver = Receiver(self.turn, peer, worker, step, args)
        if self._receive.take(receiver):
            return
        if self._receive.is_finished(args.mailbox):
            self.fail_step(worker, step, MailboxClosedError(args.mailbox))
        elif args.timeout_s == 0:
            self.fail_step(worker, step, ReceiveTimeoutError("receive", 0.0, "explicit"))
        else:
            receiver.opened = self.open_step(step, timeout_s=args.timeout_s)
            self._wait(worker, receiver, args.timeout_s)

    def resume(self, peer: Peer, worker: WorkerState, step: f.Step, opened: OpenStep) -> None:
        """Wait again, for the time that is left."""
        args = self.decode(step.a, s.ReceiveArgs)
        receiver = Receiver(self.turn, peer, worker, step, args)
        receiver.opened = opened
        if self._receive.take(receiver):
            return
        if self._receive.is_finished(args.mailbox):
            receiver.give_up(MailboxClosedError(args.mailbox))
        else:
            self._wait(worker, receiver, self.left_s(opened))

    def cancel(self, worker: WorkerState, opened: OpenStep, error: BartackError) -> None:
        """Stop waiting."""
        self._receive.forget_step(worker, (opened.p, opened.n))
        self.turn.fail_open(worker, opened, error)

    def _wait(self, worker: WorkerState, receiver: Receiver, left: float | None) -> None:
        self._receive.wait(receiver)
        if left is None:
            self._run_default_limit(worker, receiver, self.timeouts.limit("receive"))
            return
        opened = receiver.opened
        limit = (opened.timeout_s if opened is not None else left) or 0.0

        def expire() -> None:
            self._receive.time_out(receiver, ReceiveTimeoutError("receive", limit, "explicit"))

        receiver.timer = self.timers.after(left, expire)

    def _run_default_limit(self, worker: WorkerState, waiter: Waiter, left: float) -> None:
        """Count the default limit down, only while no other step has a good reason to take long."""
        pulse = min(left, PULSE_S)

        def beat() -> None:
            remaining = left if _is_held_up(self.state, worker) else left - pulse
            if remaining > 0:
                self._run_default_limit(worker, waiter, remaining)
                return
            limit, source = self.timeouts.explain("receive")
            self._receive.time_out(waiter, ReceiveTimeoutError("receive", limit, source))

        waiter.timer = self.timers.after(pulse, beat)


def check_reader(name: str, path: str) -> None:
    """Raise unless the name of a mailbox allows a worker to receive from it.

    Raises:
        MailboxNameError: The name is malformed, or it is the inbox of another worker.
    """
    check_name(name)
    if name.startswith("@") and name[1:] != path:
        raise MailboxNameError(name, "only its own worker receives from an inbox")


def not_yours(name: str, owner: str) -> MailboxNameError:
    """The error of a receiver that does not own a registered mailbox."""
    return MailboxNameError(name, f"it is registered by {owner}; only {owner} may receive from it")


def _is_held_up(state: State, receiver: WorkerState) -> bool:
    """Whether a prompt, a question or a delegate of another worker is open, so that a receiver may well have to wait."""
    above = {step for _, step in state.ancestors(receiver)}
    return any(
        opened.step in LONG_WAITS and (opened.p, opened.n) not in above and not worker.awaits_tool(opened)
        for worker in state.workers.values()
        for opened in worker.open.values()
    )
