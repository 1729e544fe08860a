"""A forgotten ``await``: the run fails with the file and the line, however the call was lost."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

from bartack import Context, step, worker
from bartack.runtime import Worker
from bartack.testing import TestRun, run_worker

# What a program may forget to await. Each worker says on which of its lines, by a comment.


@step
def save(text: str) -> str:
    return text


@worker
async def child(ctx: Context) -> int:
    return 1


async def helper(ctx: Context) -> None:
    await ctx.sleep(1)


@worker
async def drops_ctx_call(ctx: Context) -> str:
    ctx.sleep(5)  # here
    return "done"


@worker
async def drops_step(ctx: Context) -> str:
    save("a")  # here
    await save("b")
    return "done"


@worker
async def drops_worker(ctx: Context) -> str:
    child()  # here
    return "done"


@worker
async def drops_message(ctx: Context) -> str:
    ctx.mailbox.work.send(1)  # here
    return "done"


@worker
async def drops_gather(ctx: Context) -> str:
    ctx.gather(save("a"), save("b"))  # type: ignore[unused-coroutine] # - here
    return "done"


@worker
async def drops_failure(ctx: Context) -> str:
    ctx.fail("stop everything")  # type: ignore[unused-coroutine] # - here
    return "done"


@worker
async def drops_helper(ctx: Context) -> str:
    helper(ctx)  # type: ignore[unused-coroutine] # - here
    return "done"


@worker
async def keeps_it_in_a_name(ctx: Context) -> str:
    saved = save("a")  # here
    await ctx.sleep(1)
    return f"done {id(saved)}"[:4]


@worker
async def keeps_it_in_a_list(ctx: Context) -> str:
    calls = [save(text) for text in ("a", "b")]  # here
    return "done" if calls else ""


@worker
async def keeps_a_coroutine(ctx: Context) -> str:
    waiting = helper(ctx)  # here
    await ctx.sleep(1)
    return f"done {id(waiting)}"[:4]


@worker
async def asks_whether(ctx: Context) -> str:
    if ctx.exists("there"):  # here
        return "there"
    return "not there"


@worker
async def compares_it(ctx: Context) -> str:
    return "set" if ctx.env("NAME") == "value" else "not set"  # here


@worker
async def looks_for_nothing(ctx: Context) -> str:
    return "not set" if ctx.env("NAME") is None else "set"  # here


@worker
async def prints_it(ctx: Context) -> str:
    ctx.print("it is", ctx.now())  # here
    return "done"


@worker
async def formats_it(ctx: Context) -> str:
    return f"it is {ctx.now()}"  # here


@worker
async def returns_it(ctx: Context) -> object:
    return ctx.random()  # here


@worker
async def returns_it_inside(ctx: Context) -> object:
    return {"drawn": [ctx.random()]}  # here


@worker
async def swallows_everything(ctx: Context) -> str:
    try:
        if ctx.exists("there"):  # here
            return "there"
    except Exception:  # noqa: BLE001 - what it is about
        return "caught"
    return "not there"


async def forgetful(ctx: Context) -> None:
    ctx.append("log.txt", "line")  # here, in forgetful


@worker
async def forgets_in_a_branch(ctx: Context) -> str:
    await ctx.gather(forgetful(ctx), save("a"))
    return "done"


async def forgetful_too(ctx: Context) -> None:
    line = ctx.append("log.txt", "line")  # here, in forgetful_too
    await ctx.sleep(id(line) % 2)


@worker
async def forgets_in_a_helper(ctx: Context) -> str:
    await forgetful_too(ctx)
    return "done"


FORGETFUL: list[tuple[Worker[[], object], str]] = [
    (drops_ctx_call, "sleep 5 s"),
    (drops_step, "save"),
    (drops_worker, "child"),
    (drops_message, "send work"),
    (drops_gather, "ctx.gather"),
    (drops_failure, "ctx.fail"),
    (drops_helper, "helper"),
    (keeps_it_in_a_name, "save"),
    (keeps_it_in_a_list, "save"),
    (keeps_a_coroutine, "helper"),
    (asks_whether, "exists there"),
    (compares_it, "env NAME"),
    (looks_for_nothing, "env NAME"),
    (prints_it, "now"),
    (formats_it, "now"),
    (returns_it, "random"),
    (returns_it_inside, "random"),
    (swallows_everything, "exists there"),
]


def line_of(function: Callable[..., object], mark: str = " here") -> int:
    """The line of a function's source with the mark."""
    lines, first = inspect.getsourcelines(function)
    return first + next(index for index, line in enumerate(lines) if mark in line)


