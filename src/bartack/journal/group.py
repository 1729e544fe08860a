"""Many appenders, one sync: collects what is staged during a turn of a loop and commits it at the turn's end.

``GroupCommit`` is for the driver of a loop, with callbacks; ``AsyncAppender`` is the same for asyncio tasks.

Commits run inline, on the loop's own thread: handing one to a thread and back costs more than a sync of a good disk. Only
while syncs are slow does a writer thread take over, so that a loop with a slow disk continues to serve.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from time import perf_counter
from typing import TYPE_CHECKING, Final

from bartack.errors import JournalClosedError, JournalError

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, Future

    from bartack.journal.contract import Draft, Journal

SLOW_S: Final = 0.005
"""A sync that takes longer than this should not hold up a loop."""

Done = Callable[[JournalError | None], None]
"""Called once when the entries are durable, or with the error that makes it unknown whether they are."""


class GroupCommit:
    """Collects appends and commits them together. Used from one thread.

    The driver of a loop calls ``flush`` at the end of each turn, watches ``fileno`` for readiness, and then calls ``collect``.
    """

    def __init__(self, journal: Journal, *, slow_s: float = SLOW_S) -> None:
        self._journal = journal
        self._slow_s = slow_s
        self._waiting: list[Done] = []
        self._writer: _Writer | None = None
        self._slow = False
        self._closed = False
        self._wake_r, self._wake_w = os.pipe()
        os.set_blocking(self._wake_r, False)

    @property
    def waiting(self) -> int:
        """How many appends no commit has begun for."""
        return len(self._waiting)

    @property
    def busy(self) -> bool:
        """Whether the writer thread is committing now."""
        return self._writer is not None and self._writer.busy

    def append(self, drafts: tuple[Draft, ...], done: Done) -> int:
        """Stage an atomic group; ``done`` is called when it is durable. Returns the place of its first entry."""
        if self._closed:
            raise JournalClosedError("the appender")
        seq = self._journal.stage(*drafts)
        self._waiting.append(done)
        return seq

    def flush(self) -> None:
        """Commit everything that waits: now, or in the writer thread while the disk is slow."""
        if not self._waiting or self.busy:
            return
        waiting, self._waiting = self._waiting, []
        if self._slow:
            self._hand_over(waiting)
            return
        self._commit_now(waiting)

    def fileno(self) -> int:
        """Readable when the writer thread has finished a commit: time to call ``collect``."""
        return self._wake_r

    def collect(self) -> None:
        """Notify the appenders of a commit that the writer thread finished, and begin the next."""
        if self._writer is None:
            return
        with suppress(BlockingIOError):  # asked without being woken
            os.read(self._wake_r, 64)
        finished = self._writer.finished()
        if finished is None:
            return
        waiting, error, took = finished
        self._slow = took > self._slow_s
        try:
            _notify(waiting, error)
        finally:
            self.flush()

    def close(self) -> None:
        """Commit everything that waits, notify every appender, and end the thread. Nothing more is accepted."""
        if self._closed:
            return
        self._closed = True
        waiting, self._waiting = self._waiting, []
        try:
            if self._writer is not None:
                self._writer.close()
                finished = self._writer.finished()
                if finished is not None:
                    _notify(finished[0], finished[1])
        finally:
            try:
                if waiting:
                    self._commit_now(waiting)
            finally:
                os.close(self._wake_r)
                os.close(self._wake_w)

    def _commit_now(self, waiting: list[Done]) -> None:
        try:
            error, took = _commit(self._journal)
        except BaseException:
            # An interruption has poisoned the journal: the next flush notifies them.
            self._waiting = waiting + self._waiting
            raise
        self._slow = took > self._slow_s
        _notify(waiting, error)

    def _hand_over(self, waiting: list[Done]) -> None:
        if self._writer is None:
            self._writer = _Writer(self._journal, self._wake_w)
        self._writer.start(waiting)


def _commit(journal: Journal) -> tuple[JournalError | None, float]:
    started = perf_counter()
    try:
        journal.commit()
    except JournalError as error:
        return error, perf_counter() - started
    return None, perf_counter() - started


def _notify(waiting: list[Done], error: JournalError | None) -> None:
    """Notify all of them; an error in one callback must not keep the others from being called."""
    failed: Exception | None = None
    for done in waiting:
        try:
            done(error)
        except Exception as problem:  # noqa: BLE001 - raised below, when all are notified
            failed = failed or problem
    if failed is not None:
        raise failed


class _Writer:
    """A thread that commits on request, one commit at a time."""

    def __init__(self, journal: Journal, wake: int) -> None:
        self.busy = False
        self._journal = journal
        self._wake = wake
        self._work: SimpleQueue[list[Done] | None] = SimpleQueue()
        self._results: SimpleQueue[tuple[list[Done], JournalError | None, float]] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="bartack-journal", daemon=True)
        self._thread.start()

    def start(self, waiting: list[Done]) -> None:
        self.busy = True
        self._work.put(waiting)

    def finished(self) -> tuple[list[Done], JournalError | None, float] | None:
        if self._results.empty():
            return None
        self.busy = False
        return self._results.get_nowait()

    def close(self) -> None:
        self._work.put(None)
        self._thread.join()  # bartack: allow[wait_without_deadline] what it waits for is one commit

    def _run(self) -> None:
        while True:
            waiting = self._work.get()  # bartack: allow[wait_without_deadline] close ends it
            if waiting is None:
                return
            error, took = _commit(self._journal)
            self._results.put((waiting, error, took))
            os.write(self._wake, b"\0")


class AsyncAppender:
    """Appends from many asyncio tasks; those of one turn of the loop share a sync."""

    def __init__(self, journal: Journal, loop: AbstractEventLoop, *, slow_s: float = SLOW_S) -> None:
        self._loop = loop
        self._group = GroupCommit(journal, slow_s=slow_s)
        self._due = False
        loop.add_reader(self._group.fileno(), self._group.collect)

    def append(self, *drafts: Draft) -> Future[int]:
        """Append an atomic group; the future has the place of its first entry when it is durable."""
        future: Future[int] = self._loop.create_future()
        seq = self._group.append(drafts, lambda error: _settle(future, seq, error))
        if not self._due:
            self._due = True
            # Twice around: the second time the loop has looked once more for those who are ready.
            self._loop.call_soon(self._loop.call_soon, self._flush)
        return future

    def close(self) -> None:
        """Commit what waits, settle every future, and end the writer thread, if there is one."""
        self._loop.remove_reader(self._group.fileno())
        self._group.close()

    def _flush(self) -> None:
        self._due = False
        self._group.flush()


def _settle(future: Future[int], seq: int, error: JournalError | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(seq)
    else:
        future.set_exception(error)
