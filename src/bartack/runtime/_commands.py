"""The commands a run has under way: their input and output files, and how they ended.

Output goes to files without a name instead of pipes: nothing has to be read while a command runs, nothing is lost when it leaves a
process behind that holds the pipe, and a flood cannot fill the hub's memory.
"""

from __future__ import annotations

import base64
import os
import secrets
import tempfile
import time
from collections.abc import Callable
from typing import Final

import msgspec

from bartack.errors import BartackError
from bartack.journal import Journal
from bartack.runtime._effects import ShellEnd
from bartack.runtime._foreign import PARENT_OF_COMMANDS, Process
from bartack.runtime._layout import RunDir
from bartack.runtime._ledger import StartShell
from bartack.runtime._state import State, Value
from bartack.supervision import Exited, Gone, ParentClient, ParentEvent, Started, StartFailed

GRACE_S: Final = 5.0
OUTPUT_LIMIT: Final = 256 * 1024 * 1024
"""A command that writes more than this is ended."""
NOT_STARTED: Final = 127


class _Running:
    def __init__(self, action: StartShell, stdout: int, stderr: int, secret: str) -> None:
        self.token = action.token
        self.path = action.path
        self.argv = action.args.pipeline[-1]
        self.pids: list[int] = []
        self.stdout = stdout
        self.stderr = stderr
        self.secret = secret
        self.key = action.key
        self.status = 0
        self.began_us = time.time_ns() // 1000


class Commands:
    """Starts commands through the keeper and collects what became of them."""

    def __init__(self, run: RunDir, new_token: Callable[[], int], state: State) -> None:
        self._run = run
        self._new_token = new_token
        self._state = state
        self._running: dict[int, _Running] = {}
        self._numbers: dict[int, int] = {}

    def token_key(self, secret: str) -> str | None:
        """The key of the step that a command with this secret belongs to."""
        return next((r.key for r in self._running.values() if secrets.compare_digest(r.secret, secret)), None)

    def start(self, keeper: ParentClient, action: StartShell, journal: Journal) -> None:
        """Start commands.

        Raises:
            OSError: The files for their output could not be made.
        """
        run = self._state.run
        assert run is not None
        secret = secrets.token_hex(16)
        env = {
            **os.environ,
            **(action.args.env or {}),
            **self._run.environment(self._state),
            "BARTACK_WORKER": action.path,
            "BARTACK_STEP": action.key,
            "BARTACK_STEP_TOKEN": secret,
        }
        if action.trace:
            env["TRACEPARENT"] = action.trace
        stdin = self._input(action.stdin, journal)
        running = _Running(action, self._file(), self._file(), secret)
        number = self._new_token()
        self._running[number] = running
        self._numbers[action.token] = number
        cwd = os.path.join(run.workspace, action.args.cwd)
        keeper.exec(
            number, action.args.pipeline, cwd, env, stdin=stdin, stdout=running.stdout, stderr=running.stderr
        )
        if stdin is not None:
            os.close(stdin)

    def stop(self, keeper: ParentClient, token: int) -> None:
        """End commands with everything they started: first asked, then killed."""
        number = self._numbers.get(token)
        if number is not None:
            keeper.stop(number, GRACE_S)

    def event(
        self,
        event: ParentEvent,
        ended: Callable[[int, ShellEnd], None],
        left_behind: Callable[[str, list[str], list[str]], None],
    ) -> None:
        """The keeper reports."""
        match event:
            case Started(token=number, pids=pids, pidfds=pidfds):
                for fd in pidfds:
                    os.close(fd)
                if number in self._running:
                    self._running[number].pids = pids
            case Exited(token=number, statuses=statuses):
                if number in self._running:
                    self._running[number].status = statuses[-1]
            case Gone(token=number, leftovers=leftovers, survivors=survivors):
                running = self._forget(number)
                if running is not None:
                    left_behind(running.path, leftovers, survivors)
                    ended(running.token, self._collect(running))
            case StartFailed(token=number, problem=problem, errno=code):
                running = self._forget(number)
                if running is not None:
                    self._close(running)
                    ended(running.token, ShellEnd(NOT_STARTED, problem=problem, errno=code))
            case _:
                return

    def processes(self, step_of: Callable[[int], str]) -> list[Process]:
        """What runs; ``step_of`` tells the step that commands are run for."""
        return [
            Process(
                "command",
                pid,
                under=PARENT_OF_COMMANDS,
                worker=running.path,
                started=running.began_us,
                step=step_of(running.token),
                about=" ".join(running.argv),
            )
            for running in self._running.values()
            for pid in running.pids
        ]

    def refused(self, error: BartackError | OSError) -> ShellEnd:
        """How commands end that could not be started."""
        return ShellEnd(NOT_STARTED, problem=str(error))

    def all_lost(self) -> list[int]:
        """The keeper died, and everything below it: which commands are gone."""
        lost = [running.token for running in self._running.values()]
        self.close()
        return lost

    def check_sizes(self, too_large: Callable[[int], None]) -> None:
        """Look for commands that write without end."""
        for running in list(self._running.values()):
            if os.fstat(running.stdout).st_size + os.fstat(running.stderr).st_size > OUTPUT_LIMIT:
                too_large(running.token)

    def close(self) -> None:
        """Let go of all files."""
        for number in list(self._running):
            running = self._forget(number)
            if running is not None:
                self._close(running)

    def _forget(self, number: int) -> _Running | None:
        running = self._running.pop(number, None)
        if running is not None:
            self._numbers.pop(running.token, None)
        return running

    def _collect(self, running: _Running) -> ShellEnd:
        try:
            return ShellEnd(running.status, _read(running.stdout), _read(running.stderr))
        finally:
            self._close(running)

    def _close(self, running: _Running) -> None:
        os.close(running.stdout)
        os.close(running.stderr)

    def _file(self) -> int:
        with tempfile.TemporaryFile(dir=self._run.path) as file:
            return os.dup(file.fileno())

    def _input(self, value: Value, journal: Journal) -> int | None:
        if value.raw is None and value.ref is None:
            return None
        encoded = (
            bytes(value.raw) if value.raw is not None else journal.get_blob(value.ref) if value.ref else b'""'
        )
        fd = self._file()
        os.write(fd, base64.b64decode(msgspec.json.decode(encoded, type=str)))
        os.lseek(fd, 0, os.SEEK_SET)
        return fd


def _read(fd: int) -> bytes:
    """What was written, up to a little more than a value may have: the rest would be refused anyway."""
    parts: list[bytes] = []
    offset, limit = 0, 17 * 1024 * 1024
    while offset < limit and (part := os.pread(fd, 1 << 20, offset)):
        parts.append(part)
        offset += len(part)
    return b"".join(parts)
