"""Supervised sends and broadcasts: attempts, levels, outcomes.

What is under way is in the journal (``_deliveries.py``), so that whoever is killed, the attempts go on: a sender that was restarted
is attached to its send, a new hub takes up every one with the time and the count that the journal has. Two lines matter most. A
send is given up, its message withdrawn and its step answered in one line, so that nothing is reported as failed and arrives later.
And the copies of an ``all_or_nothing`` broadcast are one line, so that nobody ever sees some of them.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final, NamedTuple

import msgspec

from bartack.errors import BartackError, BroadcastError, ConfigError, DeliveryOptionError
from bartack.journal import INLINE_LIMIT
from bartack.messaging import (
    MAX_MESSAGE,
    Accepted,
    BroadcastResult,
    Cast,
    Copy,
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
    Trial,
    check_name,
    check_topic,
    delivery_error,
    describe_outcome,
    is_success,
    letter_id,
    mailbox_of,
    matches,
    needed,
    sum_up,
)
from bartack.runtime import _entries as e
from bartack.runtime import _frames as f
from bartack.runtime import _steps as s
from bartack.runtime._clockwork import Alarm
from bartack.runtime._ledger import Peer, Show, describe
from bartack.runtime._letters import LetterDesk
from bartack.runtime._mail import Blocked, MailDesk
from bartack.runtime._office import Office
from bartack.runtime._state import NO_VALUE, OpenStep, Value, Worker

Items = list[tuple[e.EntryData, Value]]
Verdict = SendOutcome | BroadcastResult | BartackError
Told = Callable[[Verdict], None]
"""A process outside learns what became of what it asked for."""

STEPS: Final = frozenset({"send_supervised", "broadcast", "publish"})
"""The steps that this desk does."""

ATOMIC: Final = "all_or_nothing"
_FINAL: Final[frozenset[str]] = frozenset({"closed", "too_large"})
"""Refusals that no further attempt changes."""

_DEAD: Final[dict[Refusal, Reason]] = {
    "full": "overflow",
    "no_receiver": "no_receiver",
    "closed": "closed",
    "too_large": "too_large",
}
"""Why a message that was refused is a dead letter."""


class Errand(NamedTuple):
    """Who sends what: a step of a worker, or a process outside."""

    sender: str
    value: Value
    worker: Worker | None = None
    step: f.Step | None = None
    told: Told | None = None

    @property
    def size(self) -> int:
        """How many bytes the message takes."""
        raw, ref = self.value.raw, self.value.ref
        return ref.size if ref is not None else len(bytes(raw)) if raw is not None else 4

    @property
    def place(self) -> tuple[str, int]:
        """The step, if it is one."""
        return (self.step.p, self.step.n) if self.step is not None else ("", 0)


class DeliveryDesk:
    """Sees to it that messages arrive, or that it is known that they did not."""

    def __init__(self, office: Office, mail: MailDesk, letters: LetterDesk) -> None:
        self._office = office
        self._mail = mail
        self._letters = letters
        self._alarms: dict[str, Alarm] = {}
        self._blocked: dict[str, Blocked] = {}
        self._told: dict[str, Told] = {}
        self._opening = ""
        """The broadcast whose copies are on their way out: it has no result before all of them are."""
        mail.tracked = self._tracked
        mail.room = self._room

    @property
    def has_open(self) -> bool:
        """Whether anything is under way."""
        return bool(self._posts)

    # Steps of workers.

    def send(self, peer: Peer, worker: Worker, step: f.Step) -> None:
        """Send a message and see to it that it arrives."""
        args = self._office.decode(step.a, s.SuperviseArgs)
        ask = Errand(worker.path, Value(step.v, step.ref), worker, step)
        self.send_for(ask, args.mailbox, args.terms)

    def broadcast(self, peer: Peer, worker: Worker, step: f.Step) -> None:
        """Send a message to many mailboxes."""
        args = self._office.decode(step.a, s.CastArgs)
        ask = Errand(worker.path, Value(step.v, step.ref), worker, step)
        self.broadcast_for(ask, args.copies, args.strategy, args.terms)

    def publish(self, peer: Peer, worker: Worker, step: f.Step) -> None:
        """Send a message to every mailbox that is subscribed to a topic."""
        args = self._office.decode(step.a, s.PublishArgs)
        ask = Errand(worker.path, Value(step.v, step.ref), worker, step)
        self.publish_for(ask, args.topic, args.strategy, args.terms)

    # For everybody.

    def send_for(self, ask: Errand, recipient: str, terms: Terms) -> None:
        """A supervised send; whoever asks is told its outcome."""
        name = mailbox_of(recipient)
        self._check(terms)
        mailbox = self._office.state.mailbox(name)
        known = mailbox.id_for(terms.key)
        if known is not None:
            self._answer(ask, Accepted(known, _seq(known)))
        elif terms.ack == "accepted" and not self._refusal(name, ask, terms):
            self._accept(ask, name, terms)
        else:
            self._open(ask, name, terms)

    def broadcast_for(
        self, ask: Errand, copies: list[Copy], strategy: str, terms: Terms, topic: str = ""
    ) -> None:
        """A broadcast; whoever asks is told its result."""
        self._check(terms)
        copies = [Copy(copy.id, mailbox_of(copy.recipient), None, copy.meta) for copy in copies]
        _check_distinct(copies)
        need = needed(strategy, len(copies))
        if not copies:
            self._finish_cast(ask, terms, sum_up(strategy, need, "", copies), topic)
            return
        refused = [self._refusal(copy.recipient, ask, terms) for copy in copies]
        if any(refused) or terms.ack != "accepted":
            self._open_cast(ask, copies, strategy, need, terms, topic)
        else:
            self._accept_all(ask, copies, strategy, need, terms, topic)

    def publish_for(self, ask: Errand, topic: str, strategy: str, terms: Terms) -> None:
        """A broadcast to the mailboxes that are subscribed to a topic now, each once."""
        check_topic(topic)
        state = self._office.state
        copies = [
            Copy(name, name)
            for name, mailbox in state.mailboxes.items()
            if mailbox.patterns
            and not state.is_closed(name)
            and any(matches(pattern, topic) for pattern in mailbox.patterns)
        ]
        if (need := needed(strategy, 0)) > len(copies):
            # Who subscribes is not the publisher's choice: too few is a result, not a mistake.
            self._finish_cast(ask, terms, sum_up(strategy, need, "", []), topic)
        else:
            self.broadcast_for(ask, copies, strategy, terms, topic)

    def is_open(self, opened: OpenStep) -> bool:
        """Whether a step is one that is under way here."""
        return self._by_step(opened.p, opened.n) is not None

    def give_up(self, worker: Worker, opened: OpenStep, error: BartackError) -> None:
        """A step is cancelled: what can be taken back is, in the line that says so."""
        trial = self._by_step(opened.p, opened.n)
        items = self._withdrawal(trial) if trial is not None else []
        failed = _failure(worker, opened, error)
        self._office.ledger.record(*items, (failed, NO_VALUE))
        self._office.ledger.tell(worker, failed, NO_VALUE)
        self._make_room(items)

    def drop(self, worker: Worker) -> None:
        """A worker has ended for good: what it still sent is taken back, unless it may be revived."""
        if worker.suspended is None:
            for trial in self._trials():
                if trial.n and self._office.state.worker_of(trial.p) is worker:
                    self._withdraw(trial)

    def abort_all(self, error: BartackError) -> None:
        """The session failed: nothing moves."""
        for alarm in self._alarms.values():
            alarm.call_off()
        self._alarms.clear()
        self._blocked.clear()
        self._mail.gated.clear()
        waiting, self._told = list(self._told.values()), {}
        for told in waiting:
            told(error)

    def arm_all(self) -> None:
        """After a restart: everything that was under way goes on."""
        for trial in self._trials():
            if trial.n and not self._is_wanted(trial):
                self._withdraw(trial)
        for post in list(self._posts.values()):
            if not self._is_gated(post):
                self._go_on(post)
        for cast in list(self._casts.values()):
            self._go_on_cast(cast)

    # A send.

    def _accept(self, ask: Errand, name: str, terms: Terms) -> None:
        """The shortest way: the entry that holds the message is the outcome of the step, too."""
        ledger, step, size = self._office.ledger, ask.step, ask.size
        drops = self._pushed_out(name, size, terms)
        seq = ledger.next_message() + len(drops)
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
        ledger.record(*drops, (sent, ask.value))
        if ask.worker is not None and step is not None:
            ledger.answer(ask.worker, step.p, step.n, ledger.pack(Accepted(sent.id, seq)))
        elif ask.told is not None:
            ask.told(Accepted(sent.id, seq))
        self._after(drops, name)

    def _open(self, ask: Errand, name: str, terms: Terms) -> None:
        ledger = self._office.ledger
        terms = self._resolved(terms, ask, "supervised_send")
        items = self._started(ask, terms)
        post_id = f"s-{ledger.next_message() + len(items)}"
        p, n = ask.place
        opened = e.SendOpened(
            id=post_id, mailbox=name, size=ask.size, sender=ask.sender, terms=terms, p=p, n=n
        )
        ledger.record(*items, (opened, ask.value), ride=True)
        if ask.told is not None:
            self._told[post_id] = ask.told
        self._attempt(post_id)

    def _attempt(self, post_id: str) -> None:
        """An attempt begins."""
        post = self._posts.get(post_id)
        if post is None or self._office.state.failure is not None:
            return
        if self._is_past(post):
            self._give_up(post, post.reason or "timeout", post.attempt - 1)
            return
        if post.message:
            self._progress(post)
            return
        known = self._office.state.mailbox(post.mailbox).id_for(post.terms.key)
        if known is not None:
            self._settle(post, Accepted(known, _seq(known)))
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

    def _enqueue(self, post: Post) -> None:
        self._unblock(post.id)
        items = self._pushed_out(post.mailbox, post.size, post.terms)
        message_id = f"m-{self._office.ledger.next_message() + len(items)}"
        sent = self._sent(post.mailbox, post.sender, post.size, post.terms, message_id, post.id, post.topic)
        self._office.ledger.record(*items, (sent, Value(post.value, post.ref)))
        self._after(items, post.mailbox)
        if post.id in self._posts:
            self._progress(post)

    def _progress(self, post: Post) -> None:
        """A send came as far as the journal says: it may be over."""
        ack, attempts = post.terms.ack, post.attempt
        if post.stage == "dead":
            letter = letter_id(self._office.state.run_id, post.message)
            reason = msgspec.convert(post.reason, type=Reason)
            self._settle(post, DeadLettered(post.message, letter, reason, attempts))
        elif post.stage != "none" and ack == "accepted":
            self._settle(post, Accepted(post.message, _seq(post.message)))
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
            blocked = self._blocked[post.id] = Blocked(post.size, lambda: self._enqueue(post))
            self._mail.block(post.mailbox, blocked)
        self._watch(post)

    def _late(self, trial_id: str) -> None:
        """The time of an attempt is over."""
        trial = self._posts.get(trial_id) or self._casts.get(trial_id)
        if trial is None or self._office.state.failure is not None:
            return
        self._unblock(trial_id)
        is_waiting = isinstance(trial, Cast) or not trial.message
        self._failed(trial, "full" if is_waiting else "timeout")

    def _failed(self, trial: Post | Cast, reason: str) -> None:
        """An attempt failed: there is another one, or it is given up."""
        terms, now = trial.terms, self._office.now_us()
        due = now + int(self._delay_s(trial) * 1e6)
        in_time = not terms.deadline or due < terms.deadline
        is_queued = isinstance(trial, Post) and bool(trial.message)
        if reason in _FINAL or trial.attempt > terms.retries or not (in_time or is_queued):
            self._give_up(trial, reason, trial.attempt)
            return
        # A message that is queued may still be received until the deadline.
        due = due if in_time else terms.deadline
        tried = e.SendTried(id=trial.id, attempt=trial.attempt, due=due, reason=reason)
        self._office.ledger.record((tried, NO_VALUE))
        self._watch(trial)

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
                moved = self._letters.burial_of(post.mailbox, post.message, "timeout", attempts=attempts)
                letter = letter_id(self._office.state.run_id, post.message)
                late = DeadLettered(post.message, letter, "timeout", attempts)
            items.append((moved, NO_VALUE))
        self._settle(post, late, items)

    def _settle_refused(self, post: Post, refusal: Refusal, attempts: int, on_error: str) -> None:
        """Nothing was put into a mailbox."""
        if on_error != "dead_letter" or not self._letters.enabled or refusal not in _DEAD:
            self._settle(post, Rejected(refusal, attempts))
            return
        reason = _DEAD[refusal]
        message_id = f"m-{self._office.ledger.next_message()}"
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
        letter = letter_id(self._office.state.run_id, message_id)
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
        self._office.ledger.record(*moves, settled, *ended)
        self._tell(post, ended, outcome)
        if not is_success(outcome) and post.terms.on_error == "log":
            text = f"the message to {post.mailbox}: {describe_outcome(outcome)}"
            self._office.ledger.act_later(Show("note", post.sender, text))
        self._make_room(moves)
        cast = self._casts.get(post.cast)
        if cast is not None and cast.id != self._opening:
            self._check_cast(cast)

    # A broadcast.

    def _accept_all(
        self, ask: Errand, copies: list[Copy], strategy: str, need: int, terms: Terms, topic: str
    ) -> None:
        """The shortest way: all copies and the outcome of the step in one line."""
        ledger = self._office.ledger
        value = self._shared(ask, len(copies))
        items: Items = []
        for copy in copies:
            items += self._pushed_out(copy.recipient, ask.size, terms)
        drops = list(items)
        first = ledger.next_message()
        for place, copy in enumerate(copies):
            own = _own_key(terms, copy)
            message_id = self._office.state.mailbox(copy.recipient).id_for(own.key)
            if message_id is None:
                message_id = f"m-{first + len(items)}"
                sent = self._sent(copy.recipient, ask.sender, ask.size, own, message_id, topic=topic)
                items.append((sent, value))
            copies[place] = msgspec.structs.replace(copy, outcome=Accepted(message_id, _seq(message_id)))
        result = sum_up(strategy, need, f"b-{first}", copies)
        ended = self._ended_at_once(ask, result)
        ledger.record(*items, _summary(result, topic), *ended)
        if ask.worker is not None:
            for data, outcome in ended:
                assert isinstance(data, e.StepFinished)
                ledger.tell(ask.worker, data, outcome)
        elif ask.told is not None:
            ask.told(result)
        self._after(drops, *(copy.recipient for copy in copies))

    def _open_cast(
        self, ask: Errand, copies: list[Copy], strategy: str, need: int, terms: Terms, topic: str
    ) -> None:
        ledger = self._office.ledger
        terms = self._resolved(terms, ask, "broadcast")
        value = self._shared(ask, len(copies))
        items = self._started(ask, terms)
        first = ledger.next_message()
        cast_id = f"b-{first}"
        p, n = ask.place
        opened = e.CastOpened(
            id=cast_id,
            strategy=strategy,
            need=need,
            sender=ask.sender,
            terms=terms,
            copies=copies,
            p=p,
            n=n,
            topic=topic,
        )
        items.append((opened, NO_VALUE))
        for place, copy in enumerate(copies):
            copied = e.SendOpened(
                id=f"s-{first + len(items)}",
                mailbox=copy.recipient,
                size=ask.size,
                sender=ask.sender,
                terms=_own_key(terms, copy),
                cast=cast_id,
                place=place,
                topic=topic,
            )
            items.append((copied, value))
        ledger.record(*items, ride=True)
        if ask.told is not None:
            self._told[cast_id] = ask.told
        if strategy == ATOMIC:
            self._attempt_cast(cast_id)
            return
        self._opening = cast_id
        for post_id in list(self._casts[cast_id].posts):
            self._attempt(post_id)
        self._opening = ""
        self._check_cast(self._casts[cast_id])

    def _attempt_cast(self, cast_id: str) -> None:
        """An attempt at all copies of a broadcast at once begins: every mailbox takes its copy, or none does."""
        cast = self._casts.get(cast_id)
        if cast is None or self._office.state.failure is not None:
            return
        if self._is_past(cast):
            self._refuse_cast(cast, cast.attempt - 1)
            return
        posts = [self._posts[post_id] for post_id in cast.posts]
        refused = {self._refusal_of(post) for post in posts} - {""}
        if not refused:
            self._enqueue_all(cast, posts)
        elif refused == {"wait"}:
            self._mail.gated.update(post.mailbox for post in posts)
            self._watch(cast)
        else:
            final = refused & _FINAL
            self._failed(cast, min(final or refused - {"wait"}))

    def _enqueue_all(self, cast: Cast, posts: list[Post]) -> None:
        self._calm(cast.id)
        items: Items = []
        for post in posts:
            items += self._pushed_out(post.mailbox, post.size, post.terms)
        drops = list(items)
        first = self._office.ledger.next_message()
        for post in posts:
            if self._office.state.mailbox(post.mailbox).id_for(post.terms.key) is None:
                message_id = f"m-{first + len(items)}"
                sent = self._sent(
                    post.mailbox, post.sender, post.size, post.terms, message_id, post.id, post.topic
                )
                items.append((sent, Value(post.value, post.ref)))
        self._office.ledger.record(*items)
        self._after(drops, *(post.mailbox for post in posts))
        for post in posts:
            if post.id in self._posts:
                self._attempt(post.id)

    def _refuse_cast(self, cast: Cast, attempts: int) -> None:
        """A broadcast of all or nothing is given up: nothing of it was put anywhere."""
        self._calm(cast.id)
        copies = list(cast.copies)
        settled: Items = []
        for post in self._copies(cast):
            refusal = self._as_refusal(self._refusal_of(post)) or "aborted"
            outcome = Rejected(refusal, attempts)
            copies[post.place] = msgspec.structs.replace(copies[post.place], outcome=outcome)
            settled.append((e.SendSettled(id=post.id, outcome=outcome), NO_VALUE))
        self._settle_cast(cast, copies, settled)

    def _check_cast(self, cast: Cast) -> None:
        """A copy came to its end: the broadcast may be over."""
        reached = sum(is_success(copy.outcome) for copy in cast.copies)
        enough = 0 < cast.need <= reached and cast.strategy != ATOMIC
        if enough or all(copy.outcome is not None for copy in cast.copies):
            self._settle_cast(cast, list(cast.copies), [])

    def _settle_cast(self, cast: Cast, copies: list[Copy], settled: Items) -> None:
        result = sum_up(cast.strategy, cast.need, cast.id, copies)
        error = None if result.ok or cast.terms.on_error != "raise" else broadcast_error(result)
        ended = self._ended(cast, result, error)
        self._office.ledger.record(*settled, _summary(result, cast.topic), *ended)
        self._tell(cast, ended, result)

    def _room(self, name: str) -> None:
        """There may be room in a mailbox that broadcasts wait for."""
        self._mail.gated.discard(name)
        for cast in list(self._casts.values()):
            waits = cast.strategy == ATOMIC and cast.due <= self._office.now_us()
            if waits and any(post.mailbox == name and not post.message for post in self._copies(cast)):
                self._attempt_cast(cast.id)

    # Going on after a restart.

    def _go_on(self, post: Post) -> None:
        if post.message:
            self._progress(post)
        elif post.due > self._office.now_us():
            self._watch(post)
        else:
            self._attempt(post.id)

    def _go_on_cast(self, cast: Cast) -> None:
        if cast.strategy != ATOMIC or any(post.message for post in self._copies(cast)):
            self._check_cast(cast)
        elif cast.due > self._office.now_us():
            self._watch(cast)
        elif self._copies(cast):
            self._attempt_cast(cast.id)
        else:
            self._check_cast(cast)

    def _is_wanted(self, trial: Trial) -> bool:
        """Whether the step of a send or a broadcast is still to have an outcome."""
        worker = self._office.state.worker_of(trial.p)
        if worker is None:
            return False
        return worker.suspended is not None or (trial.p, trial.n) in worker.open

    def _is_gated(self, post: Post) -> bool:
        cast = self._casts.get(post.cast)
        return cast is not None and cast.strategy == ATOMIC and not post.message

    # Taking back.

    def _withdraw(self, trial: Post | Cast) -> None:
        items = self._withdrawal(trial)
        self._office.ledger.record(*items)
        self._make_room(items)

    def _withdrawal(self, trial: Post | Cast) -> Items:
        """The entries that take back what can be taken back, and end it."""
        items: Items = []
        for post in [trial] if isinstance(trial, Post) else self._copies(trial):
            self._calm(post.id)
            if post.stage == "accepted":
                items.append(
                    (e.MessageMoved(mailbox=post.mailbox, id=post.message, to="withdrawn"), NO_VALUE)
                )
            settled = e.SendSettled(id=post.id, outcome=Rejected("aborted", post.attempt))
            items.append((settled, NO_VALUE))
        if isinstance(trial, Cast):
            self._calm(trial.id)
            items.append((e.CastSettled(id=trial.id, ok=False), NO_VALUE))
        return items

    # What a mailbox takes.

    def _refusal(self, name: str, ask: Errand, terms: Terms) -> str:
        return self._refused(name, ask.size, terms, ask.sender)

    def _refusal_of(self, post: Post) -> str:
        return self._refused(post.mailbox, post.size, post.terms, post.sender)

    def _refused(self, name: str, size: int, terms: Terms, sender: str) -> str:
        """Why a mailbox does not take a message now; ``wait``: it will have room, ``drop``: it drops it; empty: it does."""
        state = self._office.state
        mailbox = state.mailbox(name)
        if size > MAX_MESSAGE:
            return "too_large"
        if mailbox.closed:
            return "closed"
        if state.has_nobody(name):
            return "no_receiver"
        if terms.not_before or mailbox.overflow == "drop_oldest" or mailbox.has_room(size):
            return ""
        if mailbox.overflow == "drop_newest":
            return "drop"
        # Whoever waits for room in a mailbox that only he receives from would wait for himself.
        full = mailbox.overflow == "reject" or self._mail.is_own(mailbox, sender)
        return "full" if full else "wait"

    def _as_refusal(self, reason: str) -> Refusal | None:
        match reason:
            case "no_receiver" | "closed" | "full" | "too_large" | "aborted":
                return reason
            case "wait" | "drop":
                return "full"
            case _:
                return None

    def _pushed_out(self, name: str, size: int, terms: Terms) -> Items:
        """The entries that make room in a mailbox which drops its oldest messages."""
        mailbox = self._office.state.mailbox(name)
        if terms.not_before or mailbox.overflow != "drop_oldest" or mailbox.has_room(size):
            return []
        return [
            (self._letters.burial_of(name, message.id, "overflow", attempts=1), NO_VALUE)
            for message in mailbox.pushed_out(size)
        ]

    def _sent(
        self,
        name: str,
        sender: str,
        size: int,
        terms: Terms,
        message_id: str,
        track: str = "",
        topic: str = "",
    ) -> e.MessageSent:
        return e.MessageSent(
            mailbox=name,
            id=message_id,
            size=size,
            sender=sender,
            key=terms.key,
            metadata=terms.metadata,
            not_before=terms.not_before,
            topic=topic,
            track=track,
        )

    def _shared(self, ask: Errand, copies: int) -> Value:
        """The message of a broadcast: kept once, if its copies together are long."""
        raw = ask.value.raw
        if raw is None or len(bytes(raw)) * copies <= INLINE_LIMIT:
            return ask.value
        return self._office.ledger.keep(bytes(raw))

    # Time.

    def _watch(self, trial: Post | Cast) -> None:
        """The current attempt ends in time; or, between two attempts, the next one begins."""
        self._drop_alarm(trial.id)
        clockwork = self._office.clockwork
        if trial.due > self._office.now_us():
            begin = self._attempt if isinstance(trial, Post) else self._attempt_cast
            self._alarms[trial.id] = clockwork.at(trial.due, lambda: begin(trial.id))
        elif not self._is_scheduled(trial):
            self._alarms[trial.id] = clockwork.after(self._left_s(trial), lambda: self._late(trial.id))

    def _is_scheduled(self, trial: Post | Cast) -> bool:
        """Whether a message waits for its time: that of the attempt begins with it."""
        if not isinstance(trial, Post) or not trial.terms.not_before:
            return False
        return self._office.state.mailbox(trial.mailbox).is_scheduled(trial.message)

    def _left_s(self, trial: Trial) -> float:
        """Seconds that are left of the current attempt: only the time counts in which a hub was alive."""
        now = self._office.now_us()
        waited_us = now - trial.since - (self._office.state.dead_us - trial.dead_us)
        left = (trial.terms.timeout_s or 0.0) - max(waited_us, 0) / 1e6
        if trial.terms.deadline:
            left = min(left, (trial.terms.deadline - now) / 1e6)
        return max(left, 0.0)

    def _is_past(self, trial: Trial) -> bool:
        return 0 < trial.terms.deadline <= self._office.now_us()

    def _delay_s(self, trial: Trial) -> float:
        """The pause before the next attempt: between nothing and what the backoff allows."""
        # By chance, but the same chance for the same attempt: it spreads senders, and guards nothing.
        chance = Random(f"{self._office.state.run_id}\n{trial.id}\n{trial.attempt}")
        return chance.uniform(0.0, trial.terms.backoff.bound_s(trial.attempt))

    # Beginning and ending.

    def _check(self, terms: Terms) -> None:
        if terms.on_error == "dead_letter" and not self._letters.enabled:
            raise ConfigError("dead_letters.enabled", 'it is off, so on_error="dead_letter" cannot be')

    def _resolved(self, terms: Terms, ask: Errand, kind: str) -> Terms:
        """Terms with nothing left open: a time for each attempt, and a key that a repeated step has again."""
        timeout_s = self._office.timeouts.limit(kind) if terms.timeout_s is None else terms.timeout_s
        key = terms.key
        if not key and ask.worker is not None and ask.step is not None:
            key = self._office.ledger.key(ask.worker, ask.step.p, ask.step.n)
        return msgspec.structs.replace(terms, timeout_s=timeout_s, key=key)

    def _started(self, ask: Errand, terms: Terms) -> Items:
        step = ask.step
        if step is None:
            return []
        started = e.StepStarted(
            p=step.p, n=step.n, step=step.step, fp=step.fp, about=step.about, timeout_s=terms.timeout_s
        )
        return [(started, NO_VALUE)]

    def _ended(self, trial: Trial, value: object, error: BartackError | None) -> Items:
        """The entry that is the outcome of the step that waits for this, if one does."""
        worker = self._office.state.worker_of(trial.p) if trial.n else None
        opened = worker.open.get((trial.p, trial.n)) if worker is not None else None
        if worker is None or opened is None:
            return []
        if error is not None:
            return [(_failure(worker, opened, error), NO_VALUE)]
        done = e.StepFinished(
            p=opened.p, n=opened.n, step=opened.step, fp=opened.fp, about=opened.about, cleanup=opened.cleanup
        )
        return [(done, self._office.ledger.pack(value))]

    def _ended_at_once(self, ask: Errand, value: object) -> Items:
        step = ask.step
        if step is None:
            return []
        done = e.StepFinished(p=step.p, n=step.n, step=step.step, fp=step.fp, about=step.about)
        return [(done, self._office.ledger.pack(value))]

    def _tell(self, trial: Trial, ended: Items, outcome: SendOutcome | BroadcastResult) -> None:
        worker = self._office.state.worker_of(trial.p) if trial.n else None
        for data, value in ended:
            if worker is not None and isinstance(data, e.StepFinished | e.StepFailed):
                self._office.ledger.tell(worker, data, value)
        told = self._told.pop(trial.id, None)
        if told is not None:
            told(outcome)

    def _answer(self, ask: Errand, outcome: SendOutcome) -> None:
        """An outcome that was there before the send."""
        if ask.worker is not None and ask.step is not None:
            self._office.finish(ask.worker, ask.step, outcome)
        elif ask.told is not None:
            ask.told(outcome)

    def _finish_cast(self, ask: Errand, terms: Terms, result: BroadcastResult, topic: str) -> None:
        """A broadcast that is over before it began."""
        self._office.ledger.record(_summary(result, topic), ride=True)
        if ask.worker is not None and ask.step is not None:
            if result.ok or terms.on_error != "raise":
                self._office.finish(ask.worker, ask.step, result)
            else:
                self._office.fail(ask.worker, ask.step, broadcast_error(result))
        elif ask.told is not None:
            ask.told(result)

    # Inside.

    @property
    def _posts(self) -> dict[str, Post]:
        return self._office.state.deliveries.posts

    @property
    def _casts(self) -> dict[str, Cast]:
        return self._office.state.deliveries.casts

    def _copies(self, cast: Cast) -> list[Post]:
        return [self._posts[post_id] for post_id in cast.posts if post_id in self._posts]

    def _by_step(self, p: str, n: int) -> Post | Cast | None:
        return next((trial for trial in self._trials() if (trial.p, trial.n) == (p, n)), None)

    def _trials(self) -> list[Post | Cast]:
        return [*self._posts.values(), *self._casts.values()]

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
        alarm = self._alarms.pop(trial_id, None)
        if alarm is not None:
            alarm.call_off()


def _seq(message_id: str) -> int:
    """Ids of messages are made of the places of their entries."""
    number = message_id.removeprefix("m-")
    return int(number) if number.isdecimal() else 0


def _failure(worker: Worker, opened: OpenStep, error: BartackError) -> e.StepFailed:
    return e.StepFailed(
        p=opened.p,
        n=opened.n,
        step=opened.step,
        fp=opened.fp,
        about=opened.about,
        error=describe(error, worker.path),
        cleanup=opened.cleanup,
    )


def _own_key(terms: Terms, copy: Copy) -> Terms:
    """The terms of one copy: its key is its own."""
    return msgspec.structs.replace(terms, key=f"{terms.key}:{copy.recipient}") if terms.key else terms


def _check_distinct(copies: list[Copy]) -> None:
    seen: set[str] = set()
    for copy in copies:
        check_name(copy.recipient)
        if copy.recipient in seen:
            raise DeliveryOptionError("recipients", f"{copy.recipient!r} is given twice")
        seen.add(copy.recipient)


def _summary(result: BroadcastResult, topic: str) -> tuple[e.EntryData, Value]:
    settled = e.CastSettled(
        id=result.batch,
        ok=result.ok,
        strategy=result.strategy,
        recipients=len(result.results),
        succeeded=result.succeeded,
        failed=result.failed,
        topic=topic,
    )
    return settled, NO_VALUE


def broadcast_error(result: BroadcastResult) -> BroadcastError:
    """The error that says that a broadcast reached too few."""
    return BroadcastError(result.strategy, result.succeeded, len(result.results), result)
