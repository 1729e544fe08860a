"""The mailroom of the hub: sends, receives, and who waits for what.

Waiting receivers and blocked senders live here and die with the hub; messages live in the journal. A waiter is served only while
its worker is connected, so no message is handed to the dead.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

import msgspec

from bartack.config.sections import Bounds
from bartack.errors import (
    BartackError,
    MailboxClosedError,
    MailboxFullError,
    MailboxNameError,
    MessageTooLargeError,
    NameTakenError,
    ReceiveTimeoutError,
)
from bartack.journal import BlobRef
from bartack.messaging import MAX_DELIVERIES, MAX_MESSAGE, Mailbox, Message, check_name, check_pattern
from bartack.runtime.kernel.desk import Desk, Shared
from bartack.runtime.kernel.mail.dead_letters import LetterDesk
from bartack.runtime.kernel.mail.waiters import Receiver, Waiter
from bartack.runtime.kernel.outcome import step_finished
from bartack.runtime.kernel.timers import Timer
from bartack.runtime.kernel.turn import NULL, Peer
from bartack.runtime.protocol import frames as f
from bartack.runtime.protocol import steps as s
from bartack.runtime.state import entries as e
from bartack.runtime.state.blame import follows
from bartack.runtime.state.worker_state import NO_VALUE, OpenStep, Value, Worker

PULSE_S: Final = 1.0
"""How often the default clock of a receive looks whether it may go on."""

Stuck = Callable[[Worker], bool]
"""Whether the default clock of a worker's receive stands still."""


class Blocked(NamedTuple):
    """Somebody who waits for room."""

    size: int
    go: Callable[[], None]
    """There is room now."""
    shut: Callable[[], None]
    """There will never be: the mailbox takes no more messages."""
    timer: Timer | None = None
    path: str = ""
    """The worker whose step it is, if it is one that dies with its process."""
    step: tuple[str, int] = ("", 0)


