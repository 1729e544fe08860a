"""How children really run: a task of the loop, or a process below the parent program.

A runner is one incarnation of one child. It is started once, may be asked to stop, may be killed, and says exactly once that it
has ended. Supervisors below supervisors run in ``_supervisor.py``.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import signal
import traceback
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from types import CoroutineType
from typing import Final, Protocol, cast

from bartack.core.redact import Redactor
from bartack.supervision.process.memory import count_oom_kills
from bartack.supervision.supervisor._host_program import describe_function
from bartack.supervision.supervisor._process_host import ProcessHost
from bartack.supervision.supervisor._report import ChildEnd
from bartack.supervision.supervisor.spec import LINE, ChildSpec
from bartack.telemetry import Telemetry
from bartack.telemetry.catalogue import ProcessOrphanKilled, ProcessSurvivor

log: Final = logging.getLogger("bartack.supervision")

STACK_DEPTH: Final = 50
TAIL_BYTES: Final = 4096
LINE_BYTES: Final = 64 * 1024
"""A longer line is taken in pieces."""

PREDICATE_PAUSE_S: Final = 0.02
"""How long to wait before an async function is asked again whether the child is ready."""

LAST_CHANCE_S: Final = 0.1
"""How long a task that is killed may take to notice."""


class RunnerListener(Protocol):
    """Is notified about one incarnation."""

    def ready(self, pid: int | None) -> None:
        """It is ready."""
        ...

    def ended(self, end: ChildEnd) -> None:
        """It is gone."""
        ...


class Runner(Protocol):
    """One incarnation of a child."""

    def start(self) -> None:
        """Begin. Nothing is raised: what goes wrong is its end."""
        ...

    def stop(self, grace_s: float) -> None:
        """Ask it to end within ``grace_s`` seconds."""
        ...

    def kill(self) -> None:
        """Have it end now."""
        ...


def describe_error(error: BaseException) -> str:
    """The class of an exception and what it says."""
    return f"{type(error).__name__}: {error}".rstrip(": ")


def stack_of(error: BaseException) -> tuple[str, ...]:
    """Where an exception came from, innermost last."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename != __file__]
    return tuple(f"{frame.filename}:{frame.lineno} in {frame.name}" for frame in frames[-STACK_DEPTH:])


class _ExitRequestedError(Exception):
    """A child raised ``SystemExit``. Only the child ends: raised in a task as it is, it would end the loop."""

    def __init__(self, leaving: SystemExit) -> None:
        super().__init__(str(leaving))
        self.leaving = leaving


async def _contain(coroutine: Coroutine[object, object, object]) -> object:
    try:
        return await coroutine
    except SystemExit as leaving:
        raise _ExitRequestedError(leaving) from leaving


def _places(coroutine: object) -> list[str]:
    """Where a coroutine waits, innermost last."""
    found: list[str] = []
    while isinstance(coroutine, CoroutineType):
        frame = coroutine.cr_frame
        if frame is not None:
            found.append(f"{frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_name}")
        coroutine = coroutine.cr_await
    return found[-STACK_DEPTH:]


def _exit_code(leaving: SystemExit) -> int:
    """What the program would have ended with."""
    return int(leaving.code if isinstance(leaving.code, int) else leaving.code is not None)


class TaskRunner:
    """A child that is a task of the running loop."""

    def __init__(self, spec: ChildSpec, path: str, owner: RunnerListener) -> None:
        self._spec = spec
        self._path = path
        self._owner = owner
        self._loop = asyncio.get_running_loop()
        self._task: asyncio.Task[object] | None = None
        self._coroutine: Coroutine[object, object, object] | None = None
        self._asking: ReadinessProbe | None = None
        self._asked = False
        self._reported = False

    def start(self) -> None:
        """See ``Runner.start``."""
        start = cast("Callable[[], Coroutine[object, object, object]]", self._spec.start)
        try:
            coroutine = start()
        except Exception as error:  # noqa: BLE001 - whatever a call raises is how this child ended
            self._report(self._end_by(error))
            return
        self._coroutine = coroutine
        self._task = self._loop.create_task(_contain(coroutine), name=self._path)
        self._task.add_done_callback(self._done)
        ready = self._spec.ready
        if callable(ready):
            self._asking = ReadinessProbe(ready, partial(self._owner.ready, None), self._refuse)
        else:
            self._owner.ready(None)

    def stop(self, grace_s: float) -> None:
        """See ``Runner.stop``; who ignores it is abandoned by ``kill``."""
        del grace_s
        self._asked = True
        self._cancel()

    def kill(self) -> None:
        """Abandon the task if it had its time; else it gets a last chance to notice."""
        if self._asked:
            self._abandon()
        else:
            self._asked = True
            self._cancel()
            self._loop.call_later(LAST_CHANCE_S, self._abandon)

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def _refuse(self, error: BaseException) -> None:
        self._report(self._end_by(error))
        self._cancel()

    def _end_by(self, error: BaseException) -> ChildEnd:
        """How a child ended that raised something."""
        error = error.leaving if isinstance(error, _ExitRequestedError) else error
        code = _exit_code(error) if isinstance(error, SystemExit) else None
        if code in self._spec.normal_codes:
            return ChildEnd(reason="normal", normal=True)
        reason = "error" if code is None else f"exit:{code}"
        return ChildEnd(reason=reason, exception=describe_error(error), stack=stack_of(error))

    def _done(self, task: asyncio.Task[object]) -> None:
        if self._coroutine is not None:
            self._coroutine.close()  # it may have been cancelled before it began
        if task.cancelled():
            end = ChildEnd(reason="error", exception="CancelledError")
        elif (error := task.exception()) is not None:
            end = self._end_by(error)
        else:
            end = ChildEnd(reason="normal", normal=True)
        asked = ChildEnd(reason="shutdown", normal=True, exception=end.exception)
        self._report(asked if self._asked else end)

    def _abandon(self) -> None:
        """The task ignores that it was cancelled. It cannot be stopped, but nothing has to wait for it either."""
        if self._task is None or self._reported:
            return
        frames = _places(self._coroutine)
        log.error("%s ignores its cancellation and is abandoned at %s", self._path, "; ".join(frames))
        self._report(
            ChildEnd(reason="shutdown", exception="the task ignores its cancellation", stack=tuple(frames))
        )

    def _report(self, end: ChildEnd) -> None:
        if self._asking is not None:
            self._asking.close()
        if not self._reported:
            self._reported = True
            self._owner.ended(end)


