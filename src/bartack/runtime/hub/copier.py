"""Makes the copies of a run's workspace for its hub, in a thread: git takes longer than the loop may wait.

``kernel/copies/desk.py`` decides when there is a copy, and what becomes of it.
"""

from __future__ import annotations

import os
import queue
import select
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

from bartack.depot.port import open_blob_port
from bartack.errors import BartackError
from bartack.journal import BlobRef
from bartack.runtime.copies.copies import Copies, open_copies
from bartack.runtime.copies.lanes import find_lanes
from bartack.runtime.copies.values import Sources
from bartack.runtime.kernel.actions import KeepCopy, PackCopy
from bartack.runtime.kernel.copies.core import CopyingCore
from bartack.runtime.kernel.copies.desk import CopyMade
from bartack.runtime.rundir.layout import RunDir

LAST_S: Final = 10.0
"""How long a hub that is asked to stop waits for the copy that is being made, so that the steps which need it are finished."""
END_S: Final = 1.0

Outcome = Callable[[CopyingCore], None]


class Copier:
    """Makes one copy after the other; see the module.

    Args:
        run: The run.
        core: Decides about copies, and learns what became of them.
        top: The directory that is copied.
        include: Patterns of ignored files that are copied all the same.
        base: A commit that no pack has; empty: there is none.
        prepare: Called in the thread of the hub before each copy: brings into the directory of the run what is elsewhere.
    """

    def __init__(
        self,
        run: RunDir,
        core: CopyingCore,
        top: Path,
        include: Sequence[str] = (),
        base: str = "",
        prepare: Callable[[], None] = lambda: None,
    ) -> None:
        self._base = base
        self._prepare = prepare
        self._core = core
        self._top = top
        self._run = run
        self._directory = run.copies
        self._include = include
        self._copies: Copies | None = None
        # The values of the run as they are: what has a checksum of its own is not searched for secrets.
        self._blobs = open_blob_port(run.blob_port())
        self._tasks: queue.SimpleQueue[KeepCopy | PackCopy | None] = queue.SimpleQueue()
        self._outcomes: queue.SimpleQueue[Outcome] = queue.SimpleQueue()
        self._reader, self._writer = os.pipe()
        for end in (self._reader, self._writer):
            os.set_blocking(end, False)
        self._thread = threading.Thread(  # bartack: allow[unsupervised_thread] it ends with ``close``, or with the process
            target=self._work, name="bartack-copies", daemon=True
        )
        self._thread.start()

    # In the thread of the hub.

    def fileno(self) -> int:
        """Readable when ``take_outcomes`` has something to do."""
        return self._reader

    def keep(self, action: KeepCopy) -> None:
        """Perform ``KeepCopy``."""
        self._prepare()  # before files are read: an agent may remember less than it has changed, and never more
        self._tasks.put(action)

    def pack(self, action: PackCopy) -> None:
        """Perform ``PackCopy``."""
        self._tasks.put(action)

    def take_outcomes(self) -> None:
        """Report to the core what became of copies."""
        with suppress(BlockingIOError):
            os.read(self._reader, 4096)
        while not self._outcomes.empty():
            self._outcomes.get_nowait()(self._core)

    def wait_for_held(self) -> bool:
        """Wait for the copy that steps need which have ended, but not for long; ``False``: there is none, or it takes longer."""
        return self._core.copies.is_holding and bool(select.select([self._reader], [], [], LAST_S)[0])

    def close(self) -> None:
        """End the thread. A copy that it makes is of no use any more."""
        self._tasks.put(None)
        self._thread.join(END_S)
        if not self._thread.is_alive():
            os.close(self._reader)
            os.close(self._writer)

    # In its own thread.

    def _work(self) -> None:
        while True:
            task = self._tasks.get()  # bartack: allow[wait_without_deadline] ``close`` ends it
            if task is None:
                return
            outcome = self._keep(task) if isinstance(task, KeepCopy) else self._pack(task)
            self._outcomes.put(outcome)
            with suppress(BlockingIOError):
                os.write(self._writer, b"x")

    def _keep(self, task: KeepCopy) -> Outcome:
        began = time.monotonic_ns()
        try:
            copies = self._open()
            sources = Sources(self._top, self._run.path, find_lanes(self._run.worktrees))
            copy = copies.take(sources, task.parent, during=task.during)
            if copy.is_same:
                return partial(CopyingCore.copy_made, made=None)
            pack = self._put(copies.pack(copy.commit, task.parent))
        except Exception as error:  # noqa: BLE001 - the thread reports it: without it, steps would wait for ever
            return partial(CopyingCore.copy_failed, problem=_problem(error))
        took_us = (time.monotonic_ns() - began) // 1000
        made = CopyMade(copy.commit, pack, copy.head, dict(copy.refs), list(copy.left_out), took_us)
        return partial(CopyingCore.copy_made, made=made)

    def _pack(self, task: PackCopy) -> Outcome:
        try:
            pack = self._put(self._open().pack(task.copy))
        except Exception:  # noqa: BLE001 - see above
            pack = []  # what it is made of stays as it is, and it is tried again after the next copy
        return partial(CopyingCore.copy_packed, copy=task.copy, pack=pack)

    def _put(self, pack: Iterable[bytes]) -> list[BlobRef]:
        """Make the parts of a pack values of the run."""
        return [self._blobs.put(part) for part in pack]

    def _open(self) -> Copies:
        if self._copies is None:
            self._copies = open_copies(self._directory, include=self._include, base=self._base)
        return self._copies


def _problem(error: Exception) -> str:
    """What went wrong; the kind of an error is shown, too, if it was not expected."""
    return str(error) if isinstance(error, BartackError | OSError) else f"{type(error).__name__}: {error}"
