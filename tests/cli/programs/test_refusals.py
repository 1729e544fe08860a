"""Bad settings, programs and prompts: found before anything is started, with an error that has a code."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.cli.programs.fakes import KINDS, SECRET
from tests.cli.programs.workspace import Project, Result

Call = Callable[..., Result]
KEY = "sk-ant-api03-abcdefghijklmnopqrst123456"


@pytest.fixture(params=KINDS)
def project(request: pytest.FixtureRequest, tmp_path: Path) -> Project:
    return Project(tmp_path, str(request.param))


@pytest.mark.requirement("run-looks-at-agents-first")
@pytest.mark.parametrize(
    ("command", "told"),
    [
        (["./nothing"], "'./nothing' does not exist"),
        (["no-such-program"], "'no-such-program' is not found in PATH"),
        (["./team.py"], "'./team.py' is not executable; make it executable with chmod +x"),
        (["./folder"], "'./folder' is a directory, not a program"),
    ],
)
def test_a_program_that_cannot_be_started_is_found_before_the_run(
    command: list[str], told: str, project: Project
) -> None:
    (project.root / "folder").mkdir()
    project.configure("ok", command)

    run, doctor = project.run(), project.call("agents", "doctor")

    assert (run.returncode, doctor.returncode) == (2, 1)
    assert "error[BT801]" in run.stderr
    assert told in run.stderr
    assert told in doctor.stdout
    assert "set agents.a.command in bartack.toml" in run.stderr
    assert project.runs == []


@pytest.mark.requirement("run-looks-at-agents-first")
@pytest.mark.parametrize(
    ("kind", "behaviour", "told"),
    [
        ("claude", "old", "version 0.0.1 is too old: 2.1.248 or newer is needed"),
        ("codex", "old", "version 0.0.1 is too old: 0.150.0 or newer is needed"),
        ("claude", "no-version", "--version printed no version"),
        ("codex", "no-version", "--version printed no version"),
    ],
)
def test_a_version_that_cannot_be_used_is_found_before_the_run(
    kind: str, behaviour: str, told: str, tmp_path: Path
) -> None:
    project = Project(tmp_path, kind, behaviour)

    run, doctor = project.run(), project.call("agents", "doctor")

    assert (run.returncode, doctor.returncode) == (2, 1)
    assert told in run.stderr
    assert told in doctor.stdout
    assert project.runs == []
    assert project.starts == []


@pytest.mark.requirement("doctor-finds-what-is-missing")
@pytest.mark.parametrize("behaviour", ["exit", "mute", "noise-first"])
def test_the_doctor_reports_a_program_that_does_not_greet(behaviour: str, project: Project) -> None:
    project.configure(behaviour, more="start_s = 0.5")

    doctor = project.call("agents", "doctor")

    assert doctor.returncode == 1
    assert "it does not answer the first request" in doctor.stdout


@pytest.mark.requirement("bad-prompts-are-refused")
@pytest.mark.parametrize(
    ("think", "told"),
    [
        ("ctx.think('')", "the prompt is empty"),
        ("ctx.think(' \\n')", "the prompt is empty"),
        ("ctx.think('a\\0b')", "the prompt has a NUL character at position 1"),
        ("ctx.think('a', system='\\0')", "the system text has a NUL character at position 0"),
    ],
)
def test_a_prompt_that_cannot_be_sent_starts_nothing(think: str, told: str, project: Project) -> None:
    project.program(f"return await {think}")

    failed = project.run()

    assert failed.returncode == 1
    assert f"AgentRequestError [BT812]: agent 'a': {told}" in failed.stderr
    assert project.starts == []


@pytest.mark.requirement("bad-prompts-are-refused")
def test_a_schema_that_does_not_fit_on_a_command_line_starts_nothing(tmp_path: Path) -> None:
    project = Project(tmp_path, "claude")
    wide = "Annotated[int, msgspec.Meta(description='y' * 120_000)]"
    project.program(
        f"return await ctx.think('x', type={wide})", "from typing import Annotated\nimport msgspec"
    )

    failed = project.run()

    assert failed.returncode == 1
    assert "[BT812]" in failed.stderr
    assert "more than 102400 (too_large)" in failed.stderr
    assert project.starts == []


TYPED = "from typing import Annotated\nimport msgspec\nOdd = Annotated[int, msgspec.Meta(extra_json_schema={given})]"


@pytest.mark.requirement("bad-prompts-are-refused")
@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("{'minimum': 'low'}", "$.minimum: expected a number"),
        ("{'pattern': '('}", "$.pattern: expected a regular expression ("),
        ("{'$ref': '#/$defs/missing'}", "$.$ref: expected a reference to a part of the schema"),
    ],
)
def test_a_schema_that_is_not_one_starts_nothing(given: str, told: str, project: Project) -> None:
    before = TYPED.format(given=given)
    tool = "async def tool(odd: Odd) -> int:\n    'One.'\n    return 1"
    project.program("return await ctx.think('x', type=Odd)", before)
    reply = project.run()
    project.program("return await ctx.think('x', tools=[tool])", f"{before}\n{tool}")
    tools = project.run()

    assert (reply.returncode, tools.returncode) == (1, 1)
    assert (
        f"AgentRequestError [BT812]: agent 'a': the schema of its reply is invalid at {told}" in reply.stderr
    )
    assert "agent 'a': the schema of the tool tool is invalid at $.properties.odd" in tools.stderr
    assert project.starts == []


TOOLS = """
async def answer() -> int:
    "One."
    return 1

