"""What a mailbox is: its bounds, whether it is open, the topics it is subscribed to, the worker it is registered by."""

from __future__ import annotations

from bartack.errors import MailboxClosedError, MailboxNameError, NameTakenError
from bartack.messaging.mailboxes import check_name
from bartack.messaging.topic import check_pattern
from bartack.runtime.kernel.desk import Desk, Shared
from bartack.runtime.kernel.mail.receive import Receive
from bartack.runtime.kernel.mail.room import Room
from bartack.runtime.kernel.outcome import step_finished
from bartack.runtime.kernel.turn import NULL, Peer
from bartack.runtime.protocol import frames as f
from bartack.runtime.protocol import steps as s
from bartack.runtime.state import entries as e
from bartack.runtime.state.worker_state import NO_VALUE, Value, WorkerState


class MailboxRegistry(Desk):
    """Handles the steps that change or describe a mailbox itself."""

    def __init__(self, shared: Shared, room: Room, receive: Receive) -> None:
        super().__init__(shared)
        self._room = room
        self._receive = receive

    def declare(self, peer: Peer, worker: WorkerState, step: f.Step) -> None:
        """Set the bounds of a mailbox."""
        args = self.decode(step.a, s.DeclareArgs)
        check_name(args.mailbox)
        mailbox = self.state.mailbox(args.mailbox)
        mailbox.check_declaration(args.capacity, args.max_bytes, args.overflow)
        changed = e.MailboxChanged(
            mailbox=args.mailbox, capacity=args.capacity, max_bytes=args.max_bytes, overflow=args.overflow
        )
        self._change(worker, step, changed, Value(NULL))

    def close_step(self, peer: Peer, worker: WorkerState, step: f.Step) -> None:
        """Close a mailbox; receivers of an empty one learn it at once."""
        args = self.decode(step.a, s.MailboxArgs)
        check_name(args.mailbox)
        self._change(worker, step, e.MailboxChanged(mailbox=args.mailbox, closed=True), Value(NULL))
        self._room.close(args.mailbox)

    def close(self, name: str) -> None:
        """Close a mailbox for a process outside."""
        check_name(name)
        self.turn.record((e.MailboxChanged(mailbox=name, closed=True), NO_VALUE))
        self._room.close(name)

    def subscribe(self, peer: Peer, worker: WorkerState, step: f.Step) -> None:
        """Subscribe a mailbox to the topics of a pattern."""
        args = self.decode(step.a, s.TopicArgs)
        changed = self.subscription(args.mailbox, args.pattern, off=False)
        self._change(worker, step, changed, Value(NULL))

    def unsubscribe(self, peer: Peer, worker: WorkerState, step: f.Step) -> None:
        """End a subscription."""
        args = self.decode(step.a, s.TopicArgs)
        changed = self.subscription(args.mailbox, args.pattern, off=True)
        self._change(worker, step, changed, Value(NULL))

    def subscription(self, name: str, pattern: str, *, off: bool) -> e.MailboxChanged:
        """The entry that subscribes a mailbox to the topics of a pattern, or ends that.

        Raises:
            MailboxClosedError: The mailbox is closed.
            TopicNameError: The pattern is malformed.
        """
        check_name(name)
        check_pattern(pattern)
        if off:
            return e.MailboxChanged(mailbox=name, unsubscribe=pattern)
        if self.state.is_closed(name):
            raise MailboxClosedError(name)
        return e.MailboxChanged(mailbox=name, subscribe=pattern)

    def register(self, peer: Peer, worker: WorkerState, step: f.Step) -> None:
        """Make a mailbox the name of a worker: while that lives, no other receiver gets its messages."""
        args = self.decode(step.a, s.MailboxArgs)
        name = args.mailbox
        check_name(name)
        mailbox = self.state.mailbox(name)
        owner = self.state.owner_of(mailbox)
        if name.startswith("@"):
            raise MailboxNameError(name, "an inbox belongs to its worker already")
        if owner and owner != worker.path:
            raise NameTakenError(name, owner)
        if owner:
            self.finish_step(worker, step, mailbox.incarnation)
            return
        changed = e.MailboxChanged(mailbox=name, owner=worker.path)
        self._change(worker, step, changed, self.turn.pack(mailbox.incarnation + 1))
        self._receive.owned(name, worker.path)

    def stats(self, peer: Peer, worker: WorkerState, step: f.Step) -> None:
        """Counts of a mailbox."""
        args = self.decode(step.a, s.MailboxArgs)
        check_name(args.mailbox)
        self.finish_step(worker, step, self.describe(args.mailbox))

    def describe(self, name: str) -> s.MailboxStats:
        """Counts of a mailbox, as they are now."""
        mailbox = self.state.mailbox(name)
        oldest = mailbox.oldest()
        return s.MailboxStats(
            queued=len(mailbox),
            scheduled=mailbox.scheduled,
            waiting=self._receive.count(name),
            sent=mailbox.sent,
            delivered=mailbox.delivered,
            dropped=mailbox.dropped,
            size_bytes=mailbox.size_bytes,
            oldest_age_s=None if oldest is None else max(self.now_us() - oldest.at, 0) / 1e6,
        )

    def worker_ended(self, worker: WorkerState) -> None:
        """The inbox of a worker that has ended takes no more messages."""
        inbox = f"@{worker.path}"
        if inbox in self.state.mailboxes and self.state.is_closed(inbox):
            self._room.close(inbox)

    def _change(self, worker: WorkerState, step: f.Step, changed: e.MailboxChanged, value: Value) -> None:
        done = step_finished(step, about=step.about)
        self.turn.record((changed, NO_VALUE), (done, value))
        self.turn.answer(worker, step.p, step.n, value)
