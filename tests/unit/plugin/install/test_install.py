"""Installing, verifying and uninstalling a plugin: every step happens once, and a failed one leaves nothing."""

from __future__ import annotations

import ast
import errno
import json
import os
import shutil
import sys
from pathlib import Path

import pytest
from tests.unit.plugin.programs import SETTINGS, write_desk

from bartack.agents.program import find as _find
from bartack.errors import PluginInstallError, PluginInvalidError
from bartack.plugin import PluginInstaller, build_plugin, run_with_plugin, verify_all, verify_plugin
from bartack.plugin._folder import read_folder
from bartack.plugin.hooks import hook_status, install_hooks
from bartack.plugin.install._claude import find_claude

pytestmark = pytest.mark.usefixtures("programs")


def state(home: Path) -> dict[str, object]:
    file = home / "claude.json"
    found: dict[str, object] = json.loads(file.read_text()) if file.exists() else {}
    return found


def calls(home: Path) -> list[str]:
    return (home / "calls").read_text().splitlines()


def marketplace(home: Path) -> Path:
    return home / "project/.bartack/marketplace"


def enable(home: Path, id_: str) -> None:
    """What Claude Code itself writes into the settings."""
    file = home / "project/.claude/settings.json"
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps({"enabledPlugins": {id_: True}}))


@pytest.mark.requirement("plugin-install-is-whole")
def test_an_installed_plugin_has_absolute_commands_and_works(home: Path, plugin: Path) -> None:
    change = PluginInstaller("project").install(plugin)

    name, _, market = change.id.partition("@")
    assert (name, change.version, change.changed, change.left_out) == ("night-desk", "1.2.0", True, ())
    files = read_folder(marketplace(home) / "plugins/night-desk")
    server = json.loads(files[".mcp.json"])["mcpServers"]["bartack"]
    assert server == {
        "command": sys.executable,
        "args": ["-I", "-m", "bartack", "mcp", "--plugin", "${CLAUDE_PLUGIN_ROOT}"],
    }
    hooks = json.loads(files["hooks/hooks.json"])["hooks"]
    assert hooks["PreToolUse"][0]["hooks"][0]["args"] == ["-I", "-m", "bartack", "hook", "guard"]
    shim = str(home / "state/bartack/bin/bartack-hook.py")
    assert hooks["Stop"][0]["hooks"][0]["args"] == ["-I", "-S", shim, "Stop"]
    assert [(one.ok, one.problems, one.version) for one in verify_plugin("night-desk")] == [
        (True, (), "1.2.0")
    ]
    assert state(home)["marketplaces"] == {market: str(marketplace(home))}


def test_a_second_installation_changes_nothing(home: Path, plugin: Path) -> None:
    PluginInstaller("project").install(plugin)
    inode = marketplace(home).stat().st_ino

    again = PluginInstaller("project").install(plugin)

    assert not again.changed
    assert marketplace(home).stat().st_ino == inode


def test_another_version_replaces_the_installed_one(home: Path, plugin: Path) -> None:
    PluginInstaller("project").install(plugin)
    build_plugin(write_desk(home / "source", settings=SETTINGS.replace("1.2.0", "1.3.0")), plugin)

    change = PluginInstaller("project").install(plugin)

    assert (change.version, change.changed) == ("1.3.0", True)
    assert [one.version for one in verify_plugin("night-desk")] == ["1.3.0"]
    assert [call for call in calls(home) if call.startswith("plugin update")]


