"""The server as a process: where it listens, how it ends, who reaches it, one for each user."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.waiting import PATIENCE_S, until
from tests.web.servers import WebServer

from bartack import Run
from bartack.errors import UnsafeBindError, WebPortError
from bartack.resilience.loopback import open_listener
from bartack.runtime.rundir.layout import RunDir
from bartack.web import WebRequest
from bartack.web._server import check_name, open_listeners

linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux says which process has a connection")

LATE_S = 5.0
"""The server ends within a second; on a busy machine everything takes longer. What it does not wait for would take for ever."""

ATTACK = """
import json, os, sys, http.client, ctypes

port, host, cookie, csrf, run, how = sys.argv[1:]
if how == "hidden":
    ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)  # others cannot see what it has open
elif how == "daemon":
    reading, writing = os.pipe()
    if os.fork():
        os.close(writing)
        os.read(reading, 1)  # until the one below has ended
        sys.exit()
    os.close(reading)
    os.setsid()
    if os.fork():
        os._exit(0)

def ask(path, body):
    connection = http.client.HTTPConnection("127.0.0.1", int(port))
    headers = {"Host": host, "Origin": f"http://{host}", "Cookie": f"__Host-bartack={cookie}",
               "X-CSRF-Token": csrf, "Content-Type": "application/json"}
    connection.request("POST", path, json.dumps(body), headers)
    answer = connection.getresponse()
    return answer.status, answer.read().decode()

print(json.dumps([ask(f"/api/v1/runs/{run}/answer", {"question": "q1", "value": True}),
                  ask("/enter", {"code": "x"}), ask("/leave", {})]), flush=True)
"""

INSIDE = """
import sys
from bartack import Context, worker

@worker
async def main(ctx: Context, *words: str) -> str:
    said = await ctx.shell(*words, check=False)
    return said.stdout + said.stderr
"""


def bartack(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "bartack", *words]
    return subprocess.run(
        command,
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


# Where it listens.


@pytest.mark.requirement("web-is-local")
@pytest.mark.parametrize(
    "name",
    [
        "0.0.0.0",  # noqa: S104 - it is refused
        "192.168.1.1",
        "::",
        "example.com",
        "localhost.example.com",
        "bartack.local",
        "",
        ".localhost",
        "a b.localhost",
        "ä.localhost",
        "A.localhost",
        "a..localhost",
        "x/.localhost",
        "a:1.localhost",
    ],
)
def test_a_name_that_may_lead_elsewhere_is_refused(name: str) -> None:
    with pytest.raises(UnsafeBindError):
        check_name(name)


@pytest.mark.parametrize(
    "name", ["bartack.localhost", "my-runs.localhost", "127.0.0.1", "localhost", "[::1]"]
)
def test_names_of_this_machine_can_be_used(name: str) -> None:
    check_name(name)


@pytest.mark.requirement("web-is-local")
def test_it_listens_on_the_loopback_interface_and_on_nothing_else() -> None:
    listeners = open_listeners(0)
    addresses = [listener.getsockname()[:2] for listener in listeners]
    for listener in listeners:
        listener.close()

    assert {host for host, _ in addresses} <= {"127.0.0.1", "::1"}
    assert len({port for _, port in addresses}) == 1


@pytest.mark.requirement("web-is-local")
@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_a_port_that_another_program_has_under_one_of_the_addresses_is_refused(host: str) -> None:
    """A browser may use either address for the name, and would show the other program's pages as ours."""
    try:
        taken = open_listener(host, 0)
    except Exception:  # noqa: BLE001 - this machine has no IPv6
        pytest.skip("this machine has no such address")
    with taken, pytest.raises(WebPortError, match="cannot serve pages on port"):
        open_listeners(taken.getsockname()[1])


@pytest.mark.requirement("web-shared-names-are-read-only")
def test_a_name_that_other_servers_have_is_read_only_unless_actions_are_allowed() -> None:
    for name in ("127.0.0.1", "localhost", "[::1]"):
        assert WebRequest(workspaces=(), name=name).is_read_only
        assert not WebRequest(workspaces=(), name=name, allow_actions=True).is_read_only
        assert WebRequest(workspaces=(), name=name, allow_actions=True, read_only=True).is_read_only
    assert not WebRequest(workspaces=(), name="my-runs.localhost").is_read_only


