"""A program that is started only to check it, outside of any run: stopped with its whole process group when the check is over."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from bartack.core.accounts import user_of_children

KILLED_S: Final = 5.0
"""How long the system may take to kill it."""


@contextmanager
def started(
    argv: Sequence[str], cwd: Path, env: Mapping[str, str], stderr: int, end_s: float
) -> Generator[subprocess.Popen[bytes]]:
    """A program with pipes to its stdin and from its stdout; ``end_s`` is how long it may take after the end of its input."""
    process = subprocess.Popen(  # noqa: S603 - the project's own words  # bartack: allow[unsupervised_process] ended below
        argv,
        cwd=cwd,
        env=dict(env),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=stderr,
        start_new_session=True,
        user=user_of_children(),
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield process
    finally:
        with suppress(BrokenPipeError):
            process.stdin.close()
        try:
            process.wait(end_s)
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.kill()
            process.wait(KILLED_S)
        process.stdout.close()
