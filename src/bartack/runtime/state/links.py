"""Which workers of a run are linked, and what an abort from outside does to one. Both are parts of the state of a run.

Nothing is decided here: ``kernel/links.py`` decides what follows from the end of a linked worker, by writing entries.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from bartack.errors import BartackError, LinkedExitError, StepCancelledError

LINKED_EXIT: Final = f":{LinkedExitError.__name__}"
ABORTS: Final = (f":{StepCancelledError.__name__}", LINKED_EXIT)
"""How the types of errors end that a worker did not make itself: it was cancelled, or a linked one ended."""

DEADLINE: Final = "its deadline of"
"""How the reason of a cancellation begins that comes from a block with a deadline around the step."""


class Abort(NamedTuple):
    """Why a worker is interrupted: it is cancelled, or a worker that it is linked with has ended."""

    reason: str
    by: str = ""
    """The worker that has ended."""

    def error(self) -> BartackError:
        """What is raised in the worker."""
        return LinkedExitError(self.by, self.reason) if self.by else StepCancelledError(self.reason)


class LinkRegistry:
    """The links of a run: pairs of workers, without a direction."""

    def __init__(self) -> None:
        self._others: dict[str, dict[str, None]] = {}

    def add(self, one: str, other: str) -> None:
        """Two workers are linked; a second time changes nothing."""
        self._others.setdefault(one, {})[other] = None
        self._others.setdefault(other, {})[one] = None

    def remove(self, one: str, other: str) -> None:
        """Two workers are not linked, or no longer."""
        for here, there in ((one, other), (other, one)):
            others = self._others.get(here, {})
            others.pop(there, None)
            if not others:
                self._others.pop(here, None)

    def forget(self, path: str) -> None:
        """A worker has no links any more."""
        for other in self.of(path):
            self.remove(path, other)

    def has(self, one: str, other: str) -> bool:
        """Whether two workers are linked."""
        return other in self._others.get(one, ())

    def of(self, path: str) -> list[str]:
        """The workers that one is linked with, in the order in which they came."""
        return list(self._others.get(path, ()))

    def linked(self) -> list[str]:
        """Every worker that has a link."""
        return list(self._others)
