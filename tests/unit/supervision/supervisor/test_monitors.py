"""Monitors: notified once, cleaned up always, and never lost without a word."""

from __future__ import annotations

import asyncio
import gc
import logging
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from bartack.errors import DeadlineExceededError, MonitorUnavailableError
from bartack.resilience import Backoff
from bartack.supervision import (
    ChildSpec,
    Down,
    Inbox,
    Monitor,
    MonitorManager,
    MonitorRegistry,
    Supervisor,
    SupervisorSpec,
    monitor,
)
from bartack.supervision.supervisor.monitors import creators_stack
from bartack.telemetry import Telemetry
from bartack.testing import VirtualClock

T = TypeVar("T")
BOUND_S = 60.0


def play(scene: Callable[[], Awaitable[T]]) -> T:
    async def bounded() -> T:
        async with asyncio.timeout(BOUND_S):
            return await scene()

    return asyncio.run(bounded())


def watch(ref: str, target: str = "t", watcher: str = "w", created_us: int = 0) -> Monitor:
    return Monitor(ref, target, watcher, "", created_us, ())


# -- the registry ---------------------------------------------------------------------------------------------------


@pytest.mark.requirement("down-comes-once")
def test_the_end_of_a_target_is_reported_to_each_of_its_watchers_once_in_order() -> None:
    registry = MonitorRegistry()
    first, other, second = watch("1"), watch("2", target="u"), watch("3", watcher="v")
    for one in (first, other, second):
        registry.add(one)

    told = registry.target_down("t", 4, "error", 7)

    assert told == [Down(first, 4, "error", 7), Down(second, 4, "error", 7)]
    assert registry.target_down("t", 4, "error", 8) == []
    assert registry.monitors() == [other]
    assert told[0].message() == {
        "type": "DOWN",
        "monitor": "1",
        "target": "t",
        "incarnation": 4,
        "reason": "error",
        "tag": "",
        "at": 7,
    }


def test_a_monitor_is_kept_once_and_removed_once() -> None:
    registry = MonitorRegistry()

    assert registry.add(watch("1"))
    assert not registry.add(watch("1", target="u"))
    assert registry.remove("1") == watch("1")
    assert registry.remove("1") is None
    assert registry.stats() == (1, 1, 0, 0)


def test_a_leak_is_taken_away_and_reported_once() -> None:
    registry = MonitorRegistry()
    registry.add(watch("1", created_us=1000))

    leak = registry.leaked("1", "scope_left", 5000)

    assert leak is not None
    assert leak.age_us == 4000
    assert registry.leaked("1", "scope_left", 5000) is None
    assert registry.stats() == (1, 1, 1, 0)


def test_age_alone_is_a_question_and_no_leak() -> None:
    registry = MonitorRegistry()
    registry.add(watch("1", created_us=0))
    registry.add(watch("2", created_us=50_000_000))

    assert [leak.monitor.ref for leak in registry.older_than(20.0, 60_000_000)] == ["1"]
    assert registry.stats() == (2, 0, 0, 2)


def test_a_stack_ends_where_its_creator_is_and_is_not_long() -> None:
    def deep(levels: int) -> tuple[str, ...]:
        return creators_stack() if levels == 0 else deep(levels - 1)

    stack = deep(20)

    assert len(stack) == 8
    assert re.fullmatch(r".*test_monitors\.py:\d+ in deep", stack[-1])
    assert creators_stack(__file__)[-1].split(":")[0] != __file__


