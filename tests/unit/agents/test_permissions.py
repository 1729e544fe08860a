"""What an agent may do, and what the scripted one does about it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.agent_sections import read_agents
from tests.unit.agents.stage import request_for

from bartack.agents import ScriptedAgent
from bartack.agents._permissions import Mode, Permissions
from bartack.agents.ndjson.agent import scripted_argv
from bartack.agents.protocol.messages import Role
from bartack.agents.scripted.call import obey
from bartack.agents.scripted.scripted import Prompt
from bartack.errors import ConfigError

RULE: dict[str, object] = {
    "text": "done",
    "write": [{"path": "notes/a.md", "content": "a"}, {"path": "b.py", "content": "b"}],
}


@pytest.mark.parametrize(
    ("mode", "read", "write", "bash"),
    [
        ("read", "allow", "deny", "deny"),
        ("edit", "allow", "allow", "deny"),
        ("auto", "allow", "allow", "allow"),
        ("all", "allow", "allow", "allow"),
        ("ask", "allow", "ask", "ask"),
        (None, "allow", "allow", "allow"),
    ],
)
def test_a_mode_says_what_may_be_done(mode: Mode | None, read: str, write: str, bash: str) -> None:
    allowed = Permissions(mode=mode)

    assert [allowed.decide(tool, "x").decision for tool in ("Read", "Write", "Bash")] == [read, write, bash]


@pytest.mark.parametrize(
    ("permissions", "subject", "decision", "reason"),
    [
        (Permissions(mode="read", allow=["Write"]), "a.py", "allow", "allow Write"),
        (Permissions(mode="read", allow=["Write(docs/*)"]), "docs/a.md", "allow", "allow Write(docs/*)"),
        (Permissions(mode="read", allow=["Write(docs/*)"]), "a.md", "deny", "mode read"),
        (Permissions(mode="all", deny=["Write(*.py)"]), "a.py", "deny", "deny Write(*.py)"),
        (Permissions(mode="all", allow=["Write"], deny=["Write(*.py)"]), "a.py", "deny", "deny Write(*.py)"),
        (Permissions(mode="all", deny=["Bash(rm *)"]), "a.py", "allow", "mode all"),
        (Permissions(mode="ask", on_ask="deny"), "a.py", "deny", "mode ask"),
    ],
)
def test_rules_win_over_the_mode_and_a_no_over_a_yes(
    permissions: Permissions, subject: str, decision: str, reason: str
) -> None:
    assert permissions.decide("Write", subject) == (
        decision,
        "mode" if reason.startswith("mode") else "rule",
        reason,
    )


@pytest.mark.parametrize(
    ("role", "written"),
    [
        ("builder", ["b.py", "notes/a.md"]),
        ("spec_maintainer", ["b.py", "notes/a.md"]),
        ("general", ["b.py", "notes/a.md"]),
        ("reviewer", []),
        ("orchestration", []),
    ],
)
def test_without_a_mode_the_role_decides(tmp_path: Path, role: Role, written: list[str]) -> None:
    reply = ScriptedAgent([RULE]).reply(Prompt("k", "n", "t", str(tmp_path), role))

    assert files(tmp_path) == written
    assert (reply.text, len(reply.denials)) == ("done", 2 - len(written))


def files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_a_scripted_agent_writes_what_it_may_and_replies_all_the_same(tmp_path: Path) -> None:
    permissions = Permissions(mode="read", allow=["Write(notes/*)"])

    reply = ScriptedAgent([RULE], permissions=permissions).reply(Prompt("k", "n", "t", str(tmp_path)))

    assert files(tmp_path) == ["notes/a.md"]
    assert [str(denied) for denied in reply.denials] == ["Write b.py was not allowed (mode read)"]


def test_a_scripted_agent_that_obeys_a_command_keeps_to_its_permissions(tmp_path: Path) -> None:
    built: dict[str, object] = {"write": RULE["write"], "events": [{"type": "builder.completed"}]}
    agent = ScriptedAgent(responses={"implement": built}, permissions=Permissions(deny=["Write(*.py)"]))

    result = obey(agent, request_for("implement", tmp_path))

    assert result.event.event == "builder.completed"
    assert files(tmp_path) == ["notes/a.md"]


def test_the_program_is_told_its_permissions() -> None:
    plain = scripted_argv("python", "s.json", "state", Permissions())
    told = scripted_argv("python", "s.json", "state", Permissions(mode="read"))

    assert "--permissions" not in plain
    assert json.loads(told[told.index("--permissions") + 1])["mode"] == "read"


@pytest.mark.parametrize(
    ("agent", "setting", "told"),
    [
        ({"script": "s", "permissions": {"mode": "reed"}}, "permissions.mode", "did you mean 'read'?"),
        ({"script": "s", "permissions": {"allow": ["Write("]}}, "permissions.allow[0]", "name of a tool"),
        ({"script": "s", "permissions": {"mode": "ask"}}, "permissions.on_ask", "cannot ask a person"),
        ({"command": "x", "permissions": {}}, "permissions", "of kind 'ndjson'"),
    ],
)
def test_permissions_that_cannot_be_kept_are_refused(
    agent: dict[str, object], setting: str, told: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        read_agents({"team": agent})

    assert caught.value.setting == f"agents.team.{setting}"
    assert told in caught.value.message


@pytest.mark.parametrize(
    ("rule", "tool", "subject", "decision"),
    [
        ("Bash(git log*)", "Bash", "git log --oneline", "allow"),
        ("Bash(git log*)", "Bash", "git log; rm -rf /", "deny"),
        ("Bash(git log*)", "Bash", "git log $(rm -rf /)", "deny"),
        ("Bash(git log*)", "Bash", "git log\nrm -rf /", "deny"),
        ("Bash(make && make test)", "Bash", "make && make test", "allow"),
        ("Bash", "Bash", "make && make test", "allow"),
        ("Write(docs/*)", "Write", "docs/guide.md", "allow"),
        ("Write(docs/*)", "Write", "docs/../src/main.py", "deny"),
    ],
)
def test_a_pattern_that_allows_one_thing_lets_no_other_in_behind_it(
    rule: str, tool: str, subject: str, decision: str
) -> None:
    assert Permissions(mode="read", allow=[rule]).decide(tool, subject).decision == decision
