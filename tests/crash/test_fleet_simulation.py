"""Fleets of nodes with faults, in virtual time: the real decisions of nodes, and what the database does, in memory.

A seed decides everything. A test that fails names its seed: ``Scenario(seed).run()`` happens again exactly as it did.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest
from tests.crash.fleet_simulation.load import Load
from tests.crash.fleet_simulation.scenario import FLAWS, Scenario
from tests.verdict import judging

SEEDS = 10_000 if os.environ.get("SOAK") else 250
FLAW_SEEDS = 200


@pytest.mark.requirement("fleet-one-owner")
def test_fleets_with_faults_keep_their_promises(record_property: Callable[[str, object], None]) -> None:
    found = {seed: problems for seed in range(SEEDS) if (problems := Scenario(seed).run().problems)}

    with judging():
        assert found == {}
    record_property("simulated_fleets", SEEDS)


@pytest.mark.parametrize("flaw", FLAWS)
def test_a_planted_mistake_is_found(flaw: str, record_property: Callable[[str, object], None]) -> None:
    seeds = (seed for seed in range(FLAW_SEEDS) if Scenario(seed, frozenset({flaw})).run().problems)
    found = next(seeds, None)

    assert found is not None
    record_property("found_by_seed", found)


def test_the_same_seed_is_the_same_scenario() -> None:
    assert Scenario(7).run() == Scenario(7).run()


def test_a_large_fleet_ends_all_runs_and_takes_over_in_time() -> None:
    found = Load(nodes=50, runs=1_000, kills=5).run()

    assert found.problems == []
    assert found.over == 1_000
    assert found.taken_over
    assert max(found.taken_over) <= 10.0


@pytest.mark.soak
def test_a_thousand_nodes_end_a_hundred_thousand_runs_and_take_over_in_time() -> None:
    found = Load(nodes=1_000, runs=100_000, kills=50).run()

    assert found.problems == []
    assert found.over == 100_000
    assert max(found.taken_over) <= 10.0
