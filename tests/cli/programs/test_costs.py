"""What a call cost, and whether that was reported or computed from prices."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.cli.programs.workspace import Project

REPLY = "reply = await ctx.think_reply('say it')\nreturn [reply.usd, reply.usd_estimated]"


@pytest.mark.requirement("estimates-are-marked")
@pytest.mark.parametrize(
    ("agent", "usd", "mark"),
    [("claude", 0.25, ""), ("codex", 0.00225, " (estimated)")],
    ids=["told", "priced"],
)
def test_a_cost_that_was_computed_is_marked_wherever_it_is_shown(
    agent: str, usd: float, mark: str, tmp_path: Path
) -> None:
    project = Project(tmp_path, agent)
    project.program(REPLY)
    done = project.run()
    assert json.loads(done.stdout) == [usd, bool(mark)], done.stderr

    status = project.call("status", "latest").stdout
    listed = project.call("status").stdout
    steps = project.call("show", "latest").stdout
    step = project.call("show", "latest", "1").stdout
    (facts,) = json.loads(project.call("show", "latest", "--json").stdout)["steps"]

    assert f"{usd:.2f} USD{mark} spent" in status
    assert f" {'~' if mark else ''}{usd:.2f} " in listed
    assert f"({usd:.2f} USD{mark})" in steps
    assert f"{usd:.4f} USD{mark}\n" in step
    assert facts.get("usd_estimated", False) == bool(mark)
    (listed_facts,) = json.loads(project.call("status", "--json").stdout)
    for told in (json.loads(project.call("status", "latest", "--json").stdout), listed_facts):
        assert told.get("usd_estimated", False) == bool(mark)


@pytest.mark.requirement("estimates-are-marked")
def test_the_cost_of_a_failed_call_is_marked_and_shown(tmp_path: Path) -> None:
    project = Project(tmp_path, "codex", "die-late")
    assert project.run().returncode == 1

    shown = project.call("show", "latest", "1").stdout

    assert "0.0045 USD (estimated)\n" in shown  # two attempts


TWICE = "await ctx.think('say it')\nreturn await ctx.think('say it again')"
BUDGET = "[budget]\nusd = 0.5\nreserve_usd = 0.5\n"


@pytest.mark.requirement("unknown-costs-use-up-budgets")
@pytest.mark.parametrize(
    ("agent", "behaviour", "why"),
    [
        ("codex", "unpriced", "used a model without a known price (agents.prices can have it)"),
        ("acp", "ok", "did not report its cost"),
    ],
)
def test_a_budget_counts_all_that_was_reserved_if_the_cost_is_unknown(
    agent: str, behaviour: str, why: str, tmp_path: Path
) -> None:
    project = Project(tmp_path, agent, behaviour, BUDGET)
    project.program(TWICE)

    done = project.run()

    assert done.returncode == 1
    assert "the budget of 0.5 USD is used up (0.5 spent or reserved)" in done.stderr
    assert f"agent a {why}: 0.50 USD are counted, all that was reserved" in done.stderr
    assert project.starts == [behaviour]
    assert "0.50 USD (estimated) spent" in project.call("status", "latest").stdout


@pytest.mark.requirement("unknown-costs-use-up-budgets")
def test_a_failed_call_at_an_unknown_price_uses_up_its_reservation(tmp_path: Path) -> None:
    project = Project(tmp_path, "codex", "unpriced-die", BUDGET)

    failed = project.run()

    assert failed.returncode == 1
    assert "[BT806]" in failed.stderr
    assert "0.50 USD (estimated) spent" in project.call("status", "latest").stdout


@pytest.mark.requirement("unknown-costs-use-up-budgets")
def test_without_a_budget_an_unknown_cost_counts_as_nothing(tmp_path: Path) -> None:
    project = Project(tmp_path, "codex", "unpriced")
    project.program(REPLY)

    assert json.loads(project.run().stdout) == [0.0, False]


@pytest.mark.requirement("unknown-costs-use-up-budgets")
def test_a_model_without_a_price_is_refused_before_a_run_with_a_budget(tmp_path: Path) -> None:
    price = '[agents.prices]\n"gpt-99" = { input = 1.0, output = 10.0 }\n'
    project = Project(tmp_path, "codex", "unpriced", f'model = "gpt-99"\n{BUDGET}')
    project.program(REPLY)

    refused = project.run()

    assert refused.returncode == 2
    assert "error[BT801]" in refused.stderr
    assert "the price of its model gpt-99 is unknown" in refused.stderr
    assert 'add "gpt-99" to [agents.prices]' in refused.stderr
    assert project.runs == []
    assert project.starts == []

    project.configure("unpriced", more=f'model = "gpt-99"\n{BUDGET}{price}')
    assert json.loads(project.run().stdout) == [0.002, True]
