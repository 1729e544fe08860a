"""The doors of the server, tried with a real browser: what it sends where, and what it lets pages do."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest
from tests.waiting import PATIENCE_S
from tests.web.browsers import Elsewhere
from tests.web.servers import WebServer
from tests.web.test_server import ATTACK, INSIDE

from bartack import Run

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page

pytestmark = pytest.mark.browser

POST = """async ([address, headers, body]) => {
  try {
    const answer = await fetch(address, {method: "POST", credentials: "include", headers, body});
    return answer.status;
  } catch (error) {
    return "blocked";
  }
}"""


GET = "address => fetch(address, {credentials: 'include'}).then(() => 'read', () => 'blocked')"
STYLE = "() => document.head.append(Object.assign(document.createElement('style'), {textContent: 'b {color: red}'}))"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebServer]:
    with WebServer(tmp_path_factory.mktemp("work"), state=tmp_path_factory.mktemp("state")) as started:
        yield started


@pytest.fixture
def page(context: BrowserContext, server: WebServer, workspace: Path) -> Page:
    """A page of the server, which shows the workspace, entered by a link."""
    opened = context.new_page()
    enter(opened, server.new_link(workspace))
    return opened


@pytest.fixture
def elsewhere() -> Iterator[Elsewhere]:
    with Elsewhere() as started:
        yield started


def enter(page: Page, link: str) -> None:
    page.goto(link)
    page.get_by_role("button", name="Sign out").wait_for()


def token_of(page: Page) -> str:
    return page.locator("input[name=csrf]").first.input_value()


def form(server: WebServer, run: Run, csrf: str) -> str:
    """A page that answers a question as soon as it is shown, if it can."""
    fields = {"csrf": csrf, "question": "q1", "value": "yes", "type": "bool"}
    inputs = "".join(f'<input name={name} value="{value}">' for name, value in fields.items())
    action = f"{server.origin}/r/{run.id}/answer"
    return f"<form method=post action={action}>{inputs}</form><script>document.forms[0].submit()</script>"


def act(page: Page, run: Run, origin: str, csrf: str = "") -> Any:
    """Answer a question from the page that is open."""
    headers = {"Content-Type": "application/json", "X-CSRF-Token": csrf}
    body = json.dumps({"question": "q1", "value": True})
    return page.evaluate(POST, [f"{origin}/api/v1/runs/{run.id}/answer", headers, body])


@pytest.mark.requirement("web-links-work-once")
def test_a_link_enters_once_and_leaves_no_code_in_the_address(
    browser: Browser, context: BrowserContext, server: WebServer
) -> None:
    page, link = context.new_page(), server.new_link()
    enter(page, link)
    assert page.url == f"{server.origin}/"
    page.go_back()
    assert "#" not in page.url

    (cookie,) = context.cookies()
    del cookie["value"]
    assert cookie == {
        "name": "__Host-bartack",
        "domain": "bartack.localhost",
        "path": "/",
        "secure": True,
        "httpOnly": True,
        "sameSite": "Strict",
        "expires": -1,
    }
    second = browser.new_context()
    other = second.new_page()
    other.goto(link)
    other.get_by_text("the link was used already").wait_for()
    refused = other.goto(f"{server.origin}/")
    assert refused is not None
    assert refused.status == 401
    assert second.cookies() == []
    second.close()


@pytest.mark.requirement("web-needs-a-session")
def test_without_script_a_link_is_pasted(browser: Browser, server: WebServer) -> None:
    context = browser.new_context(java_script_enabled=False)
    page, link = context.new_page(), server.new_link()
    page.goto(link)
    page.get_by_label("paste the link").fill(link)
    page.get_by_role("button", name="Enter").click()

    page.get_by_role("button", name="Sign out").wait_for()
    context.close()


@pytest.mark.requirement("web-cookie-stays-here")
@pytest.mark.parametrize("name", ["127.0.0.1", "localhost", "other.localhost", "site.example"])
def test_the_cookie_is_not_sent_to_another_server_of_this_machine(
    page: Page, elsewhere: Elsewhere, name: str
) -> None:
    page.goto(elsewhere.address(name))
    page.evaluate("fetch('/again', {credentials: 'include'})")
    page.goto(elsewhere.address(name, "/by-link"))

    assert {visit.path for visit in elsewhere.visits} >= {"/", "/again", "/by-link"}
    assert not any("Cookie" in visit.headers for visit in elsewhere.visits)


@pytest.mark.requirement("web-shared-names-are-read-only")
def test_under_a_shared_name_the_cookie_is_sent_elsewhere_which_is_why_that_is_read_only(
    context: BrowserContext, workspace: Path, elsewhere: Elsewhere, asking: Run
) -> None:
    with WebServer(workspace, "--name", "127.0.0.1") as server:
        page = context.new_page()
        enter(page, server.link)
        csrf = token_of(page)
        assert act(page, asking, server.origin, csrf) == 403
        page.goto(elsewhere.address("127.0.0.1"))
        page.evaluate("fetch('/again', {credentials: 'include'})")

    assert "__Host-bartack=" in "".join(visit.headers.get("Cookie", "") for visit in elsewhere.visits)
    assert asking.state().status == "waiting"


@pytest.mark.requirement("web-refuses-other-pages")
@pytest.mark.parametrize("name", ["127.0.0.1", "other.localhost", "bartack.localhost"])
def test_a_page_elsewhere_cannot_act_or_read(
    page: Page, server: WebServer, elsewhere: Elsewhere, asking: Run, name: str
) -> None:
    csrf = token_of(page)
    elsewhere.pages["/form"] = form(server, asking, csrf)
    elsewhere.pages["/frame"] = f"<iframe src={server.origin}/></iframe>"
    page.goto(elsewhere.address(name))
    assert act(page, asking, server.origin, csrf) == "blocked"
    assert page.evaluate(GET, f"{server.origin}/") == "blocked"
    page.goto(elsewhere.address(name, "/frame"))
    assert all("Sign out" not in frame.content() for frame in page.frames)
    page.goto(elsewhere.address(name, "/form"))
    page.get_by_role("heading", name="refused").wait_for()

    assert asking.state().status == "waiting"


@pytest.mark.requirement("web-actions-come-from-our-pages")
def test_a_form_of_a_page_without_an_origin_is_refused(page: Page, server: WebServer, asking: Run) -> None:
    address = f"{server.origin}/r/{asking.id}/answer"
    with page.expect_response(address) as posted:
        page.goto(f"data:text/html,{quote(form(server, asking, token_of(page)))}")

    assert posted.value.status == 403
    assert posted.value.request.all_headers()["origin"] == "null"
    assert asking.state().status == "waiting"


@pytest.mark.requirement("web-answers-to-its-name")
@pytest.mark.parametrize("name", ["rebound.example", "127.0.0.1", "localhost", "other.localhost"])
def test_a_name_of_others_that_leads_to_the_server_shows_nothing(
    page: Page, server: WebServer, name: str
) -> None:
    address = f"http://{name}:{server.port}"
    for path in ("/", "/enter"):
        answer = page.goto(f"{address}{path}")
        assert answer is not None
        assert answer.status == 403
    assert page.evaluate("fetch('/').then(answer => answer.status)") == 403


@pytest.mark.requirement("web-refuses-other-pages")
def test_a_link_from_elsewhere_leads_to_the_page_by_one_more_click(
    page: Page, server: WebServer, elsewhere: Elsewhere
) -> None:
    elsewhere.pages["/"] = f'<a href="{server.origin}/?q=1">look</a>'
    page.goto(elsewhere.address("site.example"))
    page.get_by_text("look").click()
    links = page.get_by_role("link")
    links.first.wait_for()
    assert links.count() == 1
    links.first.click()

    page.get_by_role("button", name="Sign out").wait_for()
    assert page.url == f"{server.origin}/?q=1"


@pytest.mark.requirement("web-actions-come-from-outside")
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux says which process has a connection")
def test_a_cookie_stolen_from_the_browser_is_no_use_inside_a_run_and_the_browser_can_act(
    page: Page, context: BrowserContext, server: WebServer, workspace: Path, asking: Run
) -> None:
    (workspace / "attack.py").write_text(ATTACK, encoding="utf-8")
    (workspace / "inside.py").write_text(INSIDE, encoding="utf-8")
    (cookie,) = context.cookies()
    csrf = token_of(page)
    stolen = [str(server.port), server.host, str(cookie.get("value")), csrf, asking.id, "plain"]
    run = Run.start(workspace / "inside.py", sys.executable, "attack.py", *stolen, workspace=workspace)
    assert run.wait(PATIENCE_S).status == "completed"

    assert [status for status, _ in json.loads(str(run.result()))] == [403, 403, 403]
    assert asking.state().status == "waiting"
    assert act(page, asking, server.origin, csrf) == 200
    assert asking.wait(PATIENCE_S).status == "completed"


@pytest.mark.requirement("web-answers-have-their-headers")
def test_no_text_becomes_script_and_our_own_pages_keep_to_the_policy(page: Page, server: WebServer) -> None:
    faults: list[str] = []
    page.on("console", lambda message: faults.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: faults.append(str(error)))
    for path in ("/", "/enter"):
        page.goto(f"{server.origin}{path}")
        page.locator("h1").wait_for()
    assert faults == []

    sink = "() => { try { document.body.innerHTML = '<b>x</b>'; return 'set' } catch (error) { return error.name } }"
    assert page.evaluate(sink) == "TypeError"
    policy = "name => { try { trustedTypes.createPolicy(name, {}); return 'made' } catch (error) { return error.name } }"
    assert page.evaluate(policy, "other") == "TypeError"
    # The one policy that is allowed was made by the page, and there is one of it.
    assert page.evaluate(policy, "bartack") == "TypeError"
    page.evaluate(STYLE)
    assert re.search("style-src", " ".join(faults))


@pytest.mark.requirement("web-sessions-end")
def test_signing_out_ends_it_in_the_browser_too(
    page: Page, context: BrowserContext, server: WebServer
) -> None:
    page.get_by_role("button", name="Sign out").click()
    page.get_by_role("heading", name="Enter").wait_for()

    assert context.cookies() == []
    answer = page.goto(f"{server.origin}/")
    assert answer is not None
    assert answer.status == 401
