"""Branches of a worker: groups, and how the failure of one cancels the others."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import cast

import pytest
from tests.unit.runtime.fake_hub import FakeHub

from bartack.errors import (
    DeadlineExceededError,
    StepCancelledError,
)
from bartack.runtime.context.context import Context
from bartack.runtime.protocol import frames as f


def test_a_failing_branch_cancels_the_others_and_is_raised_when_all_have_ended(hub: FakeHub) -> None:
    trace: list[str] = []

    async def worker(ctx: Context, name: str) -> None:
        try:
            await ctx.mailbox[name].receive(60)
        except StepCancelledError as error:
            trace.append(f"{name}: {error.reason}")
            raise
        finally:
            await ctx.shell("tidy", name)
            trace.append(f"{name} tidied")

    async def failing(ctx: Context) -> None:
        await ctx.sleep(1)
        raise ValueError("broken")

    async def program(ctx: Context) -> str:
        try:
            await ctx.gather(worker(ctx, "a"), failing(ctx), worker(ctx, "b"))
        except ValueError as error:
            trace.append("raised")
            return str(error)
        return "?"

    hub.start(program)
    hub.settle()
    hub.finish("main.1.2", 1)
    hub.settle()
    assert [(frame.p, frame.n) for frame in hub.said(f.Cancel)] == [("main.1.1", 1), ("main.1.3", 1)]
    assert trace == ["a: another branch failed", "b: another branch failed"]
    hub.answer({"argv": ["tidy"], "status": 0}, step="shell")
    hub.answer({"argv": ["tidy"], "status": 0}, step="shell")

    assert hub.result() == "broken"
    assert trace[2:] == ["a tidied", "b tidied", "raised"]
    first = list(trace)
    trace.clear()
    assert hub.run(program) == "broken"
    assert trace == first


def test_if_the_outcome_was_first_the_next_step_is_the_cancelled_one(hub: FakeHub) -> None:
    seen: list[object] = []

    async def slow(ctx: Context) -> None:
        seen.append(await ctx.mailbox.q.receive(60))
        await ctx.sleep(5)

    async def failing(ctx: Context) -> None:
        await ctx.sleep(1)
        raise ValueError("broken")

    async def program(ctx: Context) -> None:
        await ctx.gather(slow(ctx), failing(ctx))

    hub.start(program)
    hub.settle()
    hub.finish("main.1.2", 1)
    hub.finish("main.1.1", 1, "in time")
    hub.settle()

    with pytest.raises(ValueError, match="broken"):
        hub.result()
    assert seen == ["in time"]
    last = hub.said(f.Step)[-1]
    assert (last.p, last.n, last.cancelled) == ("main.1.1", 2, True)
    seen.clear()
    with pytest.raises(ValueError, match="broken"):
        hub.run(program)
    assert seen == ["in time"]


def test_a_cancelled_branch_learns_it_at_a_harmless_step_too(hub: FakeHub) -> None:
    seen: list[str] = []

    async def slow(ctx: Context) -> None:
        await ctx.mailbox.q.receive(60)
        try:
            await ctx.now()
        except StepCancelledError as error:
            seen.append(error.reason)
            seen.append(str(await ctx.exists("nowhere")))
            raise

    async def failing(ctx: Context) -> None:
        await ctx.sleep(1)
        raise ValueError("broken")

    async def program(ctx: Context) -> None:
        await ctx.gather(slow(ctx), failing(ctx))

    hub.start(program)
    hub.settle()
    hub.finish("main.1.2", 1)
    hub.finish("main.1.1", 1, "in time")
    hub.settle()

    with pytest.raises(ValueError, match="broken"):
        hub.result()
    assert seen == ["another branch failed", "False"]
    with pytest.raises(ValueError, match="broken"):
        hub.run(program)
    assert seen[2:] == seen[:2]


def test_a_cancellation_is_raised_once(hub: FakeHub) -> None:
    async def stubborn(ctx: Context) -> str:
        try:
            await ctx.mailbox.q.receive(60)
        except StepCancelledError:
            return str(await ctx.mailbox.q.receive(30))
        return "?"

    async def failing(ctx: Context) -> None:
        await ctx.sleep(1)
        raise ValueError("broken")

    async def program(ctx: Context) -> object:
        async with ctx.task_group() as group:
            branch = group.start(stubborn(ctx))
            other = group.start(failing(ctx))
            try:
                await other
            except ValueError:
                return [await branch]
        return None

    hub.start(program)
    hub.settle()
    hub.finish("main.1.2", 1)
    hub.settle()
    hub.answer("late", step="receive")

    with pytest.raises(ValueError, match="broken"):
        hub.result()


def test_collected_branches_go_on_when_one_fails(hub: FakeHub) -> None:
    async def failing(ctx: Context) -> str:
        await ctx.sleep(1)
        raise ValueError("broken")

    async def program(ctx: Context) -> list[object]:
        outcomes = await ctx.gather(failing(ctx), ctx.mailbox.q.receive(5), on_failure="collect")
        first, second = outcomes
        assert first.error is not None
        with pytest.raises(ValueError, match="broken"):
            first.unwrap()
        return [first.ok, first.error.kind, first.error.message, second.ok, second.unwrap()]

    hub.start(program)
    hub.settle()
    hub.finish("main.1.1", 1)
    hub.settle()
    hub.answer("fine")

    assert hub.result() == [False, "ValueError", "broken", True, "fine"]


def test_an_empty_gather_is_done_at_once(hub: FakeHub) -> None:
    async def program(ctx: Context) -> object:
        branches: list[Awaitable[object]] = []
        return await ctx.gather(*branches)

    assert hub.run(program) == []


def test_a_task_group_waits_for_its_branches(hub: FakeHub) -> None:
    async def program(ctx: Context) -> list[object]:
        async with ctx.task_group() as group:
            first = group.start(ctx.mailbox.a.receive(5))
            second = group.start(ctx.mailbox.b.receive(5))
        return [await first, await second]

    hub.start(program)
    hub.settle()
    assert [opened.key for opened in hub.steps()] == [("main.1.1", 1), ("main.1.2", 1)]
    hub.answer("a")
    assert not hub.scheduler.ended
    hub.answer("b")

    assert hub.result() == ["a", "b"]


def test_an_exception_in_the_block_cancels_the_branches_of_its_group(hub: FakeHub) -> None:
    async def program(ctx: Context) -> None:
        async with ctx.task_group() as group:
            group.start(ctx.mailbox.a.receive(5))
            await ctx.sleep(1)
            raise ValueError("in the block")

    hub.start(program)
    hub.settle()
    hub.finish("main", 2)
    hub.settle()

    with pytest.raises(ValueError, match="in the block"):
        hub.result()
    assert [(frame.p, frame.n) for frame in hub.said(f.Cancel)] == [("main.1.1", 1)]


def test_a_failing_branch_interrupts_the_block_of_its_group(hub: FakeHub) -> None:
    async def failing(ctx: Context) -> None:
        await ctx.sleep(1)
        raise ValueError("in the branch")

    async def program(ctx: Context) -> str:
        try:
            async with ctx.task_group() as group:
                group.start(failing(ctx))
                await ctx.mailbox.a.receive(60)
        except ValueError as error:
            return str(error)
        return "?"

    hub.start(program)
    hub.settle()
    hub.finish("main.1.1", 1)
    hub.settle()

    assert hub.result() == "in the branch"
    assert hub.run(program) == "in the branch"


def test_a_branch_that_waits_for_another_can_be_cancelled(hub: FakeHub) -> None:
    seen: list[str] = []

    async def waiting(ctx: Context, other: Awaitable[object]) -> None:
        try:
            await other
        except StepCancelledError as error:
            seen.append(error.reason)
            raise

    async def program(ctx: Context) -> None:
        async with ctx.task_group() as outer:
            endless = outer.start(ctx.mailbox.a.receive(60))
            try:
                async with ctx.timeout(5):
                    await ctx.gather(waiting(ctx, endless))
            except DeadlineExceededError:
                seen.append("late")
            raise ValueError("enough")

    hub.start(program)
    hub.settle()
    hub.fire(*hub.deadlines()[0])
    hub.settle()

    with pytest.raises(ValueError, match="enough"):
        hub.result()
    assert seen == ["its deadline of 5 s passed", "late"]


def test_a_branch_must_be_something_to_await(hub: FakeHub) -> None:
    async def program(ctx: Context) -> str:
        with pytest.raises(TypeError, match="something to await, not int"):
            await ctx.gather(cast("Awaitable[object]", 5))
        with pytest.raises(RuntimeError, match="must be entered"):
            ctx.task_group().start(cast("Awaitable[object]", None))
        return "fine"

    assert hub.run(program) == "fine"