class RegistryMachine(RuleBasedStateMachine):
    """Whatever happens in whatever order: the three indexes agree, and the counts add up."""

    def __init__(self) -> None:
        super().__init__()
        self.registry = MonitorRegistry()
        self.model: dict[str, tuple[str, str]] = {}
        self.made = 0

    @rule(aim=st.sampled_from("abc"), watcher=st.sampled_from("xyz"))
    def add(self, aim: str, watcher: str) -> None:
        ref = str(self.made)
        self.made += 1
        self.model[ref] = (aim, watcher)
        self.registry.add(watch(ref, aim, watcher))

    @rule(number=st.integers(0, 20))
    def remove(self, number: int) -> None:
        found = self.registry.remove(str(number))
        assert (found is not None) is (self.model.pop(str(number), None) is not None)

    @rule(aim=st.sampled_from("abc"))
    def target_down(self, aim: str) -> None:
        expected = [ref for ref, pair in self.model.items() if pair[0] == aim]
        assert [down.monitor.ref for down in self.registry.target_down(aim, 1, "error", 0)] == expected
        self.model = {ref: pair for ref, pair in self.model.items() if pair[0] != aim}

    @rule(watcher=st.sampled_from("xyz"))
    def watcher_gone(self, watcher: str) -> None:
        expected = [ref for ref, pair in self.model.items() if pair[1] == watcher]
        assert [gone.ref for gone in self.registry.watcher_gone(watcher)] == expected
        self.model = {ref: pair for ref, pair in self.model.items() if pair[1] != watcher}

    @invariant()
    def indexes_agree(self) -> None:
        assert [found.ref for found in self.registry.monitors()] == list(self.model)
        assert set(self.registry.targets()) == {target for target, _ in self.model.values()}
        assert set(self.registry.watchers()) == {watcher for _, watcher in self.model.values()}
        created, cleaned, _, active = self.registry.stats()
        assert (created, active) == (self.made, len(self.model))
        assert created == cleaned + active


RegistryMachine.TestCase.settings = settings(max_examples=50, stateful_step_count=30, deadline=None)
TestRegistryMachine = RegistryMachine.TestCase


# -- in a program ---------------------------------------------------------------------------------------------------


async def forever() -> None:
    await asyncio.Event().wait()


def child(name: str, start: Any = forever, **options: Any) -> ChildSpec:
    return ChildSpec(name, start, backoff=Backoff(0.0), **options)


def top(*children: ChildSpec, telemetry: Telemetry | None = None) -> Supervisor:
    return Supervisor(SupervisorSpec(children=children), name="top", telemetry=telemetry or Telemetry())


@pytest.mark.requirement("down-comes-once")
def test_a_child_that_ends_for_good_is_down_and_one_that_is_started_again_is_not() -> None:
    lives: list[int] = []
    again = asyncio.Event()

    async def fragile() -> None:
        lives.append(1)
        if len(lives) == 1:
            raise ValueError("once")
        again.set()
        await forever()

    async def scene() -> None:
        go = asyncio.Event()

        async def begin() -> None:
            await go.wait()
            await fragile()

        async with top(child("a", begin)) as supervisor, monitor(supervisor.child("a"), "mine") as watching:
            go.set()
            await again.wait()
            with pytest.raises(DeadlineExceededError):
                await watching.down(0)
            await supervisor.terminate_child("a")
            message = await watching.down(BOUND_S)
            assert {**message, "at": 0, "monitor": ""} == {
                "type": "DOWN",
                "monitor": "",
                "target": "top/a",
                "incarnation": 2,
                "reason": "shutdown",
                "tag": "mine",
                "at": 0,
            }
            with pytest.raises(DeadlineExceededError):
                await watching.down(0)

    play(scene)


@pytest.mark.parametrize("names", [("nobody",), ("a", "b"), ("inner", "nobody"), ("ended",)])
def test_a_target_that_is_gone_is_down_at_once(names: tuple[str, ...]) -> None:
    async def nothing() -> None: ...

    async def scene() -> object:
        inner = ChildSpec("inner", SupervisorSpec())
        ended = ChildSpec("ended", nothing, restart="temporary")
        async with top(child("a"), inner, ended) as supervisor:
            if names == ("ended",):
                async with monitor(supervisor.child("ended")) as watching:
                    await watching.down(BOUND_S)
            with monitor(supervisor.child(*names)) as watching:
                return (await watching.down(0))["reason"]

    assert play(scene) == "noproc"


