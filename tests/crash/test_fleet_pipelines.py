"""Runs of the pipeline on nodes that are killed: no finished call of an agent is paid again, and each answer finds its files."""

from __future__ import annotations

import json
import shlex
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.crash.test_fleet import LIMIT_S
from tests.crash.test_fleet_copies import Travelling
from tests.pipeline.studio import AGENT, REPORT, SETTINGS
from tests.waiting import until

MORE = """\
[tests]
command = [{python}, {script}]
[parallel]
tasks = {width}
[workspace]
during_s = 1.0
[[tasks]]
id = "one"
goal = "one"
[[tasks]]
id = "two"
goal = "two"
"""
WAIT = """
import time
def wait(name):
    (home / ("begun-" + name)).touch()
    while not (home / ("go-" + name)).exists():
        time.sleep(0.02)
"""
IMPLEMENT = f"""
import pathlib
{REPORT}
{WAIT}
task = command["task_id"]
with open(home / "tasks", "a") as file:
    file.write(task + chr(10))
draft = pathlib.Path(task + ".draft")
pathlib.Path(task + ".txt").write_text("continued" if draft.exists() else "begun")
draft.touch()
wait("implement-" + task)
answer["artifacts"] = [artifact(task + ".txt")]
"""
TESTS = f"""\
import pathlib
home = pathlib.Path(__file__).parent
{WAIT}
assert {{path.stem for path in pathlib.Path(".").glob("*.txt")}}, "there is the work of a task"
wait("tests")
"""


class Workshop(Travelling):
    """A fleet, a repository with two tasks, and an agent outside of it that waits in each stage until the test lets it continue."""

    def __init__(self, folder: Path, width: int = 1) -> None:
        super().__init__(folder)
        self.home = folder / "home"
        self.home.mkdir()
        self._pulled = 0
        (self.home / "agent.py").write_text(AGENT, "utf-8")
        (self.home / "implement.py").write_text(IMPLEMENT, "utf-8")
        (self.home / "tests.py").write_text(TESTS, "utf-8")
        python, agent, script = (
            json.dumps(str(word)) for word in (sys.executable, self.home / "agent.py", self.home / "tests.py")
        )
        settings = SETTINGS.format(python=python, agent=agent) + MORE.format(
            python=python, script=script, width=width
        )
        (self.repository / "bartack.toml").write_text(settings, "utf-8")
        self.git("commit", "--quiet", "-am", "settings")

    def until_begun(self, *stages: str) -> None:
        """Wait until stages have begun since they were last waited for."""
        for stage in stages:
            begun = self.home / f"begun-{stage}"
            until(begun.exists, f"{stage}: {self.output()}{self.hub_log()}")
            begun.unlink()

    def let(self, *stages: str) -> None:
        """Let stages continue."""
        for stage in stages:
            (self.home / f"go-{stage}").touch()

    def kill_owner(self) -> None:
        """Kill the node that runs the run, and let its lease be over."""
        name = self.owner()
        node = self.named(name)
        node.kill()
        node.wait(LIMIT_S)
        # Who was alone with the run owns it; the others need not wait for its lease.
        self.rows(
            "UPDATE bartack.node SET until = until - interval '1 minute' "
            "WHERE id IN (SELECT node FROM bartack.owner WHERE alive)"
        )

    def until_copied(self, file: str) -> None:
        """Wait for a copy that has a file."""
        until(lambda: self.has_copied(file), f"a copy with {file}")

    def has_copied(self, file: str) -> bool:
        """Whether the latest copy has a file."""
        return (self.pull() / file).exists()

    def pull(self) -> Path:
        """The files of the run, in a directory."""
        self._pulled += 1
        made = self.home / f"files-{self._pulled}"
        self.call("pull", "latest", "--on", self.url, "--dir", str(made))
        return made

    @property
    def calls(self) -> list[str]:
        """The actions that the agent was asked for, in order."""
        return (self.home / "calls").read_text("utf-8").split()

    @property
    def implemented(self) -> Counter[str]:
        """How often it was asked to implement each task."""
        return Counter((self.home / "tasks").read_text("utf-8").split())

    def close(self) -> None:
        self.let("tests", "implement-one", "implement-two")
        super().close()


@pytest.fixture
def workshop(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Workshop]:
    made = Workshop(tmp_path, getattr(request, "param", 1))
    yield made
    made.close()


@pytest.mark.requirement("fleet-pipeline")
def test_no_finished_call_is_paid_again_when_nodes_are_killed_in_a_stage_and_between_two(
    workshop: Workshop,
) -> None:
    for name in ("a", "b", "c"):
        workshop.node(name)
    follower = workshop.start("run", "--task", "one", "--on", workshop.url)
    workshop.until_begun("implement-one")
    workshop.until_copied("one.draft")
    workshop.kill_owner()
    workshop.until_begun("implement-one")
    workshop.let("implement-one")
    workshop.until_begun("tests")
    workshop.kill_owner()
    workshop.until_begun("tests")
    workshop.let("tests")

    assert follower.wait(LIMIT_S) == 0, workshop.output() + workshop.hub_log()
    assert workshop.calls == ["implement", "implement", "review"]
    assert [*workshop.seat("").glob("?/work/*/.bartack")] == [], (
        "the workspace has no other owner to lock out"
    )
    files = workshop.pull()
    assert (files / "one.txt").read_text("utf-8") == "continued"
    assert (files / "uncommitted.txt").read_text("utf-8") == "mine\n"
    assert not (workshop.repository / "one.txt").exists()
    verified = workshop.call("show", "latest", "--verify", "--on", workshop.url)
    assert "  same  one.txt\n" in verified
    assert "missing" not in verified
    assert "+continued" in workshop.call("diff", "latest", "--on", workshop.url)
    report = workshop.call("report", "latest", "--on", workshop.url)
    assert "one.txt" in report
    assert f"bartack pull {workshop.run_ids()[0]} --on {shlex.quote(workshop.url)}" in report
    merge = workshop.call("pull", "latest", "--on", workshop.url).splitlines()[-1]
    (workshop.repository / "uncommitted.txt").unlink()
    workshop.git(*merge.split()[1:])
    assert (workshop.repository / "one.txt").read_text("utf-8") == "continued"


@pytest.mark.requirement("fleet-pipeline-lanes")
@pytest.mark.parametrize("workshop", [2], indirect=True)
def test_tasks_side_by_side_continue_on_another_node_in_their_worktrees(workshop: Workshop) -> None:
    workshop.node("a")
    workshop.node("b")
    follower = workshop.start("run", "--on", workshop.url)
    workshop.until_begun("implement-one", "implement-two")
    workshop.let("implement-one")
    workshop.until_begun("tests")
    workshop.kill_owner()
    workshop.until_begun("implement-two", "tests")
    workshop.let("implement-two", "tests")

    assert follower.wait(LIMIT_S) == 0, workshop.output() + workshop.hub_log()
    assert workshop.implemented == {"one": 1, "two": 2}
    assert Counter(workshop.calls)["review"] == 2
    files = workshop.pull()
    assert (files / "one.txt").read_text("utf-8") == "begun"
    assert (files / "two.txt").exists()
    assert (files / "uncommitted.txt").read_text("utf-8") == "mine\n"
