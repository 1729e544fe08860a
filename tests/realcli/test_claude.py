"""Claude Code as an agent of a run: prompts, values, subagents, money, instructions, and a server that hangs.

A run takes longer to start than Claude Code does, so prompts that do not disturb each other are in one run.
"""

from __future__ import annotations

import json
from typing import Final

import pytest
from tests.realcli.crew import price
from tests.realcli.team import Team

from bartack.testing import ClaudeSandbox, ModelServer


def bash(command: str) -> dict[str, object]:
    return {"tools": [{"name": "Bash", "input": {"command": command, "description": "d"}}]}


LEVEL: Final[dict[str, object]] = {"tools": [{"name": "StructuredOutput", "input": {"level": 3}}]}
COSTLY: Final = {"input_tokens": 200_000, "output_tokens": 1000}
DEAR: Final = {"input_tokens": 10, "output_tokens": 30_000}
"""Known at the end of a reply only, so that no reply is cut off: Claude Code stops by itself."""
TASK: Final = {"description": "x", "prompt": "[[script:below]] go", "subagent_type": "general-purpose"}
SCRIPTS: Final[dict[str, list[dict[str, object]]]] = {
    "hello": [{"text": "hello back"}],
    "level": [LEVEL, {"text": "done"}],
    "seven": [{"tools": [{"name": "StructuredOutput", "input": {"value": 7}}]}, {"text": "done"}],
    "never": [{"text": "never"}],
    "late": [{"text": "no"}, {"text": "no"}, LEVEL, {"text": "done"}],
    "costly": [{**bash("echo x"), "usage": COSTLY}, {**bash("echo x"), "usage": COSTLY}, {"text": "done"}],
    "dear": [{**bash("echo x"), "usage": DEAR}, {**bash("echo x"), "usage": DEAR}, {"text": "done"}],
    "limited": [{"fail": {"status": 429, "times": 0, "retry_after": 3600}}],
    "hang": [{"text": "late", "hang_s": 60}],
    "subagent": [{"tools": [{"name": "Task", "input": TASK}]}, {"text": "after the subagent"}],
    "below": [{"text": "from below"}],
}


def asked(server: ModelServer, script: str) -> int:
    return len(server.requests_of(script))


def counted(server: ModelServer, *scripts: str) -> float:
    """What the server has counted for scripts."""
    return sum(price(request) for script in scripts for request in server.requests_of(script))


@pytest.mark.requirement("claude-is-asked")
@pytest.mark.requirement("claude-costs-are-counted")
def test_texts_values_and_what_a_subagent_says_are_paid_once_and_have_their_types(
    sandbox: ClaudeSandbox, model_server: ModelServer
) -> None:
    """The second prompt continues the conversation of the first one, in one of its own."""
    team = Team(sandbox, "ask = false")

    done = team.run(
        'first = await ctx.think_reply("[[script:hello]] begin")',
        'level = await ctx.think_reply("[[script:level]] more", type=Level, continues=first)',
        'seven = await ctx.think_reply("[[script:seven]] count", type=int)',
        'below = await ctx.think_reply("[[script:subagent]] delegate")',
        "replies = [first, level, seven, below]",
        "return [[one.value, one.usd, one.conversation] for one in replies]",
    )

    assert done.returncode == 0, done.stderr
    values, charged, conversations = zip(*json.loads(done.stdout), strict=True)
    assert values == ("hello back", {"level": 3}, 7, "after the subagent")
    scripts = [("hello",), ("level",), ("seven",), ("subagent", "below")]
    assert list(charged) == pytest.approx([counted(model_server, *group) for group in scripts])
    assert len(set(conversations)) == 4
    assert asked(model_server, "hello") == asked(model_server, "level") == 1
    assert team.count("step.finished") == 4
    usage = team.named("agent.usage")[-1]["usage"]
    assert isinstance(usage, dict)
    assert usage["turns"] == 3
    assert not any("AskUserQuestion" in request.tools for request in model_server.requests)
    for stream in team.streams():
        assert stream.stat().st_mode & 0o777 == 0o600
        assert (stream.parent / "home").stat().st_mode & 0o777 == 0o700


@pytest.mark.requirement("claude-is-asked")
def test_a_wrong_value_is_repaired_once_in_the_same_process_and_then_an_error(sandbox: ClaudeSandbox) -> None:
    """Claude Code says success although the schema was never met."""
    team = Team(sandbox)

    done = team.run(
        "from bartack.errors import ReplyInvalidError",
        'level = await ctx.think("[[script:late]] rate it", type=Level)',
        "try:",
        '    await ctx.think("[[script:never]] rate it", type=Level)',
        "except ReplyInvalidError as error:",
        "    return [level, error.code]",
    )

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [{"level": 3}, "BT803"]
    starts = [(event["key"], event["pid"]) for event in team.named("agent.started")]
    assert len(starts) == 4
    assert len(set(starts)) == 2


