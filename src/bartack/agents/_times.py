"""What a conversation waits for, in seconds that count: those during which the agent could have done something."""

from __future__ import annotations

from bartack.core import Clock


class Stopwatch:
    """Counts seconds, and stands still while a tool of ours runs."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._stopped_at: float | None = None
        self.stood_s = 0.0
        """How long it stood still before."""

    @property
    def stands(self) -> bool:
        """Whether it stands still now."""
        return self._stopped_at is not None

    def real_s(self) -> float:
        """Seconds of the monotonic clock."""
        return self._clock.monotonic_ns() / 1e9

    def now(self) -> float:
        """Seconds that count."""
        return (self.real_s() if self._stopped_at is None else self._stopped_at) - self.stood_s

    def stop(self) -> None:
        """Stand still from now on."""
        if self._stopped_at is None:
            self._stopped_at = self.real_s()

    def go_on(self) -> None:
        """Count again."""
        if self._stopped_at is not None:
            self.stood_s += self.real_s() - self._stopped_at
            self._stopped_at = None


class Times:
    """When what has happened, and until when what is waited for."""

    def __init__(self, now: float, timeout_s: float) -> None:
        self.began = now
        self.deadline = now + timeout_s
        self.start_by: float | None = None
        """The process has to say its first word; ``None`` once it has."""
        self.last_line = now
        self.last_progress = now
        self.suspect: tuple[float, str, str] | None = None
        """A line may have been the answer: how long another one is waited for, the case and what was wrong."""
        self.last_look = now
        """When its processes were looked at last."""
        self.last_active = float("-inf")
        """When a look has found that they work."""
        self.grace_by = now
        self.retry_at = now

    def forgive(self, now: float, late_s: float, start_s: float, suspect_grace_s: float) -> None:
        """We were late ourselves: every watch begins anew, and the deadline moves."""
        self.deadline += late_s
        self.grace_by += late_s
        self.last_line = self.last_progress = self.last_look = now
        if self.start_by is not None:
            self.start_by = now + start_s
        if self.suspect is not None:
            _, case, detail = self.suspect
            self.suspect = (now + suspect_grace_s, case, detail)
