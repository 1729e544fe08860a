"""What all runs of a user together may cost on one day."""

from __future__ import annotations

import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import nullcontext
from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from bartack.agents.program.daily_budget import KEPT_DAYS, DailyBudget
from bartack.core.clock import SystemClock
from bartack.errors import AgentBudgetError
from bartack.testing import VirtualClock

ASKING = """
from bartack import Context, worker

@worker
async def main(ctx: Context) -> list[str]:
    return [await ctx.think("one"), await ctx.think("two"), await ctx.think("three")]
"""
AGENT = """
import json, sys
print('{"kind":"hello","protocol":[1],"name":"paid","version":"1"}', flush=True)
for line in sys.stdin:
    command = json.loads(line)
    if command["kind"] != "command":
        continue
    print(json.dumps({
        "kind": "event",
        "message_id": command["message_id"] + "-answer",
        "correlation_id": command["correlation_id"],
        "task_id": command["task_id"],
        "from": {"agent_type": command["to"]["agent_type"]},
        "event": "prompt.completed",
        "occurred_at": "2026-01-01T00:00:00Z",
        "payload": {"text": "done"},
        "usage": {"cost_usd": 1.0},
    }), flush=True)
"""
SETTINGS = """
[agents.paid]
kind = "ndjson"
command = ["{python}", "agent.py"]

[budget]
daily_usd = 2.5
day_begins = "12:00"
reserve_usd = 2.0
"""
RESERVER = """
import sys
from pathlib import Path
from bartack.core.clock import SystemClock
from bartack.errors import AgentBudgetError
from bartack.agents.program.daily_budget import DailyBudget
budget = DailyBudget(Path(sys.argv[1]), 10.0, sys.argv[2], SystemClock())
got = 0
for number in range(20):
    try:
        budget.reserve("claude", str(number), 1.0)
    except AgentBudgetError:
        continue
    got += 1
print(got)
"""


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


def budget_of(folder: Path, run: str, clock: VirtualClock, limit: float = 10.0) -> DailyBudget:
    return DailyBudget(folder / "spending", limit, run, clock)


def test_runs_share_the_budget_of_a_day(tmp_path: Path, clock: VirtualClock) -> None:
    one, other = (budget_of(tmp_path, run, clock) for run in ("run-1", "run-2"))
    one.reserve("claude", "a", 2.0)
    one.settle("a", 9.5)

    with pytest.raises(AgentBudgetError, match=r"have used 9\.50 USD of 10 \(budget\.daily_usd\)"):
        other.reserve("claude", "b", 2.0)

    clock.advance(24 * 3600)
    other.reserve("claude", "b", 2.0)


@pytest.fixture
def berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[ZoneInfo]:
    """The local time is that of a place where clocks are set forward in the night of 28 March 2026."""
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "Europe/Berlin")
        time.tzset()
        yield ZoneInfo("Europe/Berlin")
    time.tzset()


@pytest.mark.requirement("a-night-has-one-budget")
@pytest.mark.parametrize(
    ("begins", "can_call"),
    [
        ("00:00", [False, True, True]),
        ("12:00", [False, False, True]),
        ("22:00", [False, False, False]),
        ("22:30", [True, True, True]),
    ],
)
def test_a_night_has_one_budget_if_the_day_begins_before_it(
    tmp_path: Path, berlin: ZoneInfo, begins: str, can_call: list[bool]
) -> None:
    """All is spent at 22:00, and calls are made at 23:00, at 01:00 and at noon."""
    evening = datetime(2026, 3, 28, 22, 0, tzinfo=berlin)
    calls = [evening.replace(hour=23), *(evening.replace(day=29, hour=hour) for hour in (1, 12))]
    clock = VirtualClock(int(evening.timestamp() * 1e6))
    budget = DailyBudget(tmp_path / "spending", 10.0, "run-1", clock, begins)
    budget.settle("a", 10.0)
    since = "of today" if begins == "00:00" else f"since {begins}"

    for at, can in zip(calls, can_call, strict=True):
        clock.advance(at.timestamp() - clock.now_us() / 1e6)
        with nullcontext() if can else pytest.raises(AgentBudgetError, match=since):
            budget.reserve("claude", "b", 2.0)


def test_a_reservation_counts_until_it_is_settled_or_made_again(tmp_path: Path, clock: VirtualClock) -> None:
    one, other = (budget_of(tmp_path, run, clock) for run in ("run-1", "run-2"))
    for _ in range(3):  # the hub was killed, and the step asks again
        one.reserve("claude", "a", 8.0)

    with pytest.raises(AgentBudgetError):
        other.reserve("claude", "b", 8.0)
    one.settle("a", 0.5)
    other.reserve("claude", "b", 8.0)


def test_a_call_that_is_settled_twice_counts_twice_and_allows_no_call_too_many(
    tmp_path: Path, clock: VirtualClock
) -> None:
    """The hub was killed when the call was settled and its outcome was not in the journal yet."""
    budget = budget_of(tmp_path, "run-1", clock)
    for _ in range(2):
        budget.reserve("claude", "a", 2.0)
        budget.settle("a", 4.6)

    with pytest.raises(AgentBudgetError, match=r"have used 9\.20 USD of 10"):
        budget.reserve("claude", "b", 2.0)


def test_a_call_gets_what_is_left_if_that_is_enough_to_begin(tmp_path: Path, clock: VirtualClock) -> None:
    budget = budget_of(tmp_path, "run-1", clock)
    budget.settle("a", 8.8)
    budget.reserve("claude", "b", 2.0)

    with pytest.raises(AgentBudgetError):
        budget.reserve("claude", "c", 2.0)


def test_processes_reserve_no_more_than_there_is(tmp_path: Path) -> None:
    argv = [sys.executable, "-c", RESERVER, str(tmp_path / "spending")]
    runs = [
        subprocess.Popen([*argv, f"run-{number}"], stdout=subprocess.PIPE, text=True) for number in range(3)
    ]

    assert sum(int(run.communicate(timeout=120)[0]) for run in runs) == 10


def test_files_are_private_damage_is_forgotten_and_old_days_are_removed(
    tmp_path: Path, clock: VirtualClock
) -> None:
    for _ in range(KEPT_DAYS + 5):
        clock.advance(24 * 3600)
        budget_of(tmp_path, "run-1", clock).settle("a", 1.0)
    days = sorted((tmp_path / "spending").glob("*.json"))
    days[-1].write_text("{", encoding="utf-8")

    budget_of(tmp_path, "run-2", clock).reserve("claude", "b", 2.0)

    assert len(days) == KEPT_DAYS
    assert stat.S_IMODE(days[0].stat().st_mode) == 0o600


def test_a_run_stops_asking_agents_when_the_day_has_nothing_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    work = tmp_path / "work"
    work.mkdir()
    (work / "asking.py").write_text(ASKING, encoding="utf-8")
    (work / "agent.py").write_text(AGENT, encoding="utf-8")
    settings = SETTINGS.replace("{python}", sys.executable)
    (work / "bartack.toml").write_text(settings, encoding="utf-8")
    argv = [sys.executable, "-m", "bartack", "run", "asking.py"]

    done = subprocess.run(argv, cwd=work, capture_output=True, text=True, timeout=120, check=False)

    assert done.returncode == 1, done.stderr
    assert "all runs since 12:00 have used 2.00 USD of 2.5 (budget.daily_usd)" in done.stderr
    folder = tmp_path / "state" / "bartack" / "spending"
    today = DailyBudget(folder, 9.0, "run-x", SystemClock(), "12:00")._today()
    assert today in {path.stem for path in folder.glob("*.json")}
