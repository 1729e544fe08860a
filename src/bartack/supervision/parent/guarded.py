"""Running a program that executes the user's code, and leaving none of its processes: not when it ends, nor when we are killed."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from bartack.core.accounts import Account, user_of_children
from bartack.supervision.parent.guardian import GRACE_S, guarded

_END_S: Final = GRACE_S + 3.0
"""How long guardians may take to end everything."""
LOOK_S: Final = 0.5
"""How often to look whether the program is still needed."""


class GuardedResult(NamedTuple):
    """How a program ended, and what it wrote."""

    code: int
    output: bytes


def run_guarded(
    module: str,
    text: bytes,
    *,
    cwd: str | Path,
    env: Mapping[str, str],
    errors: int | None,
    timeout_s: float,
    account: Account | None = None,
    is_needed: Callable[[], bool] | None = None,
) -> GuardedResult | None:
    """Run a module of ours below guardians, and wait until nothing of it is left; ``None`` if it took too long, or is not needed.

    Args:
        module: The module; it reads ``text`` as its input.
        text: The input.
        cwd: Its working directory.
        env: Its whole environment.
        errors: Where it writes errors; ``None`` for where this process does.
        timeout_s: How long it may take.
        account: The user that it runs as; the caller must be root then.
        is_needed: Asked from time to time; the program is ended when it is not needed any more.
    """
    process = subprocess.Popen(  # bartack: allow[unsupervised_process] its guardians end with us  # noqa: S603 - our own module
        guarded("plain", "", module),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=errors,
        cwd=cwd,
        env=env,
        user=user_of_children() if account is None else account.uid,
        group=None if account is None else account.gid,
        extra_groups=None if account is None else account.groups,
    )
    try:
        output = _await(process, text, timeout_s, is_needed)
    except subprocess.TimeoutExpired:
        return None
    finally:
        _end(process)
    return GuardedResult(process.returncode, output)


def _await(
    process: subprocess.Popen[bytes], text: bytes, timeout_s: float, is_needed: Callable[[], bool] | None
) -> bytes:
    if is_needed is None:
        return process.communicate(text, timeout_s)[0]
    limit, given = time.monotonic() + timeout_s, text or None
    while True:
        try:
            return process.communicate(given, LOOK_S)[0]
        except subprocess.TimeoutExpired:
            given = None  # what is left of it is written by the next call
            if time.monotonic() > limit or not is_needed():
                raise


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(_END_S)
        except subprocess.TimeoutExpired:
            process.kill()
    for stream in (process.stdin, process.stdout):
        # What was not written is of no use to a program that has ended.
        with suppress(BrokenPipeError):
            if stream is not None:
                stream.close()
    process.wait()  # bartack: allow[wait_without_deadline] it has ended, or was killed
