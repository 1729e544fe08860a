"""Nodes of a database that end while steps of their runs are in flight: real commands."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.crash.test_fleet import LIMIT_S, Fleet
from tests.waiting import until

PROGRAM = Path(__file__).with_name("programs") / "gated.py"


class Gated(Fleet):
    """See ``Fleet``; the first step of its run ends when ``gate`` is there."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        (self._workspace / PROGRAM.name).write_bytes(PROGRAM.read_bytes())
        self.gate = folder / "gate"

    def submit_gated(self, how: str) -> subprocess.Popen[bytes]:
        """Submit a run, and wait until its first step is in flight."""
        words = (PROGRAM.name, how, str(self.effects), str(self.gate))
        made = self.start("run", "--on", self.url, *words)
        until(lambda: self.done() == ["begun"] or made.poll() is not None, "the first step")
        assert made.poll() is None, self.output()
        return made

    def drain(self, name: str, *words: str) -> None:
        assert self.start("nodes", "drain", name, *words, "--on", self.url).wait(LIMIT_S) == 0, self.output()

    def stops_before(self) -> list[str]:
        """What the run has recorded of its hubs, in order."""
        rows = self.rows("SELECT convert_from(lines, 'UTF8') FROM bartack.journal ORDER BY seq")
        kinds = ("hub.started", "hub.stopped", "step.finished", "run.ended")
        lines = "".join(str(row[0]) for row in rows).splitlines()
        return [kind for line in lines for kind in kinds if f'"{kind}"' in line]


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Gated]:
    made = Gated(tmp_path)
    yield made
    made.close()


@pytest.mark.requirement("fleet-drain")
@pytest.mark.parametrize("how", ["shell", "once", "body"])
def test_a_node_that_drains_lets_a_step_end_and_begins_none(fleet: Gated, how: str) -> None:
    one = fleet.node("one")
    follower = fleet.submit_gated(how)
    fleet.drain("one")
    until(lambda: "the node ends after" in fleet.output(), "the node to wait for the step")
    assert one.poll() is None
    fleet.gate.touch()

    assert one.wait(LIMIT_S) == 0, fleet.output()
    assert fleet.done() == ["begun"], "the next step is for the next node"
    assert fleet.rows("SELECT state FROM bartack.owner") == [("queued",)]
    fleet.node("two")
    assert follower.wait(LIMIT_S) == 0, fleet.output()
    assert fleet.done() == ["begun", "after"]


def test_a_node_that_drains_does_not_wait_for_a_run_that_waits(fleet: Gated) -> None:
    one = fleet.node("one")
    follower = fleet.submit_gated("waits")
    fleet.drain("one")

    assert one.wait(LIMIT_S) == 0, fleet.output()
    assert "the node ends after" not in fleet.output().split("takes no more runs")[-1]
    assert fleet.stops_before()[-1] == "hub.stopped"
    follower.kill()
    follower.wait(LIMIT_S)


@pytest.mark.parametrize("how", ["deadline", "now", "command"])
def test_a_step_that_takes_too_long_is_interrupted_and_executed_again(fleet: Gated, how: str) -> None:
    words = ("--drain", "0.2") if how == "deadline" else ()
    one = fleet.node("one", *words)
    follower = fleet.submit_gated("shell")
    fleet.drain("one", *(("--now",) if how == "now" else ()))
    if how == "command":
        until(lambda: "the node ends after" in fleet.output(), "the node to wait for the step")
        fleet.drain("one", "--now")

    assert one.wait(LIMIT_S) == 0, fleet.output()
    assert fleet.stops_before()[-1] == "hub.stopped", "the run was stopped in order"
    fleet.node("two")
    until(lambda: fleet.done() == ["begun", "begun"], "the step to be executed again")
    fleet.gate.touch()
    assert follower.wait(LIMIT_S) == 0, fleet.output()


def test_a_second_signal_ends_a_node_at_once_and_is_no_strike(fleet: Gated) -> None:
    one = fleet.node("one")
    follower = fleet.submit_gated("shell")
    one.send_signal(signal.SIGTERM)
    until(lambda: "the node ends after" in fleet.output(), "the node to wait for the step")
    one.send_signal(signal.SIGTERM)

    assert one.wait(LIMIT_S) == 0, fleet.output()
    assert fleet.rows("SELECT state, strikes FROM bartack.owner") == [("queued", 0)]
    fleet.gate.touch()
    fleet.node("two")
    assert follower.wait(LIMIT_S) == 0, fleet.output()
