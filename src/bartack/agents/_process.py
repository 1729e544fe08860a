"""One process of an agent, in the loop of its owner: bytes to lines, lines to bytes, and its orderly end.

It is read at all times and written to without ever waiting. ``Host`` is the loop; ``ndjson/_agent.py`` decides what the process is
for.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from typing import Final, Protocol

from bartack.agents._files import StderrLog
from bartack.agents._record import Link
from bartack.agents.protocol._lines import LineReader, Read
from bartack.agents.protocol._messages import Notice, ToAgent
from bartack.core import Clock

CHUNK: Final = 65_536
EOF_GRACE_S: Final = 5.0
"""How long a process may take to end after its input has ended, before it is asked to."""
TERM_GRACE_S: Final = 5.0
WAITING_LINES: Final = 64


class Host(Protocol):
    """The loop that agents live in, and the keeper of their processes."""

    @property
    def clock(self) -> Clock:
        """What time it is."""
        ...

    def start(
        self,
        owner: AgentProcess,
        argv: Sequence[str],
        cwd: str,
        env: Mapping[str, str],
        fds: tuple[int, int, int],
    ) -> int:
        """Start a program with these as its stdin, stdout and stderr; returns its number. ``owner`` is notified."""
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


class ProcessOwner(Protocol):
    """Decides what a process is for."""

    def line_came(self, process: AgentProcess, read: Read) -> None:
        """It wrote a line."""
        ...

    def started(self, process: AgentProcess) -> None:
        """It runs, and has a pid."""
        ...

    def ended(self, process: AgentProcess, status: int | None) -> None:
        """It has ended, with its tree, and everything it wrote was read."""
        ...

    def not_started(self, process: AgentProcess, reason: str) -> None:
        """It could not be started."""
        ...


class AgentProcess:
    """See the module."""

    def __init__(
        self,
        host: Host,
        owner: ProcessOwner,
        argv: Sequence[str],
        cwd: str,
        env: Mapping[str, str],
        redact: Callable[[bytes], bytes],
    ) -> None:
        self.link = Link()
        self.stderr_log = StderrLog(redact)
        self.idle_since: float | None = None
        self.over = False
        self._host = host
        self._owner = owner
        self._reader = LineReader(redact)
        self._status: int | None = None
        self._waiting: deque[tuple[bytes, bool]] = deque()
        self._watches_input = False
        self._paused = False
        """It does not read, so it is not read either."""
        self._stop_at: float | None = None
        self._stopping = False
        with ExitStack() as theirs, ExitStack() as on_failure:
            theirs_in, self._stdin = _pipe(theirs, on_failure, ours=1)
            theirs_out, self._stdout = _pipe(theirs, on_failure, ours=0)
            theirs_err, self._stderr = _pipe(theirs, on_failure, ours=0)
            self.number = host.start(self, argv, cwd, env, (theirs_in, theirs_out, theirs_err))
            on_failure.pop_all()
        host.watch(self._stdout, self._read_lines)
        host.watch(self._stderr, self._read_stderr)

    # To the process.

    def send(self, line: bytes, message: ToAgent) -> None:
        """Write a line, as soon as the process reads."""
        if self._stdin < 0:
            return
        small = isinstance(message, Notice)
        if small and len(self._waiting) >= WAITING_LINES:
            return  # it does not read, so it would not read what it did wrong
        self._waiting.append((line, small))
        self._write_lines()

    def stop(self) -> None:
        """Stop it: first by the end of its input, then with SIGTERM, then with SIGKILL."""
        if not self._stopping and not self.over:
            self._stopping = True
            self._close_input()
            self._stop_at = self._now() + EOF_GRACE_S

    def rest(self) -> None:
        """It is idle from now on; processes that it started for its last call are stopped."""
        self.idle_since = self._now()
        self._host.sweep(self.number)

    def next_due(self) -> float | None:
        """When ``tick`` is to be called."""
        return self._stop_at

    def tick(self) -> None:
        """Time has passed."""
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

    def gone(self) -> None:
        """Nothing of its tree is left."""
        if self.over:
            return
        self._drain()
        self._close()
        self._owner.ended(self, self._status)

    def failed(self, problem: str) -> None:
        """It could not be started."""
        self._close()
        self._owner.not_started(self, problem)

    # Inside.

    def _read_lines(self) -> None:
        if self._stdout < 0:
            return  # closed by what was ready in the same turn
        data = _read(self._stdout)
        if data is None:
            return
        if not data:
            self._stdout = self._end_reading(self._stdout)
            return
        for read in self._reader.feed(data):
            self._owner.line_came(self, read)
        if len(self._waiting) > WAITING_LINES and self._stdout >= 0 and not self._paused:
            self._paused = True
            self._host.unwatch(self._stdout)

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
        self._resume_reading()
        while self._stdout >= 0:
            self._read_lines()
            self._resume_reading()
        while self._stderr >= 0:
            self._read_stderr()
        torn = self._reader.close()
        if torn is not None:
            self._owner.line_came(self, torn)

    def _resume_reading(self) -> None:
        if self._paused:
            self._paused = False
            self._host.watch(self._stdout, self._read_lines)

    def _end_reading(self, fd: int) -> int:
        self._host.unwatch(fd)
        os.close(fd)
        return -1

    def _write_lines(self) -> None:
        while self._waiting and self._stdin >= 0:
            line, small = self._waiting[0]
            try:
                written = os.write(self._stdin, line)
            except BlockingIOError:
                break
            except OSError:
                # It has closed its input; a missing answer is noticed elsewhere.
                self._close_input()
                return
            if written < len(line):
                self._waiting[0] = (line[written:], small)
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
        if self._stdout >= 0:
            self._stdout = self._end_reading(self._stdout)
        if self._stderr >= 0:
            self._stderr = self._end_reading(self._stderr)
        self.stderr_log.close()

    def close(self) -> None:
        """Close its pipes without waiting; the host stops its processes."""
        if not self.over:
            self._close()

    def _now(self) -> float:
        return self._host.clock.monotonic_ns() / 1e9


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
