"""Synchronous code as a coroutine: it runs on a thread of its own, in strict alternation with the scheduler.

The scheduler steps coroutines, Patchwork functions are plain functions. A ``Fiber`` is between them: ``send`` resumes the function
until it performs an operation, and hands that operation out; ``perform`` is the function's side. Exactly one of the two
threads runs at any moment, so nothing is shared without order. ``close`` ends a function in the middle, as it does a coroutine.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import TracebackType
from typing import Final, TypeVar, cast

from bartack.runtime.scheduler.operations import AnyOp, Op, Watcher, here

T = TypeVar("T")

STACK_BYTES: Final = 64 * 1024 * 1024
"""Room for the deepest calls a program may make; only what is used is ever taken."""
DEEPEST_PYTHON: Final = 20_000


class _Current(threading.local):
    fiber: Fiber | None = None


_current = _Current()


class Fiber(Generator[AnyOp, object, object]):
    """One function on a thread of its own. Await it for what the function returns."""

    def __init__(self, function: Callable[[], object]) -> None:
        self._function = function
        self._thread: threading.Thread | None = None
        self._go = threading.Lock()
        self._back = threading.Lock()
        self._go.acquire()  # bartack: allow[wait_without_deadline] it is new
        self._back.acquire()  # bartack: allow[wait_without_deadline] it is new
        self._ended = False
        self._owner: tuple[Watcher | None, str] = (None, "")
        self._inward: tuple[object, BaseException | None] = (None, None)
        self._op: AnyOp | None = None
        self._result: object = None
        self._error: BaseException | None = None

    # The outside: a coroutine.

    def __await__(self) -> Generator[AnyOp, object, object]:
        """The function's operations one by one, then its result."""
        return self

    def __next__(self) -> AnyOp:
        """Resume the function."""
        return self._step(None, None)

    def send(self, value: object, /) -> AnyOp:
        """Resume the function with the outcome of its operation."""
        return self._step(value, None)

    def throw(
        self,
        typ: type[BaseException] | BaseException,
        val: BaseException | object = None,
        tb: TracebackType | None = None,
        /,
    ) -> AnyOp:
        """Resume the function with an exception."""
        error = typ if isinstance(typ, BaseException) else typ()
        if self._thread is None:
            self._ended = True
            raise error
        return self._step(None, error)

    def close(self) -> None:
        """End the function where it is."""
        if self._thread is None or self._ended:
            self._ended = True
            return
        try:
            self._step(None, GeneratorExit())
        except (GeneratorExit, StopIteration):
            return
        raise RuntimeError("the function performed an operation while it was ended")

    def _step(self, value: object, error: BaseException | None) -> AnyOp:
        if self._ended:
            raise StopIteration
        self._inward = value, error
        self._owner = here.watcher, here.body
        if self._thread is None:
            self._start()
        else:
            self._go.release()
        self._back.acquire()  # bartack: allow[wait_without_deadline] the other side always answers
        return self._outcome()

    def _outcome(self) -> AnyOp:
        """What the function has come to: its next operation, or its end."""
        if not self._ended:
            assert self._op is not None
            return self._op
        if self._error is not None:
            error, self._error = self._error, None
            raise error
        raise StopIteration(self._result)

    def _start(self) -> None:
        if sys.getrecursionlimit() < DEEPEST_PYTHON:
            sys.setrecursionlimit(DEEPEST_PYTHON)
        with _stack_size(STACK_BYTES):
            self._thread = (
                threading.Thread(  # bartack: allow[unsupervised_thread] it takes turns with its owner
                    target=self._main, name="bartack-patchwork", daemon=True
                )
            )
            self._thread.start()

    # The inside: a function.

    def _main(self) -> None:
        _current.fiber = self
        here.watcher, here.body = self._owner
        try:
            self._result = self._function()
        except BaseException as error:  # noqa: BLE001 - the boundary of the program: whatever it raises is its outcome
            self._error = error
        self._ended = True
        self._back.release()

    def perform(self, op: Op[T]) -> T:
        """Hand an operation out, and wait for its outcome."""
        steps = op.__await__()
        yielded = next(steps)
        while True:
            self._op = yielded
            self._back.release()
            self._go.acquire()  # bartack: allow[wait_without_deadline] the other side always answers
            value, error = self._inward
            self._inward = None, None
            try:
                yielded = steps.throw(error) if error is not None else steps.send(value)
            except StopIteration as stop:
                return cast("T", stop.value)


def perform(op: Op[T]) -> T:
    """Perform an operation in the function that runs on this thread."""
    fiber = _current.fiber
    assert fiber is not None, "only a function of a fiber performs operations"
    return fiber.perform(op)


@contextmanager
def _stack_size(size: int) -> Generator[None]:
    before = threading.stack_size(size)
    try:
        yield
    finally:
        threading.stack_size(before)
