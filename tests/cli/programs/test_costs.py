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
