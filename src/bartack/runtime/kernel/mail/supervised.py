"""Supervised sends: attempts, levels, outcomes. Broadcasts, which are made of them, are in ``broadcast.py``.

What is under way is in the journal (``state/deliveries.py``), so that whoever is killed, the attempts go on: a sender that was
restarted is attached to its send, a new hub takes up every one with the time and the count that the journal has. A send is
given up, its message withdrawn and its step answered in one line, so that nothing is reported as failed and arrives later.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Final

import msgspec

from bartack.messaging import (
    Accepted,
    Cast,
    DeadLettered,
    Delivered,
    Message,
    Post,
    Reason,
    Refusal,
    Rejected,
    SendOutcome,
    Stage,
    Terms,
    TimedOut,
    delivery_error,
    describe_outcome,
    is_success,
    letter_id,
    mailbox_of,
)
from bartack.runtime.kernel.actions import Show
from bartack.runtime.kernel.desk import Shared
from bartack.runtime.kernel.mail.attempts import Attempts, Items, SendRequest, seq_of
from bartack.runtime.kernel.mail.dead_letters import LetterDesk
from bartack.runtime.kernel.mail.mailroom import Blocked, MailDesk
from bartack.runtime.kernel.timers import Timer
from bartack.runtime.kernel.turn import Peer
from bartack.runtime.protocol import frames as f
from bartack.runtime.protocol import steps as s
from bartack.runtime.state import entries as e
from bartack.runtime.state.worker_state import NO_VALUE, Value, Worker

FINAL: Final[frozenset[str]] = frozenset({"closed", "too_large"})
"""Refusals that no further attempt changes."""

_DEAD: Final[dict[Refusal, Reason]] = {
    "full": "overflow",
    "no_receiver": "no_receiver",
    "closed": "closed",
    "too_large": "too_large",
}
"""Why a message that was refused is a dead letter."""


class SendDesk(Attempts, ABC):
    """Sees to it that single messages arrive, or that it is known that they did not."""

    def __init__(self, shared: Shared, mail: MailDesk, letters: LetterDesk) -> None:
        super().__init__(shared, mail, letters)
        self._timers: dict[str, Timer] = {}
        self._blocked: dict[str, Blocked] = {}
        self._opening = ""
        """The broadcast whose copies are on their way out: it has no result before all of them are."""
        mail.tracked = self._tracked

    # What broadcasts add.

    @abstractmethod
    def _attempt_cast(self, cast_id: str) -> None:
        """An attempt at a whole broadcast begins."""

    @abstractmethod
    def _refuse_cast(self, cast: Cast, attempts: int) -> None:
        """A whole broadcast is given up."""

    @abstractmethod
    def _check_cast(self, cast: Cast) -> None:
        """A copy of a broadcast came to its end."""

    # Beginning.

    def send(self, peer: Peer, worker: Worker, step: f.Step) -> None:
        """Send a message and see to it that it arrives."""
        args = self.decode(step.a, s.SuperviseArgs)
        ask = SendRequest(worker.path, Value(step.v, step.ref), worker, step)
        self.send_for(ask, args.mailbox, args.terms)

    def send_for(self, ask: SendRequest, recipient: str, terms: Terms) -> None:
        """A supervised send; whoever asks is told its outcome."""
        name = mailbox_of(recipient)
        self._check(terms)
        mailbox = self.state.mailbox(name)
        known = mailbox.id_for(terms.key)
        if known is not None:
            self._answer(ask, self._known(known), name if terms.on_error == "raise" else "")
        elif terms.ack == "accepted" and not self._is_over(terms) and not self._refusal(name, ask, terms):
            self._accept(ask, name, terms)
        else:
            self._open(ask, name, terms)

    def _accept(self, ask: SendRequest, name: str, terms: Terms) -> None:
        """The shortest way: the entry that holds the message is the outcome of the step, too."""
        turn, step, size = self.turn, ask.step, ask.size
        drops = self._pushed_out(name, size, terms)
        seq = turn.next_message() + len(drops)
        sent = e.MessageSent(
            mailbox=name,
            id=f"m-{seq}",
            size=size,
            sender=ask.sender,
            key=terms.key,
            metadata=terms.metadata,
            not_before=terms.not_before,
            p=step.p if step is not None else "",
            n=step.n if step is not None else 0,
            fp=step.fp if step is not None else "",
            step=step.step if step is not None else "send",
        )
        turn.record(*drops, (sent, ask.value))
        if ask.worker is not None and step is not None:
            turn.answer(ask.worker, step.p, step.n, turn.pack(Accepted(sent.id, seq)))
        elif ask.told is not None:
            ask.told(Accepted(sent.id, seq))
        self._after(drops, name)

    def _open(self, ask: SendRequest, name: str, terms: Terms) -> None:
        turn = self.turn
        terms = self._resolved(terms, ask, "supervised_send")
        items = self._started(ask, terms)
        post_id = f"s-{turn.next_message() + len(items)}"
        p, n = ask.place
        opened = e.SendOpened(
            id=post_id, mailbox=name, size=ask.size, sender=ask.sender, terms=terms, p=p, n=n
        )
        turn.record(*items, (opened, ask.value), sync=False)
        if ask.told is not None:
            self._told[post_id] = ask.told
        self._attempt(post_id)

    # Attempts.

    def _attempt(self, post_id: str) -> None:
        """An attempt begins."""
        post = self._posts.get(post_id)
        if post is None or self.state.failure is not None:
            return
        if self._is_past(post):
            self._give_up(post, post.reason or "timeout", post.attempt - 1)
            return
        if post.message:
            self._progress(post)
            return
        known = self.state.mailbox(post.mailbox).id_for(post.terms.key)
        if known is not None:
            self._settle(post, self._known(known))
            return
        refusal = self._refusal_of(post)
        if refusal == "wait":
            self._wait_for_room(post)
        elif refusal == "drop":
            self._settle_refused(post, "full", post.attempt, "dead_letter")
        elif refusal:
            self._failed(post, refusal)
        else:
            self._enqueue(post)

    def _known(self, message_id: str) -> SendOutcome:
        """What became of the message that has the key already."""
        letter = self.state.deliveries.letters.get(message_id)
        if letter is None or letter.state not in {"waiting", "expired"}:
            return Accepted(message_id, seq_of(message_id))
        return DeadLettered(message_id, letter.id, letter.reason, letter.attempts)

    def _enqueue(self, post: Post) -> None:
        self._unblock(post.id)
        items = self._pushed_out(post.mailbox, post.size, post.terms)
        message_id = f"m-{self.turn.next_message() + len(items)}"
        sent = self._sent(post.mailbox, post.sender, post.size, post.terms, message_id, post.id, post.topic)
        self.turn.record(*items, (sent, Value(post.value, post.ref)))
        self._after(items, post.mailbox)
        if post.id in self._posts:
            self._progress(post)

    def _progress(self, post: Post) -> None:
        """A send came as far as the journal says: it may be over."""
        ack, attempts = post.terms.ack, post.attempt
        if post.stage == "dead":
            letter = letter_id(self.state.run_id, post.message)
            reason = msgspec.convert(post.reason, type=Reason)
            self._settle(post, DeadLettered(post.message, letter, reason, attempts))
        elif post.stage != "none" and ack == "accepted":
            self._settle(post, Accepted(post.message, seq_of(post.message)))
        elif post.stage == "processed" or (post.stage == "delivered" and ack == "delivered"):
            processed = post.stage == "processed"
            self._settle(post, Delivered(post.message, post.receiver, post.reached_at, processed))
        elif post.stage == "delivered" and post.for_good:
            self._settle(post, TimedOut("delivered", attempts, post.message))
        else:
            self._watch(post)

    def _tracked(self, message: Message) -> None:
        """A message of a send changed its state."""
        post = self._posts.get(message.track)
        if post is not None:
            self._progress(post)

    def _wait_for_room(self, post: Post) -> None:
        if post.id not in self._blocked:
            blocked = Blocked(post.size, lambda: self._enqueue(post), lambda: self._shut_out(post))
            self._blocked[post.id] = blocked
            self._mail.block(post.mailbox, blocked)
        self._watch(post)

    def _shut_out(self, post: Post) -> None:
        """The mailbox that a send waits for takes no more messages."""
        self._calm(post.id)
        self._attempt(post.id)

    def _watch(self, trial: Post | Cast) -> None:
        """The current attempt ends in time; or, between two attempts, the next one begins."""
        self._drop_alarm(trial.id)
        timers = self.timers
        if trial.due > self.now_us():
            begin = self._attempt if isinstance(trial, Post) else self._attempt_cast
            self._timers[trial.id] = timers.at(trial.due, lambda: begin(trial.id))
        elif not self._is_scheduled(trial):
            self._timers[trial.id] = timers.after(self._left_s(trial), lambda: self._late(trial.id))

    def _late(self, trial_id: str) -> None:
        """The time of an attempt is over."""
        trial = self._posts.get(trial_id) or self._casts.get(trial_id)
        if trial is None or self.state.failure is not None:
            return
        self._unblock(trial_id)
        is_waiting = isinstance(trial, Cast) or not trial.message
        self._failed(trial, "full" if is_waiting else "timeout")

    def _failed(self, trial: Post | Cast, reason: str) -> None:
        """An attempt failed: there is another one, or it is given up."""
        terms, now = trial.terms, self.now_us()
        due = now + int(self._delay_s(trial) * 1e6)
        in_time = not terms.deadline or due < terms.deadline
        is_queued = isinstance(trial, Post) and bool(trial.message)
        if reason in FINAL or trial.attempt > terms.retries or not (in_time or is_queued):
            self._give_up(trial, reason, trial.attempt)
            return
        # A message that is queued may still be received until the deadline.
        due = due if in_time else terms.deadline
        tried = e.SendTried(id=trial.id, attempt=trial.attempt, due=due, reason=reason)
        self.turn.record((tried, NO_VALUE))
        self._watch(trial)

    def _go_on(self, post: Post) -> None:
        if post.message:
            self._progress(post)
        elif post.due > self.now_us():
            self._watch(post)
        else:
            self._attempt(post.id)

    # Ending.

    def _give_up(self, trial: Post | Cast, reason: str, attempts: int) -> None:
        refusal = self._as_refusal(reason)
        if isinstance(trial, Cast):
            self._refuse_cast(trial, attempts)
        elif trial.message or refusal is None:
            self._settle_late(trial, attempts)
        else:
            self._settle_refused(trial, refusal, attempts, trial.terms.on_error)

    def _settle_late(self, post: Post, attempts: int) -> None:
        """It came not far enough in time. What nobody has taken is taken back, or becomes a dead letter."""
        stage: Stage = "delivered" if post.stage == "delivered" else "accepted" if post.message else "none"
        late: SendOutcome = TimedOut(stage, attempts, post.message)
        items: Items = []
        if stage == "accepted":
            moved = e.MessageMoved(mailbox=post.mailbox, id=post.message, to="withdrawn", reason="timeout")
            if post.terms.on_error == "dead_letter":
                moved = self._letters.dead_letter_entry(
                    post.mailbox, post.message, "timeout", attempts=attempts
                )
                letter = letter_id(self.state.run_id, post.message)
                late = DeadLettered(post.message, letter, "timeout", attempts)
            items.append((moved, NO_VALUE))
        self._settle(post, late, items)

    def _settle_refused(self, post: Post, refusal: Refusal, attempts: int, on_error: str) -> None:
        """Nothing was put into a mailbox."""
        if on_error != "dead_letter" or not self._letters.enabled or refusal not in _DEAD:
            self._settle(post, Rejected(refusal, attempts))
            return
        reason = _DEAD[refusal]
        message_id = f"m-{self.turn.next_message()}"
        added = e.LetterAdded(
            message=message_id,
            mailbox=post.mailbox,
            reason=reason,
            size=post.size,
            sender=post.sender,
            key=post.terms.key,
            topic=post.topic,
            metadata=post.terms.metadata,
            attempts=attempts,
            retry_at=self._letters.retry_at(message_id, reason, attempts),
            notes=post.notes,
        )
        letter = letter_id(self.state.run_id, message_id)
        outcome = DeadLettered(message_id, letter, reason, attempts)
        self._settle(post, outcome, [(added, Value(post.value, post.ref))])
        self._letters.arm(message_id)

    def _settle(self, post: Post, outcome: SendOutcome, moves: Items | None = None) -> None:
        """A send is over: one line says what became of it, of its message, and of the step."""
        moves = moves or []
        self._calm(post.id)
        settled = (e.SendSettled(id=post.id, outcome=outcome), NO_VALUE)
        is_error = post.terms.on_error == "raise" and not is_success(outcome)
        ended = self._ended(post, outcome, delivery_error(post.mailbox, outcome) if is_error else None)
        self.turn.record(*moves, settled, *ended)
        self._tell(post, ended, outcome)
        if not is_success(outcome) and post.terms.on_error == "log":
            text = f"the message to {post.mailbox}: {describe_outcome(outcome)}"
            self.turn.with_next_commit(Show("note", post.sender, text))
        self._make_room(moves)
        cast = self._casts.get(post.cast)
        if cast is not None and cast.id != self._opening:
            self._check_cast(cast)

    # Inside.

    def _after(self, drops: Items, *names: str) -> None:
        """Messages were put into mailboxes, and others pushed out of them."""
        self._make_room(drops, serve=False)
        for name in names:
            self._mail.arrived(name)

    def _make_room(self, moves: Items, *, serve: bool = True) -> None:
        """Messages are gone from their mailboxes: that may concern others who sent them, or wait for room."""
        for data, _ in moves:
            if isinstance(data, e.MessageMoved):
                self._letters.arm(data.id)
                post = next((post for post in self._posts.values() if post.message == data.id), None)
                if post is not None:
                    self._progress(post)
                if serve:
                    self._mail.left(data.mailbox)

    def _unblock(self, trial_id: str) -> None:
        blocked = self._blocked.pop(trial_id, None)
        post = self._posts.get(trial_id)
        if blocked is not None and post is not None:
            self._mail.unblock(post.mailbox, blocked)

    def _calm(self, trial_id: str) -> None:
        self._drop_alarm(trial_id)
        self._unblock(trial_id)

    def _drop_alarm(self, trial_id: str) -> None:
        timer = self._timers.pop(trial_id, None)
        if timer is not None:
            timer.cancel()
