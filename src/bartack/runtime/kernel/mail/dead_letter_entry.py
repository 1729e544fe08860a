"""The entries by which messages become dead letters. What happens to a dead letter afterwards is in ``dead_letters.py``."""

from __future__ import annotations

from random import Random

from bartack.messaging import Message, Reason
from bartack.runtime.kernel.desk import Desk, Shared
from bartack.runtime.state import entries as e


class DeadLetterEntries(Desk):
    """Makes the entries; those who make the message move record them."""

    def __init__(self, shared: Shared) -> None:
        super().__init__(shared)
        self._policy = self.settings.letters

    @property
    def enabled(self) -> bool:
        """Whether messages become dead letters; otherwise they are dropped."""
        return self._policy.enabled

    def of_message(self, mailbox: str, message: Message, reason: Reason, error: str = "") -> e.MessageMoved:
        """A message that a receiver held becomes a dead letter."""
        return self._moved(mailbox, message.id, reason, 0, max(message.attempt, 1), error)

    def of_id(self, mailbox: str, message_id: str, reason: Reason, attempts: int = 1) -> e.MessageMoved:
        """A message that no receiver has held becomes a dead letter."""
        return self._moved(mailbox, message_id, reason, attempts, attempts, "")

    def retry_at(self, message_id: str, reason: str, attempts: int) -> int:
        """When a dead letter is tried again by itself: microseconds since 1970, UTC; 0: never."""
        policy = self._policy
        if not policy.retries(reason, attempts):
            return 0
        chance = Random(f"{self.state.run_id}\n{message_id}\n{attempts}")
        return self.now_us() + int(chance.uniform(0.0, policy.backoff.bound_s(attempts)) * 1e6)

    def _moved(
        self, mailbox: str, message_id: str, reason: Reason, attempts: int, tried: int, error: str
    ) -> e.MessageMoved:
        known = self.state.deliveries.letters.get(message_id)
        before = known.attempts if known is not None else 0
        return e.MessageMoved(
            mailbox=mailbox,
            id=message_id,
            to="dead" if self.enabled else "dropped",
            reason=reason,
            retry_at=self.retry_at(message_id, reason, tried + before),
            attempts=attempts,
            error=error,
        )
