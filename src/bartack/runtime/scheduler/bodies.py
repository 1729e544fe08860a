"""Executes the steps that are done in the worker itself: bodies of ``@step`` functions, and file writes.

A body that is alone runs right where the scheduler is. Else sync bodies run in a pool of threads and async bodies on one asyncio
loop in a thread of its own, both made at first use, and their ends come back through a wake-up socket. A thread cannot be
stopped: whoever wants a sync body gone tells the hub, which ends the whole process.
"""

from __future__ import annotations

import contextvars
import datetime
import os
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, Literal, Protocol, TypeVar, cast

import msgspec

from bartack.errors import BartackError, StepCancelledError, StepTimeoutError
from bartack.runtime.protocol import frames as f
from bartack.runtime.protocol.durations import LONGEST_S
from bartack.runtime.protocol.exceptions import describe_error
from bartack.runtime.protocol.scoreboard import Scoreboard
from bartack.runtime.protocol.values import Buffer, Codec
from bartack.runtime.scheduler.fingerprint import step_key
from bartack.runtime.scheduler.operations import WorkOp, here
from bartack.runtime.scheduler.scheduler import Facts, Scheduler

if TYPE_CHECKING:
    import asyncio

T_co = TypeVar("T_co", covariant=True)

GRACE_S: Final = 5.0
"""How long an async body that is cancelled may take to stop."""

THREADS: Final = 8

WORTH_TELLING_US: Final = 10_000
"""The duration of a shorter body is not recorded."""

_NULL: Final = b"null"
_encode: Final = msgspec.json.Encoder().encode
_decode_attempt: Final = msgspec.json.Decoder(dict[str, object]).decode


@dataclass(frozen=True, kw_only=True)
class Retry:
    """When and how often a step that raised is tried again.

    Attributes:
        attempts: How often it is tried in all.
        on: The exceptions after which it is tried again.
        base: Seconds before the second attempt.
        factor: How much longer each wait is than the one before.
        cap: The longest wait.
        jitter: ``full``: a random part of the wait; ``none``: all of it.
    """

    attempts: int = 3
    on: tuple[type[BaseException], ...] | None = None
    base: float = 0.5
    factor: float = 2.0
    cap: float = 30.0
    jitter: Literal["full", "none"] = "full"

    def __post_init__(self) -> None:
        if self.attempts < 1:
            raise ValueError("attempts must be at least 1")
        if self.base < 0 or self.factor < 1 or self.cap < 0:
            raise ValueError("base and cap must not be negative, and factor not less than 1")

    def wants(self, error: BaseException) -> bool:
        """Whether this exception is worth another attempt."""
        return isinstance(error, self.on or (Exception,))

    def delay_s(self, attempt: int, error: BaseException) -> float:
        """Seconds to wait after a failed attempt. An error's ``retry_after`` makes it longer, never shorter."""
        longest = min(self.cap, self.base * self.factor ** (attempt - 1))
        delay = longest * _fraction() if self.jitter == "full" else longest
        asked: object = getattr(error, "retry_after", None)
        # An error may ask for anything: for infinity, or for no number at all.
        return min(max(delay, asked), LONGEST_S) if isinstance(asked, int | float) else delay


def _fraction() -> float:
    # Not the random module: a forked process would repeat what its siblings draw.
    return int.from_bytes(os.urandom(7), "big") / 2**56


class BodyOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How the body of a step is executed."""

    name: str
    once: bool = False
    retry: Retry | None = None
    timeout_s: float | None = None
    max_crashes: int = 3
    is_async: bool = False


class StepInfo:
    """What the body of a step may want to know of it. It can be kept, and handed to another process."""

    def __init__(self, facts: Facts, p: str, n: int, attempt: int, limit_s: float) -> None:
        self._facts = facts
        self._p = p
        self._n = n
        self.attempt = attempt
        self._limit_s = limit_s
        self._began = time.time()

    @property
    def run_id(self) -> str:
        """The run it is part of."""
        return self._facts.run

    @property
    def worker(self) -> str:
        """The path of its worker."""
        return self._facts.path

    @property
    def rewinds(self) -> int:
        """How often the worker was set back to a failing step."""
        return self._facts.rewinds

    @property
    def key(self) -> str:
        """The same on every attempt at this step: for services that know idempotency keys."""
        return step_key(self.run_id, self._p, self._n, self.rewinds)

    @property
    def deadline(self) -> datetime.datetime:
        """When the time of this attempt is over."""
        return datetime.datetime.fromtimestamp(self._began + self._limit_s, datetime.UTC)

    def __repr__(self) -> str:
        return f"StepInfo(run_id={self.run_id!r}, worker={self.worker!r}, key={self.key!r}, attempt={self.attempt})"


_info: contextvars.ContextVar[StepInfo | None] = contextvars.ContextVar("step_info", default=None)


def step_info() -> StepInfo:
    """What there is to know of the step whose body calls this.

    Raises:
        RuntimeError: The caller is not the body of a step.
    """
    info = _info.get()
    if info is None:
        raise RuntimeError("step_info() is for the body of a step")
    return info


class BodyOp(WorkOp[T_co]):
    """One execution of a ``@step`` function."""

    line = -1
    """Where on the slate it is; -1: nowhere."""
    since_ns = 0
    """When it was put on the slate; 0: it never was."""
    task: asyncio.Task[object] | None = None

    def __init__(
        self,
        options: BodyOptions,
        function: Callable[..., object],
        args: Sequence[object],
        kwargs: Mapping[str, object],
        written: bytes,
        result: Codec[T_co],
    ) -> None:
        super().__init__("body", written, result.decode, options.name, options.name)
        self.options = options
        self.function = function
        self.args = args
        self.kwargs = kwargs
        self.result: Codec[object] = result

    @property
    def words(self) -> str:
        """See ``Counted.words``."""
        return f"step {self.about}"


class FileOp(WorkOp[None]):
    """A change of a file. It is short, and always executed right where the scheduler is."""

    def __init__(
        self,
        step: str,
        written: bytes,
        perform: Callable[[Buffer], None],
        *,
        about: str,
        intend: Callable[[], bytes] | None = None,
    ) -> None:
        super().__init__(step, written, _nothing, about)
        self.perform = perform
        """Called with what the hub answered to the intent; ``null`` if it was not asked."""
        self.intend = intend
        """What has to be durable before it is performed."""


def _nothing(data: Buffer) -> None:
    """The outcome of a file step."""


class _End(Protocol):
    def __call__(self, op: BodyOp[object], value: object, error: BaseException | None) -> None: ...


class Bodies:
    """Executes the steps of one worker; see ``Works``."""

    def __init__(
        self, scheduler: Scheduler, step_timeout_s: float, scoreboard: Scoreboard | None = None
    ) -> None:
        self._scheduler = scheduler
        self._scoreboard = scoreboard
        self._step_timeout_s = step_timeout_s
        self._threads: _Threads | None = None
        self._loop: _LoopThread | None = None
        self.elsewhere: set[BodyOp[object]] = set()
        """The bodies that are on other threads, of which there may be news."""
        self._news: list[Callable[[], None]] = []
        """What other threads want done in this one."""
        self._mutex = threading.Lock()
        self._wake, self._alarm = socket.socketpair()
        self._wake.setblocking(False)

    def fileno(self) -> int:
        """Readable when there is news of a body."""
        return self._wake.fileno()

    def take_news(self) -> None:
        """Report the bodies that have ended to the scheduler."""
        try:
            self._wake.recv(4096)
        except BlockingIOError:
            return
        with self._mutex:
            all_news, self._news = self._news, []
        self._scheduler.resume(all_news)

    def close(self) -> None:
        """Let go of the threads; what they still do is abandoned."""
        self.abandon()
        if self._threads is not None:
            self._threads.stop()
        if self._loop is not None:
            self._loop.stop()
        self._wake.close()
        self._alarm.close()

    # Works.

    def begin(self, op: WorkOp[object]) -> None:
        """See ``Works.begin``."""
        if op.cancelled or op.cancel_reason:
            self._report_error(op, StepCancelledError(op.cancel_reason or "cancelled"))
        elif isinstance(op, BodyOp):
            options = op.options
            asked = options.once or options.retry is not None or self._scheduler.note_open
            if asked or not self._jot_down(op):
                self._say_begin(op, asked=asked)
            if not asked:
                self._execute(op)
        elif isinstance(op, FileOp):
            asked = op.intend is not None or self._scheduler.note_open
            if asked:
                self._say_begin_file(op)
            else:
                self._perform(op, _NULL)

    def answered(self, op: WorkOp[object], data: Buffer) -> None:
        """See ``Works.answered``."""
        if isinstance(op, FileOp):
            self._perform(op, data)
        elif isinstance(op, BodyOp):
            attempt = _decode_attempt(data).get("attempt")
            again = op.phase == "retrying"
            op.attempt = attempt if isinstance(attempt, int) else op.attempt
            if op.cancel_reason:
                self._report_error(op, StepCancelledError(op.cancel_reason))
            elif again:
                self._say_begin(op, asked=False)
                self._execute(op)
            else:
                self._execute(op)

    def cancel(self, op: WorkOp[object]) -> None:
        """See ``Works.cancel``."""
        if isinstance(op, BodyOp) and op.phase == "running":
            if op.options.is_async and self._loop is not None:
                self._loop.cancel(op, lambda: self._tell(lambda: self._give_up(op)))
            else:
                self._give_up(op)
        elif op.phase == "retrying":
            self._scheduler.say(f.Cancel(p=op.p, n=op.n, reason=op.cancel_reason))

    def abandon(self) -> None:
        """See ``Works.abandon``."""
        for op in self.elsewhere:
            op.abandoned = True
            if op.phase == "given up":
                op.phase = "running"  # the hub does not end the process for it: the failure ends every wait
            self._wipe(op)  # it is no part of the clean-up that may follow
            if op.options.is_async and self._loop is not None:
                self._loop.cancel(op)
        for op in self._threads.withdraw() if self._threads is not None else ():
            self.elsewhere.discard(op)
            self._scheduler.say(f.Cancel(p=op.p, n=op.n, unbegun=True))

    # Frames.

    def _say_begin(self, op: BodyOp[object], *, asked: bool) -> None:
        op.phase = "asked"
        self._scheduler.say(self._begin_frame(op, self._scheduler.ask(op) if asked else 0))

    def _begin_frame(self, op: BodyOp[object], number: int) -> f.Begin:
        options = op.options
        return f.Begin(
            p=op.p,
            n=op.n,
            step=op.step,
            fp=op.fp,
            about=op.about,
            i=number,
            once=options.once,
            attempt=op.attempt,
            timeout_s=self._limit_s(options),
            grace_s=GRACE_S if options.is_async else 0.0,
            max_crashes=options.max_crashes,
            cleanup=op.cleanup,
            since=time.time_ns() // 1000 if op.since_ns else 0,
        )

    def _limit_s(self, options: BodyOptions) -> float:
        return self._step_timeout_s if options.timeout_s is None else options.timeout_s

    def _jot_down(self, op: BodyOp[object]) -> bool:
        """Put on the slate that a body begins, if that will do: its limit is a generous one, and there is room."""
        options = op.options
        if self._scoreboard is None or options.is_async or options.timeout_s is not None:
            return False
        op.since_ns = time.monotonic_ns()
        line = op.line = self._scoreboard.write(_encode(self._begin_frame(op, 0)))
        return line >= 0

    def _wipe(self, op: BodyOp[object]) -> bool:
        """Take a body off the slate; tells whether it was there."""
        line, op.line = op.line, -1
        if line < 0 or self._scoreboard is None:
            return False
        self._scoreboard.wipe(line)
        return True

    def _say_begin_file(self, op: FileOp) -> None:
        op.phase = "asked"
        try:
            intent = op.intend() if op.intend is not None else b"{}"
        except BartackError as error:
            self._report_error(op, error)
            return
        self._scheduler.say(
            f.Begin(
                p=op.p,
                n=op.n,
                step=op.step,
                fp=op.fp,
                about=op.about,
                i=self._scheduler.ask(op),
                a=msgspec.Raw(intent),
                cleanup=op.cleanup,
            )
        )

    def _report(self, op: WorkOp[object], data: bytes) -> None:
        op.phase = "reported"
        scheduler = self._scheduler
        v, ref = scheduler.pack(data)
        scheduler.say(
            f.Done(
                self._number(op),
                op.p,
                op.n,
                op.step,
                op.fp,
                v,
                ref,
                about=op.about,
                attempt=op.attempt,
                cleanup=op.cleanup,
                took_us=_took_us(op),
            )
        )

    def _report_error(self, op: WorkOp[object], error: BaseException, retry_in_s: float = -1.0) -> None:
        op.phase = "reported" if retry_in_s < 0 else "retrying"
        data = describe_error(error, self._scheduler.facts.path)
        if retry_in_s < 0 and op.attempt > 1:
            data.facts["attempts"] = op.attempt
        self._scheduler.say(
            f.Done(
                i=self._number(op),
                p=op.p,
                n=op.n,
                step=op.step,
                fp=op.fp,
                e=data,
                attempt=op.attempt,
                retry_in_s=retry_in_s,
                cleanup=op.cleanup,
                took_us=_took_us(op),
            )
        )

    def _number(self, op: WorkOp[object]) -> int:
        """The number of the request that an outcome is; 0 if its branch has left the step."""
        return 0 if op.abandoned else self._scheduler.ask(op)

    # Execution.

    def _perform(self, op: FileOp, answer: Buffer) -> None:
        op.phase = "running"
        try:
            op.perform(answer)
        except BartackError as error:
            self._report_error(op, error)
            return
        self._report(op, _NULL)

    def _execute(self, op: BodyOp[object]) -> None:
        op.phase = "running"
        scheduler, options = self._scheduler, op.options
        limit_s = self._limit_s(options)
        info = StepInfo(scheduler.facts, op.p, op.n, op.attempt, limit_s)
        if options.is_async:
            if self._loop is None:
                self._loop = _LoopThread(self._ended_elsewhere)
            self.elsewhere.add(op)
            self._loop.run(op, info, limit_s)
        elif scheduler.alone:
            # No other branch is there to be kept waiting: no need for a thread.
            here.scheduler = None
            scheduler.guard.take_out()
            try:
                self._ended(op, *_call(op, info))
            finally:
                scheduler.guard.put_in()
                here.scheduler = scheduler
        else:
            if self._threads is None:
                self._threads = _Threads(self._ended_elsewhere)
            self.elsewhere.add(op)
            self._threads.run(op, info)

    def _ended(self, op: BodyOp[object], value: object, error: BaseException | None) -> None:
        """A body has ended, with a value or an exception."""
        self._wipe(op)
        if op.phase != "running":
            return  # the process is about to end
        if error is not None and op.abandoned and op.options.is_async:
            return  # it was cancelled because the session failed, and that is not an outcome
        if error is None:
            try:
                data = op.result.encode(value, f"the result of {op.options.name}", op.function)
            except BartackError as unfit:
                error = unfit
            else:
                self._report(op, data)
                return
        retry = op.options.retry
        if op.cancel_reason and _is_cancellation(error):
            self._report_error(op, StepCancelledError(op.cancel_reason))
        elif (
            retry is not None and op.attempt < retry.attempts and retry.wants(error) and not op.cancel_reason
        ):
            self._report_error(op, error, retry.delay_s(op.attempt, error))
        else:
            self._report_error(op, error)

    def _ended_elsewhere(self, op: BodyOp[object], value: object, error: BaseException | None) -> None:
        """For other threads: have the outcome reported in this one."""
        self._tell(partial(self._back, op, value, error))

    def _back(self, op: BodyOp[object], value: object, error: BaseException | None) -> None:
        self.elsewhere.discard(op)
        self._ended(op, value, error)

    def _tell(self, news: Callable[[], None]) -> None:
        # Whoever comes first wakes the worker's thread, which takes this byte before it takes the news of all.
        with self._mutex:
            first = not self._news
            self._news.append(news)
        if first:
            self._alarm.send(b"\0")

    def _give_up(self, op: BodyOp[object]) -> None:
        """A body does not stop by itself: only the end of the process ends it, and that is what the hub does."""
        if op.phase == "running":
            if self._wipe(op):
                # The hub can only give up what it knows of.
                self._say_begin(op, asked=False)
            op.phase = "given up"
            self._scheduler.say(f.Cancel(p=op.p, n=op.n, reason=op.cancel_reason))


def _took_us(op: WorkOp[object]) -> int:
    """How long a body ran that was on the slate; 0 if that is not worth a word in the journal."""
    if not isinstance(op, BodyOp) or not op.since_ns:
        return 0
    took_us = (time.monotonic_ns() - op.since_ns) // 1000
    return took_us if took_us >= WORTH_TELLING_US else 0


def _call(op: BodyOp[object], info: StepInfo) -> tuple[object, BaseException | None]:
    """Call a sync body."""
    token = _info.set(info)
    here.body = op.options.name
    try:
        return op.function(*op.args, **op.kwargs), None
    except BaseException as error:  # noqa: BLE001 - the boundary of a body: whatever it raises is its outcome
        return None, error
    finally:
        here.body = ""
        _info.reset(token)


def _is_cancellation(error: BaseException) -> bool:
    import asyncio  # noqa: PLC0415 - only who has async bodies pays for it

    return isinstance(error, asyncio.CancelledError)


class _Threads:
    """A few threads for sync bodies. An executor would cost more than a short body.

    One thread looks for work at a time: whoever takes some while there is more sends another one to look. So bodies that block
    get a thread each, and those that do not are run one after the other by the same.
    """

    def __init__(self, end: _End) -> None:
        self._end = end
        """Called at the end of each body, in its thread."""
        self._work: deque[tuple[BodyOp[object], StepInfo]] = deque()
        self._idle: list[threading.Lock] = []
        """Each lock is that of a thread that waits to get it."""
        self._count = 0
        self._looking = 0
        self._stopped = False
        self._mutex = threading.Lock()

    def run(self, op: BodyOp[object], info: StepInfo) -> None:
        """Run a body."""
        with self._mutex:
            self._work.append((op, info))
            if not self._looking:
                self._send_one()

    def withdraw(self) -> list[BodyOp[object]]:
        """The bodies that no thread has begun; none will."""
        with self._mutex:
            waiting = [op for op, _ in self._work]
            self._work.clear()
        return waiting

    def stop(self) -> None:
        """End the threads; what they still do is abandoned, and what waits for them is not begun."""
        with self._mutex:
            self._stopped = True
            self._work.clear()
            for lock in self._idle:
                lock.release()
            self._idle.clear()

    def _send_one(self) -> None:
        """Have another thread look for work, if there is one to be had."""
        if self._idle:
            self._looking += 1
            self._idle.pop().release()
        elif self._count < THREADS:
            self._looking += 1
            self._count += 1
            try:
                threading.Thread(  # bartack: allow[unsupervised_thread] stop ends it
                    target=self._main, name=f"bartack-step-{self._count}", daemon=True
                ).start()
            except RuntimeError:
                # The system gives no more of them: those that are there do the work, one body after the other.
                self._looking -= 1
                self._count -= 1
                if not self._count:
                    self._work.clear()
                    raise

    def _main(self) -> None:
        gate = threading.Lock()
        gate.acquire(blocking=False)
        while True:
            with self._mutex:
                self._looking -= 1
                if self._stopped:
                    return
                work = self._work.popleft() if self._work else None
                if work is None:
                    self._idle.append(gate)
                elif self._work and not self._looking:
                    self._send_one()
            if work is None:
                gate.acquire()  # bartack: allow[wait_without_deadline] stop ends it
                continue
            op, info = work
            self._end(op, *_call(op, info))
            with self._mutex:
                self._looking += 1


class _LoopThread:
    """One asyncio loop in a thread of its own."""

    def __init__(self, end: _End) -> None:
        import asyncio  # noqa: PLC0415 - only who has async bodies pays for it

        self._end = end
        """Called at the end of each body, in the loop's thread."""
        self._asyncio = asyncio
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._main, name="bartack-loop", daemon=True)
        self._thread.start()

    def run(self, op: BodyOp[object], info: StepInfo, limit_s: float) -> None:
        """Run an async body."""
        self._loop.call_soon_threadsafe(self._start, op, info, limit_s)

    def cancel(self, op: BodyOp[object], stubborn: Callable[[], None] | None = None) -> None:
        """Cancel an async body; ``stubborn`` is called if it does not stop soon."""
        self._loop.call_soon_threadsafe(self._cancel, op, stubborn)

    def stop(self) -> None:
        """End the loop; its thread ends with it."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(GRACE_S)

    def _main(self) -> None:
        here.body = "an async step"
        self._asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            self._loop.close()

    def _start(self, op: BodyOp[object], info: StepInfo, limit_s: float) -> None:
        context = contextvars.copy_context()
        context.run(_info.set, info)
        coroutine = cast("Coroutine[object, object, object]", op.function(*op.args, **op.kwargs))
        op.task = self._loop.create_task(coroutine, context=context)
        watch = self._loop.create_task(self._watch(op, op.task, limit_s))
        watch.add_done_callback(partial(self._finish, op))

    def _cancel(self, op: BodyOp[object], stubborn: Callable[[], None] | None) -> None:
        if op.task is None or op.task.done():
            return
        op.task.cancel()
        if stubborn is not None:
            timer = self._loop.call_later(GRACE_S, stubborn)
            op.task.add_done_callback(lambda _: timer.cancel())

    async def _watch(self, op: BodyOp[object], task: asyncio.Task[object], limit_s: float) -> object:
        """End a body in time. What it returns after its time is over counts for nothing."""
        done, _ = await self._asyncio.wait({task}, timeout=limit_s)
        if done:
            return task.result()
        task.cancel()
        await self._asyncio.wait({task})
        if not task.cancelled():
            task.exception()
        raise StepTimeoutError("step", limit_s, "default" if op.options.timeout_s is None else "explicit")

    def _finish(self, op: BodyOp[object], done: asyncio.Task[object]) -> None:
        if done.cancelled():
            self._end(op, None, self._asyncio.CancelledError())
        else:
            error = done.exception()
            if error is not None:
                self._end(op, None, error)
            else:
                self._end(op, done.result(), None)  # bartack: allow[wait_without_deadline] it is done
