from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from tests.unit.agents.claude.driver import request_of

from bartack.agents._permissions import Permissions
from bartack.agents.claude._command import Beginning, command_line, environment
from bartack.agents.claude._own_tools import FinishedTool
from bartack.agents.claude._schemas import schema_text, unwrapped
from bartack.agents.claude._texts import prompt_text, resumed_text
from bartack.agents.program._continuation import CONTINUE
from bartack.agents.program._json_lines import Json
from bartack.agents.program_config import ClaudeConfig
from bartack.agents.protocol.messages import ToolSpec

NEW = Beginning("new", "c1")


def line(root: Path, config: ClaudeConfig | None = None, **request: object) -> list[str]:
    return command_line(["claude"], config or ClaudeConfig(), request_of(root, **request), NEW)


def option(argv: list[str], name: str) -> str | None:
    found = [word.partition("=")[2] for word in argv if word.startswith(f"--{name}=")]
    return found[0] if found else None


def test_settings_become_options(tmp_path: Path) -> None:
    config = ClaudeConfig(model="-m", effort="high", setting_sources=[], plugin_dirs=["p"])

    argv = line(tmp_path, config)

    assert {"--model=-m", "--effort=high", "--setting-sources=", "--plugin-dir=p"} <= set(argv)
    plain = line(tmp_path)
    assert "--setting-sources=project" in plain
    assert [option(plain, name) for name in ("model", "effort", "plugin-dir")] == [None] * 3


def test_no_word_of_the_prompt_is_on_the_command_line(tmp_path: Path) -> None:
    argv = line(tmp_path, inputs={"text": "--dangerous secret"}, system="hidden")

    assert not any("secret" in word or "hidden" in word for word in argv)


@pytest.mark.parametrize(
    ("beginning", "words"),
    [
        (NEW, ["--session-id=c1"]),
        (Beginning("resume", "c1"), ["--resume=c1"]),
        (Beginning("fork", "c1", "/p.jsonl"), ["--resume=/p.jsonl", "--fork-session", "--session-id=c1"]),
    ],
)
def test_a_process_begins_resumes_or_forks(tmp_path: Path, beginning: Beginning, words: list[str]) -> None:
    argv = command_line(["claude"], ClaudeConfig(), request_of(tmp_path), beginning, usd=0.5, turns=4)

    kept = ("--session-id", "--resume", "--fork")
    assert [word for word in argv if word.startswith(kept)] == words
    assert (option(argv, "max-budget-usd"), option(argv, "max-turns")) == ("0.5000", "4")


def test_tools_that_outlive_a_step_are_not_there(tmp_path: Path) -> None:
    usual = option(line(tmp_path), "disallowedTools") or ""
    asking = option(line(tmp_path, may_ask=True), "disallowedTools") or ""
    own = option(line(tmp_path, ClaudeConfig(disallowed_tools=["Task"]), may_ask=True), "disallowedTools")

    assert {"CronCreate", "Monitor", "AskUserQuestion"} <= set(usual.split(","))
    assert "AskUserQuestion" not in asking
    assert own == "Task"


def test_an_agent_that_only_looks_has_only_tools_for_that(tmp_path: Path) -> None:
    reading = ClaudeConfig(permissions=Permissions(mode="read"))

    assert option(line(tmp_path, reading), "tools") == "Read,Grep,Glob"
    assert option(line(tmp_path, reading, may_ask=True), "tools") == "Read,Grep,Glob,AskUserQuestion"
    assert option(line(tmp_path, role="reviewer"), "tools") == "Read,Grep,Glob"
    assert option(line(tmp_path), "tools") is None


def test_a_schema_that_is_not_of_an_object_is_put_into_one(tmp_path: Path) -> None:
    schema = {"type": "array", "items": {"$ref": "#/$defs/X"}, "$defs": {"X": {"type": "integer"}}}
    request = request_of(tmp_path, inputs={"text": "x", "result_schema": schema})

    given = msgspec.json.decode(schema_text(request), type=dict[str, object])

    assert given["required"] == ["value"]
    assert given["$defs"] == schema["$defs"]


def test_a_schema_that_names_a_definition_of_an_object_is_not_wrapped(tmp_path: Path) -> None:
    schema: Json = {"$ref": "#/$defs/X", "$defs": {"X": {"type": "object", "properties": {"a": {}}}}}
    request = request_of(tmp_path, inputs={"text": "x", "result_schema": schema})

    given = msgspec.json.decode(schema_text(request), type=dict[str, object])

    assert given == {"type": "object", "properties": {"a": {}}, "$defs": schema["$defs"]}
    assert unwrapped(request, {"structured_output": {"a": 1}}) == {"a": 1}


def test_the_environment_is_built_from_nothing() -> None:
    environ = {
        "PATH": "/bin",
        "HOME": "/h",
        "CLAUDE_CODE_SECRET": "x",
        "CANARY": "x",
        "ANTHROPIC_API_KEY": "k",
    }

    env = environment(ClaudeConfig(env={"CLAUDE_CODE_MAX_RETRIES": "0"}), environ)

    assert "CANARY" not in env
    assert "CLAUDE_CODE_SECRET" not in env
    assert (env["ANTHROPIC_API_KEY"], env["PATH"], env["CLAUDE_CODE_MAX_RETRIES"]) == ("k", "/bin", "0")
    assert env["ENABLE_TOOL_SEARCH"] == "false"
    assert "ANTHROPIC_API_KEY" not in environment(ClaudeConfig(pass_env=["OTHER"]), environ)


def test_work_in_the_background_has_to_be_allowed() -> None:
    name = "CLAUDE_CODE_DISABLE_BACKGROUND_TASKS"

    assert environment(ClaudeConfig(), {})[name] == "1"
    assert name not in environment(ClaudeConfig(background=True), {})


def test_the_prompt_is_verbatim_and_names_the_tools_as_they_are_called_here(tmp_path: Path) -> None:
    tool = ToolSpec("do_1", "a block", {"type": "object"})

    assert prompt_text(request_of(tmp_path, inputs={"text": " /x @y "})) == " /x @y "
    text = prompt_text(request_of(tmp_path, tools=[tool]))
    assert text.startswith("do it\n\n")
    assert "[tool do_1] is mcp__bartack__do_1" in text


def test_a_continuation_lists_the_outcomes_that_may_be_lost() -> None:
    tools = [FinishedTool("t1", "do_1", "41"), FinishedTool("t2", "do_2", "42")]

    assert resumed_text(tools, {"t1", "t2"}) == CONTINUE
    text = resumed_text(tools, {"t1"})
    assert text.startswith(CONTINUE)
    assert "mcp__bartack__do_2: 42" in text
    assert "do_1" not in text
