"""Which process may act through the server: by the processes that have its connection open."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

import pytest

from bartack.runtime.rundir.inside import Inside
from bartack.supervision.process.holders import Holders
from bartack.web import _peer
from bartack.web._peer import judge_peer

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="only Linux says which process has a connection"
)

CLIENT, SERVER = ("127.0.0.1", 40000), ("127.0.0.1", 8055)
OUTSIDE, INSIDE = 100, 200


def found(holders: Holders | None) -> Callable[[object, object], Holders | None]:
    return lambda near, far: holders


@pytest.fixture(autouse=True)
def processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """One process outside every run, and one inside."""
    placed = {OUTSIDE: None, INSIDE: Inside("run-1", "of its parents")}
    monkeypatch.setattr(_peer, "find_enclosing", placed.__getitem__)


@pytest.mark.requirement("web-actions-come-from-outside")
@pytest.mark.parametrize(
    ("holders", "reason"),
    [
        (Holders(os.getuid(), (OUTSIDE,), ()), ""),
        (Holders(0, (), (OUTSIDE,)), ""),
        (Holders(os.getuid(), (OUTSIDE,), (INSIDE,)), ""),
        (Holders(os.getuid(), (INSIDE,), ()), "belongs to run-1"),
        (Holders(os.getuid(), (OUTSIDE, INSIDE), ()), "belongs to run-1"),
        (Holders(os.getuid(), (), (OUTSIDE, INSIDE)), "belongs to run-1"),
        (Holders(os.getuid(), (), ()), "exited before"),
        (Holders(4242, (OUTSIDE,), ()), "another user"),
        (None, "exited before"),
    ],
)
def test_every_process_that_may_have_the_connection_has_to_be_outside_every_run(
    monkeypatch: pytest.MonkeyPatch, holders: Holders | None, reason: str
) -> None:
    monkeypatch.setattr(_peer, "find_holders", found(holders))

    judged = judge_peer(CLIENT, SERVER)
    assert bool(judged) == bool(reason)
    assert reason in judged


def test_a_peer_that_cannot_be_looked_up_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "cannot be found" in judge_peer(("not an address", 1), SERVER)

    def refuse(near: object, far: object) -> Holders | None:
        raise PermissionError(13, "no")

    monkeypatch.setattr(_peer, "find_holders", refuse)
    assert "cannot be found" in judge_peer(CLIENT, SERVER)


def test_where_the_system_cannot_say_it_nothing_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")

    assert judge_peer(CLIENT, SERVER) == ""
