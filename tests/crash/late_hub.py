"""A hub whose commits end in a thread while its loop goes on: ``python late_hub.py WHERE COMMIT RUN_DIR WORKSPACE``.

``WHERE`` says what becomes of its commit number ``COMMIT``: ``started``: the process is killed before anything of it is written;
``written``: it is killed when all of it is written, and the loop does not know that; ``broken``: it fails; ``never``: nothing does.
"""

from __future__ import annotations

import os
import signal
import sys
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Event

from bartack.errors import JournalSyncError
from bartack.journal import Draft, FileJournal, _file
from bartack.journal._stage import Group
from bartack.runtime.hub.serve import main

OVERTAKEN_S = 0.02
"""How long a commit lets the loop overtake it, if nothing does so before."""


class LateFileJournal(FileJournal):
    """A journal file that a thread writes to."""

    where, commits_left = "never", 0

    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]  # - passed on as they are
        self._thread = ThreadPoolExecutor(1)
        self._wake_r, self._wake_w = os.pipe()
        self._under_way: Future[None] | None = None
        self._overtaken = Event()

    def stage(self, *drafts: Draft, join: bool = False) -> int:
        seq = super().stage(*drafts, join=join)
        self._overtaken.set()
        return seq

    def start_commit(self) -> None:
        self._check_usable()
        assert self._under_way is None
        self._overtaken.clear()
        self._under_way = self._thread.submit(self._end_commit, self._stage.take())

    def fileno(self) -> int:
        return self._wake_r

    def finish_commit(self) -> bool:
        self._check_usable()
        if self._under_way is None:
            return True
        if not self._under_way.done():
            return False
        os.read(self._wake_r, 1)
        ended, self._under_way = self._under_way, None
        ended.result()
        return True

    def close(self) -> None:
        self._thread.shutdown()
        super().close()

    def _end_commit(self, groups: list[Group]) -> None:
        try:
            self._overtaken.wait(OVERTAKEN_S)
            self.commits_left -= 1
            if self.commits_left == 0 and self.where == "broken":
                self._give_up(JournalSyncError(self.path, "broken by the test"))
            self._come("started")
            if groups:
                with self._writing:
                    self._write(groups)
            self._come("written")
        finally:
            os.write(self._wake_w, b"\0")

    def _come(self, where: str) -> None:
        if self.commits_left == 0 and self.where == where:
            os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    LateFileJournal.where, LateFileJournal.commits_left = sys.argv[1], int(sys.argv[2])
    _file.FileJournal = LateFileJournal  # type: ignore[misc]  # - open_journal makes this one
    sys.exit(main(sys.argv[3:]))
