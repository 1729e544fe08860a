"""Executes the steps that are done in the worker itself, and reports them to the hub.

A body that is alone runs right where the scheduler is. Other bodies run in the threads of ``body_threads.py``, and their ends come
back through a wake-up socket. A thread cannot be stopped: to stop a sync body, the worker asks the hub, which ends the whole
process. ``body.py`` has what the steps are.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Final

import msgspec

from bartack.core import typed
from bartack.errors import BartackError, StepCancelledError
from bartack.runtime.protocol import frames as f
from bartack.runtime.protocol.exceptions import describe_error
from bartack.runtime.protocol.scoreboard import Scoreboard
from bartack.runtime.protocol.values import Buffer
from bartack.runtime.scheduler.body import BodyOp, BodyOptions, FileOp, StepInfo
from bartack.runtime.scheduler.body_threads import GRACE_S, BodyThreads, LoopThread, call_body
from bartack.runtime.scheduler.operations import WorkOp, here
from bartack.runtime.scheduler.scheduler import Scheduler

_NULL: Final = b"null"
_encode: Final = msgspec.json.Encoder().encode
_decode_attempt: Final = typed.decoder(dict[str, object]).decode


class Bodies:
    """Executes the steps of one worker; see ``StepExecutor``."""

    def __init__(
        self, scheduler: Scheduler, step_timeout_s: float, scoreboard: Scoreboard | None = None
    ) -> None:
        self._scheduler = scheduler
        self._requests = scheduler.requests
        self._scoreboard = scoreboard
        self._step_timeout_s = step_timeout_s
        self._threads: BodyThreads | None = None
        self._loop: LoopThread | None = None
        self.in_threads: set[BodyOp[object]] = set()
        """The bodies that run in other threads, or wait for one."""
        self._posted: list[Callable[[], None]] = []
        """Calls that other threads want made in this one."""
        self._mutex = threading.Lock()
        self._wake, self._alarm = socket.socketpair()
        self._wake.setblocking(False)

    def fileno(self) -> int:
        """Readable when other threads have posted calls."""
        return self._wake.fileno()

    def run_posted(self) -> None:
        """Make the calls that other threads have posted: they report how bodies ended."""
        try:
            self._wake.recv(4096)
        except BlockingIOError:
            return
        with self._mutex:
            posted, self._posted = self._posted, []
        self._scheduler.resume(posted)

    def close(self) -> None:
        """Stop the threads; what they still do is abandoned."""
        self.abandon()
        if self._threads is not None:
            self._threads.stop()
        if self._loop is not None:
            self._loop.stop()
        self._wake.close()
        self._alarm.close()

    # Steps.

    def begin(self, op: WorkOp[object]) -> None:
        """See ``StepExecutor.begin``."""
        if op.cancelled or op.cancel_reason:
            self._report_error(op, StepCancelledError(op.cancel_reason or "cancelled"))
        elif isinstance(op, BodyOp):
            options = op.options
            asked = options.once or options.retry is not None or self._requests.note_open
            if asked or not self._set_scoreboard(op):
                self._begin(op, asked=asked)
            if not asked:
                self._execute(op)
        elif isinstance(op, FileOp):
            asked = op.intend is not None or self._requests.note_open
            if asked:
                self._begin_file(op)
            else:
                self._perform(op, _NULL)

    def answered(self, op: WorkOp[object], data: Buffer) -> None:
        """See ``StepExecutor.answered``."""
        if isinstance(op, FileOp):
            self._perform(op, data)
        elif isinstance(op, BodyOp):
            attempt = _decode_attempt(data).get("attempt")
            again = op.phase == "retrying"
            op.attempt = attempt if isinstance(attempt, int) else op.attempt
            if op.cancel_reason:
                self._report_error(op, StepCancelledError(op.cancel_reason))
            elif again:
                self._begin(op, asked=False)
                self._execute(op)
            else:
                self._execute(op)

    def cancel(self, op: WorkOp[object]) -> None:
        """See ``StepExecutor.cancel``."""
        if isinstance(op, BodyOp) and op.phase == "running":
            if op.options.is_async and self._loop is not None:
                self._loop.cancel(op, lambda: self._post(lambda: self._give_up(op)))
            else:
                self._give_up(op)
        elif op.phase == "retrying":
            self._requests.send(f.Cancel(p=op.p, n=op.n, reason=op.cancel_reason))

    def abandon(self) -> None:
        """See ``StepExecutor.abandon``."""
        for op in self.in_threads:
            op.abandoned = True
            if op.phase == "given up":
                op.phase = "running"  # the hub does not end the process for it: the failure ends every wait
            self._clear_scoreboard(op)  # it is not part of the clean-up that may follow
            if op.options.is_async and self._loop is not None:
                self._loop.cancel(op)
        for op in self._threads.withdraw() if self._threads is not None else ():
            self.in_threads.discard(op)
            self._requests.send(f.Cancel(p=op.p, n=op.n, unbegun=True))

    # Frames.

    def _begin(self, op: BodyOp[object], *, asked: bool) -> None:
        op.phase = "asked"
        self._requests.send(self._begin_frame(op, self._requests.ask(op) if asked else 0))

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
            changes=options.changes,
            since=self._scheduler.entropy.now_us() if op.is_dated else 0,
        )

    def _limit_s(self, options: BodyOptions) -> float:
        return self._step_timeout_s if options.timeout_s is None else options.timeout_s

    def _set_scoreboard(self, op: BodyOp[object]) -> bool:
        """Set on the scoreboard that a body begins, if that is enough: its limit is the default one, and there is room."""
        options = op.options
        if self._scoreboard is None or options.is_async or options.timeout_s is not None:
            return False
        op.is_dated = True
        line = op.line = self._scoreboard.set(_encode(self._begin_frame(op, 0)))
        return line >= 0

    def _clear_scoreboard(self, op: BodyOp[object]) -> bool:
        """Clear a body from the scoreboard; returns whether it was there."""
        line, op.line = op.line, -1
        if line < 0 or self._scoreboard is None:
            return False
        self._scoreboard.clear(line)
        return True

    def _begin_file(self, op: FileOp) -> None:
        op.phase = "asked"
        try:
            intent = op.intend() if op.intend is not None else b"{}"
        except BartackError as error:
            self._report_error(op, error)
            return
        self._requests.send(
            f.Begin(
                p=op.p,
                n=op.n,
                step=op.step,
                fp=op.fp,
                about=op.about,
                i=self._requests.ask(op),
                a=msgspec.Raw(intent),
                cleanup=op.cleanup,
            )
        )

    def _report(self, op: WorkOp[object], data: bytes) -> None:
        op.phase = "reported"
        v, ref = self._requests.pack(data)
        self._requests.send(
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
                took_us=op.took_us,
            )
        )

    def _report_error(self, op: WorkOp[object], error: BaseException, retry_in_s: float = -1.0) -> None:
        op.phase = "reported" if retry_in_s < 0 else "retrying"
        data = describe_error(error, self._scheduler.facts.path)
        if retry_in_s < 0 and op.attempt > 1:
            data.facts["attempts"] = op.attempt
        self._requests.send(
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
                took_us=op.took_us,
            )
        )

    def _number(self, op: WorkOp[object]) -> int:
        """The number of the request that an outcome is; 0 if its branch has left the step."""
        return 0 if op.abandoned else self._requests.ask(op)

    # Execution.

    def _perform(self, op: FileOp, answer: Buffer) -> None:
        op.phase = "running"
        op.began_ns = time.monotonic_ns()
        try:
            op.perform(answer)
        except BartackError as error:
            op.ended_ns = time.monotonic_ns()
            self._report_error(op, error)
            return
        op.ended_ns = time.monotonic_ns()
        self._report(op, _NULL)

    def _execute(self, op: BodyOp[object]) -> None:
        op.phase = "running"
        scheduler, options = self._scheduler, op.options
        limit_s = self._limit_s(options)
        info = StepInfo(scheduler.facts, op.p, op.n, op.attempt, limit_s)
        if options.is_async:
            if self._loop is None:
                self._loop = LoopThread(self._ended_elsewhere)
            self.in_threads.add(op)
            self._loop.run(op, info, limit_s)
        elif scheduler.alone:
            # No other branch is there to be kept waiting: no need for a thread.
            watcher, here.watcher = here.watcher, None
            scheduler.guard.take_out()
            try:
                self._ended(op, *call_body(op, info))
            finally:
                scheduler.guard.put_in()
                here.watcher = watcher
        else:
            if self._threads is None:
                self._threads = BodyThreads(self._ended_elsewhere)
            self.in_threads.add(op)
            self._threads.run(op, info)

    def _ended(self, op: BodyOp[object], value: object, error: BaseException | None) -> None:
        """A body has ended, with a value or an exception."""
        self._clear_scoreboard(op)
        if op.phase != "running":
            return  # the process is about to end
        if error is not None and op.abandoned and op.options.is_async:
            return  # it was cancelled because the session failed, and that is not an outcome
        if error is None:
            try:
                data = op.result.encode(value, f"the result of {op.options.name}", op.function)
            except BartackError as problem:
                error = problem
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
        """Called in other threads: have the outcome reported in this one."""
        self._post(partial(self._back, op, value, error))

    def _back(self, op: BodyOp[object], value: object, error: BaseException | None) -> None:
        self.in_threads.discard(op)
        self._ended(op, value, error)

    def _post(self, call: Callable[[], None]) -> None:
        # The first call wakes the worker's thread, which takes this byte before it takes all calls.
        with self._mutex:
            first = not self._posted
            self._posted.append(call)
        if first:
            self._alarm.send(b"\0")

    def _give_up(self, op: BodyOp[object]) -> None:
        """A body does not stop by itself: only the end of the process ends it, and that is what the hub does."""
        if op.phase == "running":
            if self._clear_scoreboard(op):
                # The hub can only give up what it knows of.
                self._begin(op, asked=False)
            op.phase = "given up"
            self._requests.send(f.Cancel(p=op.p, n=op.n, reason=op.cancel_reason))


def _is_cancellation(error: BaseException) -> bool:
    import asyncio  # noqa: PLC0415 - only who has async bodies pays for it

    return isinstance(error, asyncio.CancelledError)
