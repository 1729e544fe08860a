"""The commands a run has under way: their input and output files, and how they ended.

Output goes to files without a name instead of pipes. Nothing has to be read while a command runs, a process that it leaves running
cannot hold a pipe open, and large output cannot fill the hub's memory.
"""

from __future__ import annotations

import base64
import errno
import os
import secrets
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Final, Literal

from bartack.core import typed
from bartack.core.accounts import Account
from bartack.core.disk import is_disk_trouble
from bartack.errors import BartackError
from bartack.journal import Journal
from bartack.runtime.hub.machine import check_room
from bartack.runtime.hub.parents import Parents
from bartack.runtime.kernel.actions import Show, StartShell, StopShell
from bartack.runtime.kernel.commands import LIVE_LIMIT, ShellEnd
from bartack.runtime.kernel.core import Core
from bartack.runtime.kernel.output_tail import ASIDE, cut_front
from bartack.runtime.protocol.requests import PARENT_OF_COMMANDS, Process
from bartack.runtime.protocol.steps import ShellArgs
from bartack.runtime.rundir.layout import RunDir
from bartack.runtime.state.timeline import value_of
from bartack.runtime.state.worker_state import Value
from bartack.supervision.forms import CAPTURE_LIMIT, LIMIT_SIGNAL, pack_form, plain_of, start_status
from bartack.supervision.parent.client import ParentClient
from bartack.supervision.parent.wire import Exited, Gone, ParentEvent, Started, StartFailed
from bartack.supervision.process.limits import files_limit

GRACE_S: Final = 5.0
NOT_STARTED: Final = 127
KEPT_LIVE: Final = 64 * 1024
"""How much of an output is kept that was shown."""

LIVE_S: Final = 0.1
"""How often to look at commands whose output is shown, or is large."""
LOOK_S: Final = 1.0
_LARGE: Final = 1024 * 1024
_PIECE: Final = 1024 * 1024

_EXHAUSTED: Final = {errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.EDEADLK}
"""The system could start no process at all: not a fault of the program that was asked for."""