def test_a_child_of_a_supervisor_below_can_be_watched() -> None:
    async def scene() -> tuple[object, object]:
        inner = ChildSpec("inner", SupervisorSpec(children=(child("leaf"),)))
        async with top(inner) as supervisor, monitor(supervisor.child("inner", "leaf")) as watching:
            await supervisor.terminate_child("inner")
            message = await watching.down(BOUND_S)
        return message["target"], message["reason"]

    assert play(scene) == ("top/inner/leaf", "shutdown")


def test_several_monitors_can_report_into_one_inbox() -> None:
    async def scene() -> list[object]:
        inbox = Inbox()
        async with top(child("a"), child("b")) as supervisor:
            with (
                monitor(supervisor.child("a"), "first", into=inbox),
                monitor(supervisor.child("b"), "second", into=inbox),
            ):
                await supervisor.terminate_child("b")
                await supervisor.terminate_child("a")
                return [(await inbox.receive(BOUND_S))["tag"] for _ in range(2)]

    assert play(scene) == ["second", "first"]


def test_after_letting_go_nothing_arrives_and_what_arrived_is_taken_back() -> None:
    async def scene() -> None:
        inbox = Inbox()
        async with top(child("a"), child("b")) as supervisor:
            before = supervisor.monitors.monitor(supervisor.child("a"), into=inbox)
            after = supervisor.monitors.monitor(supervisor.child("b"), into=inbox)
            kept = supervisor.monitors.monitor(supervisor.child("b"), "kept", into=inbox)
            assert supervisor.monitors.demonitor(before)
            await supervisor.terminate_child("a")
            await supervisor.terminate_child("b")
            assert len(inbox) == 2
            assert not supervisor.monitors.demonitor(after)
            assert (await inbox.receive(0))["tag"] == "kept"
            assert len(inbox) == 0
            supervisor.monitors.demonitor(kept, flush=False)

    play(scene)


@pytest.mark.requirement("monitors-clean-up")
def test_a_watcher_that_ends_takes_its_monitors_along() -> None:
    async def scene() -> None:
        async with top(child("a")) as supervisor:
            refs: list[object] = []

            async def watcher() -> None:
                refs.extend(supervisor.monitors.monitor(supervisor.child("a")) for _ in range(1000))

            async with asyncio.TaskGroup() as group:
                group.create_task(watcher())
            await asyncio.sleep(0)
            assert supervisor.monitors.get_stats() == (1000, 1000, 0, 0)
            assert supervisor.monitors.list_monitors() == []

    play(scene)


def test_a_task_can_be_watched_and_answers_for_its_own_errors() -> None:
    async def scene() -> list[object]:
        manager = MonitorManager(clock=VirtualClock())

        async def broken() -> None:
            raise ValueError("mine")

        async def fine() -> None: ...

        reasons: list[object] = []
        loop = asyncio.get_running_loop()
        tasks: list[asyncio.Task[object]] = []
        for start in (broken, fine):
            tasks.append(loop.create_task(start()))
            async with monitor(manager.task(tasks[-1])) as watching:
                reasons.append((await watching.down(BOUND_S))["reason"])
        with monitor(manager.task(tasks[-1])) as watching:
            reasons.append((await watching.down(0))["reason"])
        return reasons

    assert play(scene) == ["error", "normal", "noproc"]


@pytest.mark.requirement("monitors-clean-up")
def test_a_hundred_thousand_monitors_leave_nothing() -> None:
    async def scene() -> None:
        async with top(child("a")) as supervisor:
            target = supervisor.child("a")
            for _ in range(100_000):
                with monitor(target):
                    pass
            manager = supervisor.monitors
            assert manager.get_stats() == (100_000, 100_000, 0, 0)
            assert (manager._inboxes, manager._registry.targets(), manager._registry.watchers()) == (
                {},
                [],
                [],
            )
            assert len(manager._followed) == 1
            assert not manager._abandoned
            assert manager.find_leaks(0.0) == []

    play(scene)


