"""Links: they work once, for a minute; what becomes of them is a session."""

from __future__ import annotations

import gc

import pytest
from tests.web.sites import make_client, make_site

from bartack.errors import WebEnterError, WebRefusedError
from bartack.web._sessions import CODE_LIMIT, CODE_S, WRONG_LIMIT, WRONG_S, Sessions


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.requirement("web-links-work-once")
def test_a_link_works_once() -> None:
    sessions = Sessions()
    code = sessions.new_code("/r/run-1")
    entered = sessions.enter(code)

    assert entered.to == "/r/run-1"
    assert sessions.find(entered.token) is not None
    with pytest.raises(WebEnterError):
        sessions.enter(code)


@pytest.mark.requirement("web-links-work-once")
def test_a_link_works_for_a_minute() -> None:
    clock = Clock()
    sessions = Sessions(clock)
    early, late = sessions.new_code(), sessions.new_code()
    clock.now += CODE_S - 0.1
    sessions.enter(early)
    clock.now += 0.1

    with pytest.raises(WebEnterError):
        sessions.enter(late)


@pytest.mark.requirement("web-links-work-once")
def test_a_code_has_128_random_bits() -> None:
    sessions = Sessions()
    codes = {sessions.new_code() for _ in range(1000)}

    assert len(codes) == 1000
    assert {len(code) for code in codes} == {22}  # of 6 bits each


@pytest.mark.requirement("web-links-work-once")
def test_the_oldest_of_too_many_unused_links_no_longer_works() -> None:
    sessions = Sessions()
    codes = [sessions.new_code() for _ in range(CODE_LIMIT + 1)]

    with pytest.raises(WebEnterError):
        sessions.enter(codes[0])
    sessions.enter(codes[1])


@pytest.mark.requirement("web-links-work-once")
def test_after_a_pause_codes_are_taken_again() -> None:
    clock = Clock()
    sessions = Sessions(clock)
    for _ in range(WRONG_LIMIT):
        with pytest.raises(WebEnterError):
            sessions.enter("wrong")
        clock.now += 1
    with pytest.raises(WebRefusedError):
        sessions.enter(sessions.new_code())
    clock.now += WRONG_S - WRONG_LIMIT

    sessions.enter(sessions.new_code())


@pytest.mark.requirement("web-sessions-are-hashes")
def test_neither_codes_nor_cookies_are_kept() -> None:
    sessions = Sessions()
    code = sessions.new_code()
    used = sessions.new_code()
    entered = sessions.enter(used)
    texts = [str(vars(sessions)), *(str(found) for found in gc.get_referents(*vars(sessions).values()))]

    assert not any(secret in text for secret in (code, used, entered.token) for text in texts)


@pytest.mark.requirement("web-cookie-is-strict")
@pytest.mark.parametrize("how", ["script", "form", "whole link"])
def test_entering_sets_a_strict_cookie_and_leads_to_the_page(how: str) -> None:
    site = make_site()
    client = make_client(site)
    code = site.sessions.new_code("/r/run-1")
    if how == "script":
        answer = client.post("/enter", json={"code": code})
        assert answer.json() == {"to": "/r/run-1"}
    else:
        answer = client.post(
            "/enter", data={"code": f"{site.origin}/enter#{code}" if "link" in how else code}
        )
        assert (answer.status_code, answer.headers["location"]) == (303, "/r/run-1")

    name, _, rest = answer.headers["set-cookie"].partition("=")
    token, *attributes = rest.split("; ")
    assert name == "__Host-bartack"
    assert sorted(attributes) == ["HttpOnly", "Path=/", "SameSite=strict", "Secure"]
    assert client.get("/", headers={"Cookie": f"{name}={token}"}).status_code == 200


@pytest.mark.parametrize("body", [b"", b"{}", b"[]", b'{"code": 1}', b"\xff", b'{"code": null}'])
def test_a_body_without_a_code_is_refused(body: bytes) -> None:
    client = make_client(make_site())

    answer = client.post("/enter", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 400
    assert client.post("/enter", data={}).status_code in {400, 401}


@pytest.mark.requirement("web-sessions-end")
def test_entering_again_ends_the_session_before() -> None:
    site = make_site()
    first = site.sessions.enter(site.sessions.new_code()).token
    client = make_client(site)
    client.headers["Cookie"] = f"__Host-bartack={first}"
    client.post("/enter", json={"code": site.sessions.new_code()})

    assert site.sessions.find(first) is None
