"""A standby takes over from a primary that was killed, while nodes execute runs: the history is right, and all runs complete."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.crash.fleet_chaos import Fleet
from tests.crash.test_postgres_failover import Pair
from tests.waiting import until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks at processes as Linux shows them")

ROUNDS = 2
LONG = 60
BEGUN = 20
"""So much has the witness seen before the failover that the long steps of all runs are under way."""


@pytest.fixture
def pair() -> Iterator[Pair]:
    with ExitStack() as stack:
        made = Pair(stack)
        made.make_synchronous()
        yield made


@pytest.fixture
def fleet(tmp_path: Path, pair: Pair) -> Iterator[Fleet]:
    made = Fleet(tmp_path, pair.url, rounds=ROUNDS, long=LONG)
    yield made
    made.close()


@pytest.mark.requirement("db-failover")
@pytest.mark.requirement("fleet-histories")
def test_runs_of_nodes_continue_on_the_standby_with_a_right_history(
    fleet: Fleet, pair: Pair, record_property: Callable[[str, object], None]
) -> None:
    for name in ("one", "two"):
        fleet.add(name, pair.url)
    fleet.submit(2)
    until(lambda: fleet.witness.exists() and len(fleet.witness.read_bytes().splitlines()) > BEGUN, "effects")
    pair.fail_over()

    fleet.finish()
    fleet.check()
    record_property("fleet_faults", 1)
