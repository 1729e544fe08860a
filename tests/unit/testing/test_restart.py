"""``ctx.restart``: a worker ends its history and begins a new one. What stays, what is refused, and that no kill is noticed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import msgspec
import pytest

from bartack import Context, ShellResult, step, worker
from bartack.errors import MailboxClosedError, RestartRefusedError, RunFailedError
from bartack.runtime import Worker
from bartack.runtime.scheduler import scheduler as _scheduler
from bartack.runtime.state.apply import apply_all
from bartack.runtime.state.entries import EntryData, WorkerRestarted, WorkerSpawned, decode_entry
from bartack.runtime.state.run_state import State
from bartack.testing import TestRun, assert_survives_crashes, run_worker, start_worker

R = TypeVar("R")


@dataclass(frozen=True)
class Progress:
    turn: int
    seen: list[str]


@step
def double(number: int) -> int:
    return number * 2


@worker
async def echo(ctx: Context, text: str) -> str:
    await ctx.sleep(1)
    return text


@worker
async def counting(ctx: Context, progress: Progress) -> list[str]:
    """Restarts twice, and does something of each kind in every history."""
    turn = progress.turn
    await ctx.mailbox.results.send(await double(turn))
    answer = await echo(f"turn {turn}")
    both = await ctx.gather(double(10 + turn), double(20 + turn))
    ctx.print(f"{answer}: {both}")
    if turn < 3:
        await ctx.restart(Progress(turn + 1, [*progress.seen, answer]))
    return [*progress.seen, *map(str, await ctx.mailbox.results.drain())]


def test_a_restart_calls_the_worker_anew_with_the_value() -> None:
    done = run_worker(counting(Progress(1, [])))

    assert done.result == ["turn 1", "turn 2", "2", "4", "6"]
    assert done.output == ["turn 1: [22, 42]", "turn 2: [24, 44]", "turn 3: [26, 46]"]


@pytest.mark.requirement("restart-survives-kills")
def test_a_restart_survives_a_kill_after_every_entry() -> None:
    assert assert_survives_crashes(counting(Progress(1, [])), at="entries") > 20


def entries_of(run: TestRun[R], kind: type[EntryData]) -> list[EntryData]:
    """The entries of a kind."""
    decoded = [decode_entry(entry.kind, entry.raw) for entry in run.journal]
    return [data for data in decoded if isinstance(data, kind)]


def test_steps_and_children_of_a_new_history_have_names_that_none_had_before() -> None:
    done = run_worker(counting(Progress(1, [])))

    names = [record.name for record in done.steps]
    children = [msgspec.to_builtins(data)["path"] for data in entries_of(done, WorkerSpawned)]
    assert len(set(names)) == len(names)
    assert len(set(children)) == len(children) == 4


def test_a_restart_is_one_entry() -> None:
    done = run_worker(counting(Progress(1, [])))

    assert len(entries_of(done, WorkerRestarted)) == 2
    assert [record.status for record in done.steps if record.kind == "restart"] == ["finished", "finished"]
    assert not [1 for entry in done.journal if b'"step":"restart"' in bytes(entry.raw)]


def test_a_run_keeps_nothing_in_memory_of_the_histories_that_are_over() -> None:
    done = run_worker(counting(Progress(1, [])))

    state = State()
    apply_all(state, done.journal)
    assert list(state.workers) == ["counting", "counting/15.1:echo"]
    assert list(state.children) == [("", 0), ("counting", 15)]
    assert len(state.workers["counting"].history) < 8


@worker
async def stepping(ctx: Context, left: int) -> str:
    for _ in range(6):
        ctx.log("step")
    if left:
        await ctx.restart(left - 1)
    return "all"


def test_a_worker_makes_more_steps_than_a_history_may_have(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_scheduler, "MANY_STEPS", 5)
    monkeypatch.setattr(_scheduler, "MAX_STEPS", 10)

    assert run_worker(stepping(5)).result == "all"
    with pytest.raises(RunFailedError, match="more than 10 steps"):
        _ = run_worker(busy()).result


@worker
async def busy(ctx: Context) -> None:
    for _ in range(11):
        await double(1)


# What stays.


@worker
async def named(ctx: Context, again: bool) -> list[object]:
    if not again:
        await ctx.register("desk")
        await ctx.mailbox.desk.send("kept")
        await ctx.inbox.send("also kept")
        await ctx.restart(True)
    return [await ctx.mailbox.desk.receive(0), await ctx.inbox.receive(0)]


def test_messages_and_names_stay() -> None:
    done = run_worker(named(False))

    state = State()
    apply_all(state, done.journal)
    assert done.result == ["kept", "also kept"]
    assert state.mailboxes["desk"].owner == "named"


# What is refused.


@worker
async def restarts_in_a_branch(ctx: Context) -> str:
    return await refusal(ctx, in_branch=True)


async def refusal(ctx: Context, *, in_branch: bool = False) -> str:
    """Why a restart is refused here."""

    async def try_it() -> str:
        try:
            await ctx.restart()
        except RestartRefusedError as error:
            return error.message

    return (await ctx.gather(try_it()))[0] if in_branch else await try_it()


@worker
async def restarts_beside_a_branch(ctx: Context) -> str:
    async with ctx.task_group() as group:
        group.start(waits(ctx))
        return await refusal(ctx)


async def waits(ctx: Context) -> None:
    await ctx.sleep(1)


@worker
async def restarts_before_a_deadline(ctx: Context) -> str:
    async with ctx.timeout(5):
        return await refusal(ctx)


@worker
async def restarts_with_a_child(ctx: Context) -> str:
    await ctx.spawn(echo("x"))
    return await refusal(ctx)


@worker
async def restarts_with_a_message(ctx: Context) -> str:
    await ctx.mailbox.tasks.send(1)
    async with ctx.mailbox.tasks.delivery():
        return await refusal(ctx)


@worker
async def restarts_while_it_watches(ctx: Context) -> str:
    child = await ctx.spawn(echo("x"))
    async with ctx.monitor(child):
        await child
        return await refusal(ctx)


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        (restarts_in_a_branch, "it is called in the branch restarts_in_a_branch.1.1"),
        (restarts_beside_a_branch, "the branch restarts_beside_a_branch.1.1 has not ended"),
        (restarts_before_a_deadline, "it is inside a block with a deadline of 5 s"),
        (restarts_with_a_child, "its worker restarts_with_a_child/1:echo has not ended"),
        (restarts_with_a_message, "it holds a message of mailbox tasks that it has not acknowledged"),
        (restarts_while_it_watches, "it is inside a block of ctx.monitor"),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_a_restart_is_refused_while_something_is_under_way(program: Worker[[], str], reason: str) -> None:
    call = program()

    assert run_worker(call).result == f"{call.worker.name} cannot restart: {reason}"


@pytest.mark.parametrize("program", [restarts_with_a_child, restarts_with_a_message])
def test_a_refusal_is_replayed(program: Worker[[], str]) -> None:
    assert_survives_crashes(program(), at="entries")


@worker
async def restarts_wrongly(ctx: Context, turn: int) -> None:
    await ctx.restart("one", "two")


def test_arguments_that_the_worker_does_not_take_are_refused_at_once() -> None:
    with pytest.raises(RunFailedError, match="too many positional arguments"):
        _ = run_worker(restarts_wrongly(1)).result


# Failure, and children.


@worker
async def fails_later(ctx: Context, turn: int) -> int:
    if turn < 2:
        await double(turn)
        await ctx.restart(turn + 1)
    return int(str(await ctx.shell("number")))


@worker
async def parent(ctx: Context) -> int:
    return await fails_later(0)


def test_a_failed_worker_is_resumed_in_the_history_it_failed_in() -> None:
    answers = iter([ShellResult(["number"], 1, "", "no"), ShellResult.success("7")])

    def answer(words: list[str]) -> ShellResult:
        return next(answers)

    with start_worker(parent(), shell=answer) as run:
        assert run.finish().status == "failed"
        run.resume()

        assert run.finish().result == 7
        assert len(entries_of(run, WorkerRestarted)) == 2


@worker
async def late_letters(ctx: Context, child: str) -> str:
    if not child:
        handle = await ctx.spawn(echo("x"))
        await handle
        await ctx.restart(handle.path)
    try:
        await ctx.mailbox[f"@{child}"].send("still there?")
    except MailboxClosedError:
        return "closed"
    return "sent"


def test_the_inbox_of_a_child_of_an_earlier_history_stays_closed() -> None:
    assert run_worker(late_letters("")).result == "closed"
