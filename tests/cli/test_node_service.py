"""``bartack node install`` and ``uninstall``, with programs for systemctl and loginctl that note how they are called."""

from __future__ import annotations

import json
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from bartack.node._service import MARK

Result = subprocess.CompletedProcess[str]
Call = Callable[..., Result]

pytestmark = pytest.mark.skipif(
    sys.platform == "darwin", reason="NOT CHECKED: the commands are those of systemd"
)


class System:
    """The system of a user: its unit, and what was called."""

    def __init__(self, place: Path) -> None:
        self.unit = place / "config/systemd/user/bartack-node.service"
        self.programs = place / "bin"
        self.notes = place / "called"
        self.active = place / "active"
        self.programs.mkdir()
        for name in ("systemctl", "loginctl"):
            self.answer(name, 0)

    def answer(self, name: str, code: int, word: str = "") -> None:
        """How a program answers: with this code, if it is called with this word."""
        fails = f'case "$*" in *{word}*) echo "it failed" >&2; exit {code};; esac' if code else ""
        program = self.programs / name
        active = f'case "$*" in *is-active*) test -e "{self.active}"; exit $?;; esac'
        program.write_text(f'#!/bin/sh\necho "{name} $*" >> "{self.notes}"\n{active}\n{fails}\n')
        program.chmod(0o755)

    def called(self) -> list[str]:
        lines = self.notes.read_text().splitlines() if self.notes.exists() else []
        return [line for line in lines if "show-environment" not in line and "is-active" not in line]


@pytest.fixture
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> System:
    made = System(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("PATH", f"{made.programs}:/usr/bin:/bin")
    monkeypatch.setenv("API_TOKEN", "hunter2")
    return made


@pytest.mark.requirement("service-is-installed")
def test_install_shows_and_writes_the_unit_and_starts_it(call: Call, system: System) -> None:
    done = call("node", "install", "--yes")

    assert done.returncode == 0, done.stderr
    text = system.unit.read_text()
    assert text.startswith(MARK)
    assert f"{sys.executable} -P -s -m bartack node run" in text
    assert "hunter2" not in text
    assert stat.S_IMODE(system.unit.stat().st_mode) == 0o644
    assert "ExecStart=" in done.stderr
    assert "--linger" in done.stderr
    assert system.called() == [
        "systemctl --user daemon-reload",
        "systemctl --user enable --now bartack-node.service",
    ]
    assert "installed as a service" in call("node", "status").stdout
    assert json.loads(call("node", "status", "--json").stdout)["service"] == str(system.unit)


def test_install_shows_the_difference_to_an_earlier_unit(call: Call, system: System) -> None:
    system.unit.parent.mkdir(parents=True)
    system.unit.write_text(f"{MARK}\n[Service]\nExecStart=/old/python\n")

    changed = call("node", "install", "--yes")
    again = call("node", "install", "--yes")

    assert "-ExecStart=/old/python" in changed.stderr
    assert "+WantedBy=default.target" in changed.stderr
    assert "/old/python" not in system.unit.read_text()
    assert "is up to date" in again.stderr


def test_install_asks_and_writes_nothing_without_a_terminal(
    call: Call, system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open("/dev/null") as nothing:
        monkeypatch.setattr(sys, "stdin", nothing)
        done = call("node", "install")

    assert done.returncode == 2
    assert "ExecStart=" in done.stderr
    assert "--yes installs without asking" in done.stderr
    assert not system.unit.exists()
    assert system.called() == []


@pytest.mark.requirement("service-file-is-ours")
@pytest.mark.parametrize("command", [("install", "--yes"), ("uninstall",)])
def test_a_unit_of_another_origin_is_left_alone(call: Call, system: System, command: tuple[str, ...]) -> None:
    system.unit.parent.mkdir(parents=True)
    system.unit.write_text("[Service]\nExecStart=/bin/true\n")

    done = call("node", *command)

    assert done.returncode == 1
    assert "BT379" in done.stderr
    assert system.unit.read_text() == "[Service]\nExecStart=/bin/true\n"
    assert system.called() == []
    assert json.loads(call("node", "status", "--json").stdout)["service"] is None


@pytest.mark.requirement("service-is-installed")
def test_without_a_systemd_of_the_user_the_commands_are_printed(call: Call, system: System) -> None:
    system.answer("systemctl", 1)

    done = call("node", "install", "--yes", "--linger")

    assert done.returncode == 0
    assert system.unit.exists()
    assert "systemctl --user enable --now bartack-node.service" in done.stderr
    assert "loginctl enable-linger" in done.stderr
    assert system.called() == []


def test_without_systemctl_at_all_the_commands_are_printed_too(
    call: Call, system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")

    done = call("node", "install", "--yes")

    assert done.returncode == 0
    assert "systemctl --user daemon-reload" in done.stderr


def test_linger_is_asked_of_the_system(call: Call, system: System) -> None:
    assert call("node", "install", "--yes", "--linger").returncode == 0

    assert system.called()[-1] == "loginctl enable-linger"


def test_a_command_of_the_system_that_fails_is_an_error_with_its_words(call: Call, system: System) -> None:
    system.answer("systemctl", 5, "enable")

    done = call("node", "install", "--yes")

    assert done.returncode == 1
    assert "systemctl --user enable --now bartack-node.service: it failed" in done.stderr


def test_a_service_that_is_running_is_left_alone_unless_its_unit_changes(call: Call, system: System) -> None:
    call("node", "install", "--yes")
    system.active.touch()
    system.notes.unlink()

    assert "the service is running already" in call("node", "install", "--yes").stderr
    assert system.called() == []
    system.unit.write_text(f"{MARK}\n")
    assert call("node", "install", "--yes").returncode == 0
    assert system.called() == [
        "systemctl --user disable --now bartack-node.service",
        "systemctl --user daemon-reload",
        "systemctl --user enable --now bartack-node.service",
    ]


@pytest.mark.requirement("service-file-is-ours")
def test_uninstall_stops_disables_and_removes_the_unit(call: Call, system: System) -> None:
    call("node", "install", "--yes")
    system.notes.unlink()

    done = call("node", "uninstall")

    assert done.returncode == 0
    assert not system.unit.exists()
    assert system.called() == [
        "systemctl --user disable --now bartack-node.service",
        "systemctl --user daemon-reload",
    ]
    assert "not installed" in call("node", "uninstall").stderr
    assert "service" not in call("node", "status").stdout


def test_uninstall_without_a_systemd_removes_the_unit_and_the_link_to_it(call: Call, system: System) -> None:
    call("node", "install", "--yes")
    link = system.unit.parent / "default.target.wants/bartack-node.service"
    link.parent.mkdir()
    link.symlink_to(system.unit)
    system.answer("systemctl", 1)

    assert call("node", "uninstall").returncode == 0

    assert not system.unit.exists()
    assert not link.is_symlink()
