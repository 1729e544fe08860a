"""Workers, steps, failures, cancels, links, kills and resumes in every order, against a model that counts effects.

The seed of a schedule that fails is in the name of its test and in its message. To play it again, with its journal:
``python -m tests.crash.schedules SEED``. ``make soak`` plays 100,000 of them, ``BARTACK_SCHEDULES`` says another number.
"""

from __future__ import annotations

import os

import pytest
from tests.crash.schedules import play

SOAK = "BARTACK_CHAOS_SOAK" in os.environ
SCHEDULES = int(os.environ.get("BARTACK_SCHEDULES", "100000" if SOAK else "1200"))
FIRST = int(os.environ.get("BARTACK_CHAOS_FIRST", "0")) if SOAK else 0
TOGETHER = min(100, SCHEDULES)


@pytest.mark.requirement("replay-late-outcome")
@pytest.mark.requirement("replay-late-cancel")
@pytest.mark.requirement("replay-nothing-twice")
@pytest.mark.parametrize("first", range(FIRST, FIRST + SCHEDULES, TOGETHER))
def test_no_schedule_executes_an_effect_again_or_loses_an_outcome(first: int) -> None:
    for seed in range(first, first + TOGETHER):
        try:
            play(seed)
        except Exception as problem:
            problem.add_note(f"play it again: python -m tests.crash.schedules {seed}")
            raise
