"""The scheduler: turns, what a worker must not await, and what must be durable first."""

from __future__ import annotations

import asyncio
import types
from collections.abc import Generator
from typing import cast

import pytest
from tests.unit.runtime.fake_hub import FakeHub, Program

from bartack.errors import (
    ForeignAwaitError,
    LimitExceededError,
    MessageTooLargeError,
    NestedStepError,
    ShellError,
)
from bartack.runtime.context.context import Context
from bartack.runtime.protocol import frames as f
from bartack.runtime.protocol.exceptions import origin_of
from bartack.runtime.scheduler import scheduler as _scheduler

# Turns.


def test_a_worker_without_steps_ends_at_once(hub: FakeHub) -> None:
    async def program(ctx: Context) -> int:
        return 5

    assert hub.run(program) == 5
    assert hub.heard == []


def test_a_step_is_asked_for_once_and_its_outcome_is_what_the_program_sees(hub: FakeHub) -> None:
    async def program(ctx: Context) -> object:
        return await ctx.mailbox.tasks.receive(5)

    hub.start(program)
    hub.answer({"task": 1})

    assert hub.result() == {"task": 1}
    (step,) = hub.said(f.Step)
    assert (step.p, step.n, step.step, step.about) == ("main", 1, "receive", "tasks")


def test_every_step_of_a_branch_has_the_next_number(hub: FakeHub) -> None:
    async def program(ctx: Context) -> None:
        await ctx.sleep(1)
        ctx.print("two")
        await ctx.random()
        await ctx.gather(ctx.sleep(2), ctx.sleep(3))
        await ctx.sleep(4)

    hub.start(program)
    for _ in range(4):
        hub.answer()

    assert hub.result() is None
    numbers = [(past.p, past.n, past.step) for past in hub.journal]
    assert numbers == [
        ("main", 1, "sleep"),
        ("main", 2, "print"),
        ("main", 3, "random"),
        ("main.4.1", 1, "sleep"),
        ("main.4.2", 1, "sleep"),
        ("main", 5, "sleep"),
    ]


def test_branches_go_on_in_the_order_of_their_answers(hub: FakeHub) -> None:
    order: list[str] = []

    async def branch(ctx: Context, name: str) -> str:
        order.append(f"{name} asks")
        await ctx.sleep(1)
        order.append(f"{name} goes on")
        return name

    async def program(ctx: Context) -> object:
        return await ctx.gather(branch(ctx, "a"), branch(ctx, "b"))

    hub.start(program)
    hub.settle()
    hub.finish("main.1.2", 1)
    hub.finish("main.1.1", 1)
    hub.settle()

    assert hub.result() == ["a", "b"]
    assert order == ["a asks", "b asks", "b goes on", "a goes on"]


def test_awaiting_one_call_twice_is_refused(hub: FakeHub) -> None:
    async def program(ctx: Context) -> None:
        sleep = ctx.sleep(1)
        await sleep
        await sleep

    hub.start(program)
    hub.answer()

    with pytest.raises(RuntimeError, match="twice"):
        hub.result()


def test_a_harmless_step_does_not_wait_for_an_answer(hub: FakeHub) -> None:
    async def program(ctx: Context) -> list[int]:
        return [await ctx.random(1, 6), await ctx.random(1, 6)]

    result = cast("list[int]", hub.run(program))

    assert all(1 <= drawn <= 6 for drawn in result)
    assert [past.step for past in hub.journal] == ["random", "random"]
    assert hub.said(f.Step) == []


def test_an_error_is_raised_where_its_step_is_awaited(hub: FakeHub) -> None:
    async def program(ctx: Context) -> int:
        try:
            await ctx.shell("false")
        except ShellError as error:
            return error.status
        return 0

    hub.start(program)
    hub.refuse(ShellError(["false"], 7))

    assert hub.result() == 7


def test_the_origin_of_an_uncaught_error_is_its_step(hub: FakeHub) -> None:
    async def inner(ctx: Context) -> None:
        try:
            await ctx.shell("false")
        except ShellError as error:
            raise ValueError("wrapped") from error

    async def program(ctx: Context) -> None:
        await ctx.sleep(1)
        await ctx.gather(inner(ctx), ctx.sleep(5))

    hub.start(program)
    hub.answer()
    hub.refuse(ShellError(["false"], 1), step="shell")

    _, error = hub.scheduler.outcome
    assert isinstance(error, ValueError)
    assert origin_of(error) == ("main.2.1", 1)


def test_too_many_steps_are_refused(hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_scheduler, "MANY_STEPS", 3)
    monkeypatch.setattr(_scheduler, "MAX_STEPS", 5)

    async def program(ctx: Context) -> None:
        while True:
            await ctx.random()

    with pytest.raises(LimitExceededError, match="more than 5 steps"):
        hub.run(program)
    assert len(hub.journal) == 5