class MailDesk(Desk):
    """Handles the steps and requests that concern mailboxes."""

    def __init__(self, shared: Shared, letters: LetterDesk, stuck: Stuck) -> None:
        super().__init__(shared)
        self._letters = letters
        self._stuck = stuck
        self.tracked: Callable[[Message], None] = lambda message: None
        """Told of a message that belongs to a supervised send, when its state has changed."""
        self.gated: set[str] = set()
        """Mailboxes in which a broadcast waits for room."""
        self.room: Callable[[str], None] = lambda name: None
        """Told when there may be room in one of these."""
        self._waiters: dict[str, deque[Waiter]] = {}
        self._waits: Counter[str | int] = Counter()
        """For how many messages each worker waits, by its path, and each process outside, by its number."""
        self._blocked: dict[str, deque[Blocked]] = {}
        self._due: dict[str, Timer] = {}

    @property
    def has_blocked(self) -> bool:
        """Whether a send waits for room."""
        return any(self._blocked.values())

    # Steps of workers.

    def send(self, peer: Peer, worker: Worker, step: f.Step) -> None:
        """Put a message into a mailbox."""
        args = self.decode(step.a, s.SendArgs)
        check_name(args.mailbox)
        mailbox = self.state.mailbox(args.mailbox)
        size = size_of(step.v, step.ref)
        known = mailbox.id_for(args.key)
        if known is not None:
            self.finish_step(worker, step, known)
            return
        self.check_open(args.mailbox)
        if args.not_before or self.has_room(mailbox, size, worker.path):
            self._deliver(worker, step, args, size, mailbox)
        else:
            self._overflow(worker, step, args, size, mailbox)

    def receive(self, peer: Peer, worker: Worker, step: f.Step) -> None:
        """Take the oldest message, or wait for one."""
        args = self.decode(step.a, s.ReceiveArgs)
        self.check_reader(args.mailbox, worker.path)
        mailbox = self.state.mailbox(args.mailbox)
        receiver = Receiver(self.turn, peer, worker, step, args)
        message = self._next(mailbox)
        if message is not None:
            self._hand_over(mailbox, message, receiver)
        elif self._is_finished(mailbox):
            self.fail_step(worker, step, MailboxClosedError(args.mailbox))
        elif args.timeout_s == 0:
            self.fail_step(worker, step, ReceiveTimeoutError("receive", 0.0, "explicit"))
        else:
            receiver.opened = self.open_step(step, timeout_s=args.timeout_s)
            self._wait(worker, receiver, args.timeout_s)

    def resume_receive(self, peer: Peer, worker: Worker, step: f.Step, opened: OpenStep) -> None:
        """A worker that was restarted waits again."""
        args = self.decode(step.a, s.ReceiveArgs)
        mailbox = self.state.mailbox(args.mailbox)
        receiver = Receiver(self.turn, peer, worker, step, args)
        receiver.opened = opened
        message = self._next(mailbox)
        if message is not None:
            self._hand_over(mailbox, message, receiver)
        elif self._is_finished(mailbox):
            receiver.give_up(MailboxClosedError(args.mailbox))
        else:
            self._wait(worker, receiver, self.left_s(opened))

    def ack(self, peer: Peer, worker: Worker, step: f.Step) -> None:
        """Acknowledge a held message."""
        self._settle_step(worker, step, "processed")

    def nack(self, peer: Peer, worker: Worker, step: f.Step) -> None:
        """A failure left the block in which a message was held. It goes back when the failure turns out to be caught.

        Until then it stays where it is: if the failure is not caught, the resumed worker holds it again.
        """
        args = self.decode(step.a, s.AckArgs)
        self._settle_step(worker, step, "returning" if args.requeue else "dead")

    def return_all(self, worker: Worker, p: str) -> None:
        """A branch of a worker goes on behind a failure: what was given back in it goes back."""
        for message_id, (_, step) in list(worker.returning.items()):
            held = self.state.held.get(message_id)
            if held is not None and follows(p, step):
                self._settle(held[0], message_id, ok=False)

    def drain(self, peer: Peer, worker: Worker, step: f.Step) -> None:
        """Take everything that is there now."""
        args = self.decode(step.a, s.DrainArgs)
        self.check_reader(args.mailbox, worker.path)
        mailbox = self.state.mailbox(args.mailbox)
        messages = mailbox.queued()[: args.max]
        values = [msgspec.Raw(self._load(message)) for message in messages]
        value = self.turn.pack(values)
        data = e.MessagesDrained(
            mailbox=args.mailbox, ids=[message.id for message in messages], p=step.p, n=step.n, fp=step.fp
        )
        self.turn.record((data, value))
        self.turn.answer(worker, step.p, step.n, value)
        for message in messages:
            if message.track:
                self.tracked(message)
        self._make_room(mailbox)

    def withdraw(self, peer: Peer, worker: Worker, step: f.Step) -> None:
        """Take back a message of one's own."""
        args = self.decode(step.a, s.WithdrawArgs)
        message = self.state.mailbox(args.mailbox).find(args.id)
        mine = message is not None and message.sender == worker.path
        done = step_finished(step, about=step.about)
        value = self.turn.pack(mine)
        if mine:
            moved = e.MessageMoved(mailbox=args.mailbox, id=args.id, to="withdrawn")
            self.turn.record((moved, NO_VALUE), (done, value))
            self.turn.answer(worker, step.p, step.n, value)
            self.left(args.mailbox)
        else:
            self.turn.finish(worker, done, value)

    def declare(self, peer: Peer, worker: Worker, step: f.Step) -> None:
        """Set the bounds of a mailbox."""
        args = self.decode(step.a, s.DeclareArgs)
        check_name(args.mailbox)
        mailbox = self.state.mailbox(args.mailbox)
        mailbox.declare(args.capacity, args.max_bytes, args.overflow)
        changed = e.MailboxChanged(
            mailbox=args.mailbox, capacity=args.capacity, max_bytes=args.max_bytes, overflow=args.overflow
        )
        self._change(worker, step, changed)

    def close(self, peer: Peer, worker: Worker, step: f.Step) -> None:
        """Take no more messages; receivers of an empty mailbox learn it at once."""
        args = self.decode(step.a, s.MailboxArgs)
        check_name(args.mailbox)
        self._change(worker, step, e.MailboxChanged(mailbox=args.mailbox, closed=True))
        self.shut(args.mailbox)

    def subscribe(self, peer: Peer, worker: Worker, step: f.Step) -> None:
        """Subscribe a mailbox to the topics of a pattern, or end that."""
        args = self.decode(step.a, s.TopicArgs)
        self._change(
            worker, step, self.subscription(args.mailbox, args.pattern, off=step.step != "subscribe")
        )

    def subscription(self, name: str, pattern: str, *, off: bool) -> e.MailboxChanged:
        """The entry that subscribes a mailbox to the topics of a pattern, or ends that.

        Raises:
            MailboxClosedError: It takes no more messages.
            TopicNameError: There is no such pattern.
        """
        check_name(name)
        check_pattern(pattern)
        if off:
            return e.MailboxChanged(mailbox=name, unsubscribe=pattern)
        if self.state.is_closed(name):
            raise MailboxClosedError(name)
        return e.MailboxChanged(mailbox=name, subscribe=pattern)

    def register(self, peer: Peer, worker: Worker, step: f.Step) -> None:
        """Make a mailbox the name of a worker: nobody else receives from it while that lives."""
        args = self.decode(step.a, s.MailboxArgs)
        check_name(args.mailbox)
        mailbox = self.state.mailbox(args.mailbox)
        owner = self.state.owner_of(mailbox)
        if args.mailbox.startswith("@"):
            raise MailboxNameError(args.mailbox, "an inbox belongs to its worker already")
        if owner and owner != worker.path:
            raise NameTakenError(args.mailbox, owner)
        if owner:
            self.finish_step(worker, step, mailbox.incarnation)
            return
        done = step_finished(step, about=step.about)
        value = self.turn.pack(mailbox.incarnation + 1)
        changed = e.MailboxChanged(mailbox=args.mailbox, owner=worker.path)
        self.turn.record((changed, NO_VALUE), (done, value))
        self.turn.answer(worker, step.p, step.n, value)
        self._send_away(args.mailbox, worker.path)

    def declare_all(self, bounds: Mapping[str, Bounds]) -> None:
        """The bounds that the settings of the project give to mailboxes that have none yet."""
        for name, has in bounds.items():
            if not self.state.mailbox(name).declared:
                changed = e.MailboxChanged(
                    mailbox=name, capacity=has.capacity, max_bytes=has.max_bytes, overflow=has.overflow
                )
                self.turn.record((changed, NO_VALUE), sync=False)

    def stats(self, peer: Peer, worker: Worker, step: f.Step) -> None:
        """Counts of a mailbox."""
        args = self.decode(step.a, s.MailboxArgs)
        check_name(args.mailbox)
        self.finish_step(worker, step, self.describe(args.mailbox))

    # For everybody.

    def check_open(self, name: str) -> None:
        """Raise unless a mailbox takes messages.

        Raises:
            MailboxClosedError: It was closed, or is the inbox of a worker that has ended.
            MailboxNameError: It is the inbox of a worker that never was.
        """
        if self.state.is_closed(name):
            raise MailboxClosedError(name)
        if name.startswith("@") and name[1:] not in self.state.workers:
            raise MailboxNameError(name, "there is no worker of this path")

    def describe(self, name: str) -> s.MailboxStats:
        """Counts of a mailbox, as they are now."""
        mailbox = self.state.mailbox(name)
        oldest = mailbox.oldest()
        return s.MailboxStats(
            queued=len(mailbox),
            scheduled=mailbox.scheduled,
            waiting=len(self._waiters.get(name, ())),
            sent=mailbox.sent,
            delivered=mailbox.delivered,
            dropped=mailbox.dropped,
            size_bytes=mailbox.size_bytes,
            oldest_age_s=None if oldest is None else max(self.now_us() - oldest.at, 0) / 1e6,
        )

    def take_back(self, name: str, message_id: str, sender: str) -> bool:
        """Somebody takes back a message of his own; tells whether it was there still."""
        moved = self.withdrawal(name, message_id, sender)
        if moved is None:
            return False
        self.turn.record((moved, NO_VALUE))
        self.left(name)
        return True

    def withdrawal(self, name: str, message_id: str, sender: str) -> e.MessageMoved | None:
        """The entry with which somebody takes back a message of his own, if it is there still."""
        message = self.state.mailbox(name).find(message_id)
        if message is None or message.sender != sender:
            return None
        return e.MessageMoved(mailbox=name, id=message_id, to="withdrawn")

    def wait_foreign(self, waiter: Waiter, timeout_s: float | None) -> None:
        """A foreign process waits for a message."""
        mailbox = self.state.mailbox(waiter.mailbox)
        message = self._next(mailbox)
        if message is not None:
            self._hand_over(mailbox, message, waiter)
            return
        if self._is_finished(mailbox):
            waiter.give_up(MailboxClosedError(waiter.mailbox))
            return
        limit, source = self._limit("receive", timeout_s)
        if limit <= 0:
            waiter.give_up(ReceiveTimeoutError("receive", 0.0, source))
            return
        self._add_waiter(waiter)
        waiter.timer = self.timers.after(
            limit, lambda: self._too_late(waiter, ReceiveTimeoutError("receive", limit, source))
        )

    def settle_foreign(self, peer: Peer, message_id: str, *, ok: bool) -> None:
        """A foreign process acknowledged a message, or gave it back."""
        name = peer.held.pop(message_id, None)
        if name is not None:
            self._settle(name, message_id, ok=ok)

    def forget_worker(self, path: str) -> None:
        """A worker's process is gone: it waits for nothing."""
        self._forget(path, lambda waiter: True)
        self._stop_blocking(lambda blocked: blocked.path == path)

    def forget_peer(self, peer: Peer) -> None:
        """A foreign process is gone: what it held goes back."""
        self._forget(peer.number, lambda waiter: True)
        for message_id in list(peer.held):
            self.settle_foreign(peer, message_id, ok=False)

    def forget_request(self, peer: Peer, number: int) -> None:
        """A foreign process waits no longer for what it asked for."""
        self._forget(peer.number, lambda waiter: waiter.step == ("", number))

    def cancel(self, worker: Worker, p: str, n: int) -> None:
        """A step waits no longer, neither for a message nor for room."""
        self._forget(worker.path, lambda waiter: waiter.step == (p, n))
        self._stop_blocking(lambda blocked: blocked.path == worker.path and blocked.step == (p, n))

    def abort_all(self, error: BartackError) -> None:
        """The session failed: nobody waits any more, and no message moves."""
        for queue in self._blocked.values():
            for blocked in queue:
                _call_off(blocked)
        self._blocked.clear()
        waiting = [waiter for queue in self._waiters.values() for waiter in queue]
        self._waiters.clear()
        self._waits.clear()
        for waiter in waiting:
            self._drop_alarm(waiter)
            if not waiter.worker:
                waiter.give_up(error)

    def give_back(self, holder: str) -> None:
        """Somebody who holds messages has ended: they go back."""
        for message_id, (name, by) in list(self.state.held.items()):
            if by == holder:
                self._settle(name, message_id, ok=False)

    def arm_all(self) -> None:
        """After a restart: what the dead held goes back; scheduled messages come due, overdue ones at once."""
        workers = self.state.workers
        for message_id, (name, by) in list(self.state.held.items()):
            if by not in workers or workers[by].ended:
                self._settle(name, message_id, ok=False)
        for mailbox in list(self.state.mailboxes.values()):
            if mailbox.scheduled:
                self._come_due(mailbox)

    # Inside.

    def _deliver(self, worker: Worker, step: f.Step, args: s.SendArgs, size: int, mailbox: Mailbox) -> None:
        turn = self.turn
        sent = self.sent(worker, step, args, size)
        waiters = self._waiters.get(mailbox.name)
        if waiters and not len(mailbox) and not args.not_before:
            self._pass_on(worker, step, sent, waiters)
            return
        turn.record((sent, Value(step.v, step.ref)))
        turn.answer(worker, step.p, step.n, turn.pack(sent.id))
        if args.not_before:
            self._arm_due(mailbox)
        self._serve(mailbox)

    def _pass_on(self, worker: Worker, step: f.Step, sent: e.MessageSent, waiters: deque[Waiter]) -> None:
        """A message is for the first who waits for one: one line says both, and the mailbox is as it was."""
        turn = self.turn
        value = Value(step.v, step.ref)
        if turn.emitter is not None and turn.emitter.traces:
            # Now, since whoever has to acknowledge it is shown that, too.
            sent = turn.emitter.stamp_message(sent, value)
        message = Message(sent.id, 0, sent.sender, sent.size, 0, step.v, step.ref, metadata=sent.metadata)
        handing = waiters[0].entry(message)
        turn.record((sent, value), handing)
        # The sender first: if it waits for a reply, it says so before that comes, and both share a commit.
        turn.answer(worker, step.p, step.n, turn.pack(sent.id))
        self._next_waiter(waiters).given(message, handing[1])

    def sent(
        self, worker: Worker, step: f.Step, args: s.SendArgs, size: int, reply_to: str = ""
    ) -> e.MessageSent:
        """The entry of a message that a worker sends."""
        return e.MessageSent(
            mailbox=args.mailbox,
            id=f"m-{self.turn.next_message()}",
            size=size,
            sender=worker.path,
            key=args.key,
            metadata=args.metadata,
            not_before=args.not_before or 0,
            reply_to=reply_to,
            p=step.p,
            n=step.n,
            fp=step.fp,
        )

    def _overflow(self, worker: Worker, step: f.Step, args: s.SendArgs, size: int, mailbox: Mailbox) -> None:
        if mailbox.overflow == "drop_oldest" and self._drop_oldest(mailbox, size):
            self._deliver(worker, step, args, size, mailbox)
        elif mailbox.overflow == "drop_newest":
            sent = self.sent(worker, step, args, size)
            dropped = self._dropped(mailbox.name, sent.id)
            self.turn.record((sent, Value(step.v, step.ref)), (dropped, NO_VALUE))
            self._letters.arm(sent.id)
            self.turn.answer(worker, step.p, step.n, self.turn.pack(sent.id))
        elif mailbox.overflow == "reject" or self.is_own(mailbox, worker.path):
            self.fail_step(worker, step, MailboxFullError(mailbox.name, len(mailbox)))
        else:
            self._block(worker, step, args, size, mailbox)

    def _drop_oldest(self, mailbox: Mailbox, size: int) -> bool:
        """Whether there is room for a message, or could be made by dropping older ones."""
        if mailbox.overflow == "drop_oldest":
            for message in mailbox.pushed_out(size):
                self.turn.record((self._dropped(mailbox.name, message.id), NO_VALUE))
                self.dropped(message)
        return mailbox.has_room(size)

    def push_out(self, name: str, size: int) -> bool:
        """Whether a mailbox has room for a message, or makes it by dropping older ones."""
        return self._drop_oldest(self.state.mailbox(name), size)

    def dropped(self, message: Message) -> None:
        """A message became a dead letter."""
        self._letters.arm(message.id)
        if message.track:
            self.tracked(message)

    def is_own(self, mailbox: Mailbox, path: str) -> bool:
        """Whether only one worker receives from a mailbox: if that waited for room, it would wait for itself."""
        return mailbox.name == f"@{path}" or mailbox.owner == path

    def _block(self, worker: Worker, step: f.Step, args: s.SendArgs, size: int, mailbox: Mailbox) -> None:
        known = worker.open.get((step.p, step.n))
        opened = known or self.open_step(step, timeout_s=self.timeouts.limit("send"))

        def late() -> None:
            self.unblock(mailbox.name, blocked)
            error = MailboxFullError(mailbox.name, len(mailbox))
            self.turn.fail_open(worker, opened, error)

        def shut() -> None:
            self.turn.fail_open(worker, opened, MailboxClosedError(mailbox.name))

        def go() -> None:
            sent = mailbox.id_for(args.key)
            if sent is not None:  # by another who waited, too
                self.turn.end_open(worker, opened, self.turn.pack(sent))
            else:
                self._deliver(worker, step, args, size, mailbox)

        timer = self.timers.after(self.left_s(opened) or 0.0, late)
        blocked = Blocked(size, go, shut, timer, worker.path, (step.p, step.n))
        self.block(mailbox.name, blocked)

    def block(self, name: str, blocked: Blocked) -> None:
        """Somebody waits for room, behind those who do already."""
        self._blocked.setdefault(name, deque()).append(blocked)

    def unblock(self, name: str, blocked: Blocked) -> None:
        """Somebody waits for room no longer: there may be enough for those behind."""
        queue = self._blocked.get(name)
        if queue is not None and blocked in queue:
            # In place, since somebody may be busy with this queue; and the others later, since that one is busy, too.
            queue.remove(blocked)
            self.timers.after(0.0, lambda: self._let_in(self.state.mailbox(name)))

    def has_room(self, mailbox: Mailbox, size: int, sender: str) -> bool:
        """Whether a message that comes now has room, behind those who wait for it already."""
        first = not self._blocked.get(mailbox.name) or self.is_own(mailbox, sender)
        return first and mailbox.has_room(size)

    def shut(self, name: str) -> None:
        """A mailbox takes no more messages: whoever waits for room in it, or for a message from it in vain, is told."""
        for blocked in self._blocked.pop(name, ()):
            _call_off(blocked)
            blocked.shut()
        if name in self.gated:
            self.room(name)
        self._turn_away(self.state.mailbox(name))

    def arrived(self, name: str) -> None:
        """A message was put into a mailbox: those who wait for one are served."""
        mailbox = self.state.mailbox(name)
        self._arm_due(mailbox)
        self._serve(mailbox)

    def left(self, name: str) -> None:
        """A message is gone from a mailbox: those who wait for room are served."""
        self._make_room(self.state.mailbox(name))

    def _make_room(self, mailbox: Mailbox) -> None:
        """Messages left a mailbox: those who wait for room are served in the order in which they came."""
        if mailbox.scheduled:
            self._come_due(mailbox)
        self._let_in(mailbox)
        self._turn_away(mailbox)

    def _turn_away(self, mailbox: Mailbox) -> None:
        """If nothing will ever come, those who wait for it are told."""
        if self._waiters.get(mailbox.name) and self._is_finished(mailbox):
            for waiter in self._waiters.pop(mailbox.name):
                self._drop_waiter(waiter)
                waiter.give_up(MailboxClosedError(mailbox.name))

    def _let_in(self, mailbox: Mailbox) -> None:
        blocked = self._blocked.get(mailbox.name)
        while blocked and mailbox.has_room(blocked[0].size):
            first = blocked.popleft()
            _call_off(first)
            first.go()
        if mailbox.name in self.gated:
            self.room(mailbox.name)

    def _wait(self, worker: Worker, receiver: Receiver, left: float | None) -> None:
        """A worker waits for a message: for so many seconds, or as long as the default says."""
        self._add_waiter(receiver)
        if left is None:
            self._run_default_clock(worker, receiver, self.timeouts.limit("receive"))
            return
        opened = receiver.opened
        limit = (opened.timeout_s if opened is not None else left) or 0.0
        receiver.timer = self.timers.after(
            left, lambda: self._too_late(receiver, ReceiveTimeoutError("receive", limit, "explicit"))
        )

    def _run_default_clock(self, worker: Worker, waiter: Waiter, left: float) -> None:
        """The default limit counts only while nobody else's prompt, question or delegate is open."""
        pulse = min(left, PULSE_S)

        def beat() -> None:
            remaining = left if self._stuck(worker) else left - pulse
            if remaining > 0:
                self._run_default_clock(worker, waiter, remaining)
                return
            limit, source = self.timeouts.explain("receive")
            self._too_late(waiter, ReceiveTimeoutError("receive", limit, source))

        waiter.timer = self.timers.after(pulse, beat)

    def _too_late(self, waiter: Waiter, error: BartackError) -> None:
        queue = self._waiters.get(waiter.mailbox)
        if queue is not None and waiter in queue:
            queue.remove(waiter)
            self._drop_waiter(waiter)
            waiter.give_up(error)

    def _hand_over(self, mailbox: Mailbox, message: Message, waiter: Waiter) -> None:
        handing = waiter.entry(message)
        self.turn.record(handing)
        waiter.given(message, handing[1])
        if message.track:
            self.tracked(message)
        self._make_room(mailbox)

    def _serve(self, mailbox: Mailbox) -> None:
        waiters = self._waiters.get(mailbox.name)
        while waiters and (message := mailbox.oldest()) is not None:
            self._hand_over(mailbox, message, self._next_waiter(waiters))

    def _next_waiter(self, waiters: deque[Waiter]) -> Waiter:
        waiter = waiters.popleft()
        self._drop_waiter(waiter)
        return waiter

    def _next(self, mailbox: Mailbox) -> Message | None:
        """The message that somebody who comes now receives: none, if others were there before."""
        return None if self._waiters.get(mailbox.name) else mailbox.oldest()

    def _is_finished(self, mailbox: Mailbox) -> bool:
        """Whether nothing will ever come: no message is there, and none is scheduled."""
        return self.state.is_closed(mailbox.name) and not len(mailbox) and not mailbox.scheduled

    def _settle_step(self, worker: Worker, step: f.Step, to: str) -> None:
        args = self.decode(step.a, s.AckArgs)
        done = step_finished(step)
        message = self.state.mailbox(args.mailbox).holding(args.id)
        if message is None:
            self.turn.finish(worker, done, Value(NULL))
            return
        if to == "dead":
            moved = self._letters.burial(args.mailbox, message, "nack", error=args.reason)
        else:
            moved = e.MessageMoved(
                mailbox=args.mailbox, id=args.id, to=to, reason=args.reason, p=step.p, n=step.n
            )
        self.turn.record((done, Value(NULL)), (moved, NO_VALUE))
        self.turn.answer(worker, step.p, step.n, Value(NULL))
        if to == "dead":
            self.dropped(message)
        elif message.track and to == "processed":
            self.tracked(message)

    def _settle(self, name: str, message_id: str, *, ok: bool) -> None:
        mailbox = self.state.mailbox(name)
        message = mailbox.holding(message_id)
        if message is None:
            return
        if ok or message.attempt < MAX_DELIVERIES:
            moved = e.MessageMoved(mailbox=name, id=message_id, to="processed" if ok else "returned")
        else:
            moved = self._letters.burial(name, message, "max_deliveries")
        self.turn.record((moved, NO_VALUE))
        self._letters.arm(message_id)
        if message.track:
            self.tracked(message)
        self._serve(mailbox)

    def _change(self, worker: Worker, step: f.Step, changed: e.MailboxChanged) -> None:
        done = step_finished(step, about=step.about)
        self.turn.record((changed, NO_VALUE), (done, Value(NULL)))
        self.turn.answer(worker, step.p, step.n, Value(NULL))

    def _arm_due(self, mailbox: Mailbox) -> None:
        due = mailbox.next_due()
        timer = self._due.get(mailbox.name)
        if due is None or (timer is not None and timer.pending and timer.due <= due):
            return
        now = self.now_us()
        if due <= now and mailbox.due(now) is None:
            return  # it waits for room, and comes with it
        if timer is not None:
            timer.cancel()
        self._due[mailbox.name] = self.timers.at(due, lambda: self._come_due(mailbox))

    def _come_due(self, mailbox: Mailbox) -> None:
        name = mailbox.name
        came = False
        while (message := mailbox.due(self.now_us())) is not None:
            fits = self._drop_oldest(mailbox, message.size)
            due = e.MessageMoved(mailbox=name, id=message.id, to="due")
            self.turn.record((due if fits else self._dropped(name, message.id), NO_VALUE))
            if message.track or not fits:
                self.dropped(message)
            came = True
        self._arm_due(mailbox)
        if came:
            self._serve(mailbox)

    def _add_waiter(self, waiter: Waiter) -> None:
        self._waiters.setdefault(waiter.mailbox, deque()).append(waiter)
        self._waits[waiter.party] += 1

    def _drop_waiter(self, waiter: Waiter) -> None:
        """Somebody who was taken out of the queue waits no longer."""
        self._drop_alarm(waiter)
        self._waits[waiter.party] -= 1
        if not self._waits[waiter.party]:
            del self._waits[waiter.party]

    def _forget(self, party: str | int, gone: Callable[[Waiter], bool]) -> None:
        """A worker or a process outside waits no longer for some of what it waited for."""
        if party not in self._waits:
            return
        for name, waiters in self._waiters.items():
            left = [waiter for waiter in waiters if waiter.party == party and gone(waiter)]
            for waiter in left:
                self._drop_waiter(waiter)
            if left:
                self._waiters[name] = deque(waiter for waiter in waiters if waiter not in left)

    def _stop_blocking(self, gone: Callable[[Blocked], bool]) -> None:
        for name, queue in self._blocked.items():
            for blocked in [item for item in queue if gone(item)]:
                _call_off(blocked)
                self.unblock(name, blocked)

    def _send_away(self, name: str, owner: str) -> None:
        """A mailbox belongs to a worker now: nobody else waits for its messages any more."""
        waiters = self._waiters.get(name, deque())
        for waiter in [waiter for waiter in waiters if waiter.worker != owner]:
            waiters.remove(waiter)
            self._drop_waiter(waiter)
            waiter.give_up(_not_yours(name, owner))

    def _drop_alarm(self, waiter: Waiter) -> None:
        if waiter.timer is not None:
            waiter.timer.cancel()

    def _limit(self, kind: str, explicit: float | None) -> tuple[float, str]:
        return self.timeouts.explain(kind) if explicit is None else (explicit, "explicit")

    def _load(self, message: Message) -> bytes:
        return self.turn.load(message.value, message.ref)

    def _dropped(self, name: str, message_id: str) -> e.MessageMoved:
        return self._letters.dead_letter_entry(name, message_id, "overflow", attempts=1)

    def check_reader(self, name: str, path: str = "") -> None:
        """Raise unless a worker, or without a path a process outside, may receive from a mailbox of this name.

        Raises:
            MailboxNameError: The name is malformed, or it belongs to somebody else.
        """
        check_reader(name, path)
        mailbox = self.state.mailboxes.get(name)
        if mailbox is not None and mailbox.owner and mailbox.owner != path:
            owner = self.state.owner_of(mailbox)
            if owner:
                raise _not_yours(name, owner)


def check_reader(name: str, path: str) -> None:
    """Raise unless a worker may receive from a mailbox of this name, as far as the name tells.

    Raises:
        MailboxNameError: The name is malformed, or it is somebody else's inbox.
    """
    check_name(name)
    if name.startswith("@") and name[1:] != path:
        raise MailboxNameError(name, "only its own worker receives from an inbox")


def _not_yours(name: str, owner: str) -> MailboxNameError:
    return MailboxNameError(name, f"only {owner} receives from it, whose name it is")


def _call_off(blocked: Blocked) -> None:
    if blocked.timer is not None:
        blocked.timer.cancel()


def size_of(raw: msgspec.Raw | None, ref: BlobRef | None) -> int:
    """How long a message is.

    Raises:
        MessageTooLargeError: It is longer than a message may be.
    """
    size = ref.size if ref is not None else len(bytes(raw)) if raw is not None else 4
    if size > MAX_MESSAGE:
        raise MessageTooLargeError("the message", size, MAX_MESSAGE)
    return size
