"""The pages in a real browser: what people see, hear and press, and what becomes of a page while its run changes."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import pytest
from tests.waiting import PATIENCE_S
from tests.web.browsers import Barriers
from tests.web.hostile import CORPUS, fill
from tests.web.journals import RUN, finished, started, written_run
from tests.web.pages import LISTS, RUN_PAGES
from tests.web.servers import WebServer
from tests.web.showcase import Showcase, fill_run

from bartack import Run
from bartack.web import _wording

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page

pytestmark = pytest.mark.browser

WIDTHS = (1400, 768, 360)
THEMES: tuple[Literal["light"], Literal["dark"]] = ("light", "dark")
PARTS = 3
"""Into how many tests the pages are divided, so that they can run at the same time."""
SCREENSHOTS = "BARTACK_TEST_SCREENSHOTS"
"""A variable that names a directory, where pictures of all pages are kept."""


@pytest.fixture
def server(workspace: Path) -> Iterator[WebServer]:
    with WebServer(workspace) as serving:
        yield serving


@pytest.fixture
def page(context: BrowserContext, server: WebServer) -> Page:
    """The list of runs, entered by a link."""
    return open_page(context, server.link)


def open_page(context: BrowserContext, link: str) -> Page:
    opened = context.new_page()
    opened.goto(link)
    opened.locator("main h1").get_by_text("Runs").wait_for()
    return opened


@contextmanager
def no_faults(context: BrowserContext, server: WebServer) -> Generator[None]:
    """Nothing is reported, refused by the policy, opened by a text, or asked from elsewhere."""
    faults: list[str] = []
    context.on("console", lambda message: faults.append(message.text) if message.type == "error" else None)
    context.on("weberror", lambda error: faults.append(str(error.error)))
    context.on("dialog", lambda dialog: faults.append(dialog.message))
    context.on(
        "request",
        lambda asked: None if asked.url.startswith(server.origin) else faults.append(asked.url),
    )
    yield
    assert faults == []


@pytest.mark.requirement("web-pages-are-accessible")
@pytest.mark.parametrize("part", range(PARTS))
def test_every_page_is_accessible_at_every_width(browser: Browser, showcase: Showcase, part: int) -> None:
    found: dict[str, object] = {}
    with WebServer(showcase.workspace, state=showcase.state) as server:
        context = browser.new_context(reduced_motion="reduce")  # colours change at once with the theme
        page = open_page(context, server.link)
        with no_faults(context, server):
            for name, path in list(showcase.pages.items())[part::PARTS]:
                page.goto(f"{server.origin}{path}")
                page.locator("main").wait_for()
                found |= look_at(page, name)
        context.close()
    assert not found, json.dumps(found, indent=1)


def look_at(page: Page, name: str) -> dict[str, object]:
    """What is wrong with a page at each width and in each theme, as it is loaded and with everything on it open.

    What was folded is looked at in the second theme at one width: a theme is colours, and moves nothing.
    """
    found: dict[str, object] = {}
    pictures = os.environ.get(SCREENSHOTS)
    barriers = Barriers(page)
    for state in ("", ", all open"):
        if state and not page.evaluate(OPEN_ALL):
            break
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 900})
            if page.evaluate("document.documentElement.scrollWidth > innerWidth"):
                found[f"{name}, {width}{state}, width"] = "it is wider than the window"
            for theme in THEMES[:1] if state and width != WIDTHS[0] else THEMES:
                page.emulate_media(color_scheme=theme)
                place = f"{name}, {theme}, {width}{state}"
                if report := barriers.find("details, dialog" if state else ""):
                    found[place] = report
                if pictures:
                    page.screenshot(
                        path=Path(pictures) / f"{re.sub('[ ,]+', '-', place)}.png", full_page=True
                    )
    return found


OPEN_ALL = """() => {
    const folded = [...document.querySelectorAll("details:not([open])")];
    for (const one of folded) one.open = true;
    document.querySelector("dialog")?.show();
    return folded.length > 0;
}"""
"""Opens what is folded, and the table of keys. Returns whether there is anything that a page has of its own."""


@pytest.mark.requirement("web-text-is-text")
def test_texts_of_a_run_open_nothing_and_run_nothing(
    context: BrowserContext, page: Page, server: WebServer, workspace: Path
) -> None:
    text = "".join(CORPUS[name] for name in ("handler", "title", "svg", "textarea", "attribute", "terminal"))
    with written_run(workspace) as run:
        fill(run, text[:180])
        run.mirror()
        with no_faults(context, server):
            for path in (*LISTS.values(), *(f"/r/{RUN}{path}" for path in RUN_PAGES.values())):
                page.goto(f"{server.origin}{path}")
                page.locator("main").wait_for()
            page.goto(f"{server.origin}/r/{RUN}")
            page.locator("[data-state=live]").wait_for()
            run.write(started(9, about=text))
            page.locator("[data-parts=o] > *").get_by_text("onerror").first.wait_for()
        assert page.locator("img, b").count() == 0
        shutil.rmtree(run.run.agents)


@pytest.mark.requirement("web-works-without-script")
def test_without_script_runs_are_found_looked_at_and_answered(
    browser: Browser, server: WebServer, asking: Run
) -> None:
    context = browser.new_context(java_script_enabled=False)
    context.set_default_timeout(PATIENCE_S * 1000)
    page = context.new_page()
    page.goto(f"{server.origin}/enter")
    page.get_by_label("Or paste the link here").fill(server.link)
    page.get_by_role("button", name="Enter").click()
    page.get_by_role("searchbox").fill("asking")
    page.keyboard.press("Enter")
    page.get_by_role("link", name="asking.py").click()
    page.get_by_text("not live").wait_for()
    page.get_by_role("article").get_by_role("button", name="Yes").click()

    assert asking.wait(PATIENCE_S).status == "completed"
    page.reload()
    assert page.locator("#head").get_by_text("completed").is_visible()
    context.close()


@pytest.mark.requirement("web-works-by-keyboard")
@pytest.mark.requirement("web-pages-are-live")
def test_by_keyboard_a_run_is_found_and_answered_and_the_page_shows_its_end(
    context: BrowserContext, page: Page, server: WebServer, asking: Run
) -> None:
    with no_faults(context, server):
        page.locator("#runs > li").wait_for()
        page.keyboard.press("j")
        page.keyboard.press("Enter")
        page.locator("[data-state=live]").wait_for()
        page.locator("#questions article").wait_for()
        assert page.title().startswith("(?1) ")
        page.keyboard.press("a")
        page.keyboard.press("y")
        page.locator("#head").get_by_text("completed").wait_for()
        assert page.locator("#questions article").count() == 0
        assert asking.state().status == "completed"

        page.keyboard.press("?")
        page.get_by_role("dialog").get_by_label("One-letter keys").uncheck()
        page.get_by_role("button", name="Close").click()
        page.keyboard.press("2")
        page.keyboard.press("t")
        assert page.url.endswith(asking.id)
        page.keyboard.press("Tab")
        page.locator(":focus").wait_for()


@pytest.mark.requirement("web-pages-are-accessible")
def test_the_current_tab_is_in_sight_in_a_narrow_window(
    page: Page, server: WebServer, workspace: Path
) -> None:
    with written_run(workspace) as run:
        fill_run(run)
        run.mirror()
    page.set_viewport_size({"width": 360, "height": 800})
    page.goto(f"{server.origin}/r/{RUN}/journal")
    page.locator("[data-state=live]").wait_for()

    box = page.locator("#tabs [aria-current]").bounding_box()
    assert box is not None
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= 360


def test_pages_count_times_in_the_forms_that_the_server_writes(page: Page) -> None:
    module = page.evaluate("document.querySelector('script[type=module]').src").replace("app.js", "live.js")
    seconds = [0, 41, 59, 60, 161, 3599, 3600, 3723, 172_799, 172_800, 400_000]
    for name in ("elapsed", "age"):
        counted = page.evaluate(
            "async ([module, name, all]) => { const live = await import(module); return all.map((one) => live[name](one * 1e6)); }",
            [module, name, seconds],
        )
        assert counted == [getattr(_wording, name)(one * 1_000_000) for one in seconds]


@pytest.mark.requirement("web-questions-are-answered-in-place")
def test_of_two_tabs_with_one_question_one_is_first_and_the_other_is_told(
    context: BrowserContext, page: Page, server: WebServer, asking: Run
) -> None:
    late = context.new_page()
    late.goto(f"{server.origin}/questions")
    # It learns of nothing, but can still post.
    late.route("**/*", lambda route: route.continue_() if route.request.method == "POST" else route.abort())
    late.evaluate("dispatchEvent(new Event('pagehide'))")
    page.goto(f"{server.origin}/questions")
    page.get_by_role("button", name="No", exact=True).click()
    page.get_by_text("No run waits for an answer.").wait_for()
    late.get_by_role("button", name="Yes").click()

    late.locator("article .outcome").get_by_text("already answered").wait_for()
    assert asking.wait(PATIENCE_S).status == "completed"
    assert asking.result() == "deployed: False"


@pytest.mark.requirement("web-pages-are-live")
def test_an_answer_that_somebody_writes_is_left_alone(page: Page, server: WebServer, workspace: Path) -> None:
    with written_run(workspace) as run:
        run.begin()
        run.write(started(1, step="ask", question="q1"), value={"question": "Which?", "type": "str"})
        page.goto(f"{server.origin}/r/{RUN}")
        page.locator("[data-state=live]").wait_for()
        page.get_by_label("Your answer").fill("half an ans")
        run.write(started(2, about="make docs"))
        page.locator("[data-parts=o]").get_by_text("make docs").wait_for()
        run.write(finished(1, step="ask"), value="other")
        page.get_by_text("This question is not open any more").wait_for()

        assert page.get_by_label("Your answer").input_value() == "half an ans"


@pytest.mark.requirement("web-pages-are-live")
def test_a_run_that_is_killed_is_shown_as_interrupted_and_resumed_by_its_button(
    page: Page, server: WebServer, asking: Run
) -> None:
    page.goto(f"{server.origin}/r/{asking.id}")
    page.locator("[data-state=live]").wait_for()
    os.kill(json.loads((Path(asking.dir) / "run.json").read_text())["pid"], signal.SIGKILL)
    page.locator("#head").get_by_text("interrupted").wait_for()
    page.get_by_role("button", name="Resume").first.click()
    page.locator("#head").get_by_text("waiting").wait_for()
    page.get_by_role("button", name="Yes").click()
    page.locator("#head").get_by_text("completed").wait_for()

    assert "resumed 1 time" in page.locator("#head").inner_text()


@pytest.mark.requirement("web-follows-through-damage")
def test_a_run_that_is_damaged_says_so_and_shows_what_is_before(
    page: Page, server: WebServer, workspace: Path
) -> None:
    with written_run(workspace) as run:
        fill_run(run)
    journal = run.run.path / "journal.ndjson"
    data = journal.read_bytes()
    place = data.index(b"pytest -q")
    journal.write_bytes(data[:place] + b"P" + data[place + 1 :])
    page.goto(f"{server.origin}/r/{RUN}/steps")
    page.get_by_text("The entries before the damage").wait_for()

    assert page.get_by_text("git status").is_visible()
    assert not page.get_by_text("pytest -q").is_visible()


@pytest.mark.requirement("web-follows-through-damage")
def test_a_run_that_is_deleted_says_so_and_what_was_shown_stays(
    page: Page, server: WebServer, workspace: Path
) -> None:
    with written_run(workspace) as run:
        fill_run(run)
    page.goto(f"{server.origin}/r/{RUN}")
    page.locator("[data-state=live]").wait_for()
    shutil.rmtree(run.run.path)
    page.get_by_text("This run was deleted").wait_for()

    assert page.locator("#head").get_by_text("team.py").is_visible()


@pytest.mark.requirement("web-pages-are-live")
def test_a_page_whose_server_stops_says_so_and_comes_back(
    context: BrowserContext, workspace: Path, asking: Run
) -> None:
    with WebServer(workspace) as first:
        page = open_page(context, first.link)
        page.goto(f"{first.origin}/r/{asking.id}")
        page.locator("[data-state=live]").wait_for()
        port = first.port
    page.get_by_text("Not connected since").wait_for()
    assert page.locator(".asked").get_by_text("Deploy?").is_visible()

    with WebServer(workspace, "--port", str(port)) as second:
        page.get_by_text("The server was started again").wait_for()
        other = open_page(context, second.link)
        page.locator("[data-state=live]").wait_for()
        assert page.locator("#banner").is_hidden()
        other.close()
