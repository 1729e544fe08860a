"""A budget is that of the whole run, whatever the number of tasks that are done at a time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest
from tests import warm
from tests.pipeline.team import APPROVED, Team, order, settings

from bartack.config.sections import BudgetConfig
from bartack.errors import BudgetExceededError
from bartack.runtime.rundir.receipts import iter_receipts
from bartack.runtime.state.units import Caps, Units, reserve, settle

SETTINGS: Final = """\
durability = "process"
[tests]
mode = "off"
[pipeline]
spec = false
[parallel]
tasks = 3
[budget]
turns = 6
[agents.team]
kind = "scripted"
script = "../script.json"
roles = ["builder", "reviewer"]
"""
USED: Final = {"input_tokens": 10, "turns": 1}


def spends(event: str, **more: object) -> dict[str, object]:
    return {"events": [{"type": event, "usage": USED, **more}]}


@pytest.mark.requirement("pipeline-budget")
def test_tasks_side_by_side_take_no_more_turns_than_the_budget_has(tmp_path: Path) -> None:
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    tasks = "".join(f'[[tasks]]\nid = "t{n}"\ngoal = "do {n}"\n' for n in range(4))
    (workspace / "bartack.toml").write_text(SETTINGS + tasks)
    builds = spends("builder.completed", payload={"tests": {"status": "pass"}})
    reviews = spends("review.completed", status="approved")
    script = {"version": 1, "responses": {"implement": builds, "review": reviews}}
    (tmp_path / "script.json").write_text(json.dumps(script))
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", str(workspace)]
    for words in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "first"]):
        subprocess.run([*git, *words], check=True, capture_output=True)

    def bartack(*words: str) -> tuple[int, str]:
        done = warm.run(
            [sys.executable, "-m", "bartack", *words],
            cwd=workspace, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, check=False, env=os.environ,
        )  # fmt: skip
        return done.returncode, done.stderr

    code, told = bartack("run")

    assert code == 1, told
    assert "budget.turns" in told
    [run] = (workspace / ".bartack/runs").glob("run-*")
    answers = list(iter_receipts(run))
    assert 3 <= len(answers) <= 6, "each answer is one turn, and so is each call that is under way"

    code, told = bartack("resume", "--set", "budget.turns=20")

    assert code == 0, told
    assert len(list(iter_receipts(run))) == 8


def test_what_a_task_has_spent_is_its_own(tmp_path: Path) -> None:
    builds = spends("builder.completed", payload={"tests": {"status": "pass"}})
    team = Team(tmp_path, {"implement": builds, "review": APPROVED})
    run = team.run(order("T-1", "T-2", "T-3", using=settings(budget=BudgetConfig(tokens=1000))))

    assert [task.spent.tokens for task in run.result.tasks] == [10, 10, 10]
    assert all(task.before is None for task in run.result.tasks)


def test_a_call_gets_its_share_of_what_is_left() -> None:
    caps = Caps(tokens=900, turns=6, wall_s=60.0)
    first = reserve(caps, Units(), Units(), Units(), 3)
    assert first == Units(300, 2, 20.0)

    second = reserve(caps, Units(tokens=100, turns=3), first, Units(), 3)
    assert second == Units(266, 1, 20.0), "and no more than the others leave"


def test_nothing_is_reserved_that_others_have() -> None:
    with pytest.raises(BudgetExceededError) as caught:
        reserve(Caps(turns=6), Units(turns=4), Units(turns=2), Units(), 3)

    assert (caught.value.unit, str(caught.value)) == (
        "turns",
        "the budget of 6 (budget.turns) is used up (6 spent or reserved)",
    )


def test_a_call_that_says_nothing_has_used_what_was_reserved_where_that_is_strict() -> None:
    assert settle(Caps(strict=True), Units(wall_s=2.0), Units(100, 3, 9.0)) == Units(100, 3, 2.0)
    assert settle(Caps(), Units(wall_s=2.0), Units(100, 3, 9.0)) == Units(0, 0, 2.0)
