"""The sandbox of real programs: what they see, where they can connect to, and that none is left."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from bartack.errors import AgentConfigError, AgentStartError
from bartack.testing import ClaudeSandbox, ModelServer, find_program
from bartack.testing.sandbox import _network
from bartack.testing.sandbox._environment import Folders, build_environment
from bartack.testing.sandbox._network import Network, remote_end

ASK = """
import json, sys, urllib.request
body = {"tools": [{"name": "x"}], "messages": [{"role": "user", "content": "[[script:hello]]"}]}
request = urllib.request.Request(sys.argv[1] + "/v1/messages", json.dumps(body).encode())
print(json.load(urllib.request.urlopen(request, timeout=20))["content"][0]["text"])
"""
SHOW = "import json, os; print(json.dumps(dict(os.environ)))"
CONNECT = """
import socket, sys
with socket.socket() as one:
    one.settimeout(2)
    print(one.connect_ex((sys.argv[1], int(sys.argv[2]))))
"""
STAY_CONNECTED = """
import socket, sys
with socket.create_connection(("127.0.0.1", int(sys.argv[1]))):
    print("there", flush=True)
    sys.stdin.read()
"""
STAY = "import signal, sys; print('ready', flush=True); signal.sigwait([signal.SIGTERM])"


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer({"hello": [{"text": "hi"}]}) as running:
        yield running


def python(*words: str) -> list[str]:
    return [sys.executable, "-I", "-c", *words]


@pytest.mark.requirement("sandbox-passes-nothing-on")
def test_the_environment_is_built_from_nothing(
    tmp_path: Path, server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CANARY", "of the parent")
    with ClaudeSandbox(tmp_path / "box", server, env={"ADDED": "1"}) as sandbox:
        seen = json.loads(sandbox.run(python(SHOW)).stdout)

    seen.pop("LC_CTYPE", None)  # Python's own
    assert seen == sandbox.environment
    assert (seen["ADDED"], seen["ANTHROPIC_BASE_URL"]) == ("1", server.url)
    assert "CANARY" not in seen


def test_the_folders_are_inside_and_private(tmp_path: Path, server: ModelServer) -> None:
    with ClaudeSandbox(tmp_path / "box", server) as sandbox:
        folders = [
            sandbox.environment[name] for name in ("HOME", "CLAUDE_CONFIG_DIR", "CODEX_HOME", "TMPDIR")
        ]
        modes = {Path(folder).stat().st_mode & 0o777 for folder in folders}
        config = sandbox.codex_home / "config.toml"

        assert all(Path(folder).is_relative_to(tmp_path / "box") for folder in folders)
        assert (modes, config.stat().st_mode & 0o777) == ({0o700}, 0o600)
        assert list(sandbox.home.iterdir()) == []


def test_codex_knows_the_model_server_only(tmp_path: Path, server: ModelServer) -> None:
    with ClaudeSandbox(tmp_path, server, codex_model="some-model") as sandbox:
        config = tomllib.loads((sandbox.codex_home / "config.toml").read_text(encoding="utf-8"))

    provider = config["model_providers"][config["model_provider"]]
    assert (provider["base_url"], provider["wire_api"]) == (f"{server.url}/v1", "responses")
    assert config["model"] == "some-model"
    assert config["features"] == {"plugins": False, "apps": False}
    assert config["analytics"] == {"enabled": False}


def test_a_login_takes_the_place_of_the_key_and_bypassing_has_to_be_asked_for(tmp_path: Path) -> None:
    plain = build_environment(Folders(tmp_path), "http://x", "m")
    other = build_environment(Folders(tmp_path), "http://x", "m", has_login=True, can_bypass=True)

    assert "ANTHROPIC_API_KEY" in plain
    assert "IS_SANDBOX" not in plain
    assert "ANTHROPIC_API_KEY" not in other
    assert other["CLAUDE_CODE_OAUTH_TOKEN"] == "test-not-a-key"  # noqa: S105 - not one
    assert other["IS_SANDBOX"] == "1"


@pytest.mark.parametrize("name", ["ANTHROPIC_API_KEY", "GITHUB_TOKEN", "MY_CREDENTIALS", "npm_config__auth"])
@pytest.mark.requirement("sandbox-passes-nothing-on")
def test_a_credential_is_refused(tmp_path: Path, server: ModelServer, name: str) -> None:
    with pytest.raises(AgentConfigError, match=name) as caught:
        ClaudeSandbox(tmp_path, server, env={name: "sk-1"})

    assert "sk-1" not in str(caught.value)
    sandbox = ClaudeSandbox(tmp_path, server, env={name: "test-not-a-token"})
    with pytest.raises(AgentConfigError, match=name):
        sandbox.start(["true"], env={name: "sk-1"})


@pytest.mark.parametrize("network", ["own", "watched", "shared"])
def test_programs_reach_the_model_server(tmp_path: Path, server: ModelServer, network: Network) -> None:
    with ClaudeSandbox(tmp_path, server, network=network) as sandbox:
        assert sandbox.run(python(ASK, server.url)).stdout == "hi\n"

    assert [request.script for request in server.requests] == ["hello"]


@pytest.mark.requirement("sandbox-has-no-network")
def test_programs_in_a_network_of_their_own_reach_nothing_else(tmp_path: Path, server: ModelServer) -> None:
    with ClaudeSandbox(tmp_path, server) as sandbox, ModelServer({}) as other:
        if not sandbox.is_alone:
            pytest.skip("this system does not allow a network namespace")
        found = [
            sandbox.run(python(CONNECT, *end)).stdout.strip()
            for end in (("127.0.0.1", str(other.port)), ("192.0.2.1", "80"), ("127.0.0.1", str(server.port)))
        ]

    assert found == ["111", "101", "0"]  # refused, unreachable, connected


def test_a_connection_that_leaves_the_machine_is_seen() -> None:
    line = "1: 0100007F:9C40 {}:0050 {} 00000000:00000000 00:00000000 00000000  0  0 {} 1 0 20 4 30 10 -1"

    assert remote_end(line.format("010200C0", "02", "77"), {"77"}) == "010200C0:0050"
    assert remote_end(line.format("010200C0", "02", "78"), {"77"}) == "", "of another process"
    assert remote_end(line.format("0100007F", "01", "77"), {"77"}) == "", "the loopback interface"
    assert remote_end(line.format("010200C0", "0A", "77"), {"77"}) == "", "it listens"
    assert remote_end(line.format("0000000000000000FFFF00000100007F", "01", "77"), {"77"}) == ""
    assert remote_end(line.format("0000000000000000FFFF0000010200C0", "01", "77"), {"77"}) != ""


def leave_a_process(sandbox: ClaudeSandbox) -> subprocess.Popen[str]:
    """A program that ends and leaves another one, in a session of its own, that is ready."""
    code = "import subprocess, sys; subprocess.Popen(sys.argv[1:], start_new_session=True)"
    process = sandbox.start(python(code, *python(STAY)))
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


@pytest.mark.requirement("sandbox-leaves-nothing")
def test_a_process_that_is_left_fails_the_test_and_is_ended(tmp_path: Path, server: ModelServer) -> None:
    sandbox = ClaudeSandbox(tmp_path, server)
    started: list[subprocess.Popen[str]] = []
    with pytest.raises(AssertionError, match=r"left running: .*sigwait"), sandbox:
        started.append(leave_a_process(sandbox))

    assert started[0].communicate(timeout=30) == ("", "")
    assert sandbox.processes() == []


def test_a_process_that_ends_in_time_is_waited_for(tmp_path: Path, server: ModelServer) -> None:
    with ClaudeSandbox(tmp_path, server) as sandbox:
        process = sandbox.start(["sleep", "0.3"])
        assert [facts.pid for facts in sandbox.processes()] == [process.pid]
    process.communicate()

    assert process.returncode == 0


def test_a_program_that_does_not_end_is_ended_and_shown(tmp_path: Path, server: ModelServer) -> None:
    with ClaudeSandbox(tmp_path, server) as sandbox:
        with pytest.raises(TimeoutError, match="ready"):
            sandbox.run(python(STAY), timeout_s=1)
        assert sandbox.processes() == []


def test_a_program_is_found_by_its_variable(tmp_path: Path) -> None:
    program = tmp_path / "claude"
    program.touch()

    assert find_program("claude", {"BARTACK_TEST_CLAUDE": str(program)}) == [str(program)]
    with pytest.raises(AgentStartError, match="BARTACK_TEST_CODEX names") as caught:
        find_program("codex", {"BARTACK_TEST_CODEX": str(tmp_path / "missing")})
    assert "pip install --no-deps openai-codex-cli-bin" in caught.value.remedy


def test_a_program_of_javascript_is_started_by_node(tmp_path: Path) -> None:
    program = tmp_path / "index.js"
    program.touch()
    try:
        node, script = find_program("acp", {"BARTACK_TEST_ACP": str(program)})
    except AgentStartError as error:
        pytest.skip(str(error))

    assert script == str(program)
    assert os.access(node, os.X_OK)


def test_a_missing_program_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.setattr(sys, "prefix", str(tmp_path))

    with pytest.raises(AgentStartError, match="it is not installed") as caught:
        find_program("claude", {})
    assert "claude-agent-sdk" in caught.value.remedy
    with pytest.raises(AgentStartError, match="it is not installed"):
        find_program("acp", {})


def test_nothing_holds_the_network_after_the_exit(tmp_path: Path, server: ModelServer) -> None:
    with ClaudeSandbox(tmp_path, server):
        pass

    listed = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    assert [
        line
        for line in listed.splitlines()
        if "_lone_network.py" in line and line.endswith(f" {server.port}")
    ] == []


def test_a_watched_connection_to_elsewhere_fails_the_test(
    tmp_path: Path, server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_network, "_LOOPBACK_4", "none")  # so that the model server counts as elsewhere
    sandbox = ClaudeSandbox(tmp_path, server, network="watched")
    with pytest.raises(AssertionError, match=f"connected to 0100007F:{server.port:04X}"), sandbox:
        connect_until_seen(sandbox, python(STAY_CONNECTED, str(server.port)))


def connect_until_seen(sandbox: ClaudeSandbox, words: list[str]) -> None:
    """Keep a program alive until the watch has seen its connection."""
    process = sandbox.start(words)
    assert process.stdout is not None
    assert process.stdout.readline() == "there\n"
    watch = sandbox._isolation
    assert isinstance(watch, _network.ConnectionWatch)
    assert watch.seen.wait(30)
    process.communicate(timeout=30)
