"""Real runs whose commits end beside the loop of their hub: they end as any other, wherever the hub is killed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from tests.crash.runs import RealRun

from bartack.journal import verify_journal

LATE_HUB = Path(__file__).with_name("late_hub.py")
ROUNDS = 5
PROGRAM = """
from pathlib import Path

from bartack import Context, step, worker
from bartack.runtime import step_info


@step
def stitch(number: int) -> int:
    with Path("effects.txt").open("a") as file:
        file.write(f"{step_info().key} {number}\\n")
    return number


@worker
async def stitcher(ctx: Context) -> int:
    count = 0
    while (number := await ctx.mailbox.pieces.receive(600, type=int)) >= 0:
        await ctx.mailbox.stitched.send(await stitch(number))
        count += 1
    return count


@worker
async def cutter(ctx: Context, rounds: int) -> list[int]:
    back: list[int] = []
    for number in range(rounds):
        ctx.print(f"cut {number}")
        await ctx.mailbox.pieces.send(number)
        back.append(await ctx.mailbox.stitched.receive(600, type=int))
        await ctx.shell("/bin/true")
    await ctx.mailbox.pieces.send(-1)
    return back


@worker
async def main(ctx: Context, rounds: int) -> list[int]:
    back, count = await ctx.delegate((cutter(rounds), stitcher()))
    return [*back, count]
"""


@pytest.fixture
def run(tmp_path: Path) -> Iterator[RealRun]:
    (tmp_path / "sewing.py").write_text(PROGRAM)
    with RealRun.create_from(tmp_path, "sewing.py", "main", [ROUNDS]) as run:
        yield run


def start_late(run: RealRun, where: str, commit: int) -> int:
    run.start(module=[str(LATE_HUB), where, str(commit)])
    return run.wait_hub()


def check_end(run: RealRun, crashes: int) -> None:
    assert run.api.result() == [*range(ROUNDS), ROUNDS]
    report = verify_journal(run.run.path)
    assert report.damage is None
    times = Counter(run.effects())
    assert len(times) == ROUNDS
    assert sum(times.values()) <= ROUNDS + crashes
    outcomes = Counter(
        (entry.data["p"], entry.data["n"])
        for entry in run.entries()
        if entry.kind in {"step.finished", "message.taken", "output"}
    )
    assert set(outcomes.values()) == {1}
    shown = msgspec.json.decode((run.run.path / "run.json").read_bytes())
    assert (shown["status"], shown["seq"]) == ("completed", run.last_seq())


def test_a_run_whose_commits_end_beside_the_loop_ends_as_any_other(run: RealRun) -> None:
    assert start_late(run, "never", 0) == 0, run.story()

    check_end(run, crashes=0)


@pytest.mark.parametrize(("where", "commit"), [("started", 14), ("written", 9), ("broken", 11)])
def test_a_run_goes_on_after_a_crash_between_the_start_and_the_end_of_a_commit(
    run: RealRun, where: str, commit: int
) -> None:
    assert start_late(run, where, commit) == (6 if where == "broken" else -9), run.story()
    assert run.count("run.ended") == 0

    assert run.finish() == 0, run.story()

    check_end(run, crashes=1)
