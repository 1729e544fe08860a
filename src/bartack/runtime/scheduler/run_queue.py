"""The branches of one worker: which there are, which can run, and which runs now.

A queue and a table, no decisions: ``scheduler.py`` takes branches off the queue, everything that ends a wait puts them on it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Coroutine
from typing import NoReturn

from bartack.errors import BartackError
from bartack.runtime.scheduler.operations import AnyBranch, Branch, Counted, FatalError, Group


class RunQueue:
    """The branches of one worker, in the order in which they run."""

    def __init__(self) -> None:
        self.branches: dict[str, AnyBranch] = {}
        """The branches that have not ended, by path."""
        self.ready: deque[tuple[AnyBranch, object, BaseException | None]] = deque()
        """The branches that can run, each with the value or the exception that it continues with."""
        self.current: AnyBranch
        """The branch that runs now."""
        self.fatal: BartackError | None = None
        """Why no branch runs any more: an error that the program must not handle."""

    def add(
        self, path: str, coroutine: Coroutine[object, object, object], group: Group | None = None
    ) -> AnyBranch:
        """Add a branch, which runs as soon as the current one waits."""
        branch = self.branches[path] = Branch(path, coroutine, group)
        self.ready.append((branch, None, None))
        return branch

    def wake(self, branch: AnyBranch, value: object, error: BaseException | None) -> None:
        """Let a branch continue with the outcome of its wait, after the branches that are ready already."""
        branch.op = None
        if error is not None:
            branch.settle(error)
        self.ready.append((branch, value, error))

    def open_step(self, p: str, n: int) -> Counted[object] | None:
        """The step with this path and number, if a branch waits for it."""
        branch = self.branches.get(p)
        op = None if branch is None else branch.op
        return op if isinstance(op, Counted) and op.n == n else None

    def die(self, error: BartackError) -> NoReturn:
        """Stop the worker with an error that the program must not handle."""
        self.fatal = self.fatal or error
        raise FatalError(error)
