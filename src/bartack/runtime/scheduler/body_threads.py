"""The threads that run bodies beside the worker's own: a pool for sync bodies, and one asyncio loop for async ones.

Both call back at the end of a body, in the thread in which it ran. ``bodies.py`` starts them when the first body needs one.
"""

from __future__ import annotations

import contextvars
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Final, cast

from bartack.errors import StepTimeoutError
from bartack.runtime.scheduler.body import BodyOp, StepInfo, current_info
from bartack.runtime.scheduler.operations import here

if TYPE_CHECKING:
    import asyncio

_SLICE_S: Final = 1.0
_STOPPED_S: Final = 2.0
"""A wait that ends later than this shows that the process was stopped."""

GRACE_S: Final = 5.0
"""How long a cancelled async body may take to stop."""

THREADS: Final = 8


OnEnd = Callable[[BodyOp[object], object, BaseException | None], None]
"""Called at the end of a body with its result or its exception."""


def call_body(op: BodyOp[object], info: StepInfo) -> tuple[object, BaseException | None]:
    """Call a sync body."""
    token = current_info.set(info)
    here.body = op.options.name
    op.began_ns = time.monotonic_ns()
    try:
        return op.function(*op.args, **op.kwargs), None
    except BaseException as error:  # noqa: BLE001 - the boundary of a body: whatever it raises is its outcome
        return None, error
    finally:
        op.ended_ns = time.monotonic_ns()
        here.body = ""
        current_info.reset(token)


class BodyThreads:
    """A few threads for sync bodies. An executor would cost more than a short body.

    One thread looks for work at a time. If it takes some while there is more, it sends another one to look. So bodies that
    block get a thread each, and those that do not are run one after the other by the same.
    """

    def __init__(self, end: OnEnd) -> None:
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
            self._end(op, *call_body(op, info))
            with self._mutex:
                self._looking += 1


class LoopThread:
    """One asyncio loop in a thread of its own."""

    def __init__(self, end: OnEnd) -> None:
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

    def cancel(self, op: BodyOp[object], on_timeout: Callable[[], None] | None = None) -> None:
        """Cancel an async body; ``on_timeout`` is called if it does not stop soon."""
        self._loop.call_soon_threadsafe(self._cancel, op, on_timeout)

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
        context.run(current_info.set, info)
        coroutine = cast("Coroutine[object, object, object]", op.function(*op.args, **op.kwargs))
        op.began_ns = time.monotonic_ns()
        op.task = self._loop.create_task(coroutine, context=context)
        watch = self._loop.create_task(self._watch(op, op.task, limit_s))
        watch.add_done_callback(partial(self._finish, op))

    def _cancel(self, op: BodyOp[object], on_timeout: Callable[[], None] | None) -> None:
        if op.task is None or op.task.done():
            return
        op.task.cancel()
        if on_timeout is not None:
            timer = self._loop.call_later(GRACE_S, on_timeout)
            op.task.add_done_callback(lambda _: timer.cancel())

    async def _watch(self, op: BodyOp[object], task: asyncio.Task[object], limit_s: float) -> object:
        """End a body in time. What it returns after its time is over counts for nothing.

        It waits in short slices: the time in which the process was stopped counts as one of them.
        """
        left_s = limit_s
        while not task.done() and left_s > 0:
            began, slice_s = self._loop.time(), min(left_s, _SLICE_S)
            await self._asyncio.wait({task}, timeout=slice_s)
            took_s = self._loop.time() - began
            left_s -= slice_s if took_s > slice_s + _STOPPED_S else took_s
        if task.done():
            return task.result()
        task.cancel()
        await self._asyncio.wait({task})
        if not task.cancelled():
            task.exception()
        raise StepTimeoutError("step", limit_s, "default" if op.options.timeout_s is None else "explicit")

    def _finish(self, op: BodyOp[object], done: asyncio.Task[object]) -> None:
        op.ended_ns = time.monotonic_ns()
        if done.cancelled():
            self._end(op, None, self._asyncio.CancelledError())
        else:
            error = done.exception()
            if error is not None:
                self._end(op, None, error)
            else:
                self._end(op, done.result(), None)  # bartack: allow[wait_without_deadline] it is done