def test_asking_for_more_than_a_frame_holds_is_refused(hub: FakeHub) -> None:
    async def program(ctx: Context) -> str:
        with pytest.raises(MessageTooLargeError):
            await ctx.think("x" * 2_200_000)
        with pytest.raises(MessageTooLargeError):
            await ctx.ask("x" * 600_000)
        with pytest.raises(MessageTooLargeError):
            ctx.print("x" * 600_000)
        return "went on"

    assert hub.run(program) == "went on"


def test_a_prompt_of_a_million_characters_is_asked(hub: FakeHub) -> None:
    async def program(ctx: Context) -> None:
        await ctx.think("\n" * 1_000_000)

    hub.start(program)
    hub.settle()

    (step,) = hub.said(f.Step)
    assert b"\\n" * 1_000_000 in bytes(step.a)


def test_a_long_value_goes_beside_the_frame(hub: FakeHub) -> None:
    async def program(ctx: Context) -> None:
        await ctx.mailbox.q.send("x" * 100_000)

    hub.start(program)
    hub.settle()

    (step,) = hub.said(f.Step)
    assert step.v is None
    assert step.ref is not None
    assert step.ref.size == 100_002


# What a worker must not await.


async def sleeps(ctx: Context) -> None:
    await asyncio.sleep(5)


async def yields_to_a_loop(ctx: Context) -> None:
    await asyncio.sleep(0)


async def makes_a_task(ctx: Context) -> None:
    work = yields_to_a_loop(ctx)
    try:
        asyncio.create_task(work)  # noqa: TID251, RUF006 - the subject
    finally:
        work.close()


async def gathers(ctx: Context) -> None:
    work = yields_to_a_loop(ctx)
    try:
        await asyncio.gather(work)
    finally:
        work.close()


async def looks_for_its_task(ctx: Context) -> None:
    asyncio.current_task()


async def awaits_a_future(ctx: Context) -> None:
    await asyncio.Future[int]()


@types.coroutine
def bare() -> Generator[None, None, None]:
    yield


async def yields_bare(ctx: Context) -> None:
    await bare()


@types.coroutine
def odd() -> Generator[str, None, None]:
    yield "a text"


async def yields_a_text(ctx: Context) -> None:
    await odd()


@pytest.mark.parametrize(
    ("culprit", "line"),
    [
        (sleeps, 1),
        (yields_to_a_loop, 1),
        (makes_a_task, 3),
        (gathers, 3),
        (looks_for_its_task, 1),
        (awaits_a_future, 1),
        (yields_bare, None),
        (yields_a_text, None),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_what_is_not_bartacks_cannot_be_awaited(hub: FakeHub, culprit: Program, line: int | None) -> None:
    async def program(ctx: Context) -> str:
        await ctx.sleep(1)
        try:
            await culprit(ctx)
        except Exception:  # noqa: BLE001 - the subject
            return "swallowed"
        return "went on"

    hub.start(program)
    hub.answer()

    assert hub.scheduler.ended
    error = hub.scheduler.fatal
    assert isinstance(error, ForeignAwaitError)
    assert error.where.startswith(f"{__file__}:")
    if line is not None:
        assert error.where == f"{__file__}:{culprit.__code__.co_firstlineno + line}"


def test_the_loop_of_the_caller_is_left_alone(hub: FakeHub) -> None:
    async def program(ctx: Context) -> int:
        await ctx.random()
        return 5

    async def main() -> object:
        result = hub.run(program)
        await asyncio.sleep(0)
        return result

    assert asyncio.run(main()) == 5


def test_ctx_in_another_thread_is_refused(hub: FakeHub) -> None:
    made: list[Context] = []

    async def program(ctx: Context) -> None:
        made.append(ctx)
        await ctx.sleep(1)

    hub.start(program)

    with pytest.raises(NestedStepError):
        made[0].sleep(1)
    with pytest.raises(NestedStepError):
        made[0].print("x")


# What must be durable first.


def test_an_effect_waits_until_what_the_program_saw_is_durable(hub: FakeHub) -> None:
    async def program(ctx: Context) -> None:
        await ctx.write("a.txt", "1")
        await ctx.random()
        await ctx.write("b.txt", "2")
        await ctx.write("c.txt", "3")

    hub.run(program)

    asked = [(frame.about, frame.i > 0) for frame in hub.said(f.Begin)]
    assert asked == [("b.txt", True)]


def test_an_older_answer_does_not_make_a_note_durable(hub: FakeHub) -> None:
    async def notes(ctx: Context) -> None:
        await ctx.mailbox.q.receive(1)
        await ctx.random()
        await ctx.mailbox.q.receive(2)
        await ctx.write("a.txt", "1")

    async def program(ctx: Context) -> None:
        await ctx.gather(notes(ctx), ctx.sleep(9))

    hub.start(program)
    hub.settle()
    hub.finish("main.1.1", 1)
    hub.settle()
    hub.finish("main.1.2", 1)
    hub.settle()
    open_before = hub.scheduler.requests.note_open
    hub.finish("main.1.1", 3)
    hub.settle()

    assert (open_before, hub.scheduler.requests.note_open) == (True, False)
    assert hub.said(f.Begin) == []
