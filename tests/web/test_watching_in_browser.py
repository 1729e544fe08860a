"""Pages that are open for long: many tabs, tabs that are hidden or asleep, many workers, a journal that is damaged meanwhile."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.waiting import PATIENCE_S
from tests.web.journals import RUN, Writer, finished, started, written_run
from tests.web.programs import AGENT, ASKING_AN_AGENT
from tests.web.servers import WebServer
from tests.web.showcase import fill_run
from tests.web.test_pages_in_browser import no_faults, open_page

from bartack import Run
from bartack.journal import open_journal
from bartack.runtime.rundir.layout import RunDir
from bartack.runtime.state import entries as e

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext, Page

pytestmark = pytest.mark.browser

TABS = 8
"""More than the six connections that a browser opens to one host."""
HIDE = """(hidden) => {
    Object.defineProperty(document, "hidden", { configurable: true, get: () => hidden });
    Object.defineProperty(document, "visibilityState", { configurable: true, get: () => (hidden ? "hidden" : "visible") });
    document.dispatchEvent(new Event("visibilitychange"));
}"""
"""A browser without windows shows all its tabs: this is what a page learns of when another tab is chosen."""


@pytest.fixture
def server(workspace: Path) -> Iterator[WebServer]:
    with WebServer(workspace) as serving:
        yield serving


def watch(context: BrowserContext, server: WebServer, path: str = "") -> Page:
    """A tab that shows a run live."""
    page = context.new_page()
    page.goto(f"{server.origin}/r/{RUN}{path}")
    page.locator("[data-state=live]").wait_for()
    return page


def is_shown(page: Page, text: str) -> None:
    """Wait until something is open."""
    page.locator("[data-parts=o]").get_by_text(text).wait_for()


@pytest.mark.requirement("web-pages-are-live")
def test_of_eight_tabs_hidden_ones_give_their_stream_back_and_catch_up_later(
    context: BrowserContext, server: WebServer, workspace: Path
) -> None:
    with written_run(workspace) as run:
        run.begin()
        entered = open_page(context, server.link)
        entered.evaluate(HIDE, True)
        tabs: list[Page] = []
        with no_faults(context, server):
            for _ in range(TABS):
                tabs.append(watch(context, server))
                tabs[-1].evaluate(HIDE, True)
            run.write(started(1, about="make docs"))
            tabs[-1].evaluate(HIDE, False)
            is_shown(tabs[-1], "make docs")
            for tab in tabs[:-1]:
                assert tab.locator("[data-parts=o] > *").count() == 0
            tabs[-1].evaluate(HIDE, True)
            tabs[0].evaluate(HIDE, False)
            is_shown(tabs[0], "make docs")
            run.write(finished(1))
            tabs[0].locator("[data-parts=o] > *").wait_for(state="detached")


@pytest.mark.requirement("web-pages-are-live")
def test_a_tab_that_was_asleep_shows_what_happened_meanwhile(
    context: BrowserContext, server: WebServer, workspace: Path
) -> None:
    with written_run(workspace) as run:
        run.begin()
        open_page(context, server.link).close()
        page = watch(context, server)
        debugger: Any = context.new_cdp_session(page)  # its answers are not typed
        debugger.send("Page.setWebLifecycleState", {"state": "frozen"})
        for number in range(1, 401):  # more than a stream sends again
            run.write(started(number, about=f"test {number}"), finished(number))
        run.write(started(401, about="make docs"))
        debugger.send("Page.setWebLifecycleState", {"state": "active"})
        is_shown(page, "make docs")

        assert "401 steps" in page.locator("#head").inner_text()


@pytest.mark.requirement("web-pages-are-live")
def test_64_live_workers_are_on_the_page_as_they_change(
    context: BrowserContext, server: WebServer, workspace: Path
) -> None:
    paths = [f"main/9.{number}:w" for number in range(63)]
    with written_run(workspace) as run:
        run.begin()
        open_page(context, server.link).close()
        page = watch(context, server)
        with no_faults(context, server):
            for path in paths:
                run.write(
                    e.WorkerSpawned(path=path, worker="team:w", p="main", n=9),
                    value={"args": []},
                )
            for turn in range(1, 6):
                run.write(*(started(turn, path, about=f"turn {turn}") for path in paths))
                run.write(*(finished(turn, path) for path in paths))
            run.write(*(started(6, path, about="turn 6") for path in paths))
            page.locator(".lane").nth(63).wait_for()
            page.locator("[data-parts=o] > *").nth(62).wait_for()

            lanes = page.locator(".lane .name").evaluate_all("all => all.map((one) => one.title)")
            assert sorted(lanes) == sorted(["main", *paths])
            page.locator(".lane .doing").filter(has_text="turn 6").nth(62).wait_for()
            open_steps = page.locator("[data-parts=o] > *").all_inner_texts()
            assert len(open_steps) == 63
            assert all("turn 6" in text for text in open_steps)
            assert f"{5 * 63 + 63} steps" in page.locator("#head").inner_text()


@contextmanager
def agent_at_a_gate(workspace: Path) -> Generator[int]:
    """``bartack run`` with an agent that says what is written to a descriptor."""
    gate = workspace / "gate"
    os.mkfifo(gate)
    descriptor = os.open(gate, os.O_RDWR)
    (workspace / "notes.py").write_text(ASKING_AN_AGENT, encoding="utf-8")
    (workspace / "agent.py").write_text(AGENT, encoding="utf-8")
    command = [sys.executable, str(workspace / "agent.py"), str(gate)]
    settings = f'[agents.writer]\nkind = "ndjson"\ncommand = {command}\n'
    (workspace / "bartack.toml").write_text(settings, encoding="utf-8")
    words = [sys.executable, "-m", "bartack", "run", "notes.py"]
    with subprocess.Popen(words, cwd=workspace, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as run:
        try:
            yield descriptor
            assert run.wait(PATIENCE_S) == 0
        finally:
            run.kill()
            os.close(descriptor)


@pytest.mark.requirement("web-shows-what-agents-said")
def test_the_words_of_a_real_program_are_on_the_page_as_they_come_and_its_reply_in_the_end(
    context: BrowserContext, server: WebServer, workspace: Path
) -> None:
    page = open_page(context, server.link)
    with no_faults(context, server), agent_at_a_gate(workspace) as gate:
        row = page.locator("#runs > li")
        row.get_by_text("1 prompt, ").wait_for()
        assert row.locator(".num").first.inner_text() == "1"
        page.get_by_role("link", name="notes.py").click()
        page.locator("[data-state=live]").wait_for()
        said = page.locator("[data-parts=c]")
        os.write(gate, b"say reading src/dates.py\n")
        said.get_by_text("reading src/dates.py").wait_for()
        said.get_by_role("link", name="writer").click()
        page.locator("#call").get_by_text("open").wait_for()
        page.locator("[data-state=live]").wait_for()
        page.evaluate("window.sameDocument = true")
        lines = page.locator(".said-lines .l-text .words-of")
        assert lines.all_inner_texts() == ["reading src/dates.py"]
        assert page.get_by_role("heading", name="Reply").count() == 0
        for number, word in enumerate(["the leap year", "rule is missing", "for <b>2100</b>"], 2):
            os.write(gate, f"say {word}\n".encode())
            lines.nth(number - 1).wait_for()
            assert lines.last.inner_text() == word
            page.locator(".said-lines .l-usage").nth(number - 1).get_by_text(f"turn {number}").wait_for()

        os.write(gate, b"reply two fixes\n")
        page.get_by_role("heading", name="Reply").wait_for()
        assert page.locator("#reply").get_by_text("two fixes").is_visible()
        assert page.locator("#call").get_by_text("finished").is_visible()
        page.locator("#head").get_by_text("completed").wait_for()
        assert page.evaluate("window.sameDocument")
        assert page.locator("main b").count() == 0
    assert Run.open("latest", workspace).result() == "two fixes"


@pytest.mark.requirement("web-follows-through-damage")
def test_a_journal_that_is_damaged_while_its_page_is_open_is_reported_and_the_entries_before_stay(
    context: BrowserContext, server: WebServer, workspace: Path, tmp_path: Path
) -> None:
    with written_run(workspace) as run:
        fill_run(run)
    open_page(context, server.link).close()
    page = watch(context, server)
    with run.file.open("ab") as file:
        file.write(damaged_entries(run, tmp_path / "copy"))
    page.locator("#head [role=alert]").wait_for()

    assert (
        f"The entries before the damage, up to {run.seq + 1}, are shown."
        in page.locator("#head").inner_text()
    )
    is_shown(page, "pytest -q")
    assert not page.get_by_text("make docs").is_visible()


def damaged_entries(run: Writer, copy: Path) -> bytes:
    """Commits that continue a journal: it is opened, and of two entries the first, acknowledged before the second, is changed."""
    shutil.copytree(run.run.path, copy)
    with open_journal(copy, durability="process") as journal:
        more = Writer(RunDir(copy), journal)
        more.write(started(30, about="make docs"))
        more.write(started(31, about="make site"))
    before, after = run.file.read_bytes(), more.file.read_bytes()
    assert after.startswith(before)
    return after[len(before) :].replace(b"make docs", b"make dogs")


@pytest.mark.requirement("web-follows-through-damage")
def test_a_commit_that_a_power_cut_takes_back_goes_from_the_page(
    context: BrowserContext, server: WebServer, workspace: Path
) -> None:
    with written_run(workspace) as run:
        fill_run(run)
        size = run.file.stat().st_size
        run.write(started(30, about="make docs"))
    open_page(context, server.link).close()
    page = watch(context, server)
    is_shown(page, "make docs")
    os.truncate(run.file, size)
    page.locator("[data-parts=o]").get_by_text("make docs").wait_for(state="detached")

    is_shown(page, "pytest -q")
    page.locator("[data-state=live]").wait_for()
