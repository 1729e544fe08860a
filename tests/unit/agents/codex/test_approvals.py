"""What Codex asks to be allowed, decided by the permissions of the agent: the same verdicts as for every other agent."""

from __future__ import annotations

from pathlib import Path

import pytest

from bartack.agents._permissions import Decision, Mode, Permissions
from bartack.agents._tool_permissions import ToolPermissions
from bartack.agents.codex._approvals import COMMAND, FILES, GRANT, decide, read_approval
from bartack.agents.tool_use import ToolUse


def asked(
    method: str,
    params: dict[str, object],
    permissions: ToolPermissions,
    changes: list[dict[str, object]] | None = None,
) -> str:
    return decide(read_approval(1, method, params, changes or []), permissions).decision


def by_mode(mode: Mode, cwd: Path, deny: list[str] | None = None) -> ToolPermissions:
    return ToolPermissions(Permissions(mode=mode, deny=deny or []), "general", str(cwd))


def change(path: object, moved: object = None) -> dict[str, object]:
    kind = {"type": "update", "move_path": str(moved)} if moved else {"type": "add"}
    return {"path": str(path), "kind": kind, "diff": ""}


@pytest.mark.parametrize(
    ("mode", "looks", "acts", "edits", "edits_outside"),
    [
        ("read", "allow", "deny", "deny", "deny"),
        ("edit", "allow", "deny", "allow", "deny"),
        ("auto", "allow", "allow", "allow", "deny"),
        ("all", "allow", "allow", "allow", "allow"),
        ("ask", "allow", "ask", "ask", "ask"),
    ],
)
def test_every_mode_decides_about_commands_and_files(
    tmp_path: Path, mode: Mode, looks: str, acts: str, edits: str, edits_outside: str
) -> None:
    given = by_mode(mode, tmp_path)
    cwd = str(tmp_path)

    assert asked(COMMAND, {"command": "/bin/bash -lc 'cat a'", "cwd": cwd}, given) == looks
    assert asked(COMMAND, {"command": "/bin/bash -lc 'touch a'", "cwd": cwd}, given) == acts
    assert asked(FILES, {}, given, [change(tmp_path / "a")]) == edits
    assert asked(FILES, {}, given, [change("/elsewhere/a")]) == edits_outside


def test_a_rule_about_reading_holds_for_commands_that_read(tmp_path: Path) -> None:
    given = by_mode("edit", tmp_path, deny=["Read(.env)"])

    assert asked(COMMAND, {"command": "cat .env", "cwd": str(tmp_path)}, given) == "deny"
    assert asked(COMMAND, {"command": "cat a", "cwd": str(tmp_path)}, given) == "allow"


def test_a_file_that_is_moved_counts_at_both_ends(tmp_path: Path) -> None:
    given = by_mode("edit", tmp_path)

    assert asked(FILES, {}, given, [change(tmp_path / "a", tmp_path / "b")]) == "allow"
    assert asked(FILES, {}, given, [change(tmp_path / "a", "/elsewhere/b")]) == "deny"


def test_one_change_that_is_denied_denies_all(tmp_path: Path) -> None:
    changes = [change(tmp_path / "a"), change(tmp_path / ".git" / "hooks" / "x")]

    assert asked(FILES, {}, by_mode("edit", tmp_path), changes) == "deny"


def test_a_change_that_was_never_announced_is_denied(tmp_path: Path) -> None:
    assert asked(FILES, {"itemId": "x"}, by_mode("all", tmp_path)) == "deny"
    assert asked(FILES, {}, by_mode("all", tmp_path), [{"kind": {}}]) == "deny"


def test_a_request_without_a_command_is_denied(tmp_path: Path) -> None:
    assert asked(COMMAND, {}, by_mode("all", tmp_path)) == "deny"


def test_a_command_that_wants_more_needs_permission_for_that_as_well(tmp_path: Path) -> None:
    more: dict[str, object] = {"fileSystem": {"write": ["/elsewhere"]}}
    params: dict[str, object] = {"command": "touch a", "additionalPermissions": more}

    assert asked(COMMAND, params, by_mode("auto", tmp_path)) == "deny"
    assert asked(COMMAND, {**params, "additionalPermissions": {}}, by_mode("edit", tmp_path)) == "deny"


@pytest.mark.parametrize(
    ("wanted", "decision"),
    [
        ({"fileSystem": {"write": ["a"]}}, "allow"),
        ({"fileSystem": {"write": ["/elsewhere"]}}, "deny"),
        ({"fileSystem": {"entries": [{"access": "write", "path": {"type": "special"}}]}}, "deny"),
        ({"network": {"enabled": True}}, "deny"),
        ({}, "deny"),
    ],
)
def test_a_grant_is_decided_by_what_it_grants(
    tmp_path: Path, wanted: dict[str, object], decision: str
) -> None:
    assert asked(GRANT, {"permissions": wanted}, by_mode("edit", tmp_path)) == decision


def test_a_grant_is_answered_with_what_was_wanted_and_nothing_else() -> None:
    wanted: dict[str, object] = {"network": {"enabled": True}, "fileSystem": None}
    approval = read_approval(1, GRANT, {"permissions": wanted}, [])

    assert approval.answer(allowed=True) == {"permissions": {"network": {"enabled": True}}, "scope": "turn"}
    assert approval.answer(allowed=False) == {"permissions": {}, "scope": "turn"}


class Broken:
    """A decision that fails."""

    def decide(self, use: ToolUse) -> Decision:
        """See the class."""
        raise RuntimeError(use.tool)


def test_a_decision_that_fails_is_a_denial() -> None:
    decided = decide(read_approval(1, COMMAND, {"command": "ls"}, []), Broken())

    assert decided.decision == "deny"
    assert "RuntimeError" in decided.reason
