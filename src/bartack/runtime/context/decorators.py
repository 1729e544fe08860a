"""The decorators that make workers and steps of functions."""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from typing import Concatenate, Final, ParamSpec, TypeVar, Unpack, cast, overload

from bartack.errors import WorkerDefinitionError
from bartack.runtime.context.context import Context
from bartack.runtime.context.definitions import (
    Shape,
    StepFunction,
    StepOptions,
    Worker,
    WorkerCall,
    body_options,
)
from bartack.runtime.context.part import Seconds, limit_of
from bartack.runtime.protocol.values import UnsupportedTypeError
from bartack.runtime.scheduler.body import Retry

__all__ = ["Retry", "StepFunction", "Worker", "WorkerCall", "find_worker", "step", "worker"]

P = ParamSpec("P")
R = TypeVar("R")

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_ANNOTATE: Final = "Annotate with types that JSON can carry: str, int, float, bool, list, dict, dataclasses and msgspec structs."
_POSITIONAL: Final = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


@overload
def worker(function: Callable[Concatenate[Context, P], Awaitable[R]], /) -> Worker[P, R]: ...
@overload
def worker(
    *, name: str | None = None, agent: str | None = None, timeout_s: Seconds | None = None
) -> Callable[[Callable[Concatenate[Context, P], Awaitable[R]]], Worker[P, R]]: ...
def worker(
    function: Callable[Concatenate[Context, P], Awaitable[R]] | None = None,
    /,
    *,
    name: str | None = None,
    agent: str | None = None,
    timeout_s: Seconds | None = None,
) -> Worker[P, R] | Callable[[Callable[Concatenate[Context, P], Awaitable[R]]], Worker[P, R]]:
    """Make a worker of a module-level ``async def`` whose first parameter is ``ctx``.

    Args:
        function: The function.
        name: What the worker is called; else like the function.
        agent: The agent its prompts go to, if they name none.
        timeout_s: How long the worker as a whole may take.

    Raises:
        WorkerDefinitionError: The function cannot be a worker.
    """

    def decorate(function: Callable[Concatenate[Context, P], Awaitable[R]]) -> Worker[P, R]:
        shape = Shape(function, skip=1)
        if not _trust.all_definitions:
            _check_worker(function, name, shape)
        return Worker(
            function,
            shape,
            name=name or function.__name__,
            agent=agent or "",
            timeout_s=limit_of(timeout_s),
        )

    return decorate if function is None else decorate(function)


@overload
def step(function: Callable[P, Awaitable[R]], /) -> StepFunction[P, R]: ...
@overload
def step(function: Callable[P, R], /) -> StepFunction[P, R]: ...
@overload
def step(
    *,
    name: str | None = None,
    once: bool = False,
    retry: Retry | None = None,
    timeout_s: Seconds | None = None,
    max_crashes: int = 3,
    changes: bool = True,
) -> StepDecorator: ...
def step(
    function: Callable[..., object] | None = None,
    /,
    *,
    name: str | None = None,
    once: bool = False,
    retry: Retry | None = None,
    timeout_s: Seconds | None = None,
    max_crashes: int = 3,
    changes: bool = True,
) -> object:
    """Make a step of a function: awaited in a worker, it is executed once and its outcome is recorded.

    Args:
        function: The function, ``def`` or ``async def``.
        name: What the step is called; else like the function, with its module.
        once: It must not be executed twice: if everything is killed during it, its outcome is unknown.
        retry: What to do when it raises.
        timeout_s: How long one attempt may take.
        max_crashes: How often its worker may die in it.
        changes: It may change files of the workspace. With ``False``, a run on a node makes no copy of them for it.

    Raises:
        WorkerDefinitionError: The function cannot be a step.
        ValueError: The options contradict each other.
    """
    decorator = StepDecorator(
        name=name, once=once, retry=retry, timeout_s=timeout_s, max_crashes=max_crashes, changes=changes
    )
    return decorator if function is None else decorator.make(function)


