"""Starting and stopping the daemon from outside. What it does is in ``_daemon.py``."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from bartack.core.trust import make_private
from bartack.core.user_home import user_home
from bartack.resilience.link import DaemonLink
from bartack.tracking.daemon._daemon import take_lock

_LOOK_S: Final = 0.02


def start_daemon(home: str | os.PathLike[str] | None = None, *, timeout_s: float = 10.0) -> bool:
    """Start the daemon if none runs, detached from this process; whether one answers in time."""
    link = DaemonLink(home)
    if link.is_running():
        return True
    make_private(link.home)
    command = [sys.executable, "-I", "-m", "bartack", "daemon", "run"]
    child = subprocess.Popen(  # bartack: allow[unsupervised_process] the daemon outlives us  # noqa: S603 - a fixed command
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        close_fds=True,
        start_new_session=True,
        cwd="/",
    )
    child.returncode = 0  # it outlives this process on purpose, and is not waited for
    return _until(link.is_running, timeout_s)


def stop_daemon(home: str | os.PathLike[str] | None = None, *, timeout_s: float = 10.0) -> bool:
    """Ask the daemon to stop; whether it is gone in time. Nothing to do if none runs."""
    place = Path(home) if home is not None else user_home()

    def gone() -> bool:
        if not _is_held(place):
            return True
        DaemonLink(place).ask("stop")  # again and again: one that is just starting does not listen yet
        return False

    return _until(gone, timeout_s)


def _is_held(home: Path) -> bool:
    if not home.is_dir():
        return False
    lock = take_lock(home)
    if lock is None:
        return True
    os.close(lock)
    return False


def _until(condition: Callable[[], bool], timeout_s: float) -> bool:
    deadline = time.monotonic() + timeout_s
    pause = threading.Event()
    while not condition():
        if time.monotonic() >= deadline:
            return False
        pause.wait(_LOOK_S)
    return True
