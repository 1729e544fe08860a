"""A decorator for functions whose failure must not reach their caller: it logs the error and returns a default."""

from __future__ import annotations

import copy
import functools
import logging
from collections.abc import Awaitable, Callable
from typing import ParamSpec, TypeVar, cast

_log = logging.getLogger("bartack.resilience")
P = ParamSpec("P")
T = TypeVar("T")


def graceful_tracking(
    fallback_return: object = None, log_errors: bool = True
) -> Callable[[Callable[P, Awaitable[T]]], Callable[P, Awaitable[T]]]:
    """Make a function that returns an awaitable give a fallback where it would raise.

    Cancellation is not caught. The function itself is called when the decorated one is, so what it does before its first
    ``await`` is done at once.

    Args:
        fallback_return: What to return instead. A ``dict``, ``list`` or ``set`` is copied for each call, a callable is called.
        log_errors: Whether a failure is logged.
    """

    def decorate(function: Callable[P, Awaitable[T]]) -> Callable[P, Awaitable[T]]:
        def report(error: Exception) -> T:
            if log_errors:
                _log.warning("%s failed: %s: %s", function.__name__, type(error).__name__, error)
            return cast("T", _fresh(fallback_return))

        async def finish(awaitable: Awaitable[T] | Exception) -> T:
            if isinstance(awaitable, Exception):
                return report(awaitable)
            try:
                return await awaitable
            except Exception as error:  # noqa: BLE001 - that is what this decorator is for
                return report(error)

        @functools.wraps(function)
        def guarded(*args: P.args, **kwargs: P.kwargs) -> Awaitable[T]:
            try:
                return finish(function(*args, **kwargs))
            except Exception as error:  # noqa: BLE001 - as above, for what is done before the first await
                return finish(error)

        return guarded

    return decorate


def _fresh(fallback: object) -> object:
    if isinstance(fallback, dict | list | set):
        return copy.deepcopy(cast("object", fallback))
    return fallback() if callable(fallback) else fallback