class StepDecorator:
    """``@step`` with its options."""

    def __init__(self, **options: Unpack[StepOptions]) -> None:
        self._options = options

    @overload
    def __call__(self, function: Callable[P, Awaitable[R]], /) -> StepFunction[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> StepFunction[P, R]: ...
    def __call__(self, function: Callable[..., object], /) -> object:
        """Make a step of a function."""
        return self.make(function)

    def make(self, function: Callable[..., object]) -> StepFunction[..., object]:
        """Make a step of a function."""
        shape = Shape(function)
        if not _trust.all_definitions:
            _check_step(function, shape)
        return StepFunction(function, shape, body_options(function, self._options))


def find_worker(module: object, name: str) -> Worker[..., object] | None:
    """The worker of this name in a module."""
    for thing in vars(module).values():
        if isinstance(thing, Worker):
            found = cast("Worker[..., object]", thing)
            if found.name == name:
                return found
    return None


# What is refused.


class _Trust:
    all_definitions = False


_trust: Final = _Trust()


@contextmanager
def trust_definitions() -> Generator[None]:
    """A block in which workers and steps are defined without a check: all of them have been checked before.

    The definitions of a program are checked where it is imported first, before it is kept with a run. Every process of a worker
    imports it again, and is to start as fast as it can. What it defines later, while it runs, has not been checked yet.
    """
    _trust.all_definitions = True
    try:
        yield
    finally:
        _trust.all_definitions = False


def _check_worker(function: Callable[..., object], name: str | None, shape: Shape) -> None:
    if not inspect.isfunction(function):
        raise _refusal(function, "a worker must be a function")
    _check_place(function)
    if inspect.isasyncgenfunction(function):
        raise _refusal(function, "an async generator cannot be a worker")
    if not inspect.iscoroutinefunction(function):
        raise _refusal(
            function, "a worker must be an 'async def'", f"Write: async def {function.__name__}(ctx: Context)"
        )
    if not _NAME.fullmatch(name or function.__name__):
        raise _refusal(function, f"{name!r} is not a name for a worker: use letters, digits, '_' and '-'")
    parameters = list(shape.signature.parameters.values())
    if not parameters or parameters[0].name != "ctx" or parameters[0].kind not in _POSITIONAL:
        remedy = f"Write: async def {function.__name__}(ctx: Context{', ...' if parameters else ''})"
        raise _refusal(function, "its first parameter must be ctx", remedy)
    if any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters):
        raise _refusal(
            function, "a worker cannot take **kwargs", "Give each argument a parameter, or take a dict."
        )
    _check_annotations(function, shape)


def _check_step(function: Callable[..., object], shape: Shape) -> None:
    _check_place(function)
    if inspect.isasyncgenfunction(function) or inspect.isgeneratorfunction(function):
        raise _refusal(function, "a generator cannot be a step")
    _check_annotations(function, shape)


def _check_place(function: Callable[..., object]) -> None:
    qualified: str = getattr(function, "__qualname__", "")
    if "<lambda>" in qualified or "<locals>" in qualified or "." in qualified:
        raise _refusal(
            function, "it must stand at the top level of a module, so that every process can import it"
        )


def _check_annotations(function: Callable[..., object], shape: Shape) -> None:
    try:
        shape.resolve()
    except UnsupportedTypeError as error:
        raise _refusal(function, str(error), _ANNOTATE) from None
    except NameError:
        return  # an annotation names something that is defined further down; it is looked up at the first call


def _refusal(function: Callable[..., object], problem: str, remedy: str = "") -> WorkerDefinitionError:
    code = getattr(function, "__code__", None)
    where = "?" if code is None else f"{code.co_filename}:{code.co_firstlineno}"
    return WorkerDefinitionError(getattr(function, "__qualname__", repr(function)), where, problem, remedy)
