"""Workers that begin a new history, with real processes."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest
from tests.crash.runs import Begin, RealRun, kill

from bartack.errors import StepNotFoundError
from bartack.journal import open_reader
from bartack.runtime import AsyncRun, Run
from bartack.runtime.state.apply import apply_all
from bartack.runtime.state.entries import OutputWritten, decode_entry
from bartack.runtime.state.run_state import State

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the bounds are those of Linux")


@pytest.mark.requirement("restart-survives-kills")
def test_a_worker_that_begins_anew_is_killed_with_everything_and_resumes_in_its_last_history(
    begin: Begin,
) -> None:
    run = begin("beginning_anew")
    run.start()
    run.wait_effects(3)
    run.kill_hub()
    run.start()
    run.wait_effects(4)
    kill(run.parts().workers["beginning_anew"])
    run.wait_effects(5)
    (run.workspace / "go").touch()
    run.kill_hub()

    code = run.finish()

    assert code == 0, run.story()
    assert run.effects() == ["turn 1", "turn 2", "turn 3", "turn 3", "turn 3", "turn 3", "turn 4"]
    pids = run.api.result(list[int])
    assert len(set(pids)) == 4, "each history has a process of its own"
    printed = [
        bytes(entry.value or b"").decode()
        for entry in run.entries()
        if isinstance(decode_entry(entry.kind, entry.raw), OutputWritten)
    ]
    assert printed == [f'"turn {turn} after 0 in this process"' for turn in range(1, 5)]
    assert run.count("worker.restarted") == 3
    assert run.count("worker.crashed") == 1
    run.wait_nothing_left()


@pytest.mark.requirement("restart-replays-the-last-history")
def test_a_hub_keeps_only_the_last_history_of_a_worker(begin: Begin) -> None:
    run = begin("beginning_anew")
    (run.workspace / "go").touch()
    assert run.finish() == 0, run.story()

    state = State()
    with open_reader(run.run.path) as reader:
        apply_all(state, reader.read())

    assert len(state.workers["beginning_anew"].history) == 2
    assert state.workers["beginning_anew"].first == 9


PROGRAM = """\
from bartack import Context, worker

@worker
async def main(ctx: Context, turn: int = 0) -> str:
    if turn == 0:
        ctx.print("first")
        await ctx.restart(1)
    return str(await ctx.shell("cat", "answer.txt"))
"""


@pytest.mark.requirement("restart-replays-the-last-history")
def test_an_edited_program_need_not_fit_a_history_that_is_over(tmp_path: Path) -> None:
    (tmp_path / "team.py").write_text(PROGRAM)
    with RealRun.create_from(tmp_path, "team.py", "main") as run:
        assert run.finish() != 0
        (tmp_path / "answer.txt").write_text("7")
        (tmp_path / "team.py").write_text(PROGRAM.replace('ctx.print("first")', "await ctx.sleep(9)"))

        run.api.resume(update=True)

        assert run.api.wait(30).status == "completed"
        assert run.api.result(str) == "7"


STUCK = """\
from bartack import Context, worker

@worker
async def main(ctx: Context) -> int:
    read = await ctx.shell("cat", "answer.txt")
    return int(str(read))
"""


@pytest.mark.parametrize("kind", [Run, AsyncRun])
def test_a_step_is_executed_again_when_a_program_resumes_the_run_so(
    tmp_path: Path, kind: type[Run | AsyncRun]
) -> None:
    (tmp_path / "team.py").write_text(STUCK)
    (tmp_path / "answer.txt").write_text("none")
    with RealRun.create_from(tmp_path, "team.py", "main") as run:
        assert run.finish() != 0
        (tmp_path / "answer.txt").write_text("7")
        with pytest.raises(StepNotFoundError):
            run.api.resume(again="main:9")

        if kind is Run:
            run.api.resume(again="main:1")
        else:
            asyncio.run(AsyncRun(run.api).resume(again="1"))

        assert run.api.wait(30).status == "completed"
        assert run.api.result(int) == 7
