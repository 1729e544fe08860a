"""The scheduler: turns, replay, cancellation, deadlines, failure, and what a worker must not await."""

from __future__ import annotations

import asyncio
import random
import types
from collections.abc import Awaitable, Callable, Generator
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.runtime.fake_hub import FakeHub, Program

from bartack.errors import (
    DeadlineExceededError,
    ForeignAwaitError,
    LimitExceededError,
    MessageTooLargeError,
    NestedStepError,
    ReplayMismatchError,
    SessionFailedError,
    ShellError,
    StepCancelledError,
)
from bartack.runtime.context.context import Context
from bartack.runtime.context.decorators import worker
from bartack.runtime.context.invoke import report_end
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
            await ctx.think("x" * 600_000)
        with pytest.raises(MessageTooLargeError):
            ctx.print("x" * 600_000)
        return "went on"

    assert hub.run(program) == "went on"


def test_a_long_value_goes_beside_the_frame(hub: FakeHub) -> None:
    async def program(ctx: Context) -> None:
        await ctx.mailbox.q.send("x" * 100_000)

    hub.start(program)
    hub.settle()

    (step,) = hub.said(f.Step)
    assert step.v is None
    assert step.ref is not None
    assert step.ref.size == 100_002


# Replay.


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


def test_code_behind_the_last_finished_step_may_change(hub: FakeHub) -> None:
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


# Groups and cancellation.


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


# Deadlines.


async def limited_receive(ctx: Context) -> str:
    try:
        async with ctx.timeout(5):
            return str(await ctx.mailbox.q.receive(60))
    except DeadlineExceededError as error:
        return f"{error.kind} {error.waited_s:g} {origin_of(error)}"


def test_a_deadline_interrupts_the_wait_inside(hub: FakeHub) -> None:
    hub.start(limited_receive)
    hub.settle()
    (begin,) = hub.said(f.Begin)
    assert (begin.p, begin.n, begin.step, begin.timeout_s) == ("main", 1, "timeout", 5.0)
    hub.fire("main", 1)
    hub.settle()

    assert hub.result() == "timeout 5 ('main', 1)"
    assert [(frame.p, frame.n) for frame in hub.said(f.Cancel)] == [("main", 2)]
    assert hub.run(limited_receive) == "timeout 5 ('main', 1)"


def test_a_block_that_is_left_in_time_says_so(hub: FakeHub) -> None:
    hub.start(limited_receive)
    hub.answer("in time")

    assert hub.result() == "in time"
    (note,) = hub.said(f.Note)
    assert (note.p, note.n, note.step) == ("main", 1, "timeout")


async def limited_then_two_sleeps(ctx: Context) -> str:
    found = await limited_receive(ctx)
    await ctx.sleep(1)
    await ctx.sleep(2)
    return found


def test_a_deadline_that_fires_after_its_block_was_left_is_ignored(hub: FakeHub) -> None:
    hub.start(limited_then_two_sleeps)
    hub.settle()
    hub.finish("main", 2, "in time")
    hub.fire("main", 1)
    hub.settle()
    hub.answer(step="sleep")
    assert [past.step for past in hub.journal] == ["receive", "timeout", "sleep"]
    hub.open.clear()
    hub.start(limited_then_two_sleeps)
    hub.answer(step="sleep")

    assert hub.result() == "in time"
    assert [step.cancelled for step in hub.said(f.Step)] == [False] * 4
    assert hub.said(f.Cancel) == []


def test_a_block_that_ended_although_its_time_was_over_is_not_interrupted(hub: FakeHub) -> None:
    hub.start(limited_then_two_sleeps)
    hub.settle()
    hub.fire("main", 1)
    hub.finish("main", 2, "just so")
    hub.settle()
    hub.answer(step="sleep")
    hub.open.clear()
    hub.start(limited_then_two_sleeps)
    hub.answer(step="sleep")

    assert hub.result() == "just so"
    assert [step.cancelled for step in hub.said(f.Step)] == [False] * 4


def nested_deadlines(*fired: int) -> Callable[[FakeHub], str]:
    """What comes of two nested blocks when the deadlines of these numbers pass."""

    async def program(ctx: Context) -> str:
        try:
            async with ctx.timeout(9):
                try:
                    async with ctx.timeout(3):
                        await ctx.mailbox.q.receive(60)
                except DeadlineExceededError as error:
                    await ctx.sleep(1)
                    return f"inner {error.waited_s:g}"
        except DeadlineExceededError as error:
            return f"outer {error.waited_s:g}"
        return "?"

    def run(hub: FakeHub) -> str:
        hub.start(program)
        hub.settle()
        for n in fired:
            hub.fire("main", n)
        hub.settle()
        if hub.steps("sleep"):
            hub.answer(step="sleep")
        result = hub.result()
        assert hub.run(program) == result
        return str(result)

    return run


def test_of_nested_deadlines_the_one_that_passed_counts(hub: FakeHub) -> None:
    assert nested_deadlines(2)(hub) == "inner 3"


def test_the_outer_deadline_leaves_the_inner_block_as_well(hub: FakeHub) -> None:
    assert nested_deadlines(1)(hub) == "outer 9"


def test_when_both_deadlines_passed_the_outer_one_counts(hub: FakeHub) -> None:
    assert nested_deadlines(2, 1)(hub) == "outer 9"


