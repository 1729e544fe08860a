"""Broadcasts and topics: a message to many mailboxes, as supervised sends that have one result.

The copies of an ``all_or_nothing`` broadcast are one line of the journal, so that no process ever sees only some of them. A
program that checks all recipients first and then sends one by one has no such promise.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from bartack.errors import BartackError, BroadcastError, SessionFailedError
from bartack.journal.contract import INLINE_LIMIT
from bartack.messaging import Accepted, BroadcastResult, Delivered, Mailbox, Rejected
from bartack.messaging.mailboxes import mailbox_of
from bartack.messaging.options import Terms
from bartack.messaging.outcome import Copy, is_success, sum_up
from bartack.messaging.post import Cast, Post, Trial
from bartack.messaging.strategy import check_distinct, needed
from bartack.messaging.topic import check_topic, matches
from bartack.runtime.kernel.desk import Shared
from bartack.runtime.kernel.handler import StepHandler
from bartack.runtime.kernel.mail.attempts import Items, SendRequest, seq_of
from bartack.runtime.kernel.mail.dead_letter_entry import DeadLetterEntries
from bartack.runtime.kernel.mail.enqueue import Enqueue
from bartack.runtime.kernel.mail.observer import MailObservers
from bartack.runtime.kernel.mail.room import Room
from bartack.runtime.kernel.mail.supervised import FINAL, SendDesk
from bartack.runtime.kernel.outcome import step_failed
from bartack.runtime.kernel.requests import RequestDesk
from bartack.runtime.kernel.turn import Peer
from bartack.runtime.protocol import frames as f
from bartack.runtime.protocol import steps as s
from bartack.runtime.state import entries as e
from bartack.runtime.state.worker_state import NO_VALUE, OpenStep, Value, WorkerState

ATOMIC: Final = "all_or_nothing"


class DeliveryDesk(SendDesk):
    """Delivers messages, to one recipient or to many."""

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
        self._awaited: set[str] = set()
        """Mailboxes in which a broadcast of all or nothing waits for room."""

    # Steps and requests.

    @property
    def has_open(self) -> bool:
        """Whether anything is under way."""
        return bool(self._posts)

    def broadcast(self, peer: Peer, worker: WorkerState, step: f.Step) -> None:
        """Send a message to many mailboxes."""
        args = self.decode(step.a, s.CastArgs)
        ask = SendRequest(worker.path, Value(step.v, step.ref), worker, step)
        self.broadcast_for(ask, args.copies, args.strategy, args.terms)

    def publish(self, peer: Peer, worker: WorkerState, step: f.Step) -> None:
        """Send a message to every mailbox that is subscribed to a topic."""
        args = self.decode(step.a, s.PublishArgs)
        ask = SendRequest(worker.path, Value(step.v, step.ref), worker, step)
        self.publish_for(ask, args.topic, args.strategy, args.terms)

    def broadcast_for(
        self, ask: SendRequest, copies: list[Copy], strategy: str, terms: Terms, topic: str = ""
    ) -> None:
        """Start a broadcast; its result goes to the step or the process outside of the request."""
        self._check(terms)
        copies = [Copy(copy.id, mailbox_of(copy.recipient), None, copy.meta) for copy in copies]
        check_distinct(copy.recipient for copy in copies)
        need = needed(strategy, len(copies))
        if not copies:
            self._finish_cast(ask, terms, sum_up(strategy, need, "", copies), topic)
            return
        refused = [self._refusal(self._message(copy.recipient, ask, terms)) for copy in copies]
        if any(refused) or terms.ack != "accepted" or self._is_over(terms):
            self._open_cast(ask, copies, strategy, need, terms, topic)
        else:
            self._accept_all(ask, copies, strategy, need, terms, topic)

    def publish_for(self, ask: SendRequest, topic: str, strategy: str, terms: Terms) -> None:
        """Start a broadcast to the mailboxes that are subscribed to a topic now, each once."""
        check_topic(topic)
        state = self.state
        copies = [
            Copy(name, name)
            for name, mailbox in state.mailboxes.items()
            if mailbox.patterns
            and any(matches(pattern, topic) for pattern in mailbox.patterns)
            and not state.is_closed(name)
        ]
        if (need := needed(strategy, 0)) > len(copies):
            # The publisher does not choose the subscribers: too few of them is a result, not an error.
            self._finish_cast(ask, terms, sum_up(strategy, need, "", []), topic)
        else:
            self.broadcast_for(ask, copies, strategy, terms, topic)

    def has(self, opened: OpenStep) -> bool:
        """Whether a step is one that is under way here."""
        return self._by_step(opened.p, opened.n) is not None

    def cancel(self, worker: WorkerState, opened: OpenStep, error: BartackError) -> None:
        """Cancel a step. The line of its failure also takes back the messages that no receiver has.

        A message that a receiver has cannot be taken back. That it was delivered is then the outcome, so that it is not sent again
        if the worker is rewound, and the cancellation interrupts the next step.
        """
        trial = self._by_step(opened.p, opened.n)
        if isinstance(trial, Post) and trial.stage == "delivered":
            self._settle(trial, Delivered(trial.message, trial.receiver, trial.reached_at, processed=False))
            return
        items = self._withdrawal(trial) if trial is not None else []
        failure = step_failed(opened, error, worker.path, about=opened.about)
        self.turn.record(*items, (failure, NO_VALUE))
        self.turn.report(worker, failure, NO_VALUE)
        self._left(items)

    # The life of a run.

    def worker_ended(self, worker: WorkerState) -> None:
        """Take back what a worker was still sending, unless it may be revived."""
        if worker.suspended is None:
            for trial in self._trials():
                if trial.n and self.state.worker_of(trial.p) is worker:
                    self._withdraw(trial)

    def session_failed(self, error: SessionFailedError) -> None:
        """No message moves any longer."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self._waiting.clear()
        self._awaited.clear()
        self._requests.refuse_sends(error)

    def resumed(self) -> None:
        """Continue everything that was under way."""
        for trial in self._trials():
            if trial.n and not self._is_wanted(trial):
                self._withdraw(trial)
        for post in list(self._posts.values()):
            if not self._is_gated(post):
                self._continue(post)
        for cast in list(self._casts.values()):
            self._continue_cast(cast)

    # A broadcast.

    def _accept_all(
        self, ask: SendRequest, copies: list[Copy], strategy: str, need: int, terms: Terms, topic: str
    ) -> None:
        """The shortest way: all copies and the outcome of the step in one line."""
        value = self._shared(ask, len(copies))
        batch_id = f"b-{self.turn.next_message()}"
        messages = [
            self._message(copy.recipient, ask, _own_key(terms, copy), value, topic) for copy in copies
        ]
        batch = self._enqueue.prepare(messages)
        accepted = [
            msgspec.structs.replace(copy, outcome=Accepted(message_id, seq_of(message_id)))
            for copy, message_id in zip(copies, batch.ids, strict=True)
        ]
        result = sum_up(strategy, need, batch_id, accepted)
        ended = self._ended_at_once(ask, result)

        def report() -> None:
            self._report(ended, ask.worker)

        self._enqueue.enqueue_all(batch, [_summary(result, topic), *ended], report)

    def _open_cast(
        self, ask: SendRequest, copies: list[Copy], strategy: str, need: int, terms: Terms, topic: str
    ) -> None:
        turn = self.turn
        terms = self._resolved(terms, ask, "broadcast")
        value = self._shared(ask, len(copies))
        items = self._started(ask, terms)
        first = turn.next_message()
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
            request=ask.request_id,
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
        turn.record(*items, sync=False)
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
        if cast is None or self.state.failure is not None:
            return
        if self._is_past(cast):
            self._refuse_cast(cast, cast.attempt - 1)
            return
        posts = [self._posts[post_id] for post_id in cast.posts]
        refused = {self._refusal(self._message_of(post)) for post in posts} - {""}
        if not refused:
            self._send_all(cast, posts)
        elif refused == {"wait"}:
            self._awaited.update(post.mailbox for post in posts)
            self._watch(cast)
        else:
            final = refused & FINAL
            self._failed(cast, min(final or refused - {"wait"}))

    def _send_all(self, cast: Cast, posts: list[Post]) -> None:
        self._stop_waiting(cast.id)
        self._enqueue.enqueue_all(self._enqueue.prepare([self._message_of(post) for post in posts]))
        for post in posts:
            if post.id in self._posts:
                self._attempt(post.id)

    def _refuse_cast(self, cast: Cast, attempts: int) -> None:
        """A broadcast of all or nothing is given up: none of its copies is in a mailbox."""
        self._stop_waiting(cast.id)
        copies = list(cast.copies)
        settled: Items = []
        for post in self._copies(cast):
            refusal = self._as_refusal(self._refusal(self._message_of(post))) or "aborted"
            outcome = Rejected(refusal, attempts)
            copies[post.place] = msgspec.structs.replace(copies[post.place], outcome=outcome)
            settled.append((e.SendSettled(id=post.id, outcome=outcome), NO_VALUE))
        self._settle_cast(cast, copies, settled)

    def _check_cast(self, cast: Cast) -> None:
        """A copy has its outcome: the broadcast may have its result."""
        reached = sum(is_success(copy.outcome) for copy in cast.copies)
        if 0 < cast.need <= reached or all(copy.outcome is not None for copy in cast.copies):
            self._settle_cast(cast, list(cast.copies), [])

    def _settle_cast(self, cast: Cast, copies: list[Copy], settled: Items) -> None:
        result = sum_up(cast.strategy, cast.need, cast.id, copies)
        error = None if result.ok or cast.terms.on_error != "raise" else broadcast_error(result)
        ended = self._ended(cast, result, error)
        self.turn.record(*settled, _summary(result, cast.topic), *ended)
        self._report(ended, self.state.worker_of(cast.p) if cast.n else None)

    def room_made(self, mailbox: Mailbox) -> None:
        """Try the broadcasts again that wait for room in a mailbox."""
        name = mailbox.name
        if name not in self._awaited:
            return
        self._awaited.discard(name)
        for cast in list(self._casts.values()):
            waits = cast.strategy == ATOMIC and cast.due <= self.now_us()
            if waits and any(post.mailbox == name and not post.message for post in self._copies(cast)):
                self._attempt_cast(cast.id)

    waits_changed = room_made

    def _finish_cast(self, ask: SendRequest, terms: Terms, result: BroadcastResult, topic: str) -> None:
        """A broadcast that is over before it began."""
        self.turn.record(_summary(result, topic), sync=False)
        is_error = not result.ok and terms.on_error == "raise"
        self._answer_at_once(ask, result, broadcast_error(result) if is_error else None)

    def _shared(self, ask: SendRequest, copies: int) -> Value:
        """The message of a broadcast: kept once, if its copies together are long."""
        raw = ask.value.raw
        if raw is None or len(bytes(raw)) * copies <= INLINE_LIMIT:
            return ask.value
        return self.turn.keep(bytes(raw))

    # After a restart, and taking back.

    def _continue_cast(self, cast: Cast) -> None:
        if cast.strategy != ATOMIC or any(post.message for post in self._copies(cast)):
            self._check_cast(cast)
        elif cast.due > self.now_us():
            self._watch(cast)
        elif self._copies(cast):
            self._attempt_cast(cast.id)
        else:
            self._check_cast(cast)

    def _is_wanted(self, trial: Trial) -> bool:
        """Whether the step of a send or a broadcast is still to have an outcome."""
        worker = self.state.worker_of(trial.p)
        if worker is None:
            return False
        return worker.suspended is not None or (trial.p, trial.n) in worker.open

    def _is_gated(self, post: Post) -> bool:
        cast = self._casts.get(post.cast)
        return cast is not None and cast.strategy == ATOMIC and not post.message

    def _withdraw(self, trial: Post | Cast) -> None:
        items = self._withdrawal(trial)
        self.turn.record(*items)
        self._left(items)

    def _withdrawal(self, trial: Post | Cast) -> Items:
        """The entries that end a send or a broadcast, and take back the messages that no receiver has."""
        items: Items = []
        for post in [trial] if isinstance(trial, Post) else self._copies(trial):
            self._stop_waiting(post.id)
            if post.stage == "accepted":
                items.append(
                    (e.MessageMoved(mailbox=post.mailbox, id=post.message, to="withdrawn"), NO_VALUE)
                )
            settled = e.SendSettled(id=post.id, outcome=Rejected("aborted", post.attempt))
            items.append((settled, NO_VALUE))
        if isinstance(trial, Cast):
            self._stop_waiting(trial.id)
            items.append((e.CastSettled(id=trial.id, ok=False), NO_VALUE))
        return items


