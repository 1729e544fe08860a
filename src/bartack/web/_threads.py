"""Work that blocks, in a thread that does not keep the server from ending."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


async def in_thread(work: Callable[[], T]) -> T:
    """Wait for a function that blocks. Its thread ends with the process, however long the function takes."""
    done: Future[T] = Future()
    done.set_running_or_notify_cancel()  # what has begun cannot be called off

    def run() -> None:
        try:
            result = work()
        except BaseException as error:  # noqa: BLE001 - it is raised again where the result is waited for
            done.set_exception(error)
        else:
            done.set_result(result)

    threading.Thread(  # bartack: allow[unsupervised_thread] it ends with its function, or with us
        target=run, name="bartack web", daemon=True
    ).start()
    return await asyncio.wrap_future(done)