@pytest.mark.requirement("leaks-are-reported-once")
def test_a_planted_leak_is_reported_once_with_its_file_and_line(caplog: pytest.LogCaptureFixture) -> None:
    telemetry = Telemetry()
    received: list[tuple[object, str]] = []

    def note(
        name: str, measurements: Mapping[str, int], metadata: Mapping[str, object], _config: object
    ) -> None:
        received.append((metadata["reason"], str(metadata["stack"]).splitlines()[-1]))

    telemetry.attach("test", "monitor.leaked", note)

    async def scene() -> None:
        async with top(child("a"), telemetry=telemetry) as supervisor:
            manager = supervisor.monitors

            def plant() -> None:
                manager.monitor(supervisor.child("a"), "planted")

            plant()
            gc.collect()
            assert manager.list_monitors() == []
            (leak,) = manager.find_leaks()
            assert (leak.reason, leak.monitor.tag) == ("scope_left", "planted")
            assert manager.get_stats() == (1, 1, 1, 0)
            manager.sweep()
            assert len(manager.find_leaks()) == 1

    with caplog.at_level(logging.WARNING):
        play(scene)

    ((reason, place),) = received
    line = plant_line()
    assert (reason, place) == ("scope_left", f"{__file__}:{line} in plant")
    assert [
        record.getMessage() for record in caplog.records if f"{__file__}:{line}" in record.getMessage()
    ] == [f"monitor mon-1 of top/a was never removed (scope_left); it was created at {place}"]


def plant_line() -> int:
    with open(__file__, encoding="utf-8") as file:
        return next(number for number, line in enumerate(file, 1) if '"planted")' in line)


@pytest.mark.requirement("monitors-clean-up")
def test_an_old_healthy_monitor_is_not_a_leak() -> None:
    async def scene() -> None:
        clock = VirtualClock()
        manager = MonitorManager(clock=clock)
        task: asyncio.Task[object] = asyncio.get_running_loop().create_task(forever())
        with monitor(manager.task(task)) as watching:
            clock.advance(86_400)
            assert manager.find_leaks() == []
            assert [leak.reason for leak in manager.find_leaks(3600)] == ["old"]
            task.cancel()
            assert (await watching.down(BOUND_S))["reason"] == "error"

    play(scene)


def test_monitors_of_a_supervisor_that_has_ended_cannot_be_asked_for() -> None:
    async def scene() -> None:
        async with top(child("a")) as supervisor:
            watching = supervisor.monitors.monitor(supervisor.child("a"))
        assert (await watching.down(0))["reason"] == "shutdown"
        with pytest.raises(MonitorUnavailableError):
            supervisor.monitors.list_monitors()
        with pytest.raises(MonitorUnavailableError):
            monitor(supervisor.child("a"))

    play(scene)


def test_what_happens_to_monitors_is_reported() -> None:
    telemetry = Telemetry()
    received: list[tuple[str, object, object]] = []

    def note(
        name: str, measurements: Mapping[str, int], metadata: Mapping[str, object], _config: object
    ) -> None:
        received.append((name, metadata["tag"], metadata.get("reason", metadata.get("automatic"))))

    telemetry.attach("test", "monitor.*", note)

    async def scene() -> None:
        async with top(child("a"), telemetry=telemetry) as supervisor:
            with monitor(supervisor.child("a"), "left"):
                pass
            with monitor(supervisor.child("a"), "down"):
                await supervisor.terminate_child("a")

    play(scene)

    assert received == [
        ("monitor.created", "left", None),
        ("monitor.cleaned", "left", False),
        ("monitor.created", "down", None),
        ("monitor.down", "down", "shutdown"),
        ("monitor.cleaned", "down", True),
    ]
