from __future__ import annotations

import asyncio
import json
import os
import socket
import stat
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from pathlib import Path

import httpx
import pytest

from bartack.errors import ConfigError, LineageError, StoreUnavailableError, TokenFileError, UnsafeBindError
from bartack.resilience.loopback import host_name, open_listener
from bartack.resilience.tokens import load_token
from bartack.tracking.lineage._api import BASE, BODY_LIMIT, ENDPOINTS, REFUSALS
from bartack.tracking.lineage._http import Handlers, Writer
from bartack.tracking.lineage._service import LineageService
from bartack.tracking.lineage._store import LineageStore
from bartack.tracking.lineage.wire import Event, Tracked, parse_event

TOKEN = "a token for tests only".replace(" ", "-")
Body = dict[str, object]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[LineageStore]:
    with LineageStore(tmp_path / "lineage.db") as opened:
        yield opened


@pytest.fixture
def client(store: LineageStore) -> Client:
    return client_of(store)


class Client:
    """Talks to a service without a network between them."""

    def __init__(self, service: LineageService, headers: dict[str, str]) -> None:
        self._transport = httpx.ASGITransport(service, raise_app_exceptions=False)
        self.headers = headers

    def request(
        self,
        method: str,
        path: str,
        *,
        headers: Mapping[str, str | bytes] | None = None,
        json: object = None,
        content: bytes | AsyncIterator[bytes] | None = None,
    ) -> httpx.Response:
        return asyncio.run(self._send(method, path, {**self.headers, **(headers or {})}, json, content))

    async def _send(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str | bytes],
        json: object,
        content: bytes | AsyncIterator[bytes] | None,
    ) -> httpx.Response:
        encoded = [
            (name.encode(), value.encode() if isinstance(value, str) else value)
            for name, value in headers.items()
        ]
        async with httpx.AsyncClient(transport=self._transport, base_url="http://127.0.0.1:8053") as client:
            return await client.request(method, path, headers=encoded, json=json, content=content)

    def get(self, path: str, *, headers: Mapping[str, str | bytes] | None = None) -> httpx.Response:
        return self.request("GET", path, headers=headers)

    def post(
        self,
        path: str,
        *,
        headers: Mapping[str, str | bytes] | None = None,
        json: object = None,
        content: bytes | AsyncIterator[bytes] | None = None,
    ) -> httpx.Response:
        return self.request("POST", path, headers=headers, json=json, content=content)


def client_of(store: LineageStore, **headers: str) -> Client:
    return Client(LineageService(store, TOKEN), {"Authorization": f"Bearer {TOKEN}"} | headers)


def created(pattern: str, *parents: str, **members: object) -> Body:
    return {
        "event_type": "pattern_created",
        "pattern_id": pattern,
        "parent_pattern_ids": list(parents),
        **members,
    }


def test_an_event_is_recorded_and_found_again(client: Client) -> None:
    tracked = client.post(f"{BASE}/lineage/track", json=created("b", "a"))
    shown = client.get(f"{BASE}/lineage/b")

    assert tracked.status_code == shown.status_code == 200
    assert tracked.json()["success"] is True
    assert tracked.json()["data"]["generation"] == 1
    assert tracked.json()["metadata"]["operation"] == "track"
    assert tracked.json()["metadata"]["processing_time_ms"] > 0
    assert [item["pattern_id"] for item in shown.json()["data"]["ancestors"]] == ["a"]


def test_the_same_event_gets_the_same_answer_and_another_a_conflict(client: Client) -> None:
    first = client.post(f"{BASE}/lineage/track", json=created("a", event_id="e1")).json()["data"]
    again = client.post(f"{BASE}/lineage/track", json=created("a", event_id="e1")).json()["data"]
    other = client.post(f"{BASE}/lineage/track", json=created("b", event_id="e1"))

    assert again == first | {"duplicate": True}
    assert (other.status_code, other.json()["error"]["code"]) == (409, "conflict")


def test_a_cycle_is_refused_by_its_own_name(client: Client) -> None:
    answer = client.post(f"{BASE}/lineage/track", json=created("a", "a"))

    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "cycle")


