"""What supervised sends and broadcasts share: their messages, the time that is left, and the report of their outcome.

``supervised.py`` makes the attempts of single messages, ``broadcast.py`` those of many.
"""

from __future__ import annotations

from random import Random
from typing import NamedTuple

import msgspec

from bartack.errors import BartackError, ConfigError
from bartack.messaging import BroadcastResult, Refusal, SendOutcome
from bartack.messaging.options import Terms
from bartack.messaging.outcome import delivery_error, is_success
from bartack.messaging.post import Cast, Post, Trial
from bartack.runtime.kernel.desk import Desk, Shared
from bartack.runtime.kernel.mail.dead_letter_entry import DeadLetterEntries
from bartack.runtime.kernel.mail.enqueue import Enqueue, Outgoing, size_of
from bartack.runtime.kernel.mail.observer import MailObservers
from bartack.runtime.kernel.mail.room import Room
from bartack.runtime.kernel.outcome import step_failed, step_finished
from bartack.runtime.kernel.requests import Asked, RequestDesk
from bartack.runtime.protocol import frames as f
from bartack.runtime.state import entries as e
from bartack.runtime.state.worker_state import NO_VALUE, Value, WorkerState

Items = list[tuple[e.EntryData, Value]]
Verdict = SendOutcome | BroadcastResult


class SendRequest(NamedTuple):
    """A request to deliver a message: a step of a worker, or a request of a process outside."""

    sender: str
    value: Value
    worker: WorkerState | None = None
    step: f.Step | None = None
    request: Asked | None = None

    @property
    def size(self) -> int:
        """How many bytes the message takes."""
        return size_of(self.value)

    @property
    def place(self) -> tuple[str, int]:
        """The step, if it is one."""
        return (self.step.p, self.step.n) if self.step is not None else ("", 0)

    @property
    def request_id(self) -> str:
        """The request, if it is one."""
        return "" if self.request is None else self.request.id


