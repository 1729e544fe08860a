"""The process that makes one run of a schedule: ``bartack run --detach``, as a person would call it, in the schedule's workspace.

The node never waits for it: it asks for the outcome at every look. A start that takes too long is killed.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import IO, Final, Protocol

import msgspec

from bartack.config.project import with_absolute_path
from bartack.core import typed
from bartack.depot import Schedule

START_S: Final = 120.0
"""How long a start may take: an agent may have to answer that it is there."""
MOST_OUTPUT: Final = 65_536
MOST_PROBLEM: Final = 500
"""Characters of a problem that are kept with its schedule."""


class StartOutcome(msgspec.Struct, frozen=True):
    """How a start has ended: with a run in the queue, or with a problem; ``is_skipped``: that is as the user wants it."""

    run: str = ""
    problem: str = ""
    is_skipped: bool = False


class Start(Protocol):
    """A start in progress."""

    def outcome(self) -> StartOutcome | None:
        """How it has ended; ``None`` while it is in progress."""
        ...

    def wait_outcome(self) -> StartOutcome:
        """Wait for the outcome."""
        ...

    def kill(self) -> None:
        """Give it up."""
        ...


Launch = Callable[[Schedule, str], Start | StartOutcome]
"""Starts a run of a schedule; the text is the key by which a repeated start finds its run, empty for none."""


def command_of(schedule: Schedule, key: str) -> Sequence[str]:
    """The words of the process that makes a run of a schedule."""
    keyed = ["--start-key", key] if key else []
    own = ["run", "--detach", "--json", "--schedule", schedule.name, *keyed]
    return [sys.executable, "-P", "-s", "-m", "bartack", *own, *schedule.words]


class Launcher:
    """See ``Launch``: processes of this machine.

    Args:
        environ: The environment of the node; the variables that are kept with a schedule come before it.
        limit_s: How long a start may take.
    """

    def __init__(self, environ: Mapping[str, str], limit_s: float = START_S) -> None:
        self._environ = environ
        self._limit_s = limit_s

    def __call__(self, schedule: Schedule, key: str) -> Start | StartOutcome:
        """See ``Launch``."""
        try:
            return _ProcessStart(command_of(schedule, key), schedule, self._environ, self._limit_s)
        except OSError as error:
            return StartOutcome(problem=f"{error.filename or schedule.workspace}: {error.strerror or error}")


class _ProcessStart:
    """See ``Start``."""

    def __init__(
        self, command: Sequence[str], schedule: Schedule, environ: Mapping[str, str], limit_s: float
    ) -> None:
        # Files, not pipes: the process never waits for a reader.
        self._stdout: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the start
        self._stderr: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - likewise
        try:
            self._process = (
                subprocess.Popen(  # bartack: allow[unsupervised_process] it is killed after its time limit  # noqa: S603 - no shell
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=self._stdout,
                    stderr=self._stderr,
                    start_new_session=True,
                    cwd=schedule.workspace,
                    env=with_absolute_path({**environ, **schedule.environ}),
                )
            )
        except OSError:
            self._close()
            raise
        self._limit_s = limit_s
        self._limit = time.monotonic() + limit_s

    def outcome(self) -> StartOutcome | None:
        """See ``Start.outcome``."""
        if self._process.poll() is not None:
            return self._read()
        if time.monotonic() < self._limit:
            return None
        self.kill()
        return StartOutcome(problem=f"its start took longer than {self._limit_s:g} s and was terminated")

    def wait_outcome(self) -> StartOutcome:
        """See ``Start.wait_outcome``."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(max(0.0, self._limit - time.monotonic()))
        outcome = self.outcome()
        assert outcome is not None
        return outcome

    def kill(self) -> None:
        """See ``Start.kill``. A run is made whole or not at all, so a kill does no harm at any moment."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(30)
        self._close()

    def _read(self) -> StartOutcome:
        code = self._process.returncode
        stdout, stderr = _tail(self._stdout), _tail(self._stderr)
        self._close()
        if code == 0:
            with suppress(msgspec.DecodeError):
                return typed.decode(stdout, type=StartOutcome)
        return StartOutcome(problem=_problem(stderr, code)[:MOST_PROBLEM])

    def _close(self) -> None:
        self._stdout.close()
        self._stderr.close()


class _Report(msgspec.Struct):
    """What a command writes about its error with ``--json``."""

    class Error(msgspec.Struct):
        code: str
        message: str

    error: Error


def _tail(file: IO[bytes]) -> bytes:
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - MOST_OUTPUT))
    return file.read()


def _problem(stderr: bytes, code: int) -> str:
    lines = [line for line in stderr.splitlines() if line.strip()]
    if not lines:
        return f"bartack run ended with code {code}"
    with suppress(msgspec.DecodeError):
        error = typed.decode(lines[-1], type=_Report).error
        return f"{error.code}: {error.message}"
    return lines[-1].decode(errors="replace").strip()
