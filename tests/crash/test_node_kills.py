"""Hundreds of kills of a node and of the hubs of its runs: nothing is lost, and nothing that has finished is done again."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from random import Random

import pytest
from tests.crash.node_kills import Hunt

KILLS = 50
WANTED = 5_000 if "SOAK" in os.environ else 500
SEEDS = range(WANTED // KILLS)


@pytest.mark.skipif(sys.platform != "linux", reason="processes are looked at as Linux shows them")
@pytest.mark.requirement("detached-runs-outlive-everything")
@pytest.mark.parametrize("seed", SEEDS)
def test_random_kills_of_nodes_and_hubs_lose_nothing_and_do_nothing_twice(
    tmp_path: Path, seed: int, record_property: Callable[[str, object], None]
) -> None:
    with closing(Hunt(tmp_path, Random(seed), KILLS)) as hunt:
        hunt.drive()
        faults = hunt.faults()

        assert faults == [], hunt.story()
        assert hunt.hits.total() >= KILLS
    record_property("node_kills", hunt.hits["node"])
    record_property("detached_kills", hunt.hits["hub"])
