"""Attacks on the way between clients and services: a process that listens where the service should, in between, or later."""

from __future__ import annotations

import asyncio
import http.client
import json
import logging
import os
import shutil
import socket
import socketserver
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import httpx
import pytest
from tests import warm

from bartack.core.sockets import make_own_folder
from bartack.core.user_home import user_home
from bartack.errors import ServiceUnprovenError, TokenFileError, UnsafeSocketError
from bartack.plugin.hooks import install_hooks, install_shim
from bartack.resilience import Outbox, PatternCache, ResilientAPIClient, StateStore, load_settings
from bartack.resilience.link import DaemonLink
from bartack.resilience.own_socket import OwnSocket
from bartack.resilience.proof import NONCE_HEADER, PROOF_HEADER, PROOF_PATH, Handshake, new_nonce, tcp_ends
from bartack.resilience.service_files import service_socket
from bartack.resilience.spool import Spool
from bartack.resilience.tokens import hook_token, load_token
from bartack.tracking import LineageService, LineageStore
from bartack.tracking.lineage.wire import SearchRequest

CODE: Final = "def the_secret_formula():\n    return 42\n"
TRACES: Final = (b"secret_formula", b"pattern_created", b"Authorization", b"Bearer")
SECTION: Final = "/api/pattern-traceability"
NOBODY: Final = 65534

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in (
        "INTELLIGENCE_SERVICE_URL",
        "PATTERN_CACHE_DIR",
        "BARTACK_STATE_DIR",
        "BARTACK_TRACKING_PROOF",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    load_token(user_home() / "token")
    return user_home()


def token() -> str:
    return load_token(user_home() / "token")


def until(condition: Callable[[], bool], timeout_s: float = 60.0) -> bool:
    deadline, pause = time.monotonic() + timeout_s, threading.Event()
    while not condition():
        if time.monotonic() > deadline:
            return False
        pause.wait(0.01)
    return True


class _Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True


class Impostor:
    """Listens on a port, keeps all that it is sent, and answers what its reply makes of it."""

    def __init__(self, reply: Callable[[bytes], bytes], port: int = 0) -> None:
        self.heard = b""
        self.calls = 0
        impostor = self

        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                with suppress(ConnectionError):  # the client has seen enough
                    while data := self.request.recv(65536):
                        impostor.heard += data
                        impostor.calls += 1
                        self.request.sendall(reply(data))

        self._server = _Server(("127.0.0.1", port), Handler)
        self.port: int = self._server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"

    @contextmanager
    def listening(self) -> Generator[Impostor]:
        thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            self._server.server_close()
            thread.join()

    def assert_learned_nothing(self) -> None:
        assert self.calls, "it was not asked at all"
        assert [trace for trace in (*TRACES, token().encode()) if trace in self.heard] == []


def answer(body: bytes = b'{"status":"healthy","success":true}', more: str = "") -> bytes:
    return f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n{more}\r\n".encode() + body


def believable(data: bytes) -> bytes:
    """What a service of an older version would answer."""
    return answer()


def guessing(data: bytes) -> bytes:
    return answer(b"", f"{NONCE_HEADER}: {new_nonce()}\r\n{PROOF_HEADER}: {new_nonce()}\r\n")


def mirroring(data: bytes) -> bytes:
    """Sends the client's own words back to it."""
    nonce = data.partition(f"{NONCE_HEADER}: ".encode())[2][:64].decode()
    return answer(b"", f"{NONCE_HEADER}: {nonce}\r\n{PROOF_HEADER}: {nonce}\r\n")


def endless(data: bytes) -> bytes:
    return f"HTTP/1.1 200 OK\r\nContent-Length: {1 << 40}\r\n\r\n".encode() + b"x" * (1 << 17)


@contextmanager
def real_service(port: int = 0) -> Generator[int]:
    """``bartack lineage serve``, on a port; without the socket in the state home, so that the port is what is used."""
    command = [sys.executable, "-m", "bartack", "lineage", "serve", "--port", str(port)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        found = int(process.stderr.readline().rpartition(":")[2])
        try:
            yield found
        finally:
            process.terminate()
            process.stderr.read()


def on_port_only(port: int) -> None:
    service_socket(port).unlink()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


async def track(client: ResilientAPIClient) -> dict[str, object]:
    return await client.track_pattern_resilient("pattern_created", "p", "formula", {"code": CODE})


def names_in(database: Path) -> list[str]:
    with LineageStore(database) as store:
        return [hit.pattern_id for hit in store.search(SearchRequest("secret_formula")).results]


def sync() -> subprocess.CompletedProcess[str]:
    return warm.run(
        [sys.executable, "-m", "bartack", "track", "sync"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.requirement("service-proves-itself-first")
@pytest.mark.parametrize("reply", [believable, guessing, mirroring, endless])
def test_an_impostor_gets_no_token_no_code_and_no_event(
    reply: Callable[[bytes], bytes], monkeypatch: pytest.MonkeyPatch, home: Path
) -> None:
    with Impostor(reply).listening() as impostor:
        monkeypatch.setenv("INTELLIGENCE_SERVICE_URL", impostor.url)
        client = ResilientAPIClient()
        result = asyncio.run(track(client))
        with pytest.raises(ServiceUnprovenError):
            asyncio.run(client._request("/lineage/track", "POST", {"code": CODE}, 5.0))
        synced = sync()

        impostor.assert_learned_nothing()
    assert (result["success"], result["cached"]) == (False, True)
    assert synced.returncode == 1
    assert "did not prove to be a service of this user" in synced.stdout

    with real_service(impostor.port):
        synced = sync()
        assert (synced.returncode, synced.stderr) == (0, "")
        assert "1 of 1 delivered" in synced.stdout
    assert names_in(home / "lineage.db") == ["p"]


@pytest.mark.requirement("service-proves-itself-first")
def test_an_impostor_that_takes_over_the_port_of_a_killed_service_gets_nothing(home: Path) -> None:
    port = free_port()
    cache = PatternCache()

    async def scenario() -> None:
        client = ResilientAPIClient(f"http://127.0.0.1:{port}")
        client.cache = cache
        with real_service(port):
            assert (await track(client))["success"] is True
        with Impostor(believable, port).listening() as impostor:
            for _ in range(5):
                assert (await track(client))["success"] is False
            with pytest.raises(ServiceUnprovenError):
                await client._request("/lineage/track", "POST", {"code": CODE}, 5.0)
            impostor.assert_learned_nothing()

    asyncio.run(scenario())
    assert cache.get_stats()["pending_events"] == 5
    assert cache.get_stats()["dead_events"] == 0


@pytest.mark.requirement("service-proves-itself-first")
def test_the_daemon_keeps_hook_events_from_an_impostor(home: Path) -> None:
    with Impostor(believable).listening() as impostor:
        (home / "bartack.toml").write_text(
            f'[tracking]\nurl = "{impostor.url}"\n[daemon]\nhttp_port = 0\n[health]\ninterval = 0.1\n[breaker]\ntimeout = 0.1\n'
        )
        command = [sys.executable, "-I", "-m", "bartack", "daemon", "run"]
        daemon = subprocess.Popen(command, cwd="/")
        try:
            assert until(DaemonLink().is_running)
            install_shim()
            tool = {
                "tool_name": "Write",
                "tool_input": {"file_path": "/p/x.py", "content": CODE},
                "session_id": "s",
            }
            hook = [sys.executable, "-I", "-S", str(home / "bin" / "bartack-hook.py"), "PostToolUse"]
            subprocess.run(hook, input=json.dumps(tool).encode(), check=True, timeout=60)
            assert until(lambda: "did not prove" in (home / "daemon.log").read_text())
            outbox = Outbox(StateStore(home))
            assert until(lambda: outbox.count("pattern")["pending"] == 1)
            assert until(lambda: impostor.calls > 5)
            impostor.assert_learned_nothing()
        finally:
            daemon.terminate()
            daemon.wait(60)
    with real_service(impostor.port):
        assert "1 of 1 delivered" in sync().stdout
    assert outbox.count("pattern")["delivered"] == 1


@pytest.mark.requirement("proof-belongs-to-its-connection")
def test_an_impostor_that_relays_the_challenge_to_the_service_gets_nothing(home: Path) -> None:
    with real_service() as port:
        on_port_only(port)

        def relaying(data: bytes) -> bytes:
            with socket.create_connection(("127.0.0.1", port)) as service:
                service.sendall(data)
                return service.recv(65536)

        with Impostor(relaying).listening() as relay:
            client = ResilientAPIClient(relay.url)
            result = asyncio.run(track(client))
            with pytest.raises(ServiceUnprovenError, match="another token, or is a relay"):
                asyncio.run(client._request("/lineage/track", "POST", {"code": CODE}, 5.0))
            relay.assert_learned_nothing()
        straight = asyncio.run(track(ResilientAPIClient(f"http://127.0.0.1:{port}")))
    assert (result["success"], result["cached"]) == (False, True)
    assert straight["success"] is True


class Line:
    """A connection to a service that speaks the protocol by hand."""

    def __init__(self, port: int) -> None:
        self._http = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        self._http.connect()

    def close(self) -> None:
        self._http.close()

    def challenge(self, nonce: str) -> Handshake:
        status, headers = self.get(PROOF_PATH, {NONCE_HEADER: nonce})
        assert status == 200
        ends = tcp_ends(self._http.sock.getsockname(), self._http.sock.getpeername())
        handshake = Handshake(token(), nonce, headers[NONCE_HEADER.lower()], ends)
        assert handshake.is_from_service(headers[PROOF_HEADER.lower()])
        return handshake

    def get(self, path: str, headers: dict[str, str]) -> tuple[int, dict[str, str]]:
        self._http.request("GET", path, headers=headers)
        response = self._http.getresponse()
        response.read()
        return response.status, {name.lower(): value for name, value in response.getheaders()}

    def ask(self, authorization: str, path: str = f"{SECTION}/lineage/orphans") -> int:
        return self.get(path, {"Authorization": authorization})[0]


def proved(handshake: Handshake, count: int, path: str = f"{SECTION}/lineage/orphans") -> str:
    return f"Bartack {handshake.server_nonce} {count} {handshake.request_proof(count, 'GET', path)}"


@pytest.fixture
def connect() -> Iterator[Callable[[int], Line]]:
    opened: list[Line] = []

    def one(port: int) -> Line:
        opened.append(Line(port))
        return opened[-1]

    yield one
    for line in opened:
        line.close()


@pytest.mark.requirement("proof-cannot-be-replayed")
def test_a_recorded_request_is_worth_nothing_on_any_connection(connect: Callable[[int], Line]) -> None:
    with real_service() as port:
        line = connect(port)
        handshake = line.challenge(new_nonce())
        first, third = proved(handshake, 1), proved(handshake, 3)

        assert line.ask(first) == 200
        assert line.ask(first) == 401
        assert line.ask(third) == 200
        assert line.ask(proved(handshake, 2)) == 401
        assert connect(port).ask(proved(handshake, 4)) == 401
        other = connect(port)
        other.challenge(handshake.client_nonce)
        assert other.ask(proved(handshake, 5)) == 401
        assert line.ask(proved(handshake, 6)) == 200


@pytest.mark.requirement("proof-cannot-be-replayed")
def test_a_recorded_answer_of_the_service_proves_nothing_to_the_next_client(
    connect: Callable[[int], Line],
) -> None:
    with real_service() as port:
        _, headers = connect(port).get(PROOF_PATH, {NONCE_HEADER: new_nonce()})

    def replaying(data: bytes) -> bytes:
        return answer(
            b"", "".join(f"{name}: {headers[name.lower()]}\r\n" for name in (NONCE_HEADER, PROOF_HEADER))
        )

    with Impostor(replaying).listening() as impostor:
        with pytest.raises(ServiceUnprovenError):
            asyncio.run(ResilientAPIClient(impostor.url)._request("/x", "POST", {"code": CODE}, 5.0))
        impostor.assert_learned_nothing()


@pytest.mark.requirement("proof-cannot-be-replayed")
def test_a_client_without_the_token_is_not_admitted(connect: Callable[[int], Line]) -> None:
    path = f"{SECTION}/lineage/orphans"
    with real_service() as port:
        line = connect(port)
        own = line.challenge(new_nonce())
        good = own.request_proof(1, "GET", path)
        forged = {
            "what the service said": own.server_proof(),
            "another token": own._replace(token="x" * 64).request_proof(1, "GET", path),
            "the hooks' token": own._replace(token=hook_token(token())).request_proof(1, "GET", path),
            "another method": own.request_proof(1, "POST", path),
            "another target": own.request_proof(1, "GET", f"{path}?limit=1"),
            "another connection": own._replace(ends="unix").request_proof(1, "GET", path),
            "another number": own.request_proof(2, "GET", path),
            "no ASCII": "\xff" * 64,
            "nothing": "",
        }

        admitted = [
            why for why, proof in forged.items() if line.ask(f"Bartack {own.server_nonce} 1 {proof}") != 401
        ]
        counts = [
            line.ask(f"Bartack {own.server_nonce} {count} {good}")
            for count in ("01", "+1", "-1", "\xb2", "1" * 30)
        ]
        nonces = [
            line.get(PROOF_PATH, {NONCE_HEADER: nonce})[0] for nonce in ("", "x" * 64, "a" * 63, "A" * 64)
        ]

        assert admitted == []
        assert set(counts) == {401}
        assert set(nonces) == {400}
        assert line.ask(f"Bartack {own.client_nonce} 1 {good}") == 401
        assert line.ask(f"Bartack {own.server_nonce} 1 {good}") == 200


@pytest.mark.requirement("own-socket-comes-first")
def test_a_service_whose_port_is_taken_is_reached_by_its_own_socket(home: Path) -> None:
    with Impostor(believable).listening() as impostor:
        code = (
            "import sys; from bartack.tracking import LineageService, LineageStore\n"
            "from bartack.core.user_home import user_home; from bartack.resilience.own_socket import OwnSocket\n"
            "from bartack.resilience.service_files import service_socket; from bartack.resilience.tokens import load_token\n"
            "own = OwnSocket(service_socket(int(sys.argv[1])))\n"
            "with LineageStore(user_home() / 'lineage.db') as store, own:\n"
            "    service = LineageService(store, load_token(user_home() / 'token'))\n"
            "    service.serve(*own.listeners, ready=lambda: print('ready', flush=True))\n"
        )
        command = [sys.executable, "-c", code, str(impostor.port)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as service:
            assert service.stdout is not None
            service.stdout.readline()
            client = ResilientAPIClient(impostor.url)
            assert until(lambda: asyncio.run(client.health_checker.check_health(force=True)))
            result = asyncio.run(track(client))
            place = service_socket(impostor.port)
            modes = (os.stat(place).st_mode & 0o777, os.stat(place.parent).st_mode & 0o777)
            service.terminate()
        assert result["success"] is True
        assert modes == (0o600, 0o700)
        assert b"secret" not in impostor.heard
        assert not service_socket(impostor.port).exists()


@contextmanager
def listening_at(place: Path) -> Generator[list[bytes]]:
    """A process that takes whatever comes to a socket."""
    heard: list[bytes] = []
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(place))
        listener.listen()
        listener.settimeout(0.2)
        ended = threading.Event()

        def accept() -> None:
            while not ended.is_set():
                try:
                    peer, _ = listener.accept()
                except TimeoutError:
                    continue
                with peer:
                    peer.settimeout(5)
                    heard.append(peer.recv(65536))
                    peer.sendall(b"ok pong\n")

        thread = threading.Thread(target=accept)
        thread.start()
        try:
            yield heard
        finally:
            ended.set()
            thread.join()


@pytest.fixture
def foreign() -> Iterator[Path]:
    """A directory with a short path, as a socket needs it."""
    place = Path("/tmp") / f"bartack-test-{os.urandom(6).hex()}"
    place.mkdir(0o700)
    yield place
    shutil.rmtree(place)


def give_away(place: Path, how: str) -> None:
    if how == "open":
        place.chmod(0o755)
    elif how == "folder":
        os.chown(place, NOBODY, NOBODY)
    else:
        os.chown(place / "it", NOBODY, NOBODY)


@pytest.mark.requirement("foreign-socket-gets-nothing")
@pytest.mark.parametrize(
    "how", ["open", pytest.param("folder", marks=as_root), pytest.param("socket", marks=as_root)]
)
def test_a_socket_that_another_user_can_have_made_gets_nothing(home: Path, foreign: Path, how: str) -> None:
    install_shim()
    (home / "autostart-off").touch()
    port = free_port()
    with listening_at(foreign / "it") as heard:
        give_away(foreign, how)
        (home / "daemon.sock").symlink_to(foreign / "it")
        service_socket(port).symlink_to(foreign / "it")
        hook = [sys.executable, "-I", "-S", str(home / "bin" / "bartack-hook.py"), "PostToolUse"]
        subprocess.run(hook, input=CODE.encode(), check=True, timeout=60)
        running = DaemonLink().is_running()
        result = asyncio.run(track(ResilientAPIClient(f"http://127.0.0.1:{port}")))

    assert heard == []
    assert running is False
    assert len(Spool(home).names()) == 1
    assert result["cached"] is True


@pytest.mark.requirement("foreign-socket-gets-nothing")
def test_a_service_closes_its_directory_to_others_or_does_not_listen_there(
    home: Path, tmp_path: Path
) -> None:
    home.chmod(0o777)
    with OwnSocket(service_socket(1)) as own:
        assert len(own.listeners) == 1
        assert home.stat().st_mode & 0o777 == 0o700
        with OwnSocket(service_socket(1)) as second:
            assert second.listeners == ()
    if os.geteuid() == 0:
        os.chown(home, NOBODY, NOBODY)
        with OwnSocket(service_socket(1)) as own:
            assert own.listeners == ()
        with pytest.raises(UnsafeSocketError):
            make_own_folder(str(home))


@pytest.mark.requirement("token-file-is-private")
@pytest.mark.parametrize("how", ["readable", pytest.param("foreign", marks=as_root), "pipe", "directory"])
def test_a_token_file_that_others_can_know_is_refused_by_both_sides(home: Path, how: str) -> None:
    path = home / "token"
    if how == "readable":
        path.chmod(0o644)
    elif how == "foreign":
        os.chown(path, NOBODY, NOBODY)
    else:
        path.unlink()
        path.mkdir(0o700) if how == "directory" else os.mkfifo(path, 0o600)
    served = subprocess.run(
        [sys.executable, "-m", "bartack", "lineage", "serve", "--port", "0"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    with Impostor(believable).listening() as impostor:
        client = ResilientAPIClient(impostor.url)
        result = asyncio.run(track(client))
        with pytest.raises(TokenFileError):
            asyncio.run(client._request("/x", "POST", {"code": CODE}, 5.0))
        assert impostor.heard == b""

    assert served.returncode != 0
    assert "BT726" in served.stderr
    assert result["cached"] is True


@pytest.mark.requirement("clone-cannot-redirect")
@pytest.mark.parametrize(
    ("line", "field", "default"),
    [
        ('url = "https://evil.example"', "url", "http://localhost:8053"),
        ('url = "http://10.0.0.1:8053"', "url", "http://localhost:8053"),
        ('url = "http://localhost.evil.example"', "url", "http://localhost:8053"),
        ('url = "http://127.0.0.1@evil.example/"', "url", "http://localhost:8053"),
        ('url = "http://[::ffff:10.0.0.1]/"', "url", "http://localhost:8053"),
        ('token_file = "token"', "token_file", ""),
        ('token_file = "/etc/passwd"', "token_file", ""),
        ('token_file = "~/.ssh/id_ed25519"', "token_file", ""),
        ('token_file = "{home}/../x"', "token_file", ""),
        ('token_file = "link/x"', "token_file", ""),
        ('proof = "off"', "proof", "required"),
        ('dir = "/tmp"', "cache_dir", ""),
        ('dir = "../elsewhere"', "cache_dir", ""),
    ],
)
def test_the_settings_of_a_clone_do_not_lead_elsewhere(
    home: Path, tmp_path: Path, line: str, field: str, default: str, caplog: pytest.LogCaptureFixture
) -> None:
    clone = tmp_path / "clone"
    clone.mkdir()
    (clone / "link").symlink_to("/etc")
    (clone / "bartack.toml").write_text(
        f"[tracking]\nmax_age_days = 3\n{line.replace('{home}', str(home))}\n"
    )

    with caplog.at_level(logging.WARNING):
        found = load_settings(start=clone)

    assert (getattr(found, field), found.max_age_days) == (default, 3)
    assert f"bartack trust {clone}" in caplog.text


@pytest.mark.requirement("clone-cannot-redirect")
def test_settings_that_do_no_harm_need_no_trust(
    home: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "bartack.toml").write_text(
        f'[tracking]\nurl = "http://[::1]:9"\ntoken_file = "{home}/other"\ndir = "events"\nproof = "required"\n'
    )
    (home / "bartack.toml").write_text(
        '[tracking]\nurl = "https://own.example"\nproof = "off"\ntoken_file = "t"\n'
    )

    with caplog.at_level(logging.WARNING):
        found, own = load_settings(start=tmp_path), load_settings(start=home)

    assert (found.url, found.token_file, found.cache_dir) == ("http://[::1]:9", f"{home}/other", "events")
    assert (own.url, own.proof, own.token_file) == ("https://own.example", "off", f"{home}/t")
    assert caplog.text == ""


@pytest.mark.requirement("trusted-clone-is-obeyed")
def test_the_settings_of_a_clone_that_is_trusted_are_obeyed_until_it_is_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clone = tmp_path / "trusted" / "clone"
    clone.mkdir(parents=True)
    (clone / "bartack.toml").write_text(
        '[tracking]\nurl = "https://events.example"\ntoken_file = "keys/token"\nproof = "off"\ndir = "../outbox"\n'
    )

    def told() -> tuple[str, str, str, str]:
        found = load_settings(start=clone)
        return found.url, found.token_file, found.proof, found.cache_dir

    def trust(*words: str) -> None:
        command = [sys.executable, "-m", "bartack", "trust", *words]
        warm.run(command, cwd=clone, capture_output=True, timeout=60, check=True)

    before = told()
    warned = caplog.text.count("is not used")
    trust(str(clone))
    trusted = told()
    trust("--remove", str(clone))
    after = told()
    trust(str(clone.parent))

    assert before == after == ("http://localhost:8053", "", "required", "")
    assert trusted == told() == ("https://events.example", str(clone / "keys/token"), "off", "../outbox")
    assert (warned, caplog.text.count("is not used")) == (4, 8)


@pytest.mark.requirement("http-hooks-have-their-own-token")
def test_what_an_impostor_learns_from_an_http_hook_opens_nothing_else(home: Path) -> None:
    install_hooks(mode="http")
    text = Path(".claude/settings.local.json").read_text()
    assert token() not in text
    assert hook_token(token()) in text

    with LineageStore(home / "lineage.db") as store:
        transport = httpx.ASGITransport(LineageService(store, token()))

        async def ask(bearer: str) -> int:
            async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8053") as client:
                headers = {"Authorization": f"Bearer {bearer}"}
                return (await client.get(f"{SECTION}/lineage/orphans", headers=headers)).status_code

        assert asyncio.run(ask(hook_token(token()))) == 401
        assert asyncio.run(ask(token())) == 200


@pytest.mark.requirement("proof-can-be-waived")
def test_a_service_of_another_make_gets_events_when_the_person_says_so_and_no_token(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("BARTACK_TRACKING_PROOF", "off")
    with Impostor(believable).listening() as service:
        result = asyncio.run(track(ResilientAPIClient(service.url)))

        assert result["success"] is True
        assert b"secret_formula" in service.heard
        assert b"Authorization" not in service.heard