class _Tail:
    """An output that is shown while it grows, line by line."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._place = 0
        self._rest = b""

    def take(self, *, ended: bool = False) -> str:
        """The next lines that are whole, or nothing; if no more will be written, also what is left at the end."""
        data = os.pread(self._fd, _PIECE, self._place)
        self._place += len(data)
        text, newline, self._rest = (self._rest + data).rpartition(b"\n")
        if (ended and len(data) < _PIECE) or len(self._rest) >= _PIECE:
            text, newline, self._rest = text + newline + self._rest, b"", b""
        return text.decode("utf-8", "replace") + ("\n" if newline else "")


class _Running:
    def __init__(self, action: StartShell, stdout: int, stderr: int, secret: str) -> None:
        self.token = action.token
        self.path = action.path
        self.args = action.args
        self.pids: list[int] = []
        self.stdout = stdout
        self.stderr = stderr
        self.secret = secret
        self.key = action.key
        self.status = 0
        self.by_itself = False
        self.size = 0
        self.began_us = time.time_ns() // 1000
        self.tails: list[tuple[Literal["out", "err"], _Tail]] = []
        if action.args.live:
            self.tails = [("out", _Tail(stdout)), ("err", _Tail(stderr))]

    def is_too_large(self) -> bool:
        """Whether it has written more than it may."""
        self.size = os.fstat(self.stdout).st_size + os.fstat(self.stderr).st_size
        captured = self.args.form is not None and not self.args.live
        return self.size > (CAPTURE_LIMIT if captured else LIVE_LIMIT)

    @property
    def patience_s(self) -> float:
        """How long it needs no look."""
        return LIVE_S if self.tails or self.size > _LARGE else LOOK_S


class Commands:
    """Starts commands through the keeper, and reports what became of them to the core.

    Args:
        run: The run that they belong to.
        core: Decides what to start, and what an end means.
        journal: Has the values of their input.
        parents: Has the keeper.
        new_token: Returns a number that no other process of the hub has.
        show: Shows their output while they write it.
        account: The user that they are executed as, if it is not the hub's.
    """

    def __init__(
        self,
        run: RunDir,
        core: Core,
        journal: Journal,
        parents: Parents,
        new_token: Callable[[], int],
        show: Callable[[Show], None],
        account: Account | None = None,
    ) -> None:
        self._run, self._core, self._journal, self._parents = run, core, journal, parents
        self._new_token = new_token
        self._show = show
        self._account = account
        self._running: dict[int, _Running] = {}
        self._numbers: dict[int, int] = {}
        self._looked = 0.0
        self.patience_s = LOOK_S
        """How long nothing has to be looked at."""

    def token_key(self, secret: str) -> str | None:
        """The key of the step that a command with this secret belongs to."""
        return next((r.key for r in self._running.values() if secrets.compare_digest(r.secret, secret)), None)

    def start(self, action: StartShell) -> None:
        """Perform ``StartShell``."""
        try:
            if self._parents.keeper is None:
                raise OSError("the program that runs commands died too often")  # noqa: TRY301 - refused like any other
            self._start(self._parents.keeper, action)
        except (BartackError, OSError) as error:
            if is_disk_trouble(error):
                raise
            self._core.shell_ended(action.token, _refused(error))

    def _start(self, keeper: ParentClient, action: StartShell) -> None:
        """Start commands.

        Raises:
            OSError: The files for their output could not be made, or a word of them cannot be given to a program.
        """
        state = self._core.state
        run = state.run
        assert run is not None
        secret = secrets.token_hex(16)
        plain = None if action.args.form is None else plain_of(action.args.form)
        env = {
            **(os.environ if self._account is None else self._account.environment(os.environ)),
            **((action.args.env if plain is None else plain.env) or {}),
            **self._run.environment(state),
            "BARTACK_WORKER": action.path,
            "BARTACK_STEP": action.key,
            "BARTACK_STEP_TOKEN": secret,
        }
        if action.trace:
            env["TRACEPARENT"] = action.trace
        cwd = os.path.join(run.workspace, action.args.cwd)
        with ExitStack() as opened, ExitStack() as on_failure:
            stdin = self._input(action.stdin, opened)
            stdout, stderr = self._file(on_failure), self._file(on_failure)
            number = self._new_token()
            if action.args.form is not None and plain is None:
                marks = {name: env[name] for name in ("BARTACK_WORKER", "BARTACK_STEP")}
                keeper.fork(number, pack_form(action.args.form, cwd, env), [stdout, stderr], marks)
            else:
                pipeline = action.args.pipeline if plain is None else [plain.argv]
                keeper.exec(number, pipeline, cwd, env, stdin=stdin, stdout=stdout, stderr=stderr)
            on_failure.pop_all()
        running = self._running[number] = _Running(action, stdout, stderr, secret)
        self._numbers[action.token] = number
        self.patience_s = min(self.patience_s, running.patience_s)

    def stop(self, action: StopShell) -> None:
        """Perform ``StopShell``: the commands are terminated first, and killed after ``GRACE_S``."""
        number, keeper = self._numbers.get(action.token), self._parents.keeper
        if number is not None and keeper is not None:
            keeper.stop(number, GRACE_S)

    def event(self, event: ParentEvent) -> None:
        """Handle a report of the keeper."""
        match event:
            case Started(token=number, pids=pids, pidfds=pidfds):
                for fd in pidfds:
                    os.close(fd)
                if number in self._running:
                    self._running[number].pids = pids
            case Exited(token=number, statuses=statuses, stopped=stopped):
                if number in self._running:
                    self._running[number].status = statuses[-1]
                    self._running[number].by_itself = not stopped
            case Gone(token=number, leftovers=leftovers, survivors=survivors):
                running = self._forget(number)
                if running is not None:
                    self._core.report_orphans(running.path, leftovers, survivors)
                    self._core.shell_ended(running.token, self._collect(running))
            case StartFailed(token=number, problem=problem, errno=code):
                running = self._forget(number)
                if running is not None:
                    self._close(running)
                    self._core.shell_ended(running.token, _not_started(running.args, problem, code))
            case _:
                return

    def processes(self) -> list[Process]:
        """All as ``bartack ps`` shows them."""
        return [
            Process(
                "command",
                pid,
                under=PARENT_OF_COMMANDS,
                worker=running.path,
                started=running.began_us,
                step=self._core.jobs.step_of(running.token),
                about=" ".join(running.args.words),
            )
            for running in self._running.values()
            for pid in running.pids
        ]

    def all_lost(self) -> None:
        """The keeper died, and everything below it."""
        lost = [running.token for running in self._running.values()]
        self.close()
        for token in lost:
            self._core.shell_lost(token)

    def look(self, now: float) -> None:
        """Show what was written since the last look, and find commands that write without end."""
        if now - self._looked < self.patience_s:
            return
        self._looked = now
        for running in list(self._running.values()):
            for name, tail in running.tails:
                if text := tail.take():
                    self._show(Show(name, running.path, text.removesuffix("\n")))
            if running.is_too_large():
                self._core.shell_too_large(running.token)
        self.patience_s = min((running.patience_s for running in self._running.values()), default=LOOK_S)

    def close(self) -> None:
        """Close all files."""
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
            self._show_rest(running)
            stdout, stderr = (_read_end(fd, running.args) for fd in (running.stdout, running.stderr))
            if running.args.form is None:
                return ShellEnd(running.status, stdout, stderr, by_itself=running.by_itself)
            # This signal means that a form inside a word of the form wrote too much.
            too_large = running.status == -LIMIT_SIGNAL or (not running.args.live and running.is_too_large())
            status = running.status if running.status >= 0 else 128 - running.status
            return ShellEnd(status, stdout, stderr, too_large=too_large, by_itself=running.by_itself)
        finally:
            self._close(running)

    def _show_rest(self, running: _Running) -> None:
        for name, tail in running.tails:
            while text := tail.take(ended=True):
                self._show(Show(name, running.path, text.removesuffix("\n")))

    def _close(self, running: _Running) -> None:
        os.close(running.stdout)
        os.close(running.stderr)

    def _file(self, owner: ExitStack) -> int:
        """A file without a name that is closed with ``owner``."""
        with tempfile.TemporaryFile(dir=self._run.path) as file:
            if self._account is not None:
                # A command may open it again, as /dev/stdout.
                os.fchown(file.fileno(), self._account.uid, -1)
            fd = os.dup(file.fileno())
            owner.callback(os.close, fd)
        check_room(fd, files_limit())
        return fd

    def _input(self, value: Value, owner: ExitStack) -> int | None:
        if value.raw is None and value.ref is None:
            return None
        encoded = value_of(value, self._journal.get_blob)
        fd = self._file(owner)
        os.write(fd, base64.b64decode(typed.decode(encoded, type=str)))
        os.lseek(fd, 0, os.SEEK_SET)
        return fd


def _refused(error: BartackError | OSError) -> ShellEnd:
    """How commands end that the hub could not start."""
    problem = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return ShellEnd(NOT_STARTED, problem=problem, errno=getattr(error, "errno", None) or 0)


def _not_started(args: ShellArgs, problem: str, code: int) -> ShellEnd:
    """How commands end that the keeper could not start. In a form that is a status like others, if it is the program's fault."""
    if args.form is None or code in _EXHAUSTED:
        return ShellEnd(NOT_STARTED, problem=problem, errno=code)
    return ShellEnd(start_status(code), stderr=f"bartack: {problem}\n".encode())


def _read_end(fd: int, args: ShellArgs) -> bytes:
    """What is kept of an output."""
    if args.kept_bytes:
        wanted = args.kept_bytes + ASIDE
        return os.pread(fd, wanted, max(0, os.fstat(fd).st_size - wanted))
    if args.live:
        size = os.fstat(fd).st_size
        return cut_front(os.pread(fd, KEPT_LIVE + 1, max(0, size - KEPT_LIVE - 1)), KEPT_LIVE)
    return _read(fd, 17 * 1024 * 1024 if args.form is None else CAPTURE_LIMIT)


def _read(fd: int, limit: int) -> bytes:
    """What was written, up to a little more than a value may have: the rest would be refused anyway."""
    parts: list[bytes] = []
    offset = 0
    while offset < limit and (part := os.pread(fd, 1 << 20, offset)):
        parts.append(part)
        offset += len(part)
    return b"".join(parts)
