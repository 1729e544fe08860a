"""Workers and steps as they are written: what is refused, and what a description is."""

from __future__ import annotations

import gc
import pickle
import re
import sys
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, cast

import pytest

from bartack.errors import NotInWorkerError, TypeMismatchError, WorkerDefinitionError
from bartack.runtime.context import decorators as _worker
from bartack.runtime.context.context import Context
from bartack.runtime.context.decorators import find_worker, step, worker
from bartack.runtime.context.definitions import StepFunction, Worker, WorkerCall
from bartack.runtime.scheduler.body import Retry

if TYPE_CHECKING:
    from bartack.runtime import Context as HiddenContext


@worker
async def analyst(
    ctx: Context, path: str, depth: int = 1, *rest: str, strict: bool = False
) -> dict[str, int]:
    """Looks at a file."""
    return {path: depth + len(rest) + strict}


@worker(name="second-reader", agent="claude", timeout_s=30)
async def reader(ctx: Context, later: Later) -> Later:
    return later


@worker
async def hidden(ctx: HiddenContext) -> None:
    """Its ctx is annotated with a name that only type checkers know."""


class Later:
    """Defined behind its first use, and no value that travels."""


@step(retry=Retry(attempts=4, on=(OSError,)), timeout_s=20)
def fetch(url: str) -> str:
    """Reads a page."""
    return url


@step
async def ping(host: str = "localhost") -> bool:
    return host == "localhost"


def test_a_worker_knows_its_name_and_how_to_be_found() -> None:
    assert isinstance(analyst, Worker)
    assert (analyst.name, analyst.ref) == ("analyst", f"{__name__}:analyst")
    assert (reader.name, reader.agent, reader.timeout_s) == ("second-reader", "claude", 30.0)
    assert analyst.__doc__ == "Looks at a file."
    assert find_worker(sys.modules[__name__], "second-reader") is cast("object", reader)
    assert find_worker(sys.modules[__name__], "reader") is None


def refusal(function: Callable[..., object]) -> WorkerDefinitionError:
    with pytest.raises(WorkerDefinitionError) as refused:
        worker(cast("Callable[[Context], Awaitable[object]]", function))
    assert isinstance(refused.value, TypeError)
    return refused.value


async def no_context(path: str) -> None: ...
async def options_by_name(ctx: Context, **options: str) -> None: ...
async def wrong_type(ctx: Context, names: set[str]) -> None: ...
async def wrong_result(ctx: Context) -> set[str]:
    return set()


async def endless(ctx: Context) -> AsyncIterator[int]:
    yield 1


def synchronous(ctx: Context) -> None: ...


