"""One run at a time works in a workspace: the one that holds this lock. It ends with the process that holds it.

Runs whose tasks have worktrees of their own share it: they only need that no other run works in the workspace meanwhile.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from bartack.core.files import open_private
from bartack.core.trust import make_private
from bartack.depot import KeptRun, WorkspaceUse
from bartack.errors import WorkspaceBusyError
from bartack.pipeline.records.facts import read_order

NAME: Final = "workspace.lock"


class WorkspaceLock:
    """The lock while it is held."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def sign(self, owner: str) -> None:
        """Write down which run holds it, for the message to others."""
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, f"{owner} (process {os.getpid()})\n".encode(), 0)


def workspace_use(run: KeptRun | str | os.PathLike[str]) -> WorkspaceUse:
    """How a run of the pipeline uses its workspace while it is active."""
    order = read_order(run)
    return "shared" if order is not None and order.settings.parallel.tasks > 1 else "alone"


@contextmanager
def hold_workspace(
    workspace: Path, state_dir: Path, *, wait: bool = False, shared: bool = False
) -> Generator[WorkspaceLock]:
    """Hold the lock of a workspace.

    Args:
        workspace: The workspace, for messages.
        state_dir: Where its runs are.
        wait: Whether to wait for another owner to end.
        shared: Whether others may hold it at the same time, who share it as well.

    Raises:
        WorkspaceBusyError: Another process holds it.
    """
    make_private(state_dir)
    fd = open_private(state_dir / NAME, os.O_RDWR | os.O_CREAT)
    try:
        try:
            kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
            fcntl.flock(fd, kind | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            owner = os.pread(fd, 200, 0).decode("utf-8", "replace").strip()
            raise WorkspaceBusyError(str(workspace), owner) from None
        lock = WorkspaceLock(fd)
        lock.sign("")
        yield lock
    finally:
        os.close(fd)
