"""The breaker of one agent: after several temporary failures in a row its calls wait instead of failing one after the other.

Nothing here knows how an agent is reached. A call that has waited long enough tries; its success lets all others go. A limit of the
provider that names its end holds back the calls of every run (``agents/pauses.py``).
"""

from __future__ import annotations

from typing import Final

from bartack.agents.pauses import Pause
from bartack.core.clock import Clock

FAILURES: Final = 5
"""After this many temporary failures in a row calls wait."""
WAIT_S: Final = 30.0
"""How long they wait at first; twice as long after each further failure."""
LONGEST_S: Final = 300.0


class Breaker:
    """See the module. One for each name of an agent in a run.

    Args:
        clock: What time it is.
        pause: What all runs of the user share; ``None``: nothing.
        most: After how many temporary failures in a row calls wait; ``None``: they never do.
    """

    def __init__(self, clock: Clock, pause: Pause | None = None, *, most: int | None = FAILURES) -> None:
        self._clock = clock
        self._most = most
        self._pause = pause
        self._failures = 0
        self._until_s = 0.0

    @property
    def is_open(self) -> bool:
        """Whether calls wait: a failure then does not count against the call."""
        return self._most is not None and self._failures >= self._most

    def failed(self) -> None:
        """An attempt had a temporary failure."""
        self._failures += 1
        if self._most is not None and self.is_open:
            growth = 2.0 ** min(self._failures - self._most, 10)
            self._until_s = self._now() + min(WAIT_S * growth, LONGEST_S)

    def worked(self) -> None:
        """The agent has answered."""
        self._failures = 0

    def limited(self, wait_s: float, reason: str) -> None:
        """The provider takes no call for this long."""
        if self._pause is not None:
            self._pause.begin(self._clock.now_us() + int(wait_s * 1e6), reason)

    @property
    def is_paused(self) -> bool:
        """Whether calls wait for the end of a limit that a run of the user has met."""
        return self._pause is not None and self._pause.left_s() > 0

    def wait_s(self) -> float:
        """How long the next attempt has to wait. One that does not have to holds the others back until it has ended."""
        paused_s = 0.0 if self._pause is None else self._pause.left_s()
        return paused_s if paused_s > 0 else self._own_wait_s()

    @property
    def reason(self) -> str:
        """Why calls wait."""
        paused = self._pause is not None and self._pause.current().reason
        return paused or "recent calls failed with temporary errors"

    def _own_wait_s(self) -> float:
        if not self.is_open:
            return 0.0
        left = self._until_s - self._now()
        if left > 0:
            return left
        self._until_s = self._now() + WAIT_S
        return 0.0

    def _now(self) -> float:
        return self._clock.monotonic_ns() / 1e9
