"""Decisions about runs of nodes from a machine that is not a node: they are durable before a node continues the run."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest
from tests.crash.test_fleet import LIMIT_S, Fleet
from tests.waiting import until

from bartack.cli import main
from bartack.cli.runs import _run as resume_command

PROGRAMS = Path(__file__).with_name("programs")
BUDGET = """\
[agents.scripted]
kind = "scripted"
script = "answers.toml"
[budget]
usd = 0.0
"""


class Deciding(Fleet):
    """A fleet, and a directory of a person who decides, which knows nothing of its runs."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.elsewhere = folder / "elsewhere"
        self.elsewhere.mkdir()
        self.workspace = folder / "workspace"
        self.proceed = folder / "proceed"
        self.environ = {**self._env, "XDG_STATE_HOME": str(self.elsewhere / "state")}
        for name in ("charging.py", "spending.py"):
            shutil.copy(PROGRAMS / name, self.workspace)

    def charge(self, *options: str) -> subprocess.Popen[bytes]:
        """Submit a run with a step that must be executed only once, and follow it."""
        words = ("charging.py", str(self.effects), str(self.proceed))
        return self.start("run", "--on", self.url, *options, *words)

    def call(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a command in the directory of the person who decides."""
        return subprocess.run(
            [sys.executable, "-m", "bartack", *words],
            cwd=self.elsewhere,
            env=self.environ,
            capture_output=True,
            text=True,
            check=False,
            timeout=LIMIT_S,
        )

    def python(self, code: str) -> str:
        """Execute a program in the directory of the person who decides; what it has written."""
        done = subprocess.run(
            [sys.executable, "-c", f"from bartack import Run; ON = {self.url!r}; {code}"],
            cwd=self.elsewhere,
            env=self.environ,
            capture_output=True,
            text=True,
            check=False,
            timeout=LIMIT_S,
        )
        assert not done.returncode, done.stdout + done.stderr
        return done.stdout

    def run_id(self) -> str:
        ((run_id,),) = self.rows("SELECT id FROM bartack.run")
        return str(run_id)

    def state(self) -> str:
        ((state,),) = self.rows("SELECT state FROM bartack.owner")
        return str(state)

    def kinds(self) -> list[str]:
        """The kinds of the entries of the run."""
        rows = self.rows("SELECT lines FROM bartack.journal ORDER BY seq")
        lines = b"".join(bytes(cast("bytes", lines)) for (lines,) in rows).splitlines()
        groups = [json.loads(line) for line in lines]
        return [str(entry.get("kind")) for group in groups for entry in group.get("group", [group])]

    def fail_in_doubt(self) -> subprocess.Popen[bytes]:
        """Have a node killed in the step that must be executed only once; the other node fails the run because of it."""
        for name in ("one", "two"):
            self.node(name)
        follower = self.charge()
        until(lambda: self.done()[-1:] == ["charged"], "the step to be under way")
        owning = self._nodes[self.owner()]
        owning.kill()
        owning.wait(LIMIT_S)
        assert follower.wait(LIMIT_S) == 1, self.output()
        until(lambda: self.state() == "over", "the node to give the run back")
        return follower


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Deciding]:
    made = Deciding(tmp_path)
    yield made
    made.close()


@pytest.mark.requirement("fleet-decisions")
def test_a_step_of_unknown_outcome_is_decided_from_anywhere_and_not_executed_again(fleet: Deciding) -> None:
    fleet.fail_in_doubt()
    run, on = fleet.run_id(), ("--on", fleet.url)

    named = f"bartack resume {run} --on '{fleet.url}' --unknown retry | done VALUE | fail"
    assert named in fleet.output(), "the follower says what to type"
    for words in (("status", run), ("show", run)):
        assert f"bartack resume {run} --on '{fleet.url}' --unknown retry" in fleet.call(*words, *on).stdout
    refused = fleet.call("resume", run, *on)
    assert "[BT331]" in refused.stderr
    assert "--unknown" in refused.stderr
    assert fleet.state() == "over"

    decided = fleet.call("resume", run, *on, "--unknown", "done", '"told"')

    assert decided.returncode == 0, decided.stderr
    assert decided.stdout == "told\n"
    assert fleet.done() == ["before", "charged", "after"]


@pytest.mark.requirement("fleet-decisions")
def test_a_program_decides_about_a_run_of_nodes(fleet: Deciding) -> None:
    fleet.fail_in_doubt()
    fleet.proceed.touch()

    source = (PROGRAMS / "charging.py").read_text("utf-8").replace("echo after", "echo later")
    (fleet.elsewhere / "charging.py").write_text(source, encoding="utf-8")
    resume = "run.resume(unknown='retry', update=True)"
    code = f"run = Run.open('latest', on=ON); {resume}; print(run.wait().status, run.result())"

    assert fleet.python(code) == "completed paid\n"
    assert fleet.done() == ["before", "charged", "charged", "later"]


@pytest.mark.requirement("fleet-decisions")
def test_a_decision_that_was_recorded_and_not_queued_stands_and_can_be_replaced(
    fleet: Deciding, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet.fail_in_doubt()
    run, on = fleet.run_id(), ("--on", fleet.url)
    fleet.proceed.touch()
    monkeypatch.chdir(fleet.elsewhere)
    monkeypatch.setenv("XDG_STATE_HOME", str(fleet.elsewhere / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", fleet.environ["XDG_CONFIG_HOME"])

    def die(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(resume_command, "_give_to_nodes", die)
        assert main(["resume", run, *on, "--unknown", "retry"]) == 130
    assert fleet.state() == "over"
    assert fleet.kinds()[-1] == "run.decided"
    left = fleet.call("status", run, *on).stdout
    assert "--unknown" not in left.splitlines()[-1], "nothing is to be decided any more"
    assert fleet.call("resume", run, *on, "--unknown", "done", '"other"', "--detach").returncode == 0
    until(lambda: fleet.state() == "over", "the run to complete")

    shown = fleet.call("attach", run, *on)

    assert shown.stdout == "other\n", shown.stderr
    assert fleet.done() == ["before", "charged", "after"]


@pytest.mark.requirement("fleet-decisions")
def test_a_larger_budget_counts_on_the_node(fleet: Deciding) -> None:
    (fleet.workspace / "bartack.toml").write_text(BUDGET, encoding="utf-8")
    (fleet.workspace / "answers.toml").write_text("[[prompts]]\ntext = 'paid'\nusd = 0.1\n", encoding="utf-8")
    fleet.node("one")
    assert fleet.start("run", "--on", fleet.url, "spending.py").wait(LIMIT_S) == 1, fleet.output()
    run, on = fleet.run_id(), ("--on", fleet.url)
    until(lambda: fleet.state() == "over", "the node to give the run back")
    assert f"bartack resume {run} --on '{fleet.url}' --set budget.usd=AMOUNT" in fleet.output()

    invalid = fleet.call("resume", run, *on, "--set", "budget.usd=-1")
    assert "budget.usd" in invalid.stderr
    assert fleet.state() == "over"
    raised = fleet.call("resume", run, *on, "--set", "budget.usd=5")

    assert raised.returncode == 0, raised.stderr
    assert raised.stdout == "paid\n"


@pytest.mark.requirement("fleet-decisions")
def test_the_loss_of_entries_is_accepted_from_anywhere(fleet: Deciding) -> None:
    fleet.node("one")
    follower = fleet.start("run", "--on", fleet.url, "charging.py", str(fleet.effects), str(fleet.proceed))
    until(lambda: fleet.done()[-1:] == ["charged"], "the step to be under way")
    assert fleet.start("fail", fleet.run_id(), "stop", "--on", fleet.url).wait(LIMIT_S) == 0
    assert follower.wait(LIMIT_S) == 1, fleet.output()
    until(lambda: fleet.state() == "over", "the node to give the run back")
    run, on = fleet.run_id(), ("--on", fleet.url)
    fleet.rows("DELETE FROM bartack.journal j WHERE j.seq > (SELECT min(seq) FROM bartack.journal)")
    fleet.proceed.touch()

    assert "[BT213]" in fleet.call("resume", run, *on, "--unknown", "retry").stderr
    accepted = fleet.call("resume", run, *on, "--accept-loss")

    assert accepted.returncode == 0, accepted.stderr
    assert "of the journal are missing, and resuming without them was accepted" in accepted.stderr
    assert accepted.stdout == "paid\n"
    assert fleet.done() == ["before", "charged", "before", "charged", "after"]


@pytest.mark.requirement("fleet-decisions-update")
def test_a_changed_program_is_taken_from_anywhere_if_it_matches_what_is_recorded(fleet: Deciding) -> None:
    fleet.fail_in_doubt()
    run, on = fleet.run_id(), ("--on", fleet.url)
    source = (PROGRAMS / "charging.py").read_text("utf-8")
    changed, before = fleet.elsewhere / "charging.py", fleet.rows("SELECT program FROM bartack.run")

    assert "charging.py has changed" not in fleet.call("resume", run, *on).stderr
    changed.write_text(source.replace("echo before", "echo sooner"), encoding="utf-8")
    refused = fleet.call("resume", run, *on, "--update", "--unknown", "done", '"told"')
    assert "[BT307]" in refused.stderr, refused.stderr
    assert fleet.rows("SELECT program FROM bartack.run") == before
    assert fleet.state() == "over"
    assert "run.decided" not in fleet.kinds()
    changed.write_text(source.replace("echo after", "echo later"), encoding="utf-8")
    taken = fleet.call("resume", run, *on, "--update", "--unknown", "done", '"told"')

    assert taken.returncode == 0, taken.stderr
    assert taken.stdout == "told\n"
    assert fleet.done() == ["before", "charged", "later"]