def test_a_batch_answers_for_each_event_in_its_order(client: Client) -> None:
    events: list[Body] = [created("a"), {"event_type": "nonsense"}, created("c", "c"), created("d", "a")]

    answer = client.post(f"{BASE}/lineage/track/batch", json={"events": events})

    results = answer.json()["data"]["results"]
    assert [item["success"] for item in results] == [True, False, False, True]
    assert results[3]["data"]["generation"] == 1
    assert [results[1]["error"]["code"], results[2]["error"]["code"]] == ["bad_value", "cycle"]


def test_a_batch_has_a_limit(client: Client) -> None:
    events = [created(f"p{number}") for number in range(501)]

    whole = client.post(f"{BASE}/lineage/track/batch", json={"events": events})
    fits = client.post(f"{BASE}/lineage/track/batch", json={"events": events[:500]})

    assert (whole.status_code, whole.json()["error"]["field"]) == (422, "events")
    assert all(item["success"] for item in fits.json()["data"]["results"])


@pytest.mark.parametrize(
    "name", ["a/b", "a\0b", "🧵", "x" * 300, "a b?c#d", "%2F", "orphans", "cycles", "a/evolution", ".", ".."]
)
def test_ids_of_any_kind_are_reached_by_their_path(store: LineageStore, client: Client, name: str) -> None:
    store.track(created(name))
    escaped = "".join(f"%{byte:02X}" for byte in name.encode())

    shown = client.get(f"{BASE}/lineage/{escaped}")
    evolution = client.get(f"{BASE}/lineage/{escaped}/evolution")

    assert shown.json()["data"]["node"]["pattern_id"] == name
    assert evolution.json()["data"]["total_versions"] == 1


def test_an_unknown_pattern_is_not_found(client: Client) -> None:
    answer = client.get(f"{BASE}/lineage/nobody")

    assert answer.status_code == 404
    assert answer.json() == {
        "success": False,
        "error": {"code": "unknown_pattern", "message": "pattern nobody is not known"},
    }


@pytest.mark.parametrize("path", ["/", "/lineage", BASE, f"{BASE}/lineage/", f"{BASE}/health/", f"{BASE}/no"])
def test_what_is_not_there_is_refused_in_our_form(client: Client, path: str) -> None:
    answer = client.get(path)

    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "not_found")


def test_a_wrong_method_is_refused_in_our_form(client: Client) -> None:
    answer = client.request("DELETE", f"{BASE}/lineage/a")

    assert (answer.status_code, answer.json()["error"]["code"]) == (405, "method_not_allowed")
    assert "GET" in answer.headers["Allow"]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"7",
        b'"text"',
        b"{}",
        b"\xff\xfe",
        b'{"event_type": "\xff"}',
        b'{"a": NaN}',
        b'{"a": 1e999}',
        b'{"a": "\\ud800"}',
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b'{"event_type": "pattern_created", "pattern_id": "a", "metadata": '
        + b'{"a":' * 500
        + b"1"
        + b"}" * 501,
        b'{"event_type": "pattern_created", "pattern_id": "a", "metadata": {"n": 1e400}}',
        b"\xef\xbb\xbf{}",
    ],
)
@pytest.mark.parametrize("path", ["/lineage/track", "/lineage/track/batch", "/search", "/validate"])
def test_no_malformed_body_is_a_defect_of_the_service(client: Client, path: str, body: bytes) -> None:
    answer = client.post(BASE + path, content=body, headers={"Content-Type": "application/json"})

    harmless = {"/search": (b"{}",), "/validate": (b"{}",)}.get(path, ())
    deep_but_sound = path == "/lineage/track" and body.count(b'{"a":') == 500
    ignored = path in {"/search", "/validate"} and b"pattern_created" in body
    if body in harmless or deep_but_sound or (ignored and b"e400" not in body):
        assert answer.status_code == 200
    else:
        assert answer.status_code in {400, 422}
        assert answer.json()["success"] is False
        assert answer.json()["error"]["code"] in {"invalid", "bad_value"}