# How it ends.


@pytest.mark.requirement("web-ends-at-once")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_within_a_second_also_while_connections_are_open(
    workspace: Path, own_home: Path, number: int
) -> None:
    with WebServer(workspace) as server:
        assert server.enter().status == 200
        idle = socket.create_connection(("127.0.0.1", server.port))
        silent = socket.socket(socket.AF_UNIX)
        silent.connect(os.path.realpath(own_home / "web.sock"))
        waiting = socket.create_connection(("127.0.0.1", server.port))
        head = f"POST /leave HTTP/1.1\r\nHost: {server.host}\r\nOrigin: {server.origin}\r\n"
        head += f"Cookie: __Host-bartack={server.cookie}\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n"
        waiting.sendall(head.encode())
        began = time.monotonic()
        code, written = server.stop(number)
        took = time.monotonic() - began
        for connection in (idle, waiting, silent):
            connection.close()

    assert code == 0
    assert took < LATE_S
    assert "Traceback" not in written


@pytest.mark.requirement("web-answers-to-its-name")
@pytest.mark.parametrize("host", ["", "Host:\r\n", "Host: 127.0.0.1\r\n"], ids=["none", "empty", "address"])
def test_a_request_of_an_old_client_that_names_no_host_gets_nothing(workspace: Path, host: str) -> None:
    with WebServer(workspace) as server:
        assert server.enter().status == 200
        with socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE_S) as connection:
            cookie = f"Cookie: __Host-bartack={server.cookie}\r\n"
            connection.sendall(f"GET /runs HTTP/1.0\r\n{host}{cookie}\r\n".encode())
            answer = b"".join(iter(lambda: connection.recv(65536), b""))

    assert int(answer.split()[1]) in {400, 403}
    assert b"There are no runs yet" not in answer


