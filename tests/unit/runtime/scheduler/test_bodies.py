"""Bodies of steps: where they run, what comes of them, and how they are tried again, timed and cancelled."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import pickle
import threading
import time
import weakref
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from itertools import count
from types import SimpleNamespace
from typing import cast

import msgspec
import pytest
from tests.unit.runtime.fake_hub import FakeHub

from bartack.errors import (
    MessageValueError,
    NestedStepError,
    OutcomeUnknownError,
    SessionFailedError,
    StepCancelledError,
    StepError,
    StepTimeoutError,
    TypeMismatchError,
)
from bartack.runtime.context.context import Context
from bartack.runtime.context.decorators import step
from bartack.runtime.protocol import frames as f
from bartack.runtime.protocol.durations import LONGEST_S
from bartack.runtime.protocol.step_key import step_key
from bartack.runtime.scheduler import bodies as _bodies
from bartack.runtime.scheduler import body_threads as _body_threads
from bartack.runtime.scheduler.body import Retry, StepInfo, step_info

CALLS: list[object] = []
INFOS: list[StepInfo] = []


@pytest.fixture(autouse=True)
def forget_calls() -> None:
    CALLS.clear()
    INFOS.clear()


class QuotaError(Exception):
    """An exception of a program."""

    def __init__(self, left: int) -> None:
        super().__init__(left)
        self.left = left
        self.retry_after = 7.5


@dataclass
class Basket:
    items: list[str]


@step
def double(x: int) -> int:
    CALLS.append(threading.get_ident())
    return x * 2


@step
async def double_later(x: int) -> int:
    await asyncio.sleep(0)
    CALLS.append(threading.current_thread().name)
    return x * 2


@step
def fill(basket: Basket, item: str = "apple", *more: str, twice: bool = False) -> Basket:
    basket.items += [item, *more] * (2 if twice else 1)
    return basket


@step
def look() -> str:
    INFOS.append(step_info())
    return step_info().key


@step
async def look_later() -> str:
    await asyncio.sleep(0)
    INFOS.append(step_info())
    return step_info().key


@step
def give_away() -> object:
    return step_info()


@step
def answer(value: object) -> int:
    CALLS.append(value)
    return cast("int", value)


@step
def run_a_loop() -> int:
    async def main() -> int:
        await asyncio.sleep(0)
        return 3

    return asyncio.run(main())


def test_a_body_is_framed_by_begin_and_done(hub: FakeHub) -> None:
    async def program(ctx: Context) -> int:
        return await double(21)

    assert hub.run(program) == 42
    begin, done = hub.heard
    assert isinstance(begin, f.Begin)
    assert isinstance(done, f.Done)
    assert (begin.p, begin.n, begin.step, begin.about, begin.i) == (
        "main",
        1,
        "body",
        f"{__name__}.double",
        0,
    )
    assert (begin.timeout_s, begin.grace_s, begin.max_crashes) == (600.0, 0.0, 3)
    assert (done.p, done.n, done.step, done.fp) == ("main", 1, "body", begin.fp)
    assert bytes(cast("msgspec.Raw", done.v)) == b"42"


@step(name="look-up")
def look_up() -> int:
    return 1


@step(name="look-up", changes=False)
def only_look_up() -> int:
    return 2


@pytest.mark.requirement("fleet-copies-unneeded")
def test_that_a_body_changes_nothing_can_be_added_to_a_program_later(hub: FakeHub) -> None:
    async def before(ctx: Context) -> int:
        return await look_up()

    async def after(ctx: Context) -> list[int]:
        return [await only_look_up(), await only_look_up()]

    hub.run(before)

    assert hub.run(after) == [1, 2]
    assert [begin.changes for begin in hub.said(f.Begin)] == [True, False]


@pytest.fixture
def ticking(monkeypatch: pytest.MonkeyPatch) -> None:
    """The monotonic clock goes on by 7 ms each time that it is read."""
    clock = SimpleNamespace(monotonic_ns=count(7_000_000, 7_000_000).__next__, time_ns=time.time_ns)
    monkeypatch.setattr(_body_threads, "time", clock)
    monkeypatch.setattr(_bodies, "time", clock)


@pytest.mark.requirement("times-are-measured")
@pytest.mark.usefixtures("ticking")
def test_the_time_of_a_body_is_measured_where_it_runs(hub: FakeHub) -> None:
    async def program(ctx: Context) -> None:
        await double(1)
        await double_later(2)
        await ctx.gather(double(3))
        await timed(4)
        with contextlib.suppress(QuotaError):
            await run_out(5)

    hub.start(program)
    hub.wait_for_bodies()

    hub.result()
    assert [done.took_us for done in hub.said(f.Done)] == [7_000] * 5


@step(timeout_s=60)
def timed(x: int) -> int:
    return x


def test_a_replayed_body_is_not_executed(hub: FakeHub) -> None:
    async def program(ctx: Context) -> int:
        return await double(21)

    hub.run(program)

    assert hub.run(program) == 42
    assert len(CALLS) == 1


def test_a_lone_sync_body_runs_where_the_worker_runs(hub: FakeHub) -> None:
    async def program(ctx: Context) -> int:
        return await double(1)

    hub.run(program)

    assert [threading.get_ident()] == CALLS


def test_sync_bodies_of_several_branches_run_side_by_side(hub: FakeHub) -> None:
    async def program(ctx: Context) -> object:
        return await ctx.gather(meet(1), meet(2))

    hub.start(program)
    hub.wait_for_bodies()

    assert hub.result() == [1, 2]


BARRIER = threading.Barrier(2, timeout=60)


@step
def meet(x: int) -> int:
    BARRIER.wait()
    return x


def test_bodies_wait_for_each_other_where_there_are_no_more_threads(
    hub: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if thread.name.startswith("bartack-step-") and thread.name != "bartack-step-1":
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)

    async def program(ctx: Context) -> list[int]:
        return await ctx.gather(*[double(x) for x in range(5)])

    hub.start(program)
    hub.wait_for_bodies()

    assert hub.result() == [0, 2, 4, 6, 8]
    assert len(set(CALLS)) == 1


def test_a_sync_body_inside_a_deadline_can_be_given_up(hub: FakeHub) -> None:
    async def program(ctx: Context) -> int:
        async with ctx.timeout(5):
            return await double(1)

    hub.start(program)
    hub.wait_for_bodies()

    assert hub.result() == 2
    assert [threading.get_ident()] != CALLS


def test_async_bodies_run_on_one_loop_in_a_thread_of_its_own(hub: FakeHub) -> None:
    async def program(ctx: Context) -> object:
        return [await double_later(1), *await ctx.gather(double_later(2), double_later(3))]

    hub.start(program)
    while not hub.scheduler.ended:
        hub.settle()
        hub.wait_for_bodies()

    assert hub.result() == [2, 4, 6]
    assert set(CALLS) == {"bartack-loop"}
    assert [frame.grace_s for frame in hub.said(f.Begin)] == [5.0] * 3


def test_other_branches_go_on_while_a_body_runs(hub: FakeHub) -> None:
    order: list[str] = []

    async def slow(ctx: Context) -> None:
        await wait_for_release()
        order.append("body")

    async def quick(ctx: Context) -> None:
        await ctx.sleep(1)
        order.append("slept")
        RELEASE.set()

    async def program(ctx: Context) -> None:
        await ctx.gather(slow(ctx), quick(ctx))

    hub.start(program)
    hub.answer(step="sleep")
    hub.wait_for_bodies()

    assert order == ["slept", "body"]


RELEASE = threading.Event()


@step
def wait_for_release() -> bool:
    return RELEASE.wait(60)


def test_a_body_can_use_asyncio_in_its_own_way(hub: FakeHub) -> None:
    async def program(ctx: Context) -> int:
        return await run_a_loop()

    assert hub.run(program) == 3


# Values.


def test_what_a_body_does_to_its_arguments_is_not_seen(hub: FakeHub) -> None:
    async def program(ctx: Context) -> list[object]:
        mine = Basket(["pear"])
        filled = await fill(mine, "plum", "fig", twice=True)
        return [mine.items, filled.items, type(filled).__name__]

    result = hub.run(program)

    assert result == [["pear"], ["pear", "plum", "fig", "plum", "fig"], "Basket"]
    assert hub.run(program) == result


def test_what_a_program_does_to_a_result_does_not_reach_the_body(hub: FakeHub) -> None:
    async def program(ctx: Context) -> list[str]:
        first = await fill(Basket([]))
        first.items.append("mine")
        return (await fill(Basket([]))).items

    assert hub.run(program) == ["apple"]


@pytest.mark.parametrize(
    ("value", "error"),
    [("text", TypeMismatchError), ({1}, MessageValueError), (float("nan"), MessageValueError)],
    ids=repr,
)
def test_a_result_that_does_not_travel_is_the_outcome(
    hub: FakeHub, value: object, error: type[Exception]
) -> None:
    ANSWERS[:] = [value]

    async def program(ctx: Context) -> str:
        with pytest.raises(error):
            await give_answer()
        return "raised"

    assert hub.run(program) == "raised"
    assert hub.run(program) == "raised"


ANSWERS: list[object] = []


@step
def give_answer() -> int:
    return cast("int", ANSWERS[0])


def test_arguments_that_do_not_travel_are_refused_before_anything_happens(hub: FakeHub) -> None:
    async def program(ctx: Context) -> None:
        await answer({1})

    with pytest.raises(MessageValueError):
        hub.run(program)
    assert hub.heard == []


def test_any_importable_function_can_be_a_step(hub: FakeHub) -> None:
    async def program(ctx: Context) -> list[object]:
        return [
            await ctx.step(len, [1, 2, 3]),
            await ctx.step(sorted, [3, 1, 2], name="sort"),
        ]

    assert hub.run(program) == [3, [1, 2, 3]]
    assert [frame.about for frame in hub.said(f.Begin)] == ["builtins.len", "sort"]


def test_a_step_is_no_function_for_ctx_step(hub: FakeHub) -> None:
    async def program(ctx: Context) -> None:
        await ctx.step(cast("Callable[..., object]", double), 1)

    with pytest.raises(TypeError, match="is a step already"):
        hub.run(program)


def test_ctx_step_refuses_what_cannot_be_called(hub: FakeHub) -> None:
    async def program(ctx: Context) -> None:
        await ctx.step(cast("Callable[..., object]", "note"), 1)

    with pytest.raises(TypeError, match="calls a function, and 'note' is none"):
        hub.run(program)


# Exceptions.


@step
def run_out(left: int) -> int:
    CALLS.append(left)
    raise QuotaError(left)


@step
def raise_local() -> int:
    class LocalError(Exception):
        pass

    raise LocalError("odd")


@step
def leave() -> int:
    raise SystemExit(3)


def test_an_exception_of_a_body_is_raised_as_itself_on_both_runs(hub: FakeHub) -> None:
    async def program(ctx: Context) -> list[object]:
        with pytest.raises(QuotaError) as caught:
            await run_out(3)
        return [type(caught.value).__name__, caught.value.left, caught.value.args]

    result = hub.run(program)

    assert result == ["QuotaError", 3, (3,)]
    assert hub.run(program) == result
    assert CALLS == [3]


def test_an_exception_that_cannot_be_made_again_is_a_step_error_on_both_runs(hub: FakeHub) -> None:
    async def program(ctx: Context) -> list[object]:
        with pytest.raises(StepError) as caught:
            await raise_local()
        with pytest.raises(StepError) as left:
            await leave()
        return [type(caught.value).__name__, caught.value.problem, left.value.kind]

    result = hub.run(program)

    assert result == ["StepError", "odd", "SystemExit"]
    assert hub.run(program) == result


def test_the_stack_of_a_body_is_kept(hub: FakeHub) -> None:
    async def program(ctx: Context) -> None:
        await run_out(1)

    with pytest.raises(QuotaError):
        hub.run(program)

    (done,) = hub.said(f.Done)
    assert done.e is not None
    assert [line.function for line in done.e.stack] == ["run_out"]
    assert done.e.stack[0].text == "raise QuotaError(left)"


# Trying again.


@step(retry=Retry(attempts=3, on=(OSError,), base=0.5, jitter="none"))
def flaky(fails: int) -> str:
    CALLS.append(step_info().attempt)
    if len(CALLS) <= fails:
        raise ConnectionError("again")
    return "done"


def test_a_failed_attempt_is_reported_and_tried_again(hub: FakeHub) -> None:
    async def program(ctx: Context) -> str:
        return await flaky(2)

    assert hub.run(program) == "done"
    assert CALLS == [1, 2, 3]
    assert [(done.attempt, done.retry_in_s) for done in hub.said(f.Done)] == [(1, 0.5), (2, 1.0), (3, -1.0)]
    assert [(begin.attempt, begin.i > 0) for begin in hub.said(f.Begin)] == [
        (1, True),
        (2, False),
        (3, False),
    ]


def test_the_last_error_is_the_outcome_with_the_number_of_attempts(hub: FakeHub) -> None:
    async def program(ctx: Context) -> int:
        with pytest.raises(ConnectionError) as caught:
            await flaky(9)
        return cast("int", caught.value.__dict__["attempts"])

    assert hub.run(program) == 3
    assert hub.run(program) == 3
    assert len(CALLS) == 3


def test_the_count_of_attempts_goes_on_after_a_crash(hub: FakeHub) -> None:
    async def program(ctx: Context) -> str:
        return await flaky(1)

    hub.start(program)
    hub.hand_over()
    begin = f.decode_to_hub(hub.to_hub.popleft())
    assert isinstance(begin, f.Begin)
    hub.say(f.Answer(i=begin.i, v=msgspec.Raw(b'{"attempt":3}')))
    hub.settle()

    with pytest.raises(ConnectionError):
        hub.result()
    assert CALLS == [3]


def test_an_exception_that_is_not_listed_is_not_tried_again(hub: FakeHub) -> None:
    async def program(ctx: Context) -> None:
        await ctx.step(run_out.function, 1, retry=Retry(on=(OSError,)))

    with pytest.raises(QuotaError):
        hub.run(program)
    assert CALLS == [1]


def test_an_error_can_ask_for_a_longer_wait() -> None:
    retry = Retry(base=0.5, factor=2, cap=3, jitter="none")

    assert [retry.delay_s(attempt, ValueError()) for attempt in (1, 2, 3, 4)] == [0.5, 1.0, 2.0, 3.0]
    impatient = QuotaError(1)
    impatient.retry_after = 0.1
    assert (retry.delay_s(1, QuotaError(1)), retry.delay_s(1, impatient)) == (7.5, 0.5)
    assert all(0 <= Retry(base=2).delay_s(1, ValueError()) < 2 for _ in range(50))
    impatient.retry_after = float("nan")
    assert retry.delay_s(1, impatient) == 0.5
    impatient.retry_after = float("inf")
    assert retry.delay_s(1, impatient) == LONGEST_S


# Once.


@step(once=True)
def pay(amount: int) -> str:
    CALLS.append(amount)
    return "paid"


def test_a_once_body_waits_until_its_beginning_is_durable(hub: FakeHub) -> None:
    async def program(ctx: Context) -> str:
        return await pay(5)

    hub.start(program)
    hub.hand_over()
    assert CALLS == []
    hub.settle()

    assert hub.result() == "paid"
    (begin,) = hub.said(f.Begin)
    assert begin.once
    assert begin.i > 0


def test_a_once_body_whose_beginning_is_refused_is_not_executed(hub: FakeHub) -> None:
    async def program(ctx: Context) -> str:
        try:
            return await pay(5)
        except OutcomeUnknownError:
            return "unknown"

    hub.start(program)
    hub.hand_over()
    begin = f.decode_to_hub(hub.to_hub.popleft())
    assert isinstance(begin, f.Begin)
    unknown = f.ErrorData(type="bartack.errors:OutcomeUnknownError", message="?", facts={"reason": "x"})
    hub.say(f.Refusal(i=begin.i, e=unknown))
    hub.settle()

    assert hub.result() == "unknown"
    assert CALLS == []


# Time, and giving up.


@step(timeout_s=0.01)
async def too_slow() -> str:
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        CALLS.append("stopped")
        raise
    return "?"


@step(timeout_s=0.01)
async def too_slow_and_stubborn() -> str:
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.Event().wait()
    return "much later"


def test_an_async_body_is_stopped_when_its_time_is_over(hub: FakeHub) -> None:
    async def program(ctx: Context) -> list[object]:
        with pytest.raises(StepTimeoutError) as caught:
            await too_slow()
        return [caught.value.kind, caught.value.waited_s]

    hub.start(program)
    hub.settle()
    hub.wait_for_bodies()

    assert hub.result() == ["step", 0.01]
    assert CALLS == ["stopped"]


def test_what_a_body_returns_after_its_time_counts_for_nothing(hub: FakeHub) -> None:
    async def program(ctx: Context) -> str:
        return await too_slow_and_stubborn()

    hub.start(program)
    hub.settle()
    hub.wait_for_bodies()

    with pytest.raises(StepTimeoutError):
        hub.result()


STARTED = threading.Event()
ENOUGH = threading.Event()


@pytest.fixture(autouse=True)
def fresh_events() -> None:
    STARTED.clear()
    ENOUGH.clear()


@step
async def endless() -> str:
    STARTED.set()
    try:
        await asyncio.Event().wait()
    finally:
        CALLS.append("stopped")
    return "?"


@step
async def deaf() -> str:
    """Does not stop when it is cancelled."""
    STARTED.set()
    while not ENOUGH.is_set():
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(0.01)
    return "anyway"


@step
def busy() -> str:
    STARTED.set()
    ENOUGH.wait(60)
    return "anyway"


async def limited(ctx: Context, work: Callable[[], object]) -> str:
    try:
        async with ctx.timeout(5):
            return str(await cast("Awaitable[object]", work()))
    except TimeoutError:
        return "late"


def test_a_cancelled_async_body_is_stopped_and_that_is_its_outcome(hub: FakeHub) -> None:
    async def program(ctx: Context) -> str:
        return await limited(ctx, endless)

    hub.start(program)
    hub.settle()
    assert STARTED.wait(60)
    hub.fire("main", 1)
    hub.settle()
    hub.wait_for_bodies()

    assert hub.result() == "late"
    assert CALLS == ["stopped"]
    assert hub.said(f.Cancel) == []
    assert hub.run(program) == "late"


def test_the_hub_is_told_of_a_sync_body_that_nobody_wants(hub: FakeHub) -> None:
    async def program(ctx: Context) -> str:
        return await limited(ctx, busy)

    hub.start(program)
    hub.settle()
    assert STARTED.wait(60)
    hub.fire("main", 1)
    hub.hand_over()

    hub.settle()
    (cancel,) = hub.said(f.Cancel)
    assert (cancel.p, cancel.n) == ("main", 2)
    ENOUGH.set()
    hub.wait_for_bodies()
    assert hub.said(f.Done) == []
    assert not hub.scheduler.ended
    assert hub.run(program) == "late"


def test_the_hub_is_told_of_an_async_body_that_does_not_stop(
    hub: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_body_threads, "GRACE_S", 0.01)

    async def program(ctx: Context) -> str:
        return await limited(ctx, deaf)

    hub.start(program)
    hub.settle()
    assert STARTED.wait(60)
    hub.fire("main", 1)
    hub.settle()
    hub.await_posted()
    hub.settle()

    (cancel,) = hub.said(f.Cancel)
    assert (cancel.p, cancel.n) == ("main", 2)
    ENOUGH.set()
    hub.wait_for_bodies()
    assert hub.said(f.Done) == []


def test_a_body_that_comes_cancelled_is_not_executed(hub: FakeHub) -> None:
    async def slow(ctx: Context) -> None:
        await ctx.mailbox.q.receive(60)
        await double(1)

    async def failing(ctx: Context) -> None:
        await ctx.sleep(1)
        raise ValueError("broken")

    async def program(ctx: Context) -> None:
        await ctx.gather(slow(ctx), failing(ctx))

    hub.start(program)
    hub.settle()
    hub.finish("main.1.2", 1)
    hub.finish("main.1.1", 1)
    hub.settle()

    with pytest.raises(ValueError, match="broken"):
        hub.result()
    assert CALLS == []
    (done,) = hub.said(f.Done)
    assert done.e is not None
    assert done.e.type.endswith(":StepCancelledError")


def test_a_body_is_abandoned_when_the_session_fails(hub: FakeHub) -> None:
    async def program(ctx: Context) -> str:
        try:
            return await endless()
        except SessionFailedError:
            return "failed"

    hub.start(program)
    hub.settle()
    assert STARTED.wait(60)
    hub.fail_session()
    assert hub.result() == "failed"
    hub.wait_for_bodies()

    assert CALLS == ["stopped"]
    assert hub.said(f.Done) == []


# Inside a body.


def test_a_body_can_learn_about_its_step(hub: FakeHub) -> None:
    async def program(ctx: Context) -> list[str]:
        return [await look(), await look_later()]

    hub.start(program)
    hub.settle()
    hub.wait_for_bodies()

    run = hub.scheduler.facts.run
    assert hub.result() == [step_key(run, "main", 1, 0), step_key(run, "main", 2, 0)]
    info = INFOS[1]
    assert (info.run_id, info.worker, info.attempt) == (run, "main", 1)
    assert info.deadline.utcoffset() is not None
    assert "attempt=1" in repr(info)


def test_what_a_body_learned_can_be_kept_and_handed_on(hub: FakeHub) -> None:
    async def program(ctx: Context) -> str:
        return await look()

    key = hub.run(program)

    (info,) = INFOS
    for other in (pickle.loads(pickle.dumps(info)), copy.deepcopy(info)):  # noqa: S301 - our own
        assert (other.key, other.attempt, other.deadline) == (key, info.attempt, info.deadline)
    assert weakref.ref(info)() is info


def test_what_a_body_learned_is_no_result(hub: FakeHub) -> None:
    async def program(ctx: Context) -> str:
        with pytest.raises(MessageValueError) as caught:
            await give_away()
        return str(caught.value)

    assert "StepInfo" in cast("str", hub.run(program))


def test_there_is_no_step_to_learn_about_elsewhere() -> None:
    with pytest.raises(RuntimeError, match="for the body of a step"):
        step_info()


CONTEXTS: list[Context] = []


@step
def use_ctx() -> str:
    for call in (lambda: CONTEXTS[0].sleep(1), lambda: CONTEXTS[0].print("x"), lambda: double(1)):
        with pytest.raises(NestedStepError):
            call()
    return "refused"


@step
async def use_ctx_later() -> str:
    return use_ctx.function()  # type: ignore[return-value]  # - it returns a text


def test_ctx_inside_a_body_is_refused(hub: FakeHub) -> None:
    async def program(ctx: Context) -> list[object]:
        CONTEXTS[:] = [ctx]
        return [await use_ctx(), *await ctx.gather(use_ctx(), use_ctx_later())]

    hub.start(program)
    hub.settle()
    hub.wait_for_bodies()

    assert hub.result() == ["refused"] * 3


def test_a_cancelled_retry_ends(hub: FakeHub) -> None:
    async def program(ctx: Context) -> str:
        return await limited(ctx, lambda: flaky(9))

    hub.start(program)
    hub.hand_over()
    hub.hear()
    hub.hear()
    hub.hand_over()
    hub.await_posted()
    done = f.decode_to_hub(hub.to_hub.popleft())
    assert isinstance(done, f.Done)
    assert done.retry_in_s > 0
    hub.fire("main", 1)
    hub.settle()
    hub.say(f.Refusal(i=done.i, e=_cancelled(hub.said(f.Cancel)[0].reason)))
    hub.settle()

    assert hub.result() == "late"
    assert CALLS == [1]


def _cancelled(reason: str) -> f.ErrorData:
    error = StepCancelledError(reason)
    return f.ErrorData(type="bartack.errors:StepCancelledError", message=str(error), facts={"reason": reason})
