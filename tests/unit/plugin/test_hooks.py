from __future__ import annotations

import json
import os
import shlex
import stat
import sys
from pathlib import Path

import pytest

from bartack.core.trust import add_trusted
from bartack.errors import ConfigError, SettingsError, TokenScopeError
from bartack.plugin.hooks import hook_status, install_hooks, uninstall_hooks
from bartack.resilience.tokens import hook_token

FOREIGN = {
    "model": "some-model",
    "hooks": {
        "PostToolUse": [{"matcher": "Write", "hooks": [{"type": "command", "command": "echo theirs"}]}],
        "PreToolUse": [{"matcher": "*", "hooks": [{"type": "command", "command": "lint --fix"}]}],
        "Notification": [],
    },
    "env": {"Ü": "ö", "N": 1.5},
}


def local() -> Path:
    return Path(".claude/settings.local.json")


def write(path: Path, value: object, indent: int | str = 4) -> str:
    path.parent.mkdir(exist_ok=True, parents=True)
    text = json.dumps(value, indent=indent, ensure_ascii=False) + "\n"
    path.write_text(text, encoding="utf-8")
    return text


def load(path: Path) -> dict[str, dict[str, list[dict[str, list[dict[str, object]]]]]]:
    found: dict[str, dict[str, list[dict[str, list[dict[str, object]]]]]] = json.loads(
        path.read_text("utf-8")
    )
    return found


def test_the_default_records_tool_events_without_making_the_agent_wait(home: Path) -> None:
    change = install_hooks()

    hooks = load(local())["hooks"]
    shim = home / "state" / "bartack" / "bin" / "bartack-hook.py"
    (group,) = hooks["PostToolUse"]
    assert change.changed
    assert dict[str, object](group)["matcher"] == "Write|Edit|MultiEdit|NotebookEdit"
    assert group["hooks"] == [
        {
            "type": "command",
            "command": shlex.join([sys.executable, "-I", "-S", str(shim), "PostToolUse"]),
            "timeout": 5,
            "async": True,
        }
    ]
    assert [hooks[event][0]["hooks"][0].get("async") for event in ("SessionStart", "Stop", "SessionEnd")] == [
        None
    ] * 3
    assert shim.exists()


@pytest.mark.requirement("install-touches-nothing-else")
@pytest.mark.parametrize("indent", [2, 4, "\t"])
def test_foreign_entries_order_and_indentation_are_kept(indent: int | str) -> None:
    write(local(), FOREIGN, indent)

    install_hooks()

    text = local().read_text("utf-8")
    found = json.loads(text)
    shown = indent if isinstance(indent, str) else " " * indent
    assert text.splitlines()[1].startswith(f'{shown}"model"')
    assert list(found) == list(FOREIGN)
    assert found["env"] == FOREIGN["env"]
    assert found["hooks"]["PostToolUse"][0] == {
        "matcher": "Write",
        "hooks": [{"type": "command", "command": "echo theirs"}],
    }
    assert found["hooks"]["PreToolUse"] == [
        {"matcher": "*", "hooks": [{"type": "command", "command": "lint --fix"}]}
    ]


@pytest.mark.requirement("install-touches-nothing-else")
def test_a_second_install_changes_no_byte() -> None:
    write(local(), FOREIGN)
    install_hooks()
    before = local().read_bytes()

    change = install_hooks()

    assert not change.changed
    assert local().read_bytes() == before


@pytest.mark.requirement("install-touches-nothing-else")
def test_what_others_add_after_our_entries_stays_there() -> None:
    install_hooks()
    value = load(local())
    value["hooks"]["PostToolUse"].append({"hooks": [{"type": "command", "command": "theirs"}]})
    text = write(local(), value, 2)

    assert not install_hooks().changed
    assert local().read_text("utf-8") == text


@pytest.mark.requirement("install-touches-nothing-else")
def test_uninstalling_restores_the_file(home: Path) -> None:
    text = write(local(), FOREIGN)

    install_hooks(mode="command")
    install_hooks(mode="async")
    uninstall_hooks()

    assert local().read_text("utf-8") == text
    assert Path(f"{local()}.bartack-backup").read_text("utf-8") == text


def test_a_file_that_was_not_there_is_gone_again() -> None:
    install_hooks()
    change = uninstall_hooks()

    assert change.changed
    assert not local().exists()
    assert not uninstall_hooks().changed


def test_another_mode_replaces_the_entries() -> None:
    install_hooks(mode="async")
    install_hooks(mode="command", events=("PostToolUse",))

    hooks = load(local())["hooks"]
    assert list(hooks) == ["PostToolUse"]
    assert "async" not in hooks["PostToolUse"][0]["hooks"][0]


@pytest.mark.parametrize(
    "text",
    ["{", "[]", "null", '{"hooks": []}', '{"hooks": {"Stop": {}}}', '{"hooks": {"Stop": [5]}}', '{"a": NaN}',
     '{"a": 1, "a": 2}', '{"hooks": {"Stop": [{"hooks": 5}]}}', "// comment\n{}", ""],
)  # fmt: skip
def test_what_is_not_understood_is_left_alone(text: str) -> None:
    local().parent.mkdir()
    local().write_text(text)

    with pytest.raises(SettingsError):
        install_hooks()
    with pytest.raises(SettingsError):
        uninstall_hooks()

    assert local().read_text() == text
    assert list(local().parent.iterdir()) == [local()]


