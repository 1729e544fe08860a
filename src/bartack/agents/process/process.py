"""One process of an agent, in the loop of its owner: bytes to lines, lines to bytes, and its orderly end.

It is read at all times and written to without ever waiting. ``Host`` is the loop; ``program/_agent.py`` decides what the process
is for.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

from bartack.agents._record import Link
from bartack.agents.process._memory import MemoryWatch
from bartack.agents.process._output import CHUNK, LOOK_S, FileOutput, Output, PipeOutput
from bartack.agents.process._stderr import StderrLog
from bartack.core.clock import Clock
from bartack.core.files import open_private

EOF_GRACE_S: Final = 2.0
"""How long a process may take to end after its input has ended, before it is asked to."""
TERM_GRACE_S: Final = 3.0
"""How long it may take after SIGTERM, before it is killed. All of it together has to fit into ten seconds after a deadline."""
WAITING_LINES: Final = 64


class Host(Protocol):
    """The loop that agents live in, and the keeper of their processes."""

    @property
    def clock(self) -> Clock:
        """What time it is."""
        ...

    def start(
        self,
        owner: AgentProcess[Any],
        argv: Sequence[str],
        cwd: str,
        env: Mapping[str, str],
        fds: tuple[int, int, int],
        *,
        relayed: bool = False,
    ) -> int:
        """Start a program with these as its stdin, stdout and stderr; returns its number. ``owner`` is notified.

        With ``relayed`` its stdout is a pipe, from which the keeper copies whole lines to the file that was given.
        """
        ...

    def stop(self, number: int, grace_s: float) -> None:
        """Terminate its whole tree, and kill what is left of it after ``grace_s``."""
        ...

    def sweep(self, number: int) -> None:
        """Stop everything else in its tree; the process itself continues."""
        ...

    def watch(self, fd: int, ready: Callable[[], None], *, write: bool = False) -> None:
        """Call ``ready`` whenever a descriptor can be read, or written."""
        ...

    def unwatch(self, fd: int) -> None:
        """End a ``watch``."""
        ...


R = TypeVar("R")
"""One thing that is read from a process."""
R_co = TypeVar("R_co", covariant=True)


class Reader(Protocol[R_co]):
    """Cuts what a process writes into lines, and reads them."""

    def feed(self, data: bytes) -> Iterator[R_co]:
        """What the lines say that are complete with these bytes."""
        ...

    def close(self) -> R_co | None:
        """The process has ended: what is left of a last line without an end."""
        ...


class Launch(NamedTuple, Generic[R]):
    """What is to be started.

    Attributes:
        argv: The program and its arguments.
        cwd: Where.
        env: With which variables, and no others.
        reader: Reads what it writes.
        stdout: The file that it writes to; without one it writes to a pipe.
        relayed: It writes to a pipe all the same, for it may be unable to write to a file, and the keeper copies that.
        eof_grace_s: How long it may take to end after its input has ended; ``None``: ``EOF_GRACE_S``.
    """

    argv: Sequence[str]
    cwd: str
    env: Mapping[str, str]
    reader: Reader[R]
    stdout: Path | None = None
    eof_grace_s: float | None = None
    relayed: bool = False


class ProcessOwner(Protocol[R]):
    """Decides what a process is for."""

    def line_came(self, process: AgentProcess[R], read: R) -> None:
        """It wrote a line."""
        ...

    def started(self, process: AgentProcess[R]) -> None:
        """It runs, and has a pid."""
        ...

    def ended(self, process: AgentProcess[R], status: int | None) -> None:
        """It has ended, with its tree, and everything it wrote was read."""
        ...

    def not_started(self, process: AgentProcess[R], reason: str) -> None:
        """It could not be started."""
        ...


class AgentProcess(Generic[R]):
    """See the module."""

    def __init__(
        self, host: Host, owner: ProcessOwner[R], launch: Launch[R], redact: Callable[[bytes], bytes]
    ) -> None:
        self.link = Link()
        self.stderr_log = StderrLog(redact)
        self.idle_since: float | None = None
        self.over = False
        self.leftovers: Sequence[str] = ()
        """Processes that outlived it and were terminated."""
        self.memory = MemoryWatch()
        self._host = host
        self._owner = owner
        self._reader = launch.reader
        self._eof_grace_s = launch.eof_grace_s
        self._status: int | None = None
        self._waiting: deque[tuple[bytes, bool]] = deque()
        self._watches_input = False
        self._paused = False
        """It does not read, so it is not read either."""
        self._stop_at: float | None = None
        self._stopping = False
        with ExitStack() as theirs, ExitStack() as on_failure:
            theirs_in, self._stdin = _pipe(theirs, on_failure, ours=1)
            theirs_out, output = _open_output(launch.stdout, theirs, on_failure)
            theirs_err, self._stderr = _pipe(theirs, on_failure, ours=0)
            fds = (theirs_in, theirs_out, theirs_err)
            self.number = host.start(self, launch.argv, launch.cwd, launch.env, fds, relayed=launch.relayed)
            on_failure.pop_all()
        self._stdout: Output | None = output
        self._look_at: float | None = None
        """When the output is to be read next, if the system does not report it."""
        self._watch_output(output)
        host.watch(self._stderr, self._read_stderr)

    # To the process.

    def send(self, line: bytes, *, may_drop: bool = False) -> None:
        """Write a line, as soon as the process reads. One that may be dropped is, if too many wait already."""
        if self._stdin < 0 or (may_drop and len(self._waiting) >= WAITING_LINES):
            return
        self._waiting.append((line, may_drop))
        self._write_lines()

    def stop(self) -> None:
        """Stop it: first by the end of its input, then with SIGTERM, then with SIGKILL."""
        if not self._stopping and not self.over:
            self._stopping = True
            self._close_input()
            grace_s = EOF_GRACE_S if self._eof_grace_s is None else self._eof_grace_s
            self._stop_at = self._now() + grace_s

    def kill(self) -> None:
        """Stop it at once, with its input still open: it has no time to act on the end of it."""
        if not self.over:
            self._stopping = True
            self._host.stop(self.number, 0.0)

    def rest(self) -> None:
        """It is idle from now on; processes that it started for its last call are stopped."""
        self.idle_since = self._now()
        self._host.sweep(self.number)

    def next_due(self) -> float | None:
        """When ``tick`` is to be called."""
        dues = [due for due in (self._stop_at, self._look_at) if due is not None]
        return min(dues, default=None)

    def tick(self) -> None:
        """Time has passed."""
        if self._look_at is not None and self._now() >= self._look_at:
            self._look_at = self._now() + LOOK_S
            self._read_lines()
        if self._stop_at is not None and self._now() >= self._stop_at:
            self._stop_at = None
            self._host.stop(self.number, TERM_GRACE_S)

    # Notifications of the host.

    def started(self, pid: int) -> None:
        """It runs."""
        self.link.pid = pid
        self._owner.started(self)

    def exited(self, status: int | None) -> None:
        """Its own process has ended."""
        self._status = status

    def gone(self, leftovers: Sequence[str] = ()) -> None:
        """Nothing of its tree is left; ``leftovers`` are the names of processes that outlived it and were terminated."""
        if self.over:
            return
        self.leftovers = leftovers
        self._drain()
        self._close()
        self._owner.ended(self, self._status)

    def failed(self, problem: str) -> None:
        """It could not be started."""
        self._close()
        self._owner.not_started(self, problem)

    # Inside.

    def _read_lines(self) -> None:
        output = self._stdout
        if output is None:
            return  # closed by what was ready in the same turn
        data = output.read()
        if data is None:
            return
        if not data:
            self._end_output()
            return
        self._take(data)
        if len(self._waiting) > WAITING_LINES and self._stdout is not None and not self._paused:
            self._paused = True
            self._unwatch_output(output)

    def _take(self, data: bytes) -> None:
        for read in self._reader.feed(data):
            self._owner.line_came(self, read)

    def _read_stderr(self) -> None:
        if self._stderr < 0:
            return
        data = _read(self._stderr)
        if data:
            self.stderr_log.feed(data)
        elif data is not None:
            self._stderr = self._end_reading(self._stderr)

    def _drain(self) -> None:
        """The process has ended: read what is left, up to the end."""
        while self._stdout is not None and (data := self._stdout.drain()):
            self._take(data)
        while self._stderr >= 0:
            self._read_stderr()
        torn = self._reader.close()
        if torn is not None:
            self._owner.line_came(self, torn)

    def _resume_reading(self) -> None:
        if self._paused:
            self._paused = False
            if self._stdout is not None:
                self._watch_output(self._stdout)

    def _watch_output(self, output: Output) -> None:
        fd = output.ready_fd
        if fd is None:
            self._look_at = self._now()
        else:
            self._host.watch(fd, self._read_lines)

    def _unwatch_output(self, output: Output) -> None:
        self._look_at = None
        fd = output.ready_fd
        if fd is not None:
            self._host.unwatch(fd)

    def _end_output(self) -> None:
        output, self._stdout = self._stdout, None
        if output is None:
            return
        if not self._paused:
            self._unwatch_output(output)
        self._paused = False
        output.close()

    def _end_reading(self, fd: int) -> int:
        self._host.unwatch(fd)
        os.close(fd)
        return -1

    def _write_lines(self) -> None:
        while self._waiting and self._stdin >= 0:
            line, may_drop = self._waiting[0]
            try:
                written = os.write(self._stdin, line)
            except BlockingIOError:
                break
            except OSError:
                # It has closed its input; a missing answer is noticed elsewhere.
                self._close_input()
                return
            if written < len(line):
                self._waiting[0] = (line[written:], may_drop)
            else:
                self._waiting.popleft()
        self._watch_input(wanted=bool(self._waiting) and self._stdin >= 0)
        if not self._waiting:
            self._resume_reading()

    def _watch_input(self, *, wanted: bool) -> None:
        if wanted != self._watches_input:
            self._watches_input = wanted
            if wanted:
                self._host.watch(self._stdin, self._write_lines, write=True)
            else:
                self._host.unwatch(self._stdin)

    def _close_input(self) -> None:
        self._waiting.clear()
        self._resume_reading()
        if self._stdin >= 0:
            self._watch_input(wanted=False)
            os.close(self._stdin)
            self._stdin = -1

    def _close(self) -> None:
        self.over = True
        self._stop_at = None
        self._close_input()
        self._end_output()
        if self._stderr >= 0:
            self._stderr = self._end_reading(self._stderr)
        self.stderr_log.close()

    def close(self) -> None:
        """Close its pipes without waiting; the host stops its processes."""
        if not self.over:
            self._close()

    def _now(self) -> float:
        return self._host.clock.monotonic_ns() / 1e9


def _open_output(path: Path | None, theirs: ExitStack, on_failure: ExitStack) -> tuple[int, Output]:
    """The end that the process writes to, and ours."""
    if path is None:
        theirs_out, ours = _pipe(theirs, on_failure, ours=0)
        return theirs_out, PipeOutput(ours)
    output = FileOutput(path)
    on_failure.callback(output.close)
    theirs_out = open_private(path, os.O_WRONLY | os.O_APPEND)
    theirs.callback(os.close, theirs_out)
    return theirs_out, output


def _pipe(theirs: ExitStack, on_failure: ExitStack, *, ours: int) -> tuple[int, int]:
    """The end of the process, closed with the first stack, and ours, closed with the second one."""
    ends = os.pipe2(os.O_CLOEXEC) if hasattr(os, "pipe2") else os.pipe()
    theirs.callback(os.close, ends[1 - ours])
    on_failure.callback(os.close, ends[ours])
    os.set_blocking(ends[ours], False)
    return ends[1 - ours], ends[ours]


def _read(fd: int) -> bytes | None:
    """Some bytes; none at the end; ``None`` if there are none now."""
    if fd < 0:
        # It was closed by what else was ready in the same turn.
        return None
    with suppress(BlockingIOError):
        try:
            return os.read(fd, CHUNK)
        except ConnectionError:
            return b""
    return None
