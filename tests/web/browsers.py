"""A real browser for tests: the system's Chromium, driven by Playwright, which downloads nothing. And servers for it to visit."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

NAMES = ("chromium", "chromium-browser", "google-chrome")
LEVELS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]
REQUIRE = "BARTACK_REQUIRE_BROWSER"
FLAGS = [
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    # Names of others that lead to this machine, as an attacker's name server would have it.
    "--host-resolver-rules=MAP *.example 127.0.0.1",
]


def find_chromium() -> str:
    """The program. ``BARTACK_REQUIRE_BROWSER=1`` makes a missing one a failure; else the test is skipped."""
    found = next((path for name in NAMES if (path := shutil.which(name))), None)
    if found is None:
        reason = f"NO BROWSER on the PATH ({', '.join(NAMES)}): what it would show is not tested; install one with: make browser"
        if os.environ.get(REQUIRE) == "1":
            pytest.fail(reason)
        pytest.skip(reason)
    return found


@contextmanager
def open_browser() -> Generator[Browser]:
    """A browser without windows. Not for longer than a module: while it is open, no other loop can run in its thread."""
    program = find_chromium()
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 - a machine without a browser does not need it

    flags = [*FLAGS, "--no-sandbox"] if os.getuid() == 0 else FLAGS
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=flags)
        try:
            yield browser
        finally:
            browser.close()


class Barriers:
    """What axe finds on a page that keeps people out. It is put into the page once, and asked as often as the page changes.

    Args:
        page: The page, loaded.
    """

    def __init__(self, page: Page) -> None:
        from axe_playwright_python.sync_playwright import Axe  # noqa: PLC0415 - not needed without a browser

        axe: Any = Axe()
        self._page = page
        page.evaluate(axe.axe_script)

    def find(self, within: str = "") -> list[str]:
        """What it finds; within the elements that a selector finds, if there is one."""
        options = {"runOnly": {"type": "tag", "values": LEVELS}, "resultTypes": ["violations"]}
        violations = self._page.evaluate(
            "async ([within, options]) => (await axe.run(within || document, options)).violations",
            [within, options],
        )
        return [
            f"{one['id']}: {node['html'][:300]} {node['failureSummary']}"
            for one in violations
            for node in one["nodes"]
        ]


class Visit(NamedTuple):
    """A request that another server has got."""

    method: str
    path: str
    headers: Mapping[str, str]


class Elsewhere:
    """Another server of this machine, as an agent may start one: it keeps what browsers send it.

    Attributes:
        pages: What it shows, by path.
        visits: The requests.
    """

    def __init__(self) -> None:
        self.pages: dict[str, str] = {}
        self.visits: list[Visit] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.visits.append(Visit(self.command, self.path, dict(self.headers)))
                page = outer.pages.get(self.path.partition("?")[0], "<title>elsewhere</title>").encode()
                self.send_response(200)
                self.send_header("Content-Type", "text/html; charset=utf-8")
                self.send_header("Content-Length", str(len(page)))
                self.end_headers()
                self.wfile.write(page)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name in the standard library
                """Write nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)

    def address(self, name: str, path: str = "/") -> str:
        """The address of a page under one of the names that lead there."""
        return f"http://{name}:{self.port}{path}"

    def __enter__(self) -> Elsewhere:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
