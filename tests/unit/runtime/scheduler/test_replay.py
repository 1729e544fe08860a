"""Replay: nothing is executed again, nothing is sent before its end, and a program that does something else is found."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.runtime.fake_hub import FakeHub, Program

from bartack.errors import (
    DeadlineExceededError,
    ReplayMismatchError,
    ShellError,
)
from bartack.runtime.context.context import Context
from bartack.runtime.protocol import frames as f


def test_replay_executes_nothing_again(hub: FakeHub) -> None:
    async def program(ctx: Context) -> list[object]:
        ctx.print("hello")
        first = await ctx.mailbox.q.receive(1)
        drawn = await ctx.random()
        async with ctx.timeout(5):
            await ctx.sleep(1)
        return [first, drawn]

    hub.start(program)
    hub.answer("message")
    hub.answer()
    result = hub.result()
    heard = len(hub.heard)

    assert hub.run(program) == result
    assert hub.heard[heard:] == []


def test_a_journaled_failure_is_raised_again(hub: FakeHub) -> None:
    async def program(ctx: Context) -> list[object]:
        with pytest.raises(ShellError) as caught:
            await ctx.shell("make")
        await ctx.sleep(1)
        return [caught.value.status, caught.value.argv, str(caught.value)]

    hub.start(program)
    hub.refuse(ShellError(["make"], 2, "broken"))
    hub.start(program)
    hub.answer()

    assert hub.result() == [2, ["make"], str(ShellError(["make"], 2, "broken"))]


def test_a_step_that_has_begun_must_be_the_same_before_anything_is_sent(hub: FakeHub) -> None:
    async def before(ctx: Context) -> None:
        await ctx.gather(ctx.sleep(600))

    async def after(ctx: Context) -> None:
        await ctx.gather(ctx.sleep(601), ctx.shell("touch", "made"))

    hub.start(before)
    hub.settle()
    heard = len(hub.heard)
    scheduler = hub.start(after)
    hub.settle()

    assert isinstance(scheduler.fatal, ReplayMismatchError)
    assert hub.heard[heard:] == []


def test_a_step_that_was_open_is_asked_for_again_with_the_same_number(hub: FakeHub) -> None:
    async def program(ctx: Context) -> None:
        await ctx.sleep(1)
        await ctx.sleep(2)

    hub.start(program)
    hub.answer()
    hub.settle()
    hub.start(program)
    hub.open.clear()
    hub.settle()

    first, second, again = hub.said(f.Step)
    assert (second.p, second.n, second.fp) == (again.p, again.n, again.fp) != (first.p, first.n, first.fp)


def test_nothing_is_sent_before_the_history_is_used_up(hub: FakeHub) -> None:
    async def program(ctx: Context) -> None:
        ctx.print("a")
        await ctx.gather(ctx.sleep(1), ctx.sleep(2), ctx.sleep(3))

    hub.start(program)
    hub.settle()
    hub.finish("main.2.2", 1)
    hub.settle()
    heard = len(hub.heard)
    hub.start(program)
    while len(hub.to_worker) > 1:
        hub.hand_over()
        assert not hub.to_hub
    hub.open.clear()
    hub.settle()

    assert [(frame.p, frame.step) for frame in hub.heard[heard:] if isinstance(frame, f.Step)] == [
        ("main.2.1", "sleep"),
        ("main.2.3", "sleep"),
    ]


def mismatch(hub: FakeHub, program: Program) -> ReplayMismatchError:
    heard = len(hub.heard)
    hub.start(program)
    hub.settle()
    assert hub.heard[heard:] == [], "something was said before the mismatch was found"
    assert isinstance(hub.scheduler.fatal, ReplayMismatchError)
    return hub.scheduler.fatal


async def one_sleep(ctx: Context) -> None:
    await ctx.sleep(1)
    await ctx.mailbox.q.receive(5)


async def other_duration(ctx: Context) -> None:
    await ctx.sleep(2)


async def other_kind(ctx: Context) -> None:
    await ctx.shell("ls")


async def nothing(ctx: Context) -> None:
    return


async def output_instead(ctx: Context) -> None:
    ctx.print("x")
    await ctx.sleep(1)


async def deadline_instead(ctx: Context) -> None:
    async with ctx.timeout(5):
        await ctx.sleep(1)


async def branches_instead(ctx: Context) -> None:
    await ctx.gather(ctx.sleep(1))


async def file_instead(ctx: Context) -> None:
    await ctx.write("a", "b")


@pytest.mark.parametrize(
    ("program", "asked"),
    [
        (other_duration, "a sleep of 2 s"),
        (other_kind, "the command 'ls'"),
        (nothing, "nothing: it is at its end"),
        (output_instead, "the output 'x'"),
        (deadline_instead, "a deadline of 5 s"),
        (branches_instead, "nothing yet: it waits for its branches"),
        (file_instead, "a write of the file 'a'"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_program_that_asks_for_another_step_is_a_mismatch_and_says_nothing(
    hub: FakeHub, program: Program, asked: str
) -> None:
    hub.start(one_sleep)
    hub.answer()
    hub.answer()

    error = mismatch(hub, program)

    assert error.step == "main:1"
    assert error.recorded == "a sleep of 1 s"
    assert error.asked.startswith(asked)


def test_a_harmless_step_of_another_kind_is_a_mismatch(hub: FakeHub) -> None:
    async def draws(ctx: Context) -> None:
        await ctx.random()

    async def looks(ctx: Context) -> None:
        await ctx.now()

    hub.run(draws)

    assert mismatch(hub, looks).asked.startswith("the time")


def test_other_output_is_a_mismatch(hub: FakeHub) -> None:
    async def before(ctx: Context) -> None:
        ctx.print("before")

    async def after(ctx: Context) -> None:
        ctx.print("after")

    hub.run(before)

    assert mismatch(hub, after).asked.startswith("the output 'after'")


def test_a_mismatch_cannot_be_caught(hub: FakeHub) -> None:
    async def before(ctx: Context) -> None:
        await ctx.sleep(1)

    async def after(ctx: Context) -> str:
        try:
            await ctx.sleep(2)
        except BaseException:  # noqa: BLE001 - the subject
            return "caught"
        return "went on"

    hub.start(before)
    hub.answer()

    assert mismatch(hub, after).step == "main:1"


def test_code_after_the_last_finished_step_may_change(hub: FakeHub) -> None:
    async def before(ctx: Context) -> None:
        await ctx.sleep(1)
        await ctx.shell("old")

    async def after(ctx: Context) -> str:
        await ctx.sleep(1)
        return str(await ctx.mailbox.q.receive(3))

    hub.start(before)
    hub.answer()
    hub.settle()
    hub.open.clear()
    hub.start(after)
    hub.answer("new")

    assert hub.result() == "new"


def test_a_step_that_ended_while_the_worker_replayed_is_not_lost(hub: FakeHub) -> None:
    async def program(ctx: Context) -> list[object]:
        return await ctx.gather(ctx.mailbox.a.receive(1), ctx.mailbox.b.receive(1))

    hub.start(program)
    hub.settle()
    hub.start(program)
    hub.finish("main.1.2", 1, "second")
    hub.settle()
    hub.finish("main.1.1", 1, "first")
    hub.settle()

    assert hub.result() == ["first", "second"]
    assert hub.run(program) == ["first", "second"]


async def order_dependent(ctx: Context) -> list[str]:
    """Four branches that share a list without a lock; each step depends on what is in it."""
    seen: list[str] = []

    async def branch(name: str) -> None:
        for turn in range(3):
            await ctx.sleep(len(seen))
            seen.append(f"{name}{turn}")
            seen.append(f"{name}{await ctx.random(0, 9)}")
            ctx.print(*seen[-2:])
            if turn == 1:
                await ctx.gather(*[nested(f"{name}{twin}") for twin in "xy"])

    async def nested(name: str) -> None:
        try:
            async with ctx.timeout(len(seen)):
                seen.append(str(await ctx.mailbox.q.receive(len(seen))))
        except DeadlineExceededError:
            seen.append(f"{name} late")

    await ctx.gather(*[branch(name) for name in "abcd"])
    return seen


def shuffle(hub: FakeHub, program: Program, rng: random.Random, crashes: int) -> object:
    """Run a program with everything in random order, and kill worker or hub at random moments."""
    hub.start(program, chunk=rng.choice([1, 2, 1000]))
    while not hub.scheduler.ended:
        moves = ["hear"] * (3 * bool(hub.to_hub)) + ["hand over"] * (3 * bool(hub.to_worker))
        moves += ["finish"] * bool(hub.steps()) + ["fire"] * bool(hub.deadlines())
        if crashes and (not moves or rng.random() < 0.1):
            crashes -= 1
            kill(hub, rng)
            hub.start(program, chunk=rng.choice([1, 2, 1000]))
        else:
            make_move(hub, rng, rng.choice(moves))
    return hub.result()


def kill(hub: FakeHub, rng: random.Random) -> None:
    if rng.random() < 0.5:
        hub.lose_tail(rng.randint(0, len(hub.journal) - hub.synced))
    else:
        for _ in range(rng.randint(0, len(hub.to_hub))):
            hub.hear()


def make_move(hub: FakeHub, rng: random.Random, move: str) -> None:
    match move:
        case "hear":
            hub.hear()
        case "hand over":
            hub.hand_over()
        case "finish":
            hub.finish(*rng.choice(hub.steps()).key, rng.randint(0, 99))
        case _:
            hub.fire(*rng.choice(hub.deadlines()))


@settings(max_examples=300)
@given(st.integers(0, 2**32), st.integers(0, 5))
def test_branches_in_any_order_replay_alike_whatever_is_killed(seed: int, crashes: int) -> None:
    hub = FakeHub()
    try:
        result = shuffle(hub, order_dependent, random.Random(seed), crashes)
        while hub.to_hub:
            hub.hear()
        heard = len(hub.heard)

        assert hub.run(order_dependent) == result
        assert hub.heard[heard:] == []
    finally:
        hub.close()
