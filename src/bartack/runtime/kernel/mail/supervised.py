"""Supervised sends: attempts, levels, outcomes. Broadcasts, which are made of them, are in ``broadcast.py``.

Sends that are under way are in the journal (``state/deliveries.py``), so that attempts continue whichever process is killed: a
restarted sender is attached to its send, and a new hub resumes every send with the time and the count that the journal has. A send
is given up, its message withdrawn and its step answered in one line, so that no send is reported as failed and arrives later.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Final, assert_never

from bartack.core import typed
from bartack.messaging import (
    Accepted,
    DeadLettered,
    Delivered,
    Reason,
    Refusal,
    Rejected,
    SendOutcome,
    TimedOut,
)
from bartack.messaging.letter import letter_id
from bartack.messaging.mailboxes import mailbox_of
from bartack.messaging.options import Terms
from bartack.messaging.outcome import Stage, delivery_error, describe_outcome, is_success
from bartack.messaging.post import Cast, Post
from bartack.runtime.kernel.actions import Show
from bartack.runtime.kernel.desk import Shared
from bartack.runtime.kernel.mail.attempts import Attempts, Items, SendRequest, seq_of
from bartack.runtime.kernel.mail.dead_letter_entry import DeadLetterEntries
from bartack.runtime.kernel.mail.enqueue import Enqueue, Enqueued, MustWait, Refused
from bartack.runtime.kernel.mail.observer import MailObserver, MailObservers
from bartack.runtime.kernel.mail.room import Room, RoomWaiter
from bartack.runtime.kernel.requests import RequestDesk
from bartack.runtime.kernel.timers import Timer
from bartack.runtime.kernel.turn import Peer
from bartack.runtime.protocol import frames as f
from bartack.runtime.protocol import steps as s
from bartack.runtime.state import entries as e
from bartack.runtime.state.worker_state import NO_VALUE, Value, WorkerState

FINAL: Final[frozenset[str]] = frozenset({"closed", "too_large"})
"""Refusals that no further attempt changes."""

_DEAD: Final[dict[Refusal, Reason]] = {
    "full": "overflow",
    "no_receiver": "no_receiver",
    "closed": "closed",
    "too_large": "too_large",
}
"""Why a message that was refused is a dead letter."""


class SendDesk(Attempts, MailObserver, ABC):
    """Delivers single messages, or establishes that they were not delivered."""

    def __init__(
        self,
        shared: Shared,
        enqueue: Enqueue,
        room: Room,
        dead_letters: DeadLetterEntries,
        observers: MailObservers,
        requests: RequestDesk,
    ) -> None:
        super().__init__(shared, enqueue, room, dead_letters, observers, requests)
        self._timers: dict[str, Timer] = {}
        self._waiting: dict[str, RoomWaiter] = {}
        """Sends that wait for room."""
        self._opening = ""
        """The broadcast whose copies are being sent: it has no result before all of them are."""

    # What broadcasts add.

    @abstractmethod
    def _attempt_cast(self, cast_id: str) -> None:
        """An attempt at a whole broadcast begins."""

    @abstractmethod
    def _refuse_cast(self, cast: Cast, attempts: int) -> None:
        """A whole broadcast is given up."""

    @abstractmethod
    def _check_cast(self, cast: Cast) -> None:
        """A copy of a broadcast has its outcome."""

    # Beginning.

    def send(self, peer: Peer, worker: WorkerState, step: f.Step) -> None:
        """Send a message and supervise its delivery."""
        args = self.decode(step.a, s.SuperviseArgs)
        ask = SendRequest(worker.path, Value(step.v, step.ref), worker, step)
        self.send_for(ask, args.mailbox, args.terms)

    def send_for(self, ask: SendRequest, recipient: str, terms: Terms) -> None:
        """Start a supervised send; its outcome goes to the step or the process outside of the request."""
        name = mailbox_of(recipient)
        self._check(terms)
        known = self.state.mailbox(name).id_for(terms.key)
        if known is not None:
            self._answer(ask, self._known(known), name if terms.on_error == "raise" else "")
        elif terms.ack != "accepted" or self._is_over(terms) or not self._accept(ask, name, terms):
            self._open(ask, name, terms)

    def _accept(self, ask: SendRequest, name: str, terms: Terms) -> bool:
        """The shortest way: the entry of the message is also the outcome of the step; returns whether the mailbox took it."""

        def accepted(message_id: str) -> None:
            outcome = Accepted(message_id, seq_of(message_id))
            if ask.worker is not None:
                self.turn.answer(ask.worker, *ask.place, self.turn.pack(outcome))
            elif ask.request is not None:
                self._requests.settle(ask.request, self.turn.pack(outcome))

        message = self._message(name, ask, terms, step=ask.step)
        return isinstance(self._enqueue.enqueue(message, accepted), Enqueued)

    def _open(self, ask: SendRequest, name: str, terms: Terms) -> None:
        turn = self.turn
        terms = self._resolved(terms, ask, "supervised_send")
        items = self._started(ask, terms)
        post_id = f"s-{turn.next_message() + len(items)}"
        p, n = ask.place
        opened = e.SendOpened(
            id=post_id,
            mailbox=name,
            size=ask.size,
            sender=ask.sender,
            terms=terms,
            p=p,
            n=n,
            request=ask.request_id,
        )
        turn.record(*items, (opened, ask.value), sync=False)
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
        outcome = self._enqueue.enqueue(self._message_of(post))
        match outcome:
            case Enqueued():
                self._entered(post, outcome)
            case MustWait():
                self._wait_for_room(post)
            case Refused(reason="drop"):
                self._settle_refused(post, "full", post.attempt, "dead_letter")
            case Refused():
                self._failed(post, outcome.reason)
            case _:
                assert_never(outcome)

    def _entered(self, post: Post, entered: Enqueued) -> None:
        """The message of a send is in its mailbox, or a message with its key was there before."""
        if entered.known:
            self._settle(post, self._known(entered.id))
        elif post.id in self._posts:
            self._progress(post)

    def _known(self, message_id: str) -> SendOutcome:
        """What became of the message that has the key already."""
        letter = self.state.deliveries.letters.get(message_id)
        if letter is None or letter.state not in {"waiting", "expired"}:
            return Accepted(message_id, seq_of(message_id))
        return DeadLettered(message_id, letter.id, letter.reason, letter.attempts)

    def _progress(self, post: Post) -> None:
        """Settle a send whose message has reached the level that was asked for; otherwise watch its time."""
        ack, attempts = post.terms.ack, post.attempt
        if post.stage == "dead":
            letter = letter_id(self.state.run_id, post.message)
            reason = typed.convert(post.reason, type=Reason)
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

    def message_moved(self, message_id: str, track: str) -> None:
        """The message of a send changed its state."""
        post = self._posts.get(track)
        if post is not None:
            self._progress(post)

    def _wait_for_room(self, post: Post) -> None:
        if post.id not in self._waiting:
            waiter = RoomWaiter(post.size, lambda: self._enter(post), lambda: self._shut_out(post))
            self._waiting[post.id] = waiter
            self._room.wait(post.mailbox, waiter)
        self._watch(post)

    def _enter(self, post: Post) -> None:
        """There is room for the message of a send."""
        del self._waiting[post.id]
        self._entered(post, self._enqueue.enter(self._message_of(post)))

    def _shut_out(self, post: Post) -> None:
        """The mailbox that a send waits for was closed."""
        self._stop_waiting(post.id)
        self._attempt(post.id)

    def _watch(self, trial: Post | Cast) -> None:
        """The current attempt ends in time; or, between two attempts, the next one begins."""
        self._stop_timer(trial.id)
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
        self._leave_room(trial_id)
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

    def _continue(self, post: Post) -> None:
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
        """A send was not completed in time. A message that no receiver has is taken back, or becomes a dead letter."""
        stage: Stage = "delivered" if post.stage == "delivered" else "accepted" if post.message else "none"
        late: SendOutcome = TimedOut(stage, attempts, post.message)
        items: Items = []
        if stage == "accepted":
            moved = e.MessageMoved(mailbox=post.mailbox, id=post.message, to="withdrawn", reason="timeout")
            if post.terms.on_error == "dead_letter":
                moved = self._dead_letters.of_id(post.mailbox, post.message, "timeout", attempts)
                letter = letter_id(self.state.run_id, post.message)
                late = DeadLettered(post.message, letter, "timeout", attempts)
            items.append((moved, NO_VALUE))
        self._settle(post, late, items)

    def _settle_refused(self, post: Post, refusal: Refusal, attempts: int, on_error: str) -> None:
        """Nothing was put into a mailbox."""
        if on_error != "dead_letter" or not self._dead_letters.enabled or refusal not in _DEAD:
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
            retry_at=self._dead_letters.retry_at(message_id, reason, attempts),
            notes=post.notes,
        )
        letter = letter_id(self.state.run_id, message_id)
        outcome = DeadLettered(message_id, letter, reason, attempts)
        self._settle(post, outcome, [(added, Value(post.value, post.ref))])
        self._observers.message_moved(message_id, "")

    def _settle(self, post: Post, outcome: SendOutcome, moves: Items | None = None) -> None:
        """End a send: one line has its outcome, the move of its message, and the outcome of the step."""
        moves = moves or []
        self._stop_waiting(post.id)
        settled = (e.SendSettled(id=post.id, outcome=outcome), NO_VALUE)
        is_error = post.terms.on_error == "raise" and not is_success(outcome)
        ended = self._ended(post, outcome, delivery_error(post.mailbox, outcome) if is_error else None)
        self.turn.record(*moves, settled, *ended)
        self._report(ended, self.state.worker_of(post.p) if post.n else None)
        if not is_success(outcome) and post.terms.on_error == "log":
            text = f"the message to {post.mailbox}: {describe_outcome(outcome)}"
            self.turn.with_next_commit(Show("note", post.sender, text))
        self._left(moves)
        cast = self._casts.get(post.cast)
        if cast is not None and cast.id != self._opening:
            self._check_cast(cast)

    # Inside.

    def _left(self, moves: Items) -> None:
        """Messages that were taken back, or became dead letters, have left their mailboxes."""
        for data, _ in moves:
            if isinstance(data, e.MessageMoved):
                self._observers.message_moved(data.id, "")
                self._enqueue.left(data.mailbox)

    def _leave_room(self, trial_id: str) -> None:
        waiter = self._waiting.pop(trial_id, None)
        post = self._posts.get(trial_id)
        if waiter is not None and post is not None:
            self._room.stop_waiting(post.mailbox, waiter)

    def _stop_waiting(self, trial_id: str) -> None:
        self._stop_timer(trial_id)
        self._leave_room(trial_id)

    def _stop_timer(self, trial_id: str) -> None:
        timer = self._timers.pop(trial_id, None)
        if timer is not None:
            timer.cancel()
