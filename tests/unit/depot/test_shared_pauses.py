"""What agents are not asked before, shared by the nodes of a pool through a real PostgreSQL."""

from __future__ import annotations

from pathlib import Path

from tests.unit.depot.yard import Yard

from bartack.agents.pauses import Pause, keep_pauses, read_pauses
from bartack.core.clock import SystemClock

HOUR_US = 3600 * 1_000_000
CLAUDE = "claude-0123456789ab.json"


def test_nodes_of_one_pool_wait_for_what_one_of_them_has_met(yard: Yard) -> None:
    now_us = SystemClock().now_us()
    first, second, elsewhere = yard.node("one"), yard.node("two"), yard.node("three", pools=("gpu",))
    first.share_pauses(yard.team, {CLAUDE: (now_us + HOUR_US, "used up")})

    ((name, (until_us, reason)),) = second.share_pauses(yard.team, {}).items()
    assert (name, reason) == (CLAUDE, "used up")
    assert abs(until_us - now_us - HOUR_US) < 1_000_000
    assert elsewhere.share_pauses(yard.team, {}) == {}


def test_the_later_moment_counts_and_what_cannot_be_meant_is_not_kept(yard: Yard) -> None:
    now_us = SystemClock().now_us()
    node = yard.node()
    node.share_pauses(yard.team, {"a": (now_us + HOUR_US, "later"), "b": (now_us - HOUR_US, "over")})
    node.share_pauses(
        yard.team, {"a": (now_us + HOUR_US // 2, "earlier"), "c": (now_us + 30 * 24 * HOUR_US, "a month")}
    )

    assert {name: reason for name, (_, reason) in node.share_pauses(yard.team, {}).items()} == {"a": "later"}


def test_a_node_that_is_gone_neither_reports_nor_learns(yard: Yard) -> None:
    node = yard.node()
    yard.rows("UPDATE bartack.node SET state = 'dead' WHERE id = %s", node.node.id)

    assert node.share_pauses(yard.team, {"a": (SystemClock().now_us() + HOUR_US, "late")}) == {}
    assert yard.rows("SELECT * FROM bartack.pause") == []


def test_only_accounts_that_are_known_by_their_credentials_are_shared(tmp_path: Path) -> None:
    clock = SystemClock()
    here, there = tmp_path / "here", tmp_path / "there"
    for name in (CLAUDE, "claude.json"):
        Pause(here / name, clock).begin(clock.now_us() + HOUR_US, "used up")

    found = read_pauses(here, clock)
    keep_pauses(
        there, {**found, "../x-0123456789ab.json": found[CLAUDE], "claude.json": found[CLAUDE]}, clock
    )

    assert [*found] == [CLAUDE]
    assert [path.name for path in there.iterdir()] == [CLAUDE]
    assert not [*tmp_path.glob("x-*")]
    assert read_pauses(there, clock) == found
