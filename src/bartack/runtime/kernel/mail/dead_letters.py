"""The dead letters of a run: when they are tried again, when they expire, and what people do with them.

Letters are tried again one at a time, beside everything else, and only while the run is active. The entries by which messages
become dead letters are in ``dead_letter_entry.py``, their state is in ``state/deliveries.py``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Final, assert_never

from bartack.errors import SessionFailedError
from bartack.messaging import Accepted, DeadLetter, LetterFilter, Refusal, Rejected, SendOutcome
from bartack.messaging.dead_letter_queue import Retried
from bartack.messaging.letter import letter_id
from bartack.messaging.mailboxes import check_name
from bartack.runtime.kernel.desk import Desk, Shared
from bartack.runtime.kernel.mail.dead_letter_entry import DeadLetterEntries
from bartack.runtime.kernel.mail.enqueue import Enqueue, Enqueued, Refused
from bartack.runtime.kernel.mail.observer import MailObserver
from bartack.runtime.kernel.timers import Timer
from bartack.runtime.state import entries as e
from bartack.runtime.state.worker_state import NO_VALUE, Value

CHUNK: Final = 16
"""How many letters are tried again in one turn of the hub, so that sends in the meantime do not wait for all of them."""


class LetterDesk(Desk, MailObserver):
    """Keeps the dead letters."""

    def __init__(self, shared: Shared, entries: DeadLetterEntries, enqueue: Enqueue) -> None:
        super().__init__(shared)
        self._entries = entries
        self._enqueue = enqueue
        self._policy = self.settings.letters
        self._timer: Timer | None = None
        self._due: list[tuple[int, str]] = []

    @property
    def has_waiting(self) -> bool:
        """Whether a letter is to be tried again."""
        return any(letter.next_retry_at for letter in self._letters().values())

    def message_moved(self, message_id: str, track: str) -> None:
        """If the message became a dead letter, it is tried again when that is due, and expires when it is old."""
        self.arm(message_id)

    # The life of a run.

    def resumed(self) -> None:
        """Set the timer of every letter."""
        for message_id in self._letters():
            self.arm(message_id)

    def session_failed(self, error: SessionFailedError) -> None:
        """No letter moves any longer."""
        self._due.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # Trying again.

    def arm(self, message_id: str) -> None:
        """Note when a letter that waits is due: to be tried again, or to expire."""
        letter = self._letters().get(message_id)
        due = self._next(letter) if letter is not None else 0
        if due and self.state.failure is None:
            heappush(self._due, (due, message_id))
            self._set_timer()

    def _set_timer(self) -> None:
        timer = self._timer
        if not self._due or (timer is not None and timer.pending and timer.due <= self._due[0][0]):
            return
        if timer is not None:
            timer.cancel()
        self._timer = self.timers.at(self._due[0][0], self._next_is_due)

    def add(self, mailbox: str, sender: str, value: Value, reason: str, metadata: dict[str, object]) -> str:
        """Keep a message as a dead letter on request; returns the letter's id."""
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
        """Try letters again, some in each turn; ``done`` is called with what became of them.

        Letters that are being tried already, have arrived or have expired are left alone.
        """
        found = deque(letter for letter in self._chosen(chosen) if letter.state == "waiting")
        results: list[Retried] = []

        def go() -> None:
            chunk = [found.popleft() for _ in range(min(CHUNK, len(found)))]
            # The last of them and what becomes of the request that asked for it are one line.
            with self.turn.one_line():
                results.extend(
                    Retried(letter.id, self._retry(letter, by))
                    for letter in chunk
                    if letter.state == "waiting"
                )
                if not found:
                    done(results)
            if found:
                self.timers.after(0.0, go)

        go()

    def purge(self, chosen: LetterFilter) -> int:
        """Remove letters, in one line; returns how many."""
        found = [letter for letter in self._chosen(chosen) if letter.state != "retrying"]
        if found:
            items = [(e.LetterMoved(message=letter.message_id, to="purged"), NO_VALUE) for letter in found]
            self.turn.record(*items)
        return len(found)

    def _next_is_due(self) -> None:
        """One letter is due: it is tried again, or it expires."""
        self._timer = None
        now = self.now_us()
        while self._due and self._due[0][0] <= now:
            due, message_id = heappop(self._due)
            letter = self._letters().get(message_id)
            if letter is None or self._next(letter) != due:
                continue  # it was tried again or removed meanwhile
            if 0 < self._expires(letter) <= now:
                self.turn.record((e.LetterMoved(message=message_id, to="expired"), NO_VALUE))
            else:
                self._retry(letter, "policy")
            break
        self._set_timer()

    def _retry(self, letter: DeadLetter, by: str) -> SendOutcome:
        moved = e.LetterMoved(message=letter.message_id, to="retrying", by=by)
        outcome = self._enqueue.redeliver(letter, moved)
        match outcome:
            case Enqueued():
                return Accepted(outcome.id, outcome.seq)
            case Refused():
                return self._keep(letter, by, outcome.refusal)
            case _:
                assert_never(outcome)

    def _keep(self, letter: DeadLetter, by: str, refusal: Refusal) -> Rejected:
        """A letter was not taken: it waits on."""
        attempts = letter.attempts + 1
        retry_at = self._entries.retry_at(letter.message_id, letter.reason, attempts)
        moved = e.LetterMoved(
            message=letter.message_id, to="waiting", reason=letter.reason, by=by, retry_at=retry_at
        )
        self.turn.record((moved, NO_VALUE))
        self.arm(letter.message_id)
        after = (retry_at - self.now_us()) / 1e6 if retry_at else None
        return Rejected(refusal, attempts, after)

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
