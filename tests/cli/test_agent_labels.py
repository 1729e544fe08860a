"""Runs of a database are for nodes that have their agents; the machine that submits them needs none."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.postgres import new_database
from tests.unit.agents.doctor.test_coding import fake

from bartack import Run
from bartack.depot.postgres._database import Database
from bartack.node import fleet

SET_DUMPABLE = 4
PROGRAM = """\
from bartack import Context, worker


@worker
async def main(ctx: Context) -> str:
    return await ctx.think("Hello")
"""
Call = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("BARTACK_ON", "ANTHROPIC_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    Path("asks.py").write_text(PROGRAM, "utf-8")
    Path("bartack.toml").write_text("[agents.helper]\nkind = 'claude'\n", "utf-8")


@pytest.fixture
def nodes(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[fleet.FleetSettings]]:
    """The settings of the nodes that were started in this process, which take no runs."""
    made: list[fleet.FleetSettings] = []

    class Loop:
        def __init__(self, settings: fleet.FleetSettings) -> None:
            made.append(settings)

        def run(self) -> None:
            pass

    monkeypatch.setattr(fleet, "FleetLoop", Loop)
    yield made
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(SET_DUMPABLE, 1, 0, 0, 0)


@pytest.mark.requirement("agent-labels")
def test_runs_need_the_agents_that_they_may_ask_and_the_submitter_does_not(call: Call) -> None:
    url = new_database()
    assert call("db", "init", "--on", url).returncode == 0
    words = ("run", "asks.py")
    assert "helper" in call(*words).stderr, "here it is refused"

    submitted = call(*words, "--on", url, "--need", "gpu", "--detach")
    started = Run.start("asks.py", on=url)
    schedule = call("schedules", "add", "nightly", "--on", url, "--cron", "0 3 * * *", "--", *words)
    resumed = call("resume", started.id, "--on", url, "--detach")

    assert (submitted.returncode, schedule.returncode, resumed.returncode) == (0, 0, 0)
    assert "no node with gpu, agent:claude takes runs" in submitted.stderr
    session = Database(url).shared
    needs = [needs for (needs,) in session.rows("SELECT needs FROM bartack.owner ORDER BY run")]
    assert needs == [["gpu", "agent:claude"], ["agent:claude"]]
    assert session.rows("SELECT needs FROM bartack.schedule") == [(["agent:claude"],)]


@pytest.mark.requirement("agent-labels")
def test_a_node_has_the_labels_of_its_agents(
    call: Call, nodes: list[fleet.FleetSettings], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    fake(programs, "claude")
    monkeypatch.setenv("PATH", str(programs), prepend=":")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "key")

    shown = call("node", "run", "--on", new_database(), "--label", "agent:gemini")

    assert shown.returncode == 0
    agents = [label for label in nodes[0].labels if label.startswith("agent:")]
    assert agents == ["agent:gemini", "agent:claude"]
