"""One table of tool calls: every mode decides each of them, and each kind of agent that is asked about one gets that verdict."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import pytest
from tests.unit.agents.claude.driver import Driver
from tests.unit.agents.decision_table import (
    ALL_ONLY,
    ALWAYS,
    EDITS,
    MODES,
    NEVER,
    RUNS,
    TABLE,
    Row,
    decider,
    make_place,
)

from bartack.agents._permissions import Mode
from bartack.agents.acp._tools import ToolReport, tool_use
from bartack.agents.codex._approvals import COMMAND, FILES, GRANT, decide, read_approval

pytestmark = pytest.mark.requirement("one-permission-decision")

COMMANDS = [row for row in TABLE if row.use.tool == "Bash"]
CHANGES = [row for row in TABLE if row.use.writes and row.use.name == row.use.tool and row.use.paths]


def name_of(row: Row) -> str:
    return f"{row.use.tool} {row.use.subject}".replace("\0", "NUL")


@pytest.fixture
def work(tmp_path: Path) -> Path:
    return make_place(tmp_path)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("row", TABLE, ids=name_of)
def test_every_mode_decides(work: Path, row: Row, mode: Mode) -> None:
    assert decider(work, mode).decide(row.use).decision == row.verdict(mode)


@pytest.mark.parametrize("row", TABLE, ids=name_of)
def test_where_a_person_can_be_asked_only_rules_and_the_guard_deny(work: Path, row: Row) -> None:
    assert decider(work, "ask", "question").decide(row.use).decision == row.asked


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("row", TABLE, ids=name_of)
def test_claude_code_gets_the_verdict_when_it_asks_before_a_tool_call(
    work: Path, row: Row, mode: Mode
) -> None:
    driver = Driver(work, settings={"permissions": decider(work, mode), "asks": False}).begin()

    assert driver.decide(row.use.tool, **row.use.input) == row.verdict(mode)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("row", COMMANDS, ids=name_of)
def test_a_command_is_decided_alike_for_codex_and_acp(work: Path, row: Row, mode: Mode) -> None:
    """A command of Codex comes with the shell around it. One that only looks, such as ``echo``, is looking there."""
    command = row.use.command
    asked = read_approval(
        1,
        COMMAND,
        {"itemId": "i", "cwd": str(work), "command": shlex.join(["/bin/bash", "-lc", command])},
        [],
    )
    reported = tool_use(ToolReport("t", kind="execute", title=command, input={"command": command}))

    looks = command.startswith("echo '")
    assert decide(asked, decider(work, mode)).decision == ("allow" if looks else row.verdict(mode))
    assert decider(work, mode).decide(reported).decision == row.verdict(mode)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("row", CHANGES, ids=name_of)
def test_a_changed_file_is_decided_alike_for_codex_and_acp(work: Path, row: Row, mode: Mode) -> None:
    paths = [os.path.join(work, path) for path in row.use.paths]
    asked = read_approval(1, FILES, {"itemId": "i"}, [{"path": path} for path in paths])
    reported = tool_use(ToolReport("t", kind="edit", name="Write", paths=tuple(paths)))

    assert decide(asked, decider(work, mode)).decision == row.verdict(mode)
    assert decider(work, mode).decide(reported).decision == row.verdict(mode)


READS = [row for row in TABLE if row.use.tool == "Read"]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("row", READS, ids=name_of)
def test_a_file_that_is_read_is_decided_alike_for_codex_and_acp(work: Path, row: Row, mode: Mode) -> None:
    (path,) = row.use.paths
    whole = os.path.join(work, path)
    reported = tool_use(ToolReport("t", kind="read", title="Read a file", paths=(whole,)))
    granted = read_approval(1, GRANT, {"itemId": "i", "permissions": {"fileSystem": {"read": [whole]}}}, [])

    assert decider(work, mode).decide(reported).decision == row.verdict(mode)
    assert decide(granted, decider(work, mode)).decision == row.verdict(mode)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("report", "verdicts"),
    [
        (ToolReport("t", kind="search", title="Find x", input={"pattern": "x", "path": "."}), ALWAYS),
        (ToolReport("t", kind="fetch", title="Fetch", input={"url": "http://example.invalid"}), RUNS),
        (ToolReport("t", kind="fetch", name="WebSearch", title="Look", input={"query": "x"}), ALWAYS),
        (ToolReport("t", kind="fetch", name="Read", title="Look", input={"query": "x"}), RUNS),
        (ToolReport("t", kind="execute", name="WebSearch", title="echo a > b"), RUNS),
        (ToolReport("t", kind="search", name="Glob", title="Find", input={"pattern": "*"}), ALWAYS),
        (ToolReport("t", kind="other", title="Unheard"), RUNS),
        (ToolReport("t", kind="other", title="x", input={"command": "git push"}), NEVER),
        (ToolReport("t", kind="other", name="TodoWrite", title="Plan"), ALWAYS),
        (ToolReport("t", kind="delete", title="Delete", paths=("a.txt",)), EDITS),
        (ToolReport("t", kind="delete", title="Delete", paths=("../a",)), ALL_ONLY),
        (ToolReport("t", kind="move", title="Move", paths=("a.txt", "locked/a")), NEVER),
        (ToolReport("t", kind="move", title="Move", paths=("a.txt", "b.txt")), EDITS),
    ],
    ids=lambda value: (
        f"{value.kind} {value.name} {value.title} {value.paths}" if isinstance(value, ToolReport) else ""
    ),
)
def test_every_kind_of_tool_of_an_acp_agent_is_decided(
    work: Path, report: ToolReport, verdicts: str, mode: Mode
) -> None:
    decided = decider(work, mode).decide(tool_use(report)).decision

    assert decided == {"a": "allow", "d": "deny"}[verdicts[MODES.index(mode)]]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("method", "params", "verdicts"),
    [
        (GRANT, {"permissions": {"network": {"enabled": True}}}, RUNS),
        (
            GRANT,
            {"permissions": {"network": {"enabled": True}, "fileSystem": {"write": ["locked/a"]}}},
            NEVER,
        ),
        (
            COMMAND,
            {"command": "touch allowed.txt", "networkApprovalContext": {"host": "example.invalid"}},
            RUNS,
        ),
        (COMMAND, {"command": "git push", "networkApprovalContext": {"host": "example.invalid"}}, NEVER),
        (COMMAND, {"networkApprovalContext": {"host": "example.invalid"}}, RUNS),
    ],
    ids=["network", "network-and-file", "allowed-command", "denied-command", "host"],
)
def test_the_network_of_codex_is_decided_like_a_fetch(
    work: Path, method: str, params: dict[str, object], verdicts: str, mode: Mode
) -> None:
    asked = read_approval(1, method, {"itemId": "i", "cwd": str(work), **params}, [])

    decided = decide(asked, decider(work, mode)).decision
    assert decided == {"a": "allow", "d": "deny"}[verdicts[MODES.index(mode)]]
