"""Delivering the notices that are due. The notifier of a run does this, and the daemon for notices that no notifier is left for.

A notice is sent when it may be (``Kept.not_before``), when no quiet hours hold, and when it still matters: a question that was
answered meanwhile, a pause that is over and a failure of a run that was resumed send nothing. Nothing is sent either of a hub
that was lost when the node holds its run: the node sends why. A row is leased while it is sent,
so two processes do not send it at once; a process that dies in between leaves the row to the next one, which sends it again with
the same id.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from datetime import tzinfo
from typing import Final, NamedTuple

import msgspec

from bartack.core import typed
from bartack.core.redact import Redactor
from bartack.notices._notice import Notice, quoted
from bartack.notices._queue import NOTICE, Kept
from bartack.notices._quiet import quiet_left_s
from bartack.notices._send import Sent, send
from bartack.notices._ways import Way
from bartack.resilience import Outbox
from bartack.resilience.outbox.row import Claim, Verdict

LOOK_AGAIN_S: Final = 60.0
"""The longest time that a held notice is left alone: clocks are set, and machines sleep."""
_LEASE_SPARE_S: Final = 60.0
_LONGEST_WAY_S: Final = 600.0


class RunNow(NamedTuple):
    """What matters of a run when a notice is about to be sent."""

    questions: frozenset[str]
    hub: int
    is_held: bool = False
    """The node holds it."""


Look = Callable[[str], RunNow | None]
"""Reads a run, by its directory; ``None`` if it is not there."""
Send = Callable[[Way, Notice, int, Mapping[str, str], float], Sent]


class Delivery:
    """Delivers the notices of one outbox.

    Args:
        outbox: Where they are.
        look: Finds out whether a notice still matters.
        environ: The variables that programs get.
        zone: The time zone of quiet hours; that of this machine by default.
        send: Sends one notice.
    """

    def __init__(
        self,
        outbox: Outbox,
        look: Look,
        *,
        environ: Mapping[str, str] | None = None,
        zone: tzinfo | None = None,
        send: Send = send,
    ) -> None:
        self.outbox = outbox
        self._look = look
        self._environ = os.environ if environ is None else environ
        self._zone = zone
        self._send = send
        self._redactor = Redactor(self._environ)

    def deliver_due(self) -> int:
        """Deliver all notices that are due, one after the other; how many were sent.

        Raises:
            StoreUnavailableError: The outbox cannot be written.
        """
        self.outbox.release_dead()
        sent = 0
        while claims := self.outbox.claim(kind=NOTICE, limit=1, lease_s=_LONGEST_WAY_S + _LEASE_SPARE_S):
            sent += self._deliver(claims[0])
        return sent

    def next_due_s(self) -> float | None:
        """In how many seconds the next notice is due; ``None`` if none waits."""
        waits = [row.wait_s for row in self.outbox.rows(state="pending", kind=NOTICE, limit=1000)]
        return min(waits, default=None)

    def _deliver(self, claim: Claim) -> bool:
        try:
            kept = typed.decode(claim.payload, type=Kept)
        except msgspec.MsgspecError:
            self.outbox.settle([(claim, Verdict("dead", "unparsable"))])
            return False
        wall = self.outbox.store.wall()
        wait_s = max(kept.not_before - wall, quiet_left_s(kept.quiet, wall, self._zone))
        if wait_s > 0:
            self.outbox.settle([(claim, Verdict("released", wait_s=min(wait_s, LOOK_AGAIN_S)))])
            return False
        if not still_matters(kept, wall, self._look):
            self.outbox.purge([claim.event_id])
            return False
        return self._settle(claim, self._send(kept.way, kept.notice, claim.attempts, self._environ, wall))

    def _settle(self, claim: Claim, sent: Sent) -> bool:
        if not sent.problem:
            self.outbox.keep_as_record(claim)
            return True
        problem = quoted(sent.problem, self._redactor.redact_text)
        self.outbox.settle([(claim, Verdict("dead" if sent.final else "transient", problem, sent.wait_s))])
        return False


def still_matters(kept: Kept, wall: float, look: Look) -> bool:
    """Whether a person would still want to know this."""
    kind = kept.notice.kind
    if kind == "paused":
        return kept.until > wall
    if kind == "ended" or not kept.run_dir:
        return True
    now = look(kept.run_dir)
    if kind == "question":
        return now is not None and kept.notice.question in now.questions
    if kept.is_held:
        return now is None or now.is_held
    return now is None or (now.hub == kept.hub and not (kept.is_of_node and now.is_held))