def test_a_refusal_names_the_member(client: Client) -> None:
    wrong = client.post(f"{BASE}/lineage/track", json=created("a", pattern_version="one"))
    missing = client.post(f"{BASE}/lineage/track", json={"pattern_id": "a"})
    query = client.get(f"{BASE}/lineage/a?max_depth=101")
    text = client.get(f"{BASE}/lineage/a?limit=many")
    unknown = client.get(f"{BASE}/lineage/a?depth=3")

    assert (wrong.status_code, wrong.json()["error"]["field"]) == (422, "pattern_version")
    assert (missing.status_code, missing.json()["error"]["field"]) == (400, "event_type")
    assert (query.status_code, query.json()["error"]["field"]) == (422, "max_depth")
    assert (text.status_code, text.json()["error"]["field"]) == (400, "limit")
    assert (unknown.status_code, unknown.json()["error"]["field"]) == (400, "depth")


def test_a_foreign_cursor_is_refused(client: Client) -> None:
    answer = client.get(f"{BASE}/lineage/orphans?cursor=nonsense")

    assert (answer.status_code, answer.json()["error"]["field"]) == (400, "cursor")


@pytest.mark.parametrize("kind", ["", "text/plain", "application/x-www-form-urlencoded", "application/jsonx"])
def test_a_body_has_to_be_said_to_be_json(client: Client, kind: str) -> None:
    answer = client.post(f"{BASE}/search", content=b"{}", headers={"Content-Type": kind} if kind else {})

    assert (answer.status_code, answer.json()["error"]["code"]) == (415, "unsupported_media_type")


def test_the_kind_of_a_body_may_say_more(client: Client) -> None:
    kind = {"Content-Type": "Application/JSON; charset=utf-8"}

    assert client.post(f"{BASE}/search", content=b"{}", headers=kind).status_code == 200


async def pieces(content: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(content), 100_000):
        yield content[start : start + 100_000]


@pytest.mark.parametrize("streamed", [False, True])
def test_a_body_that_is_too_long_is_refused(client: Client, streamed: bool) -> None:
    fill = b'{"query": ""' + b" " * (BODY_LIMIT - 13)
    fits, over = fill + b"}", fill + b" }"

    def post(content: bytes) -> int:
        sent = pieces(content) if streamed else content
        answer = client.post(f"{BASE}/search", content=sent, headers={"Content-Type": "application/json"})
        return answer.status_code

    assert len(fits) == BODY_LIMIT
    assert [post(fits), post(over)] == [200, 413]


@pytest.mark.requirement("lineage-needs-its-token")
@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "Bearer",
        "Bearer ",
        f"Bearer {TOKEN}x",
        f"Bearer {TOKEN[:-1]}",
        f"Basic {TOKEN}",
        TOKEN,
        "Bearer é",
    ],
)
def test_no_request_is_admitted_without_the_token(store: LineageStore, header: str | None) -> None:
    client = client_of(store)
    del client.headers["Authorization"]
    sent = {} if header is None else {"Authorization": header.encode()}

    for endpoint in ENDPOINTS:
        path = BASE + endpoint.path.replace("{id}", "a")
        answer = client.request(endpoint.method, path, headers=sent)
        assert answer.status_code == (200 if endpoint.name == "health" else 401)
    unknown = client.get("/somewhere/else", headers=sent)
    assert (unknown.status_code, unknown.headers["WWW-Authenticate"]) == (401, "Bearer")


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1", 200),
        ("127.0.0.1:8053", 200),
        ("localhost:1", 200),
        ("LOCALHOST", 200),
        ("[::1]:8053", 200),
        ("evil.example", 403),
        ("evil.example:8053", 403),
        ("127.0.0.1.evil.example", 403),
        ("localhost:evil", 403),
        ("10.0.0.1:8053", 403),
        ("", 403),
    ],
)
def test_only_names_of_this_machine_are_answered(store: LineageStore, host: str, status: int) -> None:
    answer = client_of(store, Host=host).get(f"{BASE}/health")

    assert answer.status_code == status
    assert status == 200 or answer.json()["error"]["code"] == "forbidden"


