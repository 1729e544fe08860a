"""Agents that speak the line protocol, and what they share with those of other runs."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from bartack.agents.ndjson.agent import LineAdapter
from bartack.agents.program.adapter import Surroundings
from bartack.agents.program_config import NdjsonConfig
from bartack.testing import VirtualClock

CLOCK = VirtualClock()
COMMAND = ["python3", "one.py"]


def adapter(root: Path, command: list[str], kind: str = "ndjson", **environ: str) -> LineAdapter:
    """An agent of a run of its own; all runs have the same home."""
    config = msgspec.convert({"kind": "ndjson", "command": command}, type=NdjsonConfig)
    around = Surroundings(run={}, folder=root, environ=environ, pauses=root / "pauses")
    return LineAdapter("a", config, CLOCK, around, kind=kind)


@pytest.mark.requirement("a-limit-holds-for-all-runs")
def test_a_limit_holds_for_agents_of_all_runs_with_the_same_command_and_account(tmp_path: Path) -> None:
    adapter(tmp_path, COMMAND, OPENAI_API_KEY="x").breaker.limited(3600.0, "used up")

    same = adapter(tmp_path, COMMAND, OPENAI_API_KEY="x")
    assert (same.breaker.wait_s(), same.breaker.reason) == (3600.0, "used up")
    assert adapter(tmp_path, COMMAND, OPENAI_API_KEY="y").breaker.wait_s() == 0.0
    assert adapter(tmp_path, ["python3", "two.py"], OPENAI_API_KEY="x").breaker.wait_s() == 0.0


def test_a_scripted_agent_shares_no_limit(tmp_path: Path) -> None:
    adapter(tmp_path, COMMAND, kind="scripted").breaker.limited(3600.0, "used up")

    assert adapter(tmp_path, COMMAND, kind="scripted").breaker.wait_s() == 0.0
    assert not (tmp_path / "pauses").exists()


def test_temporary_failures_do_not_hold_its_calls_back(tmp_path: Path) -> None:
    breaker = adapter(tmp_path, COMMAND).breaker

    for _ in range(20):
        breaker.failed()

    assert (breaker.is_open, breaker.wait_s()) == (False, 0.0)