class ReadinessProbe:
    """Asks an async function again and again whether a child is ready."""

    def __init__(
        self,
        predicate: Callable[[], object],
        ready: Callable[[], None],
        refused: Callable[[BaseException], None],
    ) -> None:
        self._predicate = cast("Callable[[], Awaitable[object]]", predicate)
        self._ready = ready
        self._refused = refused
        self._task = asyncio.get_running_loop().create_task(self._ask())
        self._task.add_done_callback(self._done)

    def close(self) -> None:
        """Stop asking."""
        self._task.cancel()

    async def _ask(self) -> None:
        while not await self._predicate():  # noqa: ASYNC110 - what makes it true is outside: there is no event to wait for
            await asyncio.sleep(PREDICATE_PAUSE_S)

    def _done(self, task: asyncio.Task[None]) -> None:
        if task.cancelled():
            return
        error = task.exception()
        if error is None:
            self._ready()
        else:
            self._refused(error)


class Output:
    """What a process prints, line by line, and the last of it."""

    def __init__(self, path: str, level: int, line: Callable[[str], None]) -> None:
        self._path = path
        self._level = level
        self._line = line
        self._loop = asyncio.get_running_loop()
        self._reader, self.writer = os.pipe()
        os.set_blocking(self._reader, False)
        self._rest = b""
        self.tail = b""
        self._loop.add_reader(self._reader, self._read)

    def close_writer(self) -> None:
        """The process has its own copy."""
        os.close(self.writer)

    def close(self) -> None:
        """All writers are gone: take what is left."""
        if self._reader < 0:
            return
        while self._reader >= 0 and self._read():
            pass
        self._end()

    def _read(self) -> bool:
        try:
            data = os.read(self._reader, LINE_BYTES)
        except BlockingIOError:
            return False
        if not data:
            self._end()
            return False
        self.tail = (self.tail + data)[-TAIL_BYTES:]
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._emit_line(line)
        if len(self._rest) >= LINE_BYTES:
            self._emit_line(self._rest)
            self._rest = b""
        return True

    def _emit_line(self, line: bytes) -> None:
        text = line.decode("utf-8", "replace")
        log.log(self._level, "%s: %s", self._path, text)
        self._line(text)

    def _end(self) -> None:
        if self._reader >= 0:
            self._loop.remove_reader(self._reader)
            os.close(self._reader)
            self._reader = -1
        if self._rest:
            self._emit_line(self._rest)
            self._rest = b""