def test_a_symbolic_link_and_the_mode_are_kept() -> None:
    real = Path("dotfiles.json").absolute()
    write(real, FOREIGN)
    real.chmod(0o640)
    local().parent.mkdir()
    local().symlink_to(real)

    install_hooks()

    assert local().is_symlink()
    assert "bartack-hook.py" in real.read_text("utf-8")
    assert stat.S_IMODE(real.stat().st_mode) == 0o640


@pytest.mark.requirement("starts-only-what-is-listed")
def test_a_link_out_of_the_project_is_followed_only_where_it_is_trusted(tmp_path: Path) -> None:
    real = tmp_path / "dotfiles.json"
    before = write(real, FOREIGN)
    local().parent.mkdir()
    local().symlink_to(real)

    with pytest.raises(SettingsError, match="symbolic link"):
        install_hooks()

    assert real.read_text("utf-8") == before
    assert not list(tmp_path.glob("*backup*"))

    add_trusted(".")
    install_hooks()

    assert "bartack-hook.py" in real.read_text("utf-8")


@pytest.mark.requirement("token-stays-private")
def test_http_hooks_carry_the_token_and_never_into_a_shared_file(home: Path) -> None:
    with pytest.raises(TokenScopeError):
        install_hooks(mode="http", scope="project")
    assert not Path(".claude").exists()

    install_hooks(mode="http")

    token = hook_token((home / "state" / "bartack" / "token").read_text().strip())
    hooks = load(local())["hooks"]
    assert hooks["PostToolUse"][0]["hooks"] == [
        {
            "type": "http",
            "url": "http://127.0.0.1:8054/hooks/v1/PostToolUse",
            "headers": {"Authorization": f"Bearer {token}"},
            "timeout": 5,
        }
    ]
    assert hooks["Stop"][0]["hooks"][0]["type"] == "command"
    assert stat.S_IMODE(local().stat().st_mode) == 0o600


def test_http_hooks_of_an_older_version_are_reported_and_replaced(home: Path) -> None:
    install_hooks(mode="http")
    assert hook_status()["problems"] == []
    token = (home / "state" / "bartack" / "token").read_text().strip()
    current = local().read_text()
    local().write_text(current.replace(hook_token(token), token))

    assert "carry your token itself" in str(hook_status()["problems"])

    install_hooks(mode="http")
    assert local().read_text() == current


def test_the_scopes_are_three_files(home: Path) -> None:
    for scope, path in {
        "user": home / ".claude" / "settings.json",
        "project": Path(".claude/settings.json"),
        "local": local(),
    }.items():
        install_hooks(scope=scope)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] - the three of them
        assert path.exists()


def test_a_dry_run_writes_nothing(home: Path) -> None:
    change = install_hooks(dry_run=True)

    assert "bartack-hook.py" in (change.after or "")
    assert not local().exists()
    assert not (home / "state").exists()


@pytest.mark.parametrize("python", ["/no/such/python", "/bin/false"])
def test_an_interpreter_that_does_not_answer_is_refused(python: str) -> None:
    with pytest.raises(ConfigError):
        install_hooks(python=python)

    assert not local().exists()


def test_an_impossible_event_is_refused() -> None:
    with pytest.raises(ConfigError):
        install_hooks(events=("Post Tool; rm",))


def test_paths_with_spaces_are_quoted(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(home / "a b'c"))
    install_hooks()

    command = str(load(local())["hooks"]["Stop"][0]["hooks"][0]["command"])
    assert shlex.split(command)[3] == str(home / "a b'c" / "bartack" / "bin" / "bartack-hook.py")


def test_the_status_reports_what_is_installed_and_what_is_wrong(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert hook_status()["state"] == "not installed"
    install_hooks()
    found = hook_status()
    assert (found["state"], found["problems"]) == ("working", [])

    shim = home / "state" / "bartack" / "bin" / "bartack-hook.py"
    shim.write_text("changed")
    assert "another version" in str(hook_status()["problems"])
    shim.unlink()
    assert "missing" in str(hook_status()["problems"])
    text = local().read_text().replace(sys.executable, "/gone/python")
    local().write_text(text)
    assert "/gone/python is gone" in str(hook_status()["problems"])
    monkeypatch.setenv("PATTERN_TRACKING_ENABLED", "false")
    assert "switched off" in str(hook_status()["problems"])
    assert hook_status()["state"] == "problems"


def test_switching_autostart_off_is_known_to_the_shim(home: Path) -> None:
    Path("bartack.toml").write_text("[daemon]\nautostart = false\n")
    install_hooks()
    assert (home / "state" / "bartack" / "autostart-off").exists()

    os.unlink("bartack.toml")
    install_hooks()
    assert not (home / "state" / "bartack" / "autostart-off").exists()
