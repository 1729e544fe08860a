"""What supervised sends and broadcasts stand on: what a mailbox takes, how much time is left, who is told what became of it."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import NamedTuple

import msgspec

from bartack.errors import BartackError, ConfigError
from bartack.messaging import (
    MAX_MESSAGE,
    BroadcastResult,
    Cast,
    Post,
    Refusal,
    SendOutcome,
    Terms,
    Trial,
    delivery_error,
    is_success,
)
from bartack.runtime.kernel.desk import Desk, Shared
from bartack.runtime.kernel.mail.dead_letters import LetterDesk
from bartack.runtime.kernel.mail.mailroom import MailDesk
from bartack.runtime.kernel.outcome import step_failed, step_finished
from bartack.runtime.protocol import frames as f
from bartack.runtime.state import entries as e
from bartack.runtime.state.worker_state import NO_VALUE, Value, Worker

Items = list[tuple[e.EntryData, Value]]
Verdict = SendOutcome | BroadcastResult | BartackError
OnOutcome = Callable[[Verdict], None]
"""A process outside learns what became of what it asked for."""


class SendRequest(NamedTuple):
    """Who sends what: a step of a worker, or a process outside."""

    sender: str
    value: Value
    worker: Worker | None = None
    step: f.Step | None = None
    told: OnOutcome | None = None

    @property
    def size(self) -> int:
        """How many bytes the message takes."""
        raw, ref = self.value.raw, self.value.ref
        return ref.size if ref is not None else len(bytes(raw)) if raw is not None else 4

    @property
    def place(self) -> tuple[str, int]:
        """The step, if it is one."""
        return (self.step.p, self.step.n) if self.step is not None else ("", 0)


class Attempts(Desk):
    """What every delivery needs."""

    def __init__(self, shared: Shared, mail: MailDesk, letters: LetterDesk) -> None:
        super().__init__(shared)
        self._mail = mail
        self._letters = letters
        self._told: dict[str, OnOutcome] = {}

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

    # What a mailbox takes.

    def _refusal(self, name: str, ask: SendRequest, terms: Terms) -> str:
        return self._refused(name, ask.size, terms, ask.sender)

    def _refusal_of(self, post: Post) -> str:
        return self._refused(post.mailbox, post.size, post.terms, post.sender)

    def _refused(self, name: str, size: int, terms: Terms, sender: str) -> str:
        """Why a mailbox does not take a message now; ``wait``: it will have room, ``drop``: it drops it; empty: it does."""
        state = self.state
        mailbox = state.mailbox(name)
        if size > MAX_MESSAGE:
            return "too_large"
        if mailbox.closed:
            return "closed"
        if state.has_nobody(name):
            return "no_receiver"
        has_room = self._mail.has_room(mailbox, size, sender)
        if terms.not_before or mailbox.overflow == "drop_oldest" or has_room:
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
        mailbox = self.state.mailbox(name)
        if terms.not_before or mailbox.overflow != "drop_oldest" or mailbox.has_room(size):
            return []
        return [
            (self._letters.dead_letter_entry(name, message.id, "overflow", attempts=1), NO_VALUE)
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
        if terms.on_error == "dead_letter" and not self._letters.enabled:
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
        """The entry that is the outcome of the step that waits for this, if one does."""
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
        if step is None:
            return []
        done = step_finished(step, about=step.about)
        return [(done, self.turn.pack(value))]

    def _tell(self, trial: Trial, ended: Items, outcome: SendOutcome | BroadcastResult) -> None:
        worker = self.state.worker_of(trial.p) if trial.n else None
        for data, value in ended:
            if worker is not None and isinstance(data, e.StepFinished | e.StepFailed):
                self.turn.report(worker, data, value)
        told = self._told.pop(trial.id, None)
        if told is not None:
            told(outcome)

    def _answer(self, ask: SendRequest, outcome: SendOutcome, raising: str = "") -> None:
        """An outcome that was there before the send; ``raising``: the mailbox, if a bad one is to be raised."""
        if raising and ask.worker is not None and ask.step is not None and not is_success(outcome):
            self.fail_step(ask.worker, ask.step, delivery_error(raising, outcome))
        elif ask.worker is not None and ask.step is not None:
            self.finish_step(ask.worker, ask.step, outcome)
        elif ask.told is not None:
            ask.told(outcome)


def seq_of(message_id: str) -> int:
    """Ids of messages are made of the places of their entries."""
    number = message_id.removeprefix("m-")
    return int(number) if number.isdecimal() else 0
