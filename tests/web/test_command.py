"""``bartack web`` on the command line: its settings, and which of them counts."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from tests.waiting import PATIENCE_S
from tests.web.servers import WebServer

from bartack.cli.look._web import has_display, make_request
from bartack.config.load import load_web_config
from bartack.config.sections import WebConfig
from bartack.errors import ConfigError
from bartack.web._server import make_site


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port: int = taken.getsockname()[1]
        return port


def test_the_settings_say_where_the_server_is_what_it_shows_and_that_no_browser_is_opened(
    workspace: Path, tmp_path: Path
) -> None:
    for name in ("beside", "elsewhere"):
        (tmp_path / name).mkdir()
    port, started = free_port(), tmp_path / "started"
    browser = tmp_path / "browser"
    browser.write_text(f"#!/bin/sh\ntouch {started}\n", encoding="utf-8")
    browser.chmod(0o755)
    lines = [
        f"port = {port}",
        "open = false",
        "read_only = true",
        f'workspaces = ["../beside", "{tmp_path}/elsewhere"]',
    ]
    (workspace / "bartack.toml").write_text("\n".join(["[web]", *lines, ""]), encoding="utf-8")
    command = [sys.executable, "-m", "bartack", "web", "--json"]
    environ = {**os.environ, "BROWSER": str(browser)}
    with subprocess.Popen(command, cwd=workspace, env=environ, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        facts = json.loads(server.stdout.readline())
        server.terminate()
        server.communicate(timeout=PATIENCE_S)

    assert facts["url"].startswith(f"http://bartack.localhost:{port}/enter#")
    assert facts["read_only"] is True
    assert not started.exists()
    request = make_request(load_web_config(workspace), (str(workspace),))
    assert make_site(request, port).workspaces == [workspace, tmp_path / "beside", tmp_path / "elsewhere"]


def test_the_memory_for_histories_is_that_of_the_settings(workspace: Path) -> None:
    (workspace / "bartack.toml").write_text("[web]\ncache_mb = 7\n", encoding="utf-8")
    request = make_request(load_web_config(workspace), (str(workspace),))

    assert request.cache_mb == 7


def test_the_users_own_settings_count_where_those_of_the_project_are_silent(
    workspace: Path, own_home: Path
) -> None:
    own_home.mkdir(parents=True)
    (own_home / "bartack.toml").write_text("[web]\nport = 9000\nread_only = true\n", encoding="utf-8")
    (workspace / "bartack.toml").write_text("[web]\nport = 9001\n", encoding="utf-8")

    assert load_web_config(workspace) == WebConfig(port=9001, read_only=True)


@pytest.mark.parametrize("text", ["[budget]\nusd = -1\n", "[nonsense]\n", "this is not TOML"])
def test_runs_can_be_looked_at_whatever_else_is_wrong_with_the_settings(workspace: Path, text: str) -> None:
    (workspace / "bartack.toml").write_text(text, encoding="utf-8")

    assert load_web_config(workspace) == WebConfig()


@pytest.mark.parametrize(
    "line", ["port = 70000", "port = true", "prot = 1", "cache_mb = 0", "workspaces = [1]"]
)
def test_a_setting_of_the_server_that_is_wrong_is_reported(workspace: Path, line: str) -> None:
    (workspace / "bartack.toml").write_text(f"[web]\n{line}\n", encoding="utf-8")

    with pytest.raises(ConfigError, match=f"web.{line.partition(' ')[0]}"):
        load_web_config(workspace)


def test_the_command_line_comes_first() -> None:
    settings = WebConfig(port=9000)

    assert make_request(settings, (".",), port=0).port == 0
    assert make_request(settings, (".",), read_only=True).is_read_only
    assert make_request(WebConfig(read_only=True), (".",)).is_read_only


@pytest.mark.requirement("web-opens-a-browser")
@pytest.mark.skipif(sys.platform != "linux", reason="displays have other names elsewhere")
def test_without_a_display_no_browser_is_opened() -> None:
    assert not has_display({"DISPLAY": "", "SSH_CONNECTION": "a b"})
    assert has_display({"DISPLAY": ":0"})
    assert has_display({"WAYLAND_DISPLAY": "wayland-0"})
    assert has_display({"BROWSER": "firefox"})


def test_a_port_that_is_taken_is_an_error_with_its_code(workspace: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        command = [sys.executable, "-m", "bartack", "web", "--no-open", "--port", port]
        done = subprocess.run(
            command, cwd=workspace, capture_output=True, text=True, check=False, timeout=PATIENCE_S
        )

    assert done.returncode == 5
    assert f"error[BT1020]: cannot serve pages on port {port}" in done.stderr


def test_a_name_of_another_machine_is_an_error_with_its_code(workspace: Path) -> None:
    command = [sys.executable, "-m", "bartack", "web", "--no-open", "--name", "192.168.1.1"]
    done = subprocess.run(
        command, cwd=workspace, capture_output=True, text=True, check=False, timeout=PATIENCE_S
    )

    assert done.returncode == 2
    assert "error[BT707]: 192.168.1.1 is not a loopback address" in done.stderr


def test_several_workspaces_are_shown(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    with WebServer(tmp_path, "-C", "one", "-C", str(tmp_path / "two")) as server:
        server.enter()
        page = server.ask("GET", "/").body.decode()

    assert str(tmp_path / "one") in page
    assert str(tmp_path / "two") in page
