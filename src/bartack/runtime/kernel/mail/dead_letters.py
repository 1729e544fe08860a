"""The dead letters of a run: which messages become one, when they are tried again, and what people do with them.

A letter is tried again one at a time, beside everything else, and only while the run is active. What the journal says of letters is
in ``state/deliveries.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from random import Random
from typing import Final

from bartack.messaging import (
    Accepted,
    DeadLetter,
    LetterFilter,
    Message,
    Reason,
    Refusal,
    Rejected,
    Retried,
    SendOutcome,
    check_name,
    letter_id,
)
from bartack.runtime.kernel.desk import Desk, Shared
from bartack.runtime.kernel.timers import Timer
from bartack.runtime.state import entries as e
from bartack.runtime.state.worker_state import NO_VALUE, Value

CHUNK: Final = 16
"""So many letters are tried again in one turn of the hub: whoever sends meanwhile is not kept waiting."""


class LetterDesk(Desk):
    """Keeps the dead letters."""

    def __init__(self, shared: Shared) -> None:
        super().__init__(shared)
        self._policy = self.settings.letters
        self._alarm: Timer | None = None
        self._due: list[tuple[int, str]] = []
        self.arrived: Callable[[str], None] = lambda name: None
        """Told when a message was put into a mailbox."""
        self.push_out: Callable[[str, int], bool] = lambda name, size: False
        """Makes room in a mailbox if it may; whether there is room then."""

    @property
    def enabled(self) -> bool:
        """Whether messages become dead letters; else they are dropped."""
        return self._policy.enabled

    @property
    def has_waiting(self) -> bool:
        """Whether a letter is to be tried again."""
        return any(letter.next_retry_at for letter in self._letters().values())

    # Becoming one.

    def burial(
        self, mailbox: str, message: Message, reason: Reason, *, attempts: int = 0, error: str = ""
    ) -> e.MessageMoved:
        """The entry by which a message in a mailbox becomes a dead letter."""
        known = self._letters().get(message.id)
        count = (attempts or max(message.attempt, 1)) + (known.attempts if known is not None else 0)
        return self._buried(mailbox, message.id, reason, attempts, count, error)

    def dead_letter_entry(
        self, mailbox: str, message_id: str, reason: Reason, *, attempts: int
    ) -> e.MessageMoved:
        """The same for a message that is known by its id."""
        known = self._letters().get(message_id)
        count = attempts + (known.attempts if known is not None else 0)
        return self._buried(mailbox, message_id, reason, attempts, count, "")

    def retry_at(self, message_id: str, reason: str, attempts: int) -> int:
        """When a letter is tried again; 0: only if somebody asks for it."""
        if not self._policy.retries(reason, attempts):
            return 0
        chance = Random(f"{self.state.run_id}\n{message_id}\n{attempts}")
        return self.now_us() + int(chance.uniform(0.0, self._policy.backoff.bound_s(attempts)) * 1e6)

    def _buried(
        self, mailbox: str, message_id: str, reason: Reason, attempts: int, count: int, error: str
    ) -> e.MessageMoved:
        return e.MessageMoved(
            mailbox=mailbox,
            id=message_id,
            to="dead" if self.enabled else "dropped",
            reason=reason,
            retry_at=self.retry_at(message_id, reason, count),
            attempts=attempts,
            error=error,
        )

    # Being tried again.

    def arm_all(self) -> None:
        """After a restart: every letter that something happens to by itself has its time."""
        for message_id in self._letters():
            self.arm(message_id)

    def arm(self, message_id: str) -> None:
        """A letter waits: it is tried again when that is due, and expires when it is old."""
        letter = self._letters().get(message_id)
        due = self._next(letter) if letter is not None else 0
        if due and self.state.failure is None:
            heappush(self._due, (due, message_id))
            self._set_alarm()

    def _set_alarm(self) -> None:
        timer = self._alarm
        if not self._due or (timer is not None and timer.pending and timer.due <= self._due[0][0]):
            return
        if timer is not None:
            timer.cancel()
        self._alarm = self.timers.at(self._due[0][0], self._ring)

    def stop(self) -> None:
        """The session failed: nothing moves."""
        self._due.clear()
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    def add(self, mailbox: str, sender: str, value: Value, reason: str, metadata: dict[str, object]) -> str:
        """Keep a message as a dead letter because somebody says so; returns the letter's id."""
        check_name(mailbox)
        message = f"m-{self.turn.next_message()}"
        size = value.ref.size if value.ref is not None else len(bytes(value.raw or b""))
        added = e.LetterAdded(
            message=message,
            mailbox=mailbox,
            reason="manual",
            size=size,
            sender=sender,
            error="" if reason == "manual" else reason,
            metadata=metadata,
            attempts=0,
        )
        self.turn.record((added, value))
        return letter_id(self.state.run_id, message)

    def retry(self, chosen: LetterFilter, by: str, done: Callable[[list[Retried]], None]) -> None:
        """Try letters again, some in each turn; ``done`` is told what became of them.

        Those that are on their way already, have arrived or have expired are left alone.
        """
        found = [letter for letter in self._chosen(chosen) if letter.state == "waiting"]
        results: list[Retried] = []

        def go() -> None:
            chunk = found[len(results) : len(results) + CHUNK]
            results.extend([Retried(letter.id, self._retry(letter, by)) for letter in chunk])
            if len(results) < len(found):
                self.timers.after(0.0, go)
            else:
                done(results)

        go()

    def purge(self, chosen: LetterFilter) -> int:
        """Remove letters, in one line; returns how many."""
        found = [letter for letter in self._chosen(chosen) if letter.state != "retrying"]
        if found:
            items = [(e.LetterMoved(message=letter.message_id, to="purged"), NO_VALUE) for letter in found]
            self.turn.record(*items)
        return len(found)

    def _ring(self) -> None:
        """One letter is due: it is tried again, or it expires."""
        self._alarm = None
        now = self.now_us()
        while self._due and self._due[0][0] <= now:
            due, message_id = heappop(self._due)
            letter = self._letters().get(message_id)
            if letter is None or self._next(letter) != due:
                continue  # somebody was quicker
            if 0 < self._expires(letter) <= now:
                self.turn.record((e.LetterMoved(message=message_id, to="expired"), NO_VALUE))
            else:
                self._retry(letter, "policy")
            break
        self._set_alarm()

    def _retry(self, letter: DeadLetter, by: str) -> SendOutcome:
        refusal = self._refusal(letter)
        if refusal is not None:
            attempts = letter.attempts + 1
            retry_at = self.retry_at(letter.message_id, letter.reason, attempts)
            moved = e.LetterMoved(
                message=letter.message_id, to="waiting", reason=letter.reason, by=by, retry_at=retry_at
            )
            self.turn.record((moved, NO_VALUE))
            self.arm(letter.message_id)
            after = (retry_at - self.now_us()) / 1e6 if retry_at else None
            return Rejected(refusal, attempts, after)
        moved = e.LetterMoved(message=letter.message_id, to="retrying", by=by)
        seq = self.turn.record((moved, NO_VALUE))
        self.arrived(letter.mailbox)
        return Accepted(letter.message_id, seq)

    def _refusal(self, letter: DeadLetter) -> Refusal | None:
        state = self.state
        if state.mailbox(letter.mailbox).closed:
            return "closed"
        if state.has_nobody(letter.mailbox):
            return "no_receiver"
        return None if self.push_out(letter.mailbox, letter.size) else "full"

    def _next(self, letter: DeadLetter) -> int:
        """When something happens to a letter by itself; 0: never."""
        if letter.state != "waiting":
            return 0
        moments = [moment for moment in (letter.next_retry_at, self._expires(letter)) if moment]
        return min(moments, default=0)

    def _expires(self, letter: DeadLetter) -> int:
        after = self._policy.expire_after
        return 0 if after is None else letter.first_failed_at + int(after * 1e6)

    def _chosen(self, chosen: LetterFilter) -> list[DeadLetter]:
        return chosen.chosen(self._letters().values(), self.now_us())

    def _letters(self) -> dict[str, DeadLetter]:
        return self.state.deliveries.letters