class DeliveryStep(StepHandler):
    """Handles a kind of step that a supervised send or a broadcast is the outcome of."""

    def __init__(self, desk: DeliveryDesk, start: Callable[[Peer, WorkerState, f.Step], None]) -> None:
        self.turn = desk.turn
        self._desk = desk
        self._start = start

    def start(self, peer: Peer, worker: WorkerState, step: f.Step) -> None:
        """See ``StepHandler.start``."""
        self._start(peer, worker, step)

    def resume(self, peer: Peer, worker: WorkerState, step: f.Step, opened: OpenStep) -> None:
        """Attach the worker to what is under way, which needs no worker to continue; or start."""
        if not self._desk.has(opened):
            self._start(peer, worker, step)

    def cancel(self, worker: WorkerState, opened: OpenStep, error: BartackError) -> None:
        """See ``DeliveryDesk.cancel``."""
        self._desk.cancel(worker, opened, error)


def _own_key(terms: Terms, copy: Copy) -> Terms:
    """The terms of one copy: its key is its own."""
    return msgspec.structs.replace(terms, key=f"{terms.key}:{copy.recipient}") if terms.key else terms


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
    """The error of a broadcast that reached too few recipients."""
    return BroadcastError(result.strategy, result.succeeded, len(result.results), result)
