"""Scripts that say when an agent may be asked again, and scripts that were not used up: whole runs with a clock of their own."""

from __future__ import annotations

import pytest

from bartack.agents import ScriptedAgent
from bartack.agents.scripted.scripted import read_script
from bartack.errors import DeadlockError, ScriptError
from bartack.runtime import Context, worker
from bartack.testing import run_worker, start_worker

LIMITED = {"fail": {"outcome": "rate_limited", "message": "too many requests", "until_s": 3600.0}}


@worker
async def asker(ctx: Context) -> str:
    return await ctx.think("Summarise", timeout_s=86_400)


def test_an_agent_is_asked_again_when_it_may_be() -> None:
    agent = ScriptedAgent(prompts=[LIMITED, {"text": "now"}])

    with start_worker(asker(), agent=agent) as run:
        waited = run.wait_for("step.retried")
        began = run.clock.now_us()
        run.clock.advance(3599.0)
        with pytest.raises(DeadlockError):
            run.wait_for("step.finished", step="think")
        run.clock.advance(2.0)
        run.finish()

    assert waited["due"] == began + 3_600_000_000
    assert run.result == "now"


@pytest.mark.requirement("limits-outlive-the-hub")
def test_a_killed_run_waits_for_the_same_moment_and_asks_no_agent_before() -> None:
    agent = ScriptedAgent(prompts=[LIMITED, {"text": "now"}])

    with start_worker(asker(), agent=agent) as run:
        run.wait_for("step.retried")
        run.clock.advance(1000.0)
        run.crash()
        run.clock.advance(1000.0)
        run.resume()
        run.clock.advance(1590.0)
        with pytest.raises(DeadlockError):
            run.wait_for("step.finished", step="think")
        asked = len(run.prompts)
        run.clock.advance(11.0)
        run.finish()

    assert asked == 1
    assert run.result == "now"
    assert len(run.prompts) == 2


def test_a_run_that_is_killed_after_the_moment_does_not_wait_again() -> None:
    agent = ScriptedAgent(prompts=[LIMITED, {"text": "now", "delay_s": 60.0}])

    with start_worker(asker(), agent=agent) as run:
        run.wait_for("step.retried")
        run.crash()
        run.clock.advance(4000.0)
        run.resume()
        run.clock.advance(30.0)
        run.crash()
        run.resume()
        run.clock.advance(61.0)
        run.finish()

    assert run.result == "now"


def test_a_killed_run_that_waits_twice_waits_for_the_first_moment_only_once() -> None:
    agent = ScriptedAgent(prompts=[LIMITED, {"text": "now"}])

    with start_worker(asker(), agent=agent) as run:
        run.wait_for("step.retried")
        for _ in range(3):
            run.clock.advance(900.0)
            run.crash()
            run.resume()
        run.clock.advance(901.0)
        run.finish()

    assert run.result == "now"
    assert len([entry for entry in run.journal if entry.kind == "step.retried"]) == 1


@worker
async def asks_once(ctx: Context) -> str:
    return await ctx.think("Pay", once=True, timeout_s=86_400)


@pytest.mark.requirement("limits-outlive-the-hub")
def test_a_prompt_that_must_not_be_asked_twice_waits_on_if_it_was_never_asked_again() -> None:
    agent = ScriptedAgent(prompts=[LIMITED, {"text": "paid"}])

    with start_worker(asks_once(), agent=agent) as run:
        run.wait_for("step.retried")
        for _ in range(3):
            run.clock.advance(900.0)
            run.crash()
            run.resume()
            with pytest.raises(DeadlockError):
                run.wait_for("step.finished", step="think")
        asked = len(run.prompts)
        run.clock.advance(901.0)
        run.finish()

    assert (asked, len(run.prompts)) == (1, 2)
    assert run.result == "paid"
    begun = [entry.data.get("attempt", 1) for entry in run.journal if entry.kind == "step.started"]
    assert begun == [1, 2, 2, 2]


def test_a_prompt_that_must_not_be_asked_twice_waits_on_after_a_night_without_a_hub() -> None:
    agent = ScriptedAgent(prompts=[LIMITED, {"text": "paid"}])

    with start_worker(asks_once(), agent=agent) as run:
        run.wait_for("step.retried")
        run.clock.advance(900.0)
        run.crash()
        run.clock.advance(40_000.0)
        run.resume()
        run.finish()

    assert run.result == "paid"
    assert len(run.prompts) == 2


@pytest.mark.parametrize("alive_s", [3580.0, 3605.0])
def test_a_prompt_that_may_have_been_asked_when_the_hub_died_is_not_asked_again(alive_s: float) -> None:
    agent = ScriptedAgent(prompts=[LIMITED, {"text": "paid", "delay_s": 60.0}])

    with start_worker(asks_once(), agent=agent) as run:
        run.wait_for("step.retried")
        run.clock.advance(alive_s)
        run.crash()
        asked = len(run.prompts)
        run.resume()
        run.finish()

        assert run.error is not None
        assert run.error.kind == "OutcomeUnknownError"
        assert len(run.prompts) == asked


# Unused rules.


def scripted(*, strict_unused: bool) -> ScriptedAgent:
    rules = [{"pattern": "Summarise", "text": "short"}, {"pattern": "Translate", "text": "kurz"}]
    content = {"strict_unused": strict_unused, "prompts": rules}
    return ScriptedAgent.of(read_script(content, "team"), name="team")


def test_a_script_that_is_not_used_up_is_reported() -> None:
    done = run_worker(asker(), agent=scripted(strict_unused=False))

    assert done.result == "short"
    assert "agent team: rules of its script that were never used: 2" in done.notes


def test_a_script_may_want_every_rule_to_be_used() -> None:
    with start_worker(asker(), agent=scripted(strict_unused=True)) as run:
        run.finish()
        assert run.error is not None
        assert (run.status, run.error.kind) == ("failed", ScriptError.__name__)
        assert "never used: 2" in run.error.message
        run.resume()
        run.finish()
        assert run.status == "failed"

    assert len(run.prompts) == 1


def test_a_script_that_is_used_up_is_fine() -> None:
    agent = ScriptedAgent.of(read_script({"strict_unused": True, "prompts": [{"text": "short"}]}, "team"))

    assert run_worker(asker(), agent=agent).result == "short"
