"""The pictures of the web page, light and dark: ``pictures.py`` makes them.

``make`` runs a small team whose agents answer from a script, and visits its page with the system's Chromium when a reviewer asks a
person while another agent works. The text of the page is kept beside the pictures: pixels differ from machine to machine, and
a test compares the text with that of the same run.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from bartack import Run

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

TEXT: Final = "web.txt"
THEMES: Final[tuple[Literal["light", "dark"], ...]] = ("light", "dark")
SIZE: Final = (1280, 824)
PACE: Final = 8.0
"""For the pictures the agents take their time, as many times as a test lets them."""
PART_S: Final = 1.4
"""How long a part of the tests takes a test: the last one ends well after the question was asked."""
SEEN_S: Final = 3.0
"""How long the tests have passed in the pictures."""
LIMIT_S: Final = 120.0

PROGRAM: Final = """\
# Prepares a release: agents review what has changed and draft the notes while the tests run.
worker reviewer(file: string): int {
    var risk: int = think { Rate the risk of the changes in $file from 0 to 9. }
    self.session.mailbox.risks.send({ file, risk })
    if risk > 7 {
        var sure: bool = ask { $file has risk $risk of 9. Release it anyway? }
        assert(sure, "$file is not released")
    }
    return risk
}

worker tester() {
    for part in ["unit", "browser", "upgrade"] {
        $ sleep PART_S
        print("$part tests passed")
    }
}

worker author(): string {
    for _ in 1...2 {
        var found = self.session.mailbox.risks.receive()
        print("${found.file}: risk ${found.risk}")
    }
    return think { Draft the release notes. }
}

worker main() {
    print("preparing release 2.4")
    var files = ["api.py", "billing.py", "views.py"]
    self.delegate([...files.map(reviewer), tester(), author()])
}
"""
SAYS: Final = "14 commits since the last release: 3 features, 6 fixes, one change of the API"


def start_team(place: Path, pace: float) -> Run:
    """Start the team in an empty directory; it waits for an answer soon."""
    rules = [
        {"pattern": file, "text": text, "delay_s": seconds * pace, "usd": usd, "tokens": {"output": tokens}}
        for file, text, seconds, usd, tokens in (
            ("api.py", "2", 1.6, 0.04, 5210),
            ("billing.py", "8", 2.4, 0.09, 11840),
            ("views.py", "3", 1.0, 0.03, 3870),
        )
    ]
    draft = {"type": "prompt.completed", "payload": {"text": "Notes", "result": "Notes"}}
    notes = {"says": SAYS, "delay_s": LIMIT_S * 2, "events": [draft]}
    script = {"version": 1, "prompts": rules, "responses": {"prompt": [notes]}}
    (place / "replies.json").write_text(json.dumps(script), encoding="utf-8")
    command = [sys.executable, "-P", "-m", "bartack", "agents", "scripted", "--script", "replies.json"]
    (place / "bartack.toml").write_text(
        f'[agents]\ndefault = "coder"\n\n[agents.coder]\ncommand = {json.dumps(command)}\n', encoding="utf-8"
    )
    (place / "release.pw").write_text(PROGRAM.replace("PART_S", str(PART_S * pace)), encoding="utf-8")
    return Run.start(place / "release.pw", workspace=place)


@contextmanager
def serve(run: Run, place: Path) -> Generator[str]:
    """A web server: a link to the page of the run."""
    words = ["web", run.id, "--port", "0", "--no-open", "--json", "-C", str(place)]
    with subprocess.Popen(  # noqa: S603 - Bartack itself
        [sys.executable, "-P", "-m", "bartack", *words], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as server:
        try:
            assert server.stdout is not None
            yield json.loads(server.stdout.readline())["url"]
        finally:
            server.terminate()


def visit(browser: Browser, link: str) -> Page:
    """The page of the run, when everything is there that the pictures show."""
    page = browser.new_page(viewport={"width": SIZE[0], "height": SIZE[1]})
    page.set_default_timeout(LIMIT_S * 1000)
    page.goto(link)
    _wait(page)
    return page


def reload(page: Page) -> None:
    """Load the page again: what it has announced to screen readers depends on when it was opened."""
    page.reload()
    _wait(page)


def _wait(page: Page) -> None:
    for shown in ("Release it anyway?", SAYS, "upgrade tests passed"):
        page.get_by_text(shown).first.wait_for()
    page.locator("#connection").filter(has_text="live").wait_for()
    page.locator("#marks > li").first.wait_for(state="attached")  # the timeline is drawn


def read_text(page: Page) -> str:
    """The text of a page as it is kept: its lines without numbers and ids, each once, in the order of the alphabet.

    Whether there is a mark before or after the last entry depends on which of several workers was the last.
    """
    lines = page.locator("body").inner_text().splitlines()
    return "".join(f"{line}\n" for line in sorted({_comparable(line) for line in lines} - {"", "«", "»"}))


def _comparable(line: str) -> str:
    return re.sub(r"[0-9a-f]{8,}|\d+", "0", " ".join(line.split()))


@contextmanager
def open_browser() -> Generator[Browser]:
    """The system's Chromium, without windows."""
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 - the text of a page needs no browser of ours

    program = next(
        (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))),
        "",
    )
    if not program:
        sys.exit("no Chromium on the PATH; install one with: make browser")
    flags = ["--disable-gpu", "--no-first-run", *(["--no-sandbox"] if os.getuid() == 0 else [])]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=flags)
        try:
            yield browser
        finally:
            browser.close()


def make() -> dict[str, bytes]:
    """The pictures and the text, by the names of their files."""
    with tempfile.TemporaryDirectory(prefix="release-") as place:
        os.environ["XDG_STATE_HOME"] = f"{place}/state"
        workspace = Path(place, "work")
        workspace.mkdir()
        return dict(_make(workspace))


def _make(place: Path) -> Iterator[tuple[str, bytes]]:
    run = start_team(place, PACE)
    try:
        with serve(run, place) as link, open_browser() as browser:
            page = visit(browser, link)
            page.wait_for_timeout(SEEN_S * 1000)
            reload(page)
            yield TEXT, read_text(page).encode()
            for theme in THEMES:
                page.emulate_media(color_scheme=theme)
                page.wait_for_timeout(500)  # the timeline is drawn again
                yield f"web-{theme}.png", page.screenshot()
    finally:
        run.cancel()


def show(browser: Browser, place: Path) -> str:
    """The text of the page of a run that is started in an empty directory now."""
    run = start_team(place, 1.0)
    try:
        with serve(run, place) as link:
            page = visit(browser, link)
            reload(page)
            shown = read_text(page)
            page.close()
            return shown
    finally:
        run.cancel()
