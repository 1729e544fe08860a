"""A limit of a provider, shared by all runs of a user."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from bartack.agents.conversation._breaker import Breaker
from bartack.agents.pauses import Pause, pause_name
from bartack.testing import VirtualClock

HOUR_US = 3600 * 1_000_000


def test_a_limit_that_one_run_meets_holds_back_the_calls_of_another_until_it_ends(tmp_path: Path) -> None:
    clock = VirtualClock()
    first, second = (Breaker(clock, Pause(tmp_path / "pauses" / "claude.json", clock)) for _ in range(2))

    first.limited(3600, "the limit of five hours is used up")

    assert second.wait_s() == 3600
    assert second.reason == "the limit of five hours is used up"
    clock.advance(3601)
    assert second.wait_s() == 0.0
    assert second.reason == "recent calls failed with temporary errors"


def test_the_later_moment_counts(tmp_path: Path) -> None:
    clock = VirtualClock()
    pause = Pause(tmp_path / "claude.json", clock)
    pause.begin(clock.now_us() + 2 * HOUR_US, "later")
    pause.begin(clock.now_us() + HOUR_US, "earlier")

    assert pause.current().reason == "later"


@pytest.mark.parametrize("after_us", [-1, 0, 1_000_000, 30 * 24 * HOUR_US])
def test_a_moment_that_cannot_be_meant_holds_nothing_back(tmp_path: Path, after_us: int) -> None:
    clock = VirtualClock()
    pause = Pause(tmp_path / "claude.json", clock)

    pause.begin(clock.now_us() + after_us, "no")

    assert pause.left_s() == 0.0


@pytest.mark.parametrize("text", ["", "{", '{"until_us":"x"}', '{"until_us":99999999999999999999}', "[1]"])
def test_a_damaged_file_holds_nothing_back_and_is_replaced(tmp_path: Path, text: str) -> None:
    clock = VirtualClock()
    path = tmp_path / "claude.json"
    path.write_text(text, encoding="utf-8")
    pause = Pause(path, clock)
    assert pause.left_s() == 0.0

    pause.begin(clock.now_us() + HOUR_US, "now")

    assert pause.left_s() == 3600
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_place_that_cannot_be_written_is_no_failure(tmp_path: Path) -> None:
    clock = VirtualClock()
    (tmp_path / "file").touch()
    pause = Pause(tmp_path / "file" / "claude.json", clock)

    pause.begin(clock.now_us() + HOUR_US, "now")

    assert pause.left_s() == 0.0


def test_a_pause_is_of_one_account_and_names_no_secret() -> None:
    keys = ("A_KEY",)
    names = [pause_name("claude", environ, keys) for environ in ({}, {"A_KEY": "one"}, {"A_KEY": "two"})]

    assert len(set(names)) == 3
    assert names[0] == "claude.json"
    assert not [name for name in names if "one" in name or "two" in name]
    assert pause_name("acp-../x", {}, keys) == "acp----x.json"
