"""Hundreds of connections that are cut while nodes claim runs, write their journals and answer requests: no history is wrong.

Each node is a real one, in a thread; the database is a real one. A cut that was not seen by a statement does not count.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from random import Random
from typing import Final

import pytest
from tests.crash.fleet_cables import Asker, Cables, Fault, Node, Work
from tests.history import Seen
from tests.postgres import cluster, new_database

import bartack.node.fleet
from bartack.depot.postgres._database import Database
from bartack.testing import Cable

PLAN: Final[dict[Fault, int]] = {"before": 350, "after": 350, "cut": 180, "silent": 20}
FAULTS: Final = sum(PLAN.values())
NODES: Final = 4
AT_ONCE: Final = 10
_FIRST: Final = int(os.environ.get("BARTACK_CHAOS_SEED", os.environ.get("BARTACK_CHAOS_FIRST", "1")))
_SOAKED: Final = int(os.environ.get("BARTACK_CHAOS_KILLS", "10000"))


def seeds() -> list[object]:
    """One for ``make test``, and as many as it takes for ``make soak``."""
    more = range(_FIRST + 1, _FIRST + -(-_SOAKED // FAULTS))
    return [_FIRST, *(pytest.param(seed, marks=pytest.mark.soak) for seed in more)]


@pytest.fixture
def cables(
    tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Cables]:
    seen: list[Seen] = []
    monkeypatch.setattr(bartack.node.fleet, "RunWork", partial(Work, seen))
    url = new_database()
    name = url.partition("@/")[2].partition("?")[0]
    socket = str(cluster().place / ".s.PGSQL.5432")
    with ExitStack() as stack:
        database = stack.enter_context(Database(url))
        nodes = list[Node]()
        for number in range(NODES):
            cable = stack.enter_context(Cable(socket))
            nodes.append(Node(f"node{number}", tmp_path / f"node{number}", cable, name))
            stack.callback(nodes[-1].end)
        made = Cables(tmp_path, database, nodes, Random(request.param), seen)
        asker = Asker(url, made.any_run, request.param)
        stack.callback(asker.end)
        asker.start()
        yield made


@pytest.mark.requirement("fleet-histories")
@pytest.mark.parametrize("cables", seeds(), indirect=True)
def test_nothing_is_wrong_in_the_history_of_runs_whose_connections_are_cut(
    cables: Cables, record_property: Callable[[str, object], None]
) -> None:
    cables.submit(AT_ONCE)
    cables.drive(PLAN, AT_ONCE)
    cables.finish()

    cables.check()
    assert cables.faults == PLAN
    record_property("fleet_faults", FAULTS)
