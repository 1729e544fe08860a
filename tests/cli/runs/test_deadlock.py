"""Workers of a real run that wait for each other: reported at once where people look, and in the log after a while."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.runs.stories import Call, Start, Story

from bartack import Run
from bartack.cli.live._draw import draw, plain
from bartack.cli.live._picture import Pictures
from bartack.core.watch import open_watch

PROGRAM = """\
from bartack import worker


@worker
async def one(ctx):
    return await ctx.mailbox.x.receive()


@worker
async def two(ctx):
    got = await ctx.mailbox.y.receive()
    await ctx.mailbox.x.send(got)
    return got


@worker
async def main(ctx):
    return await ctx.delegate([one(), two()])
"""
HURRIED = """\
import sys
from bartack.cli import main
from bartack.runtime.hub import deadlock
deadlock.NOTE_AFTER_S = 0.1
sys.exit(main(["run", "team.py"]))
"""


def listed(call: Call) -> dict[str, object]:
    """The line of the only run, once it says that its workers wait for each other."""
    run = Run.list()[0]
    with open_watch(str(run.dir)) as watch:
        for _ in range(30):
            row: dict[str, object] = json.loads(call("status", "--json").stdout)[0]
            if "deadlock" in row:
                return row
            watch.wait(1.0)
    raise AssertionError("no deadlock is reported")


@pytest.mark.requirement("deadlocks-are-reported")
def test_workers_that_wait_for_each_other_are_shown_and_a_message_continues_them(
    call: Call, start: Start, tmp_path: Path
) -> None:
    (tmp_path / "team.py").write_text(PROGRAM, "utf-8")
    hub = start("run", "team.py")
    assert hub.stderr is not None
    hub.stderr.readline()

    row = listed(call)
    shown, one, processes = call("status").stdout, call("status", "latest"), call("ps")
    asked = json.loads(call("ps", "--json").stdout)[0]
    sent = call("mailbox", "send", "latest", "y", "7")
    out, _ = hub.communicate(timeout=60)

    assert row["deadlock"] == asked["deadlock"]
    assert "main/1.2:two waits in step 1: receive y" in str(row["deadlock"])
    assert "all workers wait for each other" in shown
    for text in (one.stdout, processes.stdout):
        assert "All workers wait for each other; a message continues it:" in text
    assert sent.returncode == 0, sent.stderr
    assert (hub.returncode, json.loads(out)) == (0, [7, 7])
    assert "deadlock" not in json.loads(call("status", "--json").stdout)[0]


@pytest.mark.requirement("deadlocks-are-reported")
def test_after_a_while_the_terminal_and_the_log_have_it(call: Call, tmp_path: Path) -> None:
    (tmp_path / "team.py").write_text(PROGRAM, "utf-8")
    hub = subprocess.Popen(
        [sys.executable, "-c", HURRIED], stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    try:
        assert hub.stderr is not None
        for line in hub.stderr:
            if "all workers wait for each other (main waits in step 1" in line:
                break
        else:
            raise AssertionError("no note")
        logged = call("log").stdout
    finally:
        hub.terminate()
        hub.communicate(timeout=60)

    assert "[note] all workers wait for each other" in logged


@pytest.mark.requirement("deadlocks-are-reported")
def test_the_live_view_has_a_line_for_it(asking: Story) -> None:
    waits = ["main waits in step 1: receive x", "b waits"]

    picture = Pictures(asking.run).make(asking.state, 0, lambda path: [], deadlock=waits)

    assert " all workers wait for each other" in [plain(line) for line in draw(picture, 80, 24)]
