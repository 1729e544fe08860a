"""One table of tool calls: every mode decides each of them, and each kind of agent that is asked about one gets that verdict."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import pytest
from tests.unit.agents.claude.driver import Driver
from tests.unit.agents.decision_table import MODES, TABLE, Row, decider, make_place

from bartack.agents._permissions import Mode
from bartack.agents.acp._tools import ToolReport, tool_use
from bartack.agents.codex._approvals import COMMAND, FILES, decide, read_approval

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
