"""``ctx.version``: old histories get the old code, new ones the new code, and no kill, loop or branch mixes the two."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TypeVar

import pytest

from bartack import Context, ShellResult, step, worker
from bartack.errors import DeadlockError, RunFailedError, ShellNotScriptedError
from bartack.runtime import WorkerCall
from bartack.runtime.memory.hub import KilledError
from bartack.runtime.scheduler.versions import LONGEST_NAME
from bartack.testing import ScriptedAgent, TestRun, assert_survives_crashes, run_worker, start_worker

R = TypeVar("R")


class Code:
    """Which code the programs below have; a test changes it between two processes of a run."""

    calls = False
    asks = True
    latest = 1
    oldest = 0


@pytest.fixture(autouse=True)
def code() -> Iterator[None]:
    yield
    Code.calls, Code.asks, Code.latest, Code.oldest = False, True, 1, 0


async def version(ctx: Context, name: str = "paint") -> int:
    """What the changed program gets; the old one has no such call."""
    return await ctx.version(name, Code.latest, oldest=Code.oldest) if Code.calls else 0


def shell(words: list[str]) -> ShellResult:
    return ShellResult.success(words[-1])


@step
def body(text: str) -> str:
    return text


# Programs. Each returns what it did.


@worker
async def line(ctx: Context) -> list[str]:
    first = (await ctx.shell("echo", "first")).stdout
    number = await version(ctx)
    if number:
        await body("prepared")
    second = (await ctx.shell("echo", f"second-{number}")).stdout
    third = (await ctx.shell("echo", f"third-{await version(ctx)}")).stdout
    return [first, second, third]


@worker
async def loop(ctx: Context) -> list[str]:
    done: list[str] = []
    for turn in range(4):
        if await version(ctx):
            done.append((await ctx.shell("echo", f"new-{turn}")).stdout)
            ctx.print(f"new {turn}")
        else:
            done.append(await body(f"old-{turn}"))
    return done


async def painted(ctx: Context, colour: str) -> list[str]:
    ready = await body(f"ready {colour}")
    if await version(ctx):
        return [ready, (await ctx.shell("echo", f"new-{colour}")).stdout, await body(f"dry {colour}")]
    return [ready, await body(f"old-{colour}")]


@worker
async def branches(ctx: Context) -> list[list[str]]:
    both = await ctx.gather(painted(ctx, "red"), painted(ctx, "blue"))
    both.append([f"end-{await version(ctx)}"])
    await ctx.sleep(1)
    return both


async def silent(ctx: Context) -> int:
    """A branch that does nothing after its version: only what comes of it shows that it was passed."""
    await body("silent")
    return await version(ctx)


@worker
async def joined(ctx: Context) -> str:
    number, _ = await ctx.gather(silent(ctx), body("beside"))
    return (await ctx.shell("echo", f"joined-{number}")).stdout


@worker
async def limited(ctx: Context) -> str:
    async with ctx.timeout(30):
        await body("inside")
        number = await version(ctx)
    return (await ctx.shell("echo", f"limited-{number}")).stdout


@worker
async def answering(ctx: Context) -> list[object]:
    async def look(name: str) -> str:
        """Look."""
        return name

    number = 0

    async def beside() -> str:
        nonlocal number
        await body("beside")
        number = await version(ctx)
        return await body(f"beside-{number}")

    reply, other = await ctx.gather(ctx.think("Which?", type=str, tools=[look]), beside())
    return [reply, other, await body(f"end-{number}")]


@worker
async def restarting(ctx: Context, turn: int = 1, seen: list[int] | None = None) -> list[int]:
    await body(f"turn {turn}")
    seen = [*(seen or []), await version(ctx)]
    await body(f"seen {seen[-1]}")
    if turn < 2:
        await ctx.restart(turn + 1, seen)
    return seen


@worker
async def failing(ctx: Context) -> str:
    await body("first")
    number = await version(ctx)
    return (await ctx.shell("echo", f"second-{number}")).stdout


@worker
async def failing_beside(ctx: Context) -> list[str]:
    async def fails() -> str:
        await ctx.sleep(1)
        await version(ctx)
        return (await ctx.shell("false")).stdout

    async def uses() -> str:
        await ctx.sleep(2)
        return (await ctx.shell("echo", f"uses-{await version(ctx)}")).stdout

    kept, failed = await ctx.gather(uses(), fails(), on_failure="collect")
    await ctx.sleep(1)
    failed.unwrap()
    return [str(kept.unwrap())]


@worker
async def cleaned(ctx: Context) -> str:
    await body("first")
    number = await ctx.version("paint") if Code.asks else 1
    await body(f"second-{number}")
    await ctx.sleep(1)
    return await body("third")


@worker
async def stubborn(ctx: Context) -> str:
    await ctx.version("paint", 2)
    try:
        await ctx.version("paint", 1)
    except BaseException:  # noqa: BLE001 - that it is not caught is what is tested
        return "caught"
    return "went on"


@worker
async def wrong(ctx: Context, name: object, numbers: dict[str, object]) -> int:
    return await ctx.version(name, **numbers)  # type: ignore[arg-type] # - that it is wrong is what is tested


@worker
async def forgetful(ctx: Context) -> str:
    return "new" if ctx.version("paint") else "old"


def agent() -> ScriptedAgent:
    calls = [{"tool": "look", "arguments": {"name": name}} for name in ("one", "two")]
    return ScriptedAgent(prompts=[{"value": "green", "call": calls, "times": 0}])


PROGRAMS: dict[str, Callable[[], WorkerCall[object]]] = {
    "line": line,
    "loop": loop,
    "branches": branches,
    "joined": joined,
    "limited": limited,
    "answering": answering,
}


ONE_BRANCH = frozenset({"line", "loop", "limited"})
"""Their journals are the same each time; bodies of branches end in any order."""


def result_of(call: WorkerCall[object], *, calls: bool) -> object:
    Code.calls = calls
    return run_worker(call, shell=shell, agent=agent()).result


def versions_in(run: TestRun[R]) -> list[tuple[str, int]]:
    found = [entry.data for entry in run.journal if entry.kind == "version.chosen"]
    return [(str(data["name"]), int(str(data["number"]))) for data in found]


# New runs.


def test_a_new_run_gets_the_latest_version_and_records_it_once() -> None:
    Code.calls, Code.latest = True, 3

    done = run_worker(line(), shell=shell)

    assert done.result == ["first", "second-3", "third-3"]
    assert versions_in(done) == [("paint", 3)]


@pytest.mark.requirement("versions-survive-kills")
@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_a_new_run_is_killed_after_every_line_and_keeps_its_version(name: str) -> None:
    Code.calls = True

    assert assert_survives_crashes(PROGRAMS[name](), at="entries", shell=shell, agent=agent()) > 4


@pytest.mark.requirement("versions-survive-kills")
def test_a_restarted_history_chooses_anew_and_is_killed_after_every_line() -> None:
    Code.calls = True

    assert run_worker(restarting()).result == [1, 1]
    assert assert_survives_crashes(restarting(), at="entries") > 4


# Old runs.


def old_runs(call: Callable[[], WorkerCall[object]]) -> Iterator[TestRun[object]]:
    """Runs of the old program that were killed after each line of their journal, and not resumed yet."""
    Code.calls = False
    whole = run_worker(call(), shell=shell, agent=agent())
    for cut in range(2, len(whole.lines)):
        Code.calls = False
        run = TestRun(call(), shell=shell, agent=agent(), dies_after=cut)
        with contextlib.closing(run):
            with contextlib.suppress(KilledError):
                run.start()
                run.finish()
            assert run.status == "running"
            yield run


@pytest.mark.requirement("versions-serve-old-runs")
@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_an_old_run_that_was_killed_anywhere_resumes_with_the_old_or_the_new_code_and_not_with_both(
    name: str,
) -> None:
    call = PROGRAMS[name]
    old, new = result_of(call(), calls=False), result_of(call(), calls=True)
    results = list[object]()

    for run in old_runs(call):
        Code.calls = True
        run.resume()
        run.finish()
        results.append(run.result)
        assert bool(versions_in(run)) == (run.result == new), run.result

    assert all(result in (old, new) for result in results), results
    if name in ONE_BRANCH:
        changes = [one == new for one in results]
        assert changes == sorted(changes, reverse=True), "a run that was past the place got the new code"
    assert len(set(map(str, results))) == 2


@pytest.mark.requirement("versions-serve-old-runs")
@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_an_old_run_keeps_its_answer_when_it_is_killed_again_anywhere(name: str) -> None:
    call = PROGRAMS[name]
    old, new = result_of(call(), calls=False), result_of(call(), calls=True)

    for again in range(1, 9):
        for run in old_runs(call):
            Code.calls = True
            run.resume()
            try:
                for _ in range(again):
                    run.wait_for("*")
            except DeadlockError:
                pass  # it has ended, or waits for time
            if run.status == "running":
                run.crash()
                run.resume()
                run.finish()
            assert run.result == (new if versions_in(run) else old)


def test_an_open_step_shows_that_its_worker_was_past_the_place() -> None:
    with start_worker(branches(), shell=shell) as run:
        run.wait_for("step.started", step="sleep")
        run.crash()
        Code.calls = True
        run.resume()

        result = run.finish().result

    assert result[2] == ["end-0"]
    assert versions_in(run) == []


def test_a_failed_worker_that_is_set_back_before_the_place_gets_the_new_code() -> None:
    broken = [True]

    def broken_shell(words: list[str]) -> ShellResult:
        return ShellResult(argv=words, status=int(broken.pop()) if broken else 0, stdout=words[-1], stderr="")

    with start_worker(failing(), shell=broken_shell) as run:
        assert run.finish().status == "failed"
        Code.calls = True
        run.resume()

        assert run.finish().result == "second-1"


def test_a_version_stays_when_its_worker_is_set_back_to_before_it() -> None:
    status = [1, 0]

    def broken_shell(words: list[str]) -> ShellResult:
        code = (status.pop(0) if status else 0) if words == ["false"] else 0
        return ShellResult(argv=words, status=code, stdout=words[-1], stderr="")

    Code.calls = True
    with start_worker(failing_beside(), shell=broken_shell) as run:
        assert run.finish().status == "failed"
        Code.latest = 2
        run.resume()

        assert run.finish().status in {"completed", "failed"}
    assert versions_in(run) == [("paint", 1)]
    assert "uses-1" in [word for words in run.commands for word in words]


@pytest.mark.requirement("versions-come-and-go")
def test_a_call_can_be_removed_from_a_program_whose_runs_have_recorded_it() -> None:
    with start_worker(cleaned()) as run:
        run.wait_for("step.started", step="sleep")
        run.crash()
        Code.asks = False
        run.resume()

        assert run.finish().result == "third"
    assert versions_in(run) == [("paint", 1)]


# Mistakes.


def _after_update(number: int, latest: int, oldest: int) -> str:
    Code.calls, Code.latest = True, number
    with start_worker(branches(), shell=shell) as run:
        run.wait_for("step.started", step="sleep")
        run.crash()
        Code.latest, Code.oldest = latest, oldest
        run.resume()
        run.finish()
        assert run.error is not None
        return run.error.message


@pytest.mark.requirement("versions-name-what-to-keep")
def test_a_version_that_the_program_does_not_have_names_the_code_to_keep() -> None:
    below = _after_update(2, latest=1, oldest=0)
    gone = _after_update(1, latest=3, oldest=2)

    assert "branches has version 2 of 'paint', the program has 0 to 1" in below
    assert "keep the code of version 2" in below
    assert "branches has version 1 of 'paint', the program has 2 to 3" in gone
    assert "keep the code of version 1" in gone
    assert "test_versions.py:" in gone


def test_an_old_history_whose_code_is_gone_names_version_0() -> None:
    def until_third(words: list[str]) -> ShellResult | None:
        return None if "third-0" in words else shell(words)

    with start_worker(line(), shell=until_third) as run:
        with pytest.raises(ShellNotScriptedError):
            run.finish()
        run.crash()
        Code.calls, Code.oldest = True, 1
        run.resume()
        run.finish()

        assert run.error is not None
        assert "keep the code of version 0" in run.error.message


def test_a_program_cannot_catch_a_version_that_it_does_not_have() -> None:
    with pytest.raises(RunFailedError, match="VersionError"):
        assert run_worker(stubborn()).result == "caught"


@pytest.mark.parametrize(
    ("name", "numbers", "problem"),
    [
        ("", {}, "not empty"),
        (7, {}, "not empty"),
        ("x" * (LONGEST_NAME + 1), {}, "at most 100"),
        ("a\nb", {}, "printable"),
        ("a", {"latest": 0}, "from 1 to"),
        ("a", {"latest": "2"}, "from 1 to"),
        ("a", {"latest": 2, "oldest": 3}, "from 0 to 2"),
        ("a", {"oldest": -1}, "from 0 to 1"),
    ],
)
def test_mistakes_in_a_call_are_named(name: object, numbers: dict[str, object], problem: str) -> None:
    with pytest.raises(RunFailedError, match=problem):
        assert run_worker(wrong(name, numbers)).result


def test_a_call_without_await_is_refused() -> None:
    with pytest.raises(RunFailedError, match="never awaited"):
        assert run_worker(forgetful()).result


def test_a_timeline_has_a_line_for_a_version() -> None:
    from bartack.runtime.state.timeline import Timeline  # noqa: PLC0415 - only here

    Code.calls = True
    done = run_worker(line(), shell=shell)

    notes = [(note.kind, note.worker, note.text) for note in Timeline.of(done.journal).notes]

    assert ("version", "line", "paint: 1") in notes


def test_the_checks_of_both_languages_know_how_long_a_name_can_be() -> None:
    from bartack.language.checking import _functions  # noqa: PLC0415 - only here
    from bartack.supervision.lint import _versions  # noqa: PLC0415 - only here

    assert LONGEST_NAME == _functions.LONGEST_VERSION_NAME == _versions.LONGEST