@pytest.mark.parametrize(
    ("function", "problem"),
    [
        (synchronous, "a worker must be an 'async def'"),
        (endless, "an async generator cannot be a worker"),
        (no_context, "its first parameter must be ctx"),
        (options_by_name, "a worker cannot take **kwargs"),
        (wrong_type, "set cannot be serialised"),
        (wrong_result, "set cannot be serialised"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_function_that_cannot_be_a_worker_is_refused_at_its_line(
    function: Callable[..., object], problem: str
) -> None:
    refused = refusal(function)

    assert refused.problem == problem
    assert refused.where == f"{__file__}:{function.__code__.co_firstlineno}"


def test_a_nested_function_or_lambda_is_refused() -> None:
    async def nested(ctx: Context) -> None: ...

    assert "top level of a module" in refusal(nested).problem
    assert "top level of a module" in refusal(lambda: None).problem


def test_a_name_that_cannot_be_part_of_a_path_is_refused() -> None:
    async def plain(ctx: Context) -> None: ...

    plain.__qualname__ = "plain"
    with pytest.raises(WorkerDefinitionError, match="is not a name for a worker"):
        worker(name="a/b")(plain)


def test_an_annotation_defined_further_down_is_looked_up_at_the_first_use() -> None:
    described = reader(Later())

    with pytest.raises(TypeError, match="Later cannot be serialised"):
        described.encode()


def test_the_annotation_of_ctx_need_not_be_there() -> None:
    assert hidden().encode() == b'{"args":[]}'


def test_calling_a_worker_describes_a_run_of_it() -> None:
    described = analyst("a.md", strict=True)

    assert isinstance(described, WorkerCall)
    assert (described.worker, described.args, described.kwargs) == (analyst, ("a.md",), {"strict": True})
    assert repr(described) == "analyst('a.md', strict=True)"
    assert described.encode() == b'{"args":["a.md"],"kwargs":{"strict":true}}'


def test_a_description_cannot_be_changed() -> None:
    described = analyst("a.md")
    described.encode()

    with pytest.raises(AttributeError, match="cannot be changed"):
        described.args = ()
    with pytest.raises(AttributeError, match="cannot be changed"):
        del described.args


def test_descriptions_are_equal_by_what_they_describe() -> None:
    calls = [analyst("a"), analyst("a"), analyst("b"), analyst("a", strict=True)]
    for call in calls:
        call.encode()

    assert calls[0] == calls[1]
    assert hash(calls[0]) == hash(calls[1])
    assert calls[0] != calls[2]
    assert calls[0] != calls[3]
    assert calls[0] != "analyst"


@pytest.mark.parametrize(
    ("args", "kwargs", "problem"),
    [
        ((), {}, "missing a required argument: 'path'"),
        (("a",), {"colour": 1}, "got an unexpected keyword argument 'colour'"),
        (("a",), {"path": "b"}, "multiple values for argument 'path'"),
    ],
    ids=str,
)
def test_arguments_that_do_not_fit_fail_at_the_call(
    args: tuple[str, ...], kwargs: dict[str, object], problem: str
) -> None:
    call = cast("Callable[..., object]", analyst)

    with pytest.raises(TypeError, match=re.escape(problem)):
        call(*args, **kwargs)


def test_arguments_of_the_wrong_type_fail_when_it_starts() -> None:
    described = cast("Callable[..., WorkerCall[object]]", analyst)("a", "deep")

    with pytest.raises(TypeMismatchError, match="expected int, found str"):
        described.encode()


def test_arguments_come_back_as_they_were_given() -> None:
    args, kwargs = analyst.shape.decode(analyst("a", 2, "x", "y", strict=True).encode())

    assert (args, kwargs) == (["a", 2, "x", "y"], {"strict": True})


def test_a_dropped_description_warns_with_its_place() -> None:
    with pytest.warns(RuntimeWarning, match=r"analyst\(…\) was described and never run") as caught:
        drop_one()

    line = drop_one.__code__.co_firstlineno + 1
    assert (caught[0].filename, caught[0].lineno) == (__file__, line)


def drop_one() -> None:
    analyst("a.md")
    gc.collect()


def test_a_used_description_does_not_warn() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        analyst("a.md").encode()
        gc.collect()


def test_a_step_outside_a_worker_is_refused_and_its_function_is_there() -> None:
    assert isinstance(fetch, StepFunction)
    with pytest.raises(NotInWorkerError, match="can be awaited only in a worker"):
        fetch("https://example.org")
    assert fetch.function("x") == "x"
    assert fetch.__doc__ == "Reads a page."


def test_a_worker_outside_a_run_is_refused() -> None:
    async def wait() -> object:
        return await described

    described = analyst("a")
    described.encode()
    coroutine = wait()
    with pytest.raises(NotInWorkerError):
        coroutine.send(None)


def test_a_step_knows_its_options() -> None:
    options = fetch.options

    assert options.name == f"{__name__}.fetch"
    assert (options.timeout_s, options.is_async, ping.options.is_async) == (20.0, False, True)
    assert options.retry is not None
    assert options.retry.attempts == 4
    assert repr(ping) == f"<step {__name__}.ping>"


def values() -> Iterator[int]:
    yield 1


@pytest.mark.parametrize(
    "function", [lambda: 1, values, endless], ids=["lambda", "generator", "async generator"]
)
def test_a_function_that_cannot_be_a_step_is_refused(function: Callable[..., object]) -> None:
    with pytest.raises(WorkerDefinitionError):
        step(function)


def test_once_with_a_bare_retry_is_refused() -> None:
    with pytest.raises(ValueError, match="once with retry needs the exceptions"):
        step(once=True, retry=Retry())(plain_step)
    assert step(once=True, retry=Retry(on=(OSError,)))(plain_step).options.once


def plain_step(x: int) -> int:
    return x


@pytest.mark.parametrize(
    "make",
    [
        lambda: Retry(attempts=0),
        lambda: Retry(factor=0.5),
        lambda: Retry(base=-1),
        lambda: step(max_crashes=0)(plain_step),
        lambda: step(timeout_s=0)(plain_step),
        lambda: step(timeout_s=-1)(plain_step),
    ],
)
def test_options_that_make_no_sense_are_refused(make: Callable[[], object]) -> None:
    with pytest.raises(ValueError, match="must"):
        make()


def test_ctx_cannot_be_pickled() -> None:
    with pytest.raises(TypeError, match="cannot leave its worker"):
        pickle.dumps(Context.__new__(Context))


def test_the_decorators_are_where_a_program_finds_them() -> None:
    import bartack  # noqa: PLC0415 - the subject

    assert bartack.worker is _worker.worker
    assert bartack.step is _worker.step
    assert bartack.Context is Context
    assert {"worker", "step", "Context", "Retry"} <= set(dir(bartack))
    missing = "nothing"
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        getattr(bartack, missing)