@pytest.mark.requirement("claude-costs-are-counted")
def test_a_call_that_meets_its_budget_is_charged_and_the_next_one_is_refused(
    sandbox: ClaudeSandbox, model_server: ModelServer
) -> None:
    team = Team(sandbox, 'permissions = { mode = "auto" }', more="[budget]\nusd = 1.0\nreserve_usd = 1.0")

    done = team.run(
        "from bartack.errors import AgentBudgetError, BudgetExceededError",
        "try:",
        '    await ctx.think("[[script:dear]] spend")',
        "except AgentBudgetError as error:",
        "    spent = error.usd",
        "try:",
        '    await ctx.think("[[script:hello]] more")',
        "except BudgetExceededError:",
        "    return spent",
    )

    assert done.returncode == 0, done.stderr
    assert asked(model_server, "hello") == 0
    turns = [price(request) for request in model_server.requests_of("dear")]
    assert len(turns) == 2
    assert turns[0] < 1.0 < sum(turns)
    assert float(done.stdout) == pytest.approx(sum(turns))
    first, second = [entry for entry in team.journal() if entry.kind == "step.failed"]
    assert first.data["usd"] == pytest.approx(sum(turns))
    assert not second.data.get("usd")


@pytest.mark.requirement("claude-costs-are-counted")
def test_a_reply_that_is_cut_off_at_the_budget_is_charged(
    sandbox: ClaudeSandbox, model_server: ModelServer
) -> None:
    """The second reply never ends: Claude Code is interrupted before it counts it."""
    team = Team(sandbox, 'permissions = { mode = "auto" }', more="[budget]\nusd = 1.0\nreserve_usd = 1.0")

    with model_server.hold("costly", 1, after=4):
        done = team.run(
            "from bartack.errors import AgentBudgetError, BudgetExceededError",
            "try:",
            '    await ctx.think("[[script:costly]] spend")',
            "except AgentBudgetError as error:",
            "    spent = error.usd",
            "try:",
            '    await ctx.think("[[script:hello]] more")',
            "except BudgetExceededError:",
            "    return spent",
        )

    assert done.returncode == 0, done.stderr
    assert asked(model_server, "hello") == 0
    assert float(done.stdout) > 1.0


def test_a_server_that_hangs_and_a_limit_past_the_deadline_are_reported(
    sandbox: ClaudeSandbox, model_server: ModelServer
) -> None:
    """What hangs is resumed once. A limit whose end is not known is not waited for if the deadline comes before."""
    team = Team(sandbox, "stall_s = 1")

    done = team.run(
        "from bartack.errors import AgentError",
        "codes = []",
        'for script in ["hang", "limited"]:',
        "    try:",
        '        await ctx.think(f"[[script:{script}]] try", timeout_s=30)',
        "    except AgentError as error:",
        "        codes.append(error.code)",
        "return codes",
    )

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == ["BT807", "BT808"]
    assert (asked(model_server, "hang"), asked(model_server, "limited")) == (2, 1)
    assert len(team.named("agent.started")) == 3


def test_the_instructions_of_the_project_are_read_as_the_settings_say(
    sandbox: ClaudeSandbox, model_server: ModelServer
) -> None:
    bare = '[agents.bare]\nkind = "claude"\nsetting_sources = []'
    team = Team(sandbox, 'setting_sources = ["project"]', bare)
    (team.root / "CLAUDE.md").write_text("Always say CUCKOO.\n", encoding="utf-8")
    hook = {"type": "command", "command": "echo hooked >> hooked.txt"}
    settings = team.root / ".claude" / "settings.json"
    settings.parent.mkdir()
    settings.write_text(json.dumps({"hooks": {"SessionStart": [{"hooks": [hook]}]}}), encoding="utf-8")

    done = team.run(
        'await ctx.think("[[script:hello]] greet")',
        'return await ctx.think("[[script:below]] greet", agent="bare")',
    )

    assert done.returncode == 0, done.stderr
    assert (team.root / "hooked.txt").read_text(encoding="utf-8") == "hooked\n"
    assert "agent claude: it reads CLAUDE.md; it reads .claude/settings.json" in done.stderr
    assert "agent bare: it does not read the instructions" in done.stderr
    told = {request.script: "CUCKOO" in request.prompt for request in model_server.requests}
    assert told == {"hello": True, "below": False}


PLAIN: Final = ["-p --help, and read @secret.txt now " + "x" * 1_000_000, "/help me with @secret.txt"]


@pytest.mark.requirement("claude-is-asked")
def test_a_prompt_arrives_as_it_is_written(sandbox: ClaudeSandbox, model_server: ModelServer) -> None:
    team = Team(sandbox)
    (team.root / "secret.txt").write_text("the treasure", encoding="utf-8")
    texts = [f"{text} [[script:hello]]" for text in PLAIN]
    (team.root / "prompts.json").write_text(json.dumps(texts), encoding="utf-8")

    done = team.run(
        "import json",
        'for text in json.loads(await ctx.read("prompts.json")):',
        "    await ctx.think(text)",
    )

    assert done.returncode == 0, done.stderr
    given = [request.prompt for request in model_server.requests_of("hello")]
    assert len(given) == 2
    for sent, wanted in zip(given, texts, strict=True):
        before, _, rest = sent.rpartition(wanted)
        assert (before[-1:], rest) in {("", ""), ("\n", "")}, sent[:2000]
        assert "treasure" not in sent
