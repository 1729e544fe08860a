"""Claude Code as an agent of a run: background, homes, limits of a login, the tools that it has."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Final

from tests.realcli.conftest import MakeSandbox
from tests.realcli.team import Team
from tests.waiting import until

from bartack.testing import ClaudeSandbox, ModelServer

FAR_S = 4_000_000_000


def bash(command: str, **members: object) -> dict[str, object]:
    return {"tools": [{"name": "Bash", "input": {"command": command, "description": "d", **members}}]}


TASK = {"description": "x", "prompt": "[[script:shell]] go", "subagent_type": "general-purpose"}
LIMIT = {
    "anthropic-ratelimit-unified-status": "rejected",
    "anthropic-ratelimit-unified-reset": str(FAR_S),
    "anthropic-ratelimit-unified-representative-claim": "five_hour",
}
SCRIPTS = {
    "hello": [{"text": "hello back"}],
    "shell": [bash("echo ran >> ran.txt"), {"text": "after the shell"}],
    "background": [
        {"tools": [{"name": "Task", "input": {**TASK, "run_in_background": True}}]},
        {"text": "too early"},
        {"text": "at the end"},
    ],
    "endless": [bash("echo x; sleep 600", run_in_background=True), {"text": "done"}],
    "sleeping": [bash("echo x > asleep.txt; sleep 60"), {"text": "done"}],
    "daemon": [bash("setsid sleep 600 > /dev/null 2>&1 & echo x"), {"text": "done"}],
    "limited": [{"fail": {"status": 429, "times": 0, "headers": LIMIT}}],
    "read": [{"tools": [{"name": "Read", "input": {"file_path": "{{cwd}}/notes.txt"}}]}, {"text": "seen"}],
    "tools": [
        {"tools": [{"name": "mcp__bartack__add", "input": {"number": 2}},
                   {"name": "mcp__bartack__add", "input": {"number": 40}}]},
        {"text": "added"},
    ],
}  # fmt: skip


FAR: Final = '[agents.far]\nkind = "claude"\nbackground = true\npermissions = { mode = "auto" }'
END_S: Final = 10.0
"""How long a step may take after the last text of its agent."""


def test_work_in_the_background_ends_with_its_step(sandbox: ClaudeSandbox) -> None:
    """The result is that of the end of all work. What never ends is terminated, and reported if it is the agent's own."""
    team = Team(sandbox, 'permissions = { mode = "auto" }', FAR)

    done = team.run(
        'far = await ctx.think("[[script:background]] delegate", agent="far")',
        'near = await ctx.think("[[script:background]] delegate")',
        'shell = await ctx.think("[[script:endless]] work", agent="far")',
        'daemon = await ctx.think("[[script:daemon]] work")',
        "return [far, near, shell, daemon]",
    )

    assert done.returncode == 0, done.stderr
    # Without work in the background a subagent ends before the next reply of the model.
    assert json.loads(done.stdout) == ["at the end", "too early", "done", "done"]
    assert (team.root / "ran.txt").read_text(encoding="utf-8") == "ran\nran\n"
    assert sandbox.processes() == []
    (left,) = [event for event in team.named("agent.notice") if event.get("case") == "leftovers"]
    assert str(left["text"]).startswith("1 process left by the agent: sleep")
    events = [*team.named("agent.text"), *events_of(team, "far", "agent.text")]
    ends = [*team.named("agent.finished"), *events_of(team, "far", "agent.finished")]
    assert len(ends) == 4
    for end in ends:
        last = max(moment(event) for event in events if event["key"] == end["key"])
        assert moment(end) - last < END_S


def events_of(team: Team, agent: str, name: str) -> list[dict[str, object]]:
    path = team.folder / "agents" / agent / "transcript.ndjson"
    found = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return [event for event in found if event["event"] == name]


def moment(event: dict[str, object]) -> float:
    return datetime.fromisoformat(str(event["at"])).timestamp()


def test_a_deadline_ends_the_agent_and_its_command(sandbox: ClaudeSandbox) -> None:
    team = Team(sandbox, 'timeouts = { prompt = 3 }\npermissions = { mode = "auto" }')

    done = team.run('return await ctx.think("[[script:sleeping]] work")')

    assert done.returncode == 1
    assert "BT817" in done.stderr
    assert sandbox.processes() == []
    assert team.named("agent.finished")[-1]["reason"] == "deadline_exceeded"


def test_a_cancelled_run_ends_the_agent_and_its_command(sandbox: ClaudeSandbox) -> None:
    team = Team(sandbox, 'permissions = { mode = "auto" }')
    run = team.start('return await ctx.think("[[script:sleeping]] work")')
    until((team.root / "asleep.txt").exists, "the command runs", team.root)

    cancelled = team.call("cancel", team.folder.name)
    _, err = run.communicate(timeout=30)

    assert cancelled.returncode == 0, cancelled.stderr
    assert run.returncode != 0, err
    assert sandbox.processes() == []


def test_the_end_of_a_limit_of_a_login_is_known(make_sandbox: MakeSandbox) -> None:
    team = Team(make_sandbox(login=True), "timeouts = { prompt = 60 }")

    done = team.run('return await ctx.think("[[script:limited]] work")')

    assert done.returncode == 1
    assert "possible again at 2096-10-02T07:06:40" in done.stderr
    assert len(team.named("agent.started")) == 1


def test_the_home_of_a_person_is_used_and_its_transcript_copied(sandbox: ClaudeSandbox) -> None:
    team = Team(sandbox, 'home = "user"')

    done = team.run('return await ctx.think("[[script:hello]] greet")')

    assert done.stdout == "hello back\n", done.stderr
    (theirs,) = sandbox.home.glob(".claude/projects/*/*.jsonl")
    (ours,) = team.folder.glob("agents/claude/*/copies/projects/*/*.jsonl")
    assert ours.read_bytes() == theirs.read_bytes()
    assert ours.stat().st_mode & 0o777 == 0o600


def test_an_agent_that_may_only_read_has_no_other_tools(
    sandbox: ClaudeSandbox, model_server: ModelServer
) -> None:
    team = Team(sandbox, 'permissions = { mode = "read" }\nask = false')
    (team.root / "notes.txt").write_text("seven", encoding="utf-8")

    done = team.run('return await ctx.think("[[script:read]] look")')

    assert done.stdout == "seen\n", done.stderr
    first, second = [request for request in model_server.requests if request.script == "read"]
    assert set(first.tools) <= {"Read", "Grep", "Glob"}
    assert any("seven" in found.text for found in second.tool_results)


def test_functions_are_tools_over_the_control_channel(sandbox: ClaudeSandbox) -> None:
    team = Team(sandbox)

    done = team.run(
        "total = 0",
        "async def add(number: int) -> int:",
        '    """Add a number."""',
        "    nonlocal total",
        "    total += number",
        "    return total",
        'await ctx.think("[[script:tools]] add", tools=[add])',
        "return total",
    )

    assert done.stdout == "42\n", done.stderr