def test_web_pages_are_not_answered(store: LineageStore) -> None:
    answer = client_of(store, Origin="http://127.0.0.1:8053").get(f"{BASE}/lineage/a")

    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "forbidden")


@pytest.mark.parametrize("host", ["[::1]", "[::1]:80", "a:80:90", ":80", "a"])
def test_a_host_is_parted_from_its_port(host: str) -> None:
    assert host_name(host) in {"[::1]", "a:80", "", "a"}


def test_health_reports_how_the_database_is(store: LineageStore, client: Client) -> None:
    well = client.get(f"{BASE}/health")
    store.write_failed = True
    degraded = client.get(f"{BASE}/health")
    store.close()
    down = client.get(f"{BASE}/health")

    assert (well.status_code, well.json()["status"]) == (200, "healthy")
    assert (degraded.status_code, degraded.json()["status"]) == (503, "degraded")
    assert degraded.json()["components"] == {"lineage_tracker": "degraded", "search": "healthy"}
    assert (down.status_code, down.json()["status"]) == (503, "unhealthy")


def test_a_database_that_cannot_be_used_is_said_so(store: LineageStore, client: Client) -> None:
    store.close()

    answer = client.post(f"{BASE}/lineage/track", json=created("a"))

    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "store_unavailable")
    assert int(answer.headers["Retry-After"]) > 0


