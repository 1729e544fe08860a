"""The daemon as a process of its own: its doors, what it does with events, how it comes and goes."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import cast

import httpx
import pytest
from tests.crash.warden import waited
from tests.unit.notices.receiver import answer, open_receiver

from bartack.config.notices import NoticesConfig
from bartack.core.user_home import user_home
from bartack.notices import Fact, Subject, list_notices, open_outbox, put_facts
from bartack.plugin.hooks import install_shim
from bartack.resilience import NewEvent, Outbox, StateStore
from bartack.resilience.link import DaemonLink
from bartack.resilience.spool import Header, Spool
from bartack.resilience.tokens import hook_token
from bartack.telemetry import Telemetry
from bartack.testing import CountingService
from bartack.tracking import stop_daemon
from bartack.tracking.daemon import _daemon as daemon_module
from bartack.tracking.daemon._daemon import take_lock
from bartack.tracking.daemon._notices import NoticeWorker

CODE = "def area(w, h):\n    return w * h\n"


def until(condition: Callable[[], bool], timeout_s: float = 60.0) -> bool:
    deadline, pause = time.monotonic() + timeout_s, threading.Event()
    while not condition():
        if time.monotonic() > deadline:
            return False
        pause.wait(0.01)
    return True


class Daemon:
    """A daemon that belongs to a test."""

    def __init__(self, service: CountingService, home: Path) -> None:
        self.home = home
        self.service = service
        self.link = DaemonLink(home)
        self.process: subprocess.Popen[bytes] | None = None
        home.mkdir(parents=True, exist_ok=True)
        self.configure()

    def configure(self, more: str = "") -> None:
        (self.home / "bartack.toml").write_text(
            f'[tracking]\nurl = "{self.service.url}"\n[daemon]\nhttp_port = 0\n[health]\ninterval = 0.2\n{more}'
        )

    def launch(self) -> None:
        command = [sys.executable, "-I", "-m", "bartack", "daemon", "run"]
        self.process = subprocess.Popen(command, cwd="/")

    def start(self) -> None:
        self.launch()
        assert until(self.link.is_running), self.log()

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        if self.process is not None:
            self.process.terminate()
            self.process.wait(60)

    def log(self) -> str:
        try:
            return (self.home / "daemon.log").read_text()
        except FileNotFoundError:
            return ""

    def send(self, event: str, body: bytes, cwd: str = "/") -> str:
        return self.link.send(Header(event, time.time_ns(), cwd), body, connect_s=60, answer_s=60)

    @property
    def url(self) -> str:
        http = self.link.facts()["http"]
        assert isinstance(http, dict)
        return f"http://127.0.0.1:{http['port']}"

    @property
    def token(self) -> str:
        return (self.home / "token").read_text().strip()

    def outbox(self, directory: Path | None = None) -> Outbox:
        return Outbox(StateStore(directory or self.home))


@pytest.fixture
def idle(service: CountingService) -> Iterator[Daemon]:
    """A daemon that is not started yet."""
    daemon = Daemon(service, user_home())
    yield daemon
    daemon.stop()


@pytest.fixture
def daemon(idle: Daemon) -> Daemon:
    idle.start()
    return idle


def written(path: str = "/p/area.py", code: str = CODE, call: str = "t1", tool: str = "Write") -> bytes:
    return json.dumps(
        {
            "session_id": "s1",
            "tool_name": tool,
            "tool_use_id": call,
            "tool_input": {"file_path": path, "content": code},
        }
    ).encode()


def test_a_written_file_becomes_a_pattern_at_the_service(daemon: Daemon) -> None:
    answer = daemon.send("PostToolUse", written())

    assert answer.startswith("ok hk_")
    assert daemon.service.wait_for(1)
    (body,) = daemon.service.bodies.values()
    assert (body["event_type"], body["pattern_name"], body["event_id"]) == (
        "pattern_created",
        "area",
        answer.removeprefix("ok "),
    )


def test_a_second_write_of_other_content_is_a_modification(daemon: Daemon) -> None:
    daemon.send("PostToolUse", written())
    daemon.send("PostToolUse", written(code=CODE.replace("*", "+"), call="t2"))

    assert daemon.service.wait_for(2)
    kinds = sorted(str(body["event_type"]) for body in daemon.service.bodies.values())
    assert kinds == ["pattern_created", "pattern_modified"]


def test_an_edit_is_read_from_the_answer_or_from_the_disk(daemon: Daemon, tmp_path: Path) -> None:
    path = tmp_path / "on_disk.py"
    path.write_text("def on_disk():\n    return 1\n")
    edit = {
        "session_id": "s1",
        "tool_name": "Edit",
        "tool_use_id": "e1",
        "tool_input": {"file_path": "/p/x.py", "old_string": "1", "new_string": "2"},
        "tool_response": {"originalFile": "def reported():\n    return 1\n"},
    }
    disk = {
        "session_id": "s1",
        "tool_name": "MultiEdit",
        "tool_use_id": "e2",
        "tool_input": {"file_path": str(path)},
    }

    daemon.send("PostToolUse", json.dumps(edit).encode())
    daemon.send("PostToolUse", json.dumps(disk).encode())

    assert daemon.service.wait_for(2)
    codes = [cast("dict[str, str]", body["pattern_data"])["code"] for body in daemon.service.bodies.values()]
    assert set(codes) == {
        "def reported():\n    return 2\n",
        "def on_disk():\n    return 1\n",
    }


def test_other_events_are_recorded_and_bad_ones_kept_dead(daemon: Daemon) -> None:
    daemon.send("PreToolUse", b'{"session_id":"s","tool_name":"Bash"}')
    daemon.send("PostToolUse", b"{not json")
    daemon.send("PostToolUse", b'{"a": "\xff"}')
    daemon.send("Stop", b"[1]")
    assert daemon.send("Stop", b"") == "ok empty"

    outbox = daemon.outbox()
    assert until(lambda: outbox.count("hook")["pending"] + outbox.count("hook")["leased"] == 0)
    assert outbox.count("hook") == {"pending": 0, "leased": 0, "delivered": 1, "dead": 3}
    assert {row.reason for row in outbox.rows(state="dead")} == {"unparsable"}
    assert any(b"{not json" in (row.payload or b"") for row in outbox.rows(state="dead"))
    assert outbox.counters()["empty_hooks"] == 1


def test_events_go_to_the_outbox_of_their_project(daemon: Daemon, tmp_path: Path) -> None:
    project = tmp_path / "project"
    (project / ".bartack").mkdir(parents=True)
    (project / "bartack.toml").write_text(f'[tracking]\nurl = "{daemon.service.url}"\n')

    daemon.send("PostToolUse", written(), cwd=str(project))

    assert daemon.service.wait_for(1)
    outbox = daemon.outbox(project / ".bartack")
    assert until(lambda: outbox.count()["delivered"] == 1)
    assert str(project / ".bartack") in str(daemon.link.facts()["outboxes"])


def test_a_ring_makes_the_daemon_drain_an_outbox(daemon: Daemon, tmp_path: Path) -> None:
    directory = tmp_path / "other"
    daemon.outbox(directory).put([NewEvent("e1", "pattern", daemon.service.url, b'{"pattern_id":"p"}')])

    assert until(lambda: daemon.link.notify(directory))

    assert daemon.service.wait_for(1)


@pytest.mark.requirement("http-door")
def test_the_http_door_answers_empty_when_the_event_is_durable(daemon: Daemon) -> None:
    headers = {"Authorization": f"Bearer {daemon.token}"}

    answer = httpx.post(f"{daemon.url}/hooks/v1/PostToolUse", content=written(), headers=headers)
    daemon.kill()

    assert (answer.status_code, answer.content) == (200, b"")
    assert daemon.outbox().known([answer.headers["X-Bartack-Event"]])


KNOCKS: tuple[tuple[dict[str, str], int], ...] = (
    ({}, 401),
    ({"Authorization": "Bearer wrong"}, 401),
    ({"Authorization": "Basic {token}"}, 401),
    ({"Authorization": "Bearer {token}", "Origin": "http://evil.example"}, 403),
    ({"Authorization": "Bearer {token}", "Host": "evil.example"}, 403),
    ({"Authorization": "Bearer {token}", "Host": "127.0.0.1.evil.example:80"}, 403),
    ({"Authorization": "Bearer {token}"}, 200),
    ({"Authorization": "Bearer {hooks}"}, 200),
)


@pytest.mark.requirement("http-door")
def test_the_http_door_is_for_those_who_know_the_token(daemon: Daemon) -> None:
    tokens = {"token": daemon.token, "hooks": hook_token(daemon.token)}
    for number, (headers, status) in enumerate(KNOCKS):
        filled = {name: value.format_map(tokens) for name, value in headers.items()}
        body = json.dumps({"n": number}).encode()
        before = daemon.outbox().count()["pending"]

        answer = httpx.post(f"{daemon.url}/hooks/v1/Stop", content=body, headers=filled)

        assert answer.status_code == status, headers
        if status != 200:
            assert answer.json()["error"]["code"], headers
            assert daemon.outbox().count()["pending"] == before == 0, headers


@pytest.mark.requirement("http-door")
def test_the_http_door_has_limits_and_says_what_is_not_there(daemon: Daemon) -> None:
    headers = {"Authorization": f"Bearer {daemon.token}"}
    with httpx.Client(base_url=daemon.url, headers=headers, timeout=120) as client:
        limit = 16 * 1024 * 1024
        assert client.post("/hooks/v1/Stop", content=b"x" * (limit + 1)).status_code == 413
        assert client.post("/hooks/v1/Stop", content=iter([b"x" * limit, b"x"])).status_code == 413
        assert client.get("/hooks/v1/Stop").status_code == 405
        assert client.post("/elsewhere").status_code == 404
        assert client.get("/health", headers={"Authorization": ""}).json()["status"] == "healthy"


@pytest.mark.requirement("loopback-only")
def test_the_doors_are_closed_to_other_machines_and_users(daemon: Daemon) -> None:
    port = int(daemon.url.rpartition(":")[2])
    listening = [line.split()[1] for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]

    assert [one.split(":")[0] for one in listening if int(one.split(":")[1], 16) == port] == ["0100007F"]
    assert os.stat(daemon.link.socket_path).st_mode & 0o777 == 0o600
    assert os.stat(daemon.home).st_mode & 0o077 == 0 or os.stat(daemon.home / "token").st_mode & 0o077 == 0


def test_a_frame_that_is_too_large_is_refused(daemon: Daemon) -> None:
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(daemon.link.socket_path))
        client.settimeout(60)
        client.sendall((17 * 1024 * 1024).to_bytes(4, "big"))

        assert client.recv(100) == b"error too_large\n"


def test_several_frames_go_over_one_connection(daemon: Daemon) -> None:
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(daemon.link.socket_path))
        client.settimeout(60)
        for event in ("ping", "ping"):
            frame = Header(event, 1, "/").encode() + b"\n"
            client.sendall(len(frame).to_bytes(4, "big") + frame)
            assert client.recv(100) == b"ok pong\n"
        client.sendall((7).to_bytes(4, "big") + b"garbage")
        assert client.recv(100) == b"error malformed\n"


@pytest.mark.requirement("same-event-once")
def test_the_same_event_by_shim_http_and_transcript_is_one_row(daemon: Daemon, tmp_path: Path) -> None:
    transcript = tmp_path / "transcript.jsonl"
    line = {
        "sessionId": "s1",
        "cwd": "/p",
        "message": {
            "content": [
                {
                    "type": "tool_use",
                    "id": "t1",
                    "name": "Write",
                    "input": {"file_path": "/p/area.py", "content": CODE},
                }
            ]
        },
    }
    result = {"sessionId": "s1", "message": {"content": [{"type": "tool_result", "tool_use_id": "t1"}]}}
    unseen = json.loads(json.dumps(line).replace("t1", "t2").replace("area", "other"))
    unseen_result = json.loads(json.dumps(result).replace("t1", "t2"))
    transcript.write_text("".join(json.dumps(one) + "\n" for one in (line, result, unseen, unseen_result)))
    Spool(daemon.home).put(Header("PostToolUse", 1, "/p"), written())

    daemon.send("PostToolUse", written())
    httpx.post(
        f"{daemon.url}/hooks/v1/PostToolUse",
        content=written(),
        headers={"Authorization": f"Bearer {daemon.token}"},
    )
    for _ in range(2):
        daemon.send("Stop", json.dumps({"session_id": "s1", "transcript_path": str(transcript)}).encode())

    assert daemon.service.wait_for(2)
    outbox = daemon.outbox()
    assert until(lambda: outbox.count("pattern")["delivered"] == 2)
    assert until(lambda: Spool(daemon.home).names() == [])
    assert outbox.count("pattern") == {"pending": 0, "leased": 0, "delivered": 2, "dead": 0}
    assert set(daemon.service.received.values()) == {1}


@pytest.mark.requirement("recovery-within-interval")
def test_what_waits_in_long_backoffs_goes_when_the_service_is_back(idle: Daemon) -> None:
    idle.service.go_away()
    outbox = idle.outbox()
    outbox.put([NewEvent(f"e{n}", "pattern", idle.service.url, b'{"pattern_id":"p"}') for n in range(200)])
    outbox.store.write(
        lambda connection: connection.execute("UPDATE outbox SET next_attempt_at=next_attempt_at+250")
    )
    idle.start()
    assert until(lambda: "is down" in idle.log())

    idle.service.come_back()

    assert idle.service.wait_for(200)
    assert set(idle.service.received.values()) == {1}


def test_a_hanging_service_does_not_slow_the_doors_down(daemon: Daemon) -> None:
    daemon.service.hang()
    daemon.send("PostToolUse", written(call="first"))

    assert daemon.process is not None
    watched = (daemon.process.pid, os.getpid())

    # Each is answered while the service hangs; it does so until the test ends that.
    began = time.monotonic() - sum(map(waited, watched))
    answers = [daemon.send("PostToolUse", written(f"/p/{n}.py", call=f"t{n}")) for n in range(20)]
    took_s = time.monotonic() - sum(map(waited, watched)) - began

    assert took_s < 3, "a service that hangs is waited for longer"
    assert all(answer.startswith("ok hk_") for answer in answers)
    assert daemon.service.received == {}
    daemon.service.answer_again()
    assert daemon.service.wait_for(20)


@pytest.mark.requirement("one-daemon")
def test_a_second_daemon_says_so_and_ends(daemon: Daemon) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "bartack", "daemon", "run"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert (done.returncode, "running already" in done.stderr) == (0, True)
    assert until(daemon.link.is_running)


@pytest.mark.requirement("one-daemon")
def test_fifty_shims_at_once_start_one_daemon_and_lose_nothing(idle: Daemon) -> None:
    shim = install_shim()
    command = [sys.executable, "-I", "-S", str(shim), "PostToolUse"]
    shims: list[subprocess.Popen[bytes]] = []
    for n in range(50):
        event = idle.home / f"event-{n}"
        event.write_bytes(written(f"/p/{n}.py", call=f"t{n}"))
        with event.open("rb") as body:
            shims.append(subprocess.Popen(command, stdin=body))

    assert [process.wait(60) for process in shims] == [0] * 50
    assert idle.service.wait_for(50)
    assert idle.log().count("started, version") == 1
    assert set(idle.service.received.values()) == {1}
    assert stop_daemon(idle.home, timeout_s=60)


def test_starting_the_daemon_from_a_shim_does_not_keep_its_stdout_open(idle: Daemon) -> None:
    shim = install_shim()
    command = [sys.executable, "-I", "-S", str(shim), "Stop"]

    # Reading to the end of stdout ends only when no process holds it.
    done = subprocess.run(command, input=b'{"n":1}', capture_output=True, timeout=120, check=False)

    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert until(idle.link.is_running)
    assert stop_daemon(idle.home, timeout_s=60)


def test_without_anything_to_do_it_ends_by_itself(idle: Daemon) -> None:
    idle.configure("[lineage]\nembedded = false\n")
    text = (idle.home / "bartack.toml").read_text().replace("http_port = 0", "http_port = 0\nidle_exit = 0.3")
    (idle.home / "bartack.toml").write_text(text)

    idle.launch()

    assert idle.process is not None
    assert idle.process.wait(60) == 0
    assert "nothing to do" in idle.log()


@pytest.mark.parametrize("how", ["signal", "command"])
def test_stopping_gives_leases_back_and_leaves_nothing_open(daemon: Daemon, how: str) -> None:
    daemon.service.hang()
    daemon.send("PostToolUse", written())
    assert daemon.service.wait_for_requests("/health", 1)
    assert daemon.process is not None

    if how == "signal":
        daemon.process.send_signal(signal.SIGTERM)
    else:
        assert stop_daemon(daemon.home, timeout_s=60)

    assert daemon.process.wait(60) == 0
    assert daemon.outbox().count()["leased"] == 0
    lock = take_lock(daemon.home)
    assert lock is not None
    os.close(lock)
    assert not daemon.link.is_running()


def test_a_taken_port_leaves_the_socket_and_is_reported(idle: Daemon) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        text = (idle.home / "bartack.toml").read_text().replace("http_port = 0", f"http_port = {port}")
        (idle.home / "bartack.toml").write_text(text)
        idle.start()

        assert idle.link.facts()["http"] == {"port": port, "state": "busy"}
        assert idle.send("ping", b"") == "ok pong"


def test_configuration_is_read_again_on_a_signal(daemon: Daemon) -> None:
    with CountingService() as other:
        assert daemon.process is not None
        (daemon.home / "bartack.toml").write_text(f'[tracking]\nurl = "{other.url}"\n')
        daemon.process.send_signal(signal.SIGHUP)
        assert until(lambda: "read again" in daemon.log())

        daemon.send("PostToolUse", written())

        assert other.wait_for(1)


def test_a_long_home_has_its_socket_elsewhere(
    service: CountingService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / ("long" * 20)))
    monkeypatch.setenv("XDG_RUNTIME_DIR", f"/tmp/bt{os.getpid()}")
    daemon = Daemon(service, user_home())
    try:
        daemon.start()

        assert daemon.link.socket_path.is_symlink()
        assert daemon.send("PostToolUse", written()).startswith("ok")
    finally:
        daemon.stop()


def test_a_full_outbox_says_so_and_others_are_taken(idle: Daemon) -> None:
    idle.configure("[outbox]\ncompress = false\n")
    text = (idle.home / "bartack.toml").read_text().replace("[daemon]", "max_size_mb = 0.01\n[daemon]")
    (idle.home / "bartack.toml").write_text(text)
    idle.start()

    assert idle.send("Stop", b'{"a":"' + b"x" * 20_000 + b'"}') == "full"
    assert idle.send("Stop", b'{"a":"x"}').startswith("ok hk_")


def test_a_replaced_installation_ends_the_daemon(idle: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    states = iter(["as it was", "as it was", "replaced"])
    monkeypatch.setattr("bartack.tracking.daemon._daemon._fingerprint", lambda: next(states))
    monkeypatch.setattr("bartack.tracking.daemon._daemon._LOOK_S", 0.05)

    reported: list[tuple[str, dict[str, object]]] = []

    def note(
        name: str, measurements: Mapping[str, int], metadata: Mapping[str, object], config: object
    ) -> None:
        reported.append((name, dict(metadata)))

    telemetry = Telemetry()
    telemetry.attach("test", "daemon.*", note)

    asyncio.run(daemon_module.Daemon(idle.home, telemetry).run())

    assert next(states, "no state is left") == "no state is left"
    assert not idle.link.is_running()
    assert reported == [
        ("daemon.started", {"home": str(idle.home), "pid": os.getpid()}),
        ("daemon.stopped", {"home": str(idle.home), "reason": "replaced"}),
    ]


@pytest.mark.requirement("notices-wait-for-receivers")
def test_notices_that_no_notifier_is_left_for_are_sent_by_the_daemon(
    idle: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOOK", "secret-of-a-test")
    fact = Fact(kind="ended", place="7", at=time.time_ns() // 1000)
    with open_receiver(answer(500), answer(200)) as receiver:
        config = NoticesConfig(webhook=receiver.url, secret_env="HOOK")  # noqa: S106 - the name of a variable
        put_facts(open_outbox(), config, Subject(run="run-1", run_dir=""), [(fact, 1)], str)
        idle.start()
        idle.link.notify(idle.home)

        assert until(lambda: [one.state for one in list_notices(open_outbox(), 9)] == ["sent"]), idle.log()

    assert [headers["bartack-id"] for headers, _ in receiver.requests] == ["run-1:7:ended"] * 2


def test_a_notice_that_waits_keeps_the_daemon_from_exiting(idle: Daemon) -> None:
    fact = Fact(kind="question", place="q1", at=time.time_ns() // 1000)
    config = NoticesConfig(command=["/no/such"], after_s=3600.0)
    put_facts(open_outbox(), config, Subject(run="run-1", run_dir=""), [(fact, 1)], str)
    worker = NoticeWorker(idle.home)
    worker.start()

    assert until(lambda: worker.waiting == 1)
    worker.stop()
