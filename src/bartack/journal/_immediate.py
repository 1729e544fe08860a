"""Commits in two halves for engines that need no time between them."""

from __future__ import annotations

from abc import ABC, abstractmethod


class ImmediateCommits(ABC):
    """The halves of a commit in an engine whose ``commit`` does not wait for another process."""

    @abstractmethod
    def commit(self) -> int:
        """See ``Journal.commit``."""

    @abstractmethod
    def _check_usable(self) -> None:
        """Raise if the journal is closed or poisoned."""

    def start_commit(self) -> None:
        """Make everything staged durable, at once. See ``Journal.start_commit``."""
        self.commit()

    def fileno(self) -> int | None:
        """A commit that was started can be finished at once."""
        return None

    def finish_commit(self) -> bool:
        """The commit that was started is over. See ``Journal.finish_commit``."""
        self._check_usable()
        return True
