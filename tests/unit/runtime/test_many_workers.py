"""Many workers at once: what they cost grows with their number, and no faster."""

from __future__ import annotations

import sys
from types import FrameType

import pytest
from tests.unit.runtime.stage import Puppet, Stage, delegate, error

from bartack import Context, worker
from bartack.runtime.kernel.processes import STARTING_AT_ONCE
from bartack.runtime.protocol.steps import FailArgs
from bartack.testing import start_worker


@worker
async def living(ctx: Context) -> None:
    await ctx.mailbox.here.send(None)
    await ctx.mailbox.go.receive(600)


@worker
async def all_living(ctx: Context, many: int, limit: int | None = None) -> None:
    await ctx.delegate([living() for _ in range(many)], limit=limit)


def calls_of(many: int, limit: int | None = None) -> tuple[int, int]:
    """How many functions are called to start many workers, kill and resume them, and to let them end."""
    counts = [0]

    def count(frame: FrameType, event: str, argument: object) -> None:
        counts[-1] += event == "call"

    with start_worker(all_living(many, limit)) as run:
        sys.setprofile(count)
        try:
            for _ in range(limit or many):
                run.wait_for("message.sent")
            run.crash()
            run.resume()
            counts.append(0)
            for _ in range(many):
                run.send("go", None)
            run.finish()
        finally:
            sys.setprofile(None)
        assert run.status == "completed"
    return counts[0], counts[1]


@pytest.mark.parametrize("limit", [None, 4])
def test_starting_resuming_and_ending_workers_is_linear(limit: int | None) -> None:
    few, many = calls_of(40, limit), calls_of(160, limit)

    assert many[0] < 5 * few[0]
    assert many[1] < 5 * few[1]


class ShyStage(Stage):
    """Notes which processes are asked for; those that are shy do not say hello."""

    def __init__(self) -> None:
        super().__init__()
        self.asked_for: list[str] = []

    def start_worker(self, path: str, incarnation: int) -> None:
        self.asked_for.append(path)
        super().start_worker(path, incarnation)


def shy_team(many: int) -> tuple[ShyStage, Puppet, list[str]]:
    """A delegate of many workers that have been started and have not said hello."""
    stage = ShyStage()
    paths = [f"main/1.{place}:living" for place in range(1, many + 1)]
    stage.shy.update(paths)
    main = stage.begin()
    delegate(main, 1, ["living"] * many)
    return stage, main, paths


def test_processes_are_started_as_others_arrive() -> None:
    stage, _, paths = shy_team(40)
    assert stage.asked_for == ["main", *paths[:STARTING_AT_ONCE]]

    stage.shy.clear()
    Puppet(stage, paths[0], 1)
    stage.hub.run_ready()

    assert stage.asked_for == ["main", *paths]


def test_a_process_that_dies_on_its_way_makes_room_for_another() -> None:
    stage, _, paths = shy_team(40)

    stage.hub.gone(paths[3], 1, "signal:SIGKILL")
    stage.hub.run_ready()

    assert stage.asked_for[1 + STARTING_AT_ONCE :] == [paths[STARTING_AT_ONCE]]


def test_a_worker_that_waits_for_its_turn_is_neither_started_nor_ended_when_the_session_fails() -> None:
    stage, main, paths = shy_team(40)

    main.step(2, "fail", FailArgs(message="enough"), p="main.9.1")
    main.fail(error("SessionFailedError"))

    assert stage.stopped == paths[:STARTING_AT_ONCE]
    assert stage.asked_for == ["main", *paths[:STARTING_AT_ONCE]]
    assert stage.hub.status == "failed"


def test_a_worker_that_waits_for_its_turn_is_given_up_with_its_delegate() -> None:
    stage, main, paths = shy_team(40)

    main.cancel(1)

    assert stage.stopped == paths[:STARTING_AT_ONCE]
    assert main.error(1) == "StepCancelledError"
    assert not stage.core.processes.absent
