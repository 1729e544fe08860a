"""Values that are too large, too many or unfit; disks that are full; descriptors that must come back."""

from __future__ import annotations

import os
import sys

import pytest
from tests.crash.runs import PATIENCE_S, Begin, RealRun, wait_until
from tests.crash.test_run_rights import memory_kb
from tests.crash.test_run_steps import error_of

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the bounds are those of Linux")

MIB = 1024 * 1024
SOAK = "BARTACK_CHAOS_SOAK" in os.environ
FLOOD = 1_000_000 if SOAK else 1000
DISK = 6
"""The exit code of a hub that ran out of disk."""


def test_a_result_that_no_journal_can_hold_is_refused(begin: Begin) -> None:
    run = begin("unfit")

    code = run.finish()

    assert code == 1
    assert error_of(run) == "MessageValueError", run.story()
    run.wait_nothing_left()


def test_a_message_of_ten_megabytes_arrives(begin: Begin) -> None:
    run = begin("sending", 10 * MIB)

    code = run.finish()

    assert code == 0, run.story()
    assert run.api.result() == 10 * MIB
    assert (run.run.path / "journal.ndjson").stat().st_size < MIB


@pytest.mark.parametrize(
    ("worker", "size"), [("huge", 17 * MIB), ("sending", 17 * MIB), ("vast", 1024 * MIB)]
)
def test_a_value_over_the_limit_is_refused(begin: Begin, worker: str, size: int) -> None:
    run = begin(worker, size)

    code = run.finish()

    assert code == 1
    assert error_of(run) == "MessageTooLargeError", run.story()
    run.wait_nothing_left()


def test_a_mailbox_that_refuses_holds_as_many_as_it_was_told(begin: Begin) -> None:
    run = begin("flooding", 100, FLOOD)

    code = run.finish()

    assert code == 0, run.story()
    assert run.api.result() == 100


def test_whoever_sends_faster_than_others_receive_has_to_wait(begin: Begin) -> None:
    run = begin("flowing", 1_000_000 if SOAK else 2000)
    patience_s = 7200.0 if SOAK else PATIENCE_S
    run.start()
    peak = 0

    def ended() -> bool:
        nonlocal peak
        assert run.hub is not None
        over = run.hub.poll() is not None
        peak = peak if over else max(peak, memory_kb(run))
        return over

    wait_until(ended, patience_s)

    assert run.wait_hub() == 0, run.story()
    assert run.api.result() == []
    assert peak < 60 * 1024


def test_the_hub_keeps_no_descriptor_of_a_step(begin: Begin) -> None:
    run = begin("stepping", 40)
    run.start()
    run.wait_open("receive")
    before = descriptors(run)
    run.api.send("begin", "now")
    run.wait_entry(lambda entry: entry.kind == "step.started" and entry.data.get("about") == "end")

    # When they were counted first, one or two may not have been open yet, or have been for a moment only.
    wait_until(lambda: descriptors(run) <= before + 2)

    run.api.send("end", "now")
    assert run.wait_hub() == 0, run.story()
    run.wait_nothing_left()


def descriptors(run: RealRun) -> int:
    assert run.hub is not None
    return len(os.listdir(f"/proc/{run.hub.pid}/fd"))


def test_a_full_disk_interrupts_a_run_that_can_be_resumed_when_there_is_room(begin: Begin) -> None:
    run = begin("filling", 100)
    run.start_doomed("small:disk", 2)

    assert run.wait_hub() == DISK
    run.wait_nothing_left()
    log = run.run.log.read_text()
    assert "Traceback" not in log
    assert "No space" in log or "too large" in log
    assert run.api.state().status == "interrupted"
    assert not run.run.failed.exists()
    done = run.count("step.finished")

    assert run.finish() == 0, run.story()
    assert run.api.result() == 100
    assert run.count("step.finished") == 100 > done


def test_a_full_disk_while_a_large_value_is_kept_interrupts_a_run_too(begin: Begin) -> None:
    run = begin("sending", 10 * MIB)
    run.start_doomed("small:disk", 5)

    code = run.wait_hub()

    run.wait_nothing_left()
    assert code in {1, DISK}, run.story()
    assert run.finish() == 0, run.story()
