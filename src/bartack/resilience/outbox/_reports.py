"""What an outbox reports after a transaction: telemetry, the readable copies, and a warning when events were dropped.

Nothing here changes a row; ``outbox.py`` does, and calls this when its transaction is committed.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import Final

from bartack.resilience._store import StateStore
from bartack.resilience.mirror import Mirror
from bartack.resilience.outbox.row import PATTERN, Claim, Verdict, mirrored
from bartack.telemetry.catalogue import (
    OutboxAdded,
    OutboxDead,
    OutboxDelivered,
    OutboxDropped,
    OutboxRetried,
)

_log = logging.getLogger("bartack.resilience")
_QUIET_S: Final = 60.0
"""How long no second warning is logged."""


class OutboxReports:
    """Reports the changes of one outbox."""

    def __init__(self, store: StateStore) -> None:
        self._store = store
        self._warned_at = -_QUIET_S

    @property
    def mirror(self) -> Mirror:
        """The readable copies of waiting events, where the store is now."""
        return Mirror(self._store.directory)

    def added(self, claims: Sequence[Claim | None], sizes: Sequence[int]) -> None:
        """Events were kept: a claim for each that was new, with the stored sizes of all."""
        added = [size for claim, size in zip(claims, sizes, strict=True) if claim is not None]
        if added and self._store.telemetry.wanted(OutboxAdded):
            path = str(self._store.path)
            self._store.telemetry.emit(OutboxAdded(events=len(added), size_bytes=sum(added), path=path))

    def waiting(self, claim: Claim) -> None:
        """An event waits for its delivery."""
        if claim.kind == PATTERN:
            self.mirror.write(mirrored(claim))

    def removed(self, ids: Iterable[str]) -> None:
        """Events are gone, or will not be delivered."""
        for event_id in ids:
            self.mirror.remove(event_id)

    def dropped(self, ids: Sequence[str]) -> None:
        """Events were dropped to keep the quota."""
        if not ids:
            return
        self.removed(ids)
        if self._store.telemetry.wanted(OutboxDropped):
            self._store.telemetry.emit(OutboxDropped(events=len(ids), path=str(self._store.path)))
        if self._store.now() - self._warned_at >= _QUIET_S:
            self._warned_at = self._store.now()
            _log.warning("%s is full: %d events were dropped, oldest first", self._store.path, len(ids))

    def settled(self, claim: Claim, verdict: Verdict, state: str) -> None:
        """A claim was finished; ``state`` is that of its row now."""
        if claim.kind == PATTERN:
            self._settle_copy(claim, verdict, state)
        telemetry, path = self._store.telemetry, str(self._store.path)
        kind, recipient, reason = claim.kind, claim.recipient, verdict.error
        tried = claim.attempts + (verdict.kind != "released")
        if state == "delivered" and telemetry.wanted(OutboxDelivered):
            telemetry.emit(OutboxDelivered(attempts=tried, path=path, kind=kind, recipient=recipient))
        elif state == "dead" and telemetry.wanted(OutboxDead):
            telemetry.emit(
                OutboxDead(attempts=tried, path=path, kind=kind, recipient=recipient, reason=reason)
            )
        elif verdict.kind == "transient" and telemetry.wanted(OutboxRetried):
            telemetry.emit(
                OutboxRetried(attempts=tried, path=path, kind=kind, recipient=recipient, reason=reason)
            )

    def _settle_copy(self, claim: Claim, verdict: Verdict, state: str) -> None:
        if state in {"delivered", "dead"}:
            self.mirror.remove(claim.event_id)
        elif verdict.kind == "transient":
            tried = claim._replace(attempts=claim.attempts + 1)
            self.mirror.write(mirrored(tried, retried_at=self._store.wall()))
