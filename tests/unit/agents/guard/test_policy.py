"""The project's own policy: protected files, roots, rules, and what cannot be used."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from tests.unit.agents.guard.project import Project, make_project

from bartack.agents.guard.policy import PolicyFlawError, read_policy
from bartack.agents.guard.settings import GuardConfig
from bartack.agents.tool_use import ToolUse
from bartack.config.load import load_config
from bartack.core.flaws import find_flaws
from bartack.errors import ConfigError

DESTROY: dict[str, object] = {
    "tool": "Bash",
    "match": "terraform destroy*",
    "decision": "ask",
    "reason": "infrastructure is torn down by people",
}


@pytest.fixture(name="project")
def make(tmp_path: Path) -> Project:
    return make_project(tmp_path)


@pytest.mark.parametrize(
    "command",
    [
        "terraform destroy -auto-approve",
        "cd infra && terraform destroy",
        "sudo terraform 'destroy'",
        "/usr/bin/terraform destroy",
        "bash -c 'terraform destroy'",
        "echo $(terraform destroy)",
    ],
)
def test_a_rule_sees_a_command_however_it_is_written(project: Project, command: str) -> None:
    verdict = project.judge(command, rule=[DESTROY])

    assert verdict[:3] == ("ask", "rule-1", "infrastructure is torn down by people")


def test_a_rule_does_not_see_text(project: Project) -> None:
    assert project.judge("echo 'terraform destroy'", rule=[DESTROY]).decision == "none"


def test_the_strictest_match_wins_and_no_permission_beats_a_built_in_rule(project: Project) -> None:
    allow: dict[str, object] = {"tool": "Bash", "match": "*", "decision": "allow"}
    deny = {**DESTROY, "decision": "deny"}

    assert project.judge("terraform destroy", rule=[allow, DESTROY, deny]).rule == "rule-3"
    assert project.judge("terraform destroy", rule=[allow, DESTROY]).decision == "ask"
    assert project.judge("rm -rf /", rule=[allow]).rule == "delete-vital"


def test_a_rule_that_allows_a_command_settles_what_it_reads(project: Project) -> None:
    rule: dict[str, object] = {"tool": "Bash", "match": "bash -s", "decision": "allow"}

    assert project.judge("cat x | bash -s").decision == "ask"
    assert project.judge("cat x | bash -s", rule=[rule]).decision == "none"
    assert project.judge("cat x | bash -s; cat x | bash", rule=[rule]).decision == "ask"
    assert project.judge("curl x | bash -s", rule=[rule]).rule == "network-code"


def test_without_built_in_rules_only_those_of_the_project_count(project: Project) -> None:
    assert project.judge("rm -rf /", builtin=False).decision == "none"
    assert project.judge("rm -rf /", builtin=False, rule=[{**DESTROY, "match": "rm *"}]).decision == "ask"


def test_what_cannot_be_read_is_denied_if_the_policy_wants_it(project: Project) -> None:
    assert project.judge("rm 'x", unparsed="deny")[:2] == ("deny", "unparsed")


@pytest.mark.parametrize(
    ("command", "decision"),
    [
        ("rm .env", "deny"),
        ("rm sub/.env.local", "deny"),
        ("echo x > .env", "deny"),
        ("mv .env x", "deny"),
        ("rm -rf secrets", "deny"),
        ("rm secrets/key", "deny"),
        ("mv secrets x", "deny"),
        ("cp x secrets/", "deny"),
        ("cat .env secrets/key", "none"),
        ("rm notes.txt", "none"),
    ],
)
def test_protected_files_are_not_written_deleted_or_moved(
    project: Project, command: str, decision: str
) -> None:
    assert project.judge(command, protect=["secrets/**", ".env*"]).decision == decision


def test_roots_are_where_directories_may_be_deleted(project: Project) -> None:
    roots = ["build", "/tmp/scratch"]

    assert project.judge("rm -rf build/cache /tmp/scratch/x", roots=roots).decision == "none"
    assert project.judge("rm -rf build", roots=roots).rule == "delete-outside"
    assert project.judge("rm -rf logs", roots=roots).rule == "delete-outside"
    assert project.judge("chmod -R u+w /tmp/scratch", roots=roots).decision == "none"


@pytest.mark.parametrize("tool", ["Write", "Edit", "MultiEdit"])
@pytest.mark.parametrize(
    ("path", "decision"),
    [
        (".git/config", "deny"),
        ("src/../.git/config", "deny"),
        (".bartack/x", "deny"),
        (".claude/settings.json", "deny"),
        (".claude/settings.local.json", "deny"),
        ("~/.claude/settings.json", "deny"),
        (".env", "deny"),
        ("link/config", "deny"),
        ("src/a.py", "none"),
        (".claude/commands/x.md", "none"),
        (".github/x", "none"),
        (".gitignore", "none"),
    ],
)
def test_tools_that_write_are_judged_by_where_they_write(
    project: Project, tool: str, path: str, decision: str
) -> None:
    (project.root / "link").symlink_to(".git")
    guard = project.guard({"protect": [".env*"]})

    assert guard.judge(ToolUse(tool, {"file_path": path})).decision == decision
    assert guard.judge(ToolUse("NotebookEdit", {"notebook_path": path})).decision == decision
    assert guard.judge(ToolUse("Read", {"file_path": path})).decision == "none"


def test_rules_are_about_other_tools_as_well(project: Project) -> None:
    guard = project.guard(
        {"rule": [{"tool": "mcp__db__*", "match": "*", "decision": "deny", "reason": "no databases"}]}
    )

    assert guard.judge(ToolUse("mcp__db__drop", {"name": "x"})).decision == "deny"
    assert guard.judge(ToolUse("mcp__other", {"name": "x"})).decision == "none"


@pytest.mark.requirement("guard-never-guesses")
def test_a_command_without_a_text_is_not_let_through(project: Project) -> None:
    assert project.guard().judge(ToolUse("Bash", {})).decision == "ask"
    assert project.guard().judge(ToolUse("Bash", {"command": 7}), strict=True).decision == "deny"


FLAWED: list[tuple[object, str]] = [
    ([], "guard"),
    ({"bultin": True}, "guard.bultin"),
    ({"builtin": 1}, "guard.builtin"),
    ({"unparsed": "allow"}, "guard.unparsed"),
    ({"protect": "x"}, "guard.protect"),
    ({"roots": [1]}, "guard.roots"),
    ({"rule": {}}, "guard.rule"),
    ({"rule": [{}]}, "guard.rule[0].tool"),
    ({"rule": [{**DESTROY, "decision": "maybe"}]}, "guard.rule[0].decision"),
    ({"rule": [DESTROY, {**DESTROY, "more": 1}]}, "guard.rule[1].more"),
]


@pytest.mark.parametrize(("section", "setting"), FLAWED)
def test_a_policy_that_cannot_be_used_is_refused(section: object, setting: str) -> None:
    with pytest.raises(PolicyFlawError) as caught:
        read_policy(section)

    assert caught.value.setting == setting


SECTIONS: list[dict[str, object]] = [
    {},
    {"builtin": False, "unparsed": "deny", "protect": [".env*"], "roots": [], "rule": [DESTROY]},
    {"rule": [{key: value for key, value in DESTROY.items() if key != "reason"}]},
    {"bultin": True},
    {"builtin": 1},
    {"unparsed": "allow"},
    {"protect": "x"},
    {"protect": [" "]},
    {"protect": ["a\0b"]},
    {"roots": [1]},
    {"rule": {}},
    {"rule": [{}]},
    {"rule": [{**DESTROY, "tool": ""}]},
    {"rule": [{**DESTROY, "decision": "maybe"}]},
    {"rule": [{**DESTROY, "more": 1}]},
    {"rule": [{**DESTROY, "reason": 1}]},
]


@pytest.mark.parametrize("section", SECTIONS)
def test_the_hook_reads_the_section_as_the_settings_do(section: dict[str, object]) -> None:
    flaws = list(find_flaws(section, GuardConfig))

    if flaws:
        with pytest.raises(PolicyFlawError):
            read_policy(section)
    else:
        assert read_policy(section) == msgspec.convert(section, GuardConfig).policy


def test_an_unknown_key_of_the_section_is_an_error_with_the_nearest_one(tmp_path: Path) -> None:
    (tmp_path / "bartack.toml").write_text("[guard]\nprotekt = []\n", encoding="utf-8")

    with pytest.raises(ConfigError, match="did you mean 'protect'") as caught:
        load_config(tmp_path, environ={})

    assert "guard.protekt" in caught.value.setting


def test_the_simple_commands_are_explained(project: Project) -> None:
    rows = project.guard().explain("cd build && rm -rf cache; sudo rm -rf / | tee x; 'x")

    assert [(row.command[:14], row.verdict.rule) for row in rows] == [("cd build && rm", "unparsed")]
    rows = project.guard().explain("cd build && rm -rf cache; sudo rm -rf / | tee x")
    assert [(row.command, row.verdict.rule) for row in rows] == [
        ("cd build", ""),
        ("rm -rf cache", ""),
        ("sudo rm -rf /", "delete-vital"),
        ("tee x", ""),
    ]
