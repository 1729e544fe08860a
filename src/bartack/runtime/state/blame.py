"""Which steps of a worker failed without having been handled, and what a rewind to one of them undoes.

A failure is handled when its own branch continues with something that matters: a message, a prompt, a question, other workers, a
body. Clean-up does not count. Another branch that merely continued beside it has not handled it either: what that branch did
stands, up to where it was cancelled because of the failure.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from bartack.runtime.protocol.paths import is_inside, number_inside
from bartack.runtime.protocol.steps import CLEANUP

TIDYING: Final = CLEANUP | {"nack", "tool", "demonitor", "unlink", "trap"}
"""Steps that may follow a failure without handling it. A call of a tool is the agent's doing, not the program's."""

MANY: Final = 10_000
"""A failure that is followed by more outcomes than this counts as handled."""

LATEST: Final = 1 << 62

Key = tuple[str, int]
"""A step: its path and number."""


class FailedStep(NamedTuple):
    """A step that failed."""

    seq: int
    step: str
    fp: str
    unknown: bool = False
    """It is unknown whether it happened."""


class Since(NamedTuple):
    """An outcome after a failure."""

    seq: int
    p: str
    n: int
    cancelled: bool


class FailedSteps:
    """The failures of one worker that it may be set back to, and what came since the first of them."""

    def __init__(self) -> None:
        self.steps: dict[Key, FailedStep] = {}
        self._since: list[Since] = []

    def fail(self, p: str, n: int, failed: FailedStep, *, cancelled: bool) -> None:
        """A step failed; ``cancelled``: perhaps because another one did."""
        self._note(Since(failed.seq, p, n, cancelled))
        self.steps[p, n] = failed

    def finish(self, p: str, n: int, step: str, seq: int) -> None:
        """A step ended well."""
        if not self.steps:
            return
        if step not in TIDYING:
            self.steps = {
                key: failed
                for key, failed in self.steps.items()
                if not self._depends(p, key, failed.seq, LATEST)
            }
        self._note(Since(seq, p, n, cancelled=False))

    def standing(self, origin: Key, to: int) -> tuple[set[int], set[Key]]:
        """What follows a failure when its worker is set back to it: the places that stand, and the steps that do not."""
        kept: set[int] = set()
        undone: set[Key] = set()
        for item in self._since:
            if item.seq < to:
                continue
            if self._depends(item.p, origin, to, item.seq) or item.cancelled:
                undone.add((item.p, item.n))
            else:
                kept.add(item.seq)
        return kept, undone

    def doubts(self, origin: Key, to: int) -> list[tuple[Key, FailedStep]]:
        """Steps beside a failure that were cut short by it, would be done again, and may have happened."""
        steps = [
            (item, self.steps.get((item.p, item.n)))
            for item in self._since
            if item.cancelled and item.seq >= to
        ]
        return [
            ((item.p, item.n), failed)
            for item, failed in steps
            if failed is not None and failed.unknown and not self._depends(item.p, origin, to, item.seq)
        ]

    def depends(self, p: str, origin: Key, to: int) -> bool:
        """Whether what a branch does now follows from a failure."""
        return self._depends(p, origin, to, LATEST)

    def rewind(self, kept: set[int], to: int) -> None:
        """The worker was set back."""
        self.steps = {
            key: failed for key, failed in self.steps.items() if failed.seq < to or failed.seq in kept
        }
        self._since = (
            [item for item in self._since if item.seq < to or item.seq in kept] if self.steps else []
        )

    def _note(self, item: Since) -> None:
        if not self.steps:
            self._since.clear()
        elif len(self._since) >= MANY:
            self.steps.clear()
            self._since.clear()
        self._since.append(item)

    def _depends(self, p: str, failed: Key, since: int, until: int) -> bool:
        """Whether what branch ``p`` did at a place follows from a failure."""
        if follows(p, failed):
            return True
        return any(
            item.cancelled and since < item.seq < until and follows(p, (item.p, item.n))
            for item in self._since
        )


def follows(p: str, step: Key) -> bool:
    """Whether a branch continues where a step was: it is the same branch, one around it, or one that was started after it.

    A branch around it may have continued beside it, in a task group; that cannot be distinguished.
    """
    path, number = step
    if p == path or is_inside(path, p):
        return True
    started_by = number_inside(p, path)
    return started_by is not None and started_by > number
