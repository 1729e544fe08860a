"""Outcomes that arrive after the session has failed: a step that began before the failure keeps its outcome."""

from __future__ import annotations

import shutil
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.crash.runs import PATIENCE_S, RealRun, wait_until

from bartack.core.trust import add_trusted
from bartack.runtime.rundir.layout import RunDir

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the bounds are those of Linux")

RECORDED = Path(__file__).with_name("journals") / "late-cleanup"
"""A failed run as version 0.1.0 kept it before it had the rule: a payment that finished after the failure is marked as clean-up."""

RESULT = ["receipt of alone", ["receipt of beside", "seat of thread", "wire of async"]]
EFFECTS = ["alone", "async", "beside", "thread"]


@pytest.fixture
def runs() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def go_when_it_has_failed(run: RealRun) -> None:
    run.wait_entry(lambda entry: entry.kind == "session.failed")
    (run.workspace / "go").touch()
    assert run.wait_hub() == 1, run.story()


@pytest.mark.requirement("replay-late-outcome")
def test_bodies_that_a_sibling_failed_beside_are_not_executed_again(runs: ExitStack, tmp_path: Path) -> None:
    run = runs.enter_context(RealRun.create(tmp_path, "late.py", "main"))
    run.start()
    go_when_it_has_failed(run)
    assert sorted(run.effects()) == EFFECTS
    (tmp_path / "fixed").touch()

    code = run.finish()

    assert code == 0, run.story()
    assert run.api.result() == [*RESULT, "fixed"]
    assert sorted(run.effects()) == EFFECTS


@pytest.mark.requirement("replay-late-outcome")
def test_bodies_under_way_when_a_person_fails_the_run_are_not_executed_again(
    runs: ExitStack, tmp_path: Path
) -> None:
    run = runs.enter_context(RealRun.create(tmp_path, "late.py", "told"))
    run.start()
    wait_until(lambda: all((tmp_path / f"in-{name}").exists() for name in EFFECTS))
    failing = threading.Thread(target=run.api.fail, args=["not now"])
    failing.start()  # it waits until the hub has ended
    go_when_it_has_failed(run)
    failing.join(PATIENCE_S)

    code = run.finish()

    assert code == 0, run.story()
    assert run.api.result() == RESULT
    assert sorted(run.effects()) == EFFECTS


@pytest.mark.requirement("replay-late-cleanup-adopted")
@pytest.mark.parametrize("lock", ["none", "with the time of the copy"])
def test_an_old_journal_with_a_late_outcome_marked_as_clean_up_is_resumed_by_the_rule(
    runs: ExitStack, tmp_path: Path, lock: str
) -> None:
    # It is older than the time limit of its delegate, which counts only the time in which a hub was alive.
    kept = next(RECORDED.iterdir())
    place = tmp_path / ".bartack" / "runs" / kept.name
    shutil.copytree(kept, place)
    if lock != "none":
        (place / "lock").touch()
    add_trusted(place)
    shutil.copy(kept / "program" / "shop.py", tmp_path)
    run = runs.enter_context(RealRun(RunDir(place), tmp_path))
    (tmp_path / "fixed").touch()

    code = run.finish()

    assert code == 0, run.story()
    assert run.api.result() == ["receipt", "fixed"]
    assert run.effects() == []
    log = run.run.log.read_text()
    assert log.count("1 step that began before the failure and finished after it: kept") == 1, log
    started = [entry.data for entry in run.entries() if entry.kind == "hub.started"]
    assert [data.get("adopted", 0) for data in started] == [0, 1]
