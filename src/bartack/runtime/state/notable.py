"""What a person may want to know of a run: entries in, facts out. No I/O, and no time but that of the entries.

The facts follow from the journal alone. So whichever process reads it, and however often, finds the same facts with the same
places; a replay writes no entries and makes no facts. ``bartack.notices`` decides what is sent of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from bartack.errors import AgentBudgetError, AgentRateLimitedError, BudgetExceededError
from bartack.notices import Fact
from bartack.runtime.protocol.frames import ErrorData
from bartack.runtime.state import entries as e

_BUDGET: Final = frozenset({BudgetExceededError.code, AgentBudgetError.code})
_SAME_PAUSE_US: Final = 60_000_000
"""Agents that are paused until almost the same moment wait for the same limit."""


class Notable:
    """Finds the facts in the entries of a run, which it is given in order from the first one on.

    Attributes:
        hub: The number of the hub that runs the run.
        is_left: Whether no hub has to run the run: it ended, or its hub shut down cleanly.
    """

    def __init__(self) -> None:
        self.hub = 0
        self.is_left = True
        self._failure: e.FailureRecorded | None = None
        self._paused_until = 0
        self._is_spent = False
        self._find: Mapping[type[e.EntryData], Callable[[Any, int, int], Fact | None]] = {
            e.HubStarted: self._hub_started,
            e.HubStopped: self._hub_stopped,
            e.StepStarted: self._step_started,
            e.QuestionAsked: self._question_asked,
            e.StepRetried: self._step_retried,
            e.StepFailed: self._step_failed,
            e.FailureRecorded: self._failed,
            e.RunEnded: self._run_ended,
        }
        self.kinds: Final = frozenset(kind.kind for kind in self._find)
        """The kinds of entries that matter; others need not be decoded."""

    def add(self, data: e.EntryData, seq: int, at: int) -> Fact | None:
        """The fact that an entry is, if it is one."""
        find = self._find.get(type(data))
        return None if find is None else find(data, seq, at)

    def lost_hub(self, at: int, *, is_of_node: bool = False) -> Fact | None:
        """The fact that the hub is gone without having shut the run down cleanly; ``None`` if it has stopped it."""
        if self.is_left:
            return None
        text = "its process was killed or could not write to its disk; no work that was recorded is lost"
        return Fact(kind="failed", place=f"hub{self.hub}", at=at, text=text, is_of_node=is_of_node)

    def _hub_started(self, data: e.HubStarted, seq: int, at: int) -> None:
        self.hub, self.is_left = data.hub, False
        self._failure = None
        self._paused_until, self._is_spent = 0, False

    def _hub_stopped(self, data: e.HubStopped, seq: int, at: int) -> None:
        self.is_left = True

    def _step_started(self, data: e.StepStarted, seq: int, at: int) -> Fact | None:
        # Questions have numbers of their own, which stay the same however often a step is begun.
        return self._question(data.question, data.about, at) if data.question else None

    def _question_asked(self, data: e.QuestionAsked, seq: int, at: int) -> Fact | None:
        return self._question(data.id, f"{data.agent}: {data.about}" if data.agent else data.about, at)

    def _question(self, number: str, about: str, at: int) -> Fact:
        return Fact(kind="question", place=number, at=at, text=about, question=number)

    def _step_retried(self, data: e.StepRetried, seq: int, at: int) -> Fact | None:
        limited = data.error.code == AgentRateLimitedError.code
        if not limited or data.due <= max(at, self._paused_until + _SAME_PAUSE_US):
            return None
        self._paused_until = data.due
        return Fact(kind="paused", place=str(seq), at=at, until=data.due, text=data.error.message)

    def _step_failed(self, data: e.StepFailed, seq: int, at: int) -> Fact | None:
        # One call after the other fails when nothing is left: that is one fact until the run is resumed.
        if self._is_spent or data.error.code not in _BUDGET:
            return None
        self._is_spent = True
        return Fact(kind="budget", place=str(seq), at=at, text=_message(data.error, data.p))

    def _failed(self, data: e.FailureRecorded, seq: int, at: int) -> None:
        self._failure = self._failure or data

    def _run_ended(self, data: e.RunEnded, seq: int, at: int) -> Fact:
        self.is_left = True
        if data.status != "failed":
            return Fact(kind="ended", place=str(seq), at=at, status=data.status, text=data.reason)
        failure = self._failure
        text = data.reason if failure is None else _message(failure.error, failure.worker)
        return Fact(kind="failed", place=str(seq), at=at, status=data.status, text=text)


def _message(error: ErrorData, whose: str) -> str:
    return f"{whose}: {error.message}" if whose else error.message
