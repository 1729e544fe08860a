"""Requests and replies: a message that is sent with an address for its reply, and the wait for that.

Whoever gives up waiting takes the message back, as long as nobody has received it: work that nobody waits for is not begun.
"""

from __future__ import annotations

from collections.abc import Callable

from bartack.errors import BartackError, DeadlineExceededError, MailboxClosedError, MailboxFullError
from bartack.messaging import check_name
from bartack.runtime.kernel.actions import Show
from bartack.runtime.kernel.desk import Desk, Shared
from bartack.runtime.kernel.mail.mailroom import Blocked, MailDesk, size_of
from bartack.runtime.kernel.outcome import step_failed, step_finished
from bartack.runtime.kernel.turn import NULL, Peer
from bartack.runtime.protocol import frames as f
from bartack.runtime.protocol import steps as s
from bartack.runtime.state import entries as e
from bartack.runtime.state.worker_state import NO_VALUE, OpenStep, Value, Worker


class CallDesk(Desk):
    """Handles the steps ``call`` and ``reply``."""

    def __init__(self, shared: Shared, mail: MailDesk) -> None:
        super().__init__(shared)
        self._mail = mail
        self.replied: Callable[[str, Value], bool] = lambda request, value: False
        """Told of the reply to a call from outside; whether somebody still waits for it."""

    def call(self, peer: Peer, worker: Worker, step: f.Step) -> None:
        """Send a message and wait for the reply."""
        args = self.decode(step.a, s.CallMailboxArgs)
        check_name(args.mailbox)
        self._mail.check_open(args.mailbox)
        limit, source = self._limit(args.timeout_s)
        started = e.StepStarted(
            p=step.p, n=step.n, step="call", fp=step.fp, about=step.about, timeout_s=limit
        )
        if self._may_call(worker, args.mailbox, size_of(step.v, step.ref)):
            self._put(worker, step, args.mailbox, (started, NO_VALUE))
        else:
            self.turn.record((started, NO_VALUE), sync=False)
            self._block(worker, step, args.mailbox)
        self._watch(worker, worker.open[step.p, step.n], source)

    def resume(self, peer: Peer, worker: Worker, step: f.Step, opened: OpenStep) -> None:
        """A worker that was restarted waits again: for the reply or, if its call found no room, for that."""
        args = self.decode(step.a, s.CallMailboxArgs)
        if opened.sent is None:
            self._mail.check_open(args.mailbox)
            if self._may_call(worker, args.mailbox, size_of(step.v, step.ref)):
                self._put(worker, step, args.mailbox)
            else:
                self._block(worker, step, args.mailbox)
        self._watch(worker, opened, self._limit(args.timeout_s)[1])

    def give_up(self, worker: Worker, opened: OpenStep, error: BartackError) -> None:
        """Nobody waits for a reply any more. One line says so, and takes the message back if it is there still."""
        self._mail.cancel(worker, opened.p, opened.n)
        failure = step_failed(opened, error, worker.path, about=opened.about)
        moved = self._mail.withdrawal(*opened.sent, worker.path) if opened.sent is not None else None
        if moved is None:
            self.turn.fail(worker, failure)
            return
        self.turn.record((failure, NO_VALUE), (moved, NO_VALUE))
        self.turn.report(worker, failure, NO_VALUE)
        self._mail.left(moved.mailbox)

    def reply(self, peer: Peer, worker: Worker, step: f.Step) -> None:
        """Answer a held message that was sent by a call."""
        args = self.decode(step.a, s.ReplyArgs)
        done = step_finished(step)
        told = self.answer(args.mailbox, args.id, Value(step.v, step.ref), (done, Value(NULL)))
        if not told:
            text = f"its reply to {args.id} of {args.mailbox} reached nobody"
            self.turn.with_next_commit(Show("note", worker.path, text))
        self.turn.answer(worker, step.p, step.n, Value(NULL))

    def answer(self, name: str, message_id: str, value: Value, *items: tuple[e.EntryData, Value]) -> bool:
        """A held message is answered: one line has the outcome of the call, and ``items``. The first answer counts.

        Returns:
            Whether somebody waits for it.
        """
        message = self.state.mailbox(name).holding(message_id)
        p, _, n = (message.reply_to if message else "").rpartition(" ")
        caller = self.state.worker_of(p) if p else None
        opened = caller.open.get((p, int(n))) if caller is not None else None
        if caller is not None and opened is not None:
            answered = step_finished(opened)
            self.turn.record((answered, value), *items)
            self.turn.report(caller, answered, value)
            return True
        if items:
            self.turn.record(*items)
        return bool(p) and self.replied(p, value)

    # Inside.

    def _may_call(self, worker: Worker, name: str, size: int) -> bool:
        """Whether there is room for a call; or else whether it may wait for that.

        Raises:
            MailboxFullError: There is none, and waiting would be in vain.
        """
        mailbox = self.state.mailbox(name)
        if self._mail.has_room(mailbox, size, worker.path) or (
            mailbox.overflow == "drop_oldest" and self._mail.push_out(name, size)
        ):
            return True
        if mailbox.overflow != "block" or self._mail.is_own(mailbox, worker.path):
            raise MailboxFullError(name, len(mailbox))
        return False

    def _put(self, worker: Worker, step: f.Step, name: str, *items: tuple[e.EntryData, Value]) -> None:
        size = size_of(step.v, step.ref)
        sent = self._mail.sent(worker, step, s.SendArgs(mailbox=name), size, reply_to=f"{step.p} {step.n}")
        self.turn.record(*items, (sent, Value(step.v, step.ref)))
        self._mail.arrived(name)

    def _block(self, worker: Worker, step: f.Step, name: str) -> None:
        opened = worker.open[step.p, step.n]
        blocked = Blocked(
            size_of(step.v, step.ref),
            lambda: self._put(worker, step, name),
            lambda: self.turn.fail_open(worker, opened, MailboxClosedError(name)),
            path=worker.path,
            step=(step.p, step.n),
        )
        self._mail.block(name, blocked)

    def _watch(self, worker: Worker, opened: OpenStep, source: str) -> None:
        """A call has a deadline."""
        left = self.left_s(opened)

        def late() -> None:
            self.give_up(worker, opened, DeadlineExceededError("call", opened.timeout_s or 0.0, source))

        self.timers.after(left or 0.0, late, lambda: self.is_open(worker, opened))

    def _limit(self, explicit: float | None) -> tuple[float, str]:
        return self.timeouts.explain("call") if explicit is None else (explicit, "explicit")
