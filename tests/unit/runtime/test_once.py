"""Steps that must not be done twice, and were ended in the middle."""

from __future__ import annotations

import pytest

from bartack import Context, ShellResult, worker
from bartack.errors import DeadlineExceededError, ResumeRefusedError, ShellError
from bartack.testing import ScriptedAgent, TestRun, start_worker


@worker
async def prompt(ctx: Context) -> str:
    return await ctx.think("Pay.", once=True, timeout_s=10)


def late_agent() -> ScriptedAgent:
    return ScriptedAgent([{"text": "paid", "delay_s": 60, "times": 0}])


def test_a_step_to_be_done_once_that_timed_out_is_not_done_again_without_a_decision() -> None:
    agent = late_agent()
    with start_worker(prompt(), agent=agent) as run:
        run.finish()
        assert run.error is not None
        assert run.error.kind == "StepTimeoutError"
        with pytest.raises(ResumeRefusedError, match="choose retry, done or fail"):
            run.resume()

        run.resume("done", {"key": "", "agent": "", "text": "paid after all"})
        run.finish()

        assert run.result == "paid after all"
        assert len(agent.prompts) == 1


def test_a_step_that_timed_out_and_may_be_repeated_is_done_again() -> None:
    with start_worker(plain_prompt(), agent=late_agent()) as run:
        run.finish()
        assert run.error is not None
        run.resume()
        run.finish()

        assert len(run.prompts) == 2


@worker
async def plain_prompt(ctx: Context) -> str:
    return await ctx.think("Pay.", timeout_s=10)


@worker
async def tidying(ctx: Context) -> str:
    """Behind its failure it does something once, which is cut short; then it fails for the old reason."""
    try:
        return str(await ctx.shell("work"))
    except ShellError:
        try:
            async with ctx.timeout(5):
                await ctx.think("Refund.", once=True)
        except DeadlineExceededError:
            pass
        raise


def play_tidying() -> tuple[TestRun[str], ScriptedAgent, list[bool]]:
    agent, broken = late_agent(), [True]

    def shell(argv: list[str]) -> ShellResult:
        return ShellResult(argv, 1) if broken[0] else ShellResult.success("worked")

    run = start_worker(tidying(), agent=agent, shell=shell)
    run.start()
    run.finish()
    assert run.error is not None
    assert run.error.kind == "ShellError"
    return run, agent, broken


def test_what_was_cut_short_behind_a_failure_is_not_done_a_second_time() -> None:
    run, agent, _ = play_tidying()
    with run:
        run.resume()
        run.finish()

        assert len(agent.prompts) == 1
        assert run.error is not None
        assert run.error.kind == "OutcomeUnknownError"


def test_what_was_cut_short_behind_a_failure_does_not_stop_a_mended_run() -> None:
    run, agent, broken = play_tidying()
    with run:
        broken[0] = False
        run.resume()
        run.finish()

        assert run.result == "worked"
        assert len(agent.prompts) == 1
