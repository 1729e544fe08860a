"""Messages that a receiver holds until it acknowledges them: acknowledged, returned to their place, or dead after too many tries.

A message is handed over in an entry (``receive.py``) and leaves its mailbox for good in another one, that of its acknowledgement.
If the receiver dies between the two, the message goes back.
"""

from __future__ import annotations

from bartack.messaging.mailboxes import MAX_DELIVERIES
from bartack.runtime.kernel.desk import Desk, Shared
from bartack.runtime.kernel.mail.dead_letter_entry import DeadLetterEntries
from bartack.runtime.kernel.mail.observer import MailObservers
from bartack.runtime.kernel.mail.receive import Receive
from bartack.runtime.kernel.outcome import step_finished
from bartack.runtime.kernel.turn import NULL, Peer
from bartack.runtime.protocol import frames as f
from bartack.runtime.protocol import steps as s
from bartack.runtime.state import entries as e
from bartack.runtime.state.blame import follows
from bartack.runtime.state.worker_state import NO_VALUE, Value, WorkerState


class HeldMessages(Desk):
    """Handles the steps ``ack`` and ``nack``, and returns messages whose receiver is gone."""

    def __init__(
        self, shared: Shared, receive: Receive, dead_letters: DeadLetterEntries, observers: MailObservers
    ) -> None:
        super().__init__(shared)
        self._receive = receive
        self._dead_letters = dead_letters
        self._observers = observers

    # Steps of workers.

    def ack(self, peer: Peer, worker: WorkerState, step: f.Step) -> None:
        """Acknowledge a held message."""
        self._settle_step(worker, step, "processed")

    def nack(self, peer: Peer, worker: WorkerState, step: f.Step) -> None:
        """A failure left the block in which a message was held. The message goes back when the failure turns out to be caught.

        Until then it stays where it is: if the failure is not caught, the resumed worker holds it again.
        """
        args = self.decode(step.a, s.AckArgs)
        self._settle_step(worker, step, "returning" if args.requeue else "dead")

    def return_caught(self, worker: WorkerState, p: str) -> None:
        """A branch of a worker continues after a failure: messages that it gave back because of that go back."""
        for message_id, (_, step) in list(worker.returning.items()):
            held = self.state.held.get(message_id)
            if held is not None and follows(p, step):
                self._settle(held[0], message_id, ok=False)

    # Processes outside.

    def settle(self, peer: Peer, message_id: str, *, ok: bool) -> None:
        """A process outside acknowledged a message, or gave it back."""
        name = peer.held.pop(message_id, None)
        if name is not None:
            self._settle(name, message_id, ok=ok)

    # The life of a run.

    def resumed(self) -> None:
        """Return the messages of receivers that did not outlive the previous hub."""
        workers = self.state.workers
        for message_id, (name, by) in list(self.state.held.items()):
            if by not in workers or workers[by].ended:
                self._settle(name, message_id, ok=False)

    def worker_ended(self, worker: WorkerState) -> None:
        """Return the messages that a worker still held."""
        for message_id, (name, by) in list(self.state.held.items()):
            if by == worker.path:
                self._settle(name, message_id, ok=False)

    def peer_gone(self, peer: Peer) -> None:
        """Return the messages that a process outside still held."""
        for message_id in list(peer.held):
            self.settle(peer, message_id, ok=False)

    # Inside.

    def _settle_step(self, worker: WorkerState, step: f.Step, to: str) -> None:
        args = self.decode(step.a, s.AckArgs)
        done = step_finished(step)
        message = self.state.mailbox(args.mailbox).holding(args.id)
        if message is None:
            self.turn.finish(worker, done, Value(NULL))
            return
        if to == "dead":
            moved = self._dead_letters.of_message(args.mailbox, message, "nack", args.reason)
        else:
            moved = e.MessageMoved(
                mailbox=args.mailbox, id=args.id, to=to, reason=args.reason, p=step.p, n=step.n
            )
        self.turn.record((done, Value(NULL)), (moved, NO_VALUE))
        self.turn.answer(worker, step.p, step.n, Value(NULL))
        if to == "dead" or (message.track and to == "processed"):
            self._observers.message_moved(message.id, message.track)

    def _settle(self, name: str, message_id: str, *, ok: bool) -> None:
        mailbox = self.state.mailbox(name)
        message = mailbox.holding(message_id)
        if message is None:
            return
        is_dead = not ok and message.attempt >= MAX_DELIVERIES
        if is_dead:
            moved = self._dead_letters.of_message(name, message, "max_deliveries")
        else:
            moved = e.MessageMoved(mailbox=name, id=message_id, to="processed" if ok else "returned")
        self.turn.record((moved, NO_VALUE))
        if is_dead or message.track:
            self._observers.message_moved(message_id, message.track)
        self._receive.serve(mailbox)
