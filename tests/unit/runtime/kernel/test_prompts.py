"""Prompts to agents, and the money that they cost."""

from __future__ import annotations

import msgspec
import pytest
from tests.unit.runtime.stage import (
    Puppet,
    Stage,
    answer,
    ask,
    delegate,
    fields,
)

from bartack.errors import AgentError, AgentExitedError, QuestionAnsweredError
from bartack.runtime.kernel.desk import Settings
from bartack.runtime.kernel.tools import TalkWaits
from bartack.runtime.protocol import steps as s
from bartack.runtime.state.units import Caps


def think(worker: Puppet, n: int, *, max_usd: float | None = None, timeout_s: float | None = None) -> int:
    args = s.ThinkArgs(prompt="what?", name="ask-it", max_usd=max_usd, timeout_s=timeout_s)
    return worker.step(n, "think", args)


def reply(usd: float = 0.0) -> s.ThinkOutcome:
    return s.ThinkOutcome(key="k", agent="a", text="that", usd=usd)


def test_a_prompt_is_written_down_before_the_agent_is_called() -> None:
    stage = Stage()
    main = stage.begin()
    i = think(main, 1)
    assert stage.store.entries[-1].kind == "step.started"

    stage.end_prompt(reply())

    assert fields(main.value(i))["text"] == "that"


@pytest.mark.requirement("prompts-are-journaled")
@pytest.mark.parametrize("prompt", ["what? " * 50, "x" * 70_000], ids=["inline", "blob"])
def test_the_journal_has_the_whole_prompt(prompt: str) -> None:
    stage = Stage()
    args = s.ThinkArgs(prompt=prompt, name="ask-it", system="be brief")
    stage.begin().step(1, "think", args)

    (entry,) = stage.entries("step.started")
    value = stage.core.turn.load(entry.value, entry.ref)
    assert msgspec.json.decode(value, type=s.ThinkArgs) == args
    assert (entry.ref is not None) == (len(prompt) > 65_536)


def test_an_agent_that_fails_is_an_error() -> None:
    stage = Stage()
    main = stage.begin()
    i = think(main, 1)

    stage.end_prompt(AgentError("a", "no credit"))

    assert main.error(i) == "AgentError"


@pytest.mark.parametrize("cancelled", [False, True])
def test_a_prompt_that_is_late_or_cancelled_is_given_up_first(cancelled: bool) -> None:
    stage = Stage()
    main = stage.begin()
    i = think(main, 1, timeout_s=60.0)

    if cancelled:
        main.cancel(1)
    else:
        stage.wait(60.0)
    assert (stage.stopped_prompts, main.answer(i)) == ([1], None)
    stage.end_prompt(AgentError("a", "given up"))

    assert main.error(i) == ("StepCancelledError" if cancelled else "StepTimeoutError")


def test_the_same_prompt_three_times_has_three_keys_and_a_second_attempt_the_same() -> None:
    stage = Stage()
    main = stage.begin()
    for n in range(1, 4):
        think(main, n)
    keys = [start.key for start in stage.prompts.values()]
    assert len(set(keys)) == 3

    main = stage.again()
    think(main, 1)

    again = next(iter(stage.prompts.values()))
    assert (again.key, again.attempt) == (keys[0], 2)


@pytest.mark.requirement("estimates-are-marked")
def test_a_cost_that_was_computed_is_recorded_as_such() -> None:
    stage = Stage()
    main = stage.begin()
    think(main, 1)
    stage.end_prompt(reply(0.5))
    before = stage.core.state.usd_estimated
    think(main, 2)
    stage.end_prompt(AgentExitedError("a", "it died", usd=0.5, usd_estimated=True))

    assert (before, stage.core.state.usd_estimated, stage.core.state.spent_usd) == (False, True, 1.0)


def test_money_is_reserved_while_a_prompt_runs_and_settled_when_it_ends() -> None:
    stage = Stage(settings=Settings(max_usd=5.0, reserve_usd=2.0))
    main = stage.begin()
    think(main, 1, max_usd=3.0)
    running = main.value(main.step(2, "budget"))
    stage.end_prompt(reply(0.5))
    settled = main.value(main.step(3, "budget"))

    assert running == {"limit_usd": 5.0, "spent_usd": 0.0, "reserved_usd": 3.0}
    assert settled == {"limit_usd": 5.0, "spent_usd": 0.5, "reserved_usd": 0.0}


@pytest.mark.requirement("budget-is-used-to-its-end")
def test_a_prompt_gets_what_is_left_of_the_budget_until_nothing_is() -> None:
    stage = Stage(settings=Settings(max_usd=5.0, reserve_usd=2.0))
    main = stage.begin()
    think(main, 1)
    think(main, 2, max_usd=9.0)

    assert [prompt.reserved_usd for prompt in stage.prompts.values()] == [2.0, 3.0]
    assert main.error(think(main, 3)) == "BudgetExceededError"
    stage.end_prompt(reply(1.5))
    think(main, 4)
    assert [prompt.reserved_usd for prompt in stage.prompts.values()] == [3.0, 0.5]


