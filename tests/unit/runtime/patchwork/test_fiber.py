"""A synchronous function that is stepped like a coroutine."""

from __future__ import annotations

import threading

import pytest

from bartack.runtime.patchwork._fiber import Fiber, perform
from bartack.runtime.scheduler.operations import Op


class Wish(Op[object]):
    """Something to wait for."""

    __slots__ = ()


async def awaited(fiber: Fiber) -> object:
    return await fiber


def test_the_function_goes_on_with_what_it_is_sent() -> None:
    wishes = [Wish(), Wish()]
    coroutine = awaited(Fiber(lambda: [perform(wish) for wish in wishes]))

    assert coroutine.send(None) is wishes[0]
    assert coroutine.send("one") is wishes[1]
    with pytest.raises(StopIteration) as end:
        coroutine.send("two")

    assert end.value.value == ["one", "two"]


def test_an_exception_is_thrown_where_the_function_waits_and_comes_out_with_its_traceback() -> None:
    def function() -> object:
        try:
            return perform(Wish())
        except KeyError as error:
            raise ValueError("told") from error

    coroutine = awaited(Fiber(function))
    coroutine.send(None)

    with pytest.raises(ValueError, match="told") as failure:
        coroutine.throw(KeyError("x"))

    names = [entry.name for entry in failure.traceback]
    assert "function" in names


def test_closing_ends_the_function_where_it_is() -> None:
    left: list[str] = []

    def function() -> None:
        try:
            perform(Wish())
        finally:
            left.append(threading.current_thread().name)

    coroutine = awaited(Fiber(function))
    coroutine.send(None)
    coroutine.close()

    assert left == ["bartack-patchwork"]


def test_a_function_that_never_ran_is_closed_without_running() -> None:
    fiber = Fiber(lambda: pytest.fail("it ran"))

    fiber.close()

    with pytest.raises(StopIteration):
        fiber.send(None)


def test_deep_calls_have_room() -> None:
    def dig(depth: int) -> int:
        return depth if depth == 0 else 1 + dig(depth - 1)

    with pytest.raises(StopIteration) as end:
        Fiber(lambda: dig(5_000)).send(None)

    assert end.value.value == 5_000