def check_forgotten(run: TestRun[Any], what: str, line: int) -> None:
    assert run.status == "failed"
    assert run.error is not None
    assert run.error.kind == "ForgottenAwaitError"
    assert what in run.error.message
    assert f"{__file__}:{line}:" in run.error.message


@pytest.mark.requirement("forgotten-await-is-an-error")
@pytest.mark.parametrize(
    ("forgetful_worker", "what"), FORGETFUL, ids=lambda given: getattr(given, "name", "")
)
def test_a_forgotten_await_fails_the_run_with_its_line(
    forgetful_worker: Worker[[], object], what: str
) -> None:
    run = run_worker(forgetful_worker())

    check_forgotten(run, what, line_of(forgetful_worker.function))


def test_a_forgotten_await_in_a_branch_or_a_helper_is_found_where_it_is() -> None:
    in_a_branch, in_a_helper = run_worker(forgets_in_a_branch()), run_worker(forgets_in_a_helper())

    check_forgotten(in_a_branch, "append log.txt", line_of(forgetful))
    check_forgotten(in_a_helper, "append log.txt", line_of(forgetful_too))


def test_nothing_after_a_dropped_call_is_done() -> None:
    run = run_worker(drops_step())

    assert run.steps == []


# What is no mistake.


@worker
async def awaits_later(ctx: Context) -> list[str]:
    first, second = save("a"), save("b")
    await ctx.sleep(1)
    kept = {"third": save("c")}
    return [await second, await first, *await ctx.gather(kept["third"], save("d"))]


left_over: list[object] = []


@worker
async def leaves_a_call_outside(ctx: Context) -> None:
    left_over.append(ctx.random())


@worker
async def drops_what_another_left(ctx: Context) -> str:
    left_over.clear()
    return "done"


def test_a_call_of_another_worker_that_is_dropped_here_is_not_a_mistake_of_this_one() -> None:
    run_worker(leaves_a_call_outside())
    assert len(left_over) == 1

    assert run_worker(drops_what_another_left()).result == "done"


@worker
async def fails_while_it_makes_calls(ctx: Context) -> str:
    try:
        await ctx.gather(save("a"), save(3))  # type: ignore[arg-type] # - what it is about
    except ValueError:
        return await save("handled")
    return "not reached"


@worker
async def collects_a_failing_branch(ctx: Context) -> bool:
    async def branch() -> str:
        prepared = save("a")
        await ctx.sleep(1)
        if ctx.path:
            raise LookupError("before it was awaited")
        return await prepared

    [outcome] = await ctx.gather(branch(), on_failure="collect")
    return outcome.ok


@worker
async def stops_before_it_awaits(ctx: Context) -> str:
    async def branch() -> str:
        prepared = save("a")
        await ctx.sleep(100)
        return await prepared

    try:
        async with ctx.timeout(1):
            await branch()
    except TimeoutError:
        return "too late"
    return "not reached"


@worker
async def spawns_and_forgets(ctx: Context) -> str:
    await ctx.spawn(child())
    return "done"


@pytest.mark.parametrize(
    ("careful", "result"),
    [
        (awaits_later, ["b", "a", "c", "d"]),
        (collects_a_failing_branch, False),
        (stops_before_it_awaits, "too late"),
        (spawns_and_forgets, "done"),
    ],
    ids=lambda given: getattr(given, "name", ""),
)
def test_what_is_awaited_later_or_lost_to_a_failure_is_no_mistake(
    careful: Worker[[], object], result: object
) -> None:
    run = run_worker(careful())

    assert run.error is None
    assert run.result == result


@pytest.mark.filterwarnings("ignore:.*never awaited:RuntimeWarning")
def test_a_failure_between_two_calls_can_be_handled() -> None:
    run = run_worker(fails_while_it_makes_calls())

    assert run.error is None
    assert run.result == "handled"
