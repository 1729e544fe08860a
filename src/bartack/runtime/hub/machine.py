"""What every run needs of the machine and of the process that runs it: checked before a run is made or resumed."""

from __future__ import annotations

import errno
import sys
from typing import Final

from bartack.errors import MachineError
from bartack.supervision.process.limits import most_files, processes_left
from bartack.supervision.process.system import find_flaw

FILES_KEPT: Final = 64
"""Descriptors that the hub keeps for its own files: no worker, command, agent or process outside gets them."""

FILES_OF_WORKER: Final = 3
"""The hub's ends of a worker's socket, of its errors and of its scoreboard."""

FILES_LEAST: Final = 2 * FILES_KEPT
"""A run is refused with fewer."""

PROCESSES_LEAST: Final = 8
"""The helpers of a hub with their guardians, one worker and one command."""
_COUNTED: Final = 1024
"""A larger limit of processes is not checked: counting the processes would take longer than the start of a run should."""


def check_machine(*paths: str) -> None:
    """Raise unless runs can be run here.

    Args:
        paths: Where the run and its workspace are.

    Raises:
        MachineError: They cannot.
    """
    flaw = find_flaw()
    if flaw:
        action = "Mount it (mount -t proc proc /proc), or use a container that has it."
        raise MachineError(f"{flaw}, and without it no process can be supervised", action)
    most = most_files()
    if most < FILES_LEAST:
        action = f"Raise the hard limit to {FILES_LEAST} or more (ulimit -Hn, or LimitNOFILE of a service)."
        raise MachineError(f"this process may open {most} files at most", action)
    bound = processes_left(count_below=_COUNTED)
    if bound is not None and bound.left < PROCESSES_LEAST:
        action = "Raise the limit (ulimit -u, TasksMax of a service, --pids-limit of a container), or stop other programs."
        raise MachineError(f"only {bound.left} more processes may be started: {bound.source}", action)
    for path in paths:
        if not _is_text(path):
            problem = (
                f"the path {path!a} is not text in the locale of this process ({sys.getfilesystemencoding()})"
            )
            raise MachineError(problem, "Set LANG=C.UTF-8 or PYTHONUTF8=1, or use another directory.")


def _is_text(path: str) -> bool:
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


def workers_room(files: int) -> int:
    """How many workers a hub can have at a time that may open this many files."""
    return max((files - FILES_KEPT - FILES_KEPT // 2) // FILES_OF_WORKER, 0)


def check_room(descriptor: int, files: int) -> None:
    """Raise if a descriptor that was just opened is one of those that the hub needs for its own files.

    The system gives the lowest free number, so the number shows how many are in use.

    Raises:
        OSError: It is; the caller closes it.
    """
    if descriptor >= files - FILES_KEPT:
        raise OSError(errno.EMFILE, f"too many open files (this process may open {files})")
