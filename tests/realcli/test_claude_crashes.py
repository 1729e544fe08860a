"""Claude Code as an agent of a run whose processes are killed in the second turn, or interrupted from outside.

Kills at all points of a call, with every agent, are in ``test_kills.py``.
"""

from __future__ import annotations

import signal
from typing import Final

import pytest
from tests.realcli.crew import Crew, price, send, shell

from bartack.testing import ClaudeSandbox, ModelServer

pytestmark = pytest.mark.requirement("claude-continues")
THINK: Final = 'return await ctx.think("[[script:{}]] work")'
SCRIPTS: Final[dict[str, list[dict[str, object]]]] = {
    "slow": [{"tools": [shell("claude", "echo one >> steps.txt")]}, {"text": "at last"}],
    "tool": [{"tools": [{"name": "mcp__bartack__count", "input": {}}]}, {"text": "counted"}],
}
COUNT: Final = (
    "async def count() -> int:",
    '    """Count."""',
    '    await ctx.shell("sh", "-c", "echo counted >> counted.txt")',
    "    return 41",
    'return await ctx.think("[[script:tool]] work", tools=[count])',
)


@pytest.fixture
def crew(sandbox: ClaudeSandbox, model_server: ModelServer, claude: list[str]) -> Crew:
    assert claude
    return Crew("claude", sandbox, model_server, 'permissions = { mode = "auto" }')


def test_a_killed_hub_continues_the_conversation_and_asks_nothing_twice(
    crew: Crew, model_server: ModelServer
) -> None:
    with model_server.hold("slow", 1) as hold:
        run = crew.start(THINK.format("slow"))
        hold.wait()
        send(run.pid, signal.SIGKILL)
        run.communicate(timeout=30)

    done = crew.resume()

    assert done.stdout == "at last\n", done.stderr
    assert (crew.root / "steps.txt").read_text(encoding="utf-8") == "one\n"
    first, _, last = requests = model_server.requests_of("slow")
    assert [request.step for request in requests] == [0, 1, 1]
    assert len({event["conversation"] for event in crew.named("agent.started")}) == 1
    (finished,) = [entry for entry in crew.journal() if entry.kind == "step.finished"]
    # The output of a turn that was killed is not known.
    assert finished.data["usd"] == pytest.approx(price(first) + price(last), rel=0.01)


def test_a_signal_from_outside_is_not_taken_for_success(crew: Crew, model_server: ModelServer) -> None:
    with model_server.hold("slow", 1) as hold:
        run = crew.start(THINK.format("slow"))
        hold.wait()
        send(crew.cli_pid(), signal.SIGINT)
        model_server.wait_for(lambda request: request.step == 1, count=2)
    out, err = run.communicate(timeout=60)

    assert out == "at last\n", err
    assert len(crew.named("agent.started")) == 2
    assert crew.count("step.finished") == 1


def test_a_tool_whose_result_the_model_has_is_not_run_again(crew: Crew, model_server: ModelServer) -> None:
    with model_server.hold("tool", 1) as hold:
        run = crew.start(*COUNT)
        hold.wait()
        send(run.pid, signal.SIGKILL)
        run.communicate(timeout=30)

    done = crew.resume()

    assert done.stdout == "counted\n", done.stderr
    assert (crew.root / "counted.txt").read_text(encoding="utf-8") == "counted\n"
    results = [found.text for request in model_server.requests_of("tool") for found in request.tool_results]
    assert "41" in results[-1]
    assert crew.count("tool.called") == 1
