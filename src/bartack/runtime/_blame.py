"""Which steps of a worker failed without having been handled, and what a rewind to one of them undoes.

A failure is handled when its own line of execution goes on with something that matters: a message, a prompt, a question, other
workers, a body. Tidying up does not count. Another branch that merely went on beside it has not handled it either: what that
branch did stands, up to where it was cancelled because of the failure.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from bartack.runtime._steps import CLEANUP

TIDYING: Final = CLEANUP | {"nack"}
"""Steps that may lie behind a failure without being a handling of it."""

MANY: Final = 10_000
"""A failure with more than this behind it counts as handled."""

Key = tuple[str, int]
"""A step: its path and number."""


class Failed(NamedTuple):
    """A step that failed."""

    seq: int
    step: str
    fp: str


class Since(NamedTuple):
    """An outcome behind a failure."""

    seq: int
    p: str
    n: int
    cancelled: bool


class Blame:
    """The failures of one worker that it may be set back to, and what came since the first of them."""

    def __init__(self) -> None:
        self.steps: dict[Key, Failed] = {}
        self._since: list[Since] = []

    def fail(self, p: str, n: int, failed: Failed, *, cancelled: bool) -> None:
        """A step failed."""
        self._note(Since(failed.seq, p, n, cancelled))
        self.steps[p, n] = failed

    def finish(self, p: str, n: int, step: str, seq: int) -> None:
        """A step ended well."""
        if not self.steps:
            return
        if step not in TIDYING:
            self.steps = {
                key: failed for key, failed in self.steps.items() if not self._handles(p, key[0], failed)
            }
        self._note(Since(seq, p, n, cancelled=False))

    def standing(self, origin: Key, to: int) -> tuple[set[int], set[Key]]:
        """What is behind a failure when its worker is set back to it: the places that stand, and the steps that do not."""
        kept: set[int] = set()
        undone: set[Key] = set()
        for item in self._since:
            if item.seq < to:
                continue
            if self._depends(item.p, origin[0], to, item.seq) or item.cancelled:
                undone.add((item.p, item.n))
            else:
                kept.add(item.seq)
        return kept, undone

    def depends(self, p: str, origin: Key, to: int) -> bool:
        """Whether what a branch does now follows from a failure."""
        return self._depends(p, origin[0], to, self._since[-1].seq + 1 if self._since else to)

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

    def _handles(self, p: str, failed_p: str, failed: Failed) -> bool:
        """Whether something that matters, done in branch ``p``, means that a failure was handled."""
        return self._depends(p, failed_p, failed.seq, 1 << 62)

    def _depends(self, p: str, failed_p: str, since: int, until: int) -> bool:
        if is_same_line(p, failed_p):
            return True
        return any(
            item.cancelled and since < item.seq < until and (p == item.p or p.startswith(f"{item.p}."))
            for item in self._since
        )


def is_same_line(one: str, other: str) -> bool:
    """Whether one of two paths is a branch inside the other, or both are the same."""
    return one == other or one.startswith(f"{other}.") or other.startswith(f"{one}.")