def test_each_project_has_a_marketplace_of_its_own(
    home: Path, plugin: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = PluginInstaller("project").install(plugin)
    (home / "other").mkdir()
    monkeypatch.chdir(home / "other")
    other = PluginInstaller("project").install(plugin)
    user = PluginInstaller("user").install(plugin)

    assert len({one.id, other.id, user.id}) == 3
    assert user.id == "night-desk@bartack-local"
    assert user.folder == str(home / ".local/share/bartack/marketplace/plugins/night-desk")


@pytest.mark.requirement("plugin-install-is-whole")
@pytest.mark.parametrize("step", ["plugin marketplace add", "plugin install", "plugin list"])
def test_a_step_that_is_refused_is_undone_and_its_text_is_shown(
    home: Path, plugin: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    installer = PluginInstaller("project")
    monkeypatch.setenv("REFUSE", step)

    with pytest.raises(PluginInstallError, match="not today"):
        installer.install(plugin)

    assert not marketplace(home).exists()
    assert state(home).get("plugins", []) == []
    assert state(home).get("marketplaces", {}) == {}


@pytest.mark.requirement("plugin-install-is-whole")
def test_a_failed_update_leaves_the_former_version(
    home: Path, plugin: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    PluginInstaller("project").install(plugin)
    before = read_folder(marketplace(home))
    build_plugin(write_desk(home / "source", settings=SETTINGS.replace("1.2.0", "1.3.0")), plugin)
    monkeypatch.setenv("NO_TOOLS", "1")

    with pytest.raises(PluginInstallError, match="lists no tool start_run"):
        PluginInstaller("project").install(plugin)

    assert read_folder(marketplace(home)) == before
    monkeypatch.delenv("NO_TOOLS")
    assert all(one.ok for one in verify_plugin("night-desk"))


def test_an_invalid_plugin_is_not_installed(home: Path, plugin: Path) -> None:
    (plugin / "README.md").write_text("mine\n")

    with pytest.raises(PluginInvalidError, match="changed after the build"):
        PluginInstaller("project").install(plugin)
    assert not marketplace(home).exists()


@pytest.mark.requirement("plugin-install-is-whole")
def test_uninstalling_leaves_nothing_and_a_second_time_changes_nothing(home: Path, plugin: Path) -> None:
    PluginInstaller("project").install(plugin)

    first = PluginInstaller("project").uninstall("night-desk")
    second = PluginInstaller("project").uninstall("night-desk")

    assert (first.changed, second.changed) == (True, False)
    assert not marketplace(home).exists()
    assert state(home) == {"marketplaces": {}, "plugins": []}
    assert verify_plugin("night-desk") == []


def test_a_marketplace_stays_while_a_plugin_in_it_is_installed(home: Path, plugin: Path) -> None:
    build_plugin(write_desk(home / "source", settings='[plugin]\nname = "day-desk"\n'), home / "day")
    for folder in (plugin, home / "day"):
        PluginInstaller("project").install(folder)
    PluginInstaller("local").install(plugin)

    PluginInstaller("local").uninstall("night-desk")
    assert [one.ok for one in verify_plugin("night-desk")] == [True]
    PluginInstaller("project").uninstall("night-desk")
    assert [one.ok for one in verify_plugin("day-desk")] == [True]
    listed = json.loads((marketplace(home) / ".claude-plugin/marketplace.json").read_text())
    assert [one["name"] for one in listed["plugins"]] == ["day-desk"]


# What is wrong with an installed plugin.


def problems(name: str = "night-desk") -> str:
    return "\n".join(problem for one in verify_plugin(name) for problem in one.problems)


@pytest.mark.requirement("plugin-verify-finds-it")
def test_a_changed_file_a_missing_folder_and_a_changed_command_are_found(home: Path, plugin: Path) -> None:
    PluginInstaller("project").install(plugin)
    folder = marketplace(home) / "plugins/night-desk"
    mcp = folder / ".mcp.json"

    (folder / "program/desk.pw").write_text("worker main() {\n}\n")
    assert "program/desk.pw: it was changed after the build" in problems()
    mcp.write_text(mcp.read_text().replace('"mcp"', '"--mcp"'))
    assert ".mcp.json is not what the installation made of it" in problems()
    (folder / "hooks/hooks.json").unlink()
    assert "hooks/hooks.json is not what the installation made of it" in problems()
    shutil.rmtree(folder)
    assert f"its folder {folder} is missing" in problems()


@pytest.mark.requirement("plugin-verify-finds-it")
def test_a_command_that_does_not_answer_is_refused_by_install_and_found_by_verify(
    home: Path, plugin: Path, programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    PluginInstaller("project").install(plugin)
    monkeypatch.setenv("SILENT", "1")

    assert f"{programs / 'python'} -I -m bartack --version: exit code 1: cannot start" in problems()
    with pytest.raises(PluginInstallError, match=r"does not answer: .*-I -m bartack --version"):
        PluginInstaller("project").install(plugin)

    (programs / "python").unlink()
    assert f"{programs / 'python'} -I -m bartack --version: {os.strerror(errno.ENOENT)}" in problems()


@pytest.mark.requirement("plugin-verify-finds-it")
@pytest.mark.parametrize(
    "place", ["project/.claude/settings.json", "project/.claude/settings.local.json", ".claude/settings.json"]
)
def test_settings_that_switch_hooks_off_are_refused_by_install_and_found_by_verify(
    home: Path, plugin: Path, place: str
) -> None:
    PluginInstaller("project").install(plugin)
    file = home / place
    file.parent.mkdir(exist_ok=True)
    file.write_text('{"disableAllHooks": true}')

    assert f"{file} switches all hooks off (disableAllHooks)" in problems()
    with pytest.raises(PluginInstallError, match=f"{file}: disableAllHooks"):
        PluginInstaller("project").install(plugin)


def test_a_plugin_without_hooks_does_not_care_whether_they_are_off(home: Path, plugin: Path) -> None:
    build_plugin(write_desk(home / "source", settings=""), plugin)
    (home / ".claude").mkdir()
    (home / ".claude/settings.json").write_text('{"disableAllHooks": true}')

    assert PluginInstaller("project").install(plugin).changed


def test_a_plugin_from_elsewhere_needs_bartack_on_the_path(
    home: Path, plugin: Path, programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    change = PluginInstaller("project").install(plugin)
    enable(home, change.id)
    shutil.rmtree(change.folder)
    shutil.copytree(plugin, change.folder)
    monkeypatch.setenv("PATH", str(programs))

    (found,) = verify_all(home / "project")

    assert found.problems == (f"bartack --version: {os.strerror(errno.ENOENT)}",)


def test_the_check_of_all_plugins_starts_nothing_if_none_is_enabled(home: Path, plugin: Path) -> None:
    assert verify_all(home / "project") == []
    assert not (home / "calls").exists()


def test_the_check_of_all_plugins_starts_no_program_of_the_project(home: Path, plugin: Path) -> None:
    change = PluginInstaller("project").install(plugin)
    enable(home, change.id)
    trap = home / "project/trap"
    trap.write_text(f"#!/bin/sh\ntouch {home}/executed\n")
    trap.chmod(0o755)
    mcp = Path(change.folder) / ".mcp.json"
    mcp.write_text(mcp.read_text().replace(sys.executable, str(trap)))

    (found,) = verify_all(home / "project")

    assert [problem for problem in found.problems if f"{trap}: it is in the project" in problem]
    assert not (home / "executed").exists()


# Claude Code itself.


def test_without_claude_code_the_error_says_how_to_install_it(
    plugin: Path, programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (programs / "claude").unlink()
    monkeypatch.setattr(_find, "PACKAGES", {})

    with pytest.raises(PluginInstallError, match="not found") as caught:
        PluginInstaller("project")
    assert "pip install 'bartack[claude-cli]'" in caught.value.remedy


def test_claude_code_is_found_in_its_package_without_importing_it(
    programs: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = home / "packages/some_sdk"
    (package / "_bundled").mkdir(parents=True)
    (package / "__init__.py").write_text("raise SystemExit('imported')\n")
    shutil.copy(programs / "claude", package / "_bundled/claude")
    monkeypatch.setattr(sys, "path", [str(package.parent), *sys.path])
    monkeypatch.setattr(_find, "PACKAGES", {"claude": ("some_sdk", "_bundled/claude")})

    assert find_claude({"PATH": str(programs)}) == str(programs / "claude")
    assert find_claude({"PATH": "/nowhere"}) == str(package / "_bundled/claude")


@pytest.mark.requirement("plugin-install-is-whole")
def test_a_plugin_is_tried_without_installing_it(home: Path, plugin: Path, programs: Path) -> None:
    (programs / "claude").write_text(
        f"#!{shutil.which('python3')} -IS\nimport pathlib, sys\n"
        f"folder = pathlib.Path(sys.argv[2])\npathlib.Path({str(home / 'seen')!r}).write_text(\n"
        "    repr((sys.argv[1], folder.name, (folder / '.mcp.json').read_text(), sys.argv[3:])))\nsys.exit(7)\n"
    )

    code = run_with_plugin(home / "source/desk.pw", ["-p", "hello world"])

    option, name, servers, rest = ast.literal_eval((home / "seen").read_text())
    assert (code, option, name, rest) == (7, "--plugin-dir", "night-desk", ["-p", "hello world"])
    assert sys.executable in servers
    assert not marketplace(home).exists()


# Hooks that record.


@pytest.mark.requirement("events-are-recorded-once")
def test_a_plugin_leaves_out_what_tracking_hooks_record(home: Path, plugin: Path) -> None:
    install_hooks(scope="local", python=shutil.which("python3") or "", root=home / "project")

    change = PluginInstaller("project").install(plugin)

    hooks = json.loads((Path(change.folder) / "hooks/hooks.json").read_text())["hooks"]
    assert change.left_out == ("SessionStart", "Stop", "SessionEnd")
    recorded = [event for event, groups in hooks.items() if "bartack-hook.py" in json.dumps(groups)]
    assert recorded == ["PostToolUse", "PostToolUseFailure", "SubagentStop"]
    assert "PreToolUse" in hooks
    assert [one.ok for one in verify_plugin("night-desk")] == [True]


@pytest.mark.requirement("events-are-recorded-once")
def test_tracking_hooks_leave_out_what_a_plugin_records(home: Path, plugin: Path) -> None:
    change = PluginInstaller("project").install(plugin)
    enable(home, change.id)

    done = install_hooks(scope="local", python=shutil.which("python3") or "", root=home / "project")

    assert done.left_out == ("PostToolUse", "SessionStart", "Stop", "SessionEnd")
    assert "bartack-hook.py" not in (done.after or "")
    assert hook_status(home / "project")["problems"] == []


@pytest.mark.requirement("events-are-recorded-once")
def test_the_status_of_hooks_names_what_is_recorded_twice(home: Path, plugin: Path) -> None:
    change = PluginInstaller("project").install(plugin)
    install_hooks(scope="local", python=shutil.which("python3") or "", root=home / "project")
    enable(home, change.id)

    found = hook_status(home / "project")

    local = os.path.realpath(home / "project/.claude/settings.local.json")
    assert (
        f"Stop is recorded twice, by {local} and by the plugin {change.id}; install one of them again"
        in str(found["problems"])
    )
