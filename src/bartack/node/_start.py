"""Starting and stopping the node from outside. What it does is in ``_node.py``."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from bartack._version import __version__
from bartack.core.files import open_private
from bartack.core.trust import make_private
from bartack.core.watch import open_watch
from bartack.depot import FileDepot, NodeFacts
from bartack.errors import DeadlineExceededError, NodeStartError, NodeVersionError
from bartack.node._submit import INSIDE

START_S: Final = 20.0
STOP_S: Final = 90.0
IDLE_S: Final = 60
"""How long a node that was started for a run stays when there is nothing left to do."""
LOG: Final = "node.log"
MOST_LOG: Final = 1 << 20
"""The log is begun anew when it is larger: at a start, and once a day."""


def node_log(depot: FileDepot) -> Path:
    """Where a node that was started in the background writes what it does."""
    return depot.directory / LOG


def trim_log(depot: FileDepot) -> None:
    """Begin the log anew if it is too large. The node only appends to it, so its next line is the first one."""
    path = node_log(depot)
    with suppress(OSError):
        if path.stat().st_size > MOST_LOG:
            os.close(open_private(path, os.O_WRONLY | os.O_TRUNC))


def ensure_node(depot: FileDepot) -> NodeFacts:
    """The node of this user; started if there is none.

    Raises:
        NodeStartError: It cannot be started.
        NodeVersionError: The one that runs belongs to another version.
    """
    found = depot.seated()
    if found is not None:
        if found.version != __version__:
            raise NodeVersionError(found.version, __version__)
        return found
    process = _start(depot)
    limit = time.monotonic() + START_S
    with open_watch(str(depot.directory)) as watch:
        while True:
            found = depot.seated()
            if found is not None:
                process.returncode = 0  # it outlives this process on purpose, and is not waited for
                return found
            code = process.poll()
            if code is not None and depot.seated() is None:
                raise NodeStartError(f"it ended with code {code}; see {node_log(depot)}")
            if time.monotonic() > limit:
                raise NodeStartError(f"it was not ready after {START_S:.0f} s; see {node_log(depot)}")
            watch.wait(0.05)


def stop_node(depot: FileDepot) -> NodeFacts | None:
    """Stop the node, and its runs such that the next node resumes them; returns the node that was stopped.

    Raises:
        DeadlineExceededError: It takes too long.
    """
    found = depot.seated()
    if found is None:
        return None
    os.kill(found.pid, signal.SIGTERM)
    limit = time.monotonic() + STOP_S
    with depot.watch() as watch:
        while (now := depot.seated()) is not None and now.id == found.id:
            if time.monotonic() > limit:
                raise DeadlineExceededError("node stop", STOP_S, "default")
            watch.wait(0.05)
    return found


def _start(depot: FileDepot) -> subprocess.Popen[bytes]:
    make_private(depot.directory)
    trim_log(depot)
    with open(open_private(node_log(depot), os.O_WRONLY | os.O_CREAT | os.O_APPEND), "ab") as log:
        return subprocess.Popen(  # bartack: allow[unsupervised_process] the node outlives us  # noqa: S603 - a fixed command
            [sys.executable, "-P", "-s", "-m", "bartack", "node", "run", "--idle", str(IDLE_S)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            cwd="/",
            env={name: value for name, value in os.environ.items() if name not in INSIDE},
        )