@pytest.mark.requirement("web-one-server-per-user")
def test_a_second_command_adds_its_workspace_and_prints_a_link_into_the_first_server(
    workspace: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    with WebServer(workspace) as server:
        assert server.enter().json() == {"to": "/"}
        assert str(other) not in server.ask("GET", "/").body.decode()
        second = bartack("web", "--port", "0", "--no-open", "--json", cwd=other)
        facts = json.loads(second.stdout)
        assert (second.returncode, facts["pid"]) == (0, server.process.pid)
        assert facts["url"].startswith(f"{server.origin}/enter#")
        page = server.ask("GET", "/").body.decode()
        assert str(other) in page
        assert str(workspace) in page
        assert server.enter(facts["url"].partition("#")[2]).status == 200
        link = bartack("web", "link", cwd=tmp_path).stdout.strip()
        assert server.enter(link.partition("#")[2]).status == 200
        stopped = bartack("web", "stop", cwd=tmp_path)
        assert stopped.stdout == "stopped\n"
        assert server.process.wait(PATIENCE_S) == 0
    assert bartack("web", "stop", cwd=tmp_path).stdout == "the server was not running\n"
    assert bartack("web", "link", cwd=tmp_path).returncode == 9


@pytest.mark.requirement("web-one-server-per-user")
def test_a_killed_server_does_not_keep_the_next_one_from_starting(workspace: Path) -> None:
    with WebServer(workspace) as server:
        server.process.kill()
        server.process.wait()
        with WebServer(workspace) as following:
            assert following.enter().status == 200


def test_a_link_leads_to_the_run_that_was_named(workspace: Path, asking: Run) -> None:
    with WebServer(workspace, asking.id[:-2]) as server:
        assert server.enter().json() == {"to": f"/r/{asking.id}"}


@pytest.mark.requirement("web-socket-is-private")
def test_the_socket_is_for_this_user_only_and_no_file_has_a_link_or_a_cookie(
    workspace: Path, own_home: Path
) -> None:
    with WebServer(workspace) as server:
        server.enter()
        mode = os.stat(own_home / "web.sock").st_mode & 0o777
        folder = os.stat(own_home).st_mode & 0o777
        files = [path for path in own_home.rglob("*") if path.is_file()]
        assert (mode, folder) == (0o600, 0o700)
        assert not any(
            secret.encode() in path.read_bytes() for path in files for secret in (server.code, server.cookie)
        )


# Processes of runs.


@linux
@pytest.mark.requirement("web-actions-come-from-outside")
@pytest.mark.parametrize("how", ["plain", "hidden", "daemon"])
def test_a_process_of_a_run_cannot_act_with_a_stolen_cookie(workspace: Path, asking: Run, how: str) -> None:
    (workspace / "attack.py").write_text(ATTACK, encoding="utf-8")
    (workspace / "inside.py").write_text(INSIDE, encoding="utf-8")
    with WebServer(workspace) as server:
        server.enter()
        stolen = [str(server.port), server.host, server.cookie, server.csrf, asking.id, how]
        run = Run.start(workspace / "inside.py", sys.executable, "attack.py", *stolen, workspace=workspace)
        assert run.wait(PATIENCE_S).status == "completed"
        answers = json.loads(str(run.result()))
        assert [status for status, _ in answers] == [403, 403, 403]
        assert "BT328" in answers[0][1]
        assert asking.state().status == "waiting"

        # The same from outside is what the person does.
        csrf = {"X-CSRF-Token": server.csrf}
        done = server.ask("POST", f"/api/v1/runs/{asking.id}/answer", {"question": "q1", "value": True}, csrf)
        assert done.status == 200
    assert asking.wait(PATIENCE_S).status == "completed"


@linux
@pytest.mark.requirement("web-socket-is-private")
@pytest.mark.parametrize("words", [("link",), ("stop",), ("--no-open", "--port", "0")])
def test_a_process_of_a_run_gets_no_link_and_cannot_stop_or_be_the_server(
    workspace: Path, words: tuple[str, ...]
) -> None:
    (workspace / "inside.py").write_text(INSIDE, encoding="utf-8")
    with WebServer(workspace) as server:
        command = [sys.executable, "-m", "bartack", "web", *words]
        run = Run.start(workspace / "inside.py", *command, workspace=workspace)
        run.wait(PATIENCE_S)
        assert "BT328" in str(run.result())
        assert server.enter().status == 200
    if "--port" in words:
        alone = Run.start(workspace / "inside.py", *command, workspace=workspace)
        alone.wait(PATIENCE_S)
        assert "BT328" in str(alone.result())


@pytest.mark.requirement("web-runs-outlive-it")
def test_a_run_that_was_resumed_outlives_the_server(workspace: Path, asking: Run) -> None:
    asking.interrupt()
    asking.wait(PATIENCE_S)
    with WebServer(workspace) as server:
        server.enter()
        csrf = {"X-CSRF-Token": server.csrf}
        assert server.ask("POST", f"/api/v1/runs/{asking.id}/resume", {}, csrf).status == 200
        server.process.kill()
        server.process.wait()
    run = RunDir(asking.dir)
    until(lambda: asking.state().status == "waiting", "the run waits again", asking.dir)

    assert run.is_active()
    asking.answer("q1", True)
    assert asking.wait(PATIENCE_S).status == "completed"


# The command.


@pytest.mark.requirement("web-opens-a-browser")
def test_a_browser_is_opened_where_one_can_be_shown(workspace: Path, tmp_path: Path) -> None:
    shown = tmp_path / "shown"
    shown.mkdir()
    browser = tmp_path / "browser"
    browser.write_text(
        f'#!/bin/sh\nprintf %s "$1" > {shown}/part && mv {shown}/part {shown}/url\n', encoding="utf-8"
    )
    browser.chmod(0o755)
    command = [sys.executable, "-m", "bartack", "web", "--port", "0"]
    environ = {**os.environ, "BROWSER": str(browser)}
    with subprocess.Popen(command, cwd=workspace, env=environ, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        link = server.stdout.readline().strip()
        until((shown / "url").exists, "the browser is started", shown)
        server.terminate()

    assert (shown / "url").read_text(encoding="utf-8") == link
