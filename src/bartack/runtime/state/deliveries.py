"""Supervised sends, broadcasts and dead letters, as the journal has them: a part of the state of a run.

Like the rest of the state (``run_state.py``) it decides nothing; ``kernel/mail/supervised.py`` and
``kernel/mail/dead_letters.py`` decide, by writing entries.
"""

from __future__ import annotations

from typing import Final, get_args

import msgspec

from bartack.core import typed
from bartack.journal import BlobRef
from bartack.messaging import DeadLetter, Message, Reason
from bartack.messaging.letter import LetterState, letter_id
from bartack.messaging.outcome import Copy
from bartack.messaging.post import Cast, Note, Post, Trial
from bartack.runtime.state import entries as e

_REASONS: Final = frozenset(get_args(Reason))


class Deliveries:
    """What is under way, and what could not be delivered."""

    def __init__(self) -> None:
        self.posts: dict[str, Post] = {}
        self.casts: dict[str, Cast] = {}
        self.letters: dict[str, DeadLetter] = {}
        """By the id of the message that each is."""

    def find(self, trial_id: str) -> Trial | None:
        """A supervised send or a broadcast that is under way."""
        return self.posts.get(trial_id) or self.casts.get(trial_id)

    # Supervised sends.

    def opened(
        self, data: e.SendOpened, at: int, dead_us: int, value: msgspec.Raw | None, ref: BlobRef | None
    ) -> None:
        """A send is under way."""
        self.posts[data.id] = Post(
            id=data.id,
            terms=data.terms,
            sender=data.sender,
            p=data.p,
            n=data.n,
            request=data.request,
            opened_at=at,
            since=at,
            dead_us=dead_us,
            mailbox=data.mailbox,
            size=data.size,
            value=value,
            ref=ref,
            topic=data.topic,
            cast=data.cast,
            place=data.place,
        )
        if data.cast in self.casts:
            self.casts[data.cast].posts.append(data.id)

    def tried(self, data: e.SendTried, at: int, dead_us: int) -> None:
        """An attempt failed."""
        trial = self.find(data.id)
        if trial is not None:
            trial.attempt = data.attempt + 1
            trial.due = trial.since = data.due
            trial.dead_us = dead_us
            trial.reason = data.reason
            trial.notes.append(Note(at, "attempt", f"{data.attempt}: {data.reason}"))

    def settled(self, data: e.SendSettled) -> None:
        """A send is over."""
        post = self.posts.pop(data.id, None)
        cast = self.casts.get(post.cast) if post is not None else None
        if post is not None and cast is not None:
            copy = cast.copies[post.place]
            cast.copies[post.place] = msgspec.structs.replace(copy, outcome=data.outcome)

    def cast_opened(self, data: e.CastOpened, at: int, dead_us: int) -> None:
        """A broadcast is under way."""
        self.casts[data.id] = Cast(
            id=data.id,
            terms=data.terms,
            sender=data.sender,
            p=data.p,
            n=data.n,
            request=data.request,
            opened_at=at,
            since=at,
            dead_us=dead_us,
            strategy=data.strategy,
            need=data.need,
            copies=[Copy(copy.id, copy.recipient, None, copy.meta) for copy in data.copies],
            topic=data.topic,
        )

    def cast_settled(self, data: e.CastSettled) -> None:
        """A broadcast has its result; copies that are under way continue by themselves."""
        self.casts.pop(data.id, None)

    # Messages.

    def queued(self, track: str, message_id: str) -> None:
        """The message of a send is in its mailbox."""
        post = self.posts.get(track)
        if post is not None:
            post.message, post.stage = message_id, "accepted"

    def reached(self, message: Message, receiver: str, at: int, *, for_good: bool) -> None:
        """A message was handed to a receiver."""
        post = self.posts.get(message.track)
        if post is not None:
            post.stage, post.receiver, post.reached_at, post.for_good = "delivered", receiver, at, for_good
            return
        letter = self.letters.get(message.id)
        if letter is not None and letter.state == "retrying":
            letter.state = "redelivered"
            letter.note(at, "redelivered", receiver)

    def processed(self, message: Message) -> None:
        """A receiver acknowledged a message."""
        post = self.posts.get(message.track)
        if post is not None:
            post.stage = "processed"

    def returned(self, message: Message, at: int, reason: str) -> None:
        """A receiver gave a message back."""
        message.notes = [*message.notes, Note(at, "returned", reason)]
        post = self.posts.get(message.track)
        if post is not None:
            post.stage = "accepted"

    def came_due(self, message: Message, at: int, dead_us: int) -> None:
        """A message that was scheduled can be received: its time begins."""
        post = self.posts.get(message.track)
        if post is not None:
            post.since, post.dead_us = at, dead_us

    # Dead letters.

    def died(self, run: str, message: Message, data: e.MessageMoved, at: int) -> None:
        """A message that was in a mailbox is a dead letter."""
        post = self.posts.get(message.track)
        if post is not None:
            post.stage, post.reason = "dead", data.reason
        letter = self.letters.get(message.id)
        if letter is None:
            letter = self._add(run, message, at, data.mailbox)
        last = [Note(at, "returned")] if data.reason == "max_deliveries" else []
        tried = post.notes if post is not None else []
        letter.history = [*letter.history, *message.notes, *last, *tried]
        letter.error = data.error
        attempts = data.attempts or max(message.attempt, 1)
        self._wait(letter, data.reason or "max_deliveries", at, data.retry_at, letter.attempts + attempts)

    def letter_added(
        self, run: str, data: e.LetterAdded, at: int, value: msgspec.Raw | None, ref: BlobRef | None
    ) -> None:
        """A message that never was in a mailbox is a dead letter."""
        message = Message(
            id=data.message,
            order=0,
            sender=data.sender,
            size=data.size,
            at=at,
            value=value,
            ref=ref,
            key=data.key,
            metadata=data.metadata,
            topic=data.topic,
        )
        letter = self._add(run, message, at, data.mailbox)
        letter.error = data.error
        letter.history = list(data.notes)
        self._wait(letter, data.reason, at, data.retry_at, data.attempts)

    def letter_moved(self, data: e.LetterMoved, at: int) -> DeadLetter | None:
        """A dead letter changed its state."""
        letter = self.letters.get(data.message)
        if letter is None:
            return None
        if data.to == "waiting":
            self._wait(letter, data.reason, at, data.retry_at, letter.attempts + 1)
            return letter
        letter.state = typed.convert(data.to, type=LetterState)
        letter.next_retry_at = 0
        letter.note(at, data.to, data.by)
        if data.to == "retrying":
            letter.last_attempt_at = at
        return letter

    def _add(self, run: str, message: Message, at: int, mailbox: str) -> DeadLetter:
        letter = self.letters[message.id] = DeadLetter(
            id=letter_id(run, message.id),
            message_id=message.id,
            mailbox=mailbox,
            reason="manual",
            sender=message.sender,
            key=message.key,
            size=message.size,
            value=message.value,
            ref=message.ref,
            topic=message.topic,
            metadata=message.metadata,
            first_failed_at=at,
        )
        return letter

    def _wait(self, letter: DeadLetter, reason: str, at: int, retry_at: int, attempts: int) -> None:
        letter.state = "waiting"
        # An older version recorded only the error of a receiver that gave a message back for good.
        letter.reason = typed.convert(reason if reason in _REASONS else "nack", type=Reason)
        letter.attempts = attempts
        letter.last_attempt_at = at
        letter.next_retry_at = retry_at
        letter.note(at, "dead", reason)
