"""How soon nothing is left of a run, whichever way it ends.

When the end of a hub can be seen, nothing else of its run lives. One that is killed cannot see to that: others do, within 100 ms.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest
from tests.crash.runs import Begin, RealRun
from tests.crash.warden import MANY_LIMIT_S, Findings, check_soon, read_findings, under_warden

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the bounds are those of Linux")


Record = Callable[[str, object], None]


def let_end(run: RealRun) -> None:
    for number in range(8):
        run.api.send(f"go{number}", number)


ENDS: dict[str, tuple[Callable[[RealRun], None], int]] = {
    "ends": (let_end, 0),
    "fails": (lambda run: run.api.fail("enough"), 1),
    "is cancelled": (lambda run: run.api.cancel("enough"), 4),
}


def started(run: RealRun, count: int = 8) -> RealRun:
    """A run with a warden above its hub, and workers that wait."""
    run.start(module=under_warden(run.workspace, "-P", "-s", "-m", "bartack.runtime.hub.serve"))
    run.wait_open("receive", count)
    return run


def found(run: RealRun) -> Findings:
    assert run.wait_hub() == 0, run.story()
    return read_findings(run.workspace)


@pytest.mark.requirement("nothing-outlives-its-hub")
@pytest.mark.parametrize("how", ENDS)
def test_nothing_is_left_of_a_run_when_the_end_of_its_hub_is_seen(begin: Begin, how: str) -> None:
    end, code = ENDS[how]
    run = started(begin("eight"))

    end(run)

    findings = found(run)
    assert (findings.code, findings.left) == (code, [])


@pytest.mark.requirement("nothing-outlives-its-hub")
@pytest.mark.parametrize("count", [1, 8, 24, pytest.param(64, marks=pytest.mark.soak)])
def test_nothing_is_left_of_a_run_100_ms_after_its_hub_was_killed(
    begin: Begin, record_property: Record, count: int
) -> None:
    record_property("gone_ms", check_soon(lambda: killed(begin, count)))


@pytest.mark.requirement("many-workers-take-longer-to-end")
@pytest.mark.soak
def test_nothing_is_left_of_a_run_of_300_workers_a_second_after_its_hub_was_killed(
    begin: Begin, record_property: Record
) -> None:
    record_property("many_gone_ms", check_soon(lambda: killed(begin, 300), MANY_LIMIT_S))


def killed(begin: Begin, count: int) -> Findings:
    run = started(begin("many", count), count)
    assert run.hub is not None
    run.hub.terminate()
    return found(run)
