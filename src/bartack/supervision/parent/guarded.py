"""Running a program that executes the user's code, and leaving none of its processes: not when it ends, nor when we are killed."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from bartack.core.accounts import Account
from bartack.supervision.parent.guardian import GRACE_S, guarded

_END_S: Final = GRACE_S + 3.0
"""How long guardians may take to end everything."""


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
) -> GuardedResult | None:
    """Run a module of ours below guardians, and wait until nothing of it is left; ``None`` if it took too long.

    Args:
        module: The module; it reads ``text`` as its input.
        text: The input.
        cwd: Its working directory.
        env: Its whole environment.
        errors: Where it writes errors; ``None`` for where this process does.
        timeout_s: How long it may take.
        account: The user that it runs as; the caller must be root then.
    """
    process = subprocess.Popen(  # bartack: allow[unsupervised_process] its guardians end with us  # noqa: S603 - our own module
        guarded("plain", "", module),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=errors,
        cwd=cwd,
        env=env,
        user=None if account is None else account.uid,
        group=None if account is None else account.gid,
        extra_groups=None if account is None else account.groups,
    )
    try:
        output, _ = process.communicate(text, timeout_s)
    except subprocess.TimeoutExpired:
        return None
    finally:
        _end(process)
    return GuardedResult(process.returncode, output)


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