async def ask() -> int:
    "Two."
    return 2
"""


@pytest.mark.requirement("bad-prompts-are-refused")
def test_tools_may_have_the_names_of_tools_of_bartack_and_not_that_of_another_tool(project: Project) -> None:
    project.program("return await ctx.think('x', tools=[answer, ask])", TOOLS)
    fine = project.run()
    project.program("return await ctx.think('x', tools=[ask, answer, ask])", TOOLS)
    failed = project.run()

    assert (fine.returncode, fine.stdout) == (0, "fine\n"), fine.stderr
    assert failed.returncode == 1
    assert "two tools of a prompt have the same name: ask; rename one of them" in failed.stderr
    assert project.starts == ["ok"]


@pytest.mark.requirement("settings-of-agents-are-checked")
@pytest.mark.parametrize(
    ("lines", "code", "told"),
    [
        ('kind = "claude"\ncommand = []', "BT101", "agents.a.command: it is empty"),
        ('kind = "codex"\ncommand = ""', "BT101", "agents.a.command: it is empty"),
        ('kind = "acp"', "BT101", "agents.a.command: it is missing"),
        ('kind = "cluade"', "BT101", "there is no such kind of agent; did you mean 'claude'?"),
        ('kind = "codex"\nefort = "high"', "BT101", "there is no such key; did you mean 'effort'?"),
        (
            'kind = "codex"\nsetting_sources = []',
            "BT101",
            "it is a setting of agents of kind 'claude', and this one is of kind 'codex'",
        ),
        (
            'kind = "acp"\ncommand = "x"\neffort = "high"',
            "BT101",
            "it is a setting of agents of kind 'claude' and 'codex', and this one is of kind 'acp'",
        ),
        (
            f'kind = "claude"\nenv = {{ ANTHROPIC_API_KEY = "{SECRET}" }}',
            "BT801",
            "env.ANTHROPIC_API_KEY is a secret and must not be written down; name it in pass_env instead",
        ),
        (f'kind = "claude"\nenv = {{ OTHER = "{KEY}" }}', "BT801", "env.OTHER is a secret"),
        (
            f'kind = "codex"\nconfig = {{ "model_providers.x.bearer_token" = "{SECRET}" }}',
            "BT801",
            "config.model_providers.x.bearer_token is a secret",
        ),
        (
            f'kind = "acp"\ncommand = ["x", "--api-key", "{SECRET}"]',
            "BT801",
            "word 3 of command is a secret",
        ),
        (f'kind = "acp"\ncommand = ["x", "--api-key={SECRET}"]', "BT801", "word 2 of command is a secret"),
        (f'kind = "acp"\ncommand = ["x", "{KEY}"]', "BT801", "word 2 of command is a secret"),
    ],
)
def test_a_mistake_in_the_settings_is_named_and_nothing_is_started(
    lines: str, code: str, told: str, call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = Project(tmp_path, "claude")
    (tmp_path / "bartack.toml").write_text(f"[agents.a]\n{lines}\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)

    for words in (["run", "team.py"], ["agents", "doctor"], ["check"]):
        done = call(*words)

        shown = done.stdout + done.stderr
        assert done.returncode == (1 if words == ["check"] else 2), shown
        assert told in shown
        assert code in shown
        assert SECRET not in shown
        assert KEY not in shown
    assert project.runs == []
    assert project.starts == []


@pytest.mark.requirement("settings-of-agents-are-checked")
@pytest.mark.parametrize(
    "lines",
    [
        'kind = "codex"\nconfig = { "model_providers.x.env_key" = "OPENAI_API_KEY" }',
        'kind = "acp"\ncommand = ["x", "--token-file", "place", "--key", "place"]',
        'kind = "acp"\ncommand = ["x", "--api-key", "--verbose"]',
    ],
)
def test_names_of_variables_and_of_files_are_not_secrets(lines: str, call: Call, tmp_path: Path) -> None:
    (tmp_path / "bartack.toml").write_text(f"[agents.a]\n{lines}\n", encoding="utf-8")

    assert call("agents", "list", "-C", str(tmp_path)).returncode == 0
