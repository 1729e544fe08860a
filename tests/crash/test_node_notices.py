"""Notices of detached runs: what the node resumes is no failure, and what it holds is one notice."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.crash.node_stage import NodeStage

from bartack.core.clock import SystemClock
from bartack.core.user_home import user_home
from bartack.notices import Delivery, list_notices, open_outbox
from bartack.resilience import StateStore
from bartack.runtime.rundir.notices import look_at

APPEND = "import sys; open(sys.argv[1], 'a').write(sys.stdin.read() + chr(10))"


class InAMinute(SystemClock):
    """A clock that is a minute ahead."""

    def now_us(self) -> int:
        return super().now_us() + 60_000_000

    def monotonic_ns(self) -> int:
        return super().monotonic_ns() + 60_000_000_000


class Rung:
    """A user whose notices are lines of a file."""

    def __init__(self, stage: NodeStage) -> None:
        self._stage = stage
        self._path = stage.root / "rung.txt"
        home = stage.depot.directory.parent
        home.mkdir(parents=True, mode=0o700)
        command = json.dumps([sys.executable, "-c", APPEND, str(self._path)])
        (home / "bartack.toml").write_text(f"[notices]\ncommand = {command}\nafter_s = 0\n")
        (home / "autostart-off").touch()

    def notices(self) -> list[dict[str, str]]:
        """All that were sent."""
        if not self._path.exists():
            return []
        return [json.loads(line) for line in self._path.read_text().splitlines()]

    def until(self, count: int) -> list[dict[str, str]]:
        """Wait until at least this many were sent."""
        self._stage.until(lambda: len(self.notices()) >= count, self._stage.root, f"{count} notices are sent")
        return self.notices()


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[NodeStage]:
    made = NodeStage(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", made.environ["XDG_STATE_HOME"])
    yield made
    made.close()


@pytest.mark.requirement("resumed-runs-send-no-failure")
def test_a_hub_that_is_killed_and_resumed_by_the_node_is_no_failure(stage: NodeStage) -> None:
    rung = Rung(stage)
    run = stage.detach("gated.py")
    stage.until_gate()
    stage.kill(stage.hub_pid(run))
    stage.until(lambda: "its process died" in stage.log(), None, "the node sees it")
    stage.until(lambda: bool(stage.hub_pid(run)), None, "the node resumes it")
    stage.open_gate()
    assert stage.until_state(run, "over").outcome == "completed"

    sent = rung.until(1)
    with StateStore(user_home(), clock=InAMinute()) as store:
        Delivery(open_outbox(store), look_at).deliver_due()

    assert [notice["kind"] for notice in sent] == ["ended"]
    assert [one.kind for one in list_notices(open_outbox(), 10)] == ["ended"]
    assert len(rung.notices()) == 1


@pytest.mark.requirement("held-runs-are-noticed-once")
def test_a_run_that_is_held_is_one_notice_over_all_nodes(stage: NodeStage) -> None:
    rung = Rung(stage)
    run = stage.detach("gated.py")
    stage.until_gate()
    stage.call("node", "stop")
    shutil.move(stage.workspace, stage.root / "moved")
    stage.workspace = stage.root / "moved"
    stage.call("node", "start")
    held = stage.until_state(run, "held")
    (notice,) = rung.until(1)
    stage.kill(stage.node_pid())

    stage.call("node", "start")
    other = stage.detach("counting.py")
    stage.until_state(other, "over")
    sent = rung.until(2)

    assert notice["id"] == f"{run.id}:held{held.changed_us}:failed"
    assert notice["title"] == "work: the run is held"
    assert notice["next"] == f"bartack queue add {run.id}"
    assert [one["kind"] for one in sent] == ["failed", "ended"]


@pytest.mark.requirement("held-runs-are-noticed-once")
def test_a_run_that_was_to_follow_a_failed_one_is_one_notice(stage: NodeStage) -> None:
    rung = Rung(stage)
    gated = (stage.workspace / "gated.py").read_text()
    failing = gated.replace('return "through"', "raise ValueError")
    (stage.workspace / "failing.py").write_text(failing)
    first = stage.detach("failing.py")
    second = stage.detach("counting.py", "--after", first.id)
    stage.open_gate()
    stage.until_state(second, "held")

    sent = {notice["run"]: notice for notice in rung.until(2)}

    assert set(sent) == {first.id, second.id}
    assert sent[second.id]["text"] == f"it was to follow {first.id}, which is failed"
