"""What people do to runs in a real browser: they stop, resume and answer them, and move through their entries."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.waiting import PATIENCE_S
from tests.web.journals import RUN, written_run
from tests.web.servers import WebServer
from tests.web.test_pages import fill_run
from tests.web.test_pages_in_browser import no_faults, open_page

from bartack import Run

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext, Page

pytestmark = pytest.mark.browser


@pytest.fixture
def server(workspace: Path) -> Iterator[WebServer]:
    with WebServer(workspace) as serving:
        yield serving


@pytest.fixture
def page(context: BrowserContext, server: WebServer) -> Page:
    """The list of runs, entered by a link."""
    return open_page(context, server.link)


@pytest.mark.requirement("web-actions-show-their-effect")
def test_a_run_is_interrupted_and_resumed_without_loading_its_page_again(
    context: BrowserContext, page: Page, server: WebServer, asking: Run
) -> None:
    with no_faults(context, server):
        page.goto(f"{server.origin}/r/{asking.id}")
        page.locator("[data-state=live]").wait_for()
        page.evaluate("window.sameDocument = true")
        page.get_by_role("button", name="Interrupt").click()
        page.get_by_role("button", name="Resume").first.wait_for()
        assert page.evaluate("window.sameDocument")
        assert page.get_by_role("button", name="Interrupt").count() == 0

        page.get_by_role("button", name="Resume").first.click()
        page.get_by_role("button", name="Interrupt").wait_for()
        page.get_by_role("button", name="Yes").click()
        page.locator("#head").get_by_text("completed").wait_for()
    assert asking.result() == "deployed: True"


@pytest.mark.requirement("web-actions-show-their-effect")
def test_an_answer_to_a_run_that_is_interrupted_is_kept_and_taken_by_resuming_it(
    context: BrowserContext, page: Page, server: WebServer, asking: Run
) -> None:
    asking.interrupt()
    asking.wait(PATIENCE_S)
    with no_faults(context, server):
        page.goto(f"{server.origin}/r/{asking.id}")
        page.get_by_role("button", name="Yes").click()
        page.locator("article").get_by_text("kept until the run is resumed").wait_for()
        page.reload()
        page.locator("article").get_by_text("kept until the run is resumed").wait_for()
        assert page.get_by_role("button", name="Yes").count() == 0

        page.get_by_role("button", name="Resume").first.click()
        page.locator("#head").get_by_text("completed").wait_for()
        assert page.locator("article.question").count() == 0
    assert asking.result() == "deployed: True"


@pytest.mark.requirement("web-pages-are-live")
def test_the_first_run_takes_the_place_of_the_words_that_there_are_none(
    context: BrowserContext, page: Page, server: WebServer, workspace: Path
) -> None:
    with no_faults(context, server):
        page.locator("[data-state=live]").wait_for()
        page.get_by_text("There are no runs yet.").wait_for()
        with written_run(workspace) as run:
            fill_run(run)
            run.mirror()
        page.locator("#runs > li").wait_for()

        assert page.get_by_text("There are no runs yet.").is_hidden()
        assert page.locator(f'#runs a[href="/r/{RUN}"]').is_visible()
