"""Programs that survive being killed everywhere, programs that do not, and journals that no longer fit."""

from __future__ import annotations

import importlib
import os
import shutil
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from types import ModuleType

import msgspec
import pytest

from bartack import Context, Retry, Run, ShellResult, step, worker
from bartack.errors import ReceiveTimeoutError, ReplayMismatchError, RunNotFoundError, StepCancelledError
from bartack.runtime import Worker, WorkerCall
from bartack.runtime.memory.hub import KilledError
from bartack.testing import (
    ScriptedAgent,
    TestRun,
    assert_replays,
    assert_survives_crashes,
    wait_for,
)

# The two examples of the Python API, as they stand there.


@worker
async def reviewer(ctx: Context, path: str) -> bool:
    return await ctx.think(f"Is {path} ready to ship?", type=bool)


@worker
async def ship(ctx: Context, *paths: str) -> str:
    verdicts = await ctx.delegate([reviewer(p) for p in paths])
    ready = [p for p, good in zip(paths, verdicts, strict=True) if good]
    ctx.print(f"{len(ready)} of {len(paths)} ready")
    return ",".join(ready)


@dataclass(frozen=True)
class Finding:
    file: str
    risk: int


@step(retry=Retry(attempts=3, on=(OSError,)), timeout_s=10)
def file_ticket(finding: Finding) -> str:
    with Path("tickets.txt").open("a") as out:
        out.write(f"{finding.risk} {finding.file}\n")
    return f"T-{finding.file}"


@worker(agent="claude")
async def scout(ctx: Context, files: list[str]) -> int:
    for file in files:
        risk = await ctx.think(f"Rate the risk of {file} from 0 to 9.", type=int)
        await ctx.mailbox.findings.send(Finding(file, risk))
    return len(files)


@worker
async def clerk(ctx: Context, expected: int) -> list[str]:
    tickets: list[str] = []
    for _ in range(expected):
        try:
            found = await ctx.mailbox.findings.receive(900, type=Finding)
        except ReceiveTimeoutError:
            ctx.log("gave up waiting")
            break
        if found.risk >= 7:
            tickets.append(await file_ticket(found))
    return tickets


@worker
async def triage(ctx: Context, pattern: str = "src/**/*.py") -> list[str]:
    files = await ctx.list(pattern)
    _, tickets = await ctx.delegate((scout(files), clerk(len(files))))
    if tickets and await ctx.ask(f"Notify the team of {len(tickets)} tickets?", type=bool):  # type: ignore[arg-type] # right of 'and' - mypy expects what is left of it
        ctx.print("notified")
    return tickets


@pytest.mark.parametrize("at", ["steps", "entries"])
def test_reviews_are_asked_once_whenever_the_run_is_killed(at: str) -> None:
    agent = ScriptedAgent(prompts=[{"pattern": "a.md", "value": True}, {"pattern": "b.md", "value": False}])

    kills = assert_survives_crashes(ship("a.md", "b.md"), at=at, agent=agent)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] - one of the two

    assert kills >= 3


def test_a_team_that_uses_most_things_survives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, risk in (("a", 8), ("b", 2), ("c", 9)):
        (tmp_path / f"{name}.py").write_text(str(risk))
    agent = ScriptedAgent(
        prompts=[
            {"pattern": f"of {name}.py", "value": risk, "times": 0}
            for name, risk in (("a", 8), ("b", 2), ("c", 9))
        ]
    )

    kills = assert_survives_crashes(triage("*.py"), at="entries", agent=agent, answers={"Notify*": True})

    assert kills > 20
    tickets = (tmp_path / "tickets.txt").read_text().splitlines()
    # Once for each run that came to it, and once more for each that was killed before its outcome was durable.
    assert set(tickets) == {"8 a.py", "9 c.py"}


# Branches.


@worker
async def race(ctx: Context, seed: int) -> list[str]:
    """Four branches that share a list, in an order that depends on their timers."""
    shared: list[str] = []

    async def branch(name: str) -> None:
        draw = Random(f"{seed}{name}")
        for _ in range(3):
            await ctx.sleep(draw.choice([1, 2, 3, 5, 8]))
            shared.append(name)
            if shared.count(name) % 2:
                await ctx.mailbox.order.send([name, len(shared)])

    await ctx.gather(*(branch(name) for name in "abcd"))
    return shared


def check_race(seed: int, lines: int) -> list[str]:
    """Kill the race after this number of lines; returns the order in which its branches ran."""
    run = TestRun(race(seed), dies_after=lines)
    try:
        try:
            run.start()
            run.finish()
        except KilledError:
            run.resume()
            run.finish()
        shared = run.result
    finally:
        run.close()
    places = [msgspec.convert(message.value, type=tuple[str, int]) for message in run.messages]
    assert [shared[place - 1] for _, place in places] == [name for name, _ in places]
    assert len({place for _, place in places}) == len(places) == 8
    assert sorted(shared) == sorted("abcd" * 3)
    return shared