class Attempts(Desk):
    """What every delivery needs."""

    def __init__(
        self,
        shared: Shared,
        enqueue: Enqueue,
        room: Room,
        dead_letters: DeadLetterEntries,
        observers: MailObservers,
        requests: RequestDesk,
    ) -> None:
        super().__init__(shared)
        self._enqueue = enqueue
        self._room = room
        self._dead_letters = dead_letters
        self._observers = observers
        self._requests = requests

    # What is under way.

    @property
    def _posts(self) -> dict[str, Post]:
        return self.state.deliveries.posts

    @property
    def _casts(self) -> dict[str, Cast]:
        return self.state.deliveries.casts

    def _copies(self, cast: Cast) -> list[Post]:
        return [self._posts[post_id] for post_id in cast.posts if post_id in self._posts]

    def _by_step(self, p: str, n: int) -> Post | Cast | None:
        return next((trial for trial in self._trials() if (trial.p, trial.n) == (p, n)), None)

    def _trials(self) -> list[Post | Cast]:
        return [*self._posts.values(), *self._casts.values()]

    # Messages.

    def _message(
        self,
        name: str,
        ask: SendRequest,
        terms: Terms,
        value: Value | None = None,
        topic: str = "",
        step: f.Step | None = None,
    ) -> Outgoing:
        """The message of a request to one mailbox."""
        return Outgoing(
            name,
            ask.sender,
            value or ask.value,
            ask.size,
            terms.key,
            terms.metadata,
            terms.not_before,
            topic,
            step=step,
            supervised=True,
        )

    def _message_of(self, post: Post) -> Outgoing:
        """The message of a send that is under way."""
        terms = post.terms
        return Outgoing(
            post.mailbox,
            post.sender,
            Value(post.value, post.ref),
            post.size,
            terms.key,
            terms.metadata,
            terms.not_before,
            post.topic,
            track=post.id,
            supervised=True,
        )

    def _refusal(self, message: Outgoing) -> str:
        """Why a mailbox does not take a message now, or ``wait`` if it will have room; empty if it takes it."""
        verdict = self._enqueue.check(message)
        return "" if verdict in {"fits", "push_out"} else verdict

    def _as_refusal(self, reason: str) -> Refusal | None:
        match reason:
            case "no_receiver" | "closed" | "full" | "too_large" | "aborted":
                return reason
            case "wait" | "drop":
                return "full"
            case _:
                return None

    # Time.

    def _is_scheduled(self, trial: Post | Cast) -> bool:
        """Whether a message waits for its time: that of the attempt begins with it."""
        if not isinstance(trial, Post) or not trial.terms.not_before:
            return False
        return self.state.mailbox(trial.mailbox).is_scheduled(trial.message)

    def _left_s(self, trial: Trial) -> float:
        """Seconds that are left of the current attempt: only the time counts in which a hub was alive."""
        now = self.now_us()
        waited_us = now - trial.since - (self.state.dead_us - trial.dead_us)
        left = (trial.terms.timeout_s or 0.0) - max(waited_us, 0) / 1e6
        if trial.terms.deadline:
            left = min(left, (trial.terms.deadline - now) / 1e6)
        return max(left, 0.0)

    def _is_past(self, trial: Trial) -> bool:
        return self._is_over(trial.terms)

    def _is_over(self, terms: Terms) -> bool:
        """Whether the deadline has passed: no attempt begins any more."""
        return 0 < terms.deadline <= self.now_us()

    def _delay_s(self, trial: Trial) -> float:
        """The pause before the next attempt: between nothing and what the backoff allows."""
        # By chance, but the same chance for the same attempt: it spreads senders, and guards nothing.
        chance = Random(f"{self.state.run_id}\n{trial.id}\n{trial.attempt}")
        return chance.uniform(0.0, trial.terms.backoff.bound_s(trial.attempt))

    # Beginning and ending.

    def _check(self, terms: Terms) -> None:
        if terms.on_error == "dead_letter" and not self._dead_letters.enabled:
            raise ConfigError("dead_letters.enabled", 'it is off, so on_error="dead_letter" cannot be')

    def _resolved(self, terms: Terms, ask: SendRequest, kind: str) -> Terms:
        """Terms with nothing left open: a time for each attempt, and a key that a repeated step has again."""
        timeout_s = self.timeouts.limit(kind) if terms.timeout_s is None else terms.timeout_s
        key = terms.key
        if not key and ask.worker is not None and ask.step is not None:
            key = self.turn.key(ask.worker, ask.step.p, ask.step.n)
        return msgspec.structs.replace(terms, timeout_s=timeout_s, key=key)

    def _started(self, ask: SendRequest, terms: Terms) -> Items:
        step = ask.step
        if step is None:
            return []
        started = e.StepStarted(
            p=step.p, n=step.n, step=step.step, fp=step.fp, about=step.about, timeout_s=terms.timeout_s
        )
        return [(started, NO_VALUE)]

    def _ended(self, trial: Trial, value: object, error: BartackError | None) -> Items:
        """The entry that is the outcome of the step that waits for this, or of the request that it is, if it is one."""
        if trial.request:
            asked = Asked(trial.request, _kind_of(trial), trial.sender)
            return [self._requests.entry(asked, error or self.turn.pack(value))]
        worker = self.state.worker_of(trial.p) if trial.n else None
        opened = worker.open.get((trial.p, trial.n)) if worker is not None else None
        if worker is None or opened is None:
            return []
        if error is not None:
            return [(step_failed(opened, error, worker.path, about=opened.about), NO_VALUE)]
        done = step_finished(opened, about=opened.about)
        return [(done, self.turn.pack(value))]

    def _ended_at_once(self, ask: SendRequest, value: object) -> Items:
        step = ask.step
        if ask.request is not None:
            return [self._requests.entry(ask.request, self.turn.pack(value))]
        if step is None:
            return []
        done = step_finished(step, about=step.about)
        return [(done, self.turn.pack(value))]

    def _report(self, ended: Items, worker: WorkerState | None) -> None:
        """Report an outcome that is recorded to the worker or the process outside that waits for it."""
        for data, value in ended:
            if worker is not None and isinstance(data, e.StepFinished | e.StepFailed):
                self.turn.report(worker, data, value)
            elif isinstance(data, e.RequestTaken):
                self._requests.answer(data, value)

    def _answer(self, ask: SendRequest, outcome: SendOutcome, raising: str = "") -> None:
        """Answer with an outcome that was known before the send; ``raising``: the mailbox, if a bad one is to be raised."""
        is_error = bool(raising) and not is_success(outcome)
        self._answer_at_once(ask, outcome, delivery_error(raising, outcome) if is_error else None)

    def _answer_at_once(self, ask: SendRequest, outcome: Verdict, error: BartackError | None) -> None:
        """Record the outcome of a step or a request that sent nothing, and answer it."""
        if ask.request is not None:
            self._requests.settle(ask.request, error or self.turn.pack(outcome))
        elif ask.worker is None or ask.step is None:
            return
        elif error is not None:
            self.fail_step(ask.worker, ask.step, error)
        else:
            self.finish_step(ask.worker, ask.step, outcome)


def seq_of(message_id: str) -> int:
    """Ids of messages are made of the places of their entries."""
    number = message_id.removeprefix("m-")
    return int(number) if number.isdecimal() else 0


def _kind_of(trial: Trial) -> str:
    """The request that a send or a broadcast is made by."""
    if isinstance(trial, Post):
        return "send_supervised"
    return "publish" if isinstance(trial, Cast) and trial.topic else "broadcast"
