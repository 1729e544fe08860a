"""How the hub passes calls of tools from agents to workers and back."""

from __future__ import annotations

import pytest
from tests.unit.runtime.stage import Puppet, Stage, error, raw

from bartack.errors import AgentError
from bartack.runtime.kernel.tools import TalkBegins
from bartack.runtime.protocol import frames as f
from bartack.runtime.protocol import steps as s
from bartack.runtime.state import entries as e


def think(worker: Puppet, n: int = 1, *tools: str) -> int:
    specs = [s.ToolSpec(name) for name in tools or ("do_1", "do_2")]
    return worker.step(n, "think", s.ThinkArgs(prompt="?", name="main", tools=specs))


def returns(worker: Puppet, value: object, call: int = 1, *, n: int = 1) -> None:
    worker.say(f.Returned(p=f"main/do:{n}.{call}", v=raw(value)))


def called(worker: Puppet) -> list[tuple[str, str]]:
    return [(frame.p, frame.tool) for frame in worker.heard if isinstance(frame, f.Called)]


DONE = s.ThinkOutcome(key="k", agent="a", text="done")


def test_calls_are_run_one_at_a_time_in_the_order_of_their_arrival() -> None:
    stage = Stage()
    main = stage.begin()
    think(main)

    stage.call_tool(1)
    stage.call_tool(2, "do_2")
    assert called(main) == [("main/do:1.1", "do_1")]
    returns(main, "one")

    assert called(main) == [("main/do:1.1", "do_1"), ("main/do:1.2", "do_2")]
    assert stage.answered == [(1, "one", "")]


def test_a_call_is_durable_before_it_runs_and_its_outcome_before_it_is_told() -> None:
    stage = Stage()
    main = stage.begin()
    think(main)

    stage.call_tool(1)
    assert stage.kinds()[-1] == "tool.called"
    returns(main, "one")

    assert stage.kinds()[-1] == "tool.finished"


def test_a_call_that_comes_while_the_worker_is_away_is_part_of_its_history() -> None:
    stage = Stage()
    main = stage.begin()
    think(main)
    main.die()
    stage.call_tool(1)
    stage.hub.run_ready()

    again = stage.workers["main"]
    assert [(past.p, past.step, past.about) for past in again.past] == [("main/do:1.1", "tool", "do_1")]
    returns(again, "one")
    assert stage.answered == [(1, "one", "")]


def test_an_outcome_counts_once() -> None:
    stage = Stage()
    main = stage.begin()
    think(main)
    stage.call_tool(1)

    returns(main, "one")
    returns(main, "two")

    assert stage.answered == [(1, "one", "")]
    assert stage.kinds().count("tool.finished") == 1


def test_a_tool_that_runs_on_behind_its_prompt_is_recorded_and_told_to_nobody() -> None:
    stage = Stage()
    main = stage.begin()
    think(main)
    stage.call_tool(1)
    stage.end_prompt(DONE)

    returns(main, "late")

    assert stage.answered == []
    assert stage.kinds()[-1] == "tool.finished"


@pytest.mark.parametrize("ended", [True, False])
def test_a_call_behind_the_end_of_its_prompt_runs_nothing(ended: bool) -> None:
    stage = Stage()
    main = stage.begin()
    think(main)
    token = next(iter(stage.prompts))
    if ended:
        stage.end_prompt(DONE)
    else:
        main.cancel(1)

    stage.call_tool(1, token=token)

    assert called(main) == []
    assert stage.answered == [(1, None, "this step has ended")]


def test_a_failed_prompt_that_is_asked_anew_keeps_its_record() -> None:
    stage = Stage()
    main = stage.begin()
    think(main)
    stage.call_tool(1)
    returns(main, "one")
    stage.end_prompt(AgentError("a", "gone"))
    main.fail(error("AgentError"), ("main", 1))

    main = stage.again()
    think(main)
    stage.call_tool(5)
    stage.call_tool(6)

    assert [past.step for past in main.past] == ["tool", "returned"]
    assert stage.answered == [(1, "one", ""), (5, "one", "")]
    assert called(main) == [("main/do:1.2", "do_1")]


def test_a_finished_prompt_has_no_record_any_more() -> None:
    stage = Stage()
    main = stage.begin()
    think(main)
    stage.call_tool(1)
    returns(main, "one")

    assert stage.core.state.workers["main"].tools
    stage.end_prompt(DONE)

    assert not stage.core.state.workers["main"].tools


def test_a_worker_cannot_return_what_nobody_called() -> None:
    stage = Stage()
    main = stage.begin()
    main.say(f.Returned(p="main/somewhere", v=raw(1)))

    assert e.ToolFinished.kind not in stage.kinds()


def test_an_agent_that_begins_again_is_told_what_is_recorded_from_the_first_call_on() -> None:
    stage = Stage()
    main = stage.begin()
    think(main)
    stage.call_tool(1)
    returns(main, "one")
    stage.call_tool(2, "do_2")

    stage.core.prompts.begins_again(1, TalkBegins())
    stage.call_tool(3)
    stage.call_tool(4, "do_2")
    returns(main, "two", 2)

    assert called(main) == [("main/do:1.1", "do_1"), ("main/do:1.2", "do_2")]
    assert stage.answered == [(1, "one", ""), (3, "one", ""), (4, "two", "")]


def test_an_agent_that_continues_is_told_what_is_recorded_from_the_first_call_on_that_it_does_not_have() -> (
    None
):
    stage = Stage()
    main = stage.begin()
    think(main)
    stage.call_tool(1, call_id="a")
    returns(main, "one")
    stage.call_tool(2, call_id="b")
    returns(main, "two", 2)

    stage.core.prompts.begins_again(1, TalkBegins(("a",)))
    stage.call_tool(3, call_id="c")

    assert called(main) == [("main/do:1.1", "do_1"), ("main/do:1.2", "do_1")]
    assert stage.answered == [(1, "one", ""), (2, "two", ""), (3, "two", "")]


def test_the_time_that_tools_take_does_not_count_against_the_agent() -> None:
    stage = Stage()
    main = stage.begin()
    main.step(1, "think", s.ThinkArgs(prompt="?", name="main", tools=[s.ToolSpec("do_1")], timeout_s=60.0))
    stage.wait(50.0)
    stage.call_tool(1)
    stage.wait(100.0)
    returns(main, "one")

    stage.wait(9.0)
    in_time = list(stage.stopped_prompts)
    stage.wait(2.0)

    assert in_time == []
    assert len(stage.stopped_prompts) == 1
