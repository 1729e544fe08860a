"""What becomes of a step that was under way when its worker, its parent or the hub was killed."""

from __future__ import annotations

import fcntl
import os
import signal
import sys
import time
from functools import partial
from pathlib import Path
from typing import cast

import msgspec
import pytest
from tests.crash.runs import Begin, RealRun, command_of, kill, kill_together, wait_until

from bartack.runtime.client.connection import HubClient
from bartack.runtime.kernel.workers import WORKER_RESTARTS
from bartack.runtime.protocol.steps import MailboxStats
from bartack.runtime.state.entries import FailureRecorded
from bartack.supervision.process.system import read_facts

BLIND_HUB = Path(__file__).with_name("blind_hub.py")

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the bounds are those of Linux")

RESUMES = 20 if "SOAK" in os.environ else 3
"""How often a run is killed and resumed at once: where it is not a matter of chance, a few times are enough."""


def error_of(run: RealRun) -> str:
    """The class of the error that a run failed with."""
    failed = next(entry for entry in reversed(run.entries()) if entry.kind == "session.failed")
    return failed.decode(FailureRecorded).error.type.rpartition(":")[2]


def test_two_attempts_at_a_step_never_overlap_however_soon_a_run_is_resumed(begin: Begin) -> None:
    run = begin("guarded")
    run.start()
    for attempt in range(1, RESUMES + 1):
        run.wait_effects(attempt)
        run.kill_hub()
        run.start()
    run.wait_effects(RESUMES + 1)
    (run.workspace / "go").touch()
    run.kill_hub()

    code = run.finish()

    assert code == 0, run.story()
    assert run.effects() == ["alone"] * (RESUMES + 2)
    run.wait_nothing_left()


def test_a_worker_is_cancelled_in_its_body_at_once_and_not_when_the_hub_looks_around(begin: Begin) -> None:
    run = begin("cancelling")
    run.start(module=[str(BLIND_HUB)])

    assert run.wait_hub() == 0, run.story()

    assert run.api.result(str) == "StepCancelledError"
    run.wait_nothing_left()


def test_a_new_hub_waits_for_a_tree_that_is_slow_to_die(begin: Begin) -> None:
    run = begin("guarded")
    run.start()
    run.wait_effects(1)
    with run.run.tree_lock.open("rb") as slow:
        fcntl.flock(slow, fcntl.LOCK_SH)
        run.kill_hub()
        run.start()

        run.wait_parts(lambda parts: any("fcntl" in " ".join(command_of(facts.pid)) for facts in parts.all))

        assert run.effects() == ["alone"]
    assert run.wait_effects(2) == ["alone", "alone"]


def test_a_session_goes_on_when_the_zygote_of_eight_workers_is_killed(begin: Begin) -> None:
    run = begin("eight")
    hub = run.start()
    run.wait_open("receive", 8)
    kill(run.parts().zygote)
    for number in range(8):
        run.api.send(f"go{number}", number)

    code = run.wait_hub()

    assert code == 0, run.story()
    assert run.hub is hub
    assert run.api.result() == list(range(8))
    assert sorted(run.effects()) == sorted(
        [f"{word} {number}" for word in ("first", "second") for number in range(8)]
    )
    assert run.count("worker.crashed") == 0
    run.wait_nothing_left()


def test_commands_go_on_when_the_zygote_is_killed_and_workers_when_the_keeper_is(begin: Begin) -> None:
    run = begin("commanding")
    run.start()
    run.wait_effects(1)
    kill(run.parts().zygote)
    command = run.wait_parts(lambda parts: bool(parts.zygote and parts.workers)).commands

    kill(run.parts().keeper)

    run.wait_effects(2)
    parts = run.wait_parts(lambda parts: bool(parts.keeper and parts.commands))
    assert len(parts.workers) == 1
    assert command
    write_pipe(run, "later")
    assert run.wait_hub() == 0, run.story()
    assert run.api.result() == "later"


def write_pipe(run: RealRun, text: str) -> None:
    """Let the command of ``commanding`` end. Its pipe is there before it waits."""
    with (run.workspace / "pipe").open("w") as pipe:
        pipe.write(f"{text}\n")


@pytest.mark.requirement("workers-attach-to-commands")
def test_a_worker_that_is_killed_during_a_command_is_attached_to_it(begin: Begin) -> None:
    run = begin("commanding")
    run.start()
    run.wait_effects(1)
    first = run.wait_parts(lambda parts: "main" not in parts.workers and bool(parts.workers)).workers
    kill(*first.values())
    run.wait_entry(lambda entry: entry.kind == "worker.crashed")
    run.wait_parts(lambda parts: bool(set(parts.workers.values()) - set(first.values())))

    write_pipe(run, "once")

    assert run.wait_hub() == 0, run.story()
    assert run.api.result() == "once"
    assert run.effects() == ["started"]


@pytest.mark.requirement("killed-worker-replays")
def test_a_worker_that_waits_may_be_killed_any_number_of_times(begin: Begin) -> None:
    run = begin("waiting")
    run.start()
    run.wait_open("receive")
    for crash in range(1, WORKER_RESTARTS.limit + 2):
        wait_until(lambda: waiting_receivers(run, "go") == 1)
        kill(*run.wait_parts(lambda parts: bool(parts.workers)).workers.values())
        wait_until(partial(has_crashed, run, crash))
    run.api.send("go", "at last")

    assert run.wait_hub() == 0, run.story()
    assert run.api.result() == "at last"


