"""Background tasks that are not awaited, held and counted until they end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import TypeVar

_log = logging.getLogger("bartack.resilience")
T = TypeVar("T")


class ResilientExecutor:
    """Runs coroutines in the background of the running loop. What they raise is logged and counted, never raised."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[object]] = set()
        self._total = 0
        self._succeeded = 0
        self._failed = 0
        self._cancelled = 0

    def fire_and_forget(self, coro: Coroutine[object, object, T]) -> asyncio.Task[T]:
        """Start a coroutine and return at once.

        Raises:
            RuntimeError: No loop is running; the coroutine is closed.
        """
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            coro.close()
            raise
        task = loop.create_task(coro)
        self._total += 1
        self._tasks.add(task)
        task.add_done_callback(self._count)
        return task

    def get_stats(self) -> dict[str, int | float]:
        """How many tasks there were and how they ended."""
        return {
            "total_tasks": self._total,
            "active_tasks": len(self._tasks),
            "success_count": self._succeeded,
            "error_count": self._failed,
            "cancelled_count": self._cancelled,
            "success_rate": self._succeeded / self._total if self._total else 0.0,
        }

    async def wait_for_completion(self, timeout: float = 5.0) -> bool:  # noqa: ASYNC109 - the name is part of the promise
        """Whether everything ended within ``timeout`` seconds. The rest continues."""
        if not self._tasks:
            return True
        _, pending = await asyncio.wait(set(self._tasks), timeout=timeout)
        return not pending

    def _count(self, task: asyncio.Task[object]) -> None:
        self._tasks.discard(task)
        if task.cancelled():
            self._cancelled += 1
        elif (error := task.exception()) is not None:
            self._failed += 1
            _log.warning("background task failed: %s: %s", type(error).__name__, error)
        else:
            self._succeeded += 1
