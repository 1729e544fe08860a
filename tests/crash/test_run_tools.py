"""Tools of a prompt in real processes, which are killed while a tool runs."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from tests.crash.runs import Begin, RealRun, kill

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the bounds are those of Linux")

SCRIPT = """\
[[prompts]]
text = "counted"
call = [{ tool = "more", expect = 1 }, { tool = "more", id = "t2", expect = 2 }]
"""


@pytest.fixture
def run(begin: Begin, tmp_path: Path) -> RealRun:
    (tmp_path / "replies.toml").write_text(SCRIPT)
    (tmp_path / "bartack.toml").write_text('[agents.scripted]\nscript = "replies.toml"\n')
    made = begin("tooling")
    made.start()
    return made


def finish(run: RealRun) -> None:
    for word in ("a", "b"):
        run.api.send("go", word)
    assert run.wait_hub() == 0, run.story()
    assert run.api.result() == ["counted", 2, ["a", "b"]]
    assert run.effects() == ["more 0", "more 1"]
    assert run.count("tool.called") == run.count("tool.finished") == 2
    run.wait_nothing_left()


def test_an_agent_calls_tools_of_a_worker(run: RealRun) -> None:
    finish(run)


def test_a_tool_goes_on_where_it_was_when_its_worker_is_killed(run: RealRun) -> None:
    run.wait_open("receive")
    kill(run.parts().workers["tooling"])

    finish(run)


def test_a_tool_goes_on_where_it_was_when_everything_is_killed(run: RealRun) -> None:
    run.api.send("go", "a")
    run.wait_entry(lambda entry: entry.data.get("step") == "receive" and entry.data["p"] == "tooling/do:1.2")
    run.kill_hub()
    run.start()

    run.wait_open("think", 2)
    run.api.send("go", "b")

    assert run.wait_hub() == 0, run.story()
    assert run.api.result() == ["counted", 2, ["a", "b"]]
    assert run.effects() == ["more 0", "more 1"]
    run.wait_nothing_left()