@pytest.mark.parametrize(
    ("spent", "wanted", "refused"),
    [(4.96, None, True), (4.94, None, False), (4.96, 0.01, False), (5.0, 0.0, True)],
)
def test_a_rest_of_the_budget_that_is_worth_no_call_buys_none(
    spent: float, wanted: float | None, refused: bool
) -> None:
    stage = Stage(settings=Settings(max_usd=5.0, min_reserve_usd=0.05))
    main = stage.begin()
    think(main, 1, max_usd=5.0)
    stage.end_prompt(reply(spent))

    asked = think(main, 2, max_usd=wanted)

    assert (len(stage.prompts) == 0) == refused
    if refused:
        assert main.error(asked) == "BudgetExceededError"


def test_a_budget_that_is_less_than_what_a_call_is_worth_buys_one_call() -> None:
    stage = Stage(settings=Settings(max_usd=0.03, min_reserve_usd=0.05))
    think(stage.begin(), 1)

    assert [prompt.reserved_usd for prompt in stage.prompts.values()] == [0.03]


def test_what_an_attempt_before_reserved_does_not_stand_in_the_way_of_the_next() -> None:
    stage = Stage(settings=Settings(max_usd=5.0))
    think(stage.begin(), 1, max_usd=4.0)

    main = stage.again()
    i = think(main, 1, max_usd=4.0)
    stage.end_prompt(reply(1.0))

    assert main.value(i)
    assert (stage.core.state.spent_usd, stage.core.state.reserved_usd) == (1.0, 0.0)


def test_a_worker_that_ends_for_good_reserves_nothing_and_asks_nothing() -> None:
    stage = Stage(settings=Settings(max_usd=5.0))
    main = stage.begin()
    delegate(main, 1, ["a", "b"])
    think(stage.workers["main/1.1:a"], 1, max_usd=1.0)
    ask(stage.workers["main/1.2:b"], 1)

    main.cancel(1)

    assert stage.core.state.reserved_usd == 0.0
    assert stage.core.state.questions == {}
    with pytest.raises(QuestionAnsweredError):
        answer(stage, "q1", "yes")


# Limits of a provider.

HOUR_S = 3600.0


def limit(stage: Stage, for_s: float) -> None:
    """The agent of the only prompt must not be called for a while."""
    (token,) = stage.prompts
    wait = TalkWaits(stage.clock.now_us() + int(for_s * 1e6), "a", "used up", "quota_exhausted")
    stage.hub.post(lambda core: core.prompt_waits(token, wait))
    stage.hub.run_ready()


@pytest.mark.requirement("a-limit-is-not-time-of-a-prompt")
def test_a_limit_is_not_time_of_a_prompt_and_all_other_time_is() -> None:
    stage = Stage()
    main = stage.begin()
    i = think(main, 1)
    stage.wait(600.0)
    limit(stage, 3 * HOUR_S)
    stage.wait(3 * HOUR_S)
    limit(stage, 2 * HOUR_S)

    stage.wait(2 * HOUR_S + 2999.0)
    assert stage.stopped_prompts == []
    stage.wait(2.0)

    assert stage.stopped_prompts == [1]
    stage.end_prompt(AgentError("a", "given up"))
    assert main.error(i) == "StepTimeoutError"


def test_a_limit_that_is_reported_twice_counts_once() -> None:
    stage = Stage()
    think(stage.begin(), 1)
    limit(stage, 3 * HOUR_S)
    limit(stage, 3 * HOUR_S)

    stage.wait(4 * HOUR_S + 1)

    assert stage.stopped_prompts == [1]


@pytest.mark.requirement("a-limit-is-not-time-of-a-prompt")
def test_a_limit_is_time_of_a_prompt_that_has_a_deadline_of_its_own() -> None:
    stage = Stage()
    think(stage.begin(), 1, timeout_s=HOUR_S)
    limit(stage, 3 * HOUR_S)

    stage.wait(HOUR_S)

    assert stage.stopped_prompts == [1]


def test_the_deadlines_of_commands_are_those_of_the_settings() -> None:
    command = s.CommandArgs(action="implement", task_id="T-1", inputs={})

    assert not s.ThinkArgs("", "x", timeout_s=60.0, command=command).has_own_deadline
    assert s.ThinkArgs("Begin.", "x", timeout_s=60.0).has_own_deadline


@pytest.mark.requirement("a-limit-is-not-time-of-a-prompt")
def test_a_limit_is_not_time_of_a_prompt_after_a_resume_either() -> None:
    stage = Stage()
    think(stage.begin(), 1)
    limit(stage, 8 * HOUR_S)
    main = stage.again(dead_s=HOUR_S)
    think(main, 1)

    stage.wait(6 * HOUR_S)
    assert (stage.stopped_prompts, len(stage.prompts)) == ([], 0)
    stage.wait(HOUR_S + 60.0)
    assert (stage.stopped_prompts, len(stage.prompts)) == ([], 1)
    stage.wait(HOUR_S)

    assert len(stage.stopped_prompts) == 1


@pytest.mark.parametrize("dead_s", [0.0, HOUR_S])
def test_a_limit_is_not_time_that_a_prompt_took_of_the_budget(dead_s: float) -> None:
    stage = Stage(settings=Settings(caps=Caps(wall_s=10_000.0)))
    think(stage.begin(), 1)
    stage.wait(100.0)
    limit(stage, 8 * HOUR_S)
    if dead_s:
        stage.wait(600.0)
        think(stage.again(dead_s=dead_s), 1)
        stage.wait(7 * HOUR_S - 600.0)
    else:
        stage.wait(8 * HOUR_S)
    stage.wait(50.0)

    stage.end_prompt(reply())

    assert stage.core.state.spent.wall_s == pytest.approx(150.0, abs=1.0)
