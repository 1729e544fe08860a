"""What processes that run other people's code write as errors: shown where our own errors are, through ``sys.stderr``.

None of them has our stderr itself. The command line has put a stream in its place that lets nothing steer a terminal
(``cli/app/_edge.py``); a process that wrote to the descriptor would bypass it.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import Final

_PORTION: Final = 64 * 1024


def pass_on_errors(data: bytes) -> None:
    """Show what another process has written; where our errors go nowhere, so does this."""
    with suppress(OSError):
        sys.stderr.flush()
        sys.stderr.buffer.write(data)
        sys.stderr.buffer.flush()


@contextmanager
def errors_passed_on() -> Generator[int]:
    """A descriptor for the errors of a process; they are shown when the block ends, however it ends.

    It is a file, not a pipe: what the process leaves running would keep a pipe open, and its reader waiting.
    """
    with tempfile.TemporaryFile() as file:
        try:
            yield file.fileno()
        finally:
            os.lseek(file.fileno(), 0, os.SEEK_SET)
            while data := os.read(file.fileno(), _PORTION):
                pass_on_errors(data)
