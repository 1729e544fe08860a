"""Runs of programs in memory: what a test sees, and what the program meets."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from bartack import Context, Outcome, Retry, ShellResult, step, worker
from bartack.errors import (
    DeadlineExceededError,
    DeadlockError,
    OutcomeUnknownError,
    QuestionNotFoundError,
    ReceiveTimeoutError,
    ResumeRefusedError,
    RunFailedError,
    ScriptError,
    ShellError,
    ShellNotScriptedError,
    StepCancelledError,
)
from bartack.runtime.memory.hub import KilledError
from bartack.testing import ScriptedAgent, TestRun, VirtualClock, run_worker, start_worker

HOUR = 3600.0

Script = dict[tuple[str, ...], ShellResult]


def commands(**ends: str) -> Callable[[list[str]], ShellResult | None]:
    """Commands by their first word."""
    return lambda words: ShellResult.success(ends[words[0]]) if words[0] in ends else None


# Time.


@worker
async def sleeper(ctx: Context, hours: int) -> list[datetime.datetime]:
    before = await ctx.now()
    for _ in range(hours):
        await ctx.sleep(HOUR)
    return [before, await ctx.now()]


def test_hours_of_sleep_take_no_time() -> None:
    done = run_worker(sleeper(10_000))

    before, after = done.result
    assert (after - before).total_seconds() == pytest.approx(10_000 * HOUR)


def test_a_clock_can_be_given() -> None:
    clock = VirtualClock(start_us=0)

    done = run_worker(sleeper(1), clock=clock)

    assert done.result[0] == datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    assert clock.now_us() >= HOUR * 1e6


@worker
async def patient(ctx: Context) -> str:
    try:
        await ctx.mailbox.nothing.receive(30)
    except ReceiveTimeoutError:
        return "gave up"
    return "got something"


def test_a_deadline_passes_when_all_workers_wait() -> None:
    assert run_worker(patient()).result == "gave up"


@worker
async def lonely(ctx: Context) -> object:
    return await ctx.mailbox.nothing.receive()


@worker
async def pair_of_lonely(ctx: Context) -> list[object]:
    return await ctx.delegate([lonely(), lonely()])


def test_a_deadlock_is_named_with_all_workers_that_wait() -> None:
    with pytest.raises(DeadlockError) as caught:
        run_worker(pair_of_lonely())

    assert caught.value.waits == (
        "pair_of_lonely waits in delegate lonely, lonely (step 1)",
        "pair_of_lonely/1.1:lonely waits in receive nothing (step 1)",
        "pair_of_lonely/1.2:lonely waits in receive nothing (step 1)",
    )


# Chance.


@worker
async def gambler(ctx: Context) -> tuple[float, int, uuid.UUID]:
    return await ctx.random(), await ctx.random(1, 6), await ctx.uuid()


def test_what_is_random_is_decided_by_the_seed() -> None:
    first, again, other = (run_worker(gambler(), seed=seed).result for seed in (1, 1, 2))

    assert first == again
    assert first != other


# Commands.


@worker
async def builder(ctx: Context, *targets: str) -> list[str]:
    return [str(await ctx.shell("make", target)) for target in targets]


def test_commands_end_as_the_test_says() -> None:
    shell: Script = {
        ("make", "a"): ShellResult.success("built a\n"),
        ("make", "b"): ShellResult.success("built b\n"),
    }

    done = run_worker(builder("a", "b"), shell=shell)

    assert done.result == ["built a", "built b"]
    assert done.commands == [["make", "a"], ["make", "b"]]


def test_a_command_that_fails_is_an_error_of_the_program() -> None:
    script: Script = {("make", "a"): ShellResult(["make", "a"], 2, "", "no rule")}

    done = run_worker(builder("a"), shell=script)

    assert done.error is not None
    assert (done.error.kind, done.error.worker) == ("ShellError", "builder")
    with pytest.raises(RunFailedError, match="ShellError"):
        _ = done.result


def test_a_command_that_the_test_says_nothing_about_is_an_error_of_the_test() -> None:
    script: Script = {("make", "b"): ShellResult.success()}

    with pytest.raises(ShellNotScriptedError, match="make"):
        run_worker(builder("a"), shell=script)


@worker
async def piper(ctx: Context) -> str:
    return str(await ctx.pipe(["git", "log"], ["head", "-3"]))


def test_a_pipe_is_one_command_with_bars_in_it() -> None:
    script: Script = {("git", "log", "|", "head", "-3"): ShellResult.success("x")}

    assert run_worker(piper(), shell=script).result == "x"


# Questions and agents.


@worker
async def publisher(ctx: Context, version: str) -> dict[str, object]:
    notes = await ctx.think(f"Summarise {version}")
    if not await ctx.ask(f"Publish {version}?", type=bool):
        return {"published": False}
    await ctx.shell("git", "tag", f"v{version}")
    ctx.print("published", version)
    return {"published": True, "notes": notes}


@pytest.mark.parametrize("published", [True, False])
def test_questions_and_prompts_are_answered_by_the_test(published: bool) -> None:
    agent = ScriptedAgent(prompts=[{"pattern": "Summarise", "text": "two fixes"}])

    done = run_worker(
        publisher("1.4"), agent=agent, answers={"Publish*": published}, shell=commands(git="tagged")
    )

    assert done.result["published"] is published
    assert [prompt.text for prompt in done.prompts] == ["Summarise 1.4"]
    assert done.output == (["published 1.4"] if published else [])


def test_a_question_without_an_answer_is_a_deadlock() -> None:
    agent = ScriptedAgent(prompts=[{"text": "notes"}])

    with pytest.raises(DeadlockError, match=r"ask Publish 1.4\?"):
        run_worker(publisher("1.4"), agent=agent, answers={"Burn*": True})


@worker
async def tidier(ctx: Context) -> str:
    return await ctx.think("Tidy up.")


MAY_I = {"question": "May I?", "kind": "permission", "tool": "Bash", "expect": "allow"}


def asking_agent() -> ScriptedAgent:
    asks = [MAY_I, {"question": "Which colour?", "options": ["red", "green"], "expect": "green"}]
    return ScriptedAgent(prompts=[{"text": "tidied up", "ask": asks}])


@pytest.mark.requirement("agents-ask-people")
def test_questions_of_an_agent_are_answered_by_the_test() -> None:
    answers = {"May*": "allow", "Which*": "green"}

    done = run_worker(tidier(), agent=asking_agent(), answers=answers)

    assert done.result == "tidied up"
    assert [entry.data["id"] for entry in done.journal if entry.kind == "question.asked"] == ["q1", "q2"]


def test_an_answer_that_a_script_does_not_expect_fails_its_prompt() -> None:
    done = run_worker(tidier(), agent=asking_agent(), answers={"May*": "deny"})

    assert done.error is not None
    assert "the answer to 'May I?' is 'deny', and 'allow' was expected" in done.error.message


def test_a_question_of_an_agent_without_an_answer_is_a_deadlock() -> None:
    with pytest.raises(DeadlockError, match="think"):
        run_worker(tidier(), agent=asking_agent())


@pytest.mark.requirement("agents-questions-survive-crashes")
def test_an_agent_that_was_killed_gets_the_answers_that_were_given() -> None:
    with start_worker(tidier(), agent=asking_agent()) as run:
        run.wait_for("question.asked")
        run.answer("May*", "allow")
        run.wait_for("question.asked", id="q2")
        run.crash()
        run.resume()
        run.answer("q2", "green")

        assert run.finish().result == "tidied up"
        assert len([entry for entry in run.journal if entry.kind == "question.asked"]) == 2


def begin_and_finish(run: TestRun[str]) -> None:
    run.start()
    run.finish()


@pytest.mark.requirement("agents-questions-survive-crashes")
def test_wherever_everything_is_killed_each_question_is_asked_and_answered_once() -> None:
    answers = {"May*": "allow", "Which*": "green"}
    with start_worker(tidier(), agent=asking_agent(), answers=answers) as whole:
        cuts = range(2, len(whole.finish().lines))
    assert len(cuts) >= 6

    for cut in cuts:
        run = TestRun(tidier(), agent=asking_agent(), answers=answers, dies_after=cut)
        with contextlib.closing(run):
            with pytest.raises(KilledError):
                begin_and_finish(run)
            run.resume()

            assert run.finish().result == "tidied up", cut
            kinds = [entry.kind for entry in run.journal]
            assert (kinds.count("question.asked"), kinds.count("question.settled")) == (2, 2), cut


@pytest.mark.parametrize("rule", [{"ask": {}}, {"ask": {"question": "x", "kind": "order"}}])
def test_a_question_in_a_script_has_a_text_and_a_kind(rule: dict[str, object]) -> None:
    with pytest.raises(ScriptError):
        ScriptedAgent(prompts=[rule])


def test_a_prompt_that_the_script_does_not_know_fails_the_run() -> None:
    done = run_worker(publisher("1.4"), agent=ScriptedAgent(prompts=[{"pattern": "Other"}]))

    assert done.error is not None
    assert done.error.kind == ScriptError.__name__


@worker
async def thrice(ctx: Context) -> list[str]:
    return [await ctx.think("again") for _ in range(3)]


def test_the_same_prompt_three_times_is_asked_three_times_and_no_more_after_a_crash() -> None:
    agent = ScriptedAgent(prompts=[{"text": text} for text in ("one", "two", "three")])

    with start_worker(thrice(), agent=agent) as run:
        run.wait_for("step.finished", step="think", n=2)
        run.crash()
        run.resume()
        run.finish()

    assert run.result == ["one", "two", "three"]
    keys = [prompt.key for prompt in run.prompts]
    assert len(set(keys)) == 3
    assert keys[:2] == list(dict.fromkeys(keys))[:2]
    assert len(keys) <= 4


# Values, messages, output.


@dataclass(frozen=True)
class Finding:
    file: str
    risk: int


@worker
async def scout(ctx: Context, found: list[Finding]) -> int:
    for finding in found:
        await ctx.mailbox.findings.send(finding, key=finding.file)
    return len(found)


@worker
async def clerk(ctx: Context, count: int) -> list[Finding]:
    return [await ctx.mailbox.findings.receive(5, type=Finding) for _ in range(count)]


@worker
async def office(ctx: Context) -> tuple[int, list[Finding]]:
    found = [Finding("a.py", 3), Finding("b.py", 9)]
    sent, received = await ctx.delegate((scout(found), clerk(2)))
    ctx.print(f"{sent} sent")
    ctx.log("not printed")
    return sent, received


def test_a_run_reports_its_steps_its_messages_and_its_output() -> None:
    done = run_worker(office())

    assert done.result == (2, [Finding("a.py", 3), Finding("b.py", 9)])
    assert [(message.mailbox, message.value, message.key) for message in done.messages] == [
        ("findings", {"file": "a.py", "risk": 3}, "a.py"),
        ("findings", {"file": "b.py", "risk": 9}, "b.py"),
    ]
    assert done.output == ["2 sent"]
    assert {step.kind for step in done.steps} == {"delegate", "send", "receive", "print", "log"}
    assert done.journal[-1].kind == "run.ended"
    assert done.status == "completed"


@worker
async def writer(ctx: Context, path: str) -> str:
    await ctx.write(path, "one\n")
    await ctx.append(path, "two\n")
    scratch = ctx.session.dir / "notes.txt"
    await ctx.write(scratch, "mine")
    return await ctx.read(path) + await ctx.read(scratch)


def test_files_are_real_and_relative_to_where_the_test_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    assert run_worker(writer("out.txt")).result == "one\ntwo\nmine"
    assert (tmp_path / "out.txt").read_text() == "one\ntwo\n"


# Steps of one's own.


@step
def double(number: int) -> int:
    return 2 * number


@step
async def triple(number: int) -> int:
    await asyncio.sleep(0)
    return 3 * number


@worker
async def calculator(ctx: Context) -> list[int]:
    alone = await double(1)
    beside = await ctx.gather(double(2), triple(3), double(4))
    return [alone, *beside]


def test_bodies_run_as_they_do_in_a_process() -> None:
    assert run_worker(calculator()).result == [2, 4, 9, 8]


class Flaky:
    """Raises this number of times, then works."""

    failures = 0
    calls = 0


@step(retry=Retry(attempts=4, on=(OSError,), base=10.0, factor=2.0, cap=100.0, jitter="none"))
def flaky() -> int:
    Flaky.calls += 1
    if Flaky.calls <= Flaky.failures:
        raise OSError("not yet")
    return Flaky.calls


@worker
async def persistent(ctx: Context) -> int:
    return await flaky()


@pytest.fixture
def flaky_step() -> type[Flaky]:
    Flaky.calls = 0
    Flaky.failures = 2
    return Flaky


@pytest.mark.usefixtures("flaky_step")
def test_a_retry_waits_its_time() -> None:
    clock = VirtualClock()

    done = run_worker(persistent(), clock=clock)

    assert done.result == 3
    assert clock.monotonic_ns() == pytest.approx(30e9, rel=0.01)


@pytest.mark.usefixtures("flaky_step")
def test_the_count_and_the_time_of_a_retry_continue_after_a_crash() -> None:
    with start_worker(persistent()) as run:
        retried = run.wait_for("step.retried")
        run.clock.advance(4.0)
        run.crash()
        run.clock.advance(2.0)
        run.resume()
        run.clock.advance(3.5)
        with pytest.raises(DeadlockError):
            run.wait_for("step.retried")
        run.clock.advance(0.6)
        assert run.wait_for("step.retried")["attempt"] == 2
        run.finish()

    assert retried["attempt"] == 1
    assert (run.result, Flaky.calls) == (3, 3)


@pytest.mark.usefixtures("flaky_step")
def test_the_last_error_of_a_retry_is_the_outcome() -> None:
    Flaky.failures = 99

    done = run_worker(persistent())

    assert done.error is not None
    assert (done.error.kind, done.error.message, Flaky.calls) == ("OSError", "not yet", 4)


class Payment:
    made = 0


@step(once=True)
def pay() -> str:
    Payment.made += 1
    return f"payment {Payment.made}"


@worker
async def buyer(ctx: Context) -> str:
    return await pay()


@worker
async def careful_buyer(ctx: Context) -> str:
    try:
        return await pay()
    except OutcomeUnknownError:
        return "nobody knows"


def killed_while_paying(run: TestRun[str]) -> None:
    """The step is written down; then everything dies."""
    Payment.made = 0
    run.wait_for("step.started", step="body")
    run.crash()


def test_a_payment_that_was_under_way_is_not_made_twice() -> None:
    with start_worker(careful_buyer()) as run:
        killed_while_paying(run)
        run.resume()
        run.finish()

    assert run.result == "nobody knows"
    assert Payment.made <= 1


@pytest.mark.parametrize(
    ("unknown", "expected"), [("retry", "payment 1"), ("done", "by hand"), ("fail", None)]
)
def test_each_decision_about_an_unknown_outcome(unknown: str, expected: str | None) -> None:
    with start_worker(buyer()) as run:
        killed_while_paying(run)
        run.resume()
        run.finish()
        assert run.error is not None
        assert run.error.kind == "OutcomeUnknownError"
        Payment.made = 0
        run.resume(unknown, "by hand")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] - one of the three
        run.finish()

    if expected is None:
        assert run.error is not None
    else:
        assert run.result == expected


# Branches.


@worker
async def careful_gather(ctx: Context) -> list[str]:
    seen: list[str] = []

    async def waits(name: str) -> None:
        try:
            await ctx.mailbox[name].receive(HOUR)
        except StepCancelledError:
            seen.append(f"{name} cancelled")
            raise
        finally:
            await ctx.shell("tidy", name)
            seen.append(f"{name} tidied")

    async def fails() -> None:
        await ctx.sleep(1)
        await ctx.shell("broken")

    try:
        await ctx.gather(waits("a"), fails(), waits("b"))
    except ShellError:
        seen.append("failed")
    return seen


def broken(words: list[str]) -> ShellResult | None:
    return ShellResult(words, 1) if words[0] == "broken" else ShellResult.success()


def test_the_failure_of_a_branch_cancels_the_others_once_and_is_raised_when_all_have_ended() -> None:
    done = run_worker(careful_gather(), shell=broken)

    assert done.result == ["a cancelled", "b cancelled", "a tidied", "b tidied", "failed"]


@worker
async def hurried(ctx: Context, what: str) -> list[object]:
    try:
        async with ctx.timeout(20), ctx.timeout(50):
            if what == "receive":
                await ctx.mailbox.nothing.receive(HOUR)
            elif what == "sleep":
                await ctx.sleep(HOUR)
            elif what == "think":
                await ctx.think("slowly")
            elif what == "ask":
                await ctx.ask("Anybody?")
            else:
                await ctx.delegate([lonely()])
    except DeadlineExceededError:
        return [what, await ctx.deadline()]
    return ["in time"]


@pytest.mark.parametrize("what", ["receive", "sleep", "think", "ask", "delegate"])
def test_a_deadline_interrupts_every_kind_of_wait(what: str) -> None:
    clock = VirtualClock()
    agent = ScriptedAgent(prompts=[{"text": "late", "delay_s": 500.0}])

    done = run_worker(hurried(what), clock=clock, agent=agent)

    assert done.result == [what, None]
    assert clock.monotonic_ns() == pytest.approx(20e9, rel=0.01)


# Step by step.


def test_a_test_lets_the_run_continue_to_where_it_wants_to_look() -> None:
    with start_worker(
        publisher("2.0"), agent=ScriptedAgent(prompts=[{"text": "n"}]), shell=commands(git="")
    ) as run:
        asked = run.wait_for("step.started", step="ask")
        assert run.status == "running"
        with pytest.raises(QuestionNotFoundError):
            run.answer("Burn*", value=True)
        run.answer("Publish*", value=True)
        run.finish()

    assert asked["question"] == "q1"
    assert run.result["published"] is True


def test_time_stands_still_until_the_test_moves_it() -> None:
    with start_worker(sleeper(1)) as run:
        run.wait_for("step.started", step="sleep")
        with pytest.raises(DeadlockError, match="sleep 3600 s"):
            run.wait_for("step.finished", step="sleep")
        run.clock.advance(HOUR)
        run.wait_for("step.finished", step="sleep")
        run.finish()

    assert run.status == "completed"


def test_a_test_sends_messages() -> None:
    with start_worker(lonely()) as run:
        run.send("nothing", {"hello": 1})
        run.finish()

    assert run.result == {"hello": 1}


def test_an_event_is_returned_once_and_by_its_pattern() -> None:
    with start_worker(office()) as run:
        first = run.wait_for("message.*", mailbox="findings")
        second = run.wait_for("message.*", mailbox="findings")
        run.finish()

    assert first["seq"] != second["seq"]


def test_a_crash_of_one_worker_goes_unnoticed_by_the_others() -> None:
    with start_worker(office()) as run:
        run.wait_for("message.sent", key="a.py")
        run.crash("office/1.1:scout")
        run.finish()

    assert run.result[0] == 2
    assert len(run.messages) == 2
    assert [entry.kind for entry in run.journal].count("worker.crashed") == 1


def test_a_worker_that_is_not_there_cannot_crash() -> None:
    with start_worker(office()) as run, pytest.raises(ValueError, match="office"):
        run.crash("nobody")


def test_a_failed_run_is_resumed_when_the_cause_is_fixed() -> None:
    script: Script = {("make", "a"): ShellResult(["make", "a"], 1)}
    with start_worker(builder("a"), shell=script) as run:
        run.finish()
        assert run.error is not None
        script["make", "a"] = ShellResult.success("made")
        run.resume()
        run.finish()

    assert run.result == ["made"]


def test_the_dead_time_counts_for_timers_and_not_for_deadlines() -> None:
    with start_worker(patient()) as run:
        run.wait_for("step.started", step="receive")
        run.clock.advance(20.0)
        run.crash()
        run.clock.advance(1000.0)
        run.resume()
        run.clock.advance(9.0)
        with pytest.raises(DeadlockError):
            run.wait_for("step.failed")
        run.clock.advance(1.1)
        run.wait_for("step.failed")
        run.finish()

    assert run.result == "gave up"


def test_the_result_of_a_run_that_has_not_ended_is_not_there() -> None:
    with start_worker(sleeper(1)) as run, pytest.raises(RuntimeError, match="not ended"):
        _ = run.result


def test_a_run_that_is_completed_cannot_be_resumed() -> None:
    with start_worker(sleeper(1)) as run:
        run.finish()
        with pytest.raises(ResumeRefusedError):
            run.resume()


# Delegates and spawned workers.


@worker
async def fragile(ctx: Context, fails: bool) -> str:
    await ctx.sleep(1)
    if fails:
        raise KeyError("broken")
    return "whole"


@worker
async def collector(ctx: Context) -> list[Outcome[str]]:
    return await ctx.delegate([fragile(fails=True), fragile(fails=False)], on_failure="collect")


@worker
async def strict(ctx: Context) -> list[str]:
    return await ctx.delegate([fragile(fails=True), fragile(fails=False)])


def test_failures_are_collected_as_values() -> None:
    done = run_worker(collector())

    first, second = done.result
    assert (first.ok, second.ok, second.value) == (False, True, "whole")
    assert first.error is not None
    assert first.error.kind == "KeyError"


def test_a_failure_below_fails_the_run_and_names_the_first_worker() -> None:
    done = run_worker(strict())

    assert done.error is not None
    assert (done.error.kind, done.error.worker) == ("KeyError", "strict/1.1:fragile")


@worker
async def parent(ctx: Context) -> list[object]:
    child = await ctx.spawn(fragile(fails=False))
    waiting = await ctx.spawn(lonely())
    await waiting.cancel("enough")
    return [child.path, await child]


def test_spawned_workers_are_joined_and_cancelled() -> None:
    done = run_worker(parent())

    assert done.result == ["parent/1:fragile", "whole"]
