"""Which requests are answered, and with which headers: every rule is broken once."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.testclient import TestClient
from starlette.types import Message
from tests.web.sites import enter, make_client, make_site

from bartack.web import Site, make_app
from bartack.web import _actions as actions
from bartack.web import _guard as guard
from bartack.web._guard import BODY_LIMIT
from bartack.web._sessions import COOKIE, SESSION_LIMIT, STREAM_LIMIT, WRONG_LIMIT, Session, session_of

FORM = {"Content-Type": "application/x-www-form-urlencoded"}
POST = "/api/v1/probe"


async def _probe(request: Request) -> Response:
    return PlainTextResponse((await request.body()).decode("latin-1") + session_of(request).csrf[:0])


async def _broken(request: Request) -> Response:
    raise ZeroDivisionError


@pytest.fixture(autouse=True)
def routes(monkeypatch: pytest.MonkeyPatch) -> None:
    """An action that does nothing, and one with a defect."""
    added = [Route(POST, _probe, methods=["POST"]), Route("/broken", _broken)]
    monkeypatch.setattr(actions, "ROUTES", added)


@pytest.fixture
def site() -> Site:
    return make_site()


@pytest.fixture
def client(site: Site) -> Iterator[TestClient]:
    with make_client(site) as client:
        yield enter(site, client)[0]


def test_a_browser_that_has_entered_is_answered(client: TestClient) -> None:
    assert client.get("/").status_code == 200
    assert client.post(POST, json={}).status_code == 200


# Names.


@pytest.mark.requirement("web-answers-to-its-name")
@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1:8055",
        "localhost:8055",
        "bartack.localhost",
        "bartack.localhost:80",
        "bartack.localhost:8056",
        "other.localhost:8055",
        "evil.example:8055",
        "bartack.localhost:8055.evil.example",
        "bartack.localhost.evil.example:8055",
        "[",
        "a b/api/v1/x?",
        "",
    ],
)
def test_a_request_for_another_host_is_refused(client: TestClient, host: str) -> None:
    for path in ("/", "/enter", "/api/v1/runs"):
        assert client.get(path, headers={"Host": host}).status_code == 403
    assert client.post(POST, json={}, headers={"Host": host}).status_code == 403


@pytest.mark.requirement("web-answers-to-its-name")
def test_a_request_with_two_hosts_or_none_is_refused(site: Site) -> None:
    client, _ = enter(site)
    for hosts in ([], [site.host, site.host], [site.host, "evil.example"], ["evil.example", site.host]):
        request = client.build_request("GET", "/")
        request.headers.pop("host")
        headers = [*request.headers.raw, *((b"Host", host.encode()) for host in hosts)]
        request.headers = type(request.headers)(headers)
        if hosts:  # the client adds one where there is none
            assert client.send(request).status_code == 403


def test_port_80_is_not_part_of_the_host() -> None:
    client, _ = enter(make_site(port=80))

    assert client.get("/", headers={"Host": "bartack.localhost"}).status_code == 200
    assert client.get("/", headers={"Host": "bartack.localhost:80"}).status_code == 403


# Other pages.


@pytest.mark.requirement("web-refuses-other-pages")
@pytest.mark.parametrize("where", ["cross-site", "same-site", "sideways"])
def test_a_request_from_a_page_elsewhere_is_refused(client: TestClient, where: str) -> None:
    fetched = {"Sec-Fetch-Site": where, "Sec-Fetch-Mode": "cors", "Sec-Fetch-Dest": "empty"}

    assert client.get("/", headers=fetched).status_code == 403
    assert client.get("/enter", headers=fetched).status_code == 403
    assert client.post(POST, json={}, headers={"Sec-Fetch-Site": where}).status_code == 403


@pytest.mark.parametrize("where", ["same-origin", "none"])
def test_a_request_from_our_own_page_or_from_a_person_is_answered(client: TestClient, where: str) -> None:
    assert client.get("/", headers={"Sec-Fetch-Site": where}).status_code == 200


@pytest.mark.requirement("web-refuses-other-pages")
@pytest.mark.parametrize("path", ["/r/run-1?at=3", "//evil.example/x", "/<script>", "/a%3Fb%23c?d=%2F"])
def test_a_link_from_elsewhere_leads_to_a_page_with_one_link_to_our_own_server(
    client: TestClient, path: str
) -> None:
    visit = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
    page = client.get(f"http://bartack.localhost:8055{path}", headers=visit)

    links = re.findall(r'<a href="([^"]*)"', page.text)
    assert [link.startswith("http://bartack.localhost:8055/") for link in links] == [True]
    assert not links[0].startswith("http://bartack.localhost:8055//")
    assert "<script>" not in page.text
    assert links[0].endswith(path.lstrip("/").replace("<", "%3C").replace(">", "%3E"))
    assert "Sign out" not in page.text


# Sessions.


@pytest.mark.requirement("web-needs-a-session")
@pytest.mark.parametrize("cookie", ["", "x", f"{COOKIE}=", f"{COOKIE}=wrong", "__host-bartack={token}"])
def test_without_a_session_only_the_page_to_enter_and_its_files_are_there(site: Site, cookie: str) -> None:
    client, _ = enter(site)
    token = client.headers["Cookie"].partition("=")[2]
    client.headers["Cookie"] = cookie.replace("{token}", token)

    assert client.get("/").status_code == 401
    assert client.get("/api/v1/runs").json()["error"]["code"] == "BT1021"
    assert client.post(POST, json={}).status_code == 401
    page = client.get("/enter")
    assert page.status_code == 200
    for file in re.findall(r'(?:src|href)="(/static/[^"]+)"', page.text):
        assert client.get(file).status_code == 200


@pytest.mark.requirement("web-needs-a-session")
def test_a_request_with_two_of_our_cookies_has_no_session(client: TestClient) -> None:
    mine = client.headers["Cookie"]

    assert client.get("/", headers={"Cookie": f"{mine}; {mine}"}).status_code == 401
    assert client.get("/", headers={"Cookie": f"a=b; {mine}; c"}).status_code == 200


@pytest.mark.requirement("web-sessions-end")
def test_signing_out_ends_the_session_and_its_streams(site: Site) -> None:
    client, session = enter(site)
    left = client.post("/leave", content="", headers=FORM)

    assert left.status_code == 303
    assert left.headers["location"] == "/enter"
    assert "Max-Age=0" in left.headers["set-cookie"]
    assert session.ended.is_set()
    assert client.get("/").status_code == 401


@pytest.mark.requirement("web-is-bounded")
def test_one_more_session_than_allowed_ends_the_one_that_was_not_used_for_longest(site: Site) -> None:
    clients = [enter(site)[0] for _ in range(SESSION_LIMIT)]
    assert clients[0].get("/").status_code == 200
    enter(site)

    assert [client.get("/").status_code for client in clients[:3]] == [200, 401, 200]


@pytest.mark.requirement("web-is-bounded")
def test_a_session_has_a_limited_number_of_streams() -> None:
    session = Session()
    opened = [session.stream() for _ in range(STREAM_LIMIT)]
    for stream in opened:
        stream.__enter__()
    with pytest.raises(Exception, match="16 streams"), session.stream():
        pass
    opened[0].__exit__(None, None, None)

    with session.stream():
        pass


# Actions.


@pytest.mark.requirement("web-actions-come-from-our-pages")
@pytest.mark.parametrize(
    "origin",
    [
        "null",
        "",
        "http://127.0.0.1:8055",
        "http://bartack.localhost",
        "http://bartack.localhost:8056",
        "https://bartack.localhost:8055",
        "http://other.localhost:8055",
        "http://BARTACK.localhost:8055",
    ],
)
def test_a_post_from_another_origin_is_refused(client: TestClient, origin: str) -> None:
    for path in (POST, "/enter", "/leave"):
        assert client.post(path, json={}, headers={"Origin": origin}).status_code == 403
    assert client.get("/").status_code == 200


@pytest.mark.requirement("web-actions-come-from-our-pages")
def test_a_post_without_an_origin_is_refused(client: TestClient) -> None:
    del client.headers["Origin"]

    assert client.post(POST, json={}).status_code == 403


@pytest.mark.requirement("web-actions-come-from-our-pages")
def test_a_post_without_the_token_of_its_session_is_refused(site: Site) -> None:
    client, session = enter(site)
    _, other = enter(site)
    del client.headers["X-CSRF-Token"]

    assert client.post(POST, json={"csrf": session.csrf}).status_code == 403
    for given in (b"", other.csrf.encode(), b"\xe4"):
        assert client.post(POST, json={}, headers={b"X-CSRF-Token": given}).status_code == 403
    form = client.post(POST, content=f"a=1&csrf={session.csrf}", headers=FORM)
    assert (form.status_code, form.text) == (200, f"a=1&csrf={session.csrf}")
    for body in ("", "csrf=", f"csrf={other.csrf}", f"csrf={session.csrf}&csrf={session.csrf}"):
        assert client.post(POST, content=body, headers=FORM).status_code == 403


@pytest.mark.requirement("web-is-bounded")
def test_a_body_is_json_or_a_form_and_not_too_long(client: TestClient) -> None:
    for kind in ("text/plain", "multipart/form-data; boundary=x", "", "application/jsonx"):
        assert client.post(POST, content="{}", headers={"Content-Type": kind}).status_code == 400
    json = {"Content-Type": "application/json; charset=utf-8"}
    assert client.post(POST, content="x" * BODY_LIMIT, headers=json).status_code == 200
    assert client.post(POST, content="x" * (BODY_LIMIT + 1), headers=json).status_code == 400
    parts = (b"x" * 65536 for _ in range(BODY_LIMIT // 65536 + 1))
    assert client.post(POST, content=parts, headers=json).status_code == 400
    assert client.post(POST, content="a=1&" * 1001, headers=FORM).status_code == 200
    assert client.post(POST, content=b"\xff", headers=FORM | {"X-CSRF-Token": ""}).status_code == 403


@pytest.mark.requirement("web-is-bounded")
@pytest.mark.parametrize(("says", "status"), [("nothing", 400), ("goodbye", 0)])
def test_a_body_that_never_arrives_is_not_waited_for(
    site: Site, monkeypatch: pytest.MonkeyPatch, says: str, status: int
) -> None:
    monkeypatch.setattr(guard, "BODY_S", 0.01)
    client, _ = enter(site)
    names = ("Cookie", "Origin", "X-CSRF-Token")
    headers = [(name.lower().encode(), client.headers[name].encode()) for name in names]
    headers += [(b"host", site.host.encode()), (b"content-type", b"application/json")]
    ends: dict[str, Any] = {"client": ("127.0.0.1", 1), "server": ("127.0.0.1", 2), "http_version": "1.1"}
    scope = {"type": "http", "method": "POST", "path": POST, "raw_path": POST.encode(), "query_string": b""}
    sent: list[Message] = []

    async def receive() -> Message:
        if says == "nothing":
            await asyncio.Event().wait()
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        sent.append(message)

    asyncio.run(make_app(site)({**scope, **ends, "scheme": "http", "headers": headers}, receive, send))
    assert [message["status"] for message in sent if "status" in message] == ([status] if status else [])


@pytest.mark.requirement("web-actions-come-from-outside")
def test_a_process_that_must_not_act_may_read_and_nothing_else() -> None:
    site = make_site(judge_peer=lambda client, server: "it belongs to run-1")
    client, _ = enter(site)

    assert client.get("/").status_code == 200
    for path in (POST, "/leave"):
        refused = client.post(path, json={}, headers={"Accept": "application/json"})
        assert (refused.status_code, refused.json()["error"]["code"]) == (403, "BT328")
    code = site.sessions.new_code()
    assert client.post("/enter", json={"code": code}).status_code == 403
    site.sessions.enter(code)  # it is still good


@pytest.mark.requirement("web-can-be-read-only")
def test_a_read_only_server_takes_no_post_but_entering_and_leaving() -> None:
    site = make_site(read_only=True)
    client, _ = enter(site)

    refused = client.post(POST, json={})
    assert (refused.status_code, refused.json()["error"]["message"]) == (
        403,
        "refused: this server is read-only",
    )
    assert client.post("/enter", json={"code": site.sessions.new_code()}).status_code == 200
    client, _ = enter(site)
    assert client.post("/leave", json={}).status_code == 303


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS"])
def test_other_methods_are_checked_like_a_post(client: TestClient, method: str) -> None:
    headers = {"Origin": "http://evil.example", "Content-Type": "application/json"}

    assert client.request(method, "/", headers=headers).status_code == 403
    headers["Origin"] = "http://bartack.localhost:8055"
    assert client.request(method, "/", headers=headers).status_code == 405


# Answers.

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types bartack"
)
EVERY = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "same-origin",
    "cache-control": "no-store",
}


@pytest.mark.requirement("web-answers-have-their-headers")
def test_every_answer_has_the_headers(site: Site) -> None:
    with TestClient(make_app(site), base_url=site.origin, raise_server_exceptions=False) as client:
        entered, _ = enter(site, client)
        visit = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
        answers = [
            entered.get("/"),
            entered.get("/enter"),
            entered.get("/nothing"),
            entered.get("/broken"),
            entered.get("/", headers={"Host": "evil.example"}),
            entered.get("/", headers=visit),
            entered.get("/", headers={"Cookie": ""}),
            entered.post(POST, json={}),
            entered.get("/api/v1/nothing"),
        ]

    assert [answer.status_code for answer in answers] == [200, 200, 404, 500, 403, 200, 401, 403, 404]
    for answer in answers:
        assert {name: answer.headers.get(name) for name in EVERY} == EVERY
        assert "server" not in answer.headers


@pytest.mark.requirement("web-answers-have-their-headers")
def test_only_files_named_by_their_content_are_kept_by_browsers(client: TestClient) -> None:
    file = re.findall(r'href="(/static/[^"]+)"', client.get("/").text)[0]
    answer = client.get(file)

    assert answer.headers["cache-control"] == "public, max-age=31536000, immutable"
    assert {name: answer.headers.get(name) for name in EVERY if name != "cache-control"} == {
        name: value for name, value in EVERY.items() if name != "cache-control"
    }
    assert client.get(re.sub(r"/static/\w+/", "/static/0000/", file)).status_code == 404
    for path in ("../_app.py", "..%2f_app.py", "%2e%2e/_app.py", "enter.js/", "none.js"):
        assert client.get(f"{file.rpartition('/')[0]}/{path}").status_code == 404


def test_what_does_not_exist_is_reported_as_a_page_or_as_json(client: TestClient) -> None:
    page, answer = client.get("/nothing"), client.get("/api/v1/nothing")

    assert page.headers["content-type"].startswith("text/html")
    assert answer.json() == {"error": {"code": "BT1022", "message": "Not Found", "help": ""}}


@pytest.mark.requirement("web-links-work-once")
def test_too_many_wrong_codes_are_followed_by_a_pause(site: Site) -> None:
    client = make_client(site)
    code = site.sessions.new_code()
    statuses = [client.post("/enter", json={"code": "wrong"}).status_code for _ in range(WRONG_LIMIT + 1)]

    assert statuses == [401] * WRONG_LIMIT + [503]
    assert client.post("/enter", json={"code": code}).status_code == 503