def test_a_defect_shows_nothing_of_its_cause(store: LineageStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("secret")

    monkeypatch.setattr(store, "orphans", fail)

    answer = client_of(store).get(f"{BASE}/lineage/orphans")

    assert (answer.status_code, answer.json()["error"]["code"]) == (500, "internal")
    assert "secret" not in answer.text


class CountingStore(LineageStore):
    """Remembers how many events came with each write, and fails on demand."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.sizes: list[int] = []
        self.failing = False

    def track_many(self, events: Sequence[Event]) -> list[Tracked | LineageError]:
        self.sizes.append(len(events))
        if self.failing:
            raise StoreUnavailableError("lineage.db", "disk full")
        return super().track_many(events)


def event(name: str) -> Event:
    return parse_event(created(name))


async def write_all(writer: Writer, count: int) -> list[object]:
    found = await asyncio.gather(
        *(writer.write([event(f"p{number}")]) for number in range(count)), return_exceptions=True
    )
    return list(found)


def test_events_that_wait_together_are_written_together(tmp_path: Path) -> None:
    with CountingStore(tmp_path / "lineage.db") as store:
        results = asyncio.run(write_all(Writer(store), 50))

    assert store.sizes == [1, 49]
    ids = [one[0].pattern_id for one in results if isinstance(one, list) and isinstance(one[0], Tracked)]
    assert ids == [f"p{number}" for number in range(50)]


def test_all_callers_learn_that_a_write_failed(tmp_path: Path) -> None:
    with CountingStore(tmp_path / "lineage.db") as store:
        store.failing = True
        results = asyncio.run(write_all(Writer(store), 5))

    assert store.sizes == [1, 4]
    assert {type(one).__name__ for one in results} == {"StoreUnavailableError"}


def test_too_many_waiting_events_are_sent_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bartack.tracking.lineage._http.WAITING_LIMIT", 3)

    with CountingStore(tmp_path / "lineage.db") as store:
        results = asyncio.run(write_all(Writer(store), 5))

    assert [type(one).__name__ for one in results] == ["list"] * 3 + ["BusyError"] * 2


def test_a_busy_service_says_when_to_come_again(store: LineageStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bartack.tracking.lineage._http.WAITING_LIMIT", 0)

    answer = client_of(store).post(f"{BASE}/lineage/track", json=created("a"))

    assert (answer.status_code, answer.json()["error"]["code"]) == (429, "busy")
    assert answer.headers["Retry-After"] == "1"


def test_one_that_goes_away_affects_no_other(tmp_path: Path) -> None:
    async def work(writer: Writer) -> list[Tracked | LineageError]:
        first = asyncio.ensure_future(writer.write([event("first")]))  # noqa: TID251 - cancelled below
        second = asyncio.ensure_future(writer.write([event("second")]))  # noqa: TID251 - awaited below
        await asyncio.sleep(0)
        first.cancel()
        return await second

    with LineageStore(tmp_path / "lineage.db") as store:
        (tracked,) = asyncio.run(work(Writer(store)))

    assert isinstance(tracked, Tracked)
    assert tracked.pattern_id == "second"


def test_every_endpoint_has_its_method_and_every_method_its_endpoint() -> None:
    methods = {name for name in vars(Handlers) if not name.startswith("_")}

    assert methods == {endpoint.name for endpoint in ENDPOINTS}


def test_every_error_code_of_the_table_is_used() -> None:
    source = Path(sys.modules[Handlers.__module__].__file__ or "").read_text(encoding="utf-8")

    assert [code for codes, _ in REFUSALS.values() for code in codes if f'"{code}"' not in source] == []


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.1", "example.org", "", "10.0.0.1"])  # noqa: S104 - refused
def test_a_service_that_others_could_reach_is_refused(host: str) -> None:
    with pytest.raises(UnsafeBindError):
        open_listener(host, 0)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "127.0.0.2"])
def test_a_service_listens_on_this_machine(host: str) -> None:
    with open_listener(host, 0) as listener:
        assert listener.getsockname()[0].startswith("127.")


def test_answers_are_not_held_back() -> None:
    async def accept() -> int:
        accepted = asyncio.get_running_loop().create_future()

        def seen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            accepted.set_result(
                writer.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            )
            writer.close()

        listener = open_listener(port=0)
        async with await asyncio.start_server(seen, sock=listener):
            with socket.create_connection(listener.getsockname()):
                return int(await accepted)

    assert asyncio.run(accept()) == 1


def test_a_port_that_is_taken_is_named() -> None:
    with open_listener("127.0.0.1", 0) as first:
        port = first.getsockname()[1]
        with pytest.raises(ConfigError, match=str(port)):
            open_listener("127.0.0.1", port)


@pytest.mark.parametrize("port", [-1, 65536])
def test_a_port_out_of_range_is_named(port: int) -> None:
    with pytest.raises(ConfigError, match=str(port)):
        open_listener("127.0.0.1", port)


def test_a_token_file_is_made_once_for_its_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "kept/token"

    first = load_token(path)

    assert load_token(path) == first
    assert len(first) == 64
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert os.listdir(path.parent) == ["token"]


@pytest.mark.parametrize("mode", [0o644, 0o660, 0o604])
def test_a_token_that_others_can_read_is_refused(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "token"
    load_token(path)
    path.chmod(mode)

    with pytest.raises(TokenFileError, match="others"):
        load_token(path)


@pytest.mark.parametrize(
    "content", ["", "short\n", "has a space in the middle of it\n", "é" * 20, "\n" + "x" * 64]
)
def test_a_file_without_a_token_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "token"
    path.touch(mode=0o600)
    path.write_text(content, encoding="utf-8")

    with pytest.raises(TokenFileError):
        load_token(path)


def test_nothing_slow_is_imported_before_a_service_is_used() -> None:
    program = (
        "import json, sys, bartack.tracking.lineage._service\n"
        "print(json.dumps([name for name in ('starlette', 'uvicorn', 'asyncio', 'httpx') if name in sys.modules]))"
    )

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert json.loads(done.stdout) == []


def test_tokens_are_compared_in_constant_time(store: LineageStore, monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[bytes, bytes]] = []

    def compare(one: bytes, other: bytes) -> bool:
        compared.append((one, other))
        return one == other

    monkeypatch.setattr("bartack.tracking.lineage._http.hmac.compare_digest", compare)
    client_of(store).get(f"{BASE}/lineage/orphans", headers={"Authorization": "Bearer wrong"})

    assert compared == [(b"wrong", TOKEN.encode())]


def test_a_listener_is_not_left_open_when_it_cannot_be_used() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(ConfigError):
            open_listener("127.0.0.1", taken.getsockname()[1])