class ProcessRunner:
    """A child that is a process, with everything below it."""

    def __init__(
        self,
        spec: ChildSpec,
        path: str,
        incarnation: int,
        owner: RunnerListener,
        host: ProcessHost,
        telemetry: Telemetry,
    ) -> None:
        self._spec = spec
        self._path = path
        self._owner = owner
        self._host = host
        self._telemetry = telemetry
        self._env = {**os.environ, **spec.env, "BARTACK_WORKER": f"{path}#{incarnation}"}
        self._pattern = self._ready_pattern()
        self._token = 0
        self._pid: int | None = None
        self._end = ChildEnd(reason="error", exception="it is gone")
        self._asking: ReadinessProbe | None = None
        self._asked = False
        self._refused = ""
        self._oom_before = count_oom_kills()
        self._out: Output | None = None
        self._err: Output | None = None

    def start(self) -> None:
        """See ``Runner.start``."""
        try:
            if self._spec.stdio == "logged":
                self._out = Output(self._path, logging.INFO, self._look)
                self._err = Output(self._path, logging.WARNING, _ignore)
            self._token = self._ask()
        except (OSError, ValueError) as error:
            self.failed(describe_error(error))
        finally:
            for output in self._outputs():
                output.close_writer()

    def stop(self, grace_s: float) -> None:
        """See ``Runner.stop``."""
        self._asked = True
        self._host.stop(self._token, grace_s)

    def kill(self) -> None:
        """See ``Runner.kill``."""
        self._asked = True
        self._host.kill(self._token)

    # What the host says.

    def started(self, pid: int) -> None:
        """See ``ProcessListener.started``."""
        self._pid = pid
        ready = self._spec.ready
        if callable(ready):
            self._asking = ReadinessProbe(ready, partial(self._owner.ready, pid), self._refuse)
        elif self._pattern is None:
            self._owner.ready(pid)

    def exited(self, status: int, peak_memory_bytes: int) -> None:
        """See ``ProcessListener.exited``."""
        normal = status in self._spec.normal_codes
        self._end = ChildEnd(
            reason="normal" if normal else self._reason_of(status),
            normal=normal,
            pid=self._pid,
            peak_memory_bytes=peak_memory_bytes,
        )

    def gone(self, leftovers: Sequence[str], survivors: Sequence[str]) -> None:
        """See ``ProcessListener.gone``."""
        if leftovers and self._telemetry.wanted(ProcessOrphanKilled):
            self._telemetry.emit(
                ProcessOrphanKilled(count=len(leftovers), worker=self._path, commands=", ".join(leftovers))
            )
        if survivors:
            log.error("%s: cannot end %s", self._path, ", ".join(survivors))
            if self._telemetry.wanted(ProcessSurvivor):
                self._telemetry.emit(
                    ProcessSurvivor(count=len(survivors), worker=self._path, commands=", ".join(survivors))
                )
        self._report(self._end)

    def failed(self, problem: str) -> None:
        """See ``ProcessListener.failed``."""
        self._report(ChildEnd(reason="error", exception=problem))

    def lost(self, *, counted: bool) -> None:
        """See ``ProcessListener.lost``."""
        self._report(ChildEnd(reason="lost", counted=counted, pid=self._pid))

    # Inside.

    def _ask(self) -> int:
        spec = self._spec
        cwd = os.path.abspath(spec.cwd or os.getcwd())
        out, err = self._descriptors()
        try:
            if callable(spec.start):
                payload = describe_function(spec.start, cwd)
                return self._host.fork(self, payload, [out, err], self._env)
            argv = cast("Sequence[str]", spec.start)
            return self._host.execute(self, argv, cwd, self._env, out, err)
        finally:
            if spec.stdio == "null":
                os.close(out)

    def _descriptors(self) -> tuple[int, int]:
        if self._out is not None and self._err is not None:
            return self._out.writer, self._err.writer
        if self._spec.stdio == "inherit":
            return 1, 2
        null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        return null, null

    def _ready_pattern(self) -> re.Pattern[str] | None:
        ready = self._spec.ready
        by_line = isinstance(ready, str) and ready.startswith(LINE)
        return re.compile(ready.removeprefix(LINE)) if isinstance(ready, str) and by_line else None

    def _look(self, line: str) -> None:
        if self._pattern is not None and self._pattern.search(line):
            self._pattern = None
            self._owner.ready(self._pid)

    def _refuse(self, error: BaseException) -> None:
        """The check whether it is ready failed: it has not started, and must not stay."""
        self._refused = describe_error(error)
        self._host.kill(self._token)

    def _reason_of(self, status: int) -> str:
        if status >= 0:
            return f"exit:{status}"
        try:
            name = signal.Signals(-status).name
        except ValueError:
            name = str(-status)
        if name == "SIGKILL" and not self._asked:
            now = count_oom_kills()
            if now is not None and self._oom_before is not None and now > self._oom_before:
                return "oom"
        return f"signal:{name}"

    def _outputs(self) -> list[Output]:
        return [output for output in (self._out, self._err) if output is not None]

    def _report(self, end: ChildEnd) -> None:
        if self._asking is not None:
            self._asking.close()
        for output in self._outputs():
            output.close()
        tail = "" if self._err is None else self._err.tail.decode("utf-8", "replace")
        self._owner.ended(
            ChildEnd(
                reason="error" if self._refused else end.reason,
                normal=end.normal and not self._refused,
                counted=end.counted,
                pid=end.pid,
                exception=self._refused or end.exception,
                stderr_tail=Redactor(self._env).redact_text(tail),
                peak_memory_bytes=end.peak_memory_bytes,
            )
        )


def _ignore(line: str) -> None:
    """``line`` is not looked for."""
