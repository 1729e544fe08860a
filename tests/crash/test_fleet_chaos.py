"""Nodes that are killed, stopped and cut off at random while their runs do everything, and whose database fails, too.

Runs edit files, prompt an agent, send messages to each other's workers, get messages from outside, and ask a question; every second
one belongs to a team of which two runs may be owned at once. At the end every run has completed with the result that it has without
faults, and ``tests/history.py`` has found nothing in the history, nor in the tables at any moment.

``BARTACK_CHAOS_SEED=17`` replays one seed. ``make soak`` has 10,000 faults, or ``KILLS``.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import Final

import pytest
from tests.crash.fleet_chaos import Chaos
from tests.postgres import own_cluster

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks at processes as Linux shows them")

PLAN: Final = {
    "node killed": 6,
    "hub killed": 14,
    "keeper killed": 8,
    "node stopped": 1,
    "hub stopped": 1,
    "cable cut": 16,
    "cable cut before a request": 24,
    "cable cut after a request": 24,
    "cable silent": 1,
    "backend killed": 4,
    "database killed": 2,
}
"""How often each thing happens in one test."""
FAULTS: Final = sum(PLAN.values())
AT_ONCE: Final = 5
_FIRST: Final = int(os.environ.get("BARTACK_CHAOS_SEED", os.environ.get("BARTACK_CHAOS_FIRST", "1")))
_SOAKED: Final = int(os.environ.get("BARTACK_CHAOS_KILLS", "10000"))


def seeds() -> list[object]:
    """One for ``make test``, and as many as it takes for ``make soak``."""
    more = range(_FIRST + 1, _FIRST + -(-_SOAKED // FAULTS))
    return [_FIRST, *(pytest.param(seed, marks=pytest.mark.soak) for seed in more)]


@pytest.fixture
def chaos(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Chaos]:
    with ExitStack() as stack:
        cluster = stack.enter_context(own_cluster())
        made = Chaos(tmp_path, stack, cluster, Random(request.param), PLAN)
        try:
            yield made
        finally:
            made.close()


@pytest.mark.requirement("fleet-one-owner")
@pytest.mark.requirement("fleet-histories")
@pytest.mark.parametrize("chaos", seeds(), indirect=True)
def test_nothing_is_wrong_in_the_history_of_runs_whatever_fails(
    chaos: Chaos, record_property: Callable[[str, object], None]
) -> None:
    chaos.drive(AT_ONCE)
    chaos.heal()
    chaos.finish()

    chaos.check()
    assert chaos.faults == PLAN
    assert chaos.copies_during > 0
    record_property("fleet_faults", FAULTS)
