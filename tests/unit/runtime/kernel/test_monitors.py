"""Monitors between workers: the end of one is told to the other once, whoever is killed meanwhile."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import cast

import pytest
from tests.unit.runtime.kernel.mail.test_mailroom import Outsider, receive
from tests.unit.runtime.stage import Puppet, Stage, delegate, error, fields, plain

from bartack import Context, ShellResult, worker
from bartack.errors import (
    AgentError,
    MailboxClosedError,
    MailboxNameError,
    MonitorNotFoundError,
    ReceiveTimeoutError,
)
from bartack.runtime.kernel.mail_events import EventEmitter
from bartack.runtime.protocol import frames as f
from bartack.runtime.protocol import steps as s
from bartack.runtime.state import entries as e
from bartack.runtime.state.apply import apply
from bartack.runtime.state.run_state import State
from bartack.runtime.state.worker_state import NO_VALUE
from bartack.supervision import MonitorStats
from bartack.telemetry import Telemetry
from bartack.testing import TestRun, VirtualClock, assert_survives_crashes, run_worker


@worker
async def child(ctx: Context, how: str) -> str:
    await ctx.mailbox.go.receive(60)
    if how == "error":
        raise ValueError("on purpose")
    if how == "wait":
        await ctx.mailbox.never.receive(3600)
    return how


@worker
async def watcher(ctx: Context, how: str) -> dict[str, object]:
    handle = await ctx.spawn(child(how), on_failure="collect")
    async with ctx.monitor(handle, tag="mine") as watch:
        await ctx.mailbox.go.send(1)
        if how == "wait":
            await handle.cancel("enough")
        message = await watch.down(60)
    await handle
    return {**message, "at": 0}


@pytest.mark.parametrize(("how", "reason"), [("fine", "normal"), ("error", "error"), ("wait", "aborted")])
@pytest.mark.requirement("workers-are-watched")
def test_the_end_of_a_worker_is_told_with_its_reason(how: str, reason: str) -> None:
    assert run_worker(watcher(how)).result == {
        "type": "DOWN",
        "monitor": "mon-watcher:2.0",
        "target": "watcher/1:child",
        "incarnation": 1,
        "reason": reason,
        "tag": "mine",
        "at": 0,
    }


@worker
async def many(ctx: Context) -> list[object]:
    """Everything that monitors can do, in one program."""
    seen: list[object] = []
    handles = [await ctx.spawn(child("fine"), on_failure="collect") for _ in range(3)]
    async with (
        ctx.monitor(handles[0], "waited") as waited,
        ctx.monitor(handles[1], "elsewhere", into="news"),
        ctx.monitor(handles[2], "flushed"),
        ctx.monitor(handles[2], "inbox"),
    ):
        await ctx.inbox.send("before")
        for _ in handles:
            await ctx.mailbox.go.send(1)
        seen.append((await waited.down(60))["tag"])
        for handle in handles:
            await handle
        seen.append([_tag(await ctx.mailbox.news.receive(60))])
        seen.append(sorted([_tag(await ctx.inbox.receive(60)) for _ in range(2)]))
    seen.append(await ctx.inbox.drain())
    async with ctx.monitor(handles[0], "gone") as gone:
        message = await gone.down(0)
        seen.append([message["reason"], message["tag"]])
    return seen


def _tag(message: object) -> str:
    return str(cast("dict[str, object]", message)["tag"]) if isinstance(message, dict) else str(message)


@pytest.mark.requirement("workers-are-watched")
def test_messages_of_monitors_come_once_wherever_the_run_is_killed() -> None:
    run = run_worker(many())
    seen = run.result

    assert seen[0] == "waited"
    assert seen[1] == ["elsewhere"]
    assert seen[2] in (["before", "flushed"], ["before", "inbox"])
    assert seen[3:] == [[], ["noproc", "gone"]]
    downs = [message.id for message in run.messages if message.id.startswith("down-")]
    assert len(downs) == len(set(downs)) == 5
    assert assert_survives_crashes(many(), at="entries") > 30


def test_a_watcher_whose_process_crashes_while_it_waits_is_told_after_its_restart() -> None:
    run: TestRun[dict[str, object]] = TestRun(slow_watcher())
    try:
        run.start()
        run.wait_for("step.started", step="down")
        run.crash("slow_watcher")
        run.finish()
        assert run.result["reason"] == "normal"
        assert run.status == "completed"
    finally:
        run.close()


def test_a_worker_whose_process_crashes_and_is_started_again_has_not_ended() -> None:
    run: TestRun[dict[str, object]] = TestRun(slow_watcher())
    try:
        run.start()
        run.wait_for("step.started", step="down")
        run.crash("slow_watcher/1:sleeper")
        run.finish()
        downs = [message for message in run.messages if message.id.startswith("down-")]
        assert (len(downs), run.result["reason"], run.result["incarnation"]) == (1, "normal", 2)
    finally:
        run.close()


@worker
async def sleeper(ctx: Context) -> str:
    await ctx.sleep(30)
    return "slept"


@worker
async def slow_watcher(ctx: Context) -> dict[str, object]:
    handle = await ctx.spawn(sleeper())
    async with ctx.monitor(handle) as watch:
        message = await watch.down(60)
    await handle
    return message


@worker
async def patient(ctx: Context) -> list[str]:
    seen: list[str] = []
    handle = await ctx.spawn(child("fine"), on_failure="collect")
    async with ctx.monitor(handle) as watch:
        for timeout_s in (0, 30):
            try:
                await watch.down(timeout_s)
            except ReceiveTimeoutError:
                seen.append(f"late after {timeout_s}")
        await ctx.mailbox.go.send(1)
        await handle
        await ctx.inbox.receive(60)
        try:
            await watch.down(60)
        except MonitorNotFoundError:
            seen.append("received before")
    return seen


def test_waiting_for_a_message_has_its_time_and_one_that_was_received_does_not_come_again() -> None:
    assert run_worker(patient()).result == ["late after 0", "late after 30", "received before"]


@worker
async def closing(ctx: Context) -> list[object]:
    seen: list[object] = []
    handle = await ctx.spawn(child("fine"), on_failure="collect")
    async with ctx.monitor(handle, into="news") as watch:

        async def wait() -> None:
            try:
                await watch.down(60)
            except MailboxClosedError:
                seen.append("closed")

        async def close() -> None:
            await ctx.mailbox.news.close()
            await ctx.mailbox.go.send(1)

        await ctx.gather(wait(), close())
    await handle
    return seen


def test_a_message_for_a_closed_mailbox_is_not_waited_for() -> None:
    assert run_worker(closing()).result == ["closed"]


@worker
async def strangers(ctx: Context) -> list[object]:
    found: list[object] = []
    for target in ("nobody", "main/9:nobody", "@main/9:nobody"):
        async with ctx.monitor(target) as watch:
            message = await watch.down(0)
            found.append([message["target"], message["reason"]])
    async with ctx.monitor("strangers") as watch:
        try:
            await watch.down(0)
        except ReceiveTimeoutError:
            found.append("alive")
    return found


def test_a_worker_that_is_not_there_is_down_at_once() -> None:
    assert run_worker(strangers()).result == [
        ["nobody", "noproc"],
        ["main/9:nobody", "noproc"],
        ["main/9:nobody", "noproc"],
        "alive",
    ]


@worker
async def trespasser(ctx: Context) -> str:
    async with ctx.monitor("nobody", into="@main/9:other") as watch:
        await watch.down(0)
    return "not reached"


def test_nobody_takes_messages_out_of_the_inbox_of_another() -> None:
    error = run_worker(trespasser()).error

    assert error is not None
    assert MailboxNameError.__name__ in str(error)


@worker
async def listener(ctx: Context) -> object:
    await ctx.mailbox.ready.send(ctx.path)
    return _tag(await ctx.inbox.receive(60))


@worker
async def informer(ctx: Context) -> object:
    handle = await ctx.spawn(listener())
    await ctx.mailbox.ready.receive(60)
    async with ctx.monitor("nobody", "for you", into=f"@{handle.path}"):
        return await handle


def test_a_message_may_go_to_the_inbox_of_another() -> None:
    assert run_worker(informer()).result == "for you"


@worker
async def named(ctx: Context) -> str:
    await ctx.register("team-lead")
    await ctx.mailbox.ready.send(1)
    await ctx.mailbox.go.receive(60)
    return "done"


@worker
async def by_name(ctx: Context) -> list[object]:
    handle = await ctx.spawn(named())
    await ctx.mailbox.ready.receive(60)
    async with ctx.monitor("team-lead") as watch:
        await ctx.mailbox.go.send(1)
        message = await watch.down(60)
    await handle
    return [message["target"], message["reason"]]


def test_a_worker_can_be_watched_by_the_name_it_has_registered() -> None:
    assert run_worker(by_name()).result == ["by_name/1:named", "normal"]


@worker
async def fragile(ctx: Context) -> object:
    handle = await ctx.spawn(child("fine"), on_failure="collect")
    async with ctx.monitor(handle) as watch:
        await ctx.mailbox.go.send(1)
        await handle
        await ctx.shell("repair")
        message = await watch.down(60)
    return message["reason"]


def state_of(run: TestRun[object]) -> State:
    return run._run.state


def test_a_monitor_is_there_again_when_its_worker_is_set_back_into_its_block() -> None:
    attempts: list[list[str]] = []

    def shell(words: list[str]) -> ShellResult:
        attempts.append(words)
        return ShellResult(words, 1) if len(attempts) == 1 else ShellResult.success()

    run: TestRun[object] = TestRun(fragile(), shell=shell)
    try:
        run.start()
        run.finish()
        assert state_of(run).failure is not None
        run.resume()
        run.finish()
        assert run.result == "normal"
        assert state_of(run).monitors.stats().active == 0
    finally:
        run.close()


@worker
async def careless(ctx: Context) -> str:
    watch = ctx.monitor("host/1:waiter")
    await watch.__aenter__()
    return watch.ref


@worker
async def waiter(ctx: Context) -> str:
    await ctx.mailbox.go.receive(600)
    return "waited"


@worker
async def host(ctx: Context) -> list[str]:
    first = await ctx.spawn(waiter())
    ref = await careless()
    await ctx.mailbox.go.send(1)
    return [ref, await first]


def test_a_watcher_that_ends_takes_its_monitors_along_and_gets_nothing() -> None:
    run: TestRun[object] = TestRun(host())
    try:
        run.start()
        run.finish()
        assert run.result == ["mon-host/2.1:careless:1.0", "waited"]
        assert state_of(run).monitors.stats() == MonitorStats(1, 1, 1, 0)
        assert state_of(run).reported == {}
        assert [message.mailbox for message in run.messages] == ["go"]
    finally:
        run.close()


def test_what_happens_to_monitors_is_told_when_it_is_durable() -> None:
    telemetry, state = Telemetry(), State()
    heard: list[tuple[str, object, object]] = []

    def note(
        name: str, measurements: Mapping[str, int], metadata: Mapping[str, object], _config: object
    ) -> None:
        heard.append((name, metadata["monitor"], metadata.get("reason", metadata.get("automatic"))))

    telemetry.attach("test", "monitor.*", note)
    emitter = EventEmitter(telemetry, state, VirtualClock())
    entries: list[e.EntryData] = [
        e.WorkerSpawned(path="main", worker="team:main"),
        *(e.MonitorMade(ref=ref, target="t", watcher="main", into="@main") for ref in "abc"),
        e.MonitorReported(ref="a", reason="error"),
        e.MonitorGone(ref="b", p="main", n=9),
        e.MonitorGone(ref="a", p="main", n=10),
        e.WorkerEnded(path="main"),
    ]
    for seq, data in enumerate(entries, 1):
        emitter.note(data, seq, NO_VALUE)
        apply(state, data, seq, seq, NO_VALUE)
    assert heard == []
    emitter.emit(emitter.take())

    assert heard == [
        *(("monitor.created", ref, None) for ref in "abc"),
        ("monitor.down", "a", "error"),
        ("monitor.cleaned", "a", True),
        ("monitor.cleaned", "b", False),
        ("monitor.cleaned", "c", True),
    ]


def test_a_monitor_remembers_where_it_was_made() -> None:
    run: TestRun[object] = TestRun(host())
    try:
        run.start()
        run.finish()
        made = [entry for entry in run.journal if entry.kind == "monitor.made"]
    finally:
        run.close()

    assert re.search(rb"test_monitors\.py:\d+ in careless", bytes(made[0].raw))


# Others than workers.


def watch(worker: Puppet, n: int, target: str) -> str:
    """Let a worker watch somebody; returns the monitor."""
    args = s.MonitorArgs(target=target, into=f"@{worker.path}", tag="mine")
    return str(worker.value(worker.step(n, "monitor", args)))


def reasons(stage: Stage) -> list[object]:
    """What the messages of monitors say, in order."""
    sent = stage.entries("message.sent")
    return [
        fields(plain(entry.value))["reason"] for entry in sent if str(entry.data["id"]).startswith("down-")
    ]


@pytest.mark.requirement("outsiders-are-watched")
def test_the_end_of_a_process_outside_is_told_once_when_its_last_connection_is_gone() -> None:
    stage = Stage()
    main = stage.begin()
    first, second = Outsider(stage), Outsider(stage)
    Outsider(stage, "foreign:8@1")
    ref = watch(main, 1, "foreign:7@1")
    waiting = main.step(2, "down", s.DownArgs(ref=ref, into="@main", timeout_s=60.0))

    first.leave()
    assert main.answer(waiting) is None
    second.leave()

    told = fields(main.value(waiting))
    assert (told["target"], told["reason"], told["tag"]) == ("foreign:7@1", "lost", "mine")
    Outsider(stage).leave()
    assert reasons(stage) == ["lost"]
    watch(main, 3, "foreign:7@1")
    assert fields(main.value(receive(main, 4, "@main", 0)))["reason"] == "noproc"


@pytest.mark.requirement("outsiders-are-watched")
def test_a_process_outside_is_lost_with_the_hub_that_it_had_joined() -> None:
    stage = Stage()
    main = stage.begin()
    Outsider(stage)
    watch(main, 1, "foreign:7@1")

    main = stage.again()
    main = stage.again()

    assert fields(main.value(receive(main, 2, "@main", 0)))["reason"] == "lost"
    assert reasons(stage) == ["lost"]


def think(worker: Puppet, n: int) -> int:
    return worker.step(n, "think", s.ThinkArgs(prompt="why?", name="prompt"), p=f"{worker.path}.1.1")


@pytest.mark.requirement("agents-are-watched")
@pytest.mark.parametrize("outcome", ["normal", "error", "aborted"])
@pytest.mark.parametrize("dies", ["nobody", "the hub"])
def test_the_end_of_an_agents_work_is_told_once(outcome: str, dies: str) -> None:
    stage = Stage()
    main = stage.begin()
    think(main, 1)
    watch(main, 2, "main.1.1:1")
    if dies == "the hub":
        main = stage.again()
        think(main, 1)
    assert reasons(stage) == []

    if outcome == "aborted":
        main.say(f.Cancel(p="main.1.1", n=1, reason="enough"))
    reply = s.ThinkOutcome(key="k", agent="a", text="because")
    stage.end_prompt(reply if outcome == "normal" else AgentError("a", "it broke"))

    assert reasons(stage) == [outcome]
    main = stage.again()
    assert fields(main.value(receive(main, 3, "@main", 0)))["reason"] == outcome
    assert reasons(stage) == [outcome]
    assert stage.core.state.prompts_over == {}


@pytest.mark.requirement("agents-are-watched")
def test_a_prompt_that_is_given_up_because_nobody_knows_of_it_is_told_of() -> None:
    stage = Stage()
    main = stage.begin()
    once = s.ThinkArgs(prompt="why?", name="prompt", once=True)
    main.step(1, "think", once, p="main.1.1")
    watch(main, 2, "main.1.1:1")

    main = stage.again()
    assert main.error(main.step(1, "think", once, p="main.1.1")) == "OutcomeUnknownError"

    assert reasons(stage) == ["error"]


@pytest.mark.requirement("agents-are-watched")
def test_what_became_of_an_agent_is_known_if_the_hub_dies_before_it_has_told() -> None:
    stage = Stage()
    main = stage.begin()
    think(main, 1)
    watch(main, 2, "main.1.1:1")
    done = e.StepFinished(p="main.1.1", n=1, step="think", fp="fp-think")
    stage.core.turn.record((done, NO_VALUE))
    stage.hub.flush()

    main = stage.again()

    assert fields(main.value(receive(main, 3, "@main", 0)))["reason"] == "normal"


def test_a_step_that_is_no_prompt_cannot_be_watched() -> None:
    stage = Stage()
    main = stage.begin()
    receive(main, 1, "box")
    watch(main, 2, "main:1")

    assert fields(main.value(receive(main, 3, "@main", 0)))["reason"] == "noproc"


# Monitors that are left behind.


def telling() -> tuple[Telemetry, list[dict[str, object]]]:
    """Telemetry, and what it tells of leaks."""
    telemetry = Telemetry()
    heard: list[dict[str, object]] = []

    def note(
        name: str, measurements: Mapping[str, int], metadata: Mapping[str, object], _config: object
    ) -> None:
        heard.append({**measurements, **metadata})

    telemetry.attach("test", "monitor.leaked", note)
    return telemetry, heard


def leave(
    stage: Stage, frame: f.Frame, stack: tuple[str, ...] = ("a.py:1 in main", "a.py:7 in work")
) -> None:
    """Have a worker end that watches another and did not leave the block."""
    main = stage.begin()
    delegate(main, 1, ["child", "other"], on_failure="collect")
    child = stage.workers["main/1.1:child"]
    args = s.MonitorArgs(target="main", into=f"@{child.path}", tag="lost", stack=stack)
    child.value(child.step(1, "monitor", args))
    stage.clock.advance(5.0)
    child.say(frame)
    stage.hub.flush()


@pytest.mark.requirement("leaks-are-reported-once")
@pytest.mark.parametrize("frame", [f.Result(), f.Failed(e=error())], ids=["returned", "raised"])
def test_a_worker_that_ends_with_a_monitor_has_left_it_behind_which_is_told_once(frame: f.Frame) -> None:
    telemetry, heard = telling()
    stage = Stage(telemetry=telemetry)

    leave(stage, frame)
    stage.again()
    stage.hub.flush()

    (leak,) = heard
    assert (leak["tag"], leak["age_ns"], leak["reason"]) == ("lost", 5_000_000_000, "scope_left")
    assert str(leak["stack"]).endswith("a.py:7 in work")
    notes = [text for channel, text in stage.shown if channel == "note"]
    assert notes == ["did not release its monitor of main, made at a.py:7 in work"]
    assert [leak.age_us for leak in stage.core.state.leaks] == [5_000_000]
    assert stage.core.state.monitors.stats() == MonitorStats(1, 1, 1, 0)


def test_a_monitor_without_a_block_lasts_as_long_as_its_worker_and_is_no_leak() -> None:
    telemetry, heard = telling()
    stage = Stage(telemetry=telemetry)

    leave(stage, f.Result(), stack=())

    assert heard == []
    assert stage.core.state.monitors.stats() == MonitorStats(1, 1, 0, 0)


def test_a_worker_that_is_cut_off_has_left_nothing_behind() -> None:
    telemetry, heard = telling()
    stage = Stage(telemetry=telemetry)
    main = stage.begin()
    delegate(main, 1, ["child"])
    child = stage.workers["main/1.1:child"]
    child.value(child.step(1, "monitor", s.MonitorArgs(target="main", into="news", stack=("a.py:1 in f",))))

    main.say(f.Cancel(p="main", n=1, reason="enough"))
    stage.hub.flush()

    assert heard == []
    assert stage.core.state.monitors.stats() == MonitorStats(1, 1, 0, 0)


@worker
async def tidy(ctx: Context) -> object:
    """A block that is left by an exception is left, too."""
    try:
        async with ctx.monitor("tidy", "mine") as watch:
            return await watch.down(1)
    except ReceiveTimeoutError:
        return 1


def test_a_block_that_was_left_by_an_exception_leaks_nothing() -> None:
    run: TestRun[object] = TestRun(tidy())
    with run:
        run.start()
        run.finish()

        assert run.result == 1
        assert not state_of(run).leaks


@pytest.mark.requirement("monitors-clean-up")
def test_a_watcher_of_a_thousand_takes_all_its_monitors_along_in_one_line() -> None:
    stage = Stage()
    main = stage.begin()
    delegate(main, 1, ["watcher", "watched"], on_failure="collect")
    watcher = stage.workers["main/1.1:watcher"]
    for number in range(1, 1001):
        args = s.MonitorArgs(target="main/1.2:watched", into=f"@{watcher.path}")
        watcher.step(number, "monitor", args)
    assert stage.core.state.monitors.stats() == MonitorStats(1000, 0, 0, 1000)
    before = stage.lines()

    watcher.say(f.Result())
    stage.hub.flush()

    assert stage.lines() == before + 1
    registry = stage.core.state.monitors
    assert registry.stats() == MonitorStats(1000, 1000, 0, 0)
    assert (registry.targets(), registry.watchers(), registry.monitors()) == ([], [], [])
