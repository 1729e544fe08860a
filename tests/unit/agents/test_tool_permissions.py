"""The one decision about a tool call: deny rules, the guard, allow rules, the mode, and the bounds of writing."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest

from bartack.agents._permissions import Decision, Mode, Permissions
from bartack.agents._tool_permissions import ToolPermissions
from bartack.agents.guard.guard import Guard
from bartack.agents.guard.policy import GuardPolicy, read_policy
from bartack.agents.guard.verdict import GuardVerdict
from bartack.agents.protocol.messages import Role
from bartack.agents.tool_use import ToolUse


class Says:
    """A guard that always says the same."""

    def __init__(self, decision: Literal["none", "ask", "deny"]) -> None:
        self.verdict = GuardVerdict(decision, "a-rule", "it destroys things", "x")
        self.strict: list[bool] = []

    def judge(self, use: ToolUse, *, strict: bool = False) -> GuardVerdict:
        self.strict.append(strict)
        return self.verdict


def decide(folder: Path, use: ToolUse, permissions: Permissions, guard: Says | None = None) -> Decision:
    return ToolPermissions(
        permissions, "builder", str(folder), guard=guard, own_tools=["mcp__b__add"]
    ).decide(use)


TABLE: list[tuple[str, dict[str, object], str, str, str, str, str]] = [
    # tool, input, read, edit, auto, all, ask
    ("Read", {"file_path": "a"}, "allow", "allow", "allow", "allow", "allow"),
    ("Grep", {"path": "/etc"}, "allow", "allow", "allow", "allow", "allow"),
    ("LS", {"path": "/etc"}, "allow", "allow", "allow", "allow", "allow"),
    ("Write", {"file_path": "a"}, "deny", "allow", "allow", "allow", "ask"),
    ("MultiEdit", {"file_path": "a"}, "deny", "allow", "allow", "allow", "ask"),
    ("NotebookEdit", {"notebook_path": "a.ipynb"}, "deny", "allow", "allow", "allow", "ask"),
    ("Edit", {"file_path": "/etc/passwd"}, "deny", "deny", "deny", "allow", "ask"),
    ("Edit", {"file_path": "../x"}, "deny", "deny", "deny", "allow", "ask"),
    ("Edit", {"file_path": ".git/config"}, "deny", "deny", "deny", "deny", "deny"),
    ("Edit", {"file_path": "sub/.git/config"}, "deny", "deny", "deny", "deny", "deny"),
    ("Edit", {"file_path": ".bartack/x"}, "deny", "deny", "deny", "deny", "deny"),
    ("Edit", {"file_path": "a/../.git/x"}, "deny", "deny", "deny", "deny", "deny"),
    ("Edit", {"file_paths": ["a", "/etc/passwd"]}, "deny", "deny", "deny", "allow", "ask"),
    ("Edit", {}, "deny", "deny", "deny", "allow", "ask"),
    ("Bash", {"command": "make"}, "deny", "deny", "allow", "allow", "ask"),
    ("WebFetch", {"url": "http://x"}, "deny", "deny", "allow", "allow", "ask"),
    ("WebSearch", {"query": "x"}, "deny", "deny", "allow", "allow", "ask"),
    ("mcp__other__thing", {}, "deny", "deny", "allow", "allow", "ask"),
    ("mcp__b__add", {}, "allow", "allow", "allow", "allow", "allow"),
    ("Task", {"prompt": "x"}, "allow", "allow", "allow", "allow", "allow"),
    ("Agent", {"prompt": "x"}, "allow", "allow", "allow", "allow", "allow"),
    ("TodoWrite", {"todos": []}, "allow", "allow", "allow", "allow", "allow"),
]  # fmt: skip


@pytest.mark.requirement("one-permission-decision")
@pytest.mark.parametrize("row", TABLE, ids=lambda row: f"{row[0]}-{row[1]}")
def test_every_mode_decides_every_tool(
    tmp_path: Path, row: tuple[str, dict[str, object], str, str, str, str, str]
) -> None:
    tool, given, *wanted = row
    modes: tuple[Mode, ...] = ("read", "edit", "auto", "all", "ask")

    found = [decide(tmp_path, ToolUse(tool, given), Permissions(mode=mode)).decision for mode in modes]

    assert found == wanted


@pytest.mark.parametrize(
    ("role", "decision"),
    [("builder", "allow"), ("spec_maintainer", "deny"), ("general", "deny"), ("reviewer", "deny")],
)
def test_without_a_mode_the_role_decides(tmp_path: Path, role: Role, decision: str) -> None:
    desk = ToolPermissions(Permissions(), role, str(tmp_path))

    assert desk.decide(ToolUse.of_command("make")).decision == decision


def test_a_link_leads_where_it_leads(tmp_path: Path) -> None:
    inside, outside = tmp_path / "in", tmp_path / "out"
    inside.mkdir()
    outside.mkdir()
    (inside / "link").symlink_to(outside)
    use = ToolUse.of_path("Write", "link/file")

    assert (
        decide(inside, use, Permissions(mode="edit")).reason
        == "link/file is outside of the working directory"
    )
    wider = ToolPermissions(Permissions(mode="edit"), "builder", str(inside), extra_dirs=[str(outside)])
    assert wider.decide(use).decision == "allow"


def test_refused_paths_are_refused_by_any_name(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "link").symlink_to("state")
    desk = ToolPermissions(Permissions(mode="auto"), "builder", str(tmp_path), refused_paths=["state"])

    assert [
        desk.decide(ToolUse.of_path("Edit", path)).decision for path in ("state/x", "link/x", "statement")
    ] == [
        "deny",
        "deny",
        "allow",
    ]


@pytest.mark.requirement("one-permission-decision")
def test_the_order_is_deny_rule_guard_allow_rule_mode(tmp_path: Path) -> None:
    use = ToolUse.of_command("make x")
    everything = Permissions(mode="read", allow=["Bash"], deny=["Bash(make *)"])
    allowing = Permissions(mode="read", allow=["Bash"])

    assert decide(tmp_path, use, everything, Says("deny")) == ("deny", "rule", "deny Bash(make *)")
    assert decide(tmp_path, use, allowing, Says("deny")) == (
        "deny",
        "guard",
        "Blocked by Bartack guard, rule a-rule: it destroys things.",
    )
    assert decide(tmp_path, use, allowing, Says("none")) == ("allow", "rule", "allow Bash")
    assert decide(tmp_path, use, Permissions(mode="read"), Says("none")) == ("deny", "mode", "mode read")


@pytest.mark.parametrize("mode", ["read", "edit", "auto", "all", "ask"])
def test_the_guard_denies_in_every_mode(tmp_path: Path, mode: Mode) -> None:
    guard = Says("deny")

    assert decide(tmp_path, ToolUse.of_command("x"), Permissions(mode=mode), guard).by == "guard"
    assert guard.strict == [mode == "all"]


@pytest.mark.parametrize(
    ("permissions", "decision", "by"),
    [
        (Permissions(mode="auto"), "ask", "guard"),
        (Permissions(mode="auto", on_ask="deny"), "deny", "guard"),
        (Permissions(mode="auto", allow=["Bash"]), "ask", "guard"),
        (Permissions(mode="read"), "deny", "mode"),
        (Permissions(mode="ask"), "ask", "mode"),
    ],
)
def test_a_question_of_the_guard_is_put_only_where_the_rest_would_allow_it(
    tmp_path: Path, permissions: Permissions, decision: str, by: str
) -> None:
    assert decide(tmp_path, ToolUse.of_command("x"), permissions, Says("ask"))[:2] == (decision, by)


def test_rules_know_a_path_by_every_name_it_has(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "alias").symlink_to("docs")
    denying = Permissions(mode="auto", deny=["Edit(docs/*)"])
    allowing = Permissions(mode="read", allow=["Edit(docs/*)"])
    names = ["docs/a", "alias/a", str(tmp_path / "docs/a"), "x/../docs/a", "docs/../a"]

    assert [decide(tmp_path, ToolUse.of_path("Edit", name), denying).decision for name in names] == [
        "deny", "deny", "deny", "deny", "deny",
    ]  # fmt: skip
    assert [decide(tmp_path, ToolUse.of_path("Edit", name), allowing).decision for name in names] == [
        "allow", "allow", "allow", "allow", "deny",
    ]  # fmt: skip


def test_a_tool_that_nobody_knows_is_denied_like_a_command(tmp_path: Path) -> None:
    use = ToolUse("mcp__db__drop", {"name": "x"})

    assert decide(tmp_path, use, Permissions(mode="auto", deny=["Bash"])).reason == "deny Bash"
    assert decide(tmp_path, use, Permissions(mode="auto", deny=["mcp__db__drop"])).decision == "deny"
    assert decide(tmp_path, use, Permissions(mode="edit", allow=["mcp__db__drop"])).decision == "allow"


class Breaks:
    """A guard that cannot decide."""

    def judge(self, use: ToolUse, *, strict: bool = False) -> GuardVerdict:
        del strict
        raise RecursionError(use.tool)


@pytest.mark.requirement("guard-never-guesses")
def test_a_guard_that_cannot_decide_blocks(tmp_path: Path) -> None:
    desk = ToolPermissions(Permissions(mode="all"), "builder", str(tmp_path), guard=Breaks())

    assert desk.decide(ToolUse.of_command("ls")) == (
        "deny",
        "guard",
        "Blocked: the guard could not decide (RecursionError)",
    )


def test_the_guard_itself_is_asked(tmp_path: Path) -> None:
    guard = Guard(GuardPolicy(), str(tmp_path), home=str(tmp_path / "home"))
    desk = ToolPermissions(Permissions(mode="all"), "builder", str(tmp_path), guard=guard)

    assert desk.decide(ToolUse.of_command("ls && rm -rf /")).by == "guard"
    assert desk.decide(ToolUse.of_command("cat x | sh")).by == "guard"
    assert desk.decide(ToolUse.of_path("Write", ".git/config")).by == "guard"
    assert desk.decide(ToolUse.of_path("Write", "/tmp/x")).decision == "allow"
    assert desk.decide(ToolUse.of_command("ls")).decision == "allow"


def test_the_policy_of_the_project_counts(tmp_path: Path) -> None:
    policy = read_policy({"protect": [".env*"]})
    desk = ToolPermissions(Permissions(mode="all"), "builder", str(tmp_path), policy=policy)

    assert desk.decide(ToolUse.of_path("Write", ".env")).by == "guard"
    assert ToolPermissions(Permissions(mode="all"), "builder", str(tmp_path)).decide(
        ToolUse.of_command("rm -rf /")
    ) == ("deny", "guard", Guard(GuardPolicy(), str(tmp_path)).judge(ToolUse.of_command("rm -rf /")).text)


@pytest.mark.parametrize(
    "command",
    [
        "git push",
        "cd x && git push",
        "sudo git push origin",
        "sh -c 'git push'",
        "echo $(git push)",
        "git 'push'",
        "if a; then git  push; fi",
    ],
)
def test_a_rule_forbids_a_command_wherever_it_stands(tmp_path: Path, command: str) -> None:
    permissions = Permissions(mode="auto", deny=["Bash(git push*)"])

    assert decide(tmp_path, ToolUse.of_command(command), permissions).reason == "deny Bash(git push*)"
    assert decide(tmp_path, ToolUse.of_command("echo 'git push'"), permissions).decision == "allow"
