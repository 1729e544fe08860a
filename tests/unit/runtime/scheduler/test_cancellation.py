"""How waits end: deadlines, and the failure of the session."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.unit.runtime.fake_hub import FakeHub

from bartack.errors import (
    DeadlineExceededError,
    SessionFailedError,
    StepCancelledError,
)
from bartack.runtime.context.context import Context
from bartack.runtime.context.decorators import worker
from bartack.runtime.context.invoke import report_end
from bartack.runtime.protocol import frames as f
from bartack.runtime.protocol.exceptions import origin_of

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


def test_after_a_failure_only_clean_up_works(hub: FakeHub) -> None:
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
