"""``bartack plugin`` through the real entry point."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.unit.plugin.programs import DESK, write_desk

from bartack.plugin.events import marketplace_name

Call = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_desk(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_plugin_is_built_checked_and_validated(call: Call, project: Path) -> None:
    first = call("plugin", "build", "desk.pw", "-o", "out")
    again = call("plugin", "build", "desk.pw", "-o", "out")
    checked = call("plugin", "build", "desk.pw", "-o", "out", "--check")
    valid = call("plugin", "validate", "out", "--no-cli")

    assert (first.returncode, first.stdout) == (0, "built night-desk: 11 files in out\n")
    assert (again.returncode, again.stdout) == (0, "unchanged night-desk: 11 files in out\n")
    assert (checked.returncode, checked.stdout) == (0, "out is up to date\n")
    assert (valid.returncode, valid.stdout) == (0, "out is valid (Bartack; Claude Code was not asked)\n")


def test_check_exits_with_1_and_lists_the_differences(call: Call, project: Path) -> None:
    call("plugin", "build", "desk.pw", "-o", "out")
    (project / "desk.pw").write_text(DESK.replace("Report the night.", "Report it."))

    checked = call("plugin", "build", "desk.pw", "-o", "out", "--check")
    as_json = call("plugin", "build", "desk.pw", "-o", "out", "--check", "--json")

    assert checked.returncode == as_json.returncode == 1
    assert "differs: commands/night-report.md\n" in checked.stdout
    assert json.loads(as_json.stdout)["differences"] == checked.stdout.splitlines()


def test_compile_emits_the_same_plugin(call: Call, project: Path) -> None:
    call("plugin", "build", "desk.pw", "-o", "one")
    emitted = call("compile", "desk.pw", "--emit", "plugin", "-o", "two")

    assert emitted.returncode == 0
    assert {
        str(path.relative_to("one")): path.read_bytes() for path in Path("one").rglob("*") if path.is_file()
    } == {
        str(path.relative_to("two")): path.read_bytes() for path in Path("two").rglob("*") if path.is_file()
    }
    assert call("compile", "desk.pw", "--emit", "plugin").returncode == 2
    assert call("compile", "desk.pw", "-o", "two").returncode == 2


def test_findings_have_file_line_and_key(call: Call, project: Path) -> None:
    call("plugin", "build", "desk.pw", "-o", "out")
    file = project / "out/agents/triage.md"
    file.write_text(file.read_text().replace('"blue"', '"beige"'))

    shown = call("plugin", "validate", "out", "--no-cli")
    as_json = json.loads(call("plugin", "validate", "out", "--no-cli", "--json").stdout)

    assert shown.returncode == 1
    assert shown.stdout.startswith("error: agents/triage.md:6: color: 'beige' is not one of red")
    assert as_json["ok"] is False
    assert as_json["findings"][0] | {"problem": ""} == {
        "file": "agents/triage.md",
        "line": 6,
        "key": "color",
        "problem": "",
    }


def test_errors_have_their_code_and_place(call: Call, project: Path) -> None:
    (project / "desk.pw").write_text(DESK.replace("export trait", "trait"))

    refused = call("plugin", "build", "desk.pw", "-o", "out")
    missing = call("plugin", "validate", "nowhere", "--no-cli")

    assert refused.returncode == 1
    assert "BT1011" in refused.stderr
    assert "desk.pw:4:7: the trait NightDesk is not exported" in refused.stderr
    assert missing.returncode == 1
    assert "BT1014" in missing.stderr


def test_warnings_go_to_stderr(call: Call, project: Path) -> None:
    (project / "desk.pw").write_text(DESK.replace("    # Report the night.\n", ""))

    built = call("plugin", "build", "desk.pw", "-o", "out")

    assert built.returncode == 0
    assert "warning: desk.pw:15:9: the command night-report has no description" in built.stderr


def test_clean_leaves_the_marketplace_of_a_project_alone(call: Call, project: Path) -> None:
    kept = project / ".bartack/marketplace/plugins/night-desk/README.md"
    kept.parent.mkdir(parents=True)
    kept.write_text("kept")

    assert call("clean", "--yes").returncode == 0
    assert kept.read_text() == "kept"


def test_hook_install_names_the_events_that_a_plugin_records(
    call: Call, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(project))
    monkeypatch.delenv("CLAUDE_CONFIG_DIR", raising=False)
    name = marketplace_name("project", project)
    hooks = project / ".bartack/marketplace/plugins/night-desk/hooks/hooks.json"
    hooks.parent.mkdir(parents=True)
    hooks.write_text('{"hooks": {"Stop": [{"hooks": [{"args": ["bartack-hook.py"]}]}]}}')
    (project / ".claude").mkdir()
    (project / ".claude/settings.json").write_text(
        json.dumps({"enabledPlugins": {f"night-desk@{name}": True}})
    )

    shown = call("hook", "install")

    assert shown.stdout.endswith("recorded by a plugin already: Stop\n")
    assert '"Stop"' not in (project / ".claude/settings.local.json").read_text()
