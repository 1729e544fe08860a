"""What stands against using a program for coding is found before it costs anything."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest

from bartack.agents.doctor._coding import CliFindings, CliVisit, check_cli
from bartack.agents.program.cli_facts import is_older, read_version
from bartack.agents.program_config import AcpConfig, ClaudeConfig, CliConfig, CodexConfig

FAKE = """\
#!{python}
import json, sys
if "--version" in sys.argv:
    print({version!r})
    sys.exit(0)
for line in sys.stdin:
    message = json.loads(line)
    answer = {answer}
    print(json.dumps(answer), flush=True)
"""


def fake(place: Path, name: str, version: str = "2.1.325 (Claude Code)", answer: str = "{}") -> Path:
    path = place / name
    path.write_text(FAKE.format(python=sys.executable, version=version, answer=answer))
    path.chmod(0o755)
    return path


def check(
    config: CliConfig,
    place: Path,
    environ: Mapping[str, str] | None = None,
    *,
    start: bool = False,
    live: bool = False,
) -> CliFindings:
    known = {"PATH": str(place), "HOME": str(place), **(environ or {})}
    return check_cli("ai", config, CliVisit(place, known, start, live, probe=True))


def claude(**changes: object) -> ClaudeConfig:
    settings = {"kind": "claude", "pass_env": ["ANTHROPIC_API_KEY"], **changes}
    return msgspec.convert(settings, type=ClaudeConfig)


KEY = {"ANTHROPIC_API_KEY": "not-a-key"}


def test_a_program_that_is_missing_is_reported_with_how_to_get_it(tmp_path: Path) -> None:
    (problem,) = check(claude(command="claude-that-is-not-there"), tmp_path, KEY).problems

    assert "not found" in problem
    assert 'pip install "bartack[claude-cli]"' in problem
    assert "agents.ai.command" in problem


@pytest.mark.parametrize(
    ("version", "problem"),
    [("2.1.325 (Claude Code)", ""), ("2.0.1", "2.0.1 is too old"), ("hello", "printed no version")],
)
def test_its_version_has_to_be_new_enough(tmp_path: Path, version: str, problem: str) -> None:
    fake(tmp_path, "claude", version)
    found = check(claude(), tmp_path, KEY).problems

    assert [problem in text for text in found] == ([True] if problem else [])


def test_a_version_that_the_settings_require_counts(tmp_path: Path) -> None:
    fake(tmp_path, "claude")

    assert "3.0 or newer" in check(claude(min_version="3.0"), tmp_path, KEY).problems[0]


def test_a_version_that_is_newer_than_the_tested_one_is_no_problem(tmp_path: Path) -> None:
    fake(tmp_path, "claude", "9.1.0")
    found = check(claude(), tmp_path, KEY)

    assert found.problems == []
    assert any("untested" in note for note in found.notes)


def test_a_credential_or_a_login_is_required(tmp_path: Path) -> None:
    fake(tmp_path, "claude")
    neither = check(claude(), tmp_path).problems

    assert "not logged in" in neither[0]
    assert "ANTHROPIC_API_KEY" in neither[0]
    assert check(claude(), tmp_path, KEY).problems == []
    (tmp_path / ".claude").mkdir()
    (tmp_path / ".claude" / ".credentials.json").write_text("{}")
    assert check(claude(), tmp_path).problems == []
    assert "home to user" in check(claude(home="run"), tmp_path).problems[0]


def test_no_value_of_a_credential_is_shown(tmp_path: Path) -> None:
    fake(tmp_path, "claude")

    assert "not-a-key" not in str(check(claude(), tmp_path, KEY))


def test_a_provider_of_their_own_has_its_own_credentials(tmp_path: Path) -> None:
    fake(tmp_path, "codex", "codex-cli 0.163.0")
    plain = msgspec.convert({"kind": "codex"}, type=CodexConfig)
    other = msgspec.convert({"kind": "codex", "config": {"model_provider": "mine"}}, type=CodexConfig)

    assert "not logged in" in check(plain, tmp_path).problems[0]
    assert check(other, tmp_path).problems == []


def test_what_it_reads_of_the_project_is_told(tmp_path: Path) -> None:
    fake(tmp_path, "claude")
    (tmp_path / "CLAUDE.md").write_text("Be kind.")
    (tmp_path / "AGENTS.md").write_text("Be kind.")

    assert "it reads CLAUDE.md" in check(claude(), tmp_path, KEY).notes
    assert not any("CLAUDE.md" in note for note in check(claude(setting_sources=[]), tmp_path, KEY).notes)


READY = '{"response": {"request_id": message["request_id"], "response": {"hooks_applied": True%s}}}'


def test_one_that_cannot_block_a_tool_call_is_refused(tmp_path: Path) -> None:
    fake(tmp_path, "claude", answer=READY % "")
    assert "hook_on_failure_supported" in check(claude(), tmp_path, KEY, start=True).problems[0]

    fake(tmp_path, "claude", answer=READY % ', "hook_on_failure_supported": True')
    assert check(claude(), tmp_path, KEY, start=True).problems == []


def test_one_that_says_nothing_is_refused_with_what_it_printed(tmp_path: Path) -> None:
    path = tmp_path / "silent"
    path.write_text(f"#!{sys.executable}\nimport sys\nprint('no licence', file=sys.stderr)\nsys.exit(3)\n")
    path.chmod(0o755)
    config = msgspec.convert({"kind": "acp", "command": [str(path)], "start_s": 5.0}, type=AcpConfig)
    (problem,) = check(config, tmp_path, start=True).problems

    assert "does not answer" in problem
    assert "no licence" in problem


def test_another_version_of_the_protocol_is_refused(tmp_path: Path) -> None:
    fake(tmp_path, "acp", answer='{"jsonrpc": "2.0", "id": message["id"], "result": {"protocolVersion": 2}}')
    config = msgspec.convert({"kind": "acp", "command": ["acp"]}, type=AcpConfig)

    assert "not 1" in check(config, tmp_path, start=True).problems[0]


def test_versions_are_compared_by_their_numbers() -> None:
    assert read_version("codex-cli 0.163.0\n") == "0.163.0"
    assert is_older("2.1.99", "2.1.248")
    assert not is_older("2.10", "2.9.1")
