"""claude-agent-acp, asked by runs: a reply, a value, tools over the bridge, permissions, and sessions that are loaded.

An agent of this kind takes two seconds of processor time to start, so one call shows several things.
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import Final

import pytest
from tests.realcli.crew import Crew, check_reported, own_tool, send, shell
from tests.waiting import until

from bartack.testing import ClaudeSandbox, ModelServer

WITHOUT_RESUME: Final = Path(__file__).with_name("acp_without_resume.py")

SCRIPTS: Final[dict[str, list[dict[str, object]]]] = {
    "all": [
        {"tools": [own_tool("acp", "look_up", word="a"), own_tool("acp", "look_up", word="b")]},
        {"tools": [shell("acp", "env > seen.txt")], "expect": {"tool_result": "2"}},
        {"tools": [shell("acp", "touch denied.txt")]},
        {"tools": [own_tool("acp", "answer", value=7)], "expect": {"tool_result": "refused permission"}},
        {"text": "Given."},
    ],
    "text-value": [{"text": "It is seven."}, {"text": "```json\n7\n```"}],
    "killed": [
        {"text": "First part.", "tools": [own_tool("acp", "look_up", word="a")]},
        {"text": "Second part."},
    ],
    "hanging": [{"text": "Late.", "delay_s": 60}],
}
LOOK_UP: Final = (
    "words = []",
    "async def look_up(word: str) -> int:",
    '    "Looks a word up."',
    "    words.append(word)",
    "    return len(words)",
)


def asking(script: str, more: str = "") -> str:
    return f'return await ctx.think("[[script:{script}]] Do it."{more})'


@pytest.fixture
def crew(sandbox: ClaudeSandbox, model_server: ModelServer, acp: list[str]) -> Crew:
    assert acp
    settings = 'permissions = { mode = "auto", deny = ["Bash(touch denied*)"] }'
    return Crew("acp", sandbox, model_server, settings)


@pytest.mark.requirement("acp-agents-answer")
@pytest.mark.requirement("acp-values")
@pytest.mark.requirement("acp-tools")
@pytest.mark.requirement("acp-permissions")
def test_a_call_has_tools_decisions_a_value_and_its_cost(crew: Crew, model_server: ModelServer) -> None:
    crew.program(
        *LOOK_UP,
        'reply = await ctx.think_reply("[[script:all]] Do it.", tools=[look_up], type=int)',
        "return [words, reply.value, reply.usd, reply.usd_estimated]",
    )

    done = crew.sandbox.run(
        [sys.executable, "-m", "bartack", "run", "team.py", "--no-input"],
        env={"CANARY": "sings"},
        timeout_s=90,
    )

    assert done.returncode == 0, done.stderr
    words, value, usd, is_estimated = crew.decode(done)
    assert (words, value) == (["a", "b"], 7)
    check_reported(usd, model_server.requests, is_estimated=is_estimated)
    assert crew.count("tool.called") == 2
    usage = crew.named("agent.usage")[-1]["usage"]
    assert isinstance(usage, dict)
    assert usage["turns"] == 5
    tokens = [request.usage for request in model_server.requests_of("all")]
    assert usage["input_tokens"] == sum(one.input_tokens for one in tokens)
    assert usage["output_tokens"] == sum(one.output_tokens for one in tokens)
    seen = (crew.root / "seen.txt").read_text(encoding="utf-8")
    assert "BARTACK_STEP=" in seen
    assert "CANARY" not in seen
    assert "BARTACK_STEP_TOKEN" not in seen
    assert not (crew.root / "denied.txt").exists()
    assert [event["decision"] for event in crew.named("agent.permission")] == ["deny"]
    (stream,) = [path.read_bytes() for path in crew.streams()]
    assert b"BARTACK_STEP_TOKEN" in stream
    assert b'"value":"***"' in stream


@pytest.mark.requirement("acp-values")
def test_a_value_is_found_in_the_text(crew: Crew) -> None:
    done = crew.run(asking("text-value", ", type=int"))

    assert (done.returncode, done.stdout) == (0, "7\n"), done.stderr


@pytest.mark.requirement("acp-sessions-continue")
@pytest.mark.parametrize("method", ["session/resume", "session/load"])
@pytest.mark.parametrize("victim", ["agent", "hub"])
def test_a_killed_turn_is_continued_in_its_session(
    crew: Crew, model_server: ModelServer, victim: str, method: str
) -> None:
    """The second request hangs; then the agent, or the hub, is killed. Replayed text is not the reply."""
    if method == "session/load":
        proxy = [sys.executable, str(WITHOUT_RESUME)]
        crew = Crew("acp", crew.sandbox, model_server, before=proxy, is_wrapped=False)
    with model_server.hold("killed", 1) as held:
        run = crew.start(
            *LOOK_UP,
            'text = await ctx.think("[[script:killed]] Look it up.", tools=[look_up])',
            'return f"{text} {words}"',
        )
        held.wait()
        # It writes its session a little later: killed before, it would ask for the same reply again.
        until(lambda: crew.conversation_has("tool_result"), "the session has the reply of the tool")
        agent = set(crew.pids_of("claude"))
        send(crew.pids_of("claude-agent-acp") if victim == "agent" else run.pid, signal.SIGKILL)
        until(lambda: not agent & set(crew.pids_of("claude")), "the agent is gone")
    if victim == "agent":
        out, err = run.communicate(timeout=90)
    else:
        run.communicate(timeout=30)
        done = crew.resume()
        out, err = done.stdout, done.stderr

    assert out == "Second part. ['a']\n", err
    (stream,) = [path.read_bytes() for path in crew.streams()]
    assert f'"method":"{method}"'.encode() in stream
    texts = [event["text"] for event in crew.named("agent.text")]
    assert texts.count("First part.") == 1
    assert [request.step for request in model_server.requests_of("killed")] == [0, 1, 1]


def test_a_cancelled_run_leaves_no_process(crew: Crew, model_server: ModelServer) -> None:
    run = crew.start(asking("hanging"))
    model_server.wait_for(lambda request: request.script == "hanging")
    crew.call("cancel", crew.folder.name)
    run.communicate(timeout=30)

    assert crew.pids_of("claude") == []
