"""A journal in memory whose commits take time: each is confirmed, or fails, when the test says so."""

from __future__ import annotations

import os
from collections.abc import Callable
from threading import Lock

from bartack.core.clock import Clock
from bartack.errors import JournalOwnershipLostError, JournalPoisonedError
from bartack.journal import MemoryJournal, wait_for_commit
from bartack.journal._stage import Group
from bartack.journal.memory import MemoryStore


class LateJournal(MemoryJournal):
    """A journal whose ``finish_commit`` has nothing to report before ``confirm`` or ``refuse`` was called, in any thread.

    Args:
        store: What an earlier owner left.
        take_over: Become the owner even if there is one.
        clock: The time of entries.
        started: Called when a commit has started.
    """

    def __init__(
        self,
        store: MemoryStore | None = None,
        *,
        take_over: bool = False,
        clock: Clock | None = None,
        started: Callable[[LateJournal], None] | None = None,
    ) -> None:
        self.breaks = ""
        """Why the next commit fails, if it is to fail."""
        self._started = started
        self._groups: list[Group] | None = None
        self._settled = False
        self._problem: JournalPoisonedError | None = None
        self._settling = Lock()
        self._wake_r, self._wake_w = os.pipe()
        super().__init__(store, take_over=take_over, clock=clock)
        self._synced = len(self.store.entries)

    @property
    def synced_seq(self) -> int:
        """Place of the last acknowledged entry; later ones may be in the store."""
        return self._synced

    @property
    def under_way(self) -> bool:
        """Whether a commit is started and not finished."""
        return self._groups is not None

    def commit(self) -> int:
        """See ``Journal.commit``."""
        if self.under_way:
            wait_for_commit(self)
        self.start_commit()
        wait_for_commit(self)
        return self.synced_seq

    def start_commit(self) -> None:
        """See ``Journal.start_commit``."""
        self._check_usable()
        assert not self.under_way, "a commit is under way"
        self._groups = self._stage.take()
        if self._started is not None:
            self._started(self)

    def fileno(self) -> int:
        """See ``Journal.fileno``."""
        return self._wake_r

    def finish_commit(self) -> bool:
        """See ``Journal.finish_commit``."""
        self._check_usable()
        with self._settling:
            if self._groups is None:
                return True
            if not self._settled:
                return False
            os.read(self._wake_r, 1)
            groups, self._groups, self._settled = self._groups, None, False
        if self._problem is not None:
            self._poison = self._problem
            raise self._problem
        self._synced = max([self._synced, *(group.seq + len(group.bodies) - 1 for group in groups)])
        return True

    def close(self) -> None:
        """See ``Journal.close``."""
        with self._settling:
            super().close()
            if self._wake_r >= 0:
                os.close(self._wake_r)
                os.close(self._wake_w)
                self._wake_r = self._wake_w = -1

    # The test.

    def confirm(self) -> None:
        """The commit under way is durable, unless this owner has lost the journal."""
        if self.breaks:
            self.refuse(self.breaks)
            return
        assert self._groups is not None
        try:
            self._keep(self._groups)
        except JournalOwnershipLostError as error:
            self._problem = error
        self._settle()

    def refuse(self, problem: str = "the connection is cut", *, written: bool = False) -> None:
        """It stays unknown whether the commit under way is durable; what is in the store tells the next owner."""
        assert self._groups is not None
        if written:
            self._keep(self._groups)
        self._problem = JournalPoisonedError("memory", problem)
        self._settle()

    def _settle(self) -> None:
        with self._settling:
            self._settled = True
            if self._wake_w >= 0:
                os.write(self._wake_w, b"\0")
