"""Codex as an agent of a run: replies, values, what it may do, tools of ours, and the newest models, which write programs.

Prompts that do not disturb each other are in one run. Failures are in ``test_failures.py``, kills in ``test_kills.py``.
"""

from __future__ import annotations

from typing import Final

import pytest
from tests.realcli.crew import Crew, price, shell

from bartack.testing import ClaudeSandbox, ModelServer

Script = list[dict[str, object]]
PATCH: Final = "*** Begin Patch\n*** Add File: {path}\n+x\n*** End Patch\n"
NEWEST: Final = "gpt-6.1-sol"


def command(text: str, **more: object) -> dict[str, object]:
    return {"tools": [shell("codex", text)], **more}


def patch(path: str, **more: object) -> dict[str, object]:
    return {"tools": [{"name": "apply_patch", "input": {"input": PATCH.format(path=path)}}], **more}


def tool(name: str, *, expect: str = "", **given: object) -> dict[str, object]:
    made: dict[str, object] = {"tools": [{"name": name, "input": given}]}
    return {**made, "expect": {"tool_result": expect}} if expect else made


def program(text: str) -> dict[str, object]:
    """The one tool of the newest models."""
    return {"tools": [{"name": "exec", "input": {"input": text}}]}


SCRIPTS: Final[dict[str, Script]] = {
    "hello": [{"text": "hello back", "usage": {"input_tokens": 1000, "output_tokens": 100}}],
    "seven": [{"text": "7", "usage": {"input_tokens": 50, "output_tokens": 1}}],
    "edit": [
        command("ls -la"),
        command("touch made.txt", expect={"tool_result": "bartack.toml"}),
        patch("{{cwd}}/new.txt", expect={"tool_result": "rejected"}),
        patch("{{cwd}}/../outside.txt"),
        {"text": "tried"},
    ],
    "all": [
        command("touch made.txt"),
        command("git push --force"),
        patch("{{cwd}}/../outside.txt"),
        {"text": "tried"},
    ],
    "level": [{"text": '{"level": 3}'}],
    "wrong_level": [{"text": '{"level": "high"}'}, {"text": '{"level": 4}'}],
    "number": [tool("answer", value=7), {"text": "done"}],
    "wrong_number": [
        tool("answer", value="seven"),
        tool("answer", value=8, expect="expected integer"),
        {"text": "done"},
    ],
    "tools": [
        tool("double", n=4),
        tool("double", n=5, expect="8"),
        tool("double", n=-1, expect="10"),
        {"text": "done", "expect": {"tool_result": "ValueError"}},
    ],
    "js_command": [program('text(await tools.exec_command({cmd: "touch made.txt"}))'), {"text": "tried"}],
    "js_tool": [
        program("text(JSON.stringify(await tools.double({n: 4})))"),
        {"text": "done", "expect": {"tool_result": "8"}},
    ],
}
DOUBLE: Final = (
    "calls = []",
    "async def double(n: int) -> int:",
    '    """Double a number."""',
    "    if n < 0:",
    "        raise ValueError('negative')",
    "    calls.append(n)",
    "    return 2 * n",
)


def make(sandbox: ClaudeSandbox, server: ModelServer, settings: str = "", model: str = "") -> Crew:
    return Crew("codex", sandbox, server, settings, is_wrapped=False, model=model)


@pytest.fixture
def crew(sandbox: ClaudeSandbox, model_server: ModelServer, codex: list[str]) -> Crew:
    assert codex
    return make(sandbox, model_server)


def denials(crew: Crew) -> list[tuple[object, object]]:
    found = [event for event in crew.named("agent.permission") if event["decision"] == "deny"]
    return [(event["tool"], event["by"]) for event in found]


def test_a_prompt_is_answered_and_continued_and_its_cost_is_estimated(
    crew: Crew, model_server: ModelServer
) -> None:
    done = crew.run(
        'first = await ctx.think_reply("[[script:hello]] greet")',
        'number = await ctx.think_reply("[[script:seven]] how many?", type=int, continues=first)',
        "return [[one.value, one.usd, one.usd_estimated] for one in (first, number)]",
    )

    assert done.returncode == 0, done.stderr
    hello, seven = model_server.requests
    assert crew.decode(done) == [
        ["hello back", pytest.approx(price(hello)), True],
        [7, pytest.approx(price(seven)), True],
    ]
    starts = crew.named("agent.started")
    assert [event["attempt"] for event in starts] == [1, 1]
    assert len({event["conversation"] for event in starts}) == 2
    assert any(str(event["text"]).endswith("with the model gpt-5.5") for event in crew.named("agent.notice"))
    first, last = (event["usage"] for event in crew.named("agent.usage"))
    assert isinstance(first, dict)
    assert isinstance(last, dict)
    assert (first["input_tokens"], first["output_tokens"], first["turns"]) == (1000, 100, 1)
    assert last["input_tokens"] == 50


