"""What the command shows of a budget and of the end of a run: one line to act on, and a result without its inner parts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.pipeline.studio import REPORT, Studio

SPENDS = "answer['usage'] = {'cost_usd': 0.1, 'turns': 1}\n"
FAILS = f"{REPORT}pathlib.Path('README.md').write_text('mine\\n')\nanswer['artifacts'] = [artifact('README.md')]\n{SPENDS}"


@pytest.mark.requirement("pipeline-result-is-plain")
def test_the_result_says_what_was_spent_and_nothing_of_the_settings(tmp_path: Path) -> None:
    studio = Studio(tmp_path, implement=SPENDS, review=FAILS)
    assert studio.bartack("run", "--goal", "do it").returncode == 1
    (studio.place / "README.md").write_text("hello\n")

    done = studio.bartack("resume", "--set", "tests.timeout_s=7")

    assert done.returncode == 0, done.stderr
    [task] = json.loads(done.stdout)["tasks"]
    assert set(task) <= {"id", "status", "receipts", "spent", "before"}
    assert task["spent"].pop("wall_s") > 0
    assert task["spent"] == {"usd": 0.2, "turns": 2}


@pytest.mark.requirement("pipeline-budget-is-refused-early")
@pytest.mark.parametrize("command", ["run --goal x", "check"])
def test_a_budget_that_is_too_small_for_a_call_is_refused_before_the_run(
    tmp_path: Path, command: str
) -> None:
    small = "[budget]\nusd = 0.01\n" if command == "check" else ""
    studio = Studio(tmp_path, small, implement=SPENDS)

    done = studio.bartack(*command.split(), *([] if small else ["--set", "budget.usd=0.01"]))

    assert done.returncode == (1 if small else 2)
    told = done.stdout + done.stderr
    assert "budget.usd" in told
    assert "no call is made with less than budget.min_reserve_usd (0.05 USD)" in told
    assert not (studio.home / "calls").exists()


@pytest.mark.requirement("used-up-budget-names-the-command")
def test_a_budget_that_is_used_up_ends_with_the_command_that_raises_it(tmp_path: Path) -> None:
    studio = Studio(tmp_path, "[budget]\nusd = 0.1\n", implement=SPENDS)

    failed = studio.bartack("run", "--goal", "do it")
    resumed = studio.bartack("resume", "--set", "budget.usd=5")

    assert failed.returncode == 1
    lines = failed.stderr.splitlines()
    assert lines[-1] == f"  to raise the budget: bartack resume {studio.run_dir.name} --set budget.usd=AMOUNT"
    assert "the budget of 0.1 USD is used up" in failed.stderr
    assert not [line for line in lines if "→ own  review" in line]
    assert resumed.returncode == 0, resumed.stderr
    assert studio.calls == ["implement", "review"]