def test_branches_that_share_state_do_not_diverge_in_whatever_order_they_run() -> None:
    draw = Random(20_260_101)
    orders: set[str] = set()
    seeds = 300 if "SOAK" in os.environ else 60
    for seed in range(seeds):
        for cut in draw.sample(range(2, 34), 5):
            orders.add("".join(check_race(seed, cut)))

    assert len(orders) > seeds * 2 // 3


@worker
async def tidy(ctx: Context) -> list[str]:
    seen: list[str] = []

    async def waits(name: str) -> None:
        try:
            await ctx.mailbox[name].receive(3600)
        except StepCancelledError:
            seen.append(f"{name} cancelled")
            raise
        finally:
            await ctx.shell("tidy", name)
            seen.append(f"{name} tidied")

    async def fails() -> None:
        await ctx.sleep(1)
        raise KeyError("broken")

    try:
        await ctx.gather(waits("a"), fails(), waits("b"))
    except KeyError:
        seen.append("failed")
    async with ctx.timeout(5):
        seen.append(str(await ctx.shell("last")))
    return seen


def test_clean_up_of_cancelled_branches_is_replayed_in_order() -> None:
    def shell(words: list[str]) -> ShellResult:
        return ShellResult.success(words[-1])

    assert assert_survives_crashes(tidy(), at="entries", shell=shell) > 5


@worker
async def hurried(ctx: Context, what: str) -> list[object]:
    trace: list[object] = []
    began = await ctx.now()
    for seconds in (20, 60):
        try:
            async with ctx.timeout(seconds), ctx.timeout(40):
                if what == "receive":
                    await ctx.mailbox.nothing.receive(3600)
                elif what == "sleep":
                    await ctx.sleep(3600)
                elif what == "think":
                    await ctx.think("slowly")
                else:
                    await ctx.gather(ctx.sleep(3600), ctx.mailbox.nothing.receive(3600))
        except TimeoutError:
            trace.append(round((await ctx.now() - began).total_seconds()))
    return trace


@pytest.mark.parametrize("what", ["receive", "sleep", "think", "gather"])
def test_deadlines_have_the_same_outcome_whenever_the_run_is_killed(what: str) -> None:
    agent = ScriptedAgent(prompts=[{"text": "late", "delay_s": 500.0, "times": 0}])

    assert assert_survives_crashes(hurried(what), at="entries", agent=agent) > 3


# Programs that do not survive.


@worker
async def clock_reader(ctx: Context) -> str:
    await ctx.sleep(1)
    await ctx.mailbox.log.send(time.time_ns())  # bartack: allow[nondeterminism] this is the mistake
    await ctx.sleep(1)
    return "done"


class Forgetful:
    count = 0


@worker
async def global_counter(ctx: Context) -> int:
    await ctx.sleep(1)
    Forgetful.count += 1
    await ctx.sleep(1)
    return Forgetful.count


@worker
async def failing(ctx: Context) -> None:
    raise KeyError("always")


@worker
async def secret_printer(ctx: Context) -> None:
    await ctx.sleep(1)
    ctx.print(os.urandom(8).hex())


def test_a_clock_read_between_steps_is_found() -> None:
    with pytest.raises(AssertionError, match=r"killed after entry .*ReplayMismatchError"):
        assert_survives_crashes(clock_reader())


def test_state_outside_the_worker_is_found() -> None:
    Forgetful.count = 0

    with pytest.raises(AssertionError, match="instead of"):
        assert_survives_crashes(global_counter())


def test_output_that_differs_is_found() -> None:
    with pytest.raises(AssertionError, match=r"printed|ReplayMismatch"):
        assert_survives_crashes(secret_printer(), at="entries")


def test_a_run_that_fails_anyway_is_not_a_test() -> None:
    with pytest.raises(AssertionError, match="without any crash: KeyError"):
        assert_survives_crashes(failing())


@step(once=True)
def pay() -> str:
    return "paid"


@worker
async def buyer(ctx: Context) -> str:
    return await pay()


def test_a_once_step_survives_with_a_decision_only() -> None:
    with pytest.raises(AssertionError, match="OutcomeUnknownError"):
        assert_survives_crashes(buyer(), at="entries")


def test_nothing_is_scripted_with_real_processes() -> None:
    with pytest.raises(ValueError, match="scripted"):
        assert_survives_crashes(buyer(), processes=True, answers={})


# Real runs.

