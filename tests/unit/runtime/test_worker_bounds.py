"""How many workers a program may start, and what becomes of one that cannot be started."""

from __future__ import annotations

import pytest
from tests.unit.runtime.stage import Stage

from bartack.config.sections import WorkersConfig
from bartack.runtime.kernel.desk import Settings
from bartack.runtime.protocol import steps as s

CALL: dict[str, list[object]] = {"args": []}


def stage_with(**bounds: int) -> Stage:
    room = bounds.pop("room", 10**6)
    return Stage(settings=Settings(workers=WorkersConfig(**bounds), workers_room=room))


@pytest.mark.requirement("worker-bounds")
@pytest.mark.parametrize("bounds", [{"max": 3}, {"room": 3}])
def test_more_workers_at_a_time_than_allowed_are_refused(bounds: dict[str, int]) -> None:
    main = stage_with(**bounds).begin()

    refused = main.step(1, "delegate", s.DelegateArgs(workers=["m:c"] * 3), [CALL] * 3)
    limited = main.step(2, "delegate", s.DelegateArgs(workers=["m:c"] * 9, limit=2), [CALL] * 9)

    assert main.error(refused) == "WorkerLimitError"
    assert main.answer(limited) is None
    assert sorted(main.stage.workers) == ["main", "main/2.1:c", "main/2.2:c"]


@pytest.mark.requirement("worker-bounds")
def test_workers_that_are_spawned_count_too() -> None:
    main = stage_with(max=3).begin()

    asked = [main.step(n, "spawn", s.DelegateArgs(workers=["m:c"]), [CALL]) for n in (1, 2, 3)]

    assert [main.value(i) for i in asked[:2]] == ["main/1:c", "main/2:c"]
    assert main.error(asked[2]) == "WorkerLimitError"


@pytest.mark.requirement("worker-bounds")
def test_levels_below_each_other_are_bounded() -> None:
    stage = stage_with(max_depth=2)
    main = stage.begin()
    main.step(1, "delegate", s.DelegateArgs(workers=["m:c"]), [CALL])
    child = stage.workers["main/1.1:c"]

    refused = child.step(1, "delegate", s.DelegateArgs(workers=["m:c"]), [CALL])

    assert child.error(refused) == "WorkerLimitError"


@pytest.mark.requirement("unstartable-workers-fail-alone")
@pytest.mark.parametrize("collect", [True, False])
def test_a_worker_that_cannot_be_started_is_tried_again_and_fails_by_itself(*, collect: bool) -> None:
    stage = Stage()
    main = stage.begin()
    stage.shy.add("main/1.1:c")
    args = s.DelegateArgs(workers=["m:c"], on_failure="collect" if collect else "fail")
    asked = main.step(1, "delegate", args, [CALL])
    for number in (1, 2, 3):
        stage.hub.gone("main/1.1:c", number, "start failed: no process can be forked")
        stage.hub.run_ready()
        stage.wait(3.0)

    if collect:
        assert "bartack.errors:WorkerStartError" in str(main.value(asked))
    else:
        failure = stage.core.state.failure
        assert failure is not None
        assert failure.error.type == "bartack.errors:WorkerStartError"
    assert ("note", "start failed: no process can be forked; retrying") in stage.shown