def test_a_deadline_reaches_into_branches(hub: FakeHub) -> None:
    async def program(ctx: Context) -> str:
        try:
            async with ctx.timeout(5):
                await ctx.gather(ctx.mailbox.a.receive(60), ctx.mailbox.b.receive(60))
        except DeadlineExceededError:
            return "late"
        return "?"

    hub.start(program)
    hub.settle()
    hub.fire("main", 1)
    hub.settle()

    assert hub.result() == "late"
    assert hub.run(program) == "late"


def test_a_swallowed_interruption_still_makes_its_block_late(hub: FakeHub) -> None:
    async def program(ctx: Context) -> str:
        try:
            async with ctx.timeout(5):
                try:
                    await ctx.mailbox.a.receive(60)
                except StepCancelledError:
                    await ctx.sleep(1)
        except DeadlineExceededError:
            return "late"
        return "?"

    hub.start(program)
    hub.settle()
    hub.fire("main", 1)
    hub.settle()
    hub.answer(step="sleep")

    assert hub.result() == "late"


def test_another_error_in_a_late_block_is_not_hidden(hub: FakeHub) -> None:
    async def program(ctx: Context) -> None:
        async with ctx.timeout(5):
            try:
                await ctx.mailbox.a.receive(60)
            except StepCancelledError:
                raise ValueError("while tidying") from None

    hub.start(program)
    hub.settle()
    hub.fire("main", 1)
    hub.settle()

    with pytest.raises(ValueError, match="while tidying"):
        hub.result()


def test_a_cancellation_from_outside_is_no_deadline(hub: FakeHub) -> None:
    async def program(ctx: Context) -> None:
        async with ctx.timeout(5):
            await ctx.mailbox.a.receive(60)

    hub.start(program)
    hub.refuse(StepCancelledError("somebody else's reason"))

    with pytest.raises(StepCancelledError, match="somebody else's reason"):
        hub.result()


# Failure of the session.


def test_every_wait_ends_when_the_session_fails(hub: FakeHub) -> None:
    seen: list[str] = []

    async def branch(ctx: Context, name: str) -> None:
        try:
            await ctx.mailbox[name].receive(60)
        except SessionFailedError as error:
            seen.append(f"{name}: {error.worker}: {error.problem}")
            raise

    async def program(ctx: Context) -> None:
        await ctx.gather(branch(ctx, "a"), branch(ctx, "b"))

    hub.start(program)
    hub.settle()
    hub.fail_session()

    with pytest.raises(SessionFailedError) as failed:
        hub.result()
    assert isinstance(failed.value.__cause__, ValueError)
    assert seen == ["a: main/2:other: it broke", "b: main/2:other: it broke"]


async def waits(ctx: Context) -> None:
    """Waits for what never comes."""
    await ctx.mailbox.never.receive(60)


async def complains(ctx: Context) -> None:
    """Fails in its own way when the session does."""
    try:
        await ctx.mailbox.never.receive(60)
    except SessionFailedError as error:
        raise KeyError("mine") from error


def test_a_worker_reports_the_failure_of_its_session_in_a_word_and_its_own_in_full(hub: FakeHub) -> None:
    ends: list[f.Result | f.Failed] = []
    for program in (waits, complains):
        hub.start(program)
        hub.settle()
        hub.fail_session()
        ends.append(report_end(worker(program), hub.scheduler))

    met, own = ends

    assert isinstance(met, f.Failed)
    assert isinstance(own, f.Failed)
    assert (met.e.type, met.e.stack, met.e.cause) == ("bartack.errors:SessionFailedError", [], None)
    assert own.e.type == "builtins:KeyError"
    assert own.e.stack
    assert own.e.cause is not None


def test_behind_a_failure_only_clean_up_works(hub: FakeHub) -> None:
    seen: list[str] = []

    async def program(ctx: Context) -> str:
        try:
            await ctx.sleep(60)
        except SessionFailedError:
            with pytest.raises(SessionFailedError):
                await ctx.mailbox.q.send("too late")
            ctx.print("tidying")
            seen.append(str(await ctx.shell("rm", "lock")))
            await ctx.write("note.txt", "x")
            seen.append(await ctx.read("note.txt"))
        return "tidy"

    hub.start(program)
    hub.settle()
    hub.fail_session()
    assert [step.step for step in hub.said(f.Step)] == ["sleep", "shell"]
    hub.answer({"argv": ["rm"], "status": 0, "stdout": "gone\n"}, step="shell")

    assert hub.result() == "tidy"
    assert seen == ["gone", "x"]


def test_answers_that_come_after_the_failure_are_ignored(hub: FakeHub) -> None:
    async def program(ctx: Context) -> str:
        try:
            await ctx.sleep(60)
        except SessionFailedError:
            return "failed"
        return "slept"

    hub.start(program)
    hub.settle()
    hub.finish("main", 1)
    late = hub.to_worker.pop()
    hub.fail_session()
    hub.to_worker.append(late)
    hub.hand_over()

    assert hub.result() == "failed"


def test_a_failure_during_replay_is_learned_at_the_frontier(hub: FakeHub) -> None:
    seen: list[str] = []

    async def program(ctx: Context) -> None:
        await ctx.sleep(1)
        seen.append("slept")
        await ctx.sleep(2)

    hub.start(program)
    hub.answer()
    hub.settle()
    seen.clear()
    heard = len(hub.heard)
    hub.start(program)
    failure = f.SessionFailed(e=f.ErrorData(type="builtins:ValueError", message="x"))
    hub.to_worker.appendleft(f.encode(failure)[4:])
    hub.settle()

    with pytest.raises(SessionFailedError):
        hub.result()
    assert seen == ["slept"]
    assert hub.heard[heard:] == []


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
