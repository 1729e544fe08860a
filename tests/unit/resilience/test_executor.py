from __future__ import annotations

import asyncio
import gc
import inspect
import time

import pytest

from bartack.resilience import ResilientExecutor, graceful_tracking


async def fail() -> None:
    raise ValueError("no")


async def value() -> int:
    return 5


def test_what_a_task_raises_is_logged_once_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    executor = ResilientExecutor()

    async def scenario() -> bool:
        executor.fire_and_forget(fail())
        return await executor.wait_for_completion()

    assert asyncio.run(scenario()) is True
    assert executor.get_stats()["error_count"] == 1
    assert [record.levelname for record in caplog.records] == ["WARNING"]


def test_the_counts_always_add_up() -> None:
    executor = ResilientExecutor()

    async def scenario() -> None:
        executor.fire_and_forget(value())
        executor.fire_and_forget(fail())
        endless = executor.fire_and_forget(asyncio.Event().wait())
        check()
        await asyncio.sleep(0)
        check()
        endless.cancel()
        await executor.wait_for_completion()
        check()

    def check() -> None:
        stats = executor.get_stats()
        ended = stats["success_count"] + stats["error_count"] + stats["cancelled_count"]
        assert stats["total_tasks"] == stats["active_tasks"] + ended

    asyncio.run(scenario())
    assert executor.get_stats() == {
        "total_tasks": 3,
        "active_tasks": 0,
        "success_count": 1,
        "error_count": 1,
        "cancelled_count": 1,
        "success_rate": 1 / 3,
    }


def test_without_tasks_the_rate_is_zero() -> None:
    assert ResilientExecutor().get_stats()["success_rate"] == 0.0


def test_firing_returns_at_once_and_the_task_is_held() -> None:
    executor = ResilientExecutor()

    async def scenario() -> float:
        go = asyncio.Event()
        started = time.thread_time()
        executor.fire_and_forget(go.wait())
        took = time.thread_time() - started
        gc.collect()
        await asyncio.sleep(0)
        assert executor.get_stats()["active_tasks"] == 1
        go.set()
        await executor.wait_for_completion()
        return took

    assert min(asyncio.run(scenario()) for _ in range(5)) < 0.001


def test_waiting_ends_at_its_timeout_and_leaves_tasks_running() -> None:
    executor = ResilientExecutor()

    async def scenario() -> None:
        assert await executor.wait_for_completion() is True
        go = asyncio.Event()
        task = executor.fire_and_forget(go.wait())
        assert await executor.wait_for_completion(timeout=0.01) is False
        assert not task.done()
        go.set()
        assert await executor.wait_for_completion() is True

    asyncio.run(scenario())


def test_without_a_loop_the_coroutine_is_closed() -> None:
    coro = value()

    with pytest.raises(RuntimeError):
        ResilientExecutor().fire_and_forget(coro)

    assert inspect.getcoroutinestate(coro) == inspect.CORO_CLOSED


@graceful_tracking(fallback_return={"n": 1})
async def raises(kind: type[BaseException] = ValueError) -> dict[str, int]:
    """Says what it does."""
    raise kind("no")


def test_a_failure_gives_the_fallback_and_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    assert asyncio.run(awaited(raises())) == {"n": 1}
    assert "raises failed: ValueError: no" in caplog.text


async def awaited(awaitable: object) -> object:
    return await awaitable  # type: ignore[misc]  # pyright: ignore[reportGeneralTypeIssues] - the decorator gives some awaitable


def test_a_mutable_fallback_is_fresh_for_each_call() -> None:
    first = asyncio.run(awaited(raises()))
    assert isinstance(first, dict)
    first["n"] = 99

    assert asyncio.run(awaited(raises())) == {"n": 1}


def test_a_callable_fallback_is_called_and_nothing_is_logged_if_so_asked(
    caplog: pytest.LogCaptureFixture,
) -> None:
    @graceful_tracking(fallback_return=lambda: "made", log_errors=False)
    async def work() -> str:
        raise ValueError

    assert asyncio.run(awaited(work())) == "made"
    assert caplog.records == []


def test_cancellation_is_not_caught() -> None:
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(awaited(raises(asyncio.CancelledError)))


def test_a_function_that_raises_before_it_returns_an_awaitable_is_guarded_too() -> None:
    @graceful_tracking()
    def work() -> asyncio.Future[int]:
        raise ValueError

    assert asyncio.run(awaited(work())) is None


def test_name_docstring_and_value_are_kept() -> None:
    @graceful_tracking()
    async def work() -> int:
        """Doc."""
        return 5

    assert (work.__name__, work.__doc__) == ("work", "Doc.")
    assert asyncio.run(awaited(work())) == 5