def has_crashed(run: RealRun, times: int) -> bool:
    return run.count("worker.crashed") == times


def waiting_receivers(run: RealRun, mailbox: str) -> int:
    with HubClient(run.run) as hub:
        stats = msgspec.json.decode(hub.ask("mailboxes"), type=dict[str, MailboxStats])
    return stats[mailbox].waiting if mailbox in stats else 0


@pytest.mark.requirement("orphans-are-recorded")
def test_what_is_left_of_a_run_whose_processes_were_all_killed_is_ended_before_it_goes_on(
    begin: Begin,
) -> None:
    run = begin("leaving")
    # With control groups the daemon may be killed by any other run that starts meanwhile.
    run.start(env={"BARTACK_CGROUPS": "off"})
    daemon = int(run.wait_effects(1)[0])
    parts = run.parts()
    kill_together(
        *parts.workers.values(),
        parts.zygote,
        parts.keeper,
        parts.zygote_guardian,
        parts.keeper_guardian,
        parts.hub,
    )
    run.wait_hub()
    assert read_facts(daemon) is not None, (
        "what has a session of its own outlives a kill of everything at once"
    )

    run.start()

    assert run.wait_effects(2)[1] == "the first one is gone"
    assert run.wait_hub() == 0, run.story()
    run.wait_nothing_left()
    hubs = [entry.data for entry in run.entries() if entry.kind == "hub.started"]
    assert "orphans" not in hubs[0]
    assert any("sleep" in line for line in cast("list[str]", hubs[1]["orphans"])), hubs
    assert "that an earlier hub had left running: " in run.run.log.read_text()


def test_a_body_that_kills_its_worker_again_and_again_is_not_tried_for_ever(begin: Begin) -> None:
    run = begin("dying")

    code = run.finish()

    assert code == 1
    assert error_of(run) == "StepCrashedError"
    assert len(run.effects()) == 3
    run.wait_nothing_left()


def test_crashes_in_a_step_are_counted_across_resumes(begin: Begin) -> None:
    run = begin("dying")
    for crashes in (1, 2):
        run.start_doomed("before:StartWorker", 2)
        assert run.wait_hub() == -signal.SIGKILL, run.story()
        assert run.count("worker.crashed") == crashes

    code = run.finish()

    assert code == 1
    assert error_of(run) == "StepCrashedError"
    assert len(run.effects()) == 3


@pytest.mark.requirement("once-is-not-guessed")
def test_a_step_of_unknown_outcome_fails_the_run_and_needs_a_decision(begin: Begin) -> None:
    run = begin_charged(begin)

    assert error_of(run) == "OutcomeUnknownError"
    assert run.effects() == ["charged"]
    before = run.count("hub.started")
    assert run.finish() == 1
    assert "--unknown" in run.run.log.read_text()
    assert run.count("hub.started") == before


def begin_charged(begin: Begin) -> RealRun:
    """A run that was killed in a step that must not happen twice, and failed when it was resumed."""
    run = begin("charging")
    run.start()
    run.wait_effects(1)
    run.kill_hub()
    assert run.finish() == 1, run.story()
    return run


def test_an_unknown_outcome_may_be_tried_again(begin: Begin) -> None:
    run = begin_charged(begin)
    (run.workspace / "go").touch()

    run.start("retry")

    assert run.wait_hub() == 0, run.story()
    assert run.api.result() == "paid"
    assert run.effects() == ["charged", "charged"]


def test_an_unknown_outcome_may_be_told(begin: Begin) -> None:
    run = begin_charged(begin)

    run.start("done", '"paid by hand"')

    assert run.wait_hub() == 0, run.story()
    assert run.api.result() == "paid by hand"
    assert run.effects() == ["charged"]


def test_an_unknown_outcome_may_stay_a_failure(begin: Begin) -> None:
    run = begin_charged(begin)

    run.start("fail")

    assert run.wait_hub() == 1, run.story()
    assert error_of(run) == "OutcomeUnknownError"
    assert run.effects() == ["charged"]


@pytest.mark.requirement("once-is-not-guessed")
def test_a_once_step_whose_worker_is_killed_has_an_unknown_outcome(begin: Begin) -> None:
    run = begin("charging")
    run.start()
    run.wait_effects(1)

    kill(*run.parts().workers.values())

    assert run.wait_hub() == 1, run.story()
    assert error_of(run) == "OutcomeUnknownError"
    assert run.effects() == ["charged"]


@pytest.mark.requirement("timeouts-count-only-life")
def test_the_moment_of_a_kill_is_known_to_the_next_hub(begin: Begin) -> None:
    run = begin("waiting")
    run.start()
    run.wait_open("receive")
    before_us = time.time_ns() // 1000
    long_ago = before_us * 1000 - 4_000_000_000
    os.utime(run.run.path / "lock", ns=(long_ago, long_ago))  # as if its last heartbeat were four seconds ago
    run.kill_hub()
    run.wait_nothing_left()

    last_life = run.run.last_sign_of_life_us()
    assert last_life is not None
    assert last_life > before_us - 50_000
