"""The custodian of a demo: a process that ends what is left of the demo, and removes its directory, when the demo is killed.

Its input is a pipe that only the demo has open. The demo writes a word when it ends by itself. If the pipe ends without one, the
demo was killed: whatever has its mark in the environment is killed, that is the run, its agents and the page. The custodian has a
session of its own, so that signals of the terminal do not reach it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

from bartack.supervision.process.tree import find_by_environment, kill_tree

MARK: Final = "BARTACK_DEMO"
"""The variable of all processes of a demo: the directory of the demo."""

_KEEP: Final = "keep"
_DONE: Final = b"done"
_END_S: Final = 5.0
"""How long the custodian may take to end; it takes no time."""
_REMOVALS: Final = 20
"""How often the directory is tried to be removed."""


@contextmanager
def open_custodian(directory: str, *, keep: bool) -> Generator[None]:
    """Have a custodian for a demo until the block is left.

    Args:
        directory: The directory of the demo.
        keep: Whether the directory stays when the demo is killed.
    """
    command = [sys.executable, "-P", "-m", __name__, directory, *([_KEEP] if keep else [])]
    with subprocess.Popen(  # bartack: allow[unsupervised_process] it ends with the pipe  # noqa: S603 - our own module
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,  # it acts when the demo is gone, which would show what it reports
        start_new_session=True,
    ) as custodian:
        try:
            yield
        finally:
            try:
                custodian.communicate(_DONE, timeout=_END_S)
            except subprocess.TimeoutExpired:
                custodian.kill()


def remove(directory: str) -> None:
    """Remove the directory of a demo; a process that was killed a moment ago may still write its last file there."""
    for _ in range(_REMOVALS):
        shutil.rmtree(directory, ignore_errors=True)
        if not os.path.exists(directory):
            return
        threading.Event().wait(0.1)
    shutil.rmtree(directory)


def main() -> None:
    """Wait for the end of the demo, and clean up if it was killed."""
    directory, *words = sys.argv[1:]
    if sys.stdin.buffer.read() == _DONE:
        return
    kill_tree(*(facts.id for facts in find_by_environment(MARK, directory)))
    if _KEEP not in words:
        remove(directory)


if __name__ == "__main__":
    main()
