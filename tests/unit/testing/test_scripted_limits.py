"""Scripts that say when an agent may be asked again, and scripts that nobody has used up: whole runs with a clock of their own."""

from __future__ import annotations

import pytest

from bartack.agents import ScriptedAgent
from bartack.agents._scripted import read_script
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
def test_a_killed_run_waits_for_the_same_moment_and_asks_nobody_before() -> None:
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


def test_a_run_that_is_killed_behind_the_moment_does_not_wait_again() -> None:
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


# Rules that nobody has used.


def scripted(*, strict_unused: bool) -> ScriptedAgent:
    rules = [{"pattern": "Summarise", "text": "short"}, {"pattern": "Translate", "text": "kurz"}]
    content = {"strict_unused": strict_unused, "prompts": rules}
    return ScriptedAgent.of(read_script(content, "team"), name="team")


def test_a_script_that_is_not_used_up_is_told_of() -> None:
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
