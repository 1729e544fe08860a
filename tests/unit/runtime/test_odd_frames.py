"""Whatever a worker's process sends: it concerns that worker, or fails the session, and never ends the hub."""

from __future__ import annotations

import os
from collections import Counter
from operator import methodcaller
from random import Random

import pytest
from tests.unit.runtime.odd_frames import odd_frame
from tests.unit.runtime.stage import Stage

from bartack.errors import FrameError
from bartack.runtime.protocol import frames as f

SEEDS = 2000 if os.environ.get("SOAK") else 60
FRAMES = 40


def play(seed: int, taken: Counter[str]) -> Stage:
    """A run whose first worker sends odd frames, until the run ends or nothing is left to send."""
    random = Random(seed)
    stage = Stage()
    stage.begin()
    steps = list(stage.core.steps.kinds)
    for _ in range(FRAMES):
        number = stage.workers["main"].number
        try:
            frame = f.decode_to_hub(odd_frame(random, steps))
        except FrameError:
            continue
        taken[type(frame).__name__] += 1
        stage.hub.post(methodcaller("frame", number, frame))
        stage.hub.run_ready()
        if random.random() < 0.1:
            stage.wait(random.choice((0.01, 5.0)))
        if random.random() < 0.05:
            stage.kill("main")
        if stage.hub.status:
            break
    return stage


@pytest.mark.requirement("odd-words-do-not-end-the-hub")
def test_frames_that_no_worker_sends_never_end_the_hub_and_leave_a_run_that_can_be_read() -> None:
    taken: Counter[str] = Counter()
    for seed in range(SEEDS):
        try:
            stage = play(seed, taken)
            if stage.hub.status not in {"completed", "cancelled", "aborted"}:
                stage.again()
        except Exception as error:
            raise AssertionError(f"seed {seed} ends the hub") from error

    assert set(taken) == {
        "Step", "Note", "Begin", "Done", "Returned", "Out", "Cancel", "Result", "Failed", "Ask", "Slow"
    }  # fmt: skip


@pytest.mark.requirement("odd-words-do-not-end-the-hub")
def test_a_result_that_cannot_be_kept_fails_the_session_with_its_reason() -> None:
    stage = Stage()
    main = stage.begin()

    main.say(f.decode_to_hub(b'{"k":"result","v":1,"ref":{"sha256":"00","size":1}}'))

    failure = stage.core.state.failure
    assert failure is not None
    assert failure.error.type == "bartack.errors:EntryError"
    assert failure.worker == "main"