PROGRAM = """
from bartack import Context, step, worker


@step
def double(number: int) -> int:
    return 2 * number


@worker
async def child(ctx: Context, number: int) -> int:
    await ctx.mailbox.numbers.send(number)
    return await double(number)


@worker
async def main(ctx: Context) -> list[int]:
    found = await ctx.delegate([child(1), child(2)])
    ctx.print("sum", sum(found))
    await ctx.sleep(0.01)
    {change}
    await ctx.sleep({wait})
    return found
"""


def write_program(folder: Path, *, wait: float = 0.01, change: str = "") -> Path:
    file = folder / "program.py"
    file.write_text(PROGRAM.replace("{wait}", str(wait)).replace("{change}", change or "pass"))
    return file


@pytest.fixture
def finished_run(tmp_path: Path) -> Run:
    run = Run.start(write_program(tmp_path), workspace=tmp_path)
    run.wait(60)
    return run


def load_main(folder: Path, monkeypatch: pytest.MonkeyPatch) -> WorkerCall[list[int]]:
    """The first worker of a program that a test has written."""
    monkeypatch.setattr(sys, "path", [str(folder), *sys.path])
    monkeypatch.setitem(sys.modules, "program", ModuleType("program"))
    del sys.modules["program"]
    main: Worker[[], list[int]] = vars(importlib.import_module("program"))["main"]
    return main()


def test_a_run_in_memory_has_the_result_of_the_same_program_in_processes(
    tmp_path: Path, finished_run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    with TestRun(load_main(tmp_path, monkeypatch)) as run:
        run.finish()

    assert run.result == finished_run.result()
    assert run.output == ["sum 6"]


@pytest.fixture
def unfinished_run(tmp_path: Path) -> Run:
    """A run that was interrupted in the middle of a step."""
    run = Run.start(write_program(tmp_path, wait=600), workspace=tmp_path)
    wait_for(run, "step.finished", step="sleep", timeout_s=60)
    run.interrupt()
    run.wait(60)
    return run


def test_the_journal_of_an_unfinished_run_replays(unfinished_run: Run) -> None:
    report = assert_replays(unfinished_run.dir)

    assert report.workers == 3
    assert report.steps >= 3


def test_a_run_directory_that_was_moved_replays(unfinished_run: Run, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere" / unfinished_run.id
    shutil.copytree(unfinished_run.dir, elsewhere, ignore=shutil.ignore_patterns("hub.sock"))

    assert assert_replays(elsewhere, tmp_path / "program.py").steps >= 3


def add_a_step(text: str) -> str:
    return text.replace("    found =", "    await ctx.uuid()\n    found =")


def print_something_else(text: str) -> str:
    return text.replace('ctx.print("sum"', 'ctx.print("total"')


def delegate_something_else(text: str) -> str:
    return text.replace("child(2)]", "child(3)]")


@pytest.mark.parametrize("change", [add_a_step, print_something_else, delegate_something_else])
def test_a_program_that_asks_for_other_steps_does_not_replay(
    unfinished_run: Run, tmp_path: Path, change: Callable[[str], str]
) -> None:
    file = tmp_path / "program.py"
    file.write_text(change(file.read_text()))
    before = (Path(unfinished_run.dir) / "journal.ndjson").read_bytes()

    with pytest.raises(ReplayMismatchError) as caught:
        assert_replays(unfinished_run.dir)

    assert caught.value.recorded
    assert (Path(unfinished_run.dir) / "journal.ndjson").read_bytes() == before


def test_a_change_after_what_is_recorded_replays(unfinished_run: Run, tmp_path: Path) -> None:
    write_program(tmp_path, wait=600, change="await ctx.uuid()")

    assert assert_replays(unfinished_run.dir).steps >= 3


def test_a_folder_without_a_run_does_not_replay(tmp_path: Path) -> None:
    with pytest.raises(RunNotFoundError):
        assert_replays(tmp_path)


def test_waiting_for_an_event_that_does_not_come_ends(finished_run: Run) -> None:
    with pytest.raises(TimeoutError, match="1 of 2 times"):
        wait_for(finished_run, "run.ended", count=2, timeout_s=0.1)


def test_events_of_a_run_are_found_by_their_fields(finished_run: Run) -> None:
    found = wait_for(finished_run, "message.*", mailbox="numbers", count=2)

    assert [event["kind"] for event in found] == ["message.sent", "message.sent"]


SMALL = """
from bartack import Context, worker


@worker
async def main(ctx: Context) -> list[int]:
    number = await ctx.random(1, 1)
    await ctx.sleep(0.01)
    ctx.print(number)
    await ctx.sleep(0.01)
    return [number]
"""


def test_a_program_survives_sigkill_of_its_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "program.py").write_text(SMALL)

    kills = assert_survives_crashes(load_main(tmp_path, monkeypatch), processes=True)

    assert kills == 3
