"""Failures that reach everybody, and runs that go on when they are mended."""

from __future__ import annotations

import json
import sys

import pytest
from tests.crash.runs import Begin

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the bounds are those of Linux")


def test_a_failing_step_whose_handler_tidied_up_is_done_anew_when_it_is_mended(begin: Begin) -> None:
    run = begin("tidying")
    assert run.finish() == 1, run.story()
    assert run.run.failed.exists()
    (run.workspace / "fixed").touch()

    code = run.finish()

    assert code == 0, run.story()
    assert run.api.result() == "fixed"
    assert run.effects() == ["before", "tidied", "after"]
    assert not run.run.failed.exists()


def test_a_sibling_that_was_aborted_and_tidied_up_goes_on_when_the_failure_is_mended(begin: Begin) -> None:
    run = begin("siblings")
    run.start()
    run.wait_open("receive", 2)
    run.api.send("fail", "now")
    assert run.wait_hub() == 1, run.story()
    assert run.effects() == ["finally"]
    (run.workspace / "fixed").touch()
    run.start()
    run.api.send("go", "on")

    code = run.wait_hub()

    assert code == 0, run.story()
    assert run.api.result() == ["on", "fixed"]
    assert run.effects() == ["finally", "finally"]
    assert not run.run.failed.exists()


@pytest.mark.requirement("failure-reaches-all")
def test_eight_workers_that_wait_learn_of_a_failure_and_so_does_the_file(begin: Begin) -> None:
    run = begin("nine")
    run.start()
    run.wait_open("receive", 9)
    run.api.send("fail", "now")

    code = run.wait_hub()

    assert code == 1, run.story()
    failed = "nine/1.9:failing"
    assert sorted(run.effects()) == [f"{number} SessionFailedError {failed}" for number in range(8)]
    told = json.loads(run.run.failed.read_text())
    assert told["worker"] == failed
    assert told["error"].startswith("ShellError BT")
    assert "/usr/bin/test" in told["message"]
    assert told["suppressed"] == 0
    assert run.run.failed.stat().st_mode & 0o777 == 0o600
    run.wait_nothing_left()


def test_the_file_that_tells_of_a_failure_is_as_the_journal_says(begin: Begin) -> None:
    run = begin("tidying")
    assert run.finish() == 1
    run.run.failed.unlink()
    assert run.finish() == 1
    assert run.run.failed.exists()

    (run.workspace / "fixed").touch()
    run.run.failed.write_text("damaged")

    assert run.finish() == 0, run.story()
    assert not run.run.failed.exists()


@pytest.mark.requirement("failure-reaches-all")
def test_a_hub_killed_around_a_failure_leaves_a_run_that_goes_on_when_it_is_mended(begin: Begin) -> None:
    """Killed at each action of the failure; the failure is there, or everybody goes on."""
    run = begin("siblings")
    run.start()
    run.wait_open("receive", 2)
    run.api.send("fail", "now")
    assert run.wait_hub() == 1, run.story()

    for point in ("before:Say", "after:Say", "before:Transition", "after:process_gone", "before:commit"):
        run.start_doomed(point, 3)
        run.wait_hub()

    (run.workspace / "fixed").touch()
    run.start()
    run.api.send("go", "on")
    assert run.wait_hub() == 0, run.story()
    assert run.api.result() == ["on", "fixed"]
    run.wait_nothing_left()