@pytest.mark.requirement("codex-permissions")
def test_in_mode_edit_it_looks_and_changes_files_of_the_workspace(
    sandbox: ClaudeSandbox, model_server: ModelServer, codex: list[str]
) -> None:
    assert codex
    crew = make(sandbox, model_server, 'permissions = { mode = "edit" }')

    done = crew.run('return await ctx.think("[[script:edit]] do it")')

    assert done.stdout == "tried\n", done.stderr
    assert not (crew.root / "made.txt").exists()
    assert (crew.root / "new.txt").exists()
    assert not (crew.root.parent / "outside.txt").exists()
    assert [tool for tool, _ in denials(crew)] == ["Bash", "Edit"]
    told = [request.prompt for request in model_server.requests]
    assert any("Bartack did not allow Bash touch made.txt" in text for text in told)


@pytest.mark.requirement("codex-permissions")
def test_rules_and_the_guard_hold_in_mode_all(
    sandbox: ClaudeSandbox, model_server: ModelServer, codex: list[str]
) -> None:
    assert codex
    crew = make(sandbox, model_server, 'permissions = { mode = "all", deny = ["Bash(touch*)"] }')

    done = crew.run('return await ctx.think("[[script:all]] do it")')

    assert done.stdout == "tried\n", done.stderr
    assert not (crew.root / "made.txt").exists()
    assert (crew.root.parent / "outside.txt").exists()
    assert denials(crew) == [("Bash", "rule"), ("Bash", "guard")]


@pytest.mark.requirement("codex-permissions")
@pytest.mark.requirement("codex-tools")
def test_a_program_of_the_newest_models_is_asked_about_its_commands_and_calls_tools_of_ours(
    sandbox: ClaudeSandbox, model_server: ModelServer, codex: list[str]
) -> None:
    assert codex
    crew = make(sandbox, model_server, 'permissions = { mode = "edit" }', NEWEST)

    done = crew.run(
        *DOUBLE,
        'tried = await ctx.think("[[script:js_command]] do it")',
        'said = await ctx.think("[[script:js_tool]] [tool double]", tools=[double])',
        "return [tried, said, calls]",
    )

    assert done.returncode == 0, done.stderr
    assert crew.decode(done) == ["tried", "done", [4]]
    assert "exec" in model_server.requests[0].tools
    assert not (crew.root / "made.txt").exists()
    assert [tool for tool, _ in denials(crew)] == ["Bash"]


def test_a_login_of_the_user_is_used_without_a_credential(crew: Crew, model_server: ModelServer) -> None:
    (crew.root / "bartack.toml").write_text('[agents.codex]\nhome = "user"\n', encoding="utf-8")

    done = crew.run('return await ctx.think("[[script:hello]] greet")')

    assert done.stdout == "hello back\n", done.stderr
    assert list((crew.sandbox.codex_home / "sessions").glob("*/*/*/rollout-*.jsonl"))
    assert len(model_server.requests) == 1


@pytest.mark.requirement("codex-values")
def test_a_value_comes_by_the_schema_of_the_model_or_by_a_tool_and_is_repaired_once(
    crew: Crew, model_server: ModelServer
) -> None:
    """A closed schema is given to the model. Any other one is that of a tool, which refuses a wrong value at once."""
    done = crew.run(
        "import msgspec",
        "class Height(msgspec.Struct, forbid_unknown_fields=True):",
        "    level: int",
        'level = await ctx.think("[[script:level]] how high?", type=Height)',
        'again = await ctx.think("[[script:wrong_level]] how high?", type=Height)',
        'seven = await ctx.think("[[script:number]] how many?", type=int)',
        'eight = await ctx.think("[[script:wrong_number]] how many?", type=int)',
        "return [level.level, again.level, seven, eight]",
    )

    assert done.returncode == 0, done.stderr
    assert crew.decode(done) == [3, 4, 7, 8]
    offered = {request.script: "answer" in request.tools for request in model_server.requests}
    assert offered == {"level": False, "wrong_level": False, "number": True, "wrong_number": True}
    asked = {script: len(model_server.requests_of(script)) for script in offered}
    assert asked == {"level": 1, "wrong_level": 2, "number": 2, "wrong_number": 3}
    assert len({event["pid"] for event in crew.named("agent.started")}) == 4


@pytest.mark.requirement("codex-tools")
def test_a_function_is_a_tool_of_the_model(crew: Crew) -> None:
    done = crew.run(
        *DOUBLE,
        'said = await ctx.think("[[script:tools]] [tool double]", tools=[double])',
        'plain = await ctx.think("[[script:hello]] [tool double]", tools=[double])',
        "return [said, plain, calls]",
    )

    assert done.returncode == 0, done.stderr
    assert crew.decode(done) == ["done", "hello back", [4, 5]]
    assert (crew.count("tool.called"), crew.count("tool.failed")) == (3, 1)


def test_a_program_that_is_not_there_is_named_with_how_to_install_it(
    crew: Crew, model_server: ModelServer
) -> None:
    settings = crew.root / "bartack.toml"
    lines = settings.read_text(encoding="utf-8").splitlines()
    kept = [line for line in lines if not line.startswith("command")]
    kept.insert(kept.index("[agents.codex]") + 1, 'command = "codex-that-is-not-there"')
    settings.write_text("\n".join(kept), encoding="utf-8")

    done = crew.run('return await ctx.think("[[script:hello]] greet")')

    assert done.returncode != 0
    assert "codex-that-is-not-there" in done.stderr
    assert not model_server.requests
